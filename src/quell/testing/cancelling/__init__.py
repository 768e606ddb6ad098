"""Cancel a coroutine at every step that it can be cancelled at, and see that nothing is left."""

from .coverage import Coverage, Finding, LeakFound, Moment, Point
from .everywhere import BOUND, BUDGET, PATIENCE, SETTLE, cancel_everywhere

__all__ = [
    "BOUND",
    "BUDGET",
    "PATIENCE",
    "SETTLE",
    "Coverage",
    "Finding",
    "LeakFound",
    "Moment",
    "Point",
    "cancel_everywhere",
]
