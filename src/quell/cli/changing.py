"""Changes to sessions of the log: by the server that owns it, or by a runtime of our own where nobody does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import QuellError, StateInUseError
from ..supervise.state import owner_of
from . import places
from .client import Client, NoServerError, path
from .terminals import Elsewhere, release

if TYPE_CHECKING:
    from ..kernel.runtime import Runtime

T = TypeVar("T")
STOP = 120.0
"""Seconds for a server to stop what runs in a session and delete it."""
ORDER = 20.0
Faults = dict[str, QuellError]


def delete(known: list[places.Known]) -> Faults:
    """Each is stopped first. By its id: why one is still there."""
    faults: Faults = {}
    for folder in dict.fromkeys(one.folder for one in known):
        here: list[str] = []
        for one in known:
            if one.folder != folder:
                continue
            try:
                if _ask(one, "DELETE", path("sessions", one.id), None, STOP) is None:
                    here.append(one.id)
            except StateInUseError as error:
                if release(Elsewhere(folder, owner_of(folder) or 0), one.id, "delete"):
                    here.append(one.id)
                else:
                    faults[one.id] = error
            except QuellError as error:
                faults[one.id] = error
        faults |= _delete_here(folder, here) if here else {}
    return faults


def _delete_here(folder: str, ids: list[str]) -> Faults:
    """By a runtime that has no plugins: nothing is begun in it."""
    from ..kernel.footing import Ports
    from ..kernel.runtime import Runtime
    from ..stores.sqlite import SqliteStore

    async def each(runtime: Runtime) -> Faults:
        faults: Faults = {}
        for one in ids:
            try:
                await runtime.delete(one)
            except QuellError as error:
                faults[one] = error
        return faults

    try:
        return _run(Runtime(Ports(store=SqliteStore), state_dir=folder), each)
    except QuellError as error:
        return dict.fromkeys(ids, error)


def fork(known: places.Known, upto: int | None, *, home: str, config: str | None) -> str:
    """The id of the new one."""
    from .composing import loaded_from, runtime_for

    body = {} if upto is None else {"upto": upto}
    card = _ask(known, "POST", path("sessions", known.id, "fork"), body, ORDER)
    if card is not None:
        return str(card["id"])

    async def make(runtime: Runtime) -> str:
        return (await (await runtime.resume(known.id)).fork(upto)).id

    return _run(runtime_for(loaded_from(config), folder=known.folder, home=home, config=config), make)


def _ask(known: places.Known, method: str, target: str, body: dict[str, Any] | None, limit: float) -> Any:
    """The answer of its server; None if nobody has the log."""
    pid = owner_of(known.folder)
    if pid is None:
        return None
    try:
        return Client(known.folder).begin(method, target, body).answer(limit)
    except NoServerError:
        if owner_of(known.folder) is None:
            return None
        who = f"process {pid}" if pid else "another process"
        raise StateInUseError(f"session {known.id} is in use by {who}: end that one first, then try again") from None


def _run(runtime: Runtime, work: Callable[[Runtime], Awaitable[T]]) -> T:
    async def do() -> T:
        async with runtime:
            return await work(runtime)

    return asyncio.run(do())
