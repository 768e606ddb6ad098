"""Whether a tool may be called: allowed, denied, or asked of a person. No answer is a no, and unknown means ask.

Whatever raises on the way, the call is refused with a sentence, and what was asked is withdrawn (H35).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..config import Policy
from ..errors import FencedError, StoreError
from ..events import (
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalWithdrawn,
    Event,
    SessionConfigured,
    SessionOpened,
    ToolOutput,
    ToolRequested,
)
from ..ports import ToolSpec
from ..supervise.errand import Fact
from .grants import Grant, bound, digest
from .policy import looks, policy
from .registry import in_thread
from .subscription import said

if TYPE_CHECKING:
    from .session import Session
    from .turn import Turn

__all__ = ["allowed_in", "digest", "keep", "permission", "policy"]
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
    session, wanted = turn.session, digest(request.tool, arguments)
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
    agent, cwd = turn.session.agent, turn.session.cwd
    decide = partial(policy, agent, tool, arguments, cwd=cwd, parameters=spec.parameters)
    return await in_thread(decide, f"approval of {tool}") if looks(agent, tool) else decide()


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


# -- how far a yes goes


async def keep(session: Session, agent: str, asked: ApprovalAsked) -> bool:
    """Have it allowed always. If that cannot be written, the yes was for once, and the person is told."""
    host = session.host
    grant = Grant(bound(agent, session.cwd, asked.digest), agent, session.cwd, asked.tool, asked.arguments, asked.at)
    try:
        await host.loop.run_in_executor(None, host.grants.add, host.journal.redaction.thing(grant))
    except Exception as error:  # noqa: BLE001  a boundary: the call was allowed, whatever became of the rest
        words = f"allowed once, and not always: {error}"
        _log.error("%s", words)
        session.emit(
            ToolOutput(
                session=session.id,
                turn=asked.turn,
                epoch=asked.epoch,
                cause=asked.seq,
                request=asked.cause,
                channel="notice",
                text=words,
            )
        )
        return False
    return True


def allowed_in(events: Iterable[Event]) -> set[tuple[str, str]]:
    """What was allowed for the rest of a session: agent, and digest of tool and arguments."""
    agent, asked, found = "", dict[int, str](), set[tuple[str, str]]()
    for event in events:
        match event:
            case SessionOpened() | SessionConfigured():
                agent = event.agent or agent
            case ApprovalAsked():
                asked[event.seq] = event.digest
            case ApprovalAnswered() if event.allow and event.extent == "session" and event.request in asked:
                found.add((agent, asked[event.request]))
    return found
