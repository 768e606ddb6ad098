"""Words of the command line as values, for the few types that our flags have.

typer would load pydantic for this, which takes longer than all the rest of a start.
"""

from __future__ import annotations

from typing import Any

import typer

HELP = ["-h", "--help"]
"""What asks for help, in every command."""
_PLAIN = (str, bool)
_NUMBERS = {int: "a whole number", float: "a number"}


def understand(command: Any) -> None:
    """Have the values of a command, and of all below it, read here. Any other type stays typer's."""
    for param in command.get_params(typer.Context(command, help_option_names=HELP)):
        annotation, info = _about(param)
        if annotation in _PLAIN or annotation == list[str]:
            param._runtime_param = Words()
        elif annotation in _NUMBERS:
            param._runtime_param = Number(annotation, info.min, info.max)
    for below in getattr(command, "commands", {}).values():
        understand(below)


def _about(param: Any) -> tuple[Any, Any]:
    """The type, and what was said about it."""
    found: Any = getattr(param, "type_descriptor", None)
    if found is None or found.parameter_info.parser is not None:
        return None, None
    return found.annotation, found.parameter_info


class Words:
    """A text, several, or a switch: as they are."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if param.multiple or param.nargs == -1:
            return list(value or ())
        return value


class Number:
    def __init__(self, kind: type[int | float], least: float | None, most: float | None) -> None:
        self._kind = kind
        self._least = least
        self._most = most

    def coerce(self, value: Any, param: Any, ctx: Any) -> int | float | None:
        if value is None:
            return None
        what = _NUMBERS[self._kind]
        if self._least is not None:
            what += f" from {self._least:g}{'' if self._most is None else f' to {self._most:g}'}"
            what += " on" if self._most is None else ""
        try:
            number = self._kind(value)
        except ValueError:
            raise typer.BadParameter(f"it takes {what}, not {value!r}", ctx=ctx, param=param) from None
        low = self._least is not None and not number >= self._least
        high = self._most is not None and not number <= self._most
        if low or high:
            raise typer.BadParameter(f"it takes {what}, not {value}", ctx=ctx, param=param)
        return number
