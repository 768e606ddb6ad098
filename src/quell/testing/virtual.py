"""An event loop on which time is a number: it jumps to the next timer, and one seed always gives one course of events.

    virtual.run(main, seed=7)

There is no I/O and there are no threads: what asks for one is run in the loop, after a delay that the seed chooses.
Where nothing is ready and no timer is set, `Deadlock` names every task that waits, and its line.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from ..supervise.where import where

T = TypeVar("T")

START = 1000.0
"""Seconds on the loop's clock when it begins: not 0, which code may take for "never"."""

EPOCH = 1_700_000_000.0
"""What `time.time` says when the loop's clock is at 0."""

TURNS = 1_000_000
"""Turns of the loop after which a run is taken for an endless one."""

_UNWIND = 2_000  # turns that tasks have to end, once a run has failed
_RESOLUTION = 1e-9  # seconds: a jump to a timer may miss it by rounding
_THREAD = 0.05  # seconds, at most, that a call in a thread waits to begin, and its result to arrive

_UNDYING: list[object] = []  # what would not end after a failure

_gmtime, _localtime = time.gmtime, time.localtime


class Stuck(AssertionError):
    """Raised when a run did not come to a clean end; the sentence names what is left, and the line of each."""


class Deadlock(Stuck):
    """Raised when nothing is ready and no timer is set: nothing can happen any more."""


class Endless(Stuck):
    """Raised when the loop has turned so often that it will not end."""


class Leftover(Stuck):
    """Raised when the coroutine has ended and other tasks have not."""


class Complaint(Stuck):
    """Raised when something went wrong that nobody was there to hear: in a callback, or in a forgotten task."""


class _Numbered:
    """Hashed by its number: the order of a set would follow from addresses, and no run would be like another."""

    _number: int

    def __hash__(self) -> int:
        return self._number


class _Future(_Numbered, asyncio.Future[Any]):
    def __init__(self, loop: VirtualLoop) -> None:
        self._number = loop.count()
        super().__init__(loop=loop)


class _Task(_Numbered, asyncio.Task[Any]):
    def __init__(self, coroutine: Any, loop: VirtualLoop, name: str | None = None, **options: Any) -> None:
        self._number = loop.count()
        super().__init__(coroutine, loop=loop, name=name or f"Task-{self._number}", **options)

    def set_name(self, name: object) -> None:
        if name is not None:  # 3.13.0 passes that on
            super().set_name(name)


class _NoFiles:
    """In the place of a selector."""

    def __init__(self, wait: Callable[[float | None], None]) -> None:
        self._wait = wait

    def select(self, timeout: float | None) -> list[Any]:
        self._wait(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """`step`: seconds that one turn takes at most, so that timers come due between any two callbacks, too.

    `shuffle`: what is ready runs in any order. asyncio promises the order in which it was asked for, and code may
    rely on it; so what is found that way need not be a fault.
    """

    def __init__(
        self, seed: int = 0, *, start: float = START, step: float = 0.0, shuffle: bool = False, turns: int = TURNS
    ) -> None:
        super().__init__()
        self.chance = random.Random(f"loop {seed}")
        self.turns = 0
        self.most_turns = turns
        self.complaints: list[str] = []
        self._now = start
        self._step = step
        self._shuffle = shuffle
        self._count = 0
        self._clock_resolution = _RESOLUTION
        self._selector = _NoFiles(self._pass)
        self.set_task_factory(_make)
        self.set_exception_handler(_complain)

    # -- time

    def time(self) -> float:
        return self._now

    def _pass(self, timeout: float | None) -> None:
        """One turn: jump to the next timer, if nothing is ready."""
        self.turns += 1
        if self.turns > self.most_turns:
            raise Endless(f"it has turned {self.most_turns} times: {self.describe()}")
        if timeout is None:
            raise Deadlock(f"nothing is ready, and nothing will be: {self.describe()}")
        self._now += timeout
        if self._step:
            self._now += self._step * self.chance.random()
        if self._shuffle:
            ready: Any = self._ready  # type: ignore[attr-defined]  # of BaseEventLoop
            held = list(ready)
            self.chance.shuffle(held)
            ready.clear()
            ready.extend(held)

    def sleep(self, seconds: float) -> None:
        """What `time.sleep` is meanwhile: it blocks the loop."""
        self._now += max(0.0, seconds)

    # -- what a loop makes

    def count(self) -> int:
        self._count += 1
        return self._count

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(self)

    def run_in_executor(  # type: ignore[override]  # whatever is called, with whatever arguments
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Called in the loop, at some later moment, whether anybody still waits for it or not: as a thread would."""
        future = self.create_future()

        def work() -> None:
            try:
                result, error = func(*args), None
            except BaseException as raised:  # noqa: BLE001  a boundary: told to whoever waits
                result, error = None, raised
            self.call_later(_THREAD * self.chance.random(), told, result, error)

        def told(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.call_later(_THREAD * self.chance.random(), work)
        return future

    def set_default_executor(self, executor: Any) -> None:
        """There are no threads."""

    # -- ends

    def describe(self) -> str:
        """Every task that has not ended, with the line at which it waits."""
        left = self.left()
        named = "".join(f"\n  {task.get_name()} at {where(task)}" for task in left)
        return f"{len(left)} {'task is' if len(left) == 1 else 'tasks are'} left at {self._now:.6f} s{named}"

    def left(self) -> list[asyncio.Task[Any]]:
        return sorted(asyncio.all_tasks(self), key=hash)

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass  # nobody sleeps


def _make(loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    return _Task(coroutine, loop, **options)


def _complain(loop: Any, context: dict[str, Any]) -> None:
    error = context.get("exception")
    said = f": {type(error).__name__}: {error}" if error is not None else ""
    loop.complaints.append(f"{context['message']}{said}")


@contextlib.contextmanager
def clocks(loop: VirtualLoop) -> Iterator[None]:
    """The module `time` follows the loop meanwhile. Who took a function out of it before does not."""
    instead: dict[str, Callable[..., Any]] = {
        "monotonic": loop.time,
        "perf_counter": loop.time,
        "time": lambda: EPOCH + loop.time(),
        "gmtime": lambda seconds=None: _gmtime(EPOCH + loop.time() if seconds is None else seconds),
        "localtime": lambda seconds=None: _localtime(EPOCH + loop.time() if seconds is None else seconds),
        "sleep": loop.sleep,
    }
    before = {name: getattr(time, name) for name in instead}
    try:
        for name, call in instead.items():
            setattr(time, name, call)
        yield
    finally:
        for name, call in before.items():
            setattr(time, name, call)


@contextlib.contextmanager
def _hearing(loop: VirtualLoop) -> Iterator[None]:
    """What is raised where nobody can catch it, in `__del__` say, is a complaint too."""

    def hear(unraisable: Any) -> None:
        error = unraisable.exc_value
        loop.complaints.append(
            f"{unraisable.err_msg or 'ignored in'} {unraisable.object!r}: {type(error).__name__}: {error}"
        )

    before, sys.unraisablehook = sys.unraisablehook, hear
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """What the garbage collector finishes, it finishes at any moment: so at none, and all at the end."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def run(main: Callable[[], Coroutine[Any, Any, T]], seed: int = 0, **options: Any) -> T:
    """Run a coroutine to its end on a loop of its own; `options` are those of `VirtualLoop`.

    It collects garbage once, at its end: before thousands of runs, `gc.freeze()` what is there.
    """
    loop = VirtualLoop(seed, **options)
    try:
        with _no_collector(), clocks(loop), _hearing(loop):
            try:
                return _complete(loop, main)
            finally:
                _unwind(loop)
    finally:
        loop.close()


def _complete(loop: VirtualLoop, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    result = loop.run_until_complete(main())
    if loop.left():
        raise Leftover(f"it has ended, but {loop.describe()}")
    loop.run_until_complete(loop.shutdown_asyncgens())
    gc.collect()  # a task that failed unheard says so when it goes
    if loop.complaints:
        raise Complaint("; ".join(loop.complaints))
    return result


def _unwind(loop: VirtualLoop) -> None:
    """After a failure: let go of what is left without a word more."""
    loop.most_turns = loop.turns + _UNWIND
    left = loop.left()
    for task in left:
        task.cancel("the run is over")
    with contextlib.suppress(Stuck):
        while loop.left():
            loop.call_later(1.0, loop.stop)
            loop.run_forever()
            for task in loop.left():
                task.cancel("the run is over")
    for task in loop.left():
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it will not end: nobody needs to hear that
        asyncio.tasks._unregister_task(task)  # nor count it as leaked by a test
        _UNDYING.append(task)  # what ignores cancels may ignore its own collection too, and complain of it
    for task in left:
        if task.done() and not task.cancelled():
            task.exception()  # heard
