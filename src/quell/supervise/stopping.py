"""One stop of a scope with everything below it, from the first word to the receipt.

1. Nobody comes in any more. Nested scopes first, each scope's tasks are cancelled, then its closers run, last first,
   then what libraries left behind is cancelled: together no longer than `ladder.ask`.
2. All trees at once: SIGTERM, `ladder.term`, SIGKILL, in their keepers.
3. Whoever has still not ended is named with its line, and the receipt says `unconfirmed`.

It runs as an errand, which nobody can cancel (H02). Step 2 also begins without the loop: the supervisor's thread asks
the trees when the loop has not in time (H25).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from .box import ANSWER_LIMIT
from .errand import Fact, see_to
from .keeper.ending import KILL_LIMIT
from .ownership import AnyTask, foreign_threads, strays
from .receipt import Receipt, now_text
from .where import where, where_thread

if TYPE_CHECKING:
    from .closer import Closer
    from .ownership import Job
    from .place import Place
    from .process import Process
    from .scope import Scope
    from .shared import Shared

LOOP_LIMIT = 0.5  # seconds for the loop to take up a stop that came from outside, before the thread goes ahead
SLACK = 0.25  # seconds past the time at which the loop would have asked the trees itself
CLOSE_LEAST = 0.5  # seconds that closers have when tasks that would not end have used up the time
_LOOK = 0.05  # seconds between two looks at trees, where a fault of ours broke the stop off
_TICK = 0.005  # seconds between two looks at threads that are not ours
LAST_LOOK = 0.5  # seconds that tasks and threads have to end once no process holds them any more

Part = dict[str, Any]


class Stop:
    """Made under the hub's lock, in any thread; `start` in the loop."""

    def __init__(self, shared: Shared, scope: Scope, reason: str, grace: float, force: bool) -> None:
        self.scope = scope
        self.reason = reason
        self.grace = grace
        self.began = time.monotonic()
        self.ask_until = self.began if force else self.began + shared.ladder.ask
        self.close_until = self.ask_until if force else self.ask_until + CLOSE_LEAST
        self.result: Fact[Receipt] = Fact(shared.loop)
        self.everyone: list[Scope] = []  # nested ones first
        self._shared = shared
        self._loop = shared.loop
        self._text = now_text()
        self._forced: Fact[None] = Fact(shared.loop)
        if force:
            self._forced.tell(None)
        self._joined: list[Stop] = []
        self._requests: list[str] = []
        self._tasks: dict[AnyTask, str] = {}
        self._closers: list[Closer] = []
        self._threads: list[Job] = []
        self._places: list[Place] = []
        self._trees: list[Place | Process] = []
        self._lone: list[Process] = []  # in boxes of scopes above: ended tree by tree
        self._taken = False
        self.asked_at: float | None = None
        self._faults: list[str] = []  # of our own: nothing is confirmed then
        self._cover(scope)

    def _cover(self, scope: Scope) -> None:
        for child in scope.nested():
            if child.stopping is None:
                self._cover(child)
            else:
                self._joined.append(child.stopping)
        self._requests += scope.requests()
        scope.stopping = self
        self.everyone.append(scope)
        for process in list(scope.processes):
            process.withhold(self.reason)  # a box that is made from now on does not start it any more

    def is_about(self, task: AnyTask | None) -> bool:
        """Whether this task is one of those that it ends."""
        return task is not None and any(scope.owns(task) for scope in self.everyone)

    # -- the course: in the loop

    def start(self) -> None:
        if not self._taken:
            self._taken = True
            see_to(self._loop, self._run).then(self._seen_to)

    def _seen_to(self) -> None:
        """A fault of our own must leave nobody waiting, and nothing confirmed: the trees are ended all the same."""
        if self.result.known:
            return
        if not self._faults:
            self._faults.append("a stop broke off")
            self.ask_trees()
        late = time.monotonic() > (self.asked_at or self.began) + self.grace + KILL_LIMIT + ANSWER_LIMIT
        if late or self.trees_settled:
            self._conclude()
        else:
            self._loop.call_later(_LOOK, self._seen_to)

    async def _run(self) -> None:
        await self._quiet(self.scope)
        self.ask_trees()
        for process in [one for scope in self.everyone for one in scope.processes if not one.sent]:
            process.expect_stop(self.reason, self.grace)  # its asker hears of it now, not when there is a box
        for place in self._places:
            place.end_soon()
            await place.over.wait()
        for fact in [process.expect_stop(self.reason, self.grace) for process in self._lone]:
            await fact.wait()
        await self._last_look()
        self._conclude()

    async def _quiet(self, scope: Scope) -> None:
        """Tasks and closers of one scope, after those of the scopes in it."""
        children = [child for child in scope.nested() if child.stopping is self]
        for done in [see_to(self._loop, partial(self._quiet, child)) for child in children]:
            await done.wait()  # each is begun again by itself: an interrupt is not raised a second time here
        for other in [other for other in self._joined if other.scope.parent is scope]:
            await self._join(other)
        await self._ask(scope.roots)
        for closer in list(reversed(scope.closers)):  # some end meanwhile
            self._closers.append(closer)
            closer.release()
            if closer.task is not None:
                await self._gone([closer.task], self.close_until)
                if not closer.task.done() and not self._forced.known:
                    closer.task.cancel()
        await self._ask_the_rest([scope])

    async def _ask(self, tasks: Iterable[AnyTask]) -> None:
        asked = [task for task in tasks if not task.done()]
        self._cancel(asked)
        await self._gone(asked, self.ask_until)

    def _cancel(self, tasks: Iterable[AnyTask]) -> None:
        for task in tasks:
            self._tasks.setdefault(task, _name(task))
            task.cancel(f"the scope {self.scope.path} is stopped: {self.reason}")

    async def _ask_the_rest(self, scopes: list[Scope]) -> None:
        """What libraries left: not together with their roots, whose clean-up may need them."""
        asked: set[AnyTask] = set()
        while True:
            left = await self._left(scopes)
            fresh = [task for task in left if task not in asked]
            if not fresh or (asked and time.monotonic() > self.ask_until):  # each may leave an heir, for ever
                return
            asked.update(fresh)
            self._cancel(fresh)
            await self._gone(left, self.ask_until)

    async def _left(self, scopes: list[Scope]) -> list[AnyTask]:
        listed = {task for scope in scopes for task in scope.members() if not task.done()}
        return [*listed, *(await self._strays() if scopes[-1] is self.scope else ())]

    async def _strays(self) -> list[AnyTask]:
        """Made in here around the factory, as of a moment after this was asked.

        A sweep asks every task of the loop that no scope knows for its context: it is one for all stops that ask in the
        same turn of the loop, not one for each of a thousand (H24).
        """
        shared = self._shared
        if shared.sweep is None:
            shared.sweep = Fact(self._loop)
            self._loop.call_soon(self._sweep, shared.sweep)
        mine = set(self.everyone)
        return [task for task, owner in await shared.sweep.wait() if owner in mine and not task.done()]

    def _sweep(self, asked: Fact[list[tuple[AnyTask, Any]]]) -> None:
        self._shared.sweep = None
        try:
            asked.tell(strays(self._loop, self._known(_root(self.scope))))
        except Exception as error:  # noqa: BLE001  a boundary: a fault of ours, which the stop tells of
            asked.fail(error)
        except BaseException:
            self._loop.call_soon(self._sweep, asked)  # an interrupt: whoever asked still waits
            raise

    def _known(self, scope: Scope) -> set[AnyTask]:
        """The tasks of all scopes, those that live on among them."""
        known = {*scope.members(), *scope.hosts, *(one.task for one in scope.closers if one.task is not None)}
        return known.union(*(self._known(child) for child in scope.nested()))

    async def _gone(self, tasks: Iterable[AnyTask], until: float) -> None:
        """Until these have ended, or this time has come, or the stop is forced."""
        left = {task for task in tasks if not task.done()}
        seconds = until - time.monotonic()
        if not left or seconds <= 0 or (self._forced.known and self.asked_at is None):
            return
        over: Fact[None] = Fact(self._loop)

        def ended(task: AnyTask) -> None:
            left.discard(task)
            if not left:
                over.tell(None)

        for task in list(left):
            task.add_done_callback(ended)
        await self._until(over, seconds)
        for task in left:
            task.remove_done_callback(ended)

    async def _until(self, over: Fact[None], seconds: float) -> None:
        def cut() -> None:
            over.tell(None)

        clock = self._loop.call_later(seconds, cut)
        if not self._forced.known:
            self._forced.then(cut)
        await over.wait()
        self._forced.forget(cut)
        clock.cancel()

    async def _join(self, other: Stop) -> None:
        """A stop of a nested scope that was under way before: it has as long as this one."""
        over: Fact[None] = Fact(self._loop)
        other.result.then(lambda: over.tell(None))
        limit = self.close_until + self.grace - time.monotonic()
        if not over.known:
            await self._until(over, max(0.0, limit))
        if not other.result.known:
            other.force()
        await other.result.wait()

    async def _last_look(self) -> None:
        """No process holds anybody any more: who has not ended by now will not."""
        until = time.monotonic() + LAST_LOOK
        left = await self._left(self.everyone)
        self._cancel(left)
        closing = [one.task for one in self._closers if one.task is not None]
        await self._gone([*left, *closing], until)
        for task in closing:
            task.cancel()  # it had its time: this is so that it ends some day, not so that it is seen to
        self._threads = [job for scope in self.everyone for job in list(scope.threads)]
        waiting = {job for job in self._threads if job.future is not None and not job.future.cancel()}
        over: Fact[None] = Fact(self._loop)

        def ended(job: Job) -> None:
            waiting.discard(job)
            if not waiting:
                over.tell(None)

        for job in list(waiting):
            assert job.future is not None
            job.future.add_done_callback(partial(self._in_loop, ended, job))
        if waiting and (seconds := until - time.monotonic()) > 0:
            await self._until(over, seconds)
        while time.monotonic() < until and any(foreign_threads(self.everyone, [job.thread for job in self._threads])):
            await self._until(Fact(self._loop), _TICK)  # nothing tells when such a thread ends
        self._cancel(await self._left(self.everyone))  # born of the last cancel: named, if it does not end by itself

    def _in_loop(self, call: Callable[[Job], None], job: Job, _: object) -> None:
        self._shared.hub.in_loop(lambda: call(job))

    def _conclude(self) -> None:
        receipt = self.receipt()
        for scope in self.everyone:
            scope.ended(receipt)
        self._shared.stops.discard(self)
        self.result.tell(receipt)
        self._shared.wake()

    # -- the trees: from any thread

    def ask_trees(self) -> None:
        """Begin to end every tree, once."""
        with self._shared.hub.lock:
            if self.asked_at is not None:
                return
            self.asked_at = time.monotonic()
            self._places = [scope.place for scope in self.everyone if scope.place is not None]
            self._lone = [one for scope in self.everyone if scope.home not in self._places for one in scope.processes]
            self._trees = [*self._places, *self._lone]
            self._ask_each()

    def _ask_each(self) -> None:
        for one in self._trees:
            try:
                one.ask_stop(self.reason, self.grace)
            except Exception as error:  # noqa: BLE001  a boundary: one tree's fault spares no other
                self._faults.append(f"{type(error).__name__}: {error}")

    def force(self) -> None:
        """Cut short what is under way, from any thread."""
        with self._shared.hub.lock:
            self.grace = 0.0
            self.ask_until = self.close_until = min(self.ask_until, time.monotonic())
            if self.asked_at is not None:
                self._ask_each()
            for other in self._joined:
                other.force()
        self._shared.hub.in_loop(lambda: self._forced.tell(None))
        self._shared.wake()

    @property
    def due(self) -> float:
        """When the thread asks the trees, if the loop has not."""
        late = self.close_until + SLACK
        return late if self._taken else min(self.began + LOOP_LIMIT, late)

    @property
    def trees_settled(self) -> bool:
        mine = self.asked_at is not None and all(one.settled for one in self._trees)
        return mine and all(other.result.known or other.trees_settled for other in self._joined)

    # -- the receipt: from any thread

    def receipt(self, blocked: int | None = None) -> Receipt:
        """What was observed. `blocked`: the thread of a loop that does not turn, whose tasks cannot have ended."""
        now = time.monotonic()
        joined = [other.result.get() if other.result.known else other.receipt() for other in self._joined]
        trees = [*self._tree_receipts(), *joined]
        listed = {task for scope in self.everyone for task in scope.members()}
        tasks = [_task(task, name) for task, name in {**{one: _name(one) for one in listed}, **self._tasks}.items()]
        if blocked is not None:
            tasks.insert(0, {"name": "the event loop", "end": "alive", "where": where_thread(blocked)})
        closers = [_closer(closer) for closer in self._closers]
        threads = self._running_threads(blocked)
        alive = any(one["end"] == "alive" for one in (*tasks, *closers, *threads))
        seen = self.trees_settled and not self._faults and all(one.confirmed for one in trees)
        return Receipt(
            reason=self.reason,
            confirmed=seen and not alive,
            rung="+".join(sorted({one.rung for one in trees} - {"none"})) or "none",
            command=[],
            exit=None,
            processes=[vars(process) for one in trees for process in one.processes],
            survivors=[pid for one in trees for pid in one.survivors],
            signalled=sum(one.signalled for one in trees),
            phases={
                "tasks": round((self.asked_at or now) - self.began, 6),
                "ask": max((one.phases["ask"] for one in trees), default=0.0),
                "kill": max((one.phases["kill"] for one in trees), default=0.0),
                "total": round(now - self.began, 6),
            },
            started=self._text,
            scope=self.scope.path,
            tasks=[*tasks, *_parts(trees, "tasks")],
            closers=[*closers, *_parts(trees, "closers")],
            requests=[
                *({"name": name, "end": "ended"} for name in self._requests),
                *({"name": "this stop", "end": f"failed: {fault}"} for fault in self._faults),
                *_parts(trees, "requests"),
            ],
            threads=[*threads, *_parts(trees, "threads")],
        )

    def _tree_receipts(self) -> list[Receipt]:
        """Each once: a box's may be that of several trees, and of its place."""
        found = [receipt for place in self._places for receipt in place.seen()]
        found += [one for one in (process.last_receipt for process in self._lone) if one is not None]
        found += [receipt for scope in self.everyone for receipt in scope.lost]
        return list({id(receipt): receipt for receipt in found}.values())

    def _running_threads(self, blocked: int | None) -> list[Part]:
        jobs = self._threads or [job for scope in self.everyone for job in list(scope.threads)]
        found = [_job(job) for job in jobs]
        known = [job.thread for job in jobs]
        others = foreign_threads(self.everyone, [*known, blocked])
        return [*found, *({"name": name, "end": "alive", "where": line} for name, line in others)]


def _root(scope: Scope) -> Scope:
    while scope.parent is not None:
        scope = scope.parent
    return scope


def _name(task: AnyTask) -> str:
    """What somebody called it, else what it runs (3.13.0 calls some "None")."""
    name = task.get_name()
    if not (name == "None" or name.startswith("Task-")):
        return name
    return str(getattr(task.get_coro(), "__qualname__", name))


def _failure(error: BaseException) -> str:
    try:
        return f"failed: {type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  a boundary: foreign code, and the stop must end
        return f"failed: {type(error).__name__}"


def _task(task: AnyTask, name: str) -> Part:
    if not task.done():
        return {"name": name, "end": "alive", "where": where(task)}
    if task.cancelled():
        return {"name": name, "end": "cancelled"}
    error = task.exception()
    return {"name": name, "end": "finished" if error is None else _failure(error)}


def _closer(closer: Closer) -> Part:
    if closer.task is not None and not closer.task.done():
        return {"name": closer.name, "end": "alive", "where": where(closer.task)}
    if closer.error is not None:
        return {"name": closer.name, "end": _failure(closer.error)}
    return {"name": closer.name, "end": "cancelled" if closer.task and closer.task.cancelled() else "closed"}


def _job(job: Job) -> Part:
    if job.future is not None and not job.future.done():
        return {"name": job.name, "end": "alive", "where": job.where}
    return {"name": job.name, "end": "ended"}


def _parts(trees: list[Receipt], word: str) -> list[Part]:
    return [vars(part) for one in trees for part in getattr(one, word)]
