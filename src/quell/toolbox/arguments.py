"""The arguments of a tool as a type: the schema that a model reads and the check of what it sends are one thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from ..errors import ToolError

T = TypeVar("T", bound=msgspec.Struct)


def schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of these arguments."""
    _, components = msgspec.json.schema_components([kind])
    found: dict[str, Any] = components[kind.__name__]
    return {key: value for key, value in found.items() if key not in {"title", "description"}}


def taken(tool: str, kind: type[T], arguments: Mapping[str, Any]) -> T:
    """What a model sent, checked. ToolError says what is wrong, and what there is."""
    try:
        return msgspec.convert(dict(arguments), kind)
    except msgspec.ValidationError as error:
        known = ", ".join(kind.__struct_fields__)
        raise ToolError(f"{tool}: {error} (its arguments: {known})") from None
