"""A typed function with a docstring is a tool: its signature is the schema, and no call that does not fit reaches it.

A coroutine function runs in the loop. Any other may block, and runs in a process of the call, which can be ended; one
that no other process could find by its name, or that needs the caller, runs in a thread: that cannot be cancelled, and
is named on the receipt when it is still at work then (H26).
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from ..errors import PluginRefusedError, ToolError
from ..ports import Caller, ToolSpec, Where
from .registry import civil, in_thread
from .running import Named, named, run_apart

if TYPE_CHECKING:
    from ..ports import Tool

_WHERE = re.compile(r" - at (?:`(\w+)` in )?`\$\.?([^`]*)`$")


def tool_from(function: Callable[..., Any], where: Where | None = None) -> Tool:
    """PluginRefusedError says what the function lacks, or why it cannot run there."""
    return FunctionTool(function, where)


class FunctionTool:
    def __init__(self, function: Callable[..., Any], where: Where | None = None) -> None:
        name = getattr(_inner(function), "__name__", None) or type(function).__name__
        self._function = function
        self._awaited = _is_coroutine_function(function)
        self._takes_caller, parameters = _parameters(function, name)
        self._where = self._place(name, where)
        self._shape = _shape(name, parameters)
        self._names = [parameter.name for parameter, _ in parameters]
        self._needed = [parameter.name for parameter, _ in parameters if parameter.default is parameter.empty]
        self.spec = ToolSpec(name=name, description=_description(function, name), parameters=_schema(self._shape))

    def _place(self, name: str, wanted: object) -> Named | Where:
        """Where it runs: what is wanted, if that makes sense, else the safest place that it can."""
        if wanted not in (None, *get_args(Where)):
            places = ", ".join(f'"{one}"' for one in get_args(Where))
            raise PluginRefusedError(f"{name} cannot run in {wanted!r}: where is one of {places}")
        if self._awaited and wanted in ("process", "thread"):
            raise PluginRefusedError(
                f"{name} cannot run in a {wanted}: it is a coroutine function, and runs in the loop"
            )
        if self._awaited or wanted == "loop":
            return "loop"
        found = "it takes the caller" if self._takes_caller else named(self._function)
        if wanted == "process" and isinstance(found, str):
            raise PluginRefusedError(f"{name} cannot run in a process: {found}")
        return "thread" if wanted == "thread" or isinstance(found, str) else found

    async def call(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        fitting = self._fit(arguments)
        if isinstance(self._where, Named):
            plain = {one: value for one in arguments if _is_plain(value := getattr(fitting, one))}
            raw = {one: value for one, value in arguments.items() if one not in plain}
            return await run_apart(self._where, self.spec.name, plain, raw, caller)
        given = {one: getattr(fitting, one) for one in self._names}
        if self._takes_caller:
            given[self._takes_caller] = caller
        call = functools.partial(self._function, **given)
        if self._awaited:
            result = await civil(call())
        elif self._where == "loop":
            result = await civil(_at_once(call))
        else:
            name = f"tool {self.spec.name}"
            result = await caller.scope.task(in_thread(call, name), name=name)
        return self._text(result)

    def _fit(self, arguments: Mapping[str, Any]) -> msgspec.Struct:
        """The arguments as the function wants them, or a ToolError in one sentence."""
        name = self.spec.name
        if unknown := [one for one in arguments if one not in self._names]:
            near = get_close_matches(str(unknown[0]), self._names, 1)
            hint = f" (did you mean `{near[0]}`?)" if near else ""
            takes = f"it takes {', '.join(f'`{one}`' for one in self._names)}" if self._names else "it takes none"
            raise ToolError(f"{name} has no argument `{unknown[0]}`{hint}; {takes}")
        if missing := [one for one in self._needed if one not in arguments]:
            raise ToolError(f"{name} needs the argument `{missing[0]}`")
        try:
            return msgspec.convert(dict(arguments), self._shape, str_keys=True)
        except msgspec.ValidationError as error:
            found = _WHERE.search(str(error))
            where = f"{'a key of ' if found[1] else ''}the argument `{found[2]}`" if found else "what it was given"
            raise ToolError(f"{name}: {where} does not fit: {_WHERE.sub('', str(error))}") from None

    def _text(self, result: object) -> str:
        if isinstance(result, str):
            return result
        try:
            return msgspec.json.encode(result).decode()
        except TypeError as error:
            raise TypeError(f"{self.spec.name} gave {type(result).__name__}, which has no JSON form: {error}") from None


async def _at_once(call: Callable[[], object]) -> object:
    return call()


def _is_plain(value: object) -> bool:
    """Whether it comes out of JSON as it went in."""
    if type(value) is list:
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(type(key) is str and _is_plain(one) for key, one in value.items())
    return value is None or type(value) in (str, int, float, bool)


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004  an object's own


Parameters = list[tuple[inspect.Parameter, Any]]


def _parameters(function: Callable[..., Any], name: str) -> tuple[str, Parameters]:
    """The name of the parameter that gets the caller, if any, and the others with their types."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise PluginRefusedError(f"{name} cannot be a tool: {error}") from None
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise PluginRefusedError(f"{name} cannot be a tool: it yields, and a tool returns")
    for one in found:
        if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            raise PluginRefusedError(f"{name} cannot be a tool: `{one}` has no name that a model could use")
    callers = [one.name for one in found if _is_caller(one)]
    if len(callers) > 1:
        raise PluginRefusedError(f"{name} cannot be a tool: only one of {', '.join(callers)} can be the caller")
    rest = [one for one in found if one.name not in callers]
    types = _types(function, name, rest)
    return "".join(callers), [(one, types[one.name]) for one in rest]


def _is_caller(parameter: inspect.Parameter) -> bool:
    wanted = parameter.annotation
    return parameter.name == "caller" or wanted is Caller or str(wanted).rpartition(".")[2] == "Caller"


def _types(function: Callable[..., Any], name: str, parameters: list[inspect.Parameter]) -> dict[str, Any]:
    for one in parameters:
        if one.annotation is one.empty:
            raise PluginRefusedError(f"{name} cannot be a tool: its parameter `{one.name}` has no type")

    def stand_in() -> None:
        """Has only the annotations that a schema needs: others may name what is imported for checkers alone."""

    stand_in.__annotations__ = {one.name: one.annotation for one in parameters}
    inner = inspect.unwrap(_inner(function))
    known = getattr(getattr(inner, "__func__", inner), "__globals__", None)
    if known is None:
        known = getattr(type(inner).__call__, "__globals__", {})
    try:
        return {name: _described(kind) for name, kind in get_type_hints(stand_in, known, include_extras=True).items()}
    except Exception as error:  # noqa: BLE001  a boundary: whatever evaluating an annotation raises
        raise PluginRefusedError(f"{name} cannot be a tool: {type(error).__name__} in its types: {error}") from None


def _described(kind: Any) -> Any:
    """`Annotated[str, "what it is"]` is how many write a description."""
    if get_origin(kind) is not Annotated:
        return kind
    plain, *notes = get_args(kind)
    meant = [msgspec.Meta(description=one) if isinstance(one, str) else one for one in notes]
    return Annotated[(plain, *meant)]


def _shape(name: str, parameters: Parameters) -> type[msgspec.Struct]:
    fields: list[tuple[str, Any, Any]] = []
    for one, kind in parameters:
        _check(name, one, kind)
        if one.default is one.empty:
            fields.append((one.name, kind, msgspec.NODEFAULT))
        elif isinstance(
            one.default, list | dict | set | bytearray | msgspec.Struct
        ):  # msgspec wants to make these anew, as calls do not
            fields.append((one.name, kind, msgspec.field(default_factory=functools.partial(_same, one.default))))
        else:
            fields.append((one.name, kind, one.default))
    try:
        return msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)
    except (TypeError, ValueError, NameError) as error:
        raise PluginRefusedError(f"{name} cannot be a tool: {error}") from None


def _check(name: str, parameter: inspect.Parameter, kind: Any) -> None:
    """Each by itself, so that the one which is wrong is named."""
    try:
        msgspec.json.schema(kind)
    except (TypeError, ValueError, NameError) as error:
        why = str(error).splitlines()[-1]  # before it stands what does not help whoever wrote the function
        raise PluginRefusedError(
            f"{name} cannot be a tool: its parameter `{parameter.name}` has no JSON schema: {why}"
        ) from None
    if isinstance(parameter.default, float) and not math.isfinite(parameter.default):
        raise PluginRefusedError(
            f"{name} cannot be a tool: JSON has no {parameter.default}, the default of its parameter `{parameter.name}`"
        )


def _same(default: Any) -> Any:
    return default


def _schema(shape: type[msgspec.Struct]) -> dict[str, Any]:
    """The object itself at the top, what it refers to in `$defs`."""
    try:
        (top,), parts = msgspec.json.schema_components([shape], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise PluginRefusedError(f"{shape.__name__} cannot be a tool: {error}") from None
    schema: dict[str, Any] = parts.pop(top["$ref"].rpartition("/")[2])
    schema.pop("title", None)
    return schema | ({"$defs": parts} if parts else {})


def _inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a `functools.partial` is of."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _description(function: Callable[..., Any], name: str) -> str:
    inner = _inner(function)
    text = inspect.getdoc(inner if inspect.isroutine(inner) else type(inner))
    if not text:
        raise PluginRefusedError(f"{name} cannot be a tool: it has no docstring, which is what a model is told of it")
    return text
