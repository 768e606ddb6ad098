"""What a request says, typed and checked before anything begins: a body, a query, a number. Else a 400."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from .faults import RefusedError

if TYPE_CHECKING:
    from starlette.requests import Request

LARGEST = (1 << 53) - 1
"""Of a number in a path: what every client can hold."""


@dataclass(frozen=True)
class Asked:
    """One request. `session` is as it was written: the board says which one is meant."""

    body: Any = None
    query: Any = None
    session: str = ""
    number: int = 0
    """Of an approval or a receipt."""
    digest: str = ""
    """Of what is always allowed, or the beginning of it."""


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """There is nothing to say: an empty object, or no body at all."""


async def read(request: Request, takes: type[Any] | None, query: type[Any] | None) -> Asked:
    body = decoded(await request.body(), takes) if takes is not None else None
    found = queried(list(request.query_params.multi_items()), query if query is not None else Nothing)
    path = request.path_params
    number = numbered(path["number"]) if "number" in path else 0
    return Asked(body, found, path.get("id", ""), number, path.get("digest", ""))


def decoded(raw: bytes, shape: type[Any]) -> Any:
    """Strictly; what is left out has its default, and so has a body that is left out as a whole."""
    try:
        value = msgspec.json.decode(raw if raw.strip() else b"{}", type=shape)
        json.loads(raw or b"{}", object_pairs_hook=_once)  # msgspec takes the last of two, and says nothing
    except msgspec.ValidationError as error:
        raise RefusedError(400, "bad_request", f"the body does not fit: {error}") from None
    except RecursionError:
        raise RefusedError(400, "bad_request", "the body nests too deep") from None
    except ValueError as error:
        said = error if isinstance(error, msgspec.DecodeError | _TwiceError) else "it is not UTF-8 text"
        raise RefusedError(400, "bad_request", f"the body is not JSON that can be used: {said}") from None
    return value


def queried(items: list[tuple[str, str]], shape: type[Any]) -> Any:
    given: dict[str, str] = {}
    for name, value in items:
        if name in given:
            raise RefusedError(400, "bad_request", f"the parameter {name[:50]!r} is there twice")
        given[name] = value
    try:
        return msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as error:
        raise RefusedError(400, "bad_request", f"the parameters do not fit: {error}") from None


def numbered(word: str) -> int:
    """The `seq` of something. What cannot be one is not there."""
    if not (word.isascii() and word.isdigit() and len(word) <= len(str(LARGEST)) and 1 <= int(word) <= LARGEST):
        raise RefusedError(404, "no_such_number", f"{word[:50]!r} is not the number of an event")
    return int(word)


class _TwiceError(ValueError):
    pass


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _TwiceError("a name is there twice in one object")
    return found
