"""The messages of Anthropic: signed thoughts go back as they came, and what stays the same is cached."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..config import Provider
from ..errors import ModelError
from ..events import ToolCall, Usage
from ..ports import Ask, Chunk, Notice, Reasoning, Text
from .chat import CUT, number, spared
from .endpoint import Endpoint
from .prices import price_of
from .served import Broken, Json, ended_early
from .sse import Garbled
from .turns import Names, Pair, Said, arguments_of, given_back, keep, names_of, system_of, taken, turns_of

KIND = "anthropic"
CACHED = {"type": "ephemeral"}
OPTIONAL = ("output_config", "thinking")

_OLD = re.compile(r"claude-(instant|[12]\b|3)")
_BUDGETED = re.compile(r"claude-(3-7|haiku-4|(opus|sonnet)-4(-[015])?(-\d{8}|-latest)?\Z)")
"""Models that are told how many tokens to think; later ones are told how hard, and earlier ones do not think."""

_THINKS = re.compile(r"claude-[a-z]+-[5-9]\b")
"""Models that think by themselves: their thoughts, and what they say between calls, come only to who asks for it."""
SHOWN = {"type": "adaptive", "display": "summarized"}

_BUDGETS = {"low": 2_048, "medium": 8_192, "high": 16_384}
_LONGEST = 32_000
"""Tokens of an answer where nothing is said: what every model since the fourth can write."""


def messages_body(ask: Ask, endpoint: Endpoint) -> Json:
    names, system, turns = names_of(ask), system_of(ask), turns_of(ask)
    messages: list[Json] = []
    for said in turns:
        _add(messages, said, names, given_back(said, KIND, endpoint.host, ask.model))
    _cache(messages)
    body: Json = {
        "model": ask.model,
        "max_tokens": ask.longest or _longest(ask.model),
        "messages": messages,
        "stream": True,
    }
    if system:
        body["system"] = [{"type": "text", "text": system, "cache_control": CACHED}]
    if tools := _tools(ask, turns, names):
        body["tools"] = tools
        if not ask.tools:
            body["tool_choice"] = {"type": "none"}
    _think(body, ask, turns)
    return body


def messages_spared(body: Json, words: str) -> bool:
    if "output_config" in body and "effort" in words:
        del body["output_config"]
        return True
    return spared(body, words, OPTIONAL)


def _longest(model: str) -> int:
    if _OLD.match(model):
        return 64_000 if model.startswith("claude-3-7") else 8_192 if model.startswith("claude-3-5") else 4_096
    return _LONGEST


def _tools(ask: Ask, turns: list[Said], names: Names) -> list[Json]:
    """Calls of the past need their tools to be known, also where none may be called."""
    tools = [
        {
            "name": names.legal(one.name),
            "description": one.description,
            "input_schema": {"type": "object", **one.parameters},
        }
        for one in ask.tools
    ]
    if not tools:
        called = dict.fromkeys(pair.call.tool for said in turns for pair in said.pairs)
        tools = [{"name": names.legal(one), "input_schema": {"type": "object"}} for one in called]
    if tools:
        tools[-1] = {**tools[-1], "cache_control": CACHED}
    return tools


def _think(body: Json, ask: Ask, turns: list[Said]) -> None:
    if not ask.effort:
        if _THINKS.match(ask.model):
            body["thinking"] = SHOWN
        return
    if _OLD.match(ask.model) and not ask.model.startswith("claude-3-7"):
        return
    if _BUDGETED.match(ask.model):
        budget = min(_BUDGETS[ask.effort], body["max_tokens"] - 1024)
        # A turn that was begun without thoughts cannot go on with them.
        begun = any(one.current and not _begins_with_thought(one, body) for one in turns)
        if budget >= 1024 and not begun:
            body["thinking"] = {"type": "enabled", "budget_tokens": budget}
        return
    body["thinking"] = SHOWN
    body["output_config"] = {"effort": ask.effort}


def _begins_with_thought(said: Said, body: Json) -> bool:
    ids = {pair.id for pair in said.pairs}
    for message in body["messages"]:
        blocks = message["content"]
        if message["role"] == "assistant" and any(one.get("id") in ids for one in blocks):
            return str(blocks[0]["type"]).endswith("thinking")
    return True


def _add(messages: list[Json], said: Said, names: Names, kept: list[Any]) -> None:
    """One message for each role in turn; results are the user's, and come before what the user says."""
    if said.role == "user":
        _join(messages, "user", [*_images(said), *_texts(said.text)])
        return
    _join(messages, "assistant", _blocks(said, names, kept))
    if said.pairs:
        _join(messages, "user", [_result(pair.id, pair.result.text, pair.result.failed) for pair in said.pairs])


def _join(messages: list[Json], role: str, blocks: list[Json]) -> None:
    if messages and messages[-1]["role"] == role:
        messages[-1]["content"] += blocks
    elif blocks:
        messages.append({"role": role, "content": blocks})


def _texts(text: str) -> list[Json]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _images(said: Said) -> list[Json]:
    return [
        {"type": "image", "source": {"type": "base64", "media_type": one.media, "data": one.data}}
        for one in said.images
    ]


def _result(identity: str, text: str, failed: bool) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": identity, "content": text if text.strip() else "(nothing)"}
    return {**block, "is_error": True} if failed else block


def _blocks(said: Said, names: Names, kept: list[Any]) -> list[Json]:
    """Thoughts where they were, and everything else in the order in which it was said."""
    text, pairs = said.text, list(said.pairs)
    found: list[Json] = []
    for item in kept:
        match item:
            case {"type": "thinking" | "redacted_thinking"}:
                found.append(item)
            case {"type": "text", "size": int(size)}:
                found += _texts(text[:size])
                text = text[size:]
            case {"type": "tool_use", "id": str(call)}:
                found += [_use(pair, names) for pair in taken(pairs, call)]
    place = next((number for number, one in enumerate(found) if one["type"] == "tool_use"), len(found))
    return [*found[:place], *_texts(text.rstrip()), *found[place:], *(_use(pair, names) for pair in pairs)]


def _use(pair: Pair, names: Names) -> Json:
    return {"type": "tool_use", "id": pair.id, "name": names.legal(pair.call.tool), "input": pair.call.arguments}


def _cache(messages: list[Json]) -> None:
    """Up to the last of the user's, and the one before, which the request before this one had."""
    marked = 0
    for message in reversed(messages):
        if message["role"] == "user" and marked < 2:
            message["content"][-1] = {**message["content"][-1], "cache_control": CACHED}
            marked += 1


class MessagesReader:
    def __init__(self, ask: Ask, endpoint: Endpoint, provider: Provider) -> None:
        self.over = False
        self._names = names_of(ask)
        self._price = price_of(provider, endpoint, ask.model)
        self._model = ask.model
        self._place = endpoint.host
        self._blocks: dict[int, Json] = {}
        self._parts: dict[int, dict[str, list[str]]] = {}
        """Of each block, what came for each of its fields: joined once, else a long text is copied for every word."""
        self._usage: Json = {}
        self._stop = self._why = ""

    def take(self, data: Json) -> Iterator[Chunk]:
        index = data.get("index") if isinstance(data.get("index"), int) else -1
        assert isinstance(index, int)
        match data.get("type"):
            case "message_start":
                message = data.get("message")
                self._count(message.get("usage") if isinstance(message, dict) else None)
            case "content_block_start":
                yield from self._begin(index, data.get("content_block"))
            case "content_block_delta":
                yield from self._delta(index, data.get("delta"))
            case "content_block_stop":
                yield from self._close(index)
            case "message_delta":
                match data.get("delta"):
                    case {"stop_reason": str(reason), **more}:
                        details = more.get("stop_details")
                        self._stop = reason
                        self._why = str((details.get("explanation") if isinstance(details, dict) else "") or "")
                self._count(data.get("usage"))
            case "message_stop":
                self.over = True
            case "error":
                raise Broken(data)
            case None:
                raise Broken(data) if data.get("error") else Garbled("an event of it has no type")

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _begin(self, index: int, block: Any) -> Iterator[Chunk]:
        if not isinstance(block, dict):
            return
        self._blocks[index], self._parts[index] = dict(block), {}
        match block:
            case {"type": "text", "text": str(text)} if text:
                yield Text(text)
            case {"type": "thinking", "thinking": str(text)} if text:
                yield Reasoning(text)

    def _delta(self, index: int, delta: Any) -> Iterator[Chunk]:
        block = self._blocks.setdefault(index, {})
        match delta:
            case {"type": "text_delta", "text": str(text)} if text:
                block.setdefault("type", "text")
                self._add(index, "text", text)
                yield Text(text)
            case {"type": "thinking_delta", "thinking": str(text)} if text:
                self._add(index, "thinking", text)
                yield Reasoning(text)
            case {"type": "signature_delta", "signature": str(text)}:
                self._add(index, "signature", text)
            case {"type": "input_json_delta", "partial_json": str(text)}:
                self._add(index, "input", text)

    def _add(self, index: int, field: str, text: str) -> None:
        self._parts.setdefault(index, {}).setdefault(field, []).append(text)

    def _whole(self, index: int) -> Json:
        block = self._blocks[index]
        texts = {field: parts for field, parts in self._parts.get(index, {}).items() if field != "input"}
        return block | {field: "".join([str(block.get(field) or ""), *parts]) for field, parts in texts.items()}

    def _close(self, index: int) -> Iterator[Chunk]:
        block = self._blocks.get(index, {})
        if block.get("type") == "tool_use":
            written = "".join(self._parts.get(index, {}).get("input", ()))
            given = block.get("input")
            arguments = arguments_of(written) if written else given if isinstance(given, dict) else {}
            yield ToolCall(str(block.get("id")), self._names.own(str(block.get("name"))), arguments)

    def end(self) -> Iterator[Chunk]:
        if not self.over and not self._stop:
            raise ended_early()
        if self._stop == "refusal":
            yield self._used()  # it is paid for all the same
            raise ModelError(f"{self._model} refused to answer this{f': {self._why}' if self._why else ''}")
        items = [item for index in sorted(self._blocks) for item in _kept(self._whole(index))]
        if any(str(item["type"]).endswith("thinking") for item in items):
            yield keep(KIND, self._place, self._model, items)
        if self._stop == "max_tokens":
            yield Notice(CUT)
        elif self._stop == "model_context_window_exceeded":
            yield Notice("the answer was cut off: the conversation fills all that the model can read")
        yield self._used()

    def _used(self) -> Usage:
        cached = number(self._usage.get("cache_read_input_tokens"))
        written = number(self._usage.get("cache_creation_input_tokens"))
        read = number(self._usage.get("input_tokens")) + cached + written
        given = number(self._usage.get("output_tokens"))
        return Usage(read, given, self._price.of(read, given, cached, written), cached)


def _kept(block: Json) -> Iterator[Json]:
    """A thought whole, of all else only its place."""
    match block:
        case {"type": "thinking", "signature": str(signature)} if signature:
            yield {"type": "thinking", "thinking": block.get("thinking", ""), "signature": signature}
        case {"type": "redacted_thinking", "data": str(data)}:
            yield {"type": "redacted_thinking", "data": data}
        case {"type": "tool_use", "id": str(identity)}:
            yield {"type": "tool_use", "id": identity}
        case {"type": "text", "text": str(text)}:
            yield {"type": "text", "size": len(text)}
