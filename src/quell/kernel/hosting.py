"""A foreign agent that a session hosts: started when it is first needed, kept between turns, ended with the session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..errors import FencedError, QuellError, StoreError
from ..events import HarnessEnded, HarnessIdle, HarnessReady, HarnessStarting, MessageDelta, MessageDone, Usage
from ..ports import Harness, Hosted, Text
from .chunks import Pace, closing
from .mind import LimitReached, check_limits
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
    if guest is not None and (guest.hosted is None or guest.scope.stopping is not None):
        await _end(session, guest, "stopped")  # half started, or stopped from outside
        guest = None
    if guest is None:
        guest = await _start(turn, name)
    assert guest.hosted is not None
    await session.host.journal.committed(turn.started)
    turn.pass_fence()  # and in this very step it is asked
    said, pace = list[str](), Pace()
    origin = turn.started.seq

    def notice(words: str) -> None:
        turn.emit(MessageDelta, request=origin, cause=origin, text=f"[{words}]")

    with Silence(session.host.loop, session.host.settings.silent, notice, name) as silence:
        try:
            async with closing(guest.hosted.send(turn.message.text)) as chunks:
                async for chunk in chunks:
                    await pace.step()
                    silence.broken()
                    if isinstance(chunk, Usage):
                        turn.used(chunk)
                        check_limits(turn)
                    elif isinstance(chunk, Text):
                        said.append(chunk.text)
                        turn.emit(MessageDelta, request=origin, cause=origin, source=f"harness:{name}", text=chunk.text)
        except (FencedError, LimitReached, StoreError):
            raise
        except Exception as error:  # a boundary: whatever a harness raises, its turn gets an end
            await _end(session, guest, "it failed")  # whether it can go on nobody knows: the next turn gets another
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
    try:
        guest.hosted = await _started(turn, guest, harness)
    except BaseException:
        guest.scope.begin_stop("not started", 0)  # half a start is none; its end is recorded by whoever comes next
        raise
    _say(session, HarnessReady, guest)
    return guest


async def _started(turn: Turn, guest: Guest, harness: Harness) -> Hosted:
    session, host, name = turn.session, turn.session.host, guest.request.harness
    await host.journal.committed(guest.request)
    turn.pass_fence()
    start = guest.scope.task(harness.start(guest.scope, session.cwd), name=f"start of {name}")
    start.add_done_callback(lambda task: task.cancelled() or task.exception())
    limit = host.settings.harness
    done, _ = await asyncio.wait([start], timeout=limit)
    if not done or start.cancelled() or start.exception() is not None:
        why = (
            "it was stopped" if done and start.cancelled() else start.exception() if done else f"not within {limit:g} s"
        )
        await _end(session, guest, f"not started: {why}")
        raise HarnessFault(f"the harness {name} did not start: {why}")
    return start.result()


async def _end(session: Session, guest: Guest, reason: str) -> None:
    """Nothing is left of it, and that is recorded."""
    await guest.scope.begin_stop(reason).wait()
    if session.guest is guest:
        leave(session, reason)


def dismiss(session: Session, reason: str) -> None:
    """Somebody else answers from here on. Its end is recorded when nothing is left of it."""
    guest = session.guest
    if guest is not None:
        guest.scope.begin_stop(reason)  # in this very step: the next turn finds it stopped
        session.host.see_to(lambda: _end(session, guest, reason))


def leave(session: Session, reason: str) -> None:
    """Its end, recorded once, when its scope is over."""
    guest, session.guest = session.guest, None
    if guest is not None:
        _say(session, HarnessEnded, guest, reason=reason)


def _say(session: Session, make: type, guest: Guest, **fields: str) -> None:
    seq = guest.request.seq
    session.emit(make(session=session.id, epoch=session.epoch, cause=seq, request=seq, **fields))
