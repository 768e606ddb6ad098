"""The model that needs no network: what it answers follows from what it is asked, and from nothing else.

A line `$ cmd` becomes a call of `shell`, `$ cmd &` one in the background, `@name text` a call of `agent`; the rest is
answered plainly. `scripted:FILE` plays a script first, one answer for each request, for each session from its start;
a FILE that is no full path is looked for where the program was started.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import msgspec

from ..errors import ModelError, UsageError
from ..events import ToolCall, Usage
from ..ports import Ask, Chunk, Message, Notice, PluginContext, Reasoning, Text, ToolResult
from .script import Answers, Step, read_script, script_of

REACT = "Reply with Action and Input"
"""In the system message: calls are wanted as text, one at a time."""

OBSERVATION = "Observation: "
ECHO = 2000  # characters of a message that are repeated
_LINES = 3  # of each result that are repeated, and its last

PLAYED = 1000
"""Sessions that play a script at a time: one that was not heard of for longer begins anew."""

_WORD = re.compile(r"\s*\S+\s*?(?=\s\S|\Z)|\s+")
_BACKGROUND = re.compile(r"(?<![&\\])&\s*\Z")

Call = tuple[str, dict[str, Any]]


class Scripted:
    """`script` is a file (see `quell.models.script`), or a list of answers, each a list of steps: for whoever asks.

    A request that names a file plays that one instead.
    """

    def __init__(self, script: str | os.PathLike[str] | Sequence[Sequence[dict[str, Any]]] = ()) -> None:
        answers = read_script(script) if isinstance(script, str | os.PathLike) else script_of(script)
        self._answers = iter(answers)
        self._played: dict[tuple[str, str], Iterator[list[Step]]] = {}  # by session and file, the latest at the end

    async def answer(self, ask: Ask) -> AsyncIterator[Chunk]:
        """Stream the next answer of the script, or, when there is none left, the plain one."""
        steps = next(await self._play(ask) if ask.model else self._answers, None)
        if steps is None:
            steps = _plain(ask)
        react, calls, said, told = _wants_react(ask), 0, 0, False
        prefix = "Answer: " if react and not any(step.call is not None for step in steps) else ""
        for step in steps:
            text = None
            if step.say is not None:
                text, prefix = prefix + step.say, ""
            elif step.call is not None and react:
                text = f"Action: {step.call}\nInput: {msgspec.json.encode(step.arguments or {}).decode()}\n"
            elif step.call is not None:
                calls += 1
                said += 1
                yield ToolCall(f"call-{len(ask.messages)}-{calls}", step.call, step.arguments or {})
            elif step.wait is not None:
                await asyncio.sleep(step.wait)
            elif step.usage is not None:
                told = True
                yield step.usage
            elif step.think is not None:
                yield Reasoning(step.think)
            elif step.notice is not None:
                yield Notice(step.notice)
            elif step.fail is not None:
                raise ModelError(step.fail or "the script says that this fails")
            elif step.hang:
                await asyncio.get_running_loop().create_future()
            for word in _WORD.findall(text or ""):
                said += 1
                yield Text(word)
                await asyncio.sleep(0)  # a long answer lets others speak
        if not told:
            yield Usage(input=sum(len(message.text.split()) for message in ask.messages), output=said)

    async def _play(self, ask: Ask) -> Iterator[list[Step]]:
        """What is left for this session of the file that it names. ModelError says what is wrong with that."""
        key = ask.session, ask.model
        playing = self._played.pop(key, None)
        if playing is None:
            playing = iter(await asyncio.to_thread(_script, ask.model))
            while len(self._played) >= PLAYED:
                del self._played[next(iter(self._played))]
        self._played[key] = playing
        return playing


def _script(file: str) -> Answers:
    try:
        return read_script(os.path.abspath(os.path.expanduser(file)))
    except UsageError as error:
        raise ModelError(f"the script {error}") from None


def _plain(ask: Ask) -> list[Step]:
    """What is answered without a script."""
    react = _wants_react(ask)
    asked, results = _since_user(ask.messages, react)
    calls, rest = _read(asked)
    if react:
        calls = calls[len(results) : len(results) + 1]
    elif results:
        calls = []
    if results and not calls:
        return [Step(say="\n".join(_summary(result) for result in results))]
    steps = [Step(call=tool, arguments=arguments) for tool, arguments in calls]
    if rest and not (react and calls):
        echo = rest if len(rest) <= ECHO else rest[:ECHO] + "…"
        steps.insert(0, Step(say=f"You said: {echo}\n" if calls else f"You said: {echo}"))
    return steps or [Step(say="There is nothing to answer.")]


def _since_user(messages: Sequence[Message], react: bool) -> tuple[str, list[ToolResult]]:
    """What the user said last, and what tools have said since."""
    results: list[ToolResult] = []
    for message in reversed(messages):
        if react and message.role == "user" and message.text.startswith(OBSERVATION):
            results.insert(0, ToolResult("", "Observed", message.text.removeprefix(OBSERVATION)))
        elif message.role == "user":
            return message.text, results
        results[:0] = message.results
    return "", results


def _read(text: str) -> tuple[list[Call], str]:
    """The calls that a message asks for, and the rest of it."""
    calls: list[Call] = []
    rest: list[str] = []
    for line in text.splitlines():
        calls_of_line = list(_calls(line))
        calls += calls_of_line
        if not calls_of_line:
            rest.append(line)
    return calls, "\n".join(rest).strip()


def _calls(line: str) -> Iterator[Call]:
    if line.startswith("$ "):
        command = line[2:].strip()
        background = _BACKGROUND.search(command)
        if background:
            command = command[: background.start()].rstrip()
        if command:
            yield "shell", {"command": command, "background": True} if background else {"command": command}
    elif line.startswith("@"):
        name, _, text = line[1:].partition(" ")
        if name and text.strip():
            yield "agent", {"agent": name, "text": text.strip()}


def _summary(result: ToolResult) -> str:
    """Its first lines, and its last, which tells a shell command's exit."""
    lines = result.text.strip().splitlines() or ["nothing"]
    if len(lines) > _LINES + 1:
        lines = [*lines[:_LINES], "…", lines[-1]]
    return f"{result.tool}{' failed' if result.failed else ''}: " + "\n".join(line[:ECHO] for line in lines)


def _wants_react(ask: Ask) -> bool:
    return any(message.role == "system" and REACT in message.text for message in ask.messages)


class _Plugin:
    name = "scripted"

    def setup(self, ctx: PluginContext) -> None:
        ctx.model("scripted", Scripted)


plugin = _Plugin()
