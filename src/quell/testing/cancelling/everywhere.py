"""Proves that a coroutine leaks nothing wherever it is cancelled: at every step, and again during its clean-up.

    cancel_everywhere(lambda: fetch(url))

Each point is a run of its own, on a fresh loop: right before one step of any task, while the target is pending, the
target is cancelled; and right after a step, where it then waits for something outside. Then it must end, as cancelled,
and everything must be as it was before it began.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ..counting import KINDS, census, tracking
from . import reproduce
from .coverage import Coverage, LeakFound
from .search import Search
from .steps import rehearse
from .trial import Scenario, Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..counting import Ignore
    from .steps import LoopFactory

BUDGET = 30.0
"""Seconds for one call. Points come first, then pairs; what was left out is said."""
BOUND = 10.0
"""Seconds for a cancelled target to end, and for the scenario around it."""
SETTLE = 2.0
"""Seconds for what the target let go of to be gone: a child to be reaped, a thread to return."""
PATIENCE = 2.0
"""Seconds without any step after which a target is taken to wait for ever."""
LEAST = 0.5
"""Seconds that a target has at least, however small the budget is."""


def cancel_everywhere(
    scenario: Callable[..., Any],
    *,
    name: str | None = None,
    pairs: bool = True,
    budget: float = BUDGET,
    least: int = 0,
    bound: float = BOUND,
    settle: float = SETTLE,
    patience: float = PATIENCE,
    allow_swallow: bool = False,
    kinds: Iterable[str] = KINDS,
    ignore: Ignore | Iterable[Ignore] = (),
    loop_factory: LoopFactory = asyncio.new_event_loop,
    seed: int = 0,
    raises: bool = True,
    quiet: bool = False,
) -> Coverage:
    """Cancel the target of `scenario` before every step, then at every pair of steps, and look what is left each time.

    A scenario is a function that makes one fresh run. It is the target itself (`lambda: fetch(url)`), or gives an async
    context manager that yields the target between set-up and clean-up, or is `async def scenario(run)` and awaits
    `run(target)`. Set-up and clean-up are not cancelled; what they assert is a finding too.

    A target that ended by itself leaves what it made to the scenario, which must close it; a cancelled one may leave
    nothing, and must end as cancelled. `least` points and as many pairs, if there are so many, are tried though the
    budget is used up: first one for each place that the target can stand at. `kinds` and `ignore` are those of
    `census`; one kind more, `unclosed`, is what only the garbage collector closed. `LeakFound` is raised if anything
    was found; its text has the line, and the command to see it again.
    """
    __tracebackhide__ = True  # pytest shows what was found, not this function
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        raise UsageError("cancel_everywhere makes event loops of its own: call it from a function that is not async")
    rehearse(loop_factory)
    budget = reproduce.budget(budget)
    first = census(kinds, ignore)
    terms = Terms(
        loop_factory=loop_factory,
        take_census=lambda: census(first.kinds, first.ignore),
        allow_swallow=allow_swallow,
        bound=bound,
        settle=settle,
        patience=patience,
        longest=max(budget / 3, LEAST),
    )
    key = reproduce.word(name) if name else reproduce.key_of(scenario)
    search = Search(Scenario(scenario), terms, key, budget, seed, least)
    with tracking(settle), _young_heap():
        search.run(pairs)
    coverage = search.coverage
    failing = raises and bool(coverage.findings)
    if not quiet:
        print(coverage.summary() if failing else coverage)
    if failing:
        raise LeakFound(coverage)
    return coverage


@contextlib.contextmanager
def _young_heap() -> Iterator[None]:
    """Set aside what is there already, so that collecting garbage after each run costs little."""
    if gc.get_freeze_count():  # somebody else's
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
