"""Whoever asks `quell serve` to end is heard by a thread of its own: from the first moment on, and while the kernel's
loop is blocked (H22, H25). The first asks, the second forces, none is lost.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import QuellError
from ..supervise.keeper.linux import SignalFd

if TYPE_CHECKING:
    import asyncio

SIGNALS: dict[int, str] = {signal.SIGINT: "SIGINT", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
SAME = 0.05
"""Seconds: two stop signals closer than this are one, that `timeout` sent to quell and to its group."""
TAKE_UP = 0.5
"""Seconds for the kernel's loop to take it up, until it is asked around it."""
LAST_WORD = 1.0
"""Seconds for the loop to turn after everything was ended by force around it."""


class Asked:
    """One wish to end. `code` is what quell exits with if it did not serve yet."""

    def __init__(self, reason: str, force: bool, code: int = 0) -> None:
        self.reason = reason
        self.force = force
        self.code = code
        self.at = time.monotonic()
        self.around = False
        self.taken = threading.Event()


class Ending(threading.Thread):
    """Signals are held back when it is made, and stay so in every thread. `mask` is the one from before that."""

    def __init__(self, mask: list[int], complain: Callable[[str], None]) -> None:
        super().__init__(name="quell signals", daemon=True)
        self.asked: list[Asked] = []
        self.last: Callable[[], None] = lambda: None
        """Called right before quell is ended although its loop is blocked: such as to give back a terminal."""
        self._complain = complain
        wanted = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]  # nohup, a script's `&`
        self._signals = SignalFd(wanted)
        signal.pthread_sigmask(signal.SIG_SETMASK, {*mask, *wanted})
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._wishes: deque[Asked] = deque()
        self._last = (0, 0.0)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told: Callable[[Asked], None] | None = None
        self._folder = ""
        self._goodbye: Callable[[str], None] = lambda reason: None
        self._over = False
        self.start()

    # -- for whoever serves

    def attach(self, loop: asyncio.AbstractEventLoop, told: Callable[[Asked], None]) -> None:
        """From now on `told` is called in the loop for each, those from before included."""
        with self._lock:
            self._loop, self._told = loop, told
            for asked in self.asked:
                loop.call_soon_threadsafe(self._tell, asked)

    def serve(self, folder: str, goodbye: Callable[[str], None]) -> None:
        """There is a supervisor now, which can be asked around the loop. `goodbye` is for streams, from any thread."""
        self._folder, self._goodbye = folder, goodbye

    def ask(self, reason: str, force: bool) -> None:
        """From any thread."""
        self._wishes.append(Asked(reason, force))
        os.eventfd_write(self._bell, 1)

    def met(self) -> None:
        """In the loop: what was asked so far has been done otherwise, and the next is a first one again."""
        with self._lock:
            self.asked = [one for one in self.asked if not one.taken.is_set()]

    def close(self) -> None:
        self._over = True
        os.eventfd_write(self._bell, 1)
        self.join()
        self._signals.close()
        os.close(self._bell)

    # -- the thread

    def run(self) -> None:
        poller = select.poll()
        poller.register(self._signals, select.POLLIN)
        poller.register(self._bell, select.POLLIN)
        while not self._over:
            ready = {fd for fd, _ in poller.poll(self._wait())}
            if self._bell in ready:
                os.eventfd_read(self._bell)
            for one in self._signals.read():
                now, (number, before) = time.monotonic(), self._last
                self._last = (one.number, now)
                if one.number != number or now - before > SAME:
                    self._take(Asked(SIGNALS[one.number], False, 128 + one.number))
            while self._wishes:
                self._take(self._wishes.popleft())
            self._go_around()

    def _take(self, asked: Asked) -> None:
        with self._lock:
            asked.force = asked.force or bool(self.asked)
            self.asked.append(asked)
            if self._loop is not None:
                try:
                    self._loop.call_soon_threadsafe(self._tell, asked)
                except RuntimeError:  # closed: all is over
                    asked.taken.set()

    def _tell(self, asked: Asked) -> None:
        if not asked.taken.is_set() and self._told is not None:
            asked.taken.set()
            self._told(asked)

    def _waiting(self) -> list[Asked]:
        """Those that the loop should take up, and has not."""
        if not self._folder:
            return []
        return [one for one in self.asked if not one.taken.is_set() and not one.around]

    def _due(self, asked: Asked) -> float:
        """At once where one before it had to go around."""
        return asked.at if any(one.around and not one.taken.is_set() for one in self.asked) else asked.at + TAKE_UP

    def _wait(self) -> float | None:
        due = [max(0.0, self._due(one) - time.monotonic()) * 1000 + 1 for one in self._waiting()]
        return min(due, default=None)

    def _go_around(self) -> None:
        for asked in self._waiting():
            if time.monotonic() >= self._due(asked):
                asked.around = True
                threading.Thread(target=self._ask_around, args=(asked,), name="quell end", daemon=True).start()

    def _ask_around(self, asked: Asked) -> None:
        """By the supervisor's thread, which ends every process whatever the loop does."""
        from ..supervise.control import ask_stop

        self._goodbye(asked.reason)
        try:
            said = ask_stop(self._folder, reason=asked.reason, force=asked.force).sentence()
        except QuellError as error:
            said = str(error)
        if asked.taken.wait(LAST_WORD):
            return
        if not asked.force:
            self._complain(f"a plugin blocks quell; what ran was ended ({said}); once more ends quell too")
            return
        self.last()
        self._complain(f"quell ends while a plugin blocks it; what ran was ended ({said})")
        os._exit(1)
