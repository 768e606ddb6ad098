"""The host: all sessions of one runtime, and the one gate that they come in by.

Its maps hold what is live, and nothing else: a closed session is in the log only (H09).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..config import Agent, Settings, what_there_is
from ..errors import (
    AdmissionClosedError,
    ScopeStoppedError,
    ToolError,
    UsageError,
)
from ..events import (
    AdmissionClosed,
    AdmissionReopened,
    SessionForked,
    SessionOpened,
    StopRequested,
)
from ..ports import Spawner, Store
from ..supervise import Receipt, Scope
from ..supervise.errand import Fact, see_to
from ..supervise.request import plain
from .archive import Archive
from .asked import folder, is_place, is_text
from .ends import receipt_of
from .halting import total
from .isolation import Sandbox, confined, makes_sense
from .registry import provider
from .resuming import from_log
from .session import Session, configuration
from .tail import Tail

if TYPE_CHECKING:
    from .bus import Bus
    from .grants import Grants
    from .journal import Journal
    from .plugins import Plugins
    from .registry import Registry


T = TypeVar("T")


class Host:
    """Everything that sessions stand on."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: Store,
        journal: Journal,
        bus: Bus,
        registry: Registry,
        above: Scope,
        settings: Settings,
        agents: dict[str, Agent],
        spawn: Spawner,
        ids: Callable[[], str],
        off_limits: Sequence[str],
    ) -> None:
        self.off_limits = off_limits
        self.loop = loop
        self.journal = journal
        self.bus = bus
        self.registry = registry
        self.plugins: Plugins
        self.grants: Grants
        self.settings = settings
        self.agents = agents
        self.spawn = spawn
        self.live: dict[str, Session] = {}
        self.closing = False  # the runtime stops
        self.admitting = True
        self.closed_for = ""  # why admission is closed
        self.archive = Archive(self, journal, store)
        self.sandbox = Sandbox(spawn, self.ground, self.see_to, off_limits)
        self._above = above
        self._ground: Scope | None = None
        self._ids = ids
        self._loading: dict[str, Fact[Session]] = {}
        self._restarting: dict[str, Fact[tuple[Receipt, Session]]] = {}
        self._errands: set[Fact[Any]] = set()

    # -- the gate

    @property
    def open(self) -> bool:
        return self.admitting and not self.closing and self.journal.broken is None

    def admit(self) -> None:
        """Whether something may begin: raises why not."""
        if self.journal.broken is not None:
            raise self.journal.broken.with_traceback(None)
        self.running()
        if not self.admitting:
            why = f" ({self.closed_for})" if self.closed_for else ""
            raise AdmissionClosedError(f"admission is closed{why}; reopen it to go on")

    def running(self) -> None:
        """Whether it takes orders: raises if it stops."""
        if self.closing:
            raise ScopeStoppedError("the runtime is stopping: nothing starts in it any more")

    def close_admission(self, reason: str) -> None:
        """Nothing new starts, and what waits waits on; turns that run go on."""
        if self.admitting:
            self.admitting, self.closed_for = False, reason
            self.journal.emit(AdmissionClosed(source="user", reason=reason))

    def reopen(self) -> None:
        """Let new work in again; whoever has messages that wait goes on with them."""
        self.running()
        if not self.admitting:
            self.journal.emit(AdmissionReopened(source="user"))
            self.admitting, self.closed_for = True, ""
            for session in list(self.live.values()):
                session.go_on()

    def stop_all(self, reason: str, grace: float | None, force: bool) -> Fact[Receipt]:
        """In one step: admission closed, every session fenced, all stops begun."""
        self.close_admission(reason)
        asked = self.journal.emit(StopRequested(source="user", reach="all", reason=reason, force=force))
        stops = self.begin_stops(reason, grace, force, asked.seq)
        return self.see_to(lambda: self._sum(asked, stops))

    def begin_stops(self, reason: str, grace: float | None, force: bool, cause: int) -> list[Fact[Receipt]]:
        """All sessions at once; sub-agents with those above them (H24)."""
        tops = [one for one in self.live.values() if one.parent is None and one.at_work]
        return [one.begin_stop("session", reason, grace, force, cause) for one in tops]

    async def _sum(self, asked: StopRequested, stops: list[Fact[Receipt]]) -> Receipt:
        receipt = total(asked.reason, [await one.wait() for one in stops])
        await self.journal.seen_to(self.journal.emit(receipt_of(asked, receipt)))
        return receipt

    async def settled(self) -> None:
        """Until whatever is under way here has its end: turns, stops, closes, deletions."""
        while self._errands:
            errand = next(iter(self._errands))
            try:
                await errand.wait()
            except Exception:  # noqa: BLE001  a boundary: told to whoever asked
                pass
            self._errands.discard(errand)  # an interrupt may have kept it from going by itself

    def see_to(self, make: Callable[[], Coroutine[Any, Any, T]]) -> Fact[T]:
        """Work of our own, which the end of the runtime waits for."""
        done = see_to(self.loop, make)
        self._errands.add(done)
        done.then(lambda: self._errands.discard(done))
        return done

    # -- sessions

    async def open_session(self, agent: str, cwd: str | os.PathLike[str], title: str, model: str) -> Session:
        is_text("a title", title)
        chosen, place = self.agent(agent, model), folder(cwd)
        await self.sandbox.check(chosen, place)
        session = self._begin(chosen, place, title, None, None, 0)
        return await self._handed_over(session)

    def open_child(self, parent: Session, agent: str, scope: Scope, cause: int) -> Session:
        """A sub-agent, inside the scope of the call that wants it. ToolError says which limit is in its way."""
        breadth, deepest = parent.agent.limits.breadth, min(one.agent.limits.depth for one in parent.line())
        if parent.depth + 1 > deepest:
            raise ToolError(f"sub-agents go {deepest} deep at most: do this one yourself")
        if len(parent.children) >= breadth:
            raise ToolError(f"a session has {breadth} sub-agents at a time at most: wait for one of them")
        try:
            chosen = confined(self.agent(agent, instead=parent.model), parent.agent)
        except UsageError as error:
            raise ToolError(str(error)) from None
        child = self._begin(chosen, parent.cwd, "", parent, scope, cause)
        parent.children[child.id] = child
        return child

    def chosen(self, session: Session, agent: str | None, model: str | None) -> Agent:
        """Who is to answer in a session from now on. UsageError says who cannot."""
        if not agent and not model:
            raise UsageError("name an agent, a model, or both")
        if agent:
            return self.agent(agent, model or "", instead=session.model)
        return self._with(session.agent, model or "")

    async def fork(self, session: Session, upto: int | None) -> Session:
        if upto is None:
            upto = session.turn.started.seq - 1 if session.turn is not None else self.journal.last
            known = await self.archive.events(session.id, upto)
        else:
            known = await self.archive.events(session.id, is_place(upto))
            if not known or known[-1].seq != upto:
                raise UsageError(f"a session is forked at the number of one of its events, and {upto} is none")
        self.archive.exists(session.id)
        child = self._begin(session.agent, session.cwd, session.title, None, None, 0)
        forked = self.journal.emit(SessionForked(session=child.id, source="user", origin=session.id, upto=upto))
        for event in (*known, forked):
            child.history.apply(event)
        return await self._handed_over(child)

    async def resume(self, id: str, agent: str = "", model: str = "") -> Session:  # noqa: A002  the word for it
        """One that is in the log. Whoever asks while it is read gets the same session."""
        session = await self._resumed(id, agent, model)
        if agent or model:
            await session.use(agent, model)
        return session

    async def _resumed(self, id: str, agent: str, model: str) -> Session:  # noqa: A002  as above
        self.archive.exists(is_text("the name of a session", id))
        live = self.live.get(id)
        if live is not None and live.closing is None:
            return live
        self.admit()
        if live is not None and live.closing is not None:
            await live.closing.wait()
        loading = self._loading.get(id)
        if loading is not None and (agent or model):  # it may fail for want of an agent, where this one names another
            await self.arrived(id)
            return await self._resumed(id, agent, model)
        if loading is None:
            loading = self._loading[id] = self.see_to(lambda: self._load(id, agent, model))
            loading.then(lambda: self._loading.pop(id, None))
        return await loading.wait()

    async def arrived(self, id_: str) -> None:
        """Until nobody reads that session from the log any more, whatever came of it."""
        while (loading := self._loading.get(id_)) is not None:
            try:
                await loading.wait()
            except Exception:  # noqa: BLE001  a boundary: told to whoever asked for it
                pass

    def restarts(self, id_: str) -> bool:
        """Whether a restart of it is under way."""
        return id_ in self._restarting

    async def restart(self, id_: str, reason: str) -> tuple[Receipt, Session]:
        """A stop, and then a new incarnation. Whoever asks meanwhile joins; cancelling the asker changes nothing."""
        self.archive.exists(is_text("the name of a session", id_))
        reason, _ = plain(reason, 0)
        self.admit()
        if (restarting := self._restarting.get(id_)) is None:
            begun: list[Fact[Receipt]] = []
            restarting = self._restarting[id_] = self.see_to(lambda: self._restart(id_, reason, begun))
            restarting.then(lambda: self._restarting.pop(id_, None))
        return await restarting.wait()

    async def _restart(self, id_: str, reason: str, begun: list[Fact[Receipt]]) -> tuple[Receipt, Session]:
        """`begun` is there so that it is stopped once, also when this is begun again after an interrupt."""
        if not begun:
            session = await self.resume(id_)
            self.agent(
                session.agent.name, session.model
            )  # refused before anything is begun, where it could not come back
            await self.sandbox.check(session.agent, folder(session.cwd))
            begun.append(session.begin_close(reason, again=True))
        receipt = await begun[0].wait()
        return receipt, await self.resume(id_)

    def forget(self, session: Session) -> None:
        """By a session that is closed."""
        if self.live.get(session.id) is session:
            del self.live[session.id]
        if session.parent is not None:
            session.parent.children.pop(session.id, None)

    def follow(self, after: int, session: str | None, name: str = "follower") -> Tail:
        return Tail(self.journal, self.bus, is_place(after), session, name)

    # -- inside

    def ground(self) -> Scope:
        """Where sessions stand; a new one after somebody stopped it from outside."""
        if self._ground is None or self._ground.stopping is not None:
            self._ground = self._above.scope("sessions")
        return self._ground

    def agent(self, name: str, model: str = "", instead: str = "") -> Agent:
        """By its name, with that model if one is named; with `instead` if it has none of its own."""
        is_text("the name of an agent", name)
        if name not in self.agents:
            raise UsageError(f"there is no agent {name!r}; {what_there_is('agents', name, sorted(self.agents))}")
        agent = self.agents[name]
        makes_sense(agent)
        if agent.harness:
            self.registry.harness(agent.harness)
            return self._with(agent, model)
        self.registry.strategy(agent.strategy)
        for tool in agent.tools:
            self.registry.tool(tool)
        return self._with(agent, model or agent.model or instead)

    def _with(self, agent: Agent, model: str) -> Agent:
        """The same, with that model."""
        is_text("the name of a model", model)
        if agent.harness:
            if model:
                raise UsageError(f"the agent {agent.name} is a harness, which has a model of its own")
            return agent
        if not model:
            raise UsageError(f"the agent {agent.name} has no model: name one, as in openai:gpt-5 or scripted")
        self.registry.need("model", provider(model))
        return msgspec.structs.replace(agent, model=model)

    def _begin(
        self, agent: Agent, cwd: str, title: str, parent: Session | None, ground: Scope | None, cause: int
    ) -> Session:
        self.admit()
        session = Session(self, self._ids(), agent, cwd, title, parent, ground)
        self.live[session.id] = session
        above = parent.id if parent is not None else ""
        source = "kernel" if parent is not None else "user"
        opened = session.emit(
            SessionOpened(
                session=session.id,
                source=source,
                cause=cause,
                agent=agent.name,
                cwd=cwd,
                title=title,
                parent=above,
                depth=session.depth,
            )
        )
        session.title = opened.title
        if agent.model != self.agents[agent.name].model:
            session.emit(configuration(session, agent, source, cause))
        return session

    async def _handed_over(self, session: Session) -> Session:
        """Acknowledged when all of it is on disk. If the asker is cancelled before it has it, it is closed."""
        try:
            await self.journal.flushed()
        except BaseException:
            session.begin_close("the asker was cancelled")
            raise
        return session

    async def _load(self, id_: str, agent: str = "", model: str = "") -> Session:
        session = await from_log(self, id_, agent, model)
        self.admit()
        self.archive.exists(id_)
        if (live := self.live.get(id_)) is None:
            self.live[id_] = session
            return session
        if live.closing is None:
            return live  # it was opened while it was looked for
        await live.closing.wait()
        return await self._load(id_, agent, model)
