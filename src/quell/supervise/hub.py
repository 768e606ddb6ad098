"""The one place where a supervisor speaks to its zygote and keepers, from the event loop or from a thread.

Everything that is said goes out under one lock, and everything that arrives is waited for on one epoll, so that the
supervisor's thread can take over from an event loop that does not turn (H25).
"""

from __future__ import annotations

import asyncio
import contextvars
import select
import threading
from collections.abc import Callable

from .box import Box
from .zygote import Zygote

_NOBODY = contextvars.Context()  # asyncio holds a cancelled clock for a while, with its context: no scope's
_SLACK = 0.01  # seconds after a box's deadline at which it is looked at


class Hub:
    """Made in any thread; `attach` ties it to the loop."""

    def __init__(self, contain: str, state_dir: str | None) -> None:
        self.lock = threading.RLock()
        self._contain = contain
        self._state_dir = state_dir
        self._epoll = select.epoll()
        self._boxes: dict[int, Box] = {}  # by descriptor
        self._fds: dict[Box, dict[int, int]] = {}  # what each box waits for
        self._ended: dict[Box, Callable[[], object]] = {}
        self._watched: dict[Box, Callable[[], object]] = {}
        self._due: dict[Box, asyncio.TimerHandle] = {}  # when a box is looked at though nothing arrives
        self._touched: set[Box] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._former: list[Zygote] = []  # killed by somebody
        try:
            self.zygote = self._start_zygote()
        except BaseException:
            self._epoll.close()
            raise

    def _start_zygote(self) -> Zygote:
        zygote = Zygote(self._contain, state_dir=self._state_dir)
        for fd in (zygote.line.fileno(), zygote.end):
            self._epoll.register(fd, select.EPOLLIN)
        return zygote

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        loop.add_reader(self._epoll.fileno(), self.pump)

    def in_loop(self, call: Callable[[], object]) -> None:
        """Call this in the loop's thread: now, if that is where we are."""
        loop = self._loop
        if threading.get_ident() == self._thread:
            call()
        elif loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(call)

    def pump(self) -> None:
        """Take in what has arrived, without waiting."""
        with self.lock:
            if self._epoll.closed:
                return
            # Under the lock: outside of it a number may become another box's before it is looked at.
            ready = {fd for fd, _ in self._epoll.poll(0)}
            if not ready.isdisjoint((self.zygote.line.fileno(), self.zygote.end)):
                self._hear_zygote()
            self._touched.update(self._boxes[fd] for fd in ready if fd in self._boxes)
            while self._touched:
                box = self._touched.pop()
                self._tend(box, ready)

    def _hear_zygote(self) -> None:
        self.zygote.handle()
        if self.zygote.line.closed:  # its boxes end, each by itself
            self._touched.update(self._fds)
            for fd in (self.zygote.line.fileno(), self.zygote.end):
                self._forget(fd)

    # -- boxes

    def begin(self, rung: str) -> Box:
        """A box that is there or about to be; from a new zygote if somebody killed the one before."""
        if self.zygote.line.closed:
            for former in [one for one in self._former if one.idle]:
                self._former.remove(former)
                former.close()
            self._former.append(self.zygote)
            self.zygote = self._start_zygote()
        return self.zygote.begin(rung)

    def add(self, box: Box, ended: Callable[[], object]) -> None:
        """Attend to a box; `ended` is called in the loop when it is over."""
        self._fds[box] = {}
        self._ended[box] = ended
        box.changed = self._touched.add
        box.handle()
        self._attend(box)

    def watch(self, box: Box, call: Callable[[], object] | None) -> None:
        """Call this in the loop whenever a box has said something, until told otherwise."""
        with self.lock:
            if call is not None:
                self._watched[box] = call
            else:
                self._watched.pop(box, None)

    def look(self, box: Box) -> None:
        """After something was said to a box, or when its deadline has come."""
        with self.lock:
            if box in self._fds:
                self._tend(box, set())

    def _tend(self, box: Box, ready: set[int]) -> None:
        watcher = self._watched.get(box)  # one that is over is dropped, and its watcher must hear of that
        box.handle(ready)
        self._attend(box)
        if watcher is not None:
            self.in_loop(watcher)

    def look_at_late(self) -> None:
        """For a thread that stands in for the loop: look at every box whose deadline has come."""
        with self.lock:
            for box in [box for box in self._fds if box.wait_left() == 0]:
                self.look(box)

    def _attend(self, box: Box) -> None:
        """Wait for what this box waits for now, and for nothing of one that is over."""
        if box not in self._fds:
            return
        known, wanted = self._fds[box], {} if box.over() else box.waits_for()
        for fd in known.keys() - wanted.keys():
            self._boxes.pop(fd, None)
            self._forget(fd)
        for fd, events in wanted.items():
            if fd not in known:
                self._epoll.register(fd, events)
                self._boxes[fd] = box
            elif known[fd] != events:
                self._epoll.modify(fd, events)
        self._fds[box] = wanted
        if box.over():
            ended = self._ended[box]
            self.drop(box)
            box.close()
            self.in_loop(ended)
        elif (left := box.wait_left()) is not None:
            self.in_loop(lambda: self._set_clock(box, left))

    def _set_clock(self, box: Box, left: float) -> None:
        """A box that is late must be looked at though nothing arrives."""
        assert self._loop is not None
        due = self._loop.time() + left + _SLACK
        clock = self._due.get(box)
        if box not in self._fds or (clock is not None and due >= clock.when() - _SLACK):
            return
        if clock is not None:
            clock.cancel()
        self._due[box] = self._loop.call_at(due, self._is_due, box, context=_NOBODY)

    def _is_due(self, box: Box) -> None:
        self._due.pop(box, None)
        self.look(box)

    def drop(self, box: Box) -> None:
        """Do not attend to a box any more."""
        for fd in self._fds.pop(box, ()):
            self._boxes.pop(fd, None)
            self._forget(fd)
        self._ended.pop(box, None)
        self._watched.pop(box, None)
        clock = self._due.pop(box, None)
        if clock is not None:
            self.in_loop(clock.cancel)  # H09: else it holds the box, and all that was in it, until its time
        self._touched.discard(box)
        box.changed = None

    def _forget(self, fd: int) -> None:
        try:
            self._epoll.unregister(fd)
        except (OSError, ValueError):  # closed: the kernel has forgotten it
            return

    # -- ends

    def detach(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._loop = None

    def close(self) -> None:
        """End every box by force, and the zygote: waits for that, in a thread that may wait."""
        with self.lock:
            self._epoll.close()
            for box in list(self._fds):
                box.changed = None
            self._fds.clear()
            self._boxes.clear()
            for zygote in (*self._former, self.zygote):
                zygote.close()
