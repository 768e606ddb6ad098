"""The published ladder of a stop: ask, then SIGTERM, then SIGKILL. A change acts on the next stop."""

from __future__ import annotations

from dataclasses import dataclass

from .box import GRACE


@dataclass(frozen=True)
class Ladder:
    """Seconds for each step; each ends as soon as all are gone."""

    ask: float = 2.0
    """For tasks and closers to end after they were asked."""

    term: float = GRACE
    """For processes to end after SIGTERM, until SIGKILL."""
