"""Whether a tool may be called: allowed, denied, or asked of a person. No answer is a no, and unknown means ask."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

import msgspec

from ..config import Agent, Policy
from ..events import ApprovalAnswered, ApprovalAsked, ApprovalWithdrawn, Event, ToolRequested
from ..supervise.errand import Fact

if TYPE_CHECKING:
    from .turn import Turn


def policy(agent: Agent, tool: str) -> Policy:
    return agent.approval.get(tool) or agent.approval.get("*") or "ask"


def digest(tool: str, arguments: dict[str, object]) -> str:
    """What an approval is bound to: the tool and all of its arguments."""
    body = msgspec.json.encode([tool, arguments], order="deterministic")
    return hashlib.sha256(body).hexdigest()


async def permission(turn: Turn, request: ToolRequested) -> str | None:
    """None, or why not."""
    match policy(turn.session.agent, request.tool):
        case "allow":
            return None
        case "deny":
            return f"this agent may not use {request.tool}"
    asked = turn.emit(
        ApprovalAsked,
        cause=request.seq,
        tool=request.tool,
        arguments=request.arguments,
        digest=digest(request.tool, request.arguments),
    )
    answer = await _answer(turn, asked)
    if isinstance(answer, ApprovalAnswered):
        return None if answer.allow else answer.reason or "not approved"
    return answer.reason if isinstance(answer, ApprovalWithdrawn) else "not approved"


async def _answer(turn: Turn, asked: ApprovalAsked) -> Event:
    """What a person says, or that nobody did in time."""
    host = turn.session.host
    answered: Fact[Event] = host.bus.waiter(asked.seq, asked.opens)
    seconds = host.settings.approval

    def late() -> None:
        turn.emit(ApprovalWithdrawn, request=asked.seq, cause=asked.seq, reason=f"nobody answered within {seconds:g} s")

    timer: asyncio.TimerHandle = host.loop.call_later(seconds, late)
    try:
        return await answered.wait()
    finally:
        timer.cancel()
        host.bus.forget(asked.seq)
