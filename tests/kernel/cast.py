"""Who acts in the tests of the kernel: a model and tools that do what the test says, and the runtime they act in."""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import quell
from quell.config import Policy
from quell.events import Event, StopReceipt, StopRequested, ToolCall, decode
from quell.kernel.footing import Ports
from quell.kernel.runtime import LOG, Runtime
from quell.ports import Ask, Caller, Chunk, Plugin, PluginContext, Row, Store, Text, ToolSpec
from quell.runtime import installed
from quell.stores.sqlite import SqliteStore, read_rows
from tests.supervise.loops import run_on, until
from tests.supervise.owned import MakeLoop, in_a_thread

E = TypeVar("E", bound=Event)
Body = Callable[[Mapping[str, Any], Caller], Awaitable[str]]
Answer = Sequence[Chunk] | Callable[[Ask], AsyncIterator[Chunk]]

QUICK = quell.Settings(ask=0.3, term=0.3)
PATIENT = quell.Settings(ask=12.0, term=12.0)
"""Whoever is quick with these did not wait for a timeout."""
AT_ONCE = 5.0
"""Seconds, on a busy machine, for what takes no time."""
STUBBORN = ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]
"""A command that ignores SIGTERM."""


class Gate:
    """Somebody comes, and waits until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.opened.wait()

    async def endure(self) -> None:
        """Wait, whoever cancels it."""
        self.reached.set()
        while not self.opened.is_set():
            try:
                await self.opened.wait()
            except asyncio.CancelledError:
                continue


class Actor:
    """A model that gives the answers it was told, one for each request, and then says `done`."""

    def __init__(self) -> None:
        self.asks: list[Ask] = []
        self.answers: deque[Answer] = deque()

    def will(self, *answers: Answer) -> None:
        self.answers.extend(answers)

    async def answer(self, ask: Ask) -> AsyncIterator[Chunk]:
        self.asks.append(ask)
        answer = self.answers.popleft() if self.answers else [Text("done")]
        if callable(answer):
            async for chunk in answer(ask):
                yield chunk
        else:
            for chunk in answer:
                yield chunk


def call(tool: str, **arguments: Any) -> ToolCall:
    return ToolCall(f"call-{tool}", tool, arguments)


class Made:
    """A tool whose body the test gives. Remembers the callers that it got."""

    def __init__(self, name: str, body: Body) -> None:
        self.spec = ToolSpec(name, f"does {name}", {"type": "object"})
        self.callers: list[Caller] = []
        self._body = body

    async def call(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        self.callers.append(caller)
        return await self._body(arguments, caller)


class Troupe:
    """A plugin of one function."""

    def __init__(self, setup: Callable[[PluginContext], Any], name: str) -> None:
        self.name = name
        self.setup = setup


Main = Callable[[Runtime], Coroutine[Any, Any, None]]
Free = Callable[[], Coroutine[Any, Any, None]]


class Stage:
    """One state folder, a model and tools for it, and the runtimes that are started there one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.cwd = folder / "cwd"
        self.cwd.mkdir()
        self.model = Actor()
        self.tools: dict[str, Made] = {}
        self.parts: list[Callable[[PluginContext], object]] = []
        self.plugins: list[Plugin] = []
        self.agents: list[quell.Agent] = []
        self.settings = QUICK
        self.approval: dict[str, Policy] = {"*": "allow"}
        self.limits = quell.Limits()
        self.store: Callable[[str], Store] = SqliteStore
        self.tool("note", self._note)

    # -- what the test plants

    def tool(self, name: str, body: Body) -> Made:
        self.tools[name] = made = Made(name, body)
        return made

    def waiting(self, name: str = "wait") -> Gate:
        """A tool that waits for the test."""
        gate = Gate()

        async def body(_: Mapping[str, Any], caller: Caller) -> str:
            await gate()
            return "waited"

        self.tool(name, body)
        return gate

    async def _note(self, arguments: Mapping[str, Any], _: Caller) -> str:
        """An effect in the world outside."""
        self.outside(arguments["name"]).write_text("was here")
        return "noted"

    def outside(self, name: str) -> Path:
        return self.cwd / name

    def agent(self, name: str = "actor", **wishes: Any) -> quell.Agent:
        plan: dict[str, Any] = {
            "model": "actor",
            "tools": (*self.tools, "shell", "jobs", "agent"),
            "approval": self.approval,
            "limits": self.limits,
        }
        return quell.Agent(name=name, **(plan | wishes))

    # -- the runtime

    def runtime(self, state: Path | None = None) -> Runtime:
        """A new one on the same folder."""

        def setup(ctx: PluginContext) -> None:
            ctx.model("actor", lambda: self.model)
            for tool in self.tools.values():
                ctx.tool(tool)
            for part in self.parts:
                part(ctx)

        agents = self.agents if any(one.name == "actor" for one in self.agents) else [self.agent(), *self.agents]
        return Runtime(
            Ports(store=self.store, find=installed),
            state_dir=self.state if state is None else state,
            agents=agents,
            plugins=[Troupe(setup, "troupe"), *self.plugins],
            settings=self.settings,
        )

    async def open(self, rt: Runtime, agent: str = "actor", **wishes: Any) -> quell.Session:
        return await rt.open(agent, self.cwd, **wishes)

    def play(self, main: Main, make: MakeLoop = asyncio.new_event_loop) -> None:
        """Run a test inside a runtime: no task may be left on the loop, and the loop may not have complained."""

        async def whole() -> None:
            async with self.runtime() as rt:
                await main(rt)

        self.run(whole, make)

    def run(self, main: Free, make: MakeLoop = asyncio.new_event_loop) -> None:
        complaints: list[str] = []

        async def whole() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(
                lambda _, said: complaints.append(f"{said['message']}: {said.get('exception')!r}")
            )
            await main()
            gc.collect()  # a task that is destroyed while it is pending complains then
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"left on the loop: {left}"

        in_a_thread(lambda: run_on(make, whole))
        assert complaints == []

    # -- what was recorded

    def events(self, state: Path | None = None) -> list[Event]:
        """The log, as it is on disk."""
        return [decode(row.body) for row in list(read_rows((state or self.state) / LOG))]

    def kinds(self, session: quell.Session | None = None, without: Sequence[str] = ()) -> list[str]:
        """Those of one session, or all."""
        wanted = [one for one in self.events() if session is None or one.session == session.id]
        return [one.kind for one in wanted if one.kind not in without]

    def receipts(self) -> list[StopReceipt]:
        """Of the stops that the test asked for; the end of a block is one too."""
        return [one for one in self.of(StopReceipt) if one.receipt["reason"] != "end of block"]

    def stops(self) -> list[StopRequested]:
        return [one for one in self.of(StopRequested) if one.reason != "end of block"]

    def of(self, kind: type[E], session: quell.Session | None = None) -> list[E]:
        return [
            one for one in self.events() if isinstance(one, kind) and (session is None or one.session == session.id)
        ]


async def live(rt: Runtime, kind: type[E], session: quell.Session | None = None, after: int = 0) -> E:
    """The first event of this type, once it is on disk."""
    async with asyncio.timeout(AT_ONCE * 2):
        async for event in rt.follow(after):
            if isinstance(event, kind) and (session is None or event.session == session.id):
                return event
    raise AssertionError(f"no {kind.__name__}")


async def idle(session: quell.Session) -> None:
    assert await until(lambda: session.state == "idle" and not session.waiting), session


async def steps(count: int) -> None:
    """Let the loop turn so often."""
    for _ in range(count):
        await asyncio.sleep(0)


class Held:
    """The real store, with its word that something is on disk held back until the test lets it through."""

    def __init__(self, path: str) -> None:
        self.inner = SqliteStore(path)
        self.holding = False
        self.failing: Exception | None = None
        self.appended: list[Row] = []
        self._told: Callable[[int | Exception], None]
        self._kept: list[int | Exception] = []

    async def open(self, told: Callable[[int | Exception], None]) -> int:
        self._told = told
        return await self.inner.open(self._hear)

    def _hear(self, safe: int | Exception) -> None:
        if self.holding:
            self._kept.append(safe)
        else:
            self._told(safe)

    def let_go(self) -> None:
        self.holding = False
        kept, self._kept = self._kept, []
        for safe in kept:
            self._told(safe)

    def break_down(self, error: Exception) -> None:
        """From here on nothing reaches the disk, and the store says so."""
        self.failing = error
        self._told(error)

    def append(self, row: Row, durable: bool) -> None:
        if self.failing is None:
            self.appended.append(row)
            self.inner.append(row, durable)

    async def read(self, **wishes: Any) -> list[Row]:
        return await self.inner.read(**wishes)

    async def sessions(self) -> list[str]:
        return await self.inner.sessions()

    async def forget(self, session: str, keep: Sequence[int] = ()) -> int:
        return await self.inner.forget(session, keep)

    async def close(self) -> None:
        await self.inner.close()
