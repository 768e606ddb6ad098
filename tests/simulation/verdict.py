"""What must be true after any simulation: the log keeps its rules, nothing began behind the fence, nothing was lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from quell.events import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    MessageUser,
    QueueDiscarded,
    QueueParked,
    QueueReleased,
    RuntimeErrored,
    RuntimeStopped,
    SessionDeleted,
    SessionOpened,
    StopReceipt,
    StopRequested,
    ToolRequested,
    ToolStarted,
    TurnStarted,
    decode,
)
from quell.kernel.runtime import LEFT_OPEN
from quell.testing.checking import offences

from .world import World


@dataclass
class Waiting:
    """A message that was not answered yet."""

    session: str
    stop: int = 0
    parked: bool = False


def judge(world: World) -> list[str]:
    """Every offence, in words; none when all is well."""
    log = [decode(row.body) for row in world.disk.rows]
    emitted = [decode(row.body) for row in world.disk.written]
    found = [*world.offences, *world.disk.offences, *offences(log)]
    found += [
        f"seq {one.seq}: {one.error}" for one in log if isinstance(one, RuntimeErrored) and one.where == LEFT_OPEN
    ]
    found += fence(world, emitted)
    found += intents(world, emitted)
    found += receipts(world, emitted)
    found += approvals(emitted)
    found += ends(world, emitted)
    found += messages(log)
    return found


def fence(world: World, emitted: list[Event]) -> list[str]:
    """No tool began, and no command was asked for, after the stop of its turn was recorded."""
    epochs = {(one.session, one.turn): one.epoch for one in emitted if isinstance(one, TurnStarted)}
    stops = [one for one in emitted if isinstance(one, StopRequested)]
    calls = {one.arguments["token"]: one for one in emitted if isinstance(one, ToolRequested)}

    def stop_before(session: str, turn: int, last: int) -> StopRequested | None:
        epoch = epochs[session, turn]
        lost = next((lost for began, lost in reversed(world.losses) if began <= last), set[int]())
        for one in stops:
            if one.session == session and one.epoch > epoch and one.seq <= last and one.seq not in lost:
                return one
        return None

    found = [
        f"{effect.token} of {effect.session} began at {effect.last}, after the stop {stop.seq}"
        for effect in world.stage.effects
        if (stop := stop_before(effect.session, effect.turn, effect.last))
    ]
    for life in world.lives:
        call = calls[life.call.rstrip("&")]
        if stop := stop_before(call.session, call.turn, life.asked):
            found.append(
                f"a command of {life.call} in {call.session} was asked for at {life.asked}, after the stop {stop.seq}"
            )
    return found


def intents(world: World, emitted: list[Event]) -> list[str]:
    """What began was written down before, on disk; and nothing began twice."""
    calls = {one.arguments["token"]: one.seq for one in emitted if isinstance(one, ToolRequested)}
    started = {one.request: one.seq for one in emitted if isinstance(one, ToolStarted)}
    found = []
    for effect in world.stage.effects:
        intent = started.get(calls.get(effect.token, 0), 0)
        if not intent:
            found.append(f"{effect.token} began without a tool.started")
        elif intent > effect.safe:
            found.append(f"{effect.token} began before its intent {intent} was on disk")
    twice = [token for token, number in Counter(one.token for one in world.stage.effects).items() if number > 1]
    return [*found, *(f"{token} was run twice" for token in twice)]


def receipts(world: World, emitted: list[Event]) -> list[str]:
    """A confirmed stop of a session leaves no command of it, and one of a turn none but those in the background."""
    stops = {one.seq: one for one in emitted if isinstance(one, StopRequested)}
    calls = {one.arguments["token"]: one for one in emitted if isinstance(one, ToolRequested)}
    found = []
    for one in emitted:
        if not isinstance(one, StopReceipt) or not one.confirmed:
            continue
        stop = stops[one.request]
        for life in world.lives:
            call = calls[life.call.rstrip("&")]
            lived = life.asked < stop.seq and (life.ended is None or life.ended >= one.seq)
            meant = not stop.session or call.session == stop.session
            if stop.reach == "turn":
                meant = meant and call.turn == stop.turn and not life.call.endswith("&")
            if lived and meant:
                found.append(f"a command of {life.call} outlived the confirmed stop {stop.seq} of {call.session}")
    return found


def approvals(emitted: list[Event]) -> list[str]:
    """Where a person must be asked, nothing began without that person's yes; and where it is denied, nothing did."""
    agents = {one.session: one.agent for one in emitted if isinstance(one, SessionOpened)}
    calls = {one.seq: one for one in emitted if isinstance(one, ToolRequested)}
    asked = {one.seq: one.cause for one in emitted if isinstance(one, ApprovalAsked)}
    allowed = {asked[one.request] for one in emitted if isinstance(one, ApprovalAnswered) and one.allow}
    found = []
    for one in emitted:
        if isinstance(one, ToolStarted):
            call = calls[one.request]
            asking = agents[one.session] == "asking" and call.tool != "work"
            if (asking and call.seq not in allowed) or agents[one.session] == "bare":
                found.append(f"{call.tool} {call.seq} of {one.session} began, and nobody allowed it")
    return found


def ends(world: World, emitted: list[Event]) -> list[str]:
    """After `runtime.stopped` a runtime says nothing more."""
    starts = [began for began, _ in world.losses]
    over = 0
    found = []
    for one in emitted:
        if over and any(over <= began < one.seq for began in starts):
            over = 0  # the next one speaks
        if over:
            found.append(f"{one.kind} {one.seq} was written after runtime.stopped {over}")
        if isinstance(one, RuntimeStopped):
            over = one.seq
    return found


def messages(log: list[Event]) -> list[str]:
    """Every message was answered, discarded, or waits parked; and none that waited at a stop ran before its release."""
    gone = {one.session for one in log if isinstance(one, SessionDeleted)}
    waits: dict[int, Waiting] = {}
    found = []
    for one in log:
        match one:
            case MessageUser() if one.session not in gone:
                waits[one.seq] = Waiting(one.session)
            case StopRequested():
                for waiting in waits.values():
                    if waiting.session == one.session:
                        waiting.stop = one.seq
            case TurnStarted() if one.cause in waits:
                if stop := waits.pop(one.cause).stop:
                    found.append(
                        f"message {one.cause} of {one.session} was answered though the stop {stop} found it waiting"
                    )
            case QueueDiscarded():
                for seq in one.messages:
                    waits.pop(seq, None)
            case QueueParked():
                for seq in set(one.messages) & set(waits):
                    waits[seq].parked = True
            case QueueReleased():
                for seq in set(one.messages) & set(waits):
                    waits[seq].parked, waits[seq].stop = False, 0
    return [*found, *(f"message {seq} was neither answered nor parked" for seq, one in waits.items() if not one.parked)]
