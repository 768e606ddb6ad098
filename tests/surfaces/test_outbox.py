"""What waits for one client: bounded, in order, merged, and given away in messages that are all or nothing."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from quell.events import AdmissionReopened, Event, ModelDelta, ModelRestarted, PluginEvent, ToolOutput, encode
from quell.surfaces.http.outbox import CROWD, ENTRIES, MESSAGE, SIZE, Bundle, Outbox, Wish
from tests.supervise.loops import run_on

from .audience import delta, said, texts


def filled(*events: Event, wish: Wish | None = None) -> Outbox:
    outbox = Outbox(wish or Wish())
    for event in events:
        outbox.put(event, encode(event))
    return outbox


def emptied(outbox: Outbox) -> list[dict[str, Any]]:
    found = []
    while (bundle := outbox.next()) is not None:
        found.append(json.loads(bundle.encode()))
    assert len(outbox) == outbox.size == 0
    return found


def test_events_come_out_as_they_were_encoded_in_order_in_one_message() -> None:
    events = [said(3), AdmissionReopened(seq=4), PluginEvent(seq=5, session="s1", plugin="p", name="n", data=[1])]
    bodies = [encode(event) for event in events]
    outbox = Outbox(Wish())
    for event, body in zip(events, bodies, strict=True):
        outbox.put(event, body)
    bundle = outbox.next()
    assert bundle is not None and bundle.seq == 5
    assert bundle.encode() == b'{"type":"events","events":[%b],"seq":5}' % b",".join(bodies)
    assert outbox.next() is None


def test_deltas_of_one_request_become_one_that_stands_where_the_last_was() -> None:
    [message] = emptied(filled(delta(2, "a"), delta(3, "x", session="s2", request=9), delta(4, "b"), delta(5, "c")))
    assert [(one["seq"], one["text"]) for one in message["events"]] == [(3, "x"), (5, "abc")]
    assert message["seq"] == 5


def test_channels_kinds_and_requests_are_not_mixed() -> None:
    events: list[Event] = [
        ModelDelta(seq=2, session="s1", request=1, text="t"),
        ModelDelta(seq=3, session="s1", request=1, text="r", channel="reasoning"),
        ToolOutput(seq=4, session="s1", request=1, text="o"),
        delta(5, "m"),
        delta(6, "other", request=2),
        ModelDelta(seq=7, session="s1", request=1, text="T"),
        ModelDelta(seq=8, session="s1", request=1, text="R", channel="reasoning"),
    ]
    [message] = emptied(filled(*events))
    assert [one["text"] for one in message["events"]] == ["o", "m", "other", "tT", "rR"]


def test_text_is_not_moved_past_what_came_between_in_its_session() -> None:
    [message] = emptied(filled(delta(2, "a"), said(3), delta(4, "b"), delta(5, "c")))
    assert [one["seq"] for one in message["events"]] == [2, 3, 5]
    assert texts(message["events"]) == "abc"


def test_what_is_void_is_not_joined_with_what_counts() -> None:
    void = ModelRestarted(seq=4, session="s1", request=1)
    [message] = emptied(filled(delta(2, "on"), delta(3, "e t"), void, delta(5, "fo"), delta(6, "ur")))
    assert [one.get("text") for one in message["events"]] == ["one t", None, "four"]


def test_text_of_other_sessions_is_merged_past_it() -> None:
    [message] = emptied(filled(delta(2, "a"), said(3, session="s2"), delta(4, "b")))
    assert [one["seq"] for one in message["events"]] == [3, 4]


def test_a_merged_delta_keeps_all_that_the_last_one_says() -> None:
    last = ModelDelta(seq=9, at=2.5, session="s1", turn=3, epoch=4, cause=1, request=1, text="\u2028b", source="model")
    [message] = emptied(filled(ModelDelta(seq=8, session="s1", request=1, text="😀"), last))
    assert message["events"] == [json.loads(encode(msgspec.structs.replace(last, text="😀\u2028b")))]


def test_a_message_is_whole_whatever_its_seq_stands_for_is_in_it() -> None:
    """H36: who goes on after it reads from the log what has a higher seq, and nothing else."""
    outbox = Outbox(Wish())
    seq = 0
    for _ in range(3 * MESSAGE // 1000):
        for session in ("s1", "s2"):
            seq += 1
            event = delta(seq, f"{seq} " + "." * 500, session=session)
            outbox.put(event, encode(event))
    messages = emptied(outbox)
    assert len(messages) > 2
    have = 0
    for message in messages:
        mentioned = [int(word) for word in texts(message["events"]).replace(".", "").split()]
        assert sorted(mentioned) == list(range(have + 1, message["seq"] + 1))
        have = message["seq"]
    assert have == seq


def test_a_message_is_full_at_some_point() -> None:
    messages = emptied(filled(*(said(seq) for seq in range(1, CROWD * 2 + 2))))
    assert [len(message["events"]) for message in messages] == [CROWD, CROWD, 1]


def test_too_many_events_are_dropped_as_a_whole_with_a_reason() -> None:
    """H39."""
    outbox = filled(*(said(seq) for seq in range(1, ENTRIES + 1)))
    assert not outbox.over and len(outbox) == ENTRIES
    outbox.put(said(9999), encode(said(9999)))
    assert outbox.over == f"more than {ENTRIES} events waited to be taken" and outbox.urgent
    outbox.put(said(10000), encode(said(10000)))
    assert emptied(outbox) == []


def test_too_much_text_is_too_much_however_well_it_merges() -> None:
    """H39: a stalled client is bounded, whether it is sent many events or one that grows."""
    outbox, seq = Outbox(Wish()), 0
    event = delta(1, "x" * 1000)
    body = encode(event)
    while not outbox.over and seq < 10_000:
        seq += 1
        msgspec.structs.force_setattr(event, "seq", seq)
        outbox.put(event, body)
        assert outbox.size <= SIZE
    assert outbox.over == "more than 4 MB waited to be taken" and outbox.size == 0
    outbox, seq = Outbox(Wish()), 0
    event = delta(1, "")
    while not outbox.over and seq < 200_000:
        seq += 1
        msgspec.structs.force_setattr(event, "seq", seq)
        outbox.put(event, body)
    assert outbox.over


def test_one_event_is_never_too_large() -> None:
    outbox = filled(said(1, "x" * (SIZE + 1)))
    assert not outbox.over and len(emptied(outbox)[0]["events"]) == 1
    outbox = filled(said(1), said(2, "x" * (SIZE + 1)))
    assert outbox.over


def test_what_gave_up_can_begin_anew() -> None:
    outbox = filled(*(said(seq) for seq in range(1, ENTRIES + 2)))
    outbox.clear()
    outbox.put(said(7), encode(said(7)))
    assert not outbox.over and [one["seq"] for one in emptied(outbox)] == [7]


def test_what_the_client_has_already_is_not_put_in() -> None:
    outbox = Outbox(Wish())
    outbox.skip = 5
    for seq in (4, 5, 6):
        outbox.put(said(seq), encode(said(seq)))
    assert [one["seq"] for one in emptied(outbox)] == [6]


def test_deltas_are_not_urgent_and_everything_else_is() -> None:
    assert not filled(delta(1, "a")).urgent
    outbox = filled(delta(1, "a"), said(2), delta(3, "b"))
    assert outbox.urgent
    emptied(outbox)
    assert not outbox.urgent


@pytest.mark.parametrize("early", [True, False])
def test_whoever_waits_is_woken_once_also_by_what_came_before(early: bool) -> None:
    async def main() -> None:
        outbox, loop = Outbox(Wish()), asyncio.get_running_loop()
        if early:
            outbox.wake()
            outbox.wake()
        else:
            loop.call_soon(outbox.wake)
        await outbox.wait()
        loop.call_later(0.01, outbox.wake)
        await outbox.wait()
        assert outbox._waiter is None

    run_on(asyncio.new_event_loop, main)


def test_an_empty_message_is_still_one() -> None:
    assert json.loads(Bundle().encode()) == {"type": "events", "events": [], "seq": 0}
