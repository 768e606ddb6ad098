"""The chat completions of OpenAI, and of all who speak like it: read with tolerance for what they leave out."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import msgspec

from ..config import Provider
from ..errors import ModelError
from ..events import ToolCall, Usage
from ..ports import Ask, Chunk, Notice, Reasoning, Text, ToolResult, ToolSpec
from .endpoint import Endpoint
from .prices import Price, price_of
from .served import Broken, Json, ended_early
from .sse import Garbled
from .turns import Names, Said, arguments_of, names_of, system_of, turns_of

CUT = "the answer was cut off: it had reached its longest"
OPTIONAL = ("stream_options", "prompt_cache_key", "reasoning_effort")
"""What a server may not know, and an answer does not depend on."""


def chat_body(ask: Ask, endpoint: Endpoint) -> Json:
    names, system = names_of(ask), system_of(ask)
    messages: list[Json] = [{"role": "system", "content": system}] if system else []
    for said in turns_of(ask):
        messages += _messages(said, names)
    body: Json = {
        "model": ask.model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if ask.tools:
        body["tools"] = [{"type": "function", "function": function(one, names)} for one in ask.tools]
    if ask.longest:
        body["max_completion_tokens" if endpoint.own else "max_tokens"] = ask.longest
    if ask.effort:
        body["reasoning_effort"] = ask.effort
    if ask.session and endpoint.own:
        body["prompt_cache_key"] = ask.session
    return body


def function(tool: ToolSpec, names: Names) -> Json:
    parameters = {"type": "object", "properties": {}, **tool.parameters}
    return {"name": names.legal(tool.name), "description": tool.description, "parameters": parameters}


def spared(body: Json, words: str, optional: tuple[str, ...]) -> bool:
    """Take out the first of these that the server's words name."""
    for name in optional:
        if name in body and name in words:
            del body[name]
            return True
    return False


def _messages(said: Said, names: Names) -> list[Json]:
    if said.role == "user":
        return [{"role": "user", "content": _content(said)}]
    answer: Json = {"role": "assistant", "content": said.text if said.text.strip() else None}
    if not said.pairs:
        return [answer]
    answer["tool_calls"] = [
        {
            "id": pair.id,
            "type": "function",
            "function": {"name": names.legal(pair.call.tool), "arguments": encoded(pair.call.arguments)},
        }
        for pair in said.pairs
    ]
    return [answer, *({"role": "tool", "tool_call_id": one.id, "content": told(one.result)} for one in said.pairs)]


def _content(said: Said) -> Any:
    if not said.images:
        return said.text
    text = [{"type": "text", "text": said.text}] if said.text else []
    images = [{"type": "image_url", "image_url": {"url": f"data:{one.media};base64,{one.data}"}} for one in said.images]
    return [*text, *images]


def told(result: ToolResult) -> str:
    """These APIs have no field for a failure, and not every server takes a result that is empty."""
    text = result.text if result.text.strip() else "(nothing)"
    return f"failed: {text}" if result.failed else text


def encoded(arguments: Json) -> str:
    return msgspec.json.encode(arguments).decode()


class _Call:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.parts: list[str] = []
        self.whole: Json | None = None

    def chunk(self, names: Names) -> ToolCall:
        arguments = self.whole if self.whole is not None else arguments_of("".join(self.parts))
        return ToolCall(self.id or f"call_{secrets.token_hex(8)}", names.own(self.name), arguments)


class ChatReader:
    def __init__(self, ask: Ask, endpoint: Endpoint, provider: Provider) -> None:
        self.over = False  # only `[DONE]` or the end of the stream says so: the usage comes last
        self._names = names_of(ask)
        self._price = price_of(provider, endpoint, ask.model)
        self._calls: list[_Call] = []
        self._places: dict[int, _Call] = {}
        self._usage: Json = {}
        self._finish = ""
        self._strange = False

    def take(self, data: Json) -> Iterator[Chunk]:
        if data.get("error"):
            raise Broken(data)
        self._strange = self._strange or not ("choices" in data or "usage" in data or "object" in data)
        if isinstance(usage := data.get("usage"), dict):
            self._usage = usage
        choices = data.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        delta = choice.get("delta") or choice.get("message") or {}
        if isinstance(delta, dict):
            thought = delta.get("reasoning_content") or delta.get("reasoning")
            if isinstance(thought, str) and thought:
                yield Reasoning(thought)
            for key in ("content", "refusal"):
                if isinstance(words := delta.get(key), str) and words:
                    yield Text(words)
            calls = delta.get("tool_calls")
            for part in calls if isinstance(calls, list) else ():
                if isinstance(part, dict):
                    self._add(part)
        self._finish = str(choice.get("finish_reason") or self._finish)

    def _add(self, part: Json) -> None:
        function = part.get("function") if isinstance(part.get("function"), dict) else {}
        assert isinstance(function, dict)
        call = self._of(part, str(function.get("name") or ""))
        call.id = call.id or str(part.get("id") or "")
        call.name = call.name or str(function.get("name") or "")
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            call.whole = arguments
        elif isinstance(arguments, str):
            call.parts.append(arguments)

    def _of(self, part: Json, name: str) -> _Call:
        """The call that a part belongs to. Some give every call the same place, or none, and an id of its own."""
        index, identity = part.get("index"), part.get("id")
        known = self._places.get(index) if isinstance(index, int) else None
        if known is None and not isinstance(index, int):
            known = next((one for one in self._calls if identity and one.id == identity), None)
            if known is None and not name and not identity and self._calls:
                known = self._calls[-1]
        if known is not None and name and identity and known.id and known.id != identity:
            known = None
        if known is None:
            known = _Call()
            self._calls.append(known)
        if isinstance(index, int):
            self._places[index] = known
        return known

    def end(self) -> Iterator[Chunk]:
        if not self._finish and not self._usage:
            raise Garbled("its events say nothing") if self._strange else ended_early()
        if self._finish == "content_filter":
            yield from self._used()  # it is paid for all the same
            raise ModelError("the provider's content filter kept the answer back")
        yield from (call.chunk(self._names) for call in self._calls if call.name)
        if self._finish == "length":
            yield Notice(CUT)
        yield from self._used()

    def _used(self) -> Iterator[Chunk]:
        if self._usage:
            yield usage_of(self._usage, self._price, "prompt_tokens", "completion_tokens")


def usage_of(usage: Json, price: Price, into: str, out: str) -> Usage:
    """Some say themselves what it cost."""
    details = usage.get(f"{into}_details")
    told = details if isinstance(details, dict) else {}
    cached, written = number(told.get("cached_tokens")), number(told.get("cache_write_tokens"))
    taken, given = number(usage.get(into)), number(usage.get(out))
    cost = price.of(taken, given, cached, written)
    said = usage.get("cost")
    if not cost and isinstance(said, int | float) and said > 0:
        cost = float(said)
    return Usage(taken, given, cost, cached)


def number(value: object) -> int:
    return int(value) if isinstance(value, int | float) and 0 < value < 1e15 else 0
