"""The tool `shell`: a command with all that it starts belongs to the call, or, in the background, to the session.

Its output is shown while it runs; what it leaves running never holds the call up.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ..errors import BoxLostError, SpawnError, ToolError
from ..ports import Caller, PluginContext, ToolSpec
from ..supervise import NULL, PIPE, STDOUT, allow
from .arguments import schema, taken
from .jobs import Jobs, JobsTool, ending, left_of
from .tape import Tape

if TYPE_CHECKING:
    from ..supervise import Process

TIMEOUT = 120.0  # seconds, when the model says nothing
MAX_TIMEOUT = 3600.0  # seconds: what takes longer belongs in the background
COMMAND_LIMIT = 100_000  # bytes; the kernel takes 128 KiB in one word
SHELLS = ("/bin/bash", "/bin/sh")  # the first that is there

ENVIRONMENT = ("LC_MESSAGES", "LC_COLLATE", "LC_NUMERIC", "LC_TIME")
"""What a command sees of our environment, besides the basic variables of `quell.allow` (PATH, HOME, LANG, TERM, …)
and what its agent is given by name (`Agent.env`).

An allow-list, so that no key or token is in it; and no SSH_AUTH_SOCK, which is leave to log in elsewhere.
"""


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[str, msgspec.Meta(min_length=1, description="A line for bash, run in the working directory.")]
    background: Annotated[
        bool, msgspec.Meta(description="Let it run on and return at once; see the tool `jobs`. For servers, say.")
    ] = False
    timeout: Annotated[
        float, msgspec.Meta(gt=0, le=MAX_TIMEOUT, description="Seconds until it is ended, in the foreground.")
    ] = TIMEOUT


class Shell:
    def __init__(self, jobs: Jobs | None = None) -> None:
        self.spec = ToolSpec(
            "shell",
            "Run a command and get its output. Whatever it leaves running ends with the call; see `background`.",
            schema(Line),
        )
        self._jobs = jobs or Jobs()

    async def call(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        line = taken("shell", Line, arguments)
        if line.background and line.timeout != TIMEOUT:
            raise ToolError("shell: a command in the background has no timeout; end it by the tool `jobs`")
        process = await _start(line, caller)
        if line.background:
            job = self._jobs.add(caller, process, line.command)
            return f"{job.name} runs in the background, pid {process.pid}; see the tool `jobs`"
        tape = Tape(process, caller.redact, caller.output)
        try:
            notes = await _end(process, line.timeout)
            if process.over.known:
                await tape.ended.wait()
            tape.flush()
        except BoxLostError as error:
            raise ToolError(f"shell: {error}") from None
        finally:
            tape.mute()
        output = tape.text()
        if output and notes and not output.endswith("\n"):
            output += "\n"
        return output + "\n".join(notes) or "[no output]"


async def _start(line: Line, caller: Caller) -> Process:
    try:
        size = len(line.command.encode())
    except UnicodeEncodeError:
        raise ToolError("shell: the command is not text that can be encoded as UTF-8") from None
    if size > COMMAND_LIMIT:
        raise ToolError(f"shell: a command of {size} bytes is too long; write it to a file and run that")
    if "\0" in line.command:
        raise ToolError("shell: a command cannot contain a NUL character")
    shell = next((each for each in SHELLS if os.access(each, os.X_OK)), SHELLS[-1])
    try:
        return await caller.spawn(
            [shell, "-c", line.command],
            background=line.background,
            cwd=caller.cwd,
            env={**allow(*ENVIRONMENT), **caller.env},
            stdin=NULL,
            stdout=PIPE,
            stderr=STDOUT,
        )
    except (SpawnError, BoxLostError) as error:
        raise ToolError(f"shell: {error}") from None


async def _end(process: Process, seconds: float) -> list[str]:
    """Until the command has ended, by itself or by us; what is to be said of that."""
    notes = []
    try:
        async with asyncio.timeout(seconds):
            code = await process.wait()
        if code != 0:
            notes.append(f"[{ending(code)}]")
    except TimeoutError:
        receipt = await process.stop(reason=f"timeout of {seconds:g} s")
        notes.append(f"[not done after {seconds:g} s, and ended: {receipt.sentence()}]")
    if left := await left_of(process):
        words = "; ".join(" ".join(member.argv)[:60] for member in left[:3])
        notes.append(f"[left running ({words}), and ended with this call; to keep it, use background=true]")
    return notes


class _Plugin:
    name = "shell"

    def setup(self, ctx: PluginContext) -> None:
        jobs = Jobs()
        ctx.tool(Shell(jobs))
        ctx.tool(JobsTool(jobs))


plugin = _Plugin()
