"""One run of the stop ladder over one crowd: ask, wait the grace, kill, until the kernel says that it is empty.

Each step ends as soon as all are gone. What SIGKILL has not ended within `KILL_LIMIT` is named as a survivor;
nothing is claimed that was not seen.
"""

from __future__ import annotations

import os
import time

from .crowd import Descent
from .light import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .proc import Seen

KILL_LIMIT = 2.0  # seconds from the first SIGKILL until the verdict; only an uninterruptible wait takes longer
SETTLE = 0.1  # seconds that what a command left running gets to end by itself (a `tee` behind `>(…)`) before TERM
_ROUND = 0.02  # seconds between two forced rounds; a child's end wakes the keeper earlier


class Ending:
    """Driven by its keeper: `step` when its time has come or something was reaped."""

    def __init__(
        self,
        crowd: Descent,
        reason: str,
        grace: float,
        ask: int = signal.SIGTERM,
        settle: float = 0,
        spare_group: bool = False,
    ) -> None:
        now = time.monotonic()
        self.crowd = crowd
        self.reason = reason
        self.began = now
        self.done = False
        self.confirmed = False
        self._ask = ask
        self._spare_group = spare_group
        self._grace = grace
        self._phase = "settle"
        self._next = now + settle
        self._asked_at: float | None = None
        self._killed_at: float | None = None
        self._records: dict[int, dict[str, Any]] = {}
        self._by_inner: dict[int, dict[str, Any]] = {}
        self._signalled: set[int] = set()
        self._survivors: list[int] = []

    def note(self, pid: int, argv: list[str], host_pid: int, inner: int | None) -> None:
        """Enter a process that was spawned or seen."""
        if host_pid not in self._records:
            record = {"pid": host_pid, "inner": inner, "argv": argv or None, "end": None, "at": None}
            self._records[host_pid] = self._by_inner[pid] = record

    def _look(self, seen: list[Seen]) -> None:
        for one in seen:
            self.note(one.inner if one.inner is not None else one.pid, one.argv, one.pid, one.inner)
            self._records[one.pid]["argv"] = one.argv or self._records[one.pid]["argv"]
            self._signalled.add(one.pid)

    def reaped(self, pid: int, status: int, at: float | None = None) -> None:
        record = self._by_inner.get(pid)
        if record is not None and record["end"] is None:
            record["end"] = describe(status)
            record["at"] = round((at or time.monotonic()) - self.began, 6)

    def again(self, number: int, grace: float, spare_group: bool) -> None:
        """Asked once more: whoever is still there gets this signal as well, and the shorter grace holds."""
        if grace == 0:
            self.force()
        elif self._phase == "ask":
            self._next = min(self._next, time.monotonic() + grace)
            self._ask_with(number, spare_group)

    def _ask_with(self, number: int, spare_group: bool) -> None:
        self.crowd.signal(number, spare_group)
        self.crowd.signal(signal.SIGCONT)

    def force(self) -> None:
        """Cut the grace short."""
        if self._phase in ("settle", "ask"):
            self._phase, self._next = "force", time.monotonic()

    def wait(self) -> float:
        """Seconds until `step` is due."""
        return max(0.0, self._next - time.monotonic())

    def step(self) -> None:
        """Go on: call after reaping. Sets `done` when the crowd is empty or the ladder is at its end."""
        if self.crowd.empty():
            return self._finish(True)
        now = time.monotonic()
        if now < self._next and self._phase != "force":
            return None
        if self._phase == "settle" and self._grace > 0:
            self._look(self.crowd.see())
            self._phase, self._asked_at, self._next = "ask", now, now + self._grace
            self._ask_with(self._ask, self._spare_group)
            return None
        if self._killed_at is None:
            self._phase, self._killed_at = "kill", now
            self.crowd.kill(self._look)
        elif now - self._killed_at > KILL_LIMIT:
            return self._finish(False)
        else:
            self.crowd.kill()
        self._next = time.monotonic() + _ROUND
        return None

    def _finish(self, confirmed: bool) -> None:
        self._ended = time.monotonic()
        if not confirmed:
            seen = self.crowd.see()
            self._look(seen)
            unseen = [pid for pid, record in self._records.items() if record["end"] is None]
            self._survivors = sorted(one.pid for one in seen) or unseen  # who cannot be seen is not gone (H17)
        self.done, self.confirmed = True, confirmed
        for record in self._records.values():
            if record["end"] is None:
                record["end"] = "alive" if record["pid"] in self._survivors else "gone"
                record["at"] = round(self._ended - self.began, 6)

    def report(self) -> dict[str, Any]:
        ask_end = self._killed_at or self._ended
        return {
            "reason": self.reason,
            "verdict": "confirmed" if self.confirmed else "unconfirmed",
            "processes": list(self._records.values()),
            "survivors": self._survivors,
            "signalled": len(self._signalled),
            "phases": {
                "ask": round(ask_end - self._asked_at, 6) if self._asked_at is not None else 0.0,
                "kill": round(self._ended - self._killed_at, 6) if self._killed_at is not None else 0.0,
                "total": round(self._ended - self.began, 6),
            },
        }


def describe(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"exit {os.WEXITSTATUS(status)}"
