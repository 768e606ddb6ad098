"""The archive: sessions as the log has them. Listing, reading and deleting them, and making good what a crash left.

A session that is being deleted is out of reach from the step in which that was asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from ..errors import NoSessionError, UsageError
from ..events import (
    Event,
    QueueParked,
    SessionConfigured,
    SessionDeleted,
    SessionForked,
    SessionOpened,
    SessionRenamed,
)
from ..ports import Store
from ..supervise import Receipt
from ..supervise.errand import Fact
from ..supervise.receipt import of_nobody
from .asked import is_text
from .history import History
from .leftovers import Leftovers, Queue, closed_by

if TYPE_CHECKING:
    from .host import Host
    from .journal import Journal


class Info(msgspec.Struct, frozen=True):
    """A session, as a list shows it."""

    id: str
    title: str
    agent: str
    cwd: str
    parent: str
    opened: float
    state: str
    model: str = ""
    """The one that was chosen for it; empty: the agent's own."""


class Archive:
    """Of one host."""

    def __init__(self, host: Host, journal: Journal, store: Store) -> None:
        self._host = host
        self._journal = journal
        self._store = store
        self._deleting: dict[str, Fact[Receipt]] = {}
        self._doomed: set[str] = set()
        self._plans: dict[str, set[str]] = {}

    # -- reading

    async def sessions(self) -> list[Info]:
        """Every session that is in the log, the oldest first."""
        found: dict[str, Info] = {}
        for event in await self._journal.read(kinds=("session.",)):
            match event:
                case SessionOpened():
                    found[event.session] = Info(
                        event.session, event.title, event.agent, event.cwd, event.parent, event.at, "closed"
                    )
                case SessionRenamed() if event.session in found:
                    found[event.session] = msgspec.structs.replace(found[event.session], title=event.title)
                case SessionConfigured() if event.session in found:
                    chosen = {"agent": event.agent, "model": event.model}
                    found[event.session] = msgspec.structs.replace(found[event.session], **chosen)
                case SessionDeleted():
                    found.pop(event.session, None)
        for id_, session in self._host.live.items():
            if id_ in found:
                found[id_] = msgspec.structs.replace(found[id_], state=session.state)
        return list(found.values())

    async def history(self, id_: str, upto: int | None = None) -> History:
        history = History()
        for event in await self.events(id_, upto):
            history.apply(event)
        return history

    async def events(self, id_: str, upto: int | None = None) -> list[Event]:
        """All of a session; those of its origin first, if it is a fork, also where that was before it was one."""
        events = await self._journal.read(session=id_)
        forked = next((one for one in events if isinstance(one, SessionForked)), None)
        before = await self.events(forked.origin, forked.upto) if forked else []
        return [one for one in (*before, *events) if upto is None or one.seq <= upto]

    # -- deleting

    async def delete(self, id: str) -> Receipt:  # noqa: A002  the word for it everywhere
        """Stop it, then remove it and its sub-agents. UsageError if a fork stands on it. Whoever asks again joins."""
        is_text("the name of a session", id)
        self._host.running()
        if (deleting := self._deleting.get(id)) is None:
            self._doomed.add(id)  # from this step on nobody gets hold of it
            deleting = self._deleting[id] = self._host.see_to(lambda: self._delete(id))
            deleting.then(lambda: self._deleting.pop(id, None))
        return await deleting.wait()

    async def _delete(self, id_: str) -> Receipt:
        doomed = self._plans.get(id_) or await self._plan(id_)
        try:
            self._plans[id_] = doomed  # begun again after an interrupt, it goes on with this
            receipt = of_nobody("deleted")
            for one in doomed:
                await self._host.arrived(one)  # what was being read when this began is refused at its end
                if (session := self._host.live.get(one)) is not None:
                    closed = await session.begin_close("deleted").wait()
                    receipt = closed if one == id_ else receipt
            for one in sorted(doomed, key=lambda one: one == id_):  # itself last
                await self._remove(one)
            del self._plans[id_]
            return receipt
        finally:
            self._doomed -= doomed

    async def _plan(self, id_: str) -> set[str]:
        """Itself and all below it; NoSessionError or UsageError say why not."""
        doomed = {id_}
        try:
            opened = await self._journal.read(kinds=("session.",))
            gone = {one.session for one in opened if isinstance(one, SessionDeleted)}
            parents = {one.session: one.parent for one in opened if isinstance(one, SessionOpened)}
            if id_ in gone or id_ not in parents:
                raise NoSessionError(f"there is no session {id_!r}")
            doomed |= {one for one in parents if one not in gone and id_ in _above(one, parents)}
            self._doomed |= doomed
            opened = await self._journal.read(kinds=("session.",))  # somebody may have forked one of these meanwhile
            self._refuse_forked(id_, doomed, opened)
        except BaseException:
            self._doomed -= doomed
            raise
        return doomed

    @staticmethod
    def _refuse_forked(id_: str, doomed: set[str], opened: list[Event]) -> None:
        gone = {one.session for one in opened if isinstance(one, SessionDeleted)}
        forks = {one.session for one in opened if isinstance(one, SessionForked) and one.origin in doomed}
        if left := sorted(forks - gone - doomed):
            raise UsageError(f"session {id_} was forked into {', '.join(left)}: delete that first")

    def exists(self, id_: str) -> None:
        """NoSessionError while it is being deleted."""
        if id_ in self._doomed:
            raise NoSessionError(f"session {id_} is being deleted")

    async def _remove(self, id_: str) -> None:
        """The word that it is gone first: a crash in between is made good at the next start."""
        events = await self._journal.read(session=id_)
        epoch = max((one.epoch for one in events), default=0)
        deleted = SessionDeleted(session=id_, epoch=epoch, source="user", events=len(events))
        told = await self._journal.record(deleted)
        await self._store.forget(id_, [told.seq])

    # -- after a crash

    async def make_good(self) -> None:
        """End what the log has open, park what waits, and take the gate as it was left. Nothing is run again (H23)."""
        marks = await self._journal.read(kinds=("runtime.stopped", "admission."))
        closed = closed_by(marks)
        self._host.admitting, self._host.closed_for = closed is None, closed.reason if closed is not None else ""
        orderly = max((one.seq for one in marks if one.kind == "runtime.stopped"), default=0)
        left, upto = Leftovers(), self._journal.last
        while page := await self._journal.page(orderly, upto, None):  # a page at a time: it may be long ago
            for event in page:
                left.apply(event)
            orderly = page[-1].seq
        left.drop_deleted()
        self._journal.adopt(left.requests.values(), left.begun)
        for request in sorted(left.requests.values(), key=lambda one: -one.seq):
            self._journal.end_all([request], "interrupted", left.epochs.get(request.session, 0))
        for id_, queue in left.queues.items():
            self._park(id_, queue, left.epochs[id_])
        for id_, seq in left.deleted.items():
            await self._store.forget(id_, [seq])

    def _park(self, id_: str, queue: Queue, epoch: int) -> None:
        if queue.waiting:
            self._journal.emit(
                QueueParked(session=id_, epoch=epoch, messages=sorted(queue.waiting), reason="interrupted")
            )


def _above(session: str, parents: dict[str, str]) -> Iterator[str]:
    """The sessions whose sub-agent it is, however far up."""
    while session := parents.get(session, ""):
        yield session
