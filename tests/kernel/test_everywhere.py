"""Every public coroutine of runtime and session, cancelled before any step, once and twice: nothing is left.

The log of each run is checked: whatever was begun has its one end there, too.
"""

import asyncio
import contextlib
import functools
import os
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

import quell
from quell.errors import ContextFullError
from quell.events import ApprovalAsked, Image, PluginEvent, ToolCall, ToolEnded
from quell.kernel.discovery import Found
from quell.kernel.footing import Ports
from quell.kernel.journal import Journal
from quell.kernel.plugins import Plugins
from quell.kernel.runtime import LOG
from quell.kernel.runtime import Runtime as Kernel
from quell.kernel.sent import Sent
from quell.ports import Ask, Caller, Chunk, PluginContext, Text, ToolSpec
from quell.runtime import installed
from quell.stores.sqlite import SqliteStore
from quell.testing import Leak, cancel_everywhere
from quell.testing.checking import check_log
from tests.simulation.containment import Host, SimSupervisor
from tests.supervise.loops import until
from tests.supervise.test_everywhere import coroutines

SETTINGS = quell.Settings(ask=0.3, term=0.03, approval=0.2)
AGENTS = [
    quell.Agent(name="careful", tools=("shell",)),
    quell.Agent(name="free", tools=("shell", "agent"), approval={"*": "allow"}),
    quell.Agent(
        name="mindful", tools=("shell", "agent", "remember", "recall"), memory="sqlite", approval={"*": "allow"}
    ),
]
BUDGET, REAL_BUDGET, SOAK_BUDGET = 0.5, 1.3, 20.0
"""Seconds for each: as many points as fit, then pairs. QUELL_CANCEL_BUDGET gives more."""
PICTURE = Image("image/gif", "R0lGODlh")
POLITE = "$ echo up; exec sleep 600"
STUBBORN = "$ trap '' TERM; echo up; exec sleep 600"
"""Once they are up they start nothing more, which would be taken for the target's."""


class Telling(uvloop.Loop):
    """One that tells which executor it was given: its idle threads are the loop's, and no leak."""

    def set_default_executor(self, executor: Any) -> None:
        self._default_executor = executor
        super().set_default_executor(executor)


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop, "uvloop": Telling}

Target = Callable[[], Awaitable[object]]
Scenario = Callable[[bool], contextlib.AbstractAsyncContextManager[Target]]


@functools.cache
def installed_ones() -> list[Found]:
    """Looked up once: it is no part of what is cancelled here."""
    return installed()


class Still(Host):
    """Keepers that answer at once, and never fail."""

    def __init__(self) -> None:
        super().__init__(random.Random(0), lambda: 0, [])

    def latency(self) -> float:
        return 0.0


class Sure(random.Random):
    def random(self) -> float:
        return 1.0


class PlayedShell:
    """The tool `shell` where keepers are simulated: how long a command takes, and how it ends, is told by its words."""

    name = "played"
    spec = ToolSpec("shell", "Run a command.", {"type": "object"})

    def setup(self, ctx: PluginContext) -> None:
        ctx.tool(self)

    async def call(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        words = arguments["command"]
        seconds, manner = ("600" if "sleep" in words else "0.001"), ("never" if "trap" in words else "0")
        process = await caller.spawn(["command", seconds, "0", manner, "0"])
        caller.output("hello")
        return f"exit {await process.wait()}"


class Narrow:
    """A model that reads two messages: what is more must be summed up."""

    name = "narrow"

    def setup(self, ctx: PluginContext) -> None:
        ctx.model("narrow", lambda: self)

    async def answer(self, ask: Ask) -> AsyncIterator[Chunk]:
        await asyncio.sleep(0)
        if len(ask.messages) > 2:
            raise ContextFullError("it is full")
        yield Text("In short: hello.")


class Diarist:
    """A model that keeps something in mind, and looks whether it is there."""

    name = "diarist"

    def setup(self, ctx: PluginContext) -> None:
        ctx.model("diarist", lambda: self)

    async def answer(self, ask: Ask) -> AsyncIterator[Chunk]:
        await asyncio.sleep(0)
        start = max(at for at, one in enumerate(ask.messages) if one.text == "go")
        steps = sum(bool(one.results) for one in ask.messages[start:])
        if steps == 0:
            yield ToolCall("a", "remember", {"text": "it rained"})
        elif steps == 1:
            yield ToolCall("b", "recall", {"query": "rained", "limit": 1})
        else:
            yield Text("Done.")


def runtime(folder: str, simulated: bool) -> Kernel:
    state = Path(folder) / "state"
    if not simulated:
        real = Ports(store=SqliteStore, find=installed_ones)
        return Kernel(real, state_dir=state, agents=AGENTS, plugins=[Narrow(), Diarist()], settings=SETTINGS)
    host = Still()
    host.chance = Sure()
    state.mkdir()
    return Kernel(
        Ports(
            store=SqliteStore,
            find=lambda: [one for one in installed_ones() if one.name != "shell"],
            supervisor=lambda *, ladder, **_: SimSupervisor(host, ladder),
        ),
        state_dir=state,
        agents=AGENTS,
        plugins=[PlayedShell(), Narrow(), Diarist()],
        settings=SETTINGS,
    )


@contextlib.contextmanager
def logged() -> Any:
    """A folder whose log is sound when all is over."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder
        log = Path(folder) / "state" / LOG
        if log.exists() and log.stat().st_size:
            check_log(log)


@contextlib.asynccontextmanager
async def running(simulated: bool, agent: str = "free") -> AsyncIterator[tuple[Kernel, quell.Session]]:
    """A runtime with a session; both have their box, and the pool is full: none of it is taken for the target's."""
    with logged() as folder:
        async with runtime(folder, simulated) as rt:
            session = await rt.open(agent, folder)
            await approve(rt, session)
            assert rt._supervisor is not None
            if simulated:
                yield rt, session
                return
            await (await rt._supervisor.spawn(["true"])).wait()
            zygote = rt._supervisor._shared.hub.zygote
            while len(zygote._spare) < zygote._pool or not all(box.settled() for box in zygote._spare):
                await asyncio.sleep(0.001)
                zygote.refill()
            yield rt, session


def of_runtime(call: Callable[[Kernel], Awaitable[object]]) -> Scenario:
    return of_session(lambda rt, _: call(rt))


def of_session(
    call: Callable[[Kernel, quell.Session], Awaitable[object]], doing: str = "", agent: str = "free"
) -> Scenario:
    """`doing`: the command that the session is at when the call is made."""

    @contextlib.asynccontextmanager
    async def scenario(simulated: bool) -> AsyncIterator[Target]:
        async with running(simulated, agent) as (rt, session):
            if doing:
                before = rt.host.journal.last
                session.send(doing)
                session.send("Hello.")
                async for event in session.follow(before):
                    if event.kind == "tool.output":
                        break
            yield lambda: call(rt, session)
            assert rt._host is not None
            live = rt._host.live
            assert await until(lambda: live.keys() <= {session.id}), f"nobody has {live}"

    return scenario


@contextlib.asynccontextmanager
async def whole(simulated: bool) -> AsyncIterator[Target]:
    with logged() as folder:

        async def target() -> None:
            async with runtime(folder, simulated) as rt:
                session = await rt.open("free", folder)
                await session.send("$ true")

        yield target


async def iterate(_: Kernel, session: quell.Session) -> None:
    kinds = [event.kind async for event in session.send("$ echo hello")]
    assert kinds[-1] == "turn.ended"


async def awaited(_: Kernel, session: quell.Session) -> None:
    sent = session.send("Hello.", images=[PICTURE])
    await sent.accepted()
    await sent
    assert sent.text == "You said: Hello."


async def full(_: Kernel, session: quell.Session) -> None:
    await session.use(model="narrow:tiny")
    kinds = [event.kind async for event in session.send("Hello.")]
    assert "session.compacted" in kinds


async def approve(_: Kernel, session: quell.Session) -> None:
    async for event in session.send("$ true"):
        if isinstance(event, ApprovalAsked):
            session.approve(event.seq, True)


async def approve_always(rt: Kernel, session: quell.Session) -> None:
    for asked in (1, 0):
        async for event in session.send("$ echo always"):
            if isinstance(event, ApprovalAsked):
                session.approve(event.seq, True, extent="always")
                asked -= 1
        assert asked == 0
    assert len(await rt.granted()) == 1


async def refuse(_: Kernel, session: quell.Session) -> None:
    """By a no, and by nobody's answer."""
    for answered in (True, False):
        kinds = []
        async for event in session.send("$ true"):
            kinds.append(event.kind)
            if isinstance(event, ApprovalAsked) and answered:
                session.approve(event.seq, False)
        assert "tool.refused" in kinds and "tool.started" not in kinds


async def withdraw(_: Kernel, session: quell.Session) -> None:
    """By a stop, while the question is open."""
    sent = session.send("$ true")
    async for event in session.follow():
        if isinstance(event, ApprovalAsked) and event.turn == 2:
            break
    await session.stop(reach="turn")
    assert (await sent).end == "stopped"


async def keep_in_mind(_: Kernel, session: quell.Session) -> None:
    await session.use(model="diarist")
    results = [event.result async for event in session.send("go") if isinstance(event, ToolEnded)]
    assert results == ["Remembered.", "- it rained"]


async def delegate(_: Kernel, session: quell.Session) -> None:
    """With what is remembered before, and the call of another agent."""
    kinds = [event.kind async for event in session.send("@mindful Hello.")]
    assert "memory.recalled" in kinds and "tool.ended" in kinds


async def fork(_: Kernel, session: quell.Session) -> None:
    child = await session.fork()
    await child.close()


async def resume(rt: Kernel, session: quell.Session) -> None:
    await session.close()
    await rt.resume(session.id)


async def open_one(rt: Kernel) -> None:
    session = await rt.open("free", ".", title="another")
    try:
        await session.rename("a third")
    finally:
        await session.close()


async def grants(rt: Kernel) -> None:
    assert await rt.granted() == []
    with pytest.raises(quell.UsageError):
        await rt.revoke("0123456789")


async def stop_all(rt: Kernel) -> None:
    await rt.stop_all()
    rt.reopen()


async def record(rt: Kernel, session: quell.Session) -> None:
    journal = rt.host.journal
    await journal.seen_to(journal.emit(PluginEvent(plugin="test", name="said before", session=session.id)))
    written = await journal.record(PluginEvent(plugin="test", name="said", session=session.id))
    await journal.committed(written)
    await journal.flushed()
    assert [one.seq for one in await journal.read(after=written.seq - 1, session=session.id)] == [written.seq]
    assert [one.seq for one in await journal.page(written.seq - 1, written.seq, session.id)] == [written.seq]
    assert [one.seq for one in await journal.rows(written.seq - 1, written.seq, session.id)] == [written.seq]


async def follow(rt: Kernel, session: quell.Session) -> None:
    session.send("Hello.")
    async for event in rt.follow():
        if event.kind == "turn.ended" and event.turn == 2:
            return


class Busy:
    """A plugin with something of everything."""

    name = "busy"

    async def setup(self, ctx: PluginContext) -> None:
        ctx.scope.task(asyncio.sleep(60))
        ctx.tool(self.look)
        ctx.on("turn.", self.heard)
        await ctx.scope.spawn(["sleep", "60", "0", "0", "0"])

    def look(self, where: str) -> str:
        """Look somewhere."""
        return where

    async def heard(self, event: quell.Event) -> None:
        pass


@contextlib.asynccontextmanager
async def unload(simulated: bool) -> AsyncIterator[Target]:
    async with running(simulated) as (rt, _):
        await rt.plugins.load(Busy())
        yield lambda: rt.plugins.unload("busy")


SCENARIOS: dict[str, Scenario] = {
    "Runtime.__aenter__ Runtime.__aexit__": whole,
    "Runtime.close": of_session(lambda rt, _: rt.close(), POLITE),
    "Runtime.open Session.rename": of_runtime(open_one),
    "Runtime.resume": of_session(resume),
    "Runtime.sessions": of_runtime(lambda rt: rt.sessions()),
    "Runtime.delete Session.delete": of_session(lambda _, session: session.delete(), POLITE),
    "Runtime.restart Session.restart": of_session(lambda _, session: session.restart(), POLITE),
    "Runtime.serve": of_runtime(lambda rt: rt.serve()),
    "Runtime.granted Runtime.revoke": of_runtime(grants),
    "Runtime.stop_all": of_session(lambda rt, _: stop_all(rt), STUBBORN),
    "Session.stop turn": of_session(lambda _, session: session.stop(reach="turn"), STUBBORN),
    "Session.stop session": of_session(lambda _, session: session.stop(), STUBBORN),
    "Session.stop forced": of_session(lambda _, session: session.stop(force=True), STUBBORN),
    "Session.send, iterated": of_session(iterate),
    "Session.send, awaited Sent.accepted": of_session(awaited),
    "Session.use, and a context that is full": of_session(full),
    "Session.approve": of_session(approve, agent="careful"),
    "Session.approve, for always": of_session(approve_always, agent="careful"),
    "Session.approve, by a no and by nobody": of_session(refuse, agent="careful"),
    "Session.stop, while a question is open": of_session(withdraw, agent="careful"),
    "Session.send, with a memory and a sub-agent": of_session(delegate, agent="mindful"),
    "Session.send, with the tools of a memory": of_session(keep_in_mind, agent="mindful"),
    "Session.fork": of_session(fork),
    "Session.close Session.settled": of_session(lambda _, session: session.close(), POLITE),
    "Session.export": of_session(lambda _, session: session.export("markdown")),
    "Runtime.follow": of_session(follow),
    "Journal.record Journal.committed Journal.seen_to Journal.flushed": of_session(record),
    "Journal.read Journal.page Journal.rows": of_session(record),
    "Plugins.load": of_runtime(lambda rt: rt.plugins.load(Busy())),
    "Plugins.unload": unload,
}

OFTEN = {
    "Session.approve",
    "Session.approve, for always",
    "Session.approve, by a no and by nobody",
    "Session.stop, while a question is open",
    "Session.send, with a memory and a sub-agent",
    "Session.send, with the tools of a memory",
}
"""What people decide, and what is remembered."""
LEAST = 4
"""Points, and pairs, that are tried of these however busy the machine is; of the others half as many."""

WITH_PROCESSES = [
    "Runtime.__aenter__ Runtime.__aexit__",
    "Session.stop turn",
    "Session.send, iterated",
    "Plugins.unload",
]
OF_THE_START = {"Journal.open", "Journal.close", "Plugins.load_all", "Plugins.close"}
"""Awaited by start and stop of the runtime only, which no asker owns."""


def of_others(leak: Leak) -> bool:
    """Whoever else runs on this machine makes cgroups too."""
    return leak.kind == "cgroup" and f"quell-{os.getpid()}-" not in leak.what


def cancel(name: str, loop: str, simulated: bool, budget: float) -> None:
    installed_ones()
    coverage = cancel_everywhere(
        lambda: SCENARIOS[name](simulated),
        name=f"kernel-{name}-{loop}-{'simulated' if simulated else 'real'}",
        loop_factory=LOOPS[loop],
        budget=budget,
        least=LEAST if name in OFTEN else LEAST // 2,
        ignore=of_others,
    )
    assert coverage.findings == [] and coverage.points_covered
    assert coverage.pairs_covered or name not in OFTEN


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_left_wherever_it_is_cancelled(name: str, loop: str) -> None:
    """H01, H02, H03, H20, H35: once, and again during clean-up; keepers are simulated, which leaves time for more."""
    cancel(name, loop, True, BUDGET)


@pytest.mark.parametrize("name", WITH_PROCESSES)
def test_nothing_is_left_of_real_processes_wherever_it_is_cancelled(name: str) -> None:
    """H01, H02, H03, H08: the same over real keepers, shells and trees, at fewer points."""
    cancel(name, "asyncio", False, REAL_BUDGET)


@pytest.mark.soak
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_left_of_anything_real_wherever_it_is_cancelled(name: str, loop: str) -> None:
    """H01, H02, H03, H08: all of it, with time for all of the points."""
    cancel(name, loop, False, SOAK_BUDGET)


def test_every_public_coroutine_has_its_scenario() -> None:
    """H56: a coroutine that is added later cannot be left out."""
    covered = " ".join(SCENARIOS)
    public = set[str]().union(*(coroutines(one) for one in (Kernel, quell.Session, Sent, Journal, Plugins)))
    assert len(public) >= 20
    assert [name for name in sorted(public - OF_THE_START) if name not in covered] == []
