"""Single faults in a good log, each of which breaks a rule: what is dropped, doubled, moved or changed."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from quell.events import ENDERS, OPENERS, Event, Reply, StopRequested, ToolEnded, ToolRefused, TurnStarted
from quell.testing.standing import EFFECTS

Mutation = Callable[[list[Event]], Iterator[tuple[str, list[Event]]]]
"""Gives broken logs, and says what was done to each."""


def renumbered(events: list[Event]) -> list[Event]:
    """In the order given, with every reference to the event that it meant: the first of that number."""
    new: dict[int, int] = {}
    for place, event in enumerate(events, 1):
        new.setdefault(event.seq, place)
    found = []
    for place, event in enumerate(events, 1):
        changes: dict[str, Any] = {"seq": place}
        for name in ("cause", "request", "upto"):
            if old := getattr(event, name, 0):
                changes[name] = new.get(old, 10_000 + old)
        if isinstance(waiting := getattr(event, "messages", None), list):
            changes["messages"] = [new.get(one, 10_000 + one) for one in waiting]
        found.append(msgspec.structs.replace(event, **changes))
    return found


MAY_BE_MISSED = frozenset(
    "message.delta message.done tool.output process.spawned process.ended session.compacted session.forked"
    " queue.parked queue.discarded runtime.ready runtime.stopped".split()
)
"""Kinds that a log may lack without breaking a rule; of all others each single one is missed."""


def without_one(events: list[Event]) -> Iterator[tuple[str, list[Event]]]:
    forked = {one.session for one in events if one.kind == "session.forked"}
    began = {one.cause for one in events if one.kind == "turn.started"}
    named = {one.cause for one in events} | {seq for one in events for seq in seqs(one)}
    failed = {
        one.request for one in events if isinstance(one, ToolRefused) or (isinstance(one, ToolEnded) and one.error)
    }
    for place, event in enumerate(events):
        quiet = (
            event.kind in MAY_BE_MISSED
            or (event.kind == "session.opened" and event.session in forked)
            or (event.kind == "message.user" and event.seq not in began | named)
            or (event.kind == "tool.started" and event.request in failed and event.seq not in named)
            or (event.kind == "queue.released" and not began & set(seqs(event)) - parked_from(events[place:]))
        )
        if not quiet:
            yield f"without {event.seq} {event.kind}", events[:place] + events[place + 1 :]


def parked_from(events: list[Event]) -> set[int]:
    return {seq for one in events if one.kind == "queue.parked" for seq in seqs(one)}


def seqs(event: Event) -> list[int]:
    found = getattr(event, "messages", [])
    return found if isinstance(found, list) else []


def with_a_second_end(events: list[Event]) -> Iterator[tuple[str, list[Event]]]:
    for place, event in enumerate(events):
        if event.kind in ENDERS:
            yield f"{event.seq} {event.kind} twice", [*events[: place + 1], event, *events[place + 1 :]]
            yield f"{event.seq} {event.kind} again at the end", [*events, event]


def with_the_end_first(events: list[Event]) -> Iterator[tuple[str, list[Event]]]:
    where = {event.seq: place for place, event in enumerate(events)}
    for place, event in enumerate(events):
        if isinstance(event, Reply):
            start = where[event.request]
            moved = [*events[:start], event, *events[start:place], *events[place + 1 :]]
            yield f"{event.seq} {event.kind} before its request", moved


def with_an_effect_after_the_stop(events: list[Event]) -> Iterator[tuple[str, list[Event]]]:
    for at, stop in enumerate(events):
        if isinstance(stop, StopRequested) and stop.turn:
            for place, event in enumerate(events[:at]):
                if event.kind in EFFECTS and (event.session, event.turn) == (stop.session, stop.turn):
                    moved = [*events[:place], *events[place + 1 : at + 1], event, *events[at + 1 :]]
                    yield f"{event.seq} {event.kind} after the stop {stop.seq}", moved


def with_another_request(events: list[Event]) -> Iterator[tuple[str, list[Event]]]:
    openers = [event for event in events if event.kind in OPENERS]
    for place, event in enumerate(events):
        if isinstance(event, Reply):
            for other in openers[:: max(1, len(openers) // 4)]:
                if other.seq != event.request and event.kind in ENDERS:
                    changed = msgspec.structs.replace(event, request=other.seq)
                    yield f"{event.seq} {event.kind} to {other.seq}", [*events[:place], changed, *events[place + 1 :]]


def with_another_envelope(events: list[Event]) -> Iterator[tuple[str, list[Event]]]:
    for place, event in enumerate(events):
        for name, value in (("session", "elsewhere"), ("turn", event.turn + 7), ("cause", 99_999)):
            alone = name != "cause" and not isinstance(event, Reply | TurnStarted)
            if not alone and event.kind != "harness.ended":
                changed = msgspec.structs.replace(event, **{name: value})
                yield f"{event.seq} {event.kind} with {name} {value}", [*events[:place], changed, *events[place + 1 :]]


MUTATIONS = (
    without_one,
    with_a_second_end,
    with_the_end_first,
    with_an_effect_after_the_stop,
    with_another_request,
    with_another_envelope,
)
