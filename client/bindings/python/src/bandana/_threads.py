"""A thread of the operating system, also where an app has put greenlets in the place of threads."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any, Callable, Optional

_log = logging.getLogger("bandana")


def start(target: Callable[..., None], *args: Any) -> Optional[threading.Thread]:
    """Runs ``target`` beside the app until it returns; it does not keep the process from ending.
    Returns the thread if ``threading`` knows it.

    The client waits in native code. In a greenlet it would hold up all others.
    """
    uwsgi = sys.modules.get("uwsgi")
    if uwsgi is not None and not {"enable-threads", "threads"} & set(uwsgi.opt):
        _log.warning(
            "uWSGI runs no thread besides the app's, so nothing is fetched or sent; start it with "
            "--enable-threads"
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
    of_eventlet: Any = sys.modules.get("eventlet.patcher")
    if of_eventlet is not None and of_eventlet.is_monkey_patched("thread"):
        start_of_eventlet: Callable[..., Any] = of_eventlet.original("_thread").start_new_thread
        return start_of_eventlet
    return None
