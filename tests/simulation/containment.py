"""Scopes, places and processes as they are, over keepers that are only simulated: no process, no thread, no socket."""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
from collections.abc import Callable
from typing import Any, cast

from quell.errors import BoxLostError
from quell.supervise import Ladder, Supervisor
from quell.supervise.hub import Hub
from quell.supervise.ownership import install, uninstall
from quell.supervise.place import Place
from quell.supervise.receipt import Receipt, nothing_seen, now_text
from quell.supervise.scope import probe
from quell.supervise.tree import Tree

NEVER = "never"
"""The manner of a command that ends by SIGKILL only."""

SIGTERM, SIGKILL = 15, 9


class Life:
    """One command: what it was, and the number of the last event when it was asked for and when it ended."""

    def __init__(self, pid: int, argv: list[str], asked: int) -> None:
        self.pid = pid
        self.argv = argv
        self.asked = asked
        self.ended: int | None = None

    @property
    def call(self) -> str:
        """The token of the tool call that started it."""
        return self.argv[-1]


class Host:
    """The machine, as one runtime knows it. A crash of the runtime ends all commands."""

    def __init__(self, chance: random.Random, last: Callable[[], int], lives: list[Life]) -> None:
        self.chance = chance
        self.last = last  # the number of the last event
        self.lives = lives
        self.boxes: list[SimBox] = []
        self._nobody = contextvars.Context()

    def later(self, seconds: float, call: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, call, *args, context=self._nobody)

    def latency(self) -> float:
        return self.chance.choice((0.0, 0.0002, 0.001, 0.01, 0.1))

    @property
    def alive(self) -> list[Life]:
        return [life for life in self.lives if life.ended is None]

    def crash(self) -> None:
        """The kernel ends all that ran. What the ghost of the runtime still starts is on nobody's list."""
        last, gone, self.lives = self.last(), self.lives, []
        for life in gone:
            if life.ended is None:
                life.ended = last
        for box in list(self.boxes):
            box.end_at_once()


class Command:
    """What one command does: `argv` is name, seconds, exit code, seconds from SIGTERM to its end, token."""

    def __init__(self, box: SimBox, tree: Tree) -> None:
        self.box = box
        self.tree = tree
        self.life: Life | None = None
        self._host = box.host
        self._stop: tuple[str, float] | None = None
        self._signalled = 0
        self._clocks: list[asyncio.TimerHandle] = []
        self._over = False
        self._asked = self._host.last()
        self._after(self._host.latency(), self._start)

    def _after(self, seconds: float, call: Callable[..., object], *args: object) -> None:
        self._clocks.append(self._host.later(seconds, call, *args))

    def _start(self) -> None:
        if self._over:
            return
        if self._host.chance.random() < 0.03:
            self._finish({"op": "failed", "errno": 2, "why": "No such file or directory"})
            return
        host = self._host
        self.life = Life(4000 + len(host.lives), self.tree.argv, self._asked)
        host.lives.append(self.life)
        self._after(float(self.tree.argv[1]), self._exit, int(self.tree.argv[2]) << 8)
        self._hear({"op": "spawned", "pid": self.life.pid, "inner": None})
        if self._stop is not None:
            self._ask(self._stop[1])

    def stop(self, reason: str, grace: float) -> None:
        if self._over:
            return
        self._stop = (reason, grace)
        if self.life is not None:
            self._ask(grace)

    def _ask(self, grace: float) -> None:
        self._signalled += 1
        manner = self.tree.argv[3]
        if manner != NEVER:
            self._after(float(manner), self._exit, SIGTERM)
        self._after(grace, self._after, self._host.latency(), self._exit, SIGKILL)

    def _exit(self, status: int) -> None:
        if self._over or self.life is None:
            return
        self.life.ended = self._host.last()
        if self._stop is not None:
            how = f"signal {status}" if status in (SIGTERM, SIGKILL) else f"exit {status >> 8}"
            one = {"pid": self.life.pid, "inner": None, "argv": self.tree.argv, "end": how, "at": 0.0}
            report = nothing_seen(True, self._stop[0]) | {"processes": [one], "signalled": self._signalled}
            self.box.reports.append(one)
            self.tree.hear({"op": "receipt", "report": report})
        self.tree.hear({"op": "exited", "status": status})
        self._finish({"op": "empty"})

    def end_at_once(self) -> None:
        """With its runtime."""
        self._over = True
        for clock in self._clocks:
            clock.cancel()
        self.tree.hear({"op": "exited", "status": SIGKILL})
        self._hear({"op": "empty"})

    def _finish(self, message: dict[str, Any]) -> None:
        self._over = True
        for clock in self._clocks:
            clock.cancel()
        self.box.commands.pop(self.tree, None)
        self._hear(message)
        self.box.look()

    def _hear(self, message: dict[str, Any]) -> None:
        self.tree.hear(message)
        if self.tree.changed is not None:
            self.tree.changed()


class SimBox:
    """In the place of `quell.supervise.box.Box`."""

    rung = "simulated"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.receipt: Receipt | None = None
        self.commands: dict[Tree, Command] = {}
        self.reports: list[dict[str, Any]] = []
        self.ended: Callable[[], object] | None = None
        self.watcher: Callable[[], object] | None = None
        self._ready = False
        self._stop: str | None = None
        self._count = 0
        host.boxes.append(self)
        host.later(host.latency(), self._be_ready)

    def _be_ready(self) -> None:
        self._ready = True
        if self.watcher is not None:
            self.watcher()

    def settled(self) -> bool:
        return self._ready

    def hurry(self) -> None:
        pass

    def confirm(self) -> None:
        pass

    def abandon(self) -> None:
        self.host.boxes.remove(self)

    def stopping(self) -> bool:
        return self._stop is not None

    def over(self) -> bool:
        return self.receipt is not None

    def ask_spawn(self, spec: dict[str, Any], fds: list[int]) -> Tree:
        if self.over() or self.stopping():
            raise BoxLostError("the box is stopped", self.receipt)
        self._count += 1
        tree = Tree(cast("Any", self), self._count, spec["argv"])
        self.commands[tree] = Command(self, tree)
        return tree

    def ask_stop_tree(self, tree: Tree, reason: str, grace: float) -> None:
        tree.stopped = None
        if tree in self.commands:
            self.host.later(self.host.latency(), self.commands[tree].stop, reason, grace)

    def ask_stop(self, reason: str, grace: float) -> None:
        if not self.over():
            self._stop = self._stop or reason
            self.host.later(self.host.latency(), self._end, reason, grace)

    def ask_see(self, tree: Tree) -> None:
        tree.seen = []

    def send(self, tree: Tree, number: int) -> None:
        if tree in self.commands:
            self.commands[tree].stop(f"signal {number}", 0)

    def _end(self, reason: str, grace: float) -> None:
        for command in list(self.commands.values()):
            command.stop(reason, grace)
        self.look()

    def end_at_once(self) -> None:
        commands, self.commands = list(self.commands.values()), {}
        for command in commands:
            command.end_at_once()
        self._stop = self._stop or "the runtime is gone"
        self.look()

    def look(self) -> None:
        """Whether the last one has gone."""
        if self._stop is None or self.commands or self.over():
            return
        seen = nothing_seen(True, self._stop) | {"processes": self.reports, "signalled": len(self.reports)}
        del seen["verdict"]
        self.receipt = Receipt(**seen, confirmed=True, rung=self.rung, command=[], exit=None, started=now_text())
        self.host.boxes.remove(self)
        if self.ended is not None:
            self.ended()


class _Zygote:
    def rungs(self) -> list[str]:
        return ["simulated"]

    def refill(self) -> None:
        pass


class SimHub:
    """In the place of `quell.supervise.hub.Hub`."""

    def __init__(self, host: Host) -> None:
        self.lock = threading.RLock()
        self.zygote = _Zygote()
        self._host = host

    def begin(self, rung: str) -> SimBox:
        return SimBox(self._host)

    def add(self, box: SimBox, ended: Callable[[], object]) -> None:
        box.ended = ended

    def watch(self, box: SimBox, call: Callable[[], object] | None) -> None:
        box.watcher = call

    def look(self, box: SimBox) -> None:
        pass

    def drop(self, box: SimBox) -> None:
        box.ended = box.watcher = None

    def in_loop(self, call: Callable[[], object]) -> None:
        call()


class SimSupervisor(Supervisor):
    """The real one, but for its hub, its thread and its control socket."""

    def __init__(self, host: Host, ladder: Ladder | None = None) -> None:
        super().__init__(ladder=ladder, contain="subreaper")
        self._host = host

    @property
    def state_dir(self) -> str:
        return "/simulated"

    async def _start(self) -> None:
        loop, shared = asyncio.get_running_loop(), self._shared
        await asyncio.sleep(self._host.latency())
        shared.loop_thread = threading.get_ident()
        shared.start(loop, cast("Hub", SimHub(self._host)))
        shared.factory = install(loop)
        self.place = self.home = Place(shared.hub, loop)
        probe(loop)
        shared.trusted = loop.get_task_factory()

    async def _close(self) -> None:
        loop, shared = asyncio.get_running_loop(), self._shared
        if shared.factory is not None:
            uninstall(loop, shared.factory)
            shared.factory = None
