"""POST /v1/responses: what OpenAI speaks today."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping

from ...ports import Message
from .asked_responses import all_input, check, history
from .chat import in_turn
from .formats import Json, Piece, event
from .issued import Issued, seal
from .refusals import OpenAIRefusals, Refused
from .replies import CallAll, Reply, Say, Think, Tokens, arguments_text, slices, words

FULL = "Your input exceeds the context window of this model. Please adjust your input and try again."
_STOPS = {"length": "max_output_tokens", "filter": "content_filter"}

_ECHOED: Json = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
}
"""What a response repeats of its request, and what it says where the request says nothing."""


class Responses:
    refusals = OpenAIRefusals(FULL, "input")

    def __init__(self, issued: Issued) -> None:
        self._issued = issued

    def key(self, headers: Mapping[str, str]) -> str:
        return headers.get("authorization", "").removeprefix("Bearer ")

    def check(self, body: Json, headers: Mapping[str, str], issued: Issued) -> None:
        check(body, issued)

    def history(self, body: Json) -> list[Message]:
        return history(all_input(body, self._issued))

    def compose(self, reply: Reply, body: Json, tokens: Tokens, issued: Issued) -> Json:
        output = list(_items(reply, body, issued))
        whole: Json = {
            "id": issued.id("resp_"),
            "object": "response",
            "created_at": int(time.time()),
            "status": "incomplete" if reply.stop else "completed",
            "error": None,
            "incomplete_details": {"reason": _STOPS[reply.stop]} if reply.stop else None,
            "model": body["model"],
            "output": output,
            **{name: body[name] if body.get(name) is not None else usual for name, usual in _ECHOED.items()},
            "usage": {
                "input_tokens": tokens.input,
                "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.written},
                "output_tokens": tokens.output,
                "output_tokens_details": {"reasoning_tokens": tokens.thought},
                "total_tokens": tokens.input + tokens.output,
            },
        }
        if body.get("store") is not False:
            issued.responses[whole["id"]] = [*all_input(body, issued), *output]
        return whole

    def stream(self, reply: Reply, whole: Json, body: Json, failed: Refused | None) -> Iterator[Piece]:
        numbers = itertools.count()

        def tell(data: Json, piece: bool = False) -> Piece:
            return event({**data, "sequence_number": next(numbers)}, piece=piece)

        begun = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        yield tell({"type": "response.created", "response": begun})
        yield tell({"type": "response.in_progress", "response": begun})
        items = iter(enumerate(whole["output"]))
        for part in reply.parts:
            if isinstance(part, Think):
                told = _reasoning(*next(items), part)
            elif isinstance(part, Say):
                told = _message(*next(items))
            elif isinstance(part, CallAll):
                told = _calls([next(items) for _ in part.calls], part.mixed)
            else:
                break
            for data, piece in told:
                yield tell(data, piece)
        if failed is not None and failed.code is None:
            yield tell({"type": "error", "code": failed.kind, "message": failed.message, "param": failed.param})
        elif failed is not None:
            error = {"code": failed.code, "message": failed.message}
            yield tell({"type": "response.failed", "response": {**begun, "status": "failed", "error": error}})
        else:
            yield tell({"type": f"response.{whole['status']}", "response": whole})


def _items(reply: Reply, body: Json, issued: Issued) -> Iterator[Json]:
    thought = ""
    for part in reply.parts:
        if isinstance(part, Think):
            thought = issued.id("rs_")
            told = (body.get("reasoning") or {}).get("summary") and not part.hidden
            summary = [{"type": "summary_text", "text": part.text}] if told else []
            item = {"id": thought, "type": "reasoning", "summary": summary}
            if "reasoning.encrypted_content" in (body.get("include") or ()):
                item["encrypted_content"] = seal(part.text)
            yield item
        elif isinstance(part, Say):
            text = {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
            its_id = issued.id("msg_")
            issued.thoughts[its_id] = thought
            yield {"id": its_id, "type": "message", "status": "completed", "role": "assistant", "content": [text]}
        elif isinstance(part, CallAll):
            for tool, arguments in part.calls:
                its_id = issued.id("fc_")
                issued.thoughts[its_id] = thought
                yield {
                    "id": its_id,
                    "type": "function_call",
                    "status": "completed",
                    "arguments": arguments_text(arguments),
                    "call_id": issued.id("call_"),
                    "name": tool,
                }


Told = Iterator[tuple[Json, bool]]


def _reasoning(index: int, item: Json, part: Think) -> Told:
    at = {"item_id": item["id"], "output_index": index, "summary_index": 0}
    yield {"type": "response.output_item.added", "output_index": index, "item": {**item, "summary": []}}, False
    for summary in item["summary"]:
        yield {"type": "response.reasoning_summary_part.added", **at, "part": {**summary, "text": ""}}, False
        for word in words(part.text):
            yield {"type": "response.reasoning_summary_text.delta", **at, "delta": word}, True
        yield {"type": "response.reasoning_summary_text.done", **at, "text": part.text}, False
        yield {"type": "response.reasoning_summary_part.done", **at, "part": summary}, False
    yield {"type": "response.output_item.done", "output_index": index, "item": item}, False


def _message(index: int, item: Json) -> Told:
    at = {"item_id": item["id"], "output_index": index, "content_index": 0}
    (part,) = item["content"]
    begun = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}, False
    yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}, False
    for word in words(part["text"]):
        yield {"type": "response.output_text.delta", **at, "delta": word, "logprobs": []}, True
    yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}, False
    yield {"type": "response.content_part.done", **at, "part": part}, False
    yield {"type": "response.output_item.done", "output_index": index, "item": item}, False


def _calls(items: list[tuple[int, Json]], mixed: bool) -> Told:
    if not mixed:
        for each in items:
            yield from _calls([each], mixed=True)
        return
    for index, item in items:
        begun = {**item, "status": "in_progress", "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}, False
    yield from in_turn([list(_argument_deltas(index, item)) for index, item in items])
    for index, item in items:
        at = {"item_id": item["id"], "output_index": index}
        done = {"type": "response.function_call_arguments.done", **at, "arguments": item["arguments"]}
        yield {**done, "name": item["name"]}, False
        yield {"type": "response.output_item.done", "output_index": index, "item": item}, False


def _argument_deltas(index: int, item: Json) -> Told:
    at = {"item_id": item["id"], "output_index": index}
    for bit in slices(item["arguments"]):
        yield {"type": "response.function_call_arguments.delta", **at, "delta": bit}, True
