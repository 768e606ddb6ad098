"""Who acts in a simulation: models, tools and plugins that do all that is allowed, and much that is not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from quell.errors import QuellError, ToolError
from quell.events import Event, ToolCall, Usage
from quell.ports import Ask, Caller, Chunk, Notice, PluginContext, Reasoning, Text, ToolSpec

from .containment import NEVER

TOOLS = "work show spawn respawn job fail complain hang stubborn group swarm delegate".split()
"""What a simulated tool does, by its name."""

UNKNOWN = "nonsense"
FLAVOURS = "quiet grumpy slow waking broken stuck".split()


@dataclass
class Effect:
    """A tool's body that began: of which call, behind which event, and what was on disk then."""

    token: str
    session: str
    turn: int
    last: int
    safe: int


@dataclass
class Stage:
    """What the cast shares with whoever judges it."""

    chance: random.Random
    last: Any  # () -> the number of the last event
    safe: Any  # () -> the number of the last event that is on disk
    effects: list[Effect] = field(default_factory=list)
    callers: list[tuple[str, Caller]] = field(default_factory=list)  # kept by tools beyond their time
    agents: list[str] = field(default_factory=list)
    calls: int = 0

    def token(self) -> str:
        self.calls += 1
        return f"call-{self.calls}"

    def spell(self) -> float:
        """How long something takes."""
        return self.chance.choice(
            (0.0, 0.0, 0.001, 0.01, 0.05, 0.5, self.chance.uniform(0, 3), self.chance.uniform(0, 20))
        )

    def command(self, token: str) -> list[str]:
        chance = self.chance
        manner = chance.choice(("0", "0.01", "1.5", NEVER))
        return ["command", f"{self.spell():.4f}", str(chance.choice((0, 0, 1))), manner, token]


class SimModel:
    """Answers anything, in any way."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def answer(self, ask: Ask) -> AsyncIterator[Chunk]:
        stage, chance = self._stage, self._stage.chance
        manner = chance.random()
        await asyncio.sleep(stage.spell() / 4)
        if manner < 0.04:
            raise ConnectionError("the model is gone")
        if manner < 0.06:
            await asyncio.sleep(100_000)
        if manner < 0.12:
            try:
                await asyncio.sleep(stage.spell())
            except asyncio.CancelledError:
                await asyncio.sleep(chance.choice((0.0, 0.01, 1.0)))  # it answers after the stop
                yield self._call()
                return
        for word in ("well", "then", "yes")[: chance.randrange(4)]:
            yield chance.choice((Text(word), Text(word), Reasoning(word), Notice(word)))
            if chance.random() < 0.5:
                await asyncio.sleep(stage.spell() / 10)
        if manner < 0.16:
            raise ValueError("half an answer")
        if ask.tools and chance.random() < 0.7:
            for _ in range(chance.choice((1, 1, 2, 3))):
                yield self._call()
        yield Usage(input=10, output=chance.randrange(10), cost=0.001)

    def _call(self) -> ToolCall:
        token = self._stage.token()
        name = self._stage.chance.choice([*TOOLS, "work", "spawn", UNKNOWN])
        return ToolCall(id=token, tool=name, arguments={"token": token})


class SimTool:
    """One tool. Each begins by writing down that it began."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.spec = ToolSpec(name, f"simulates {name}", {"type": "object"})
        self._stage = stage
        self._do = getattr(self, name)

    async def call(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        stage, token = self._stage, arguments["token"]
        stage.effects.append(Effect(token, caller.session, caller.turn, stage.last(), stage.safe()))
        if stage.chance.random() < 0.2:
            stage.callers.append((token, caller))
        await self._do(token, caller)
        return f"did {token}"

    async def work(self, token: str, caller: Caller) -> None:
        await asyncio.sleep(self._stage.spell())

    async def show(self, token: str, caller: Caller) -> None:
        for number in range(self._stage.chance.randrange(6)):
            caller.output(f"line {number}\n")
            await asyncio.sleep(self._stage.spell() / 10)

    async def spawn(self, token: str, caller: Caller) -> None:
        process = await caller.spawn(self._stage.command(token))
        if self._stage.chance.random() < 0.8:
            await process.wait()

    async def respawn(self, token: str, caller: Caller) -> None:
        again = self._stage.chance.choice((self.spawn, self.job))
        try:
            await self.spawn(token, caller)
        finally:
            await again(token, caller)  # after a stop this must be refused, in the background too

    async def job(self, token: str, caller: Caller) -> None:
        await caller.spawn([*self._stage.command(token)[:-1], f"{token}&"], background=True)
        caller.output(f"{len(caller.jobs())} jobs\n")

    async def fail(self, token: str, caller: Caller) -> None:
        await self.work(token, caller)
        raise self._stage.chance.choice((ValueError("a fault of the tool"), KeyError("it"), TimeoutError()))

    async def complain(self, token: str, caller: Caller) -> None:
        raise ToolError("it cannot be done")

    async def hang(self, token: str, caller: Caller) -> None:
        await asyncio.sleep(100_000)

    async def stubborn(self, token: str, caller: Caller) -> None:
        try:
            await asyncio.sleep(self._stage.spell())
        except asyncio.CancelledError:
            await asyncio.sleep(self._stage.chance.choice((0.0, 0.5, 4.0)))

    async def group(self, token: str, caller: Caller) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(self.work(token, caller))
            group.create_task(self.spawn(token, caller))

    async def swarm(self, token: str, caller: Caller) -> None:
        """Tasks that nobody waits for go on starting commands, while the tool itself will not end."""
        helpers = [asyncio.ensure_future(self._start_many(token, caller)) for _ in range(3)]
        try:
            await self.stubborn(token, caller)
        finally:
            for helper in helpers:
                helper.add_done_callback(_heard)

    async def _start_many(self, token: str, caller: Caller) -> None:
        for _ in range(8):
            await asyncio.sleep(self._stage.chance.choice((0.0, 0.01, 0.1, 0.5)))
            await caller.spawn(self._stage.command(token))

    async def delegate(self, token: str, caller: Caller) -> None:
        await caller.delegate(self._stage.chance.choice(self._stage.agents), f"please {token}")


def _heard(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()


class SimPlugin:
    """Listens, in one of the flavours; the first one of a runtime also brings model and tools."""

    def __init__(self, stage: Stage, name: str, flavour: str, core: bool = False) -> None:
        self.name = name
        self.flavour = flavour
        self._stage = stage
        self._core = core
        self._ctx: PluginContext | None = None

    async def setup(self, ctx: PluginContext) -> None:
        stage = self._stage
        self._ctx = ctx
        if self._core:
            ctx.model("sim", lambda: SimModel(stage))
            for name in TOOLS:
                ctx.tool(SimTool(stage, name))
            return
        await asyncio.sleep(stage.spell() / 10)
        if self.flavour == "broken":
            raise ImportError("it cannot be loaded")
        if self.flavour == "stuck":
            await asyncio.sleep(100_000)
        kinds = stage.chance.choice(("", "tool.", ["turn.ended", "stop.requested"], "message."))
        ctx.on(kinds, self._hear, deadline=stage.chance.choice((None, 0.5)))
        if stage.chance.random() < 0.3:
            ctx.scope.task(self._live(), name=f"life of {self.name}")

    async def _live(self) -> None:
        while True:  # noqa: ASYNC110  it lives until its plugin goes
            await asyncio.sleep(5)

    async def _hear(self, event: Event) -> None:
        chance = self._stage.chance
        if self.flavour == "grumpy" and chance.random() < 0.6:
            raise RuntimeError("it does not like that")
        if self.flavour == "slow":
            await asyncio.sleep(self._stage.spell())
        if self.flavour == "waking":
            await asyncio.sleep(self._stage.spell())
            await meddle(self._stage)
        if self._ctx is not None and chance.random() < 0.1:
            self._ctx.emit("heard", {"seq": event.seq}, session=event.session)


async def meddle(stage: Stage) -> None:
    """Use what a tool was given, after its time perhaps: whatever is not allowed must be refused."""
    if not stage.callers:
        return
    token, caller = stage.chance.choice(stage.callers[-5:])
    try:
        match stage.chance.randrange(3):
            case 0:
                await caller.spawn(stage.command(token))
            case 1:
                await caller.spawn([*stage.command(token)[:-1], f"{token}&"], background=True)
            case 2:
                caller.output("still here\n")
    except QuellError:
        pass  # refused, with a sentence
