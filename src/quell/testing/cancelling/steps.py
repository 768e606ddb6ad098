"""Sees every step of an event loop: a function of ours is called right before each callback that the loop runs.

Every task step, wake-up, timer and call from a thread passes through four public methods of the loop; they are replaced
on the one loop that is watched. It works on asyncio and uvloop, and `rehearse` says so where it does not.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...supervise.where import where

if TYPE_CHECKING:
    from collections.abc import Callable

    Callback = Callable[..., object]
    Before = Callable[[Callback], None]
    After = Callable[[], None]
    LoopFactory = Callable[[], asyncio.AbstractEventLoop]

DOORS = {"call_soon": 0, "call_soon_threadsafe": 0, "call_later": 1, "call_at": 1}
"""The ways into a loop, and which argument is the callback. A reader's callback goes around them, but no step does."""


class _Watched(functools.partial[object]):
    """A callback that need not be watched again: it may go through two doors."""


class Steps:
    """`before` hears of each callback of `loop` just before it runs, `after` is called then, until `release`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, before: Before, after: After) -> None:
        self._loop = loop
        self._before = before
        self._after = after
        self.last = loop.time()
        """When the last step ended."""
        for door, place in DOORS.items():
            self._watch(door, place)

    def _watch(self, door: str, place: int) -> None:
        enter = getattr(self._loop, door)

        def watched(*args: Any, **keywords: Any) -> Any:
            callback = args[place]
            if not isinstance(callback, _Watched):
                callback = _Watched(self._step, callback)
            return enter(*args[:place], callback, *args[place + 1 :], **keywords)

        try:
            setattr(self._loop, door, watched)
        except AttributeError as error:
            raise _cannot_be_watched(self._loop, f"its {door} cannot be replaced") from error

    def _step(self, callback: Callback, *args: object) -> None:
        self._before(callback)
        try:
            callback(*args)
        finally:
            self.last = self._loop.time()
            self._after()

    def unseen_soon(self, callback: Callback, *args: object) -> None:
        """Once all that is ready now has run, and before anything that comes from outside."""
        self._loop.call_soon(_Watched(callback, *args))

    def unseen_later(self, delay: float, callback: Callback, *args: object) -> asyncio.TimerHandle:
        """A timer of the watcher itself, which is no step."""
        return self._loop.call_later(delay, _Watched(callback, *args))

    def release(self) -> None:
        """Give the loop its own methods back; what was scheduled through ours still runs."""
        for door in DOORS:
            delattr(self._loop, door)


def task_of(callback: Callback) -> asyncio.Task[Any] | None:
    """The task whose step or wake-up this callback is."""
    owner = getattr(callback, "__self__", None)
    return owner if isinstance(owner, asyncio.Task) else None


def describe(callback: Callback, target: asyncio.Task[Any]) -> str:
    """Whose step it is, in words."""
    task = task_of(callback)
    if task is target:
        return "its own step"
    if task is not None:
        return f"a step of task {task.get_name()!r} at {where(task)}"
    return f"the callback {getattr(callback, '__qualname__', None) or repr(callback)}"


def rehearse(loop_factory: LoopFactory) -> None:
    """Fail loudly (H16) unless each of a known number of steps on such a loop is seen, once."""
    loop = loop_factory()
    seen: list[Callback] = []
    try:
        steps = Steps(loop, seen.append, lambda: None)
        count = loop.run_until_complete(_nine_steps(loop, seen))
        steps.release()
    finally:
        loop.close()
    if count != 9:
        raise _cannot_be_watched(loop, f"{count} of 9 known steps were seen")


async def _nine_steps(loop: asyncio.AbstractEventLoop, seen: list[Callback]) -> int:
    await asyncio.sleep(0)
    del seen[:]
    await asyncio.sleep(0)  # 1
    for enter in (loop.call_soon, loop.call_soon_threadsafe):  # 2 each: the callback, and the wake-up that it causes
        done = loop.create_future()
        enter(done.set_result, None)
        await done
    done = loop.create_future()
    loop.call_later(0, done.set_result, None)
    await done
    done = loop.create_future()
    loop.call_at(loop.time(), done.set_result, None)
    await done
    return len(seen)


def _cannot_be_watched(loop: asyncio.AbstractEventLoop, why: str) -> UsageError:
    kind = f"{type(loop).__module__}.{type(loop).__qualname__}"
    return UsageError(
        f"the steps of a {kind} cannot be seen: {why}; give a loop_factory that makes asyncio's or uvloop's loop"
    )
