"""POST /v1/chat/completions: what OpenAI and every compatible server speak."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ...ports import Message
from .asked_chat import check, history
from .formats import Json, Piece, data_only
from .issued import Issued
from .refusals import OpenAIRefusals, Refused
from .replies import CallAll, Reply, Say, Think, Tokens, arguments_text, slices, words

FULL = (
    "This model's maximum context length is {window} tokens. However, your messages resulted in {tokens} tokens. "
    "Please reduce the length of the messages."
)
_STOPS = {"length": "length", "filter": "content_filter"}


class Chat:
    refusals = OpenAIRefusals(FULL, "messages")

    def key(self, headers: Mapping[str, str]) -> str:
        return headers.get("authorization", "").removeprefix("Bearer ")

    def check(self, body: Json, headers: Mapping[str, str], issued: Issued) -> None:
        check(body)

    def history(self, body: Json) -> list[Message]:
        return history(body)

    def compose(self, reply: Reply, body: Json, tokens: Tokens, issued: Issued) -> Json:
        message: Json = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
        said = [part.text for part in reply.parts if isinstance(part, Say)]
        thought = [part.text for part in reply.parts if isinstance(part, Think)]
        calls = [call for part in reply.parts if isinstance(part, CallAll) for call in part.calls]
        if said or not calls:
            message["content"] = "".join(said)
        if thought:
            message["reasoning_content"] = "".join(thought)
        if calls:
            message["tool_calls"] = [
                {
                    "id": issued.id("call_"),
                    "type": "function",
                    "function": {"name": tool, "arguments": arguments_text(arguments)},
                }
                for tool, arguments in calls
            ]
        why = _STOPS.get(reply.stop) or ("tool_calls" if calls else "stop")
        return {
            "id": issued.id("chatcmpl-"),
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": why}],
            "usage": _usage(tokens),
            "service_tier": "default",
            "system_fingerprint": "fp_quell",
        }

    def stream(self, reply: Reply, whole: Json, body: Json, failed: Refused | None) -> Iterator[Piece]:
        counted = bool((body.get("stream_options") or {}).get("include_usage"))
        around = {key: whole[key] for key in ("id", "created", "model", "service_tier", "system_fingerprint")}
        around["object"] = "chat.completion.chunk"
        if counted:
            around["usage"] = None
        choice = whole["choices"][0]

        def chunk(delta: Json, why: str | None = None, *, piece: bool = False) -> Piece:
            choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": why}]
            return data_only({**around, "choices": choices}, piece=piece)

        yield chunk({"role": "assistant", "content": "", "refusal": None})
        calls = iter(enumerate(choice["message"].get("tool_calls", [])))
        for part in reply.parts:
            if isinstance(part, Think):
                yield from (chunk({"reasoning_content": word}, piece=True) for word in words(part.text))
            elif isinstance(part, Say):
                yield from (chunk({"content": word}, piece=True) for word in words(part.text))
            elif isinstance(part, CallAll):
                for delta, piece in _call_deltas([next(calls) for _ in part.calls], part.mixed):
                    yield chunk({"tool_calls": [delta]}, piece=piece)
        if failed is not None:
            yield data_only(self.refusals.body(failed, ""))
            return
        yield chunk({}, choice["finish_reason"])
        if counted:
            yield data_only({**around, "choices": [], "usage": whole["usage"]})
        yield b"data: [DONE]\n\n", False


def _call_deltas(calls: list[tuple[int, Json]], mixed: bool) -> Iterator[tuple[Json, bool]]:
    heads: list[tuple[Json, bool]] = []
    rests: list[list[tuple[Json, bool]]] = []
    for index, call in calls:
        function = {"name": call["function"]["name"], "arguments": ""}
        heads.append(({"index": index, "id": call["id"], "type": "function", "function": function}, False))
        bits = slices(call["function"]["arguments"])
        rests.append([({"index": index, "function": {"arguments": bit}}, True) for bit in bits])
    if mixed:
        yield from heads
        yield from in_turn(rests)
    else:
        for head, rest in zip(heads, rests, strict=True):
            yield head
            yield from rest


def in_turn(rows: list[list[Any]]) -> Iterator[Any]:
    """The first of each, the second of each, and so on."""
    for column in itertools.zip_longest(*rows):
        yield from (one for one in column if one is not None)


def _usage(tokens: Tokens) -> Json:
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {
            "cached_tokens": tokens.cached,
            "cache_write_tokens": tokens.written,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": tokens.thought,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
