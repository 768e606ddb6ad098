"""What a person says to a question, and how far a yes goes: once, in this session, or always."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, get_args

from ..config import Agent
from ..errors import UsageError
from ..events import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    Extent,
    SessionConfigured,
    SessionOpened,
    ToolOutput,
)
from .asked import is_text
from .grants import Grant, bound
from .isolation import around

if TYPE_CHECKING:
    from .session import Session

_log = logging.getLogger("quell")


def answer(session: Session, request: int, allow: bool, reason: str, extent: Extent) -> ApprovalAnswered:
    """In one step. UsageError says what makes no sense, and leaves the question open."""
    if not isinstance(allow, bool):
        raise UsageError(f"an approval is answered True or False, not {allow!r}")
    if extent not in get_args(Extent):
        raise UsageError(f"a yes goes as far as 'once', 'session' or 'always', not {extent!r}")
    if extent != "once" and not allow:
        raise UsageError("a no is for once: only a yes goes further")
    is_text("a reason", reason)
    asked = session.host.journal.requests.get(request)
    if not isinstance(asked, ApprovalAsked) or asked.session != session.id:
        raise UsageError(f"there is no open approval {request} in session {session.id}: it was answered or withdrawn")
    answered = session.emit(
        ApprovalAnswered(
            session=session.id,
            turn=asked.turn,
            epoch=session.epoch,
            source="user",
            cause=request,
            request=request,
            allow=allow,
            reason=reason,
            extent=extent,
        )
    )
    if answered.seq and extent == "session":
        session.allowed.add((session.agent.name, asked.digest))
    elif answered.seq and extent == "always":
        host, agent = session.host, session.agent
        session.keeping[request] = kept = host.see_to(lambda: keep(session, agent, asked))
        kept.then(lambda: host.loop.call_soon(session.keeping.pop, request, None))  # who asks now finds it still
    return answered


async def keep(session: Session, agent: Agent, asked: ApprovalAsked) -> bool:
    """Have it allowed always. If that cannot be written, the yes was for once, and the person is told."""
    host = session.host
    key = bound(agent.name, session.cwd, asked.digest)
    grant = Grant(key, agent.name, session.cwd, asked.tool, asked.arguments, asked.at, around(agent))
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
