"""A foreign agent that a session hosts: started when it is first needed, kept between turns, ended with the session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..errors import QuellError
from ..events import HarnessEnded, HarnessIdle, HarnessReady, HarnessStarting, MessageDelta, MessageDone, Usage
from ..ports import Hosted, Text
from .chunks import closing
from .mind import check_limits
from .silence import Silence

if TYPE_CHECKING:
    from ..supervise import Scope
    from .session import Session
    from .turn import Turn


class HarnessFault(QuellError):
    """The harness failed: the turn fails with its words."""


class Guest:
    """One incarnation of a harness, in a scope of its own below the session's."""

    def __init__(self, scope: Scope, request: HarnessStarting) -> None:
        self.scope = scope
        self.request = request
        self.hosted: Hosted | None = None


async def converse(turn: Turn) -> None:
    """A whole turn with a harness in the place of a model."""
    session, name = turn.session, turn.session.agent.harness
    guest = session.guest
    if guest is None or guest.scope.stopping is not None:
        guest = await _start(turn, name)
    assert guest.hosted is not None
    turn.pass_fence()
    said: list[str] = []
    origin = turn.started.seq

    def notice(words: str) -> None:
        turn.emit(MessageDelta, request=origin, cause=origin, text=f"[{words}]")

    with Silence(session.host.loop, session.host.settings.silent, notice, name) as silence:
        try:
            async with closing(guest.hosted.send(turn.message.text)) as chunks:
                async for chunk in chunks:
                    silence.broken()
                    if isinstance(chunk, Usage):
                        turn.usage += chunk
                        check_limits(turn)
                    elif isinstance(chunk, Text):
                        said.append(chunk.text)
                        turn.emit(MessageDelta, request=origin, cause=origin, source=f"harness:{name}", text=chunk.text)
        except QuellError:
            raise
        except Exception as error:  # a boundary: whatever a harness raises, its turn gets an end
            raise HarnessFault(f"the harness failed: {type(error).__name__}: {error}") from error
    turn.steps += 1
    turn.emit(MessageDone, request=origin, cause=origin, source=f"harness:{name}", text="".join(said))
    _say(session, HarnessIdle, guest)


async def _start(turn: Turn, name: str) -> Guest:
    """Log first, then the fence, then the start, with its deadline."""
    session, host = turn.session, turn.session.host
    harness = host.registry.harness(name)
    turn.pass_fence()
    asked = session.emit(HarnessStarting(session=session.id, epoch=turn.epoch, cause=turn.started.seq, harness=name))
    guest = session.guest = Guest(session.ground().scope("harness"), asked)
    await host.journal.committed(asked)
    turn.pass_fence()
    start = guest.scope.task(harness.start(guest.scope, session.cwd), name=f"start of {name}")
    start.add_done_callback(lambda task: task.cancelled() or task.exception())
    limit = host.settings.harness
    done, _ = await asyncio.wait([start], timeout=limit)
    if not done or start.cancelled() or start.exception() is not None:
        why = (
            "it was stopped" if done and start.cancelled() else start.exception() if done else f"not within {limit:g} s"
        )
        await guest.scope.stop(reason="not started")
        leave(session, f"not started: {why}")
        raise HarnessFault(f"the harness {name} did not start: {why}")
    guest.hosted = start.result()
    _say(session, HarnessReady, guest)
    return guest


def leave(session: Session, reason: str) -> None:
    """Its end, recorded once, when its scope is over."""
    guest, session.guest = session.guest, None
    if guest is not None:
        _say(session, HarnessEnded, guest, reason=reason)


def _say(session: Session, make: type, guest: Guest, **fields: str) -> None:
    seq = guest.request.seq
    session.emit(make(session=session.id, epoch=session.epoch, cause=seq, request=seq, **fields))
