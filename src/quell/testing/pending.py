"""The tasks that are not done, of every loop; and those that ended in a way that nobody meant.

A task that is destroyed while it is pending, and one that only the end of its runner cancels, had no owner (H07).
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import TYPE_CHECKING, Any

from ..supervise.where import stack, where
from .notes import Lost, of_coroutine, rank

if TYPE_CHECKING:
    from .notes import Notes, Origin

AnyTask = asyncio.Task[Any]

PAUSE = 0.01
"""Seconds between two looks at what shall go."""

_RUNNERS_OWN = ("TestRunner._run_tests_and_fixtures",)
"""Coroutines in which anyio's pytest plugin runs the tests; it leaves them to the end of the runner."""

_TELLING = ("own", "library")
"""Whose lines say more than that a task waits."""

_TRIES = 1000
"""Other threads make tasks while we list them."""


def pending_tasks() -> list[AnyTask]:
    """Those of all loops that are open or closed, running or not, in any thread; not the one that asks."""
    try:
        asking = asyncio.current_task()
    except RuntimeError:  # no loop runs here
        asking = None
    found = _in_memory() if sys.version_info >= (3, 14) else _in_sets()
    return [task for task in found if not task.done() and task is not asking and not _is_runners_own(task)]


def _in_sets() -> list[AnyTask]:
    """From the set that asyncio keeps, of which `all_tasks` shows one loop's."""
    known = vars(asyncio.tasks).get("_scheduled_tasks", vars(asyncio.tasks).get("_all_tasks"))
    assert known is not None, "asyncio keeps its tasks elsewhere"
    for _ in range(_TRIES):
        try:
            return list(known)
        except RuntimeError:
            continue
    return []


def _in_memory() -> list[AnyTask]:
    """From the garbage collector, where asyncio keeps its tasks out of sight."""
    return [one for one in gc.get_objects() if issubclass(type(one), asyncio.Task)]


def _is_runners_own(task: AnyTask) -> bool:
    return getattr(task.get_coro(), "__qualname__", None) in _RUNNERS_OWN


def label(task: AnyTask) -> str:
    """Its name; with the coroutine's where nobody gave it one."""
    name = task.get_name()
    if not name.startswith("Task-"):
        return repr(name)
    return f"{name!r} ({getattr(task.get_coro(), '__qualname__', 'no coroutine of Python')})"


def stands(task: AnyTask) -> str:
    """The innermost line at which it waits that is not machinery's; the innermost of all if each one is."""
    lines = stack(task.get_coro())
    return next((line for line in reversed(lines) if rank(line.rpartition(":")[0]) in _TELLING), where(task))


def made(task: AnyTask) -> Origin | None:
    return of_coroutine(task.get_coro())


def turn(tasks: list[AnyTask], notes: Notes) -> None:
    """Let the loops of these go round once, if they stand still: nobody else gives their tasks the chance to end."""
    if asyncio._get_running_loop() is not None:
        return
    for loop in {task.get_loop() for task in tasks}:
        if notes.is_loop_of_this_thread(loop) and not loop.is_running() and not loop.is_closed():
            _run(loop, 0)


def _run(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    end = loop.call_later(seconds, loop.stop)
    try:
        loop.run_forever()
    finally:
        end.cancel()


# -- noted while tracking is on


def left_by(runner: asyncio.Runner, notes: Notes) -> None:
    """A runner is about to close. What is still pending then would be cancelled, and nobody would know."""
    loop: asyncio.AbstractEventLoop | None = getattr(runner, "_loop", None)
    if loop is None or loop.is_closed() or loop.is_running():
        return
    end = time.monotonic() + notes.settle
    while left := [task for task in asyncio.all_tasks(loop) if not _is_runners_own(task)]:
        if time.monotonic() > end:
            break
        _run(loop, PAUSE)
    for task in sorted(left, key=label):
        what = f"{label(task)} left to the end of its runner, waiting at {stands(task)}"
        notes.lost.append(Lost(id(task), what, made(task)))


def destroyed(context: object, notes: Notes) -> None:
    """A loop was told of something. asyncio tells it so of tasks that the garbage collector found pending."""
    told = context if isinstance(context, dict) else {}
    task = told.get("task")
    if isinstance(task, asyncio.Task) and not task.done() and "destroyed" in str(told.get("message")):
        at = f" at {stands(task)}" if stack(task.get_coro()) else ""  # its coroutine may be closed already
        what = f"{label(task)} destroyed while it was waiting{at}"
        notes.lost.append(Lost(id(task), what, made(task)))
