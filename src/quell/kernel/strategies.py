"""The two bundled strategies: `tools`, for models that know tool calls, and `react`, for those that only know text."""

from __future__ import annotations

import re

import msgspec

from ..events import ToolCall
from ..ports import Message, Step, Thinker, ToolSpec

REACT = """\
You can use tools. Reply with Action and Input to use one:
Action: NAME
Input: {"argument": "value"}
You then get a line that begins with Observation. When you are done, reply:
Answer: your answer to the user
The tools are:
"""

OBSERVATION = "Observation: "
_ACTION = re.compile(r"^Action:\s*(\S+)\s*$", re.MULTILINE)
_INPUT = re.compile(r"^Input:\s*", re.MULTILINE)
_ANSWER = re.compile(r"^Answer:\s*", re.MULTILINE)


class Tools:
    """Native tool calls, as many at a time as the model wants."""

    async def next(self, thinker: Thinker) -> Step:
        answer = await thinker.ask(thinker.messages, thinker.tools, speak=True)
        return Step(answer.text, answer.calls)


class React:
    """One call at a time, written as text."""

    async def next(self, thinker: Thinker) -> Step:
        messages = [_prompt(thinker), *(as_text(one) for one in thinker.messages if one.role != "system")]
        answer = await thinker.ask(messages, [], speak=False)
        return parse(answer.text, f"call-{len(messages)}")


def _prompt(thinker: Thinker) -> Message:
    system = "\n".join(one.text for one in thinker.messages if one.role == "system")
    return Message("system", f"{system}\n{REACT}{''.join(map(_described, thinker.tools))}".strip())


def _described(tool: ToolSpec) -> str:
    return f"- {tool.name}: {tool.description} Input: {msgspec.json.encode(tool.parameters).decode()}\n"


def as_text(message: Message) -> Message:
    """Results of tools as a model reads them that knows no tools."""
    if message.role == "tool":
        return Message("user", "\n".join(f"{OBSERVATION}{one.text}" for one in message.results))
    if message.calls and _ACTION.search(message.text) is not None:
        return Message(message.role, message.text)  # it is in the text that the calls were read out of
    if message.calls:
        wishes = [f"Action: {one.tool}\nInput: {msgspec.json.encode(one.arguments).decode()}" for one in message.calls]
        return Message(message.role, "\n".join([message.text, *wishes]).strip())
    return message


def parse(text: str, call: str) -> Step:
    """What a text asks for: a call, or else it is the answer. An input that is no JSON object is shown to the tool."""
    action = _ACTION.search(text)
    if action is None:
        answer = _ANSWER.search(text)
        return Step(text[answer.end() :].strip() if answer else text.strip())
    start = _INPUT.search(text, action.end())
    raw = text[start.end() :].strip() if start else "{}"
    return Step(text, [ToolCall(call, action[1], _object(raw))])


def _object(raw: str) -> dict[str, object]:
    """The first JSON value of a text that may go on after it."""
    import json

    try:
        value, _ = json.JSONDecoder().raw_decode(raw)
    except ValueError:
        return {"input": raw}
    return value if isinstance(value, dict) else {"input": value}
