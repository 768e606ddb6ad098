"""What POST /v1/chat/completions takes, and what it says of what it does not take; and the history in it."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ...events import ToolCall
from ...ports import Message, ToolResult
from .formats import Json
from .refusals import Refused

KNOWN = frozenset(
    "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens messages"
    " metadata modalities model moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key"
    " prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier"
    " stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity"
    " web_search_options".split()
)
_ROLES = ("system", "developer", "user", "assistant", "tool")
_LONGEST_ID = 40
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check(body: Json) -> None:
    for name in body:
        if name not in KNOWN:
            raise Refused(f"Unrecognized request argument supplied: {name}")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise Refused("you must provide a model parameter")
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise Refused("Missing required parameter: 'messages'.", code="missing_required_parameter", param="messages")
    if not messages:
        raise Refused(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            code="empty_array",
            param="messages",
        )
    if body.get("stream_options") is not None and not body.get("stream"):
        raise Refused(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )
    _check_tools(body)
    _check_messages(messages)


def _check_tools(body: Json) -> None:
    tools = body.get("tools")
    if tools is None:
        return
    if not tools:
        raise Refused(
            "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            code="empty_array",
            param="tools",
        )
    for at, tool in enumerate(tools):
        function = tool.get("function")
        if tool.get("type") != "function" or not isinstance(function, dict):
            param = f"tools[{at}].function"
            raise Refused(f"Missing required parameter: '{param}'.", code="missing_required_parameter", param=param)
        check_function(function, f"tools[{at}].function")


def check_function(function: Json, where: str) -> None:
    """Of a tool: its name, and that its schema is one of an object."""
    name = function.get("name")
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise Refused(
            f"Invalid '{where}.name': string does not match pattern. "
            "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
            code="invalid_value",
            param=f"{where}.name",
        )
    schema = function.get("parameters")
    if schema is not None and (not isinstance(schema, dict) or schema.get("type") != "object"):
        kind = schema.get("type") if isinstance(schema, dict) else None
        raise Refused(
            f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', "
            f"got 'type: \"{kind}\"'.",
            code="invalid_function_parameters",
            param=f"{where}.parameters",
        )


def _check_messages(messages: list[Any]) -> None:
    waiting: list[str] = []
    open_until_here = False
    for at, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in _ROLES:
            supported = ", ".join(f"'{one}'" for one in _ROLES)
            raise Refused(
                f"Invalid value: '{role}'. Supported values are: {supported}.",
                code="invalid_value",
                param=f"messages[{at}].role",
            )
        if role == "tool":
            _check_result(at, message, waiting, open_until_here)
            continue
        _check_answered(at, waiting)
        waiting = _call_ids(at, message) if role == "assistant" else []
        open_until_here = bool(waiting)
        _check_content(at, message)
    _check_answered(len(messages), waiting)


def _check_result(at: int, message: Json, waiting: list[str], after_calls: bool) -> None:
    if not after_calls:
        raise Refused(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
            "'tool_calls'.",
            param=f"messages.[{at}].role",
        )
    its_id = message.get("tool_call_id")
    if its_id not in waiting:
        raise Refused(
            f"Invalid parameter: 'tool_call_id' of '{its_id}' not found in 'tool_calls' of previous message.",
            param=f"messages.[{at}].tool_call_id",
        )
    waiting.remove(its_id)
    _check_content(at, message)


def _check_answered(at: int, waiting: list[str]) -> None:
    if waiting:
        raise Refused(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}",
            param=f"messages.[{at}].role",
        )


def _call_ids(at: int, message: Json) -> list[str]:
    calls = message.get("tool_calls")
    if calls is None:
        return []
    where = f"messages[{at}].tool_calls"
    if not calls:
        raise Refused(
            f"Invalid '{where}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            code="empty_array",
            param=where,
        )
    for number, call in enumerate(calls):
        if len(call["id"]) > _LONGEST_ID:
            raise Refused(
                f"Invalid '{where}[{number}].id': string too long. Expected a string with maximum length "
                f"{_LONGEST_ID}, but got a string with length {len(call['id'])} instead.",
                code="string_above_max_length",
                param=f"{where}[{number}].id",
            )
        if not isinstance(call["function"].get("arguments"), str):
            raise Refused(
                f"Invalid type for '{where}[{number}].function.arguments': expected a string, but got an object "
                "instead.",
                code="invalid_type",
                param=f"{where}[{number}].function.arguments",
            )
    return [call["id"] for call in calls]


def _check_content(at: int, message: Json) -> None:
    content = message.get("content")
    if content is None and message["role"] == "assistant" and message.get("tool_calls"):
        return
    where = f"messages[{at}].content"
    if not isinstance(content, str | list):
        raise Refused(
            f"Invalid value for 'content': expected a string, got {'null' if content is None else type(content)}.",
            param=where,
        )
    for number, part in enumerate(content if isinstance(content, list) else ()):
        kinds = ("text", "image_url", "input_audio", "file") if message["role"] == "user" else ("text", "refusal")
        if part.get("type") not in kinds:
            supported = ", ".join(f"'{kind}'" for kind in kinds)
            raise Refused(
                f"Invalid value: '{part.get('type')}'. Supported values are: {supported}.",
                code="invalid_value",
                param=f"{where}[{number}].type",
            )
        if part["type"] == "image_url" and not isinstance((part.get("image_url") or {}).get("url"), str):
            raise Refused(
                f"Missing required parameter: '{where}[{number}].image_url.url'.",
                code="missing_required_parameter",
                param=f"{where}[{number}].image_url.url",
            )


def history(body: Json) -> list[Message]:
    names: dict[str, str] = {}
    found: list[Message] = []
    for message in body["messages"]:
        role, text = message["role"], text_of(message.get("content"))
        if role == "tool":
            its_id = message["tool_call_id"]
            found.append(Message("tool", results=[ToolResult(its_id, names.get(its_id, ""), text)]))
            continue
        calls = [
            ToolCall(call["id"], call["function"]["name"], arguments_of(call["function"]["arguments"]))
            for call in message.get("tool_calls") or ()
        ]
        names.update((call.id, call.tool) for call in calls)
        found.append(Message("system" if role == "developer" else role, text, calls))
    return found


def text_of(content: Any) -> str:
    """The text of a message's content, whose parts have their text under the same name in every API."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if isinstance(part.get("text"), str))


def arguments_of(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
