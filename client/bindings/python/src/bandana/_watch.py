"""Listeners, which hear when an experiment begins to give arms, or ceases to."""

from __future__ import annotations

import logging
from typing import Callable, Dict

from . import _core, _threads

Listener = Callable[[], None]


class _Watched:
    """An experiment, what is known of it, and one who wants to hear of it."""

    def __init__(self, core: _core.Core, name: str, listener: Listener) -> None:
        self._core, self._name, self._listener = core, name, listener
        self._is_ready = core.is_ready(name)

    def look(self) -> None:
        is_ready = self._core.is_ready(self._name)
        if is_ready == self._is_ready:
            return
        self._is_ready = is_ready
        try:
            self._listener()
        except BaseException as error:  # On the client's own thread, nothing of the app's ends it.
            said = "a listener of %s failed: %s"
            _threads.log(
                logging.WARNING, said, self._name, type(error).__name__, held=BaseException
            )


class Watch:
    """The listeners of a client. Its thread looks after each step, and who closes it.

    It has no lock: where greenlets have taken the place of threads, the lock would be one of theirs, and
    the client's thread is none. Each change of the table is a single one.
    """

    def __init__(self) -> None:
        self._watched: Dict[int, _Watched] = {}

    def add(self, core: _core.Core, name: str, listener: Listener) -> Callable[[], None]:
        """Returns what ends it."""
        if _threads.is_of_eventlet():
            said = "with eventlet nobody is told when arms of %s come; look at is_ready"
            _threads.log(logging.WARNING, said, name)
        watched = _Watched(core, name, listener)
        self._watched[id(watched)] = watched
        # What has changed meanwhile, the thread may have missed.
        watched.look()

        def end() -> None:
            self._watched.pop(id(watched), None)

        return end

    def look_on_own_thread(self) -> None:
        """:meth:`look`, by the client's thread."""
        if self._watched and not _threads.is_of_eventlet():
            self.look()

    def look(self) -> None:
        for watched in self._watched.copy().values():
            watched.look()
