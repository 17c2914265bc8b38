"""A thread of the operating system, also where an app has put greenlets in the place of threads."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import threading
import time
from typing import Any, Callable, Optional, Type

_log = logging.getLogger("bandana")


def log(level: int, said: str, *values: object, held: Type[BaseException] = Exception) -> None:
    """Logs what is said. What a handler or a filter of the app's raises ends neither the call of the app's
    that it comes from nor the client's thread."""
    with contextlib.suppress(held):
        _log.log(level, said, *values, stacklevel=2)


def start(target: Callable[..., None], *args: Any) -> Optional[threading.Thread]:
    """Runs ``target`` beside the app until it returns; it does not keep the process from ending.
    Returns the thread if ``threading`` knows it.

    The client waits in native code. In a greenlet it would hold up all others.
    """
    uwsgi = sys.modules.get("uwsgi")
    if uwsgi is not None and not {"enable-threads", "threads"} & set(uwsgi.opt):
        log(
            logging.WARNING,
            "uWSGI runs no thread besides the app's, so nothing is fetched or sent; start it with "
            "--enable-threads",
        )
    native = _native()
    if native is not None:
        native(target, args)
        return None
    thread = threading.Thread(target=target, args=args, name="bandana", daemon=True)
    thread.start()
    return thread


def _native() -> Optional[Callable[..., Any]]:
    """What starts a thread where ``threading`` starts greenlets."""
    of_gevent: Any = sys.modules.get("gevent.monkey")
    if of_gevent is not None and of_gevent.is_module_patched("_thread"):
        start_of_gevent: Callable[..., Any] = of_gevent.get_original("_thread", "start_new_thread")
        return start_of_gevent
    if is_of_eventlet():
        of_eventlet: Any = sys.modules["eventlet.patcher"]
        start_of_eventlet: Callable[..., Any] = of_eventlet.original("_thread").start_new_thread
        return start_of_eventlet
    return None


def is_of_eventlet() -> bool:
    """Whether eventlet has taken the place of threads. Its locks are for one thread: what takes one in the
    client's own thread may fail."""
    of_eventlet: Any = sys.modules.get("eventlet.patcher")
    return of_eventlet is not None and bool(of_eventlet.is_monkey_patched("thread"))


#: What runs in the main thread of a process that only watches the app's files: modules, and functions.
_WATCHERS = {
    "werkzeug._reloader": "restart_with_reloader",
    "django.utils.autoreload": "restart_with_reloader",
}

#: How long a new client looks for a reloader, in seconds, and how often, in milliseconds.
_LOOKS_SECONDS = 60.0
_GLANCE_MS = 50


class Reloader:
    """Flask's and Django's reloaders. The process that they are started in imports the app, begins a
    child that serves it, and only watches files from then on. Its client would keep the directory from
    the child's.
    """

    def __init__(self) -> None:
        may_come = not {"werkzeug", "django"}.isdisjoint(sys.modules)
        self._end = time.monotonic() + _LOOKS_SECONDS if may_come else -math.inf

    def is_here(self) -> bool:
        """Whether this process only watches files now."""
        if time.monotonic() >= self._end or _WATCHERS.keys().isdisjoint(sys.modules):
            return False
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        while frame is not None:
            if _WATCHERS.get(frame.f_globals.get("__name__", "")) == frame.f_code.co_name:
                return True
            frame = frame.f_back
        return False

    def glance_ms(self, longest: int) -> int:
        """How long to wait at most before the next look."""
        return _GLANCE_MS if time.monotonic() < self._end else longest
