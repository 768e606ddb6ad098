"""The sweeper finds handlers past their deadline, by one timer for all of them, which runs only while something does.

A handler costs no timer and no look at the clock: the sweeper notes when it first sees one at work. So a deadline is
kept to within two of its rounds, and never early.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ..events import kind_of

if TYPE_CHECKING:
    from .handling import Handling
    from .worker import Worker

ROUND = 0.25
"""Seconds between two looks, and what an idle worker is kept for at least."""
SHARE = 8
"""Looks per deadline, where that is more often."""
ABANDON = 1.0
"""Seconds that a handler has to end after it was cancelled."""
STALL = 0.5
"""Seconds by which a look is late that nobody's handler is to blame for: the whole loop stood still."""
_log = logging.getLogger("quell")


class Sweeper:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._minded: set[Handling] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    @property
    def armed(self) -> bool:
        return self._timer is not None

    def mind(self, handling: Handling) -> None:
        """One of its workers begins."""
        self._minded.add(handling)
        if self._timer is None or handling.deadline < ROUND * SHARE:
            self._arm(self._round(handling))

    def _round(self, handling: Handling) -> float:
        return min(ROUND, max(handling.deadline, 0.001) / SHARE)

    def _arm(self, seconds: float) -> None:
        due = self._loop.time() + seconds
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = self._loop.call_at(due, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = self._loop.time()
        stalled = now - self._due
        for handling in list(self._minded):
            for worker in list(handling.workers.values()):
                if stalled > STALL and worker.since is not None:
                    worker.since += stalled
                self._look(handling, worker, now)
            handling.thin_out()
            if not handling.workers and not handling.idle:
                self._minded.discard(handling)
        if self._minded:
            self._arm(min(self._round(one) for one in self._minded))

    def _look(self, handling: Handling, worker: Worker, now: float) -> None:
        event = worker.event
        if event is None:
            return
        if worker.told is not None:
            if now - worker.told >= ABANDON:
                self._abandon(handling, worker)
        elif worker.since is None:
            worker.since = now
        elif now - worker.since >= handling.deadline:
            worker.expire(now)
            kind, limit = kind_of(event), handling.deadline
            handling.failure(event, TimeoutError(f"took longer than {limit:g} s over {kind}, and was cancelled"))

    def _abandon(self, handling: Handling, worker: Worker) -> None:
        kind = kind_of(worker.event) if worker.event is not None else "nothing"
        _log.error("%s does not end although it was cancelled, over %s: given up", handling.name, kind)
        worker.gone = True
        handling.replace(worker)
