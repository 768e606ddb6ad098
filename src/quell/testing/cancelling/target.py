"""The task that is cancelled: the steps of its loop are counted while it is pending, and some find it cancelled."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ...supervise.where import stack
from .coverage import Moment, Point, own_line
from .steps import Steps, describe

if TYPE_CHECKING:
    from .steps import Callback
    from .trial import Terms

T = TypeVar("T")
Targeted = Callable[[], Awaitable[T]] | Awaitable[T]
"""What is to be cancelled: a function without arguments that gives something to await, or that itself."""

QUICK = 0.1
"""Seconds without a step that are rest, where an earlier run was at rest for all of its patience."""
HEAD_START = 0.002
"""Seconds for the outside to begin what the target waits for: a thread its work, a process its program."""


class Target:
    """`ended` is done when the task is, or when it did not end in time after a cancel."""

    def __init__(self, loop: asyncio.AbstractEventLoop, plan: tuple[Moment, ...], terms: Terms) -> None:
        self.steps = Steps(loop, self._before, self._after)
        self.count = 0
        """Steps while it was pending."""
        self.points: list[Point] = []
        """Where it was cancelled."""
        self.trail: dict[Moment, tuple[str, ...]] = {}
        """Where it stood at each moment: of the whole run if nothing is planned, else from the first cancel on."""
        self.rested = self.cut = False
        self.task: asyncio.Task[Any] | None = None
        self.stands = ""
        """The line at which it hangs."""
        self._loop = loop
        self._plan = plan
        self._terms = terms
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def undisturbed(self) -> int:
        """Steps of a run without a plan."""
        return self.points[0].moment.step - 1 if self.points else self.count

    async def run(self, given: Targeted[T]) -> asyncio.Task[T] | None:
        """The task when it has ended; None when it hangs."""
        self._ended: asyncio.Future[None] = self._loop.create_future()
        began: list[bool] = []
        task = self.task = self._loop.create_task(_awaited(given, began), name="target")
        task.add_done_callback(self._end)
        self._start = self.steps.last = self._loop.time()
        self._watch_rest()
        try:
            await self._ended
        finally:
            for timer in self._timers:
                timer.cancel()
            self.task = None  # its exception holds its frames, and they hold what it left open
        if inspect.iscoroutine(given) and not began:
            given.close()
        return None if self.stands else task

    def _end(self, task: asyncio.Task[Any] | None = None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _before(self, callback: Callback) -> None:
        task = self.task
        if task is None or task.done():
            return
        self.count += 1
        self._meet(task, Moment(self.count), lambda: describe(callback, task))

    def _after(self) -> None:
        """A step has run. If none is ready now, the target waits for something outside: that is a moment too."""
        task = self.task
        if task is None or task.done() or not self.count:
            return
        moment = Moment(self.count, after=True)
        if self._due() == moment:
            time.sleep(HEAD_START)
            self._meet(task, moment, lambda: "waiting")
        elif self._on_trail():
            self.steps.unseen_soon(self._waits, moment)

    def _waits(self, moment: Moment) -> None:
        task = self.task
        if task is not None and not task.done() and self.count == moment.step:
            self.trail[moment] = _stack(task)

    def _meet(self, task: asyncio.Task[Any], moment: Moment, step: Callable[[], str]) -> None:
        due = self._due() == moment
        if due or self._on_trail():
            self.trail[moment] = _stack(task)
        if due:
            self._cancel(task, moment, step())

    def _due(self) -> Moment | None:
        done = len(self.points)
        return self._plan[done] if done < len(self._plan) else None

    def _on_trail(self) -> bool:
        return bool(self.points) or not self._plan

    def _cancel(self, task: asyncio.Task[Any], moment: Moment, step: str) -> None:
        self.points.append(Point(moment, _stack(task), step))
        self._timers.append(self.steps.unseen_later(self._terms.bound, self._give_up, len(self.points)))
        task.cancel()

    def _give_up(self, cancels: int) -> None:
        if cancels == len(self.points) and self.task is not None and not self.task.done():
            self.stands = own_line(_stack(self.task))
            self._end()

    def _watch_rest(self) -> None:
        """Who waits for ever, or goes on for ever, is cancelled where it is: that is its last point."""
        task = self.task
        if task is None or task.done() or self.points:
            return
        now, patience = self._loop.time(), self._terms.patience
        if self._terms.rested is not None and self.count >= self._terms.rested:
            patience = min(patience, QUICK)
        self.rested = now - self.steps.last >= patience
        self.cut = not self.rested and now - self._start >= self._terms.longest
        if self.rested or self.cut:
            self._cancel(task, Moment(self.count + 1), "at rest" if self.rested else "still going")
        else:
            self._timers = [self.steps.unseen_later(min(patience, QUICK) / 2, self._watch_rest)]


async def _awaited(given: Targeted[T], began: list[bool]) -> T:
    began.append(True)
    return await (given() if callable(given) else given)


def _stack(task: asyncio.Task[Any]) -> tuple[str, ...]:
    return tuple(stack(task.get_coro())[1:])  # the outermost is ours
