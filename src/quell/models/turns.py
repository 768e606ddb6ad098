"""A history as every API can take it: each call with exactly one result, names and ids that are legal, roles in turn.

What a model asked to have back is given back only unchanged, to the model that gave it, and in the same turn.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ..events import Image, ToolCall
from ..ports import Ask, Keep, Message, ToolResult

NO_RESULT = "there is no result"
_STRANGE = re.compile(r"[^A-Za-z0-9_-]")


class Pair(msgspec.Struct, frozen=True):
    """A call and its result, under an id that no other has."""

    id: str
    call: ToolCall
    result: ToolResult


class Said(msgspec.Struct):
    role: Literal["user", "assistant"]
    text: str = ""
    images: list[Image] = []
    pairs: list[Pair] = []
    kept: dict[str, Any] = {}
    current: bool = False
    """Of the turn that is answered now."""


class Names:
    """Names that an API takes for names that it may not take, both ways."""

    def __init__(self, names: Iterable[str], longest: int = 64) -> None:
        self._longest = longest
        self._legal: dict[str, str] = {}
        self._own: dict[str, str] = {}
        for name in sorted(names, key=lambda one: _STRANGE.search(one) is not None):  # those that are legal keep theirs
            self.legal(name)

    def legal(self, name: str) -> str:
        found = self._legal.get(name)
        if found is None:
            plain = found = _STRANGE.sub("_", name)[: self._longest] or "_"
            number = 1
            while found in self._own:
                number += 1
                end = f"_{number}"
                found = plain[: self._longest - len(end)] + end
            self._legal[name], self._own[found] = found, name
        return found

    def own(self, legal: str) -> str:
        return self._own.get(legal, legal)


def names_of(ask: Ask) -> Names:
    called = {call.tool: None for message in ask.messages for call in message.calls}
    return Names({**{tool.name: None for tool in ask.tools}, **called})


def system_of(ask: Ask) -> str:
    return "\n\n".join(one.text for one in ask.messages if one.role == "system" and one.text.strip())


def turns_of(ask: Ask) -> list[Said]:
    """What user and assistant said, in turn; it begins and ends with the user, or with results."""
    said: list[Said] = []
    ids: set[str] = set()
    messages = [one for one in ask.messages if one.role != "system"]
    for number, message in enumerate(messages):
        if message.role == "assistant":
            results = messages[number + 1].results if number + 1 < len(messages) else []
            pairs = _paired(message, results, ids)
            if message.text.strip() or pairs:
                said.append(Said("assistant", message.text, pairs=pairs, kept=message.kept))
        elif message.role == "user" and (message.text.strip() or message.images):
            _add_user(said, message)
    if not said or said[0].role == "assistant":
        said.insert(0, Said("user", "(The conversation goes on.)"))
    if said[-1].role == "assistant" and not said[-1].pairs:
        said.append(Said("user", "Go on."))
    for one in reversed(said):
        one.current = one.role == "assistant"
        if one.role == "user":
            break
    return said


def _add_user(said: list[Said], message: Message) -> None:
    text = message.text if message.text.strip() else ""
    if said and said[-1].role == "user":
        last = said[-1]
        last.text = "\n\n".join(one for one in (last.text, text) if one)
        last.images = [*last.images, *message.images]
    else:
        said.append(Said("user", text, images=list(message.images)))


def _paired(message: Message, results: list[ToolResult], ids: set[str]) -> list[Pair]:
    left, pairs = list(results), []
    for call in message.calls:
        found = next((one for one in left if one.call == call.id), None)
        if found is not None:
            left.remove(found)
        result = found or ToolResult(call.id, call.tool, NO_RESULT, True)
        pairs.append(Pair(_id(call.id, ids), call, result))
    return pairs


def taken(pairs: list[Pair], call: str) -> list[Pair]:
    """The first of them that has the call with this id, taken out; or none."""
    found = [pair for pair in pairs if pair.call.id == call][:1]
    for pair in found:
        pairs.remove(pair)
    return found


def _id(wanted: str, ids: set[str]) -> str:
    plain = found = _STRANGE.sub("_", wanted)[:40] or "call"
    number = 1
    while found in ids:
        number += 1
        found = f"{plain[:34]}-{number}"
    ids.add(found)
    return found


# -- arguments


def arguments_of(text: str) -> dict[str, Any]:
    """What a model wrote for arguments. What is no JSON object is handed over as it is: the tool says what is wrong."""
    if not text.strip():
        return {}
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {"input": text}
    return value if isinstance(value, dict) else {"input": value}


# -- what is kept


def keep(kind: str, place: str, model: str, items: list[Any]) -> Keep:
    return Keep(kind, {"at": place, "model": model, "items": items, "digest": _digest(items)})


def given_back(said: Said, kind: str, place: str, model: str) -> list[Any]:
    """What was kept with this answer; nothing if it is another's, of an earlier turn, or was changed on its way."""
    kept = said.kept.get(kind)
    if not said.current or not isinstance(kept, dict) or kept.get("at") != place or kept.get("model") != model:
        return []
    items = kept.get("items")
    return items if isinstance(items, list) and kept.get("digest") == _digest(items) else []


def _digest(items: list[Any]) -> str:
    return hashlib.blake2b(msgspec.json.encode(items, order="sorted"), digest_size=12).hexdigest()
