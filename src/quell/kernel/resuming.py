"""A session as the log has it: its history, its queue, what was allowed in it, and the sandbox that it was in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from ..config import Agent
from ..errors import NoSessionError, UsageError
from ..events import (
    Event,
    SessionConfigured,
    SessionDeleted,
    SessionForked,
    SessionOpened,
    SessionRenamed,
    TurnStarted,
)
from .answering import allowed_in
from .asked import folder
from .isolation import confined
from .leftovers import Queue
from .session import Session

if TYPE_CHECKING:
    from .host import Host

E = TypeVar("E", bound=Event)


async def from_log(host: Host, id_: str, agent: str = "", model: str = "") -> Session:
    """Nobody else knows it yet. Who is named answers, also where whoever answered before is not there any more."""
    events = await host.journal.read(session=id_)
    opened = _last(SessionOpened, events)
    if opened is None or _last(SessionDeleted, events) is not None:
        raise NoSessionError(f"there is no session {id_!r}")
    last = _last(SessionConfigured, events)
    if agent:  # as `Session.use` has it: it brings its own model, or has the one before
        answers = host.agent(agent, model, instead=last.model if last is not None else "")
    else:
        answers = await _agent(host, events, last or opened, model)
    place = folder(opened.cwd)
    await host.sandbox.check(answers, place)
    session = Session(host, id_, answers, place, opened.title, None, None)
    session.history = await host.archive.history(id_)
    session.allowed = allowed_in(events)
    queue, title, turns = Queue(), opened.title, 0
    for event in events:
        queue.apply(event)
        title = event.title if isinstance(event, SessionRenamed) else title
        turns = event.turn if isinstance(event, TurnStarted) else turns
    waiting = [one for one in (queue.parked | queue.waiting).values() if one is not None]
    parked = sorted(waiting, key=lambda one: one.seq)
    session.depth = opened.depth
    session.resumed(title, max(one.epoch for one in events), turns, parked)
    return session


async def _agent(host: Host, events: Sequence[Event], last: SessionConfigured | SessionOpened, model: str) -> Agent:
    """Who answers. A sub-agent stays in the sandbox of whoever asked for it, unless a person chose an agent since."""
    before = last.model if isinstance(last, SessionConfigured) else ""
    agent = host.agent(last.agent, model or before)
    for name in await _above(host, events):
        if name not in host.agents:
            raise UsageError(f"{agent.name} works for the agent {name}, perhaps in its sandbox, and there is none now")
        agent = confined(agent, host.agents[name])
    return agent


async def _above(host: Host, events: Sequence[Event]) -> list[str]:
    """The agents that asked for it, one for the other, as they were then; of a fork, those of its origin."""
    names: list[str] = []
    while (opened := _last(SessionOpened, events)) is not None and not any(map(_is_choice, events)):
        forked = _last(SessionForked, events)
        origin = opened.parent or (forked.origin if forked is not None else "")
        if not origin:
            break
        events = await host.journal.read(session=origin, upto=opened.seq, kinds=("session.",))
        asker = _last(SessionConfigured, events) or _last(SessionOpened, events)
        if opened.parent and asker is not None:
            names.append(asker.agent)
    return names


def _is_choice(event: Event) -> bool:
    return isinstance(event, SessionConfigured) and event.chosen


def _last(kind: type[E], events: Sequence[Event]) -> E | None:
    return next((one for one in reversed(events) if isinstance(one, kind)), None)
