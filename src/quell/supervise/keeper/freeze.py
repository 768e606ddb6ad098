"""A freeze: everybody below this process stopped and held, so that nobody forks while the killing goes on.

Killing without stopping first loses against what forks faster than a walk takes. Each one is held by a pidfd that
was opened *before* its parent, itself held, was seen to have that child still: never a stranger's (H13).
"""

from __future__ import annotations

import os
import resource
import time

from .light import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from types import TracebackType

    from .proc import Proc

PATIENCE = 0.05  # seconds without a newcomer and without one that stopped: what is left cannot be stopped now
LIMIT = 1.0  # seconds in all; what still forks by then meets the next round
_LOOK = 0.0002  # seconds between two looks at who has not stopped yet
_SPARE_FILES = 64


class Freeze:
    """`with Freeze(proc, skip) as frozen`: who is held is in `frozen.held`, parents first."""

    def __init__(self, proc: Proc, skip: Collection[int]) -> None:
        self.held: dict[int, int] = {}  # pid → pidfd
        self._proc = proc
        self._skip = skip
        self._me = os.getpid()
        self._files = resource.getrlimit(resource.RLIMIT_NOFILE)

    def __enter__(self) -> Freeze:
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._files[1], self._files[1]))  # a descriptor each
        try:
            self._hold_all()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in self.held.values():
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, self._files)

    def kill(self) -> None:
        for fd in self.held.values():
            _send(fd, signal.SIGKILL)

    def _hold_all(self) -> None:
        """Until every one is seen stopped, with the children that it has for good, and no orphan has come to us."""
        began = progress = time.monotonic()
        moving: list[int] = []
        while True:
            fresh = self._hold_children(self._me)
            moving += fresh
            left = []
            for pid in moving:  # grows as it goes: children follow their parents
                if self._proc.at_rest(pid):
                    moving += self._hold_children(pid)
                else:
                    left.append(pid)
            now = time.monotonic()
            if not left and not fresh:
                return
            if fresh or len(left) < len(moving):
                progress = now
            elif now - progress > PATIENCE:
                return
            if now - began > LIMIT:
                return
            moving = left
            if left:
                time.sleep(_LOOK)

    def _hold_children(self, parent: int) -> list[int]:
        opened: dict[int, int] = {}
        for pid in self._proc.children(parent):
            if pid not in self.held and pid not in self._skip and len(self.held) + len(opened) < self._room():
                try:
                    opened[pid] = os.pidfd_open(pid)
                except OSError:
                    continue
        if not opened:
            return []
        children = set(self._proc.children(parent))
        if parent != self._me and not _send(self.held[parent], 0):
            children.clear()  # its number may be another's by now
        for pid, fd in list(opened.items()):
            if pid in children:
                _send(fd, signal.SIGSTOP)
                self.held[pid] = fd
            else:
                os.close(fd)
                del opened[pid]
        return list(opened)

    def _room(self) -> int:
        hard = self._files[1]
        return hard - _SPARE_FILES if hard > 0 else 1 << 20


def _send(fd: int, number: int) -> bool:
    try:
        signal.pidfd_send_signal(fd, number)
    except OSError:
        return False
    return True
