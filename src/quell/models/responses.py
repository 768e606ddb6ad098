"""The Responses API of OpenAI. Nothing is stored there: what a model thought comes back sealed, and is sent again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..config import Provider
from ..errors import ModelError
from ..events import ToolCall
from ..ports import Ask, Chunk, Notice, Reasoning, Text
from .chat import CUT, encoded, function, spared, told, usage_of
from .endpoint import Endpoint
from .prices import price_of
from .served import Broken, Json, ended_early
from .sse import Garbled
from .turns import Names, Pair, Said, arguments_of, given_back, keep, names_of, system_of, taken, turns_of

KIND = "openai"
ENCRYPTED = "reasoning.encrypted_content"
OPTIONAL = ("prompt_cache_key", "include", "reasoning")

_PLAIN = re.compile(r"(gpt-(3|4)|chatgpt)|-chat\b", re.IGNORECASE)
"""Models that do not reason, and refuse to be told how."""


def responses_body(ask: Ask, endpoint: Endpoint) -> Json:
    names, system = names_of(ask), system_of(ask)
    items: list[Json] = []
    for said in turns_of(ask):
        items += _items(said, names, given_back(said, KIND, endpoint.host, ask.model))
    body: Json = {"model": ask.model, "input": items, "stream": True, "store": False}
    if system:
        body["instructions"] = system
    if ask.tools:
        body["tools"] = [{"type": "function", "strict": False, **function(one, names)} for one in ask.tools]
    if _PLAIN.search(ask.model) is None:
        body["include"] = [ENCRYPTED]
        body["reasoning"] = {"summary": "auto", **({"effort": ask.effort} if ask.effort else {})}
    if ask.longest:
        body["max_output_tokens"] = ask.longest
    if ask.session:
        body["prompt_cache_key"] = ask.session
    return body


def responses_spared(body: Json, words: str) -> bool:
    """A summary of its thoughts is not for everybody: it goes before the thoughts themselves."""
    reasoning = body.get("reasoning")
    if isinstance(reasoning, dict) and "summary" in reasoning and "summar" in words:
        del reasoning["summary"]
        if not reasoning:
            del body["reasoning"]
        return True
    if "include" in body and "ncrypted" in words:
        del body["include"]
        return True
    return spared(body, words, OPTIONAL)


def _items(said: Said, names: Names, kept: list[Any]) -> list[Json]:
    if said.role == "user":
        return [{"type": "message", "role": "user", "content": _content(said)}]
    message = [{"type": "message", "role": "assistant", "content": said.text}] if said.text.strip() else []
    pairs = list(said.pairs)
    found: list[Json] = []
    for item in kept:
        match item:
            case {"type": "reasoning"}:
                found.append(item)
            case {"type": "message"}:
                found += message
                message = []
            case {"type": "function_call", "call_id": str(call)}:
                found += [_call(pair, names) for pair in taken(pairs, call)]
    while found and found[-1].get("type") == "reasoning":
        found.pop()  # a thought is refused that nothing came of
    outputs = [{"type": "function_call_output", "call_id": pair.id, "output": told(pair.result)} for pair in said.pairs]
    return [*message, *found, *(_call(pair, names) for pair in pairs), *outputs]


def _call(pair: Pair, names: Names) -> Json:
    name, arguments = names.legal(pair.call.tool), encoded(pair.call.arguments)
    return {"type": "function_call", "call_id": pair.id, "name": name, "arguments": arguments}


def _content(said: Said) -> list[Json]:
    text: list[Json] = [{"type": "input_text", "text": said.text}] if said.text else []
    images = [
        {"type": "input_image", "detail": "auto", "image_url": f"data:{one.media};base64,{one.data}"}
        for one in said.images
    ]
    return text + images


class ResponsesReader:
    def __init__(self, ask: Ask, endpoint: Endpoint, provider: Provider) -> None:
        self.over = False
        self._names = names_of(ask)
        self._price = price_of(provider, endpoint, ask.model)
        self._model = ask.model
        self._place = endpoint.host
        self._items: list[Json] = []
        self._calls: set[str] = set()
        self._said = False
        self._last: Json = {}

    def take(self, data: Json) -> Iterator[Chunk]:
        kind, delta = str(data.get("type") or ""), data.get("delta")
        words = delta if isinstance(delta, str) else ""
        match kind:
            case "response.output_text.delta" | "response.refusal.delta" if words:
                self._said = True
                yield Text(words)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" if words:
                yield Reasoning(words)
            case "response.reasoning_summary_part.added" if data.get("summary_index"):
                yield Reasoning("\n\n")
            case "response.output_item.done":
                yield from self._item(data.get("item"))
            case "response.completed" | "response.incomplete" | "response.done":
                self.over = True
                response = data.get("response")
                self._last = response if isinstance(response, dict) else {}
            case "response.failed":
                response = data.get("response")
                raise Broken(response.get("error") if isinstance(response, dict) else None)
            case "error":
                raise Broken(data.get("error") or data)
            case "":
                raise Broken(data) if data.get("error") else Garbled("an event of it has no type")

    def _item(self, item: Any) -> Iterator[Chunk]:
        match item:
            case {"type": "function_call", "name": str(name)}:
                identity = str(item.get("call_id") or item.get("id") or f"call_{len(self._calls)}")
                if identity not in self._calls:
                    self._calls.add(identity)
                    self._items.append({"type": "function_call", "call_id": identity})
                    arguments = item.get("arguments")
                    found = arguments if isinstance(arguments, dict) else arguments_of(str(arguments or ""))
                    yield ToolCall(identity, self._names.own(name), found)
            case {"type": "reasoning", "encrypted_content": str(sealed)} if sealed:
                wanted = ("type", "id", "summary", "encrypted_content")
                self._items.append({"summary": [], **{key: item[key] for key in wanted if key in item}})
            case {"type": "message"}:
                self._items.append({"type": "message"})
                if not self._said and (text := _text(item)):
                    self._said = True
                    yield Text(text)

    def end(self) -> Iterator[Chunk]:
        if not self.over:
            raise ended_early()
        output = self._last.get("output")
        if not self._items and isinstance(output, list):  # a server that tells of its items only at the end
            for item in output:
                yield from self._item(item)
        details = self._last.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        if reason == "content_filter":
            yield from self._used()  # it is paid for all the same
            raise ModelError("the provider's content filter kept the answer back")
        if any(item["type"] == "reasoning" for item in self._items):
            yield keep(KIND, self._place, self._model, self._items)
        if reason:
            yield Notice(CUT)
        yield from self._used()

    def _used(self) -> Iterator[Chunk]:
        if isinstance(usage := self._last.get("usage"), dict):
            yield usage_of(usage, self._price, "input_tokens", "output_tokens")


def _text(item: Json) -> str:
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    return "".join(str(one.get("text") or one.get("refusal") or "") for one in parts if isinstance(one, dict))
