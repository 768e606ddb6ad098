"""The runtime: everything is started in order and stopped in reverse, at any half-started point (H22).

Starting and stopping are work of our own, which no caller owns: cancelling whoever waits breaks nothing off.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from ..config import Agent, Settings, fit, usual_file, what_there_is
from ..errors import QuellError, ScopeStoppedError, StoreError, UsageError
from ..events import ConfigChanged, Event, RuntimeErrored, RuntimeReady, RuntimeStopped, RuntimeStopping
from ..ports import Plugin
from ..secrecy import secrets_in
from ..supervise import Ladder, Receipt, Scope, Supervisor
from ..supervise.contain import order
from ..supervise.errand import Errand, Fact, see_to
from ..supervise.ledger import state_dir as usual_place
from ..supervise.receipt import of_nobody
from ..supervise.request import plain
from .agents import built_in, by_name
from .archive import Info
from .asked import is_text
from .bus import Bus
from .footing import Ports
from .grants import Grant, Grants
from .halting import total
from .host import Host
from .journal import Journal
from .plugins import Plugins
from .redaction import Redaction
from .registry import Registry, in_thread
from .runner import ME as RUNNER
from .session import Session
from .strategies import React, Tools
from .tail import Tail

if TYPE_CHECKING:
    from typing import Self

T = TypeVar("T")
HEAR_OUT = 1.0
"""Seconds for handlers to hear the last events, before the bus is closed."""
LOG = "log.sqlite"
LEFT_OPEN = "end of the runtime"
"""Where a runtime.error is from that tells of requests which had no end."""
_log = logging.getLogger("quell")


class Runtime:
    """`state_dir` is taken exclusively. `plugins` are loaded besides those that are found.

    `secrets` never reach an event, nor do those that the environment and the agents' have, by their names. Tools that
    work on files keep away from `off_limits`, and from all that is Quell's own.
    """

    def __init__(
        self,
        ports: Ports,
        *,
        state_dir: str | os.PathLike[str],
        agents: Iterable[Agent] = (),
        plugins: Iterable[Plugin] = (),
        settings: Settings | None = None,
        contain: str = "auto",
        secrets: Iterable[str] = (),
        home: str | os.PathLike[str] | None = None,
        off_limits: Iterable[str] = (),
    ) -> None:
        self.state_dir = os.path.abspath(state_dir)
        self.home: str = self.state_dir if home is None else os.path.abspath(home)
        """For what is shared with other runtimes of this user: memories, and what is always allowed."""
        own = [self.state_dir, self.home, usual_place(), os.path.dirname(usual_file(os.environ)), *off_limits]
        self._off_limits = tuple(dict.fromkeys(os.path.realpath(one) for one in own))
        self.failed: StoreError | None = None
        """Why the log cannot be written any more. Everything was stopped then."""
        self._ports = ports
        self._agents = by_name(agents)
        self._given = list(plugins)
        self._settings = fit(settings or Settings(), Settings)
        self._contain = contain
        self.redaction = Redaction()
        self.redaction.conceal(*secrets_in(os.environ), *secrets)
        for agent in self._agents.values():
            self.redaction.conceal(*secrets_in(agent.env))
        self._supervisor: Supervisor | None = None
        self._journal: Journal | None = None
        self._bus: Bus | None = None
        self._plugins: Plugins | None = None
        self._host: Host | None = None
        self._started: Fact[None] | None = None
        self._ended: Fact[Receipt] | None = None
        self._stopping: RuntimeStopping | None = None
        self._ready = False

    # -- sessions

    async def open(
        self,
        agent: str = "scripted",
        cwd: str | os.PathLike[str] = ".",
        *,
        title: str = "",
        model: str | None = None,
    ) -> Session:
        """A new session; `model` takes the place of the agent's own.

        If the asker is cancelled before it has it, it is closed again.
        """
        return await self.host.open_session(agent, cwd, title, model or "")

    async def resume(self, id: str, *, agent: str = "", model: str = "") -> Session:  # noqa: A002  the word for it
        """A session of the log, as it was left; or from now on with this agent or model, as `Session.use` has it."""
        return await self.host.resume(id, agent, model)

    async def restart(self, id: str, *, reason: str = "restart") -> tuple[Receipt, Session]:  # noqa: A002  as above
        """Stop all of a session, and begin it anew: the receipt of the stop, and the new incarnation.

        It has the history, and its queue, parked. Whoever asks meanwhile joins.
        """
        return await self.host.restart(id, reason)

    async def sessions(self) -> list[Info]:
        """Every session that is in the log, the oldest first."""
        return await self.host.archive.sessions()

    async def delete(self, id: str) -> Receipt:  # noqa: A002  the word for it everywhere
        """Stop a session and remove all of it from the log."""
        return await self.host.archive.delete(id)

    async def granted(self) -> list[Grant]:
        """What is always allowed, the oldest first: here and in every other runtime of this `home`."""
        return await in_thread(self.host.grants.all, "grants")

    async def revoke(self, digest: str) -> Grant:
        """Ask again from the next call on: named by its digest, or the beginning of it."""
        self.host.running()
        now = self._ports.clock.now()
        return await in_thread(partial(self.host.grants.revoke, is_text("a digest", digest), now), "grants")

    def follow(self, after: int = 0) -> Tail:
        """All events after that one, and then those that come."""
        return self.host.follow(after, None)

    # -- stopping and letting in again

    async def stop_all(self, *, reason: str = "stop all", grace: float | None = None, force: bool = False) -> Receipt:
        """Close admission, then end every session at once. It stays closed until `reopen`, over restarts too."""
        reason, _ = plain(reason, 0 if grace is None else grace)  # refused before anything is begun
        if self._ended is not None:
            return await self._end(reason, grace, force).wait()
        return await self.host.stop_all(reason, grace, force).wait()

    def close_admission(self, reason: str = "closed by hand") -> None:
        """Nothing new starts, no session and no turn, until `reopen`, over restarts too. What runs goes on."""
        host, (reason, _) = self.host, plain(reason, 0)
        host.running()
        host.close_admission(reason)

    def reopen(self) -> None:
        """Let new work in again; messages that wait are answered now."""
        self.host.reopen()

    @property
    def admitting(self) -> bool:
        """Whether new work is let in."""
        return self.host.open

    async def serve(self) -> None:
        """Run every surface that a plugin brings, now and later: each until it ends, or goes with its plugin."""
        self.host.running()
        self.plugins.serve()

    # -- settings

    @property
    def settings(self) -> Settings:
        return self._settings

    def configure(self, **changes: float) -> Settings:
        """Change settings: each acts on its next use, without a restart. UsageError names one that does not exist."""
        known = msgspec.structs.asdict(self._settings)
        if unknown := sorted(set(changes) - set(known)):
            raise UsageError(
                f"there is no setting {unknown[0]!r}; {what_there_is('settings', unknown[0], list(known))}"
            )
        for name, value in changes.items():
            if not is_seconds(value):
                raise UsageError(f"{name} is a number of seconds, not {value!r}")
        self.host.running()
        self._settings = self.host.settings = msgspec.structs.replace(self._settings, **changes)
        assert self._supervisor is not None
        self._supervisor.ladder = Ladder(self._settings.ask, self._settings.term)
        self.bus.deadline = self._settings.handler
        self.plugins.deadline = self._settings.plugin
        self.host.journal.emit(ConfigChanged(source="user", changed=dict(changes)))
        return self._settings

    # -- secrets

    def conceal(self, value: str) -> None:
        """From here on it is masked in every event."""
        self.redaction.conceal(value)

    def redact(self, thing: T) -> T:
        """The same text, or what JSON has a form for, with every known secret masked: for what is said past the log."""
        return cast("T", self.redaction.thing(thing))

    # -- parts

    def scope(self, name: str) -> Scope:
        """A scope of the runtime's own, for a surface: what runs there ends with the runtime, after all sessions."""
        self.host.running()
        assert self._supervisor is not None
        return self._supervisor.scope(name)

    @property
    def host(self) -> Host:
        if self._host is None or not self._ready:
            raise ScopeStoppedError("the runtime is not running: enter it with `async with`")
        return self._host

    @property
    def bus(self) -> Bus:
        if self._bus is None:
            raise ScopeStoppedError("the runtime is not running: enter it with `async with`")
        return self._bus

    @property
    def plugins(self) -> Plugins:
        if self._plugins is None:
            raise ScopeStoppedError("the runtime is not running: enter it with `async with`")
        return self._plugins

    # -- life

    async def __aenter__(self) -> Self:
        if self._started is not None:
            raise ScopeStoppedError("a runtime is started once: make a new one")
        if RUNNER in sys.modules:
            raise UsageError(
                "this process runs a tool of a runtime, and starts none: what a script does when it is started belongs"
                ' below `if __name__ == "__main__":`'
            )
        self._started = Errand(asyncio.get_running_loop(), self._start()).done
        try:
            await self._started.wait()
        except BaseException as error:
            stopped = self._ended is not None and isinstance(error, QuellError)
            await self._end("not started", None, True).insist()
            if stopped:
                raise ScopeStoppedError("the runtime was stopped while it started") from None
            raise
        if self._ended is not None:
            await self._ended.insist()
            raise ScopeStoppedError("the runtime was stopped while it started")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        receipt = await self._end("end of block" if kind is None else kind.__name__, None, False).insist()
        if not receipt.confirmed:
            _log.error("the runtime: %s", receipt.sentence())

    async def close(self, *, reason: str = "close", grace: float | None = None, force: bool = False) -> Receipt:
        """Stop everything and take it down; asking again joins, and `force` cuts it short."""
        return await self._end(reason, grace, force).wait()

    async def _start(self) -> None:
        loop, ports = asyncio.get_running_loop(), self._ports
        _log.addFilter(self.redaction)
        # The state directory is ours, and a crash's processes are gone, before the log is touched.
        ladder = Ladder(self._settings.ask, self._settings.term)
        supervisor = ports.supervisor(state_dir=self.state_dir, ladder=ladder, contain=self._contain)
        self._supervisor = supervisor
        await supervisor.__aenter__()
        Errand(loop, self._watch(supervisor))

        store = ports.store(os.path.join(self.state_dir, LOG))
        self._journal = journal = Journal(store, ports.clock, self._publish, self._broke, self.redaction)
        await journal.open()
        self._go_on()

        self._bus = bus = Bus(supervisor.scope("bus"), emit=journal.emit, deadline=self._settings.handler)
        registry = Registry()
        registry.add("strategy", "tools", Tools(), plugin="quell")
        registry.add("strategy", "react", React(), plugin="quell")
        self._host = host = Host(
            loop,
            store,
            journal,
            bus,
            registry,
            supervisor,
            self._settings,
            self._agents,
            ports.spawn,
            ports.ids,
            self._off_limits,
        )
        host.grants = Grants(self.home)
        await host.archive.make_good()
        self._go_on()

        self._plugins = host.plugins = Plugins(
            supervisor.scope("plugins"), registry, bus, journal.emit, deadline=self._settings.plugin, home=self.home
        )
        found = await loop.run_in_executor(None, ports.find)
        self._go_on()
        await self._plugins.load_all(found)
        for one in self._given:
            self._go_on()
            await self._plugins.load(one)
        self._agents |= built_in(self._agents, registry)

        from .. import __version__

        journal.emit(RuntimeReady(version=__version__, rung=order(self._contain)[0]))
        await journal.flushed()
        self._ready = True

    def _go_on(self) -> None:
        """Between two steps: whoever stops the runtime while it starts need not wait for the rest (H05, H22)."""
        if self._ended is not None:
            raise ScopeStoppedError("the runtime was stopped while it started")

    def _end(self, reason: str, grace: float | None, force: bool) -> Fact[Receipt]:
        """Begin to stop, or join whoever does; `force` cuts it short."""
        if self._ended is None:
            loop = asyncio.get_running_loop()
            self._ended = Fact(loop)  # from here on a start does not go on
            if (plugins := self._plugins) is not None and not self._ready:
                see_to(loop, lambda: plugins.close(force=force))  # one may take its time to be set up
            self._ended.repeat(see_to(loop, lambda: self._stop(reason, grace, force)))
        elif force and self._supervisor is not None:
            self._supervisor.begin_stop(reason, None, True)
        return self._ended

    async def _stop(self, reason: str, grace: float | None, force: bool) -> Receipt:
        """In reverse. May be begun again after an interrupt: every step joins what is under way."""
        if self._started is not None:
            try:
                await self._started.wait()
            except BaseException:  # noqa: BLE001  told to whoever starts it: what is half started is taken down here
                force = True
        receipts: list[Receipt] = []
        if self._host is not None and self._journal is not None:
            self._host.closing = True
            self._stopping = said = self._stopping or RuntimeStopping(reason=reason)
            if self._ready and not said.seq:  # else it was said, and this is begun again
                self._journal.emit(said)
            stops = self._host.begin_stops(reason, grace, force, said.seq)
            receipts += [await one.wait() for one in stops]
            await self._host.settled()
            for session in list(self._host.live.values()):
                self._host.forget(session)
        if self._plugins is not None:
            receipts += await self._plugins.close(grace=grace, force=force)
        if self._bus is not None and self._journal is not None:
            if self._ready:
                confirmed = all(one.confirmed for one in receipts)
                self._leave_nothing_open(self._journal)
                self._journal.emit(RuntimeStopped(confirmed=confirmed))
            self._journal.seal()
            await self._hear_out(self._journal, self._bus, self._supervisor)
            self._bus.close()
        try:
            if self._journal is not None:
                await self._journal.close()
        finally:  # whatever a store does, nothing is left running
            self._ready = False
            _log.removeFilter(self.redaction)
            if self._supervisor is not None:
                receipts.append(await self._supervisor.begin_stop(reason, grace, force).wait())
        return total(reason, receipts) if self._supervisor is not None else of_nobody(reason)

    def _leave_nothing_open(self, journal: Journal) -> None:
        """The next start looks no further back than this: what has no end by now has met a fault, or an interrupt."""
        if left := list(journal.requests.values()):
            kinds = ", ".join(sorted({one.kind for one in left}))
            _log.error("without an end when the runtime stopped: %s", kinds)
            journal.emit(RuntimeErrored(error=f"without an end: {kinds}", where=LEFT_OPEN))
            journal.end_all(left, "interrupted")

    async def _hear_out(self, journal: Journal, bus: Bus, scope: Scope | None) -> None:
        """The last events reach disk and handlers, or a bound."""
        try:
            await journal.flushed()
        except StoreError:
            pass  # said when it broke
        if scope is None:
            return
        try:
            heard = scope.task(bus.drained(), name="the last events")
        except QuellError:
            return  # stopped from outside
        await asyncio.wait([heard], timeout=HEAR_OUT)

    async def _watch(self, supervisor: Supervisor) -> None:
        """Whoever stops the supervisor (the control socket, say) stops the runtime."""
        await supervisor.stopped()
        self._end("the supervisor was stopped", None, True)

    def _publish(self, event: Event) -> None:
        if self._bus is not None and not self._bus.closed:
            self._bus.publish(event)

    def _broke(self, error: StoreError) -> None:
        """What cannot be recorded must not go on: everything is stopped, nothing new is let in."""
        self.failed = error
        _log.error("the log cannot be written, so everything is stopped: %s", error)
        if self._bus is not None and not self._bus.closed:
            self._bus.publish(RuntimeErrored(error=self.redact(f"StoreError: {error}"), where="log"))
        if self._host is not None:
            self._host.begin_stops("the log cannot be written", None, False, 0)


def is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
