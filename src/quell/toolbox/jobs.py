"""Background commands, by name: each can be listed, read and ended until its session stops, and is forgotten then."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from ..errors import ToolError
from ..ports import Caller, ToolSpec
from ..supervise.errand import see_to
from .arguments import schema, taken
from .tape import Tape

if TYPE_CHECKING:
    from ..supervise import Member, Process, Scope

SETTLE = 0.1  # seconds for what a command left running to end by itself, a `tee` say
LOOKS = 10  # times that, for the word that nobody is left to arrive on a busy machine
ENDED_KEPT = 20  # jobs of a session that have ended and can still be read; the oldest go first

_Key = tuple["Scope", str]


@dataclass(frozen=True)
class Job:
    name: str
    command: str
    process: Process
    tape: Tape
    since: float = field(default_factory=time.monotonic)

    def line(self) -> str:
        return f"{self.name}, pid {self.process.pid}, {self.state()}: {self.command}"

    def state(self) -> str:
        code = self.process.returncode
        if not self.process.over.known:
            age = f"running for {time.monotonic() - self.since:.0f} s"
            return age if code is None else f"{ending(code)}, what it started still runs"
        return "ended with its box" if code is None else ending(code)


def ending(code: int) -> str:
    """How a command ended, in words."""
    if code >= 0:
        return f"exit {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"


async def left_of(process: Process) -> list[Member]:
    """Who is left of it a moment after its end. A descendant may hold its pipe for ever: nobody waits for that."""
    for _ in range(LOOKS):
        try:
            async with asyncio.timeout(SETTLE):
                await process.over.wait()
            return []
        except TimeoutError:
            if left := await process.tree():
                return left
    return []


class Jobs:
    """Those of all sessions. A name is never given twice, so that an old one cannot mean a new job (H06)."""

    def __init__(self) -> None:
        self.known: dict[_Key, dict[str, Job]] = {}
        self._numbers = itertools.count(1)

    def add(self, caller: Caller, process: Process, command: str) -> Job:
        key = _key(caller)
        if key not in self.known:
            self.known[key] = {}
            see_to(asyncio.get_running_loop(), lambda: self._forget(key))
        job = Job(f"job-{next(self._numbers)}", command, process, Tape(process, caller.redact))
        mine = self.known[key]
        mine[job.name] = job
        for old in [one for one in mine.values() if one.process.over.known][:-ENDED_KEPT]:
            del mine[old.name]
        return job

    async def _forget(self, key: _Key) -> None:
        """When the box has been stopped: nothing of the session runs any more (H09)."""
        await key[0].stopped()
        self.known.pop(key, None)

    def of(self, caller: Caller) -> list[Job]:
        return list(self.known.get(_key(caller), {}).values())

    def named(self, name: str, caller: Caller) -> Job:
        """Of this session: those of others are not its business."""
        mine = {job.name: job for job in self.of(caller)}
        if name not in mine:
            raise ToolError(f"jobs: there is no {name or 'job without a name'}; there is: {', '.join(mine) or 'none'}")
        return mine[name]


def _key(caller: Caller) -> _Key:
    """The scope that a session's background commands end with: it bears the session's name, or has the box."""
    scope = caller.scope
    while scope.name != caller.session and scope.place is None and scope.parent is not None:
        scope = scope.parent
    return scope, caller.session


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    action: Literal["list", "read", "end"]
    job: Annotated[str, msgspec.Meta(description="Which one, such as job-1: to read or end it.")] = ""
    after: Annotated[int, msgspec.Meta(ge=0, description="Read only what came after so many characters.")] = 0


class JobsTool:
    """Acts on what `shell` has put in the background."""

    def __init__(self, jobs: Jobs) -> None:
        self.spec = ToolSpec("jobs", "List background commands, read the output of one, or end one.", schema(Wish))
        self._jobs = jobs

    async def call(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        wish = taken("jobs", Wish, arguments)
        if wish.action == "list":
            return "\n".join(job.line() for job in self._jobs.of(caller)) or "There is no background command."
        job = self._jobs.named(wish.job, caller)
        if wish.action == "read":
            if job.process.over.known:
                await job.tape.ended.wait()  # its last words are here, and read in a moment
            text = job.tape.text(wish.after)
            return f"{job.line()}\n[output after {wish.after} up to {job.tape.total}]\n{text}"
        receipt = await job.process.stop(reason="ended by the agent")
        await left_of(job.process)
        return f"{job.line()}\n{receipt.sentence()}"
