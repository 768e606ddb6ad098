"""Which scope a task belongs to: the one that it was made in, whoever made it (H07).

A context variable names the scope, the loop's task factory enters each new task in it before its first step, and a
sweep over the contexts of all tasks finds those that were made around the factory. Threads that the loop's own
executor runs are entered likewise.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .where import line_of, where_thread

if TYPE_CHECKING:
    from types import FrameType

T = TypeVar("T")
AnyTask = asyncio.Task[Any]


class Owner(Protocol):
    """What a scope is to its tasks and threads."""

    over: bool
    helpers: set[AnyTask]
    hosts: set[AnyTask]
    drop_helper: Callable[[AnyTask], object]

    @property
    def parent(self) -> Owner | None: ...
    def refuse(self, task: AnyTask) -> None: ...
    def adopt_thread(self, job: Job) -> None: ...


CURRENT: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("quell_scope", default=None)


class Factory:
    """The loop's task factory is `make`. It hands on to the one that was there before it."""

    def __init__(self, before: Callable[..., Any] | None) -> None:
        self.before = before
        self.users = 0
        self.plain: Callable[..., Any] = before or _plain
        self.make = _eager(before) if before is not None and _is_eager(before) else _factory(before)
        self.make.owning = self  # type: ignore[attr-defined]  # how the next supervisor on this loop finds it


def _plain(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> AnyTask:
    return asyncio.Task(coroutine, loop=loop, **options)


def _factory(before: Callable[..., Any] | None) -> Callable[..., AnyTask]:
    """A closure with its names at hand: every task of the loop passes here."""
    current, task_of = CURRENT.get, asyncio.Task

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, context: Any = None, **options: Any) -> AnyTask:
        if context is None:
            owner = current()
        else:
            owner = context.get(CURRENT)
            options["context"] = context
        if owner is not None and owner.over:
            owner = _heir(owner)
        late = owner is not None and owner.over
        if late:
            options.pop("eager_start", None)
        task: AnyTask
        if before is None or late:
            task = task_of(coroutine, loop=loop, **options)
        else:
            task = before(loop, coroutine, **options)
        if owner is not None and not task.done():
            if late:
                owner.refuse(task)
            elif before is None or task not in owner.hosts:  # an eager one may have left the scope's block already
                owner.helpers.add(task)
                task.add_done_callback(owner.drop_helper)
        return task

    return make


def _heir(owner: Owner) -> Owner | None:
    """Who stopped the scope of its own block is no member and goes on, in the next scope above; others do not."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop turns in this thread
        return owner
    if task is None or task not in owner.hosts:
        return owner
    above: Owner | None = owner
    while above is not None and above.over:
        above = above.parent
    return above


def _is_eager(factory: Callable[..., Any]) -> bool:
    """Whether asyncio made it, by `create_eager_task_factory`."""
    eager = getattr(asyncio, "eager_task_factory", None)  # 3.12
    return eager is not None and getattr(factory, "__code__", None) is eager.__code__


def _eager(before: Any) -> Callable[..., AnyTask]:
    """One of asyncio's own make, by which anyio knows that it must start its own tasks otherwise."""
    own = _factory(lambda loop, coroutine, **options: inner(coroutine, loop=loop, **options))
    inner = before.__closure__[0].cell_contents  # the constructor that the factory before was made with

    def constructor(coroutine: Any, *, loop: asyncio.AbstractEventLoop, **options: Any) -> AnyTask:
        return own(loop, coroutine, **options)

    make: Callable[..., AnyTask] = asyncio.create_eager_task_factory(constructor)  # type: ignore[attr-defined]  # 3.12
    return make


def install(loop: asyncio.AbstractEventLoop) -> Factory:
    """Own the tasks of this loop from now on. Several supervisors share one factory."""
    present = loop.get_task_factory()
    factory: Factory | None = getattr(present, "owning", None)
    if factory is None or factory.make is not present:  # none of ours, or a wrapper that looks like ours
        factory = Factory(present)
        loop.set_task_factory(factory.make)
    factory.users += 1
    return factory


def uninstall(loop: asyncio.AbstractEventLoop, factory: Factory) -> None:
    factory.users -= 1
    if not factory.users and loop.get_task_factory() is factory.make:
        loop.set_task_factory(factory.before)


if sys.version_info >= (3, 12):

    def context_of(task: AnyTask) -> contextvars.Context | None:
        return task.get_context()

else:

    def context_of(task: AnyTask) -> contextvars.Context | None:
        """3.11 does not say it, but the garbage collector knows: the context that is none of its callbacks'."""
        of_callbacks = {id(context) for _, context in getattr(task, "_callbacks", None) or ()}
        held = [one for one in gc.get_referents(task) if type(one) is contextvars.Context]
        return next((one for one in held if id(one) not in of_callbacks), held[0] if len(held) == 1 else None)


def strays(loop: asyncio.AbstractEventLoop, known: Collection[AnyTask]) -> list[tuple[AnyTask, Owner]]:
    """The tasks that were made in a scope around the factory, and are on no list, each with that scope."""
    found = []
    for task in asyncio.all_tasks(loop):
        if task not in known:
            context = context_of(task)
            owner = context.get(CURRENT) if context is not None else None
            if owner is not None:
                found.append((task, owner))
    return found


# -- threads


class Job:
    """One call that the loop's executor runs for a scope."""

    def __init__(self, call: Callable[..., Any]) -> None:
        while isinstance(call, functools.partial):  # `asyncio.to_thread` hands over one of Context.run
            bound = getattr(call.func, "__self__", None)
            call = call.args[0] if type(bound) is contextvars.Context else call.func
        self.name: str = getattr(call, "__qualname__", None) or type(call).__qualname__
        self.thread: int | None = None
        self.future: Future[Any] | None = None

    @property
    def where(self) -> str:
        return where_thread(self.thread)


class Executor(ThreadPoolExecutor):
    """The loop's default executor: what a scope runs in a thread is on the scope's list (H26)."""

    def __init__(self, inner: ThreadPoolExecutor | None) -> None:
        super().__init__(thread_name_prefix="asyncio")
        self._inner = inner  # the loop's before: its threads go on doing the work

    def submit(self, call: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        submit = super().submit if self._inner is None else self._inner.submit
        owner = CURRENT.get()
        if owner is not None and owner.over:
            owner = _heir(owner)
        if owner is None:
            return submit(call, *args, **kwargs)
        if owner.over:
            refused: Future[T] = Future()
            refused.cancel()
            return refused
        job = Job(call)
        context = contextvars.Context()  # so that a task which the thread asks the loop for is the scope's too
        context.run(CURRENT.set, owner)

        def run() -> T:
            job.thread = threading.get_ident()
            return context.run(call, *args, **kwargs)

        job.future = submit(run)
        owner.adopt_thread(job)
        return job.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if self._inner is not None:
            self._inner.shutdown(wait, cancel_futures=cancel_futures)
        super().shutdown(wait, cancel_futures=cancel_futures)


def own_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Have the loop's threads owned. uvloop does not tell of an executor that it was given before."""
    present = getattr(loop, "_default_executor", None)
    if not isinstance(present, Executor):
        loop.set_default_executor(Executor(present))


def foreign_threads(owners: Collection[Owner], known: Collection[int | None]) -> Iterator[tuple[str, str]]:
    """Threads that a library runs in the context of one of these scopes (anyio's do): name and line."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        if ident not in known and ident != threading.get_ident() and _runs_for(frame, owners):
            yield names.get(ident, str(ident)), line_of(frame)


def _runs_for(frame: FrameType | None, owners: Collection[Owner]) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "run":
            for value in list(frame.f_locals.values()):
                owner = value.get(CURRENT) if type(value) is contextvars.Context else None
                if owner is not None and owner in owners:
                    return True
        frame = frame.f_back
    return False
