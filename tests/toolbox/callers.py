"""A caller for tools, on real scopes: a session's box, a turn, and a call in it, which is stopped at its end."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import quell
from quell.ports import Tool

BOUND = 20.0
"""Seconds after which a test hangs."""


class Session:
    """What outlives the calls: the box, and what runs in the background of it."""

    def __init__(self, scope: quell.Scope, name: str, cwd: str) -> None:
        self.scope = scope
        self.name = name
        self.cwd = cwd
        self.env: dict[str, str] = {}
        self.network = True
        self.off_limits: tuple[str, ...] = ()
        self.turn = scope.scope("turn")
        self.jobs: list[quell.Process] = []
        self.shown: list[str] = []
        self.remembered: list[str] = []
        self.redact: Callable[[str], str] = str
        self.delegated: list[tuple[str, str]] = []
        self.spawned: list[quell.Process] = []

    async def call(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """As a turn does it: in a scope of the call's own, of which nothing is left."""
        async with self.turn.scope("call") as scope:
            return await tool.call(arguments, Caller(self, scope))


class Caller:
    def __init__(self, session: Session, scope: quell.Scope) -> None:
        self.session = session.name
        self.turn = 1
        self.cwd = session.cwd
        self.env: Mapping[str, str] = session.env
        self.network = session.network
        self.off_limits: Sequence[str] = session.off_limits
        self.scope = scope
        self._home = session

    def output(self, text: str) -> None:
        self._home.shown.append(text)

    def redact(self, text: str) -> str:
        return self._home.redact(text)

    async def spawn(
        self, argv: Sequence[str], *, background: bool = False, shown: Sequence[str] = (), **wishes: Any
    ) -> quell.Process:
        process = await (self._home.scope if background else self.scope).spawn(argv, **wishes)
        self._home.spawned.append(process)
        if background:
            self._home.jobs.append(process)
        return process

    def jobs(self) -> Sequence[quell.Process]:
        return [one for one in self._home.jobs if not one.over.known]

    async def remember(self, text: str) -> None:
        self._home.remembered.append(text)

    async def recall(self, query: str, limit: int = 5) -> list[str]:
        return [one for one in self._home.remembered if query in one][:limit]

    async def delegate(self, agent: str, text: str) -> str:
        self._home.delegated.append((agent, text))
        return f"{agent} did it"


Body = Callable[[Session], Awaitable[None]]


def in_session(cwd: Path, body: Body, factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
    """Run a test inside one session, with a bound."""

    async def main() -> None:
        async with asyncio.timeout(BOUND), sessions(cwd, "one") as (session,):
            await body(session)

    run(main(), factory)


def run(main: Coroutine[Any, Any, None], factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


@asynccontextmanager
async def sessions(cwd: Path, *names: str) -> Any:
    async with quell.Supervisor(ladder=quell.Ladder(ask=0.3, term=0.3)) as sup:
        yield [Session(sup.scope(name, box=True), name, str(cwd)) for name in names]


async def until(fact: Callable[[], bool], bound: float = 10.0) -> bool:
    """Wait for a fact. Whether it came true."""
    end = time.monotonic() + bound
    while not fact():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.005)
    return True


def alive(pid: int) -> bool:
    """Whether that process of the test's own runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])


def running(word: str) -> list[int]:
    """The processes of this machine that were started with this word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found
