"""One run of a scenario on a loop of its own, with the target cancelled right before the steps that were planned.

What is left when the target has ended as cancelled, when the scenario is over, and when the loop is closed, is a leak.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import inspect
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...supervise.where import stack
from .coverage import Finding, own_line
from .loops import LAST_WAIT, close, collected, warm, workers
from .target import Target, Targeted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ..counting import Census, Leak
    from .coverage import Kind, Moment
    from .steps import LoopFactory

    Run = Callable[[Targeted[Any]], Awaitable[Any]]


@dataclasses.dataclass
class Terms:
    """What holds for all runs of one call."""

    loop_factory: LoopFactory
    take_census: Callable[[], Census]
    allow_swallow: bool
    bound: float
    settle: float
    patience: float
    longest: float
    """Seconds after which a target that goes on and on is cancelled, wherever it is."""
    rested: int | None = None
    """Steps after which an earlier run was at rest."""


class Scenario:
    """How to build one fresh run, in any of its forms."""

    def __init__(self, given: Callable[..., Any]) -> None:
        self._given = given
        self._takes_run = _takes_an_argument(given)
        self._is_target = False

    async def play(self, run: Run) -> None:
        if self._takes_run:
            await self._given(run)
        elif self._is_target:  # the task itself calls it: one that is cancelled before its start makes nothing
            await run(self._given)
        elif inspect.isawaitable(made := self._given()):
            self._is_target = True
            await run(made)
        elif not hasattr(made, "__aenter__"):
            raise UsageError(
                f"a scenario gives something to await, or an async context manager that yields it; this gave {made!r}"
            )
        else:
            async with made as target:
                await run(target)


class Trial:
    """Its fields tell what happened, once it was played."""

    target: Target

    def __init__(self, scenario: Scenario, terms: Terms, plan: tuple[Moment, ...] = ()) -> None:
        self.plan = plan
        self.finding: Finding | None = None
        """The first thing that went wrong; what follows from it is not looked at."""
        self.error: Exception | None = None
        """What the target raised without a cancel, or the scenario around it raised."""
        self._scenario = scenario
        self._terms = terms
        self._aimed = False

    @property
    def reached(self) -> bool:
        return tuple(point.moment for point in self.target.points) == self.plan

    def play(self) -> None:
        with collected() as unclosed:
            outside = self._terms.take_census()
            loop = self._terms.loop_factory()
            with workers(loop, self._terms.settle):
                try:
                    self._run(loop)
                finally:
                    close(loop)
            del loop
            gc.collect()
            if self.finding is None:
                self._leaked(outside.leaks(settle=self._terms.settle), "when the loop was closed")
        self._leaked([leak for leak in unclosed if not outside.ignore(leak)], "to the garbage collector")

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        self.target = Target(loop, self.plan, self._terms)
        self._main = loop.create_task(self._play(), name="scenario")
        self._main.add_done_callback(lambda _: loop.stop())
        loop.run_forever()
        self.target.steps.release()
        main = self._main
        del self._main
        if main.done() and not main.cancelled():
            main.result()

    async def _play(self) -> None:
        await warm(self._main.get_loop())
        around = self._terms.take_census()
        try:
            await self._scenario.play(self._aim)
        except Exception as error:  # noqa: BLE001  a boundary: whatever the scenario raises is the result of this run
            self.error = error
            self._found("failed", f"the scenario raised {_told(error)}")
        if self._aimed:
            self._late.cancel()
        elif self.error is None:
            raise UsageError("the scenario never ran a target: it must call run(target) once, or yield the target")
        if self.finding is None:
            self._leaked(await around.settled_leaks(self._terms.settle), "when the scenario was over")

    async def _aim(self, given: Targeted[Any]) -> Any:
        """Run the target; its result, or None where it was cancelled."""
        if self._aimed or self.target.task is not None:
            raise UsageError("a scenario has one target: it was run twice")
        before = self._terms.take_census()
        task = await self.target.run(given)
        self._aimed = True
        self._late = self.target.steps.unseen_later(self._terms.bound + self._terms.settle, self._clean_up_hangs)
        if task is None:
            bound, stands = self._terms.bound, self.target.stands
            self._found("hang", f"the target did not end within {bound:g} s of the cancel; it stands at {stands}")
            return None
        cancelled = task.cancelled()
        if not self.target.points:
            return None if cancelled else task.result()  # never cancelled: what it made or raised is its asker's
        error = None if cancelled else task.exception()
        if not self._terms.allow_swallow:
            if not cancelled:
                ended = "returned" if error is None else f"raised {_told(error)}"
                self._found("swallowed", f"the cancel did not reach its asker: the target {ended} instead")
            elif task.cancelling() < len(self.target.points):
                self._found("swallowed", "an uncancel() too many: a timeout around the target would lose the cancel")
        if not cancelled and error is None:
            return task.result()
        del task, error  # with its exception go its frames, and what only they held
        if self.finding is None:
            gc.collect()
            self._leaked(await before.settled_leaks(self._terms.settle), "when the target had ended")
        return None

    def _clean_up_hangs(self) -> None:
        stands = own_line(stack(self._main.get_coro()))
        self._found(
            "hang", f"the scenario's clean-up did not end within {self._terms.bound:g} s; it stands at {stands}"
        )
        self._main.cancel()
        self.target.steps.unseen_later(LAST_WAIT, self._main.get_loop().stop)

    def _leaked(self, leaks: Sequence[Leak], when: str) -> None:
        if leaks:
            self._found("leak", *(f"left {when}: {leak}" for leak in leaks), leaks=tuple(leaks))

    def _found(self, kind: Kind, *what: str, leaks: tuple[Leak, ...] = ()) -> None:
        if self.finding is None:
            self.finding = Finding(kind, tuple(self.target.points), what, leaks)


def _takes_an_argument(given: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(given).parameters.values()
    except ValueError:  # written in C, without a signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(each.kind in positional and each.default is inspect.Parameter.empty for each in parameters)


def _told(error: BaseException) -> str:
    """An error with the line that raised it."""
    trace = error.__traceback__
    if trace is None:
        return repr(error)
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{error!r} at {code.co_filename}:{trace.tb_lineno} in {code.co_qualname}"
