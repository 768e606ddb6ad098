"""The commands of a session that run now. One that has ended with all that it started is not among them (H09)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..events import ProcessSpawned
from ..supervise import Process


@dataclass(frozen=True)
class Spawned:
    """A command that runs; `process.tree()` tells what it started itself."""

    pid: int
    argv: list[str]
    background: bool
    turn: int
    since: float
    """Seconds since 1970."""
    process: Process


class Commands:
    """Of one session, those of its background too. They leave by themselves."""

    def __init__(self) -> None:
        self._running: dict[Process, Spawned] = {}

    def add(self, process: Process, event: ProcessSpawned) -> None:
        self._running[process] = Spawned(event.pid, event.argv, event.background, event.turn, event.at, process)
        process.over.then(lambda: self._running.pop(process, None))

    def all(self) -> list[Spawned]:
        """The oldest first."""
        return list(self._running.values())

    def background(self) -> Sequence[Process]:
        return tuple(one.process for one in self._running.values() if one.background)

    def __len__(self) -> int:
        return len(self._running)
