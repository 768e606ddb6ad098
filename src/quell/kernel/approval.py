"""Whether a tool may be called: allowed, denied, or asked of a person. No answer is a no, and unknown means ask.

Whatever raises on the way, the call is refused with a sentence, and what was asked is withdrawn (H35).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..config import Agent, Policy
from ..errors import FencedError, StoreError
from ..events import (
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalWithdrawn,
    Event,
    ToolRequested,
)
from ..ports import ToolSpec
from ..supervise.errand import Fact
from .grants import bound, digest
from .isolation import around
from .own import closed
from .policy import looks, policy
from .registry import in_thread
from .subscription import said

if TYPE_CHECKING:
    from .session import Session
    from .turn import Turn

__all__ = ["digest", "permission", "policy"]
_log = logging.getLogger("quell")


async def permission(turn: Turn, request: ToolRequested, arguments: Mapping[str, Any], spec: ToolSpec) -> str | None:
    """None, or why not. `arguments` are those that the tool would get."""
    try:
        return await _permission(turn, request, arguments, spec)
    except (FencedError, StoreError):
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  a boundary: what cannot be decided is a no (H35)
        _log.error("whether %s may be used could not be decided", request.tool, exc_info=error)
        return f"whether {request.tool} may be used could not be decided: {said(error)}"


async def _permission(turn: Turn, request: ToolRequested, arguments: Mapping[str, Any], spec: ToolSpec) -> str | None:
    match await _policy(turn, request.tool, arguments, spec):
        case "allow":
            return None
        case "deny":
            some = any(key.startswith(f"{request.tool}(") for key in turn.session.agent.approval)
            return f"this agent may not use {request.tool}{' with these arguments' if some else ''}"
    session, wanted = turn.session, digest(request.tool, arguments, around(turn.session.agent))
    if (session.agent.name, wanted) in session.allowed or await _is_granted(session, wanted):
        return None
    turn.pass_fence()
    asked = turn.emit(ApprovalAsked, cause=request.seq, tool=request.tool, arguments=request.arguments, digest=wanted)
    try:
        answer = await _answer(turn, asked)
    except (Exception, SystemExit) as error:
        turn.emit(ApprovalWithdrawn, request=asked.seq, cause=asked.seq, reason=said(error))
        raise
    if isinstance(answer, ApprovalAnswered):
        if (keeping := session.keeping.get(asked.seq)) is not None:
            await keeping.wait()  # so that the next call finds it
        return None if answer.allow is True else answer.reason or "not approved"
    return answer.reason if isinstance(answer, ApprovalWithdrawn) else "not approved"


async def _policy(turn: Turn, tool: str, arguments: Mapping[str, Any], spec: ToolSpec) -> Policy:
    """In a thread where the disk is looked at: it may be slow (H25)."""
    agents, cwd = list(_agents(turn.session)), turn.session.cwd
    own = closed(turn.session.host.off_limits, cwd) if agents[0].isolation == "none" else []

    def decide() -> Policy:
        """A sub-agent is no way round the rules of whoever asks for it: what those do not allow is asked."""
        by = partial(policy, tool=tool, arguments=arguments, cwd=cwd, parameters=spec.parameters, own=own)
        mine = by(agents[0])
        return "ask" if mine == "allow" and any(by(one) != "allow" for one in agents[1:]) else mine

    looking = any(looks(one, tool, arguments) for one in agents)
    return await in_thread(decide, f"approval of {tool}") if looking else decide()


def _agents(session: Session | None) -> Iterator[Agent]:
    """Its own, and those of the sessions above it."""
    while session is not None:
        yield session.agent
        session = session.parent


async def _is_granted(session: Session, wanted: str) -> bool:
    """What cannot be read allows nothing: a person is asked."""
    grants, key = session.host.grants, bound(session.agent.name, session.cwd, wanted)
    try:
        return grants.holds(key) if grants.known() else await in_thread(partial(grants.holds, key), "grants")
    except (Exception, SystemExit) as error:  # noqa: BLE001  a boundary, as above
        _log.error("what is always allowed could not be read", exc_info=error)
        return False


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
