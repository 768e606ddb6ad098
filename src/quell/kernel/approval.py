"""Whether a tool may be called: allowed, denied, or asked of a person. No answer is a no, and unknown means ask.

Whatever raises on the way, the call is refused with a sentence, and what was asked is withdrawn (H35).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..config import Agent, Policy, rule
from ..errors import FencedError, StoreError
from ..events import (
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalWithdrawn,
    Event,
    ToolOutput,
    ToolRequested,
)
from ..ports import ToolSpec
from ..supervise.errand import Fact
from .grants import bound, digest
from .isolation import around
from .own import closed, is_named
from .own import looks as own_looks
from .patterns import kind_of
from .policy import looks, policy
from .registry import in_thread
from .subscription import said

if TYPE_CHECKING:
    from .session import Session
    from .turn import Turn

__all__ = ["digest", "permission", "policy"]
OWN = "it names Quell's own configuration, plugins or state, or is too long to tell: asked, whatever a rule allows"
STRICTEST: tuple[Policy, ...] = ("deny", "ask", "allow")
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
    verdict = await _verdict(turn, request.tool, arguments, spec)
    match verdict.word, verdict.agent:
        case "allow", _:
            return None
        case "deny", agent:
            some = any(key.startswith(f"{request.tool}(") for key in agent.approval)
            who = "this agent" if agent is turn.session.agent else f"the agent {agent.name}, which asked for this one,"
            return f"{who} may not use {request.tool}{' with these arguments' if some else ''}"
    session, wanted = turn.session, digest(request.tool, arguments, around(turn.session.agent))
    if (session.agent.name, wanted) in session.allowed or await _is_granted(session, wanted):
        return None
    turn.pass_fence()
    if verdict.own:
        turn.emit(ToolOutput, request=request.seq, cause=request.seq, channel="notice", text=OWN)
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


class Verdict(NamedTuple):
    word: Policy
    agent: Agent
    """Whose rule it is."""
    own: bool = False
    """Whether it has to do with what is Quell's own."""


async def _verdict(turn: Turn, tool: str, arguments: Mapping[str, Any], spec: ToolSpec) -> Verdict:
    """In a thread where the disk is looked at: it may be slow (H25)."""
    agents, cwd = [one.agent for one in turn.session.line()], turn.session.cwd
    own = closed(turn.session.host.off_limits, cwd) if agents[0].isolation == "none" else []
    commands = [one for name, one in arguments.items() if kind_of(name) == "command" and isinstance(one, str)]

    def decide() -> Verdict:
        """A sub-agent is no way round the rules of whoever asks for it: the strictest of them counts."""
        by = partial(policy, tool=tool, arguments=arguments, cwd=cwd, parameters=spec.parameters)
        found = [
            Verdict(by(agents[0]), agents[0]),
            *(Verdict(_for_others(one, tool, by(one)), one) for one in agents[1:]),
        ]
        strictest = min(found, key=lambda one: STRICTEST.index(one.word))
        if not any(is_named(one, cwd, own) for one in commands):
            return strictest
        return Verdict("deny" if strictest.word == "deny" else "ask", strictest.agent, own=True)

    looking = bool(own) and any(map(own_looks, commands))
    async with turn.deciding:  # in the order of the calls: a server is started before who asks it
        if looking or any(looks(one, tool) for one in agents):
            return await in_thread(decide, f"approval of {tool}")
        return decide()


def _for_others(agent: Agent, tool: str, verdict: Policy) -> Policy:
    """What is allowed to it by `*` is what it has: of a tool that it has not, only a rule of that tool's own tells."""
    meant = tool in agent.tools or any(rule(key).tool == tool for key in agent.approval)
    return verdict if meant or verdict != "allow" else "ask"


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
