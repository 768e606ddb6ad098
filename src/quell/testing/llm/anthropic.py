"""POST /v1/messages: what Anthropic speaks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ...ports import Message
from .asked_anthropic import check, history, wants_thinking
from .formats import Json, Piece, event
from .issued import Issued, seal
from .refusals import AnthropicRefusals, Refused
from .replies import CallAll, Reply, Say, Think, Tokens, arguments_text, slices, words

_STOPS = {"length": "max_tokens", "filter": "refusal"}


class Anthropic:
    refusals = AnthropicRefusals()

    def key(self, headers: Mapping[str, str]) -> str:
        return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")

    def check(self, body: Json, headers: Mapping[str, str], issued: Issued) -> None:
        check(body, headers, issued)

    def history(self, body: Json) -> list[Message]:
        return history(body)

    def compose(self, reply: Reply, body: Json, tokens: Tokens, issued: Issued) -> Json:
        blocks: list[Json] = []
        thought = ""
        for part in reply.parts:
            if isinstance(part, Think) and wants_thinking(body):
                blocks.append(_thinking(part, body))
                thought = seal(part.text)
            elif isinstance(part, Say):
                blocks.append({"type": "text", "text": part.text, "citations": None})
            elif isinstance(part, CallAll):
                for tool, arguments in part.calls:
                    block = {"type": "tool_use", "id": issued.id("toolu_"), "name": tool, "input": _object(arguments)}
                    blocks.append(block)
                    if thought:
                        issued.thoughts[block["id"]] = thought
        called = any(block["type"] == "tool_use" for block in blocks)
        return {
            "id": issued.id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": blocks,
            "stop_reason": _STOPS.get(reply.stop) or ("tool_use" if called else "end_turn"),
            "stop_sequence": None,
            "usage": _usage(tokens),
        }

    def stream(self, reply: Reply, whole: Json, body: Json, failed: Refused | None) -> Iterator[Piece]:
        started = {**whole["usage"], "output_tokens": 1}
        yield event(
            {
                "type": "message_start",
                "message": {**whole, "content": [], "stop_reason": None, "usage": started},
            }
        )
        given = (text for part in reply.parts if isinstance(part, CallAll) for _, text in part.calls)
        for index, block in enumerate(whole["content"]):
            yield event({"type": "content_block_start", "index": index, "content_block": _bare(block)})
            if index == 0:
                yield event({"type": "ping"})
            arguments = arguments_text(next(given)) if block["type"] == "tool_use" else ""
            for delta, piece in _deltas(block, arguments):
                yield event({"type": "content_block_delta", "index": index, "delta": delta}, piece=piece)
            yield event({"type": "content_block_stop", "index": index})
        if failed is not None:
            yield event(self.refusals.body(failed, ""))
            return
        delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        counted = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
        usage = {key: whole["usage"][key] for key in counted}
        yield event({"type": "message_delta", "delta": delta, "usage": usage})
        yield event({"type": "message_stop"})


def _thinking(part: Think, body: Json) -> Json:
    if part.hidden:
        return {"type": "redacted_thinking", "data": seal(part.text)}
    shown = "" if body["thinking"].get("display") == "omitted" else part.text
    return {"type": "thinking", "thinking": shown, "signature": seal(part.text)}


def _object(arguments: Mapping[str, Any] | str) -> Any:
    if not isinstance(arguments, str):
        return dict(arguments)
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return {}


def _bare(block: Json) -> Json:
    """A block before its deltas."""
    empty: Json = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}}
    return {**block, **empty.get(block["type"], {})}


def _deltas(block: Json, arguments: str) -> Iterator[tuple[Json, bool]]:
    if block["type"] == "text":
        yield from (({"type": "text_delta", "text": word}, True) for word in words(block["text"]))
    elif block["type"] == "thinking":
        yield from (({"type": "thinking_delta", "thinking": word}, True) for word in words(block["thinking"]))
        yield {"type": "signature_delta", "signature": block["signature"]}, False
    elif block["type"] == "tool_use":
        yield {"type": "input_json_delta", "partial_json": ""}, False
        yield from (({"type": "input_json_delta", "partial_json": bit}, True) for bit in slices(arguments))


def _usage(tokens: Tokens) -> Json:
    return {
        "input_tokens": max(0, tokens.input - tokens.cached - tokens.written),
        "cache_creation_input_tokens": tokens.written,
        "cache_read_input_tokens": tokens.cached,
        "cache_creation": {"ephemeral_5m_input_tokens": tokens.written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": tokens.output,
        "service_tier": "standard",
    }
