"""A scope owns whatever is started in it, before it exists: tasks, processes, connections, and further scopes.

This is the only place where tasks are made. Whoever asks is never the owner: cancelling the asker, once or ten times,
at any await, leaves nothing behind (H01, H02, H05).
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import OwnershipError, ScopeStoppedError, UsageError
from .box import START_LIMIT
from .closer import Closer
from .errand import Fact
from .ownership import CURRENT, AnyTask, Job, context_of
from .place import Place
from .process import READ_LIMIT, Process, Wanted
from .receipt import Receipt
from .request import plain, spec_for
from .stopping import Stop

if TYPE_CHECKING:
    from types import TracebackType

    from .shared import Shared
    from .tree import Stream

    Self = TypeVar("Self", bound="Scope")

T = TypeVar("T")
_log = logging.getLogger("quell")


class Scope:
    """Made by a supervisor or by another scope. As `async with`, it is stopped at the end of the block."""

    def __init__(self, shared: Shared, name: str, parent: Scope | None, box: bool) -> None:
        self.name = name
        self.path: str = name if parent is None or not parent.path else f"{parent.path}/{name}"
        self.parent = parent
        self.receipt: Receipt | None = None
        self.over = False
        self.stopping: Stop | None = None
        self.place: Place | None = None  # a box of its own
        self.roots: set[AnyTask] = set()
        self.helpers: set[AnyTask] = set()  # made inside by whomever: libraries, gather, task groups
        self.drop_helper: Callable[[AnyTask], object] = self.helpers.discard
        self.hosts: set[AnyTask] = set()  # whose block this scope is: named in their contexts, and not members
        self.closers: list[Closer] = []
        self.processes: dict[Process, None] = {}
        self.threads: set[Job] = set()
        self.lost: list[Receipt] = []  # of processes that are no longer on the list, with somebody left
        self._shared = shared
        self._scopes: dict[str, Scope] = {}  # by name
        self._told: Fact[Receipt] | None = None
        self._token: contextvars.Token[Any] | None = None
        if box:
            self.place = Place(shared.hub, shared.loop)
        self.home: Place | None = self.place or (parent.home if parent is not None else None)

    def __repr__(self) -> str:
        state = "stopped" if self.over else "stopping" if self.stopping else "open"
        return f"<{type(self).__name__} {self.path or '/'} {state}>"

    # -- what a person asks for

    def scope(self, name: str, *, box: bool = False) -> Scope:
        """A scope inside this one. `box=True` gives it a box of its own; else it shares the nearest one above."""
        if not name or "/" in name:
            raise UsageError(f"a scope needs a name without a slash, not {name!r}")
        with self._shared.hub.lock:
            self._admit()
            free, number = name, 1
            while free in self._scopes:
                free, number = f"{name}-{number + 1}", number + 1
            scope = self._scopes[free] = Scope(self._shared, free, self, box)
        return scope

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
        umask: int | None = None,
        rlimits: Mapping[str, tuple[int, int]] | None = None,
        nice: int = 0,
        sealed: Iterable[str] = (),
        output_cap: int | None = None,
        limit: int = READ_LIMIT,
        start_limit: float = START_LIMIT,
    ) -> Process:
        """Start a command in this scope. SpawnError says why it did not start; nothing of it is left then.

        Each stream is None (inherit), NULL, PIPE, PTY, a descriptor or an open file; stderr may be STDOUT. Output after
        `output_cap` bytes is cut off with a marker. `sealed` are files and folders that nobody in the box can write
        from now on, on the rungs where it has mounts of its own (`pidns`, `userns`). If the asker is cancelled before
        it has the process, the command is ended at once.
        """
        spec = spec_for(argv, cwd, env, umask, rlimits, nice, sealed)
        if limit <= 0 or (output_cap is not None and output_cap < 0):
            raise UsageError("`limit` is a number of bytes above 0, and `output_cap` one that is not below 0")
        wanted = Wanted(spec, stdin, stdout, stderr, output_cap, limit, start_limit)
        process = Process(self._shared, wanted, self._forget_process)
        with self._shared.hub.lock:
            self._admit()
            self.processes[process] = None  # owned before it exists (H01)
        assert self.home is not None
        process.start_in(self.home.need())
        try:
            await process.started.wait()
        except asyncio.CancelledError:
            process.begin_stop("the asker was cancelled", 0)  # at once, not at the scope's end
            raise
        self.home.refill_soon()
        return process

    def task(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Run a coroutine as a task of this scope. Every task that is made inside belongs to the scope too."""
        try:
            self._admit()
        except BaseException:
            coroutine.close()
            raise
        task = self._make(coroutine, name)
        if not task.done():
            self.roots.add(task)
            task.add_done_callback(self.roots.discard)
        return task

    async def enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter an async context manager; the scope leaves it, last come first gone. Its tasks are the scope's.

        To close it earlier, enter it in a scope of its own. If the asker is cancelled meanwhile, it is closed at once.
        """
        self._admit()
        closer = Closer(self._shared.loop, manager)
        self.closers.append(closer)  # owned before it exists
        closer.task = self._make(closer.hold(), f"closer of {closer.name}")
        closer.task.add_done_callback(lambda _: self._forget_closer(closer))
        try:
            value: T = await closer.entered.wait()
        except asyncio.CancelledError:
            closer.release()
            raise
        return value

    async def stop(self, *, reason: str = "stop", grace: float | None = None, force: bool = False) -> Receipt:
        """End everything in this scope and say what was seen. Asking again joins the stop; `force` cuts it short.

        Cancelling the asker changes nothing. A task of this scope may ask too: it is cancelled like the others.
        """
        reason, _ = plain(reason, 0 if grace is None else grace)  # refused before anything is begun
        task, under_way = asyncio.current_task(), list(self._shared.stops)
        done = self.begin_stop(reason, grace, force)
        if any(stop.is_about(task) for stop in under_way):
            raise asyncio.CancelledError("its scope is stopping")  # again: who waits here would hold that stop up
        return await done.wait()

    async def stopped(self) -> Receipt:
        """Until somebody has stopped this scope."""
        if self.receipt is not None:
            return self.receipt
        if self._told is None:
            self._told = Fact(self._shared.loop)
        return await self._told.wait()

    async def __aenter__(self: Self) -> Self:
        self._admit()
        self._take_block()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave_block()
        if self._is_stopping_me():
            return  # that stop waits for this very task: the task must not wait for the stop
        self._spare(asyncio.current_task())  # it may be another task than the one that entered
        done = self.begin_stop("end of block" if kind is None else kind.__name__, None, False)
        receipt = await done.insist()
        if not receipt.confirmed:
            _log.error("scope %s: %s", self.path or "/", receipt.sentence())

    # -- members

    def refuse(self, task: AnyTask) -> None:
        """By the task factory: a task that was made inside when all was over."""
        task.cancel("its scope is stopped")  # before its first step: it never runs

    def adopt_thread(self, job: Job) -> None:
        """By the loop's executor: a call that runs in a thread."""
        assert job.future is not None
        self.threads.add(job)
        job.future.add_done_callback(lambda _: self.threads.discard(job))

    def nested(self) -> list[Scope]:
        return list(self._scopes.values())

    def find(self, name: str) -> Scope | None:
        return self._scopes.get(name)

    def members(self) -> set[AnyTask]:
        return self.roots | self.helpers

    def knows(self, task: AnyTask) -> bool:
        return task in self.hosts or self.owns(task)

    def owns(self, task: AnyTask) -> bool:
        """Whether it ends with this scope."""
        return task in self.roots or task in self.helpers or any(one.task is task for one in self.closers)

    def requests(self) -> Iterator[str]:
        """What was asked for and is not there yet."""
        yield from (f"spawn {' '.join(one.argv)[:60]}" for one in list(self.processes) if not one.started.known)
        yield from (f"enter {one.name}" for one in list(self.closers) if not one.entered.known)

    def ended(self, receipt: Receipt) -> None:
        """By the stop: it is over."""
        self.receipt = receipt
        self.over = True
        if self.parent is not None:
            self.parent._scopes.pop(self.name, None)
        if self._told is not None:
            self._told.tell(receipt)

    # -- inside

    def _admit(self) -> None:
        """Whether something may start here: raises if not."""
        if self.stopping is not None:
            state = "stopped" if self.over else "stopping"
            raise ScopeStoppedError(f"the scope {self.path or '/'} is {state}: nothing starts in it any more")
        shared = self._shared
        factory = shared.loop.get_task_factory()
        if factory is not shared.trusted:
            probe(shared.loop)
            shared.trusted = factory

    def _make(self, coroutine: Coroutine[Any, Any, T], name: str | None) -> asyncio.Task[T]:
        context = contextvars.copy_context()
        context.run(CURRENT.set, self)
        loop, factory = self._shared.loop, self._shared.factory
        if factory is None or loop.get_task_factory() is not factory.make:
            task = loop.create_task(coroutine, name=name, context=context)
            self.helpers.discard(task)  # the factory took it for one of somebody inside
            return task
        own: asyncio.Task[T] = factory.plain(loop, coroutine, context=context)  # ours need not find what we make
        if name is not None:
            own.set_name(name)
        return own

    def begin_stop(self, reason: str, grace: float | None = None, force: bool = False) -> Fact[Receipt]:
        """What `stop` waits for, for those that are not to be cancelled by it: work of our own."""
        stop = self.plan_stop(reason, grace, force)
        stop.start()
        return stop.result

    def plan_stop(self, reason: str, grace: float | None, force: bool) -> Stop:
        """From any thread: the stop that is under way, or a new one, which closes the scope at once."""
        shared = self._shared
        reason, term = plain(reason, 0.0 if force else shared.ladder.term if grace is None else grace)
        with shared.hub.lock:
            stop, fresh = self.stopping, self.stopping is None
            if stop is None:
                stop = Stop(shared, self, reason, term, force)
                shared.stops.add(stop)
        if fresh:
            shared.wake()
        elif force:
            stop.force()
        return stop

    def _is_stopping_me(self) -> bool:
        """Whether a stop is under way that ends the task which asks."""
        stop = self.stopping
        return stop is not None and not self.over and stop.is_about(asyncio.current_task())

    def _forget_closer(self, closer: Closer) -> None:
        self.closers.remove(closer)
        closer.entered.fail(ScopeStoppedError(f"{closer.name} was not entered: it was stopped before"))

    def _forget_process(self, process: Process) -> None:
        self.processes.pop(process, None)
        receipt = process.last_receipt
        if receipt is not None and not receipt.confirmed:
            self.lost.append(receipt)

    def _take_block(self) -> None:
        host, owner = asyncio.current_task(), CURRENT.get()
        if host is not None and isinstance(owner, Scope) and not owner.knows(host):
            owner.helpers.add(host)  # made around the factory; from now on its context names this scope
            host.add_done_callback(owner.drop_helper)
        if host is not None:
            self.hosts.add(host)
        self._token = CURRENT.set(self)

    def _spare(self, leaver: AnyTask | None) -> None:
        """Who leaves the block waits for the stop, so the stop must not wait for it."""
        if leaver is not None:
            self.hosts.add(leaver)
            self.helpers.discard(leaver)
            self.roots.discard(leaver)

    def _leave_block(self) -> None:
        if self._token is not None:
            try:
                CURRENT.reset(self._token)
            except ValueError:  # left in another context than it was entered in
                pass
            self._token = None


class _Probe(Scope):
    """Stands in for a scope, to see whether tasks arrive."""

    def __init__(self) -> None:
        self.over = False
        self.parent = None
        self.hosts = set()
        self.helpers: set[AnyTask] = set()
        self.drop_helper: Callable[[AnyTask], object] = self.helpers.discard


def probe(loop: asyncio.AbstractEventLoop) -> None:
    """Fail loudly if a task made here would not be handed to its scope (H16)."""
    stand_in = _Probe()
    context = contextvars.Context()
    context.run(CURRENT.set, stand_in)
    task = loop.create_task(_nothing(), context=context)
    task.cancel()
    if task not in stand_in.helpers:
        raise OwnershipError(
            f"the tasks of this event loop are no longer owned: its task factory was replaced by"
            f" {loop.get_task_factory()!r}; set one before the supervisor starts, or have yours call the one before it"
        )
    if context_of(task) is not context:
        raise OwnershipError("this Python does not tell the context of a task, so stray tasks could not be found")


async def _nothing() -> None:
    await asyncio.sleep(0)
