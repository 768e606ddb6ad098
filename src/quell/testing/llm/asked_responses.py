"""What POST /v1/responses takes, and what it says of what it does not take; and the history in it."""

from __future__ import annotations

from typing import Any

from ...events import ToolCall
from ...ports import Message, ToolResult
from .asked_chat import arguments_of, check_function, text_of
from .formats import Json
from .issued import Issued, unseal
from .refusals import Refused

KNOWN = frozenset(
    "access_programs background context_management conversation image include input instructions max_output_tokens"
    " max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key"
    " prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options"
    " temperature text tool_choice tools top_logprobs top_p truncation user".split()
)
_BEGIN = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
_LONGEST_ID = 64
_LEAST = 16  # tokens that an answer may be limited to


def check(body: Json, issued: Issued) -> None:
    for name in body:
        if name not in KNOWN:
            raise Refused(f"Unknown parameter: '{name}'.", code="unknown_parameter", param=name)
    for name in ("model", "input"):
        if not body.get(name):
            raise _missing(name)
    longest = body.get("max_output_tokens")
    if longest is not None and longest < _LEAST:
        raise Refused(
            f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {_LEAST}, "
            f"but got {longest} instead.",
            code="integer_below_min_value",
            param="max_output_tokens",
        )
    for at, tool in enumerate(body.get("tools") or ()):
        if tool.get("type") == "function":
            if "name" not in tool:
                raise _missing(f"tools[{at}].name")
            check_function(tool, f"tools[{at}]")
    before = body.get("previous_response_id")
    if before is not None and before not in issued.responses:
        raise Refused(
            f"Previous response with id '{before}' not found.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    if isinstance(body["input"], list):
        for at, item in enumerate(body["input"]):
            _check_item(at, item)
    items = all_input(body, issued)
    _check_calls(items)
    _check_reasoning(items, issued)


def _missing(name: str) -> Refused:
    return Refused(f"Missing required parameter: '{name}'.", code="missing_required_parameter", param=name)


def _check_item(at: int, item: Json) -> None:
    where, kind = f"input[{at}]", item.get("type", "message")
    its_id = item.get("id")
    if its_id is not None and kind in _BEGIN and not str(its_id).startswith(_BEGIN[kind]):
        raise Refused(
            f"Invalid '{where}.id': '{its_id}'. Expected an ID that begins with '{_BEGIN[kind]}'.",
            code="invalid_value",
            param=f"{where}.id",
        )
    needed = {
        "message": ("role", "content"),
        "function_call": ("call_id", "name", "arguments"),
        "function_call_output": ("call_id", "output"),
        "reasoning": ("id", "summary"),
        "item_reference": ("id",),
        "compaction": ("encrypted_content",),
    }.get(kind)
    if needed is None:
        raise Refused(f"Invalid value: '{kind}'.", code="invalid_value", param=f"{where}.type")
    for name in needed:
        if name not in item:
            raise _missing(f"{where}.{name}")
    if len(item.get("call_id", "")) > _LONGEST_ID:
        raise Refused(
            f"Invalid '{where}.call_id': string too long. Expected a string with maximum length {_LONGEST_ID}, "
            f"but got a string with length {len(item['call_id'])} instead.",
            code="string_above_max_length",
            param=f"{where}.call_id",
        )
    if kind == "function_call" and not isinstance(item["arguments"], str):
        raise Refused(
            f"Invalid type for '{where}.arguments': expected a string, but got an object instead.",
            code="invalid_type",
            param=f"{where}.arguments",
        )
    if kind == "message" and isinstance(item["content"], list):
        _check_parts(where, item)


def _check_parts(where: str, item: Json) -> None:
    said = item["role"] == "assistant"
    kinds = ("output_text", "refusal") if said else ("input_text", "input_image", "input_file")
    for number, part in enumerate(item["content"]):
        if part.get("type") not in kinds:
            raise Refused(
                f"Invalid value: '{part.get('type')}'. Supported values are: "
                f"{', '.join(repr(kind) for kind in kinds)}.",
                code="invalid_value",
                param=f"{where}.content[{number}]",
            )


def _check_calls(items: list[Any]) -> None:
    """Every call has its one output, behind it."""
    waiting: list[str] = []
    for item in items:
        if item.get("type") == "function_call":
            waiting.append(item["call_id"])
        elif item.get("type") == "function_call_output":
            if item["call_id"] not in waiting:
                raise Refused(
                    f"No tool call found for function call output with call_id {item['call_id']}.", param="input"
                )
            waiting.remove(item["call_id"])
    if waiting:
        raise Refused(f"No tool output found for function call {waiting[0]}.", param="input")


def _check_reasoning(items: list[Any], issued: Issued) -> None:
    """Reasoning comes back as it was, before what followed from it."""
    stored = {item.get("id") for items in issued.responses.values() for item in items}
    reasoned = {item["id"] for item in items if item.get("type") == "reasoning"}
    for at, item in enumerate(items):
        its_id = item.get("id")
        thought = issued.thoughts.get(its_id or "")
        if thought and thought not in reasoned:
            kind = item.get("type", "message")
            raise Refused(
                f"Item '{its_id}' of type '{kind}' was provided without its required 'reasoning' item: '{thought}'.",
                param="input",
            )
        if item.get("type") != "reasoning":
            continue
        if item.get("encrypted_content") is None:
            if its_id not in stored:
                raise Refused(
                    f"Item with id '{its_id}' not found. Items are not persisted when `store` is set to false. "
                    "Try again with `store` set to true, or remove this item from your input.",
                    status=404,
                    param="input",
                )
        elif unseal(item["encrypted_content"]) is None:
            raise Refused(
                f"The encrypted content for item {its_id} could not be verified.",
                code="invalid_encrypted_content",
            )
        after = items[at + 1] if at + 1 < len(items) else {}
        if after.get("type") not in ("reasoning", "function_call") and after.get("role") != "assistant":
            raise Refused(
                f"Item '{its_id}' of type 'reasoning' was provided without its required following item.", param="input"
            )


def all_input(body: Json, issued: Issued) -> list[Any]:
    """The items, and those of the response that it follows."""
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return [*issued.responses.get(body.get("previous_response_id") or "", []), *items]


def history(items: list[Any]) -> list[Message]:
    names: dict[str, str] = {}
    found: list[Message] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "message":
            role: Any = "system" if item["role"] == "developer" else item["role"]
            found.append(Message(role, text_of(item["content"])))
        elif kind == "function_call":
            call = ToolCall(item["call_id"], item["name"], arguments_of(item["arguments"]))
            names[call.id] = call.tool
            found.append(Message("assistant", calls=[call]))
        elif kind == "function_call_output":
            its_id = item["call_id"]
            found.append(Message("tool", results=[ToolResult(its_id, names.get(its_id, ""), text_of(item["output"]))]))
    return found
