"""Calls into a memory: each has a deadline, is recorded, and counts for or against the plugin that brought it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import QuellError, ToolError
from ..events import MemoryRecalled, MemoryStored
from ..ports import Whose
from .subscription import said

if TYPE_CHECKING:
    from ..ports import Memory
    from .turn import Turn

T = TypeVar("T")


class MemoryFault(QuellError):
    """The memory failed, or was too slow."""


async def recall(turn: Turn, query: str, limit: int, cause: int) -> list[str]:
    """What it finds, recorded."""
    memory = _memory(turn)
    redact = turn.session.host.journal.redaction.text
    found = [redact(str(one)) for one in await _call(turn, "recall", memory.recall(_whose(turn), query, limit))]
    turn.emit(MemoryRecalled, cause=cause, query=query, found=found)
    return found


async def remember(turn: Turn, text: str, cause: int) -> None:
    memory, text = _memory(turn), turn.session.host.journal.redaction.text(text)
    await _call(turn, "store", memory.store(_whose(turn), text))
    turn.emit(MemoryStored, cause=cause, text=text)


def _whose(turn: Turn) -> Whose:
    session = turn.session
    return Whose(session.agent.name, session.id, session.cwd)


def _memory(turn: Turn) -> Memory:
    name = turn.session.agent.memory
    if not name:
        raise ToolError(f"the agent {turn.session.agent.name} has no memory")
    return turn.session.host.registry.memory(name)


async def _call(turn: Turn, what: str, call: Coroutine[Any, Any, T]) -> T:
    host, name = turn.session.host, turn.session.agent.memory
    owner = host.registry.owner("memory", name)
    try:
        async with asyncio.timeout(host.settings.plugin):
            result = await call
    except TimeoutError as error:
        host.plugins.failed(owner, f"memory {name}", error)
        raise MemoryFault(f"the memory {name} did not {what} within {host.settings.plugin:g} s") from None
    except Exception as error:  # a boundary: counted against the plugin
        host.plugins.failed(owner, f"memory {name}", error)
        raise MemoryFault(f"the memory {name} failed: {said(error)}") from error
    host.plugins.succeeded(owner)
    return result
