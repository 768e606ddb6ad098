"""A whole runtime in a simulated world: real kernel and scopes; clock, disk, machine, models and plugins simulated."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

from quell.config import Agent, Limits, Settings
from quell.errors import SpawnError
from quell.kernel.discovery import Found
from quell.kernel.footing import Ports
from quell.kernel.runtime import Runtime
from quell.kernel.session import Session
from quell.ports import Plugin
from quell.supervise import Ladder, Process, Scope, Supervisor

from .cast import FLAVOURS, TOOLS, SimPlugin, Stage
from .containment import Host, Life, SimSupervisor
from .disk import Disk, SimStore

CORE = "core"


class SimClock:
    def now(self) -> float:
        return time.time()  # of the virtual loop


class Bundle(Found):
    """What the simulation brings, as if it came with Quell."""

    def __init__(self, plugin: SimPlugin) -> None:
        super().__init__(plugin.name)
        self._plugin = plugin

    @property
    def bundled(self) -> bool:
        return True

    def load(self) -> Plugin:
        return self._plugin


class World:
    """What outlives a runtime: the disk, the list of all commands, and what was found wrong."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(f"world {seed}")
        self.disk = Disk(self.chance, slowness=self.chance.choice((0.0, 0.0, 0.05, 0.3)))
        self.lives: list[Life] = []
        self.stage = Stage(self.chance, lambda: self.disk.given, lambda: self.disk.safe)
        self.agents = agents()
        self.stage.agents = [one.name for one in self.agents]
        self.told: list[str] = []  # the script, for whoever reads a failure
        self.offences: list[str] = []
        self.losses: list[tuple[int, set[int]]] = []  # at each start: what was written before, and is not on disk
        self.sessions = 0
        self.plugins = 0

    def say(self, words: str) -> None:
        self.told.append(f"{asyncio.get_running_loop().time():12.6f} [{self.disk.given:5}] {words}")

    def accuse(self, words: str) -> None:
        self.say(f"OFFENCE {words}")
        self.offences.append(words)

    def session_id(self) -> str:
        self.sessions += 1
        return f"s{self.sessions}"


def agents() -> list[Agent]:
    common: dict[str, Any] = {"model": "sim", "tools": TOOLS}
    limits = Limits(steps=6, seconds=120.0, depth=2, breadth=2)
    return [
        Agent(name="free", approval={"*": "allow"}, limits=limits, **common),
        Agent(name="asking", approval={"work": "allow", "*": "ask"}, limits=limits, **common),
        Agent(name="short", approval={"*": "allow"}, limits=Limits(steps=3, seconds=2.0, depth=1), **common),
        Agent(name="brief", approval={"*": "allow"}, limits=Limits(steps=4, history=40), **common),
        Agent(name="bare", approval={"*": "deny"}, limits=Limits(tokens=30), **common | {"tools": ["work", "show"]}),
    ]


class Run:
    """One runtime on the world, from its start to its end."""

    def __init__(self, world: World) -> None:
        chance = world.chance
        self.world = world
        self.dead = False  # crashed: what is left of it is a ghost
        self.sessions: list[Session] = []
        self.machine = Host(chance, lambda: world.disk.given, world.lives)
        self.store = SimStore(world.disk)
        self.began = world.disk.given
        world.losses.append((self.began, world.disk.lost()))
        settings = Settings(
            ask=chance.choice((2.0, 0.5)),
            term=chance.choice((5.0, 1.0)),
            approval=chance.choice((600.0, 5.0)),
            plugin=3.0,
        )
        core = Bundle(SimPlugin(world.stage, CORE, "quiet", core=True))
        others = [self.plugin() for _ in range(chance.choice((0, 0, 1, 2)))]
        self.runtime = Runtime(
            Ports(
                store=lambda _: self.store,
                find=lambda: [core],
                supervisor=self._supervisor,
                clock=SimClock(),
                spawn=self._spawn,
                ids=world.session_id,
            ),
            state_dir="/simulated",
            agents=world.agents,
            plugins=[one for one in others if one.flavour not in ("broken", "stuck")],
            settings=settings,
        )

    def plugin(self) -> SimPlugin:
        world = self.world
        world.plugins += 1
        return SimPlugin(world.stage, f"plugin{world.plugins}", world.chance.choice(FLAVOURS))

    def _supervisor(self, *, ladder: Ladder, **_: Any) -> Supervisor:
        return SimSupervisor(self.machine, ladder)

    async def _spawn(self, scope: Scope, argv: Sequence[str], **wishes: Any) -> Process:
        if self.world.chance.random() < 0.03:
            raise SpawnError(f"{argv[0]}: no room for another process", 125)
        return await scope.spawn(argv, **wishes)

    @property
    def well(self) -> bool:
        """Whether what it says counts: it has not crashed, and its disk works."""
        return not self.dead and not self.store.failed

    def crash(self) -> None:
        """`kill -9`, as far as the world can see."""
        self.dead = True
        self.world.say("crash")
        self.machine.crash()
        self.store.crash()

    def fail_disk(self) -> None:
        self.world.say("the disk fails")
        self.store.fail()
