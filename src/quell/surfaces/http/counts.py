"""What is counted over all sessions: how turns and stops ended, and how long stops took."""

from __future__ import annotations

from collections import Counter

from ...events import StopReceipt, TurnEnded

BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds. A stop takes at most ask, term and kill: 2, 5 and 2 unless somebody sets them otherwise."""


class Counts:
    """Only rises, but for a server's start, which counts what the log has."""

    def __init__(self) -> None:
        self.turns: Counter[str] = Counter()
        self.stops: Counter[tuple[str, str]] = Counter()
        """By reach and verdict."""
        self.seconds = 0.0
        self.timed = 0
        self.within: list[int] = [0] * len(BOUNDS)
        """How many stops took at most so long, for each of the bounds."""

    def ended(self, turn: TurnEnded) -> None:
        self.turns[turn.end] += 1

    def stopped(self, reach: str, receipt: StopReceipt) -> None:
        self.stops[reach, "confirmed" if receipt.confirmed else "unconfirmed"] += 1
        phases = receipt.receipt.get("phases")
        seconds = phases.get("total") if isinstance(phases, dict) else None
        if not isinstance(seconds, int | float):
            return  # a crash came before its end: nobody knows how long it took
        self.seconds += seconds
        self.timed += 1
        for place, bound in enumerate(BOUNDS):
            self.within[place] += seconds <= bound
