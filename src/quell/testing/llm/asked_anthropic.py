"""What POST /v1/messages takes, and what it says of what it does not take; and the history in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...events import ToolCall
from ...ports import Message, ToolResult
from .asked_chat import text_of
from .formats import Json
from .issued import Issued, unseal
from .refusals import Refused

KNOWN = frozenset(
    "cache_control compaction container context_management diagnostics fallback_credit_token fallbacks"
    " inference_geo max_tokens mcp_servers messages metadata model output_config service_tier speed stop_sequences"
    " stream system temperature thinking thread tool_choice tools top_k top_p user_profile_id workspace_id".split()
)
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_LEAST_BUDGET = 1024
_MOST_CACHED = 4


def check(body: Json, headers: Mapping[str, str], issued: Issued) -> None:
    if "anthropic-version" not in headers:
        raise Refused("anthropic-version: header is required")
    for name in body:
        if name not in KNOWN:
            raise Refused(f"{name}: Extra inputs are not permitted")
    for name in ("model", "max_tokens", "messages"):
        if body.get(name) is None:
            raise Refused(f"{name}: Field required")
    if body["max_tokens"] < 1:
        raise Refused("max_tokens: Input should be greater than or equal to 1")
    if not body["messages"]:
        raise Refused("messages: at least one message is required")
    _check_thinking(body)
    _check_tools(body)
    for at, message in enumerate(body["messages"]):
        _check_message(at, message, last=at == len(body["messages"]) - 1)
    if body["messages"][0]["role"] != "user":
        raise Refused('messages: first message must use the "user" role')
    if (found := sum(1 for _ in _cached(body))) > _MOST_CACHED:
        raise Refused(f"A maximum of {_MOST_CACHED} blocks with cache_control may be provided. Found {found}.")
    merged = _merged(body["messages"])
    _check_calls(merged)
    _check_thoughts(body, merged, issued)


def wants_thinking(body: Json) -> bool:
    return bool((body.get("thinking") or {}).get("type", "disabled") != "disabled")


def _check_thinking(body: Json) -> None:
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens")
        if budget is None:
            raise Refused("thinking.enabled.budget_tokens: Field required")
        if budget < _LEAST_BUDGET:
            raise Refused(f"thinking.enabled.budget_tokens: Input should be greater than or equal to {_LEAST_BUDGET}")
        if budget >= body["max_tokens"]:
            raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if wants_thinking(body) and body.get("temperature", 1) != 1:
        raise Refused("`temperature` may only be set to 1 when thinking is enabled.")
    if wants_thinking(body) and (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        raise Refused("Thinking may not be enabled when tool_choice forces tool use.")


def _check_tools(body: Json) -> None:
    names: set[str] = set()
    for at, tool in enumerate(body.get("tools") or ()):
        if tool.get("type", "custom") != "custom":
            continue
        name, schema = tool.get("name"), tool.get("input_schema")
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise Refused(f"tools.{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if name in names:
            raise Refused("tools: Tool names must be unique.")
        names.add(name)
        if not isinstance(schema, dict):
            raise Refused(f"tools.{at}.custom.input_schema: Field required")
        if schema.get("type") != "object":
            raise Refused(f"tools.{at}.custom.input_schema.type: Input should be 'object'")


def _check_message(at: int, message: Json, *, last: bool) -> None:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        raise Refused(
            f'messages: Unexpected role "{role}". The Messages API accepts a top-level `system` parameter, '
            'not "system" as an input message role.'
        )
    if not content and not (last and role == "assistant"):
        raise Refused(
            f"messages.{at}: all messages must have non-empty content except for the optional final assistant message"
        )
    blocks = _blocks(message)
    for number, block in enumerate(blocks):
        _check_block(f"messages.{at}.content.{number}", role, block)
    if last and role == "assistant" and blocks and blocks[-1].get("text", "").rstrip() != blocks[-1].get("text", ""):
        raise Refused("messages: final assistant content cannot end with trailing whitespace")


def _check_block(where: str, role: str, block: Json) -> None:
    kind = block.get("type")
    kinds = {
        "user": ("text", "image", "document", "tool_result"),
        "assistant": ("text", "tool_use", "thinking", "redacted_thinking"),
    }
    if kind not in kinds[role]:
        raise Refused(f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    if kind == "text" and not block.get("text"):
        raise Refused("messages: text content blocks must be non-empty")
    if kind == "text" and not block["text"].strip():
        raise Refused("messages: text content blocks must contain non-whitespace text")
    if kind == "image":
        source = block.get("source") or {}
        if source.get("type") == "base64" and source.get("media_type") not in _IMAGES:
            raise Refused(f"{where}.image.source.base64.media_type: Input should be {', '.join(map(repr, _IMAGES))}")
    if kind == "tool_use":
        if _ID.fullmatch(block.get("id", "")) is None:
            raise Refused(f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
        if not isinstance(block.get("input"), dict):
            raise Refused(f"{where}.tool_use.input: Input should be a valid dictionary")
    if kind == "thinking":
        if "signature" not in block:
            raise Refused(f"{where}.thinking.signature: Field required")
        if unseal(block["signature"]) is None:
            raise Refused(f"{where}: Invalid `signature` in `thinking` block")
        if block.get("thinking") not in ("", unseal(block["signature"])):
            raise Refused(
                f"{where}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
                "modified. These blocks must remain as they were in the original response."
            )
    if kind == "redacted_thinking" and unseal(block.get("data")) is None:
        raise Refused(f"{where}: Invalid `data` in `redacted_thinking` block")
    if kind in ("thinking", "redacted_thinking") and block.get("cache_control") is not None:
        raise Refused(f"{where}.{kind}.cache_control: Extra inputs are not permitted")


def _cached(body: Json) -> Iterator[Json]:
    """Every block that has a breakpoint of the cache."""
    places: list[Any] = [body.get("tools"), body.get("system"), *map(_blocks, body["messages"])]
    for place in places:
        for block in place if isinstance(place, list) else ():
            if block.get("cache_control") is not None:
                yield block
    if body.get("cache_control") is not None:
        yield body


def _blocks(message: Json) -> list[Json]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content or []


def _merged(messages: list[Json]) -> list[tuple[str, list[Json]]]:
    """Neighbours of one role are one message."""
    found: list[tuple[str, list[Json]]] = []
    for message in messages:
        if found and found[-1][0] == message["role"]:
            found[-1][1].extend(_blocks(message))
        else:
            found.append((message["role"], list(_blocks(message))))
    return found


def _check_calls(messages: list[tuple[str, list[Json]]]) -> None:
    seen: set[str] = set()
    waiting: list[str] = []
    for at, (role, blocks) in enumerate(messages):
        if role == "user":
            _check_results(at, blocks, waiting)
            continue
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if len(set(waiting) | seen) != len(waiting) + len(seen):
            raise Refused(f"messages.{at}: `tool_use` ids must be unique")
        seen.update(waiting)
    if messages[-1][0] == "assistant" and waiting:
        raise _unanswered(len(messages) - 1, waiting)


def _check_results(at: int, blocks: list[Json], waiting: list[str]) -> None:
    left = list(waiting)
    leading = True
    for number, block in enumerate(blocks):
        if block["type"] != "tool_result":
            leading = False
            continue
        its_id = block.get("tool_use_id")
        if its_id not in waiting:
            raise Refused(
                f"messages.{at}.content.{number}: unexpected `tool_use_id` found in `tool_result` blocks: {its_id}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if its_id not in left:
            raise Refused(
                f"messages.{at}.content.{number}: each tool_use must have a single result. Found multiple "
                f"`tool_result` blocks with id: {its_id}"
            )
        if leading:
            left.remove(its_id)
    if left:
        raise _unanswered(at - 1, left)


def _unanswered(at: int, ids: list[str]) -> Refused:
    return Refused(
        f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(ids)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def _check_thoughts(body: Json, messages: list[tuple[str, list[Json]]], issued: Issued) -> None:
    """While tools are used, the thinking that led to the call comes first in the answer that called."""
    if len(messages) < 2 or not any(block["type"] == "tool_result" for block in messages[-1][1]):
        return
    blocks = messages[-2][1]
    thought = any(issued.thoughts.get(block.get("id", "")) for block in blocks)
    if wants_thinking(body) and thought and blocks[0]["type"] not in ("thinking", "redacted_thinking"):
        raise Refused(
            f"messages.{len(messages) - 2}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
            f"`{blocks[0]['type']}`. When `thinking` is enabled, a final `assistant` message must start with a "
            "thinking block."
        )


def history(body: Json) -> list[Message]:
    names: dict[str, str] = {}
    found: list[Message] = []
    if body.get("system"):
        found.append(Message("system", text_of(body["system"])))
    for role, blocks in _merged(body["messages"]):
        text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
        calls = [
            ToolCall(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"
        ]
        names.update((call.id, call.tool) for call in calls)
        results = [
            ToolResult(
                block["tool_use_id"],
                names.get(block["tool_use_id"], ""),
                text_of(block.get("content")),
                bool(block.get("is_error")),
            )
            for block in blocks
            if block["type"] == "tool_result"
        ]
        if results:
            found.append(Message("tool", results=results))
        if text or calls or not results:
            found.append(Message("assistant" if role == "assistant" else "user", text, calls))
    return found
