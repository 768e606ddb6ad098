"""`check_log` refuses every log that breaks a rule, with the sentence that says so, and no log that keeps them all."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from quell.events import (
    KINDS,
    OPENERS,
    AdmissionReopened,
    ApprovalWithdrawn,
    Event,
    HarnessEnded,
    HarnessReady,
    HarnessStarting,
    PluginEvent,
    Reply,
    SessionClosed,
    SessionDeleted,
    StopReceipt,
    encode,
    kind_of,
)
from quell.ports import Row
from quell.stores.sqlite import SqliteStore
from quell.testing.checking import LogBroken, check_log, offences
from quell.testing.standing import ANSWERS

from .broken import PLANTS, talk
from .mutations import MUTATIONS, Mutation, renumbered
from .script import Chat, Script, rich
from .wander import wander

WALKS = 150
"""Random logs."""


# -- logs that keep the rules


def test_a_log_in_which_everything_happens_is_accepted() -> None:
    check_log(rich().events)


@pytest.mark.parametrize("seed", range(0, WALKS, 10))
def test_random_logs_that_keep_the_rules_are_accepted(seed: int) -> None:
    for one in range(seed, seed + 10):
        assert offences(wander(one)) == [], f"seed {one}"


def test_a_crash_and_what_the_next_start_writes_is_accepted() -> None:
    """H23: everything in flight gets its end, the innermost first, and the numbers have a gap."""
    chat = talk()
    waiting = chat.say("later")
    tool = chat.want()
    chat.start(tool)
    asked = chat.ask_approval(chat.want("c2"))
    stop = chat.stop()
    before = list(chat.script.events)
    check_log(before, live=True)
    assert len(offences(before)) == 5, "a turn, two calls, an approval and a stop never end"

    chat.script.skip(100)
    chat.receipt(stop, confirmed=False)
    chat.inside(ApprovalWithdrawn, request=asked.seq)
    chat.refuse(next(one for one in before if one.seq == asked.cause))  # type: ignore[arg-type]
    chat.finish(tool, "", error="interrupted")
    chat.end("interrupted")
    chat.park(waiting)
    chat.script.ready()
    chat.release(waiting)
    chat.begin(waiting)
    chat.end()
    check_log(chat.script.events)


def test_what_is_left_of_a_deleted_session_is_accepted() -> None:
    script = Script()
    script.ready()
    a, b = script.open("a"), script.open("b")
    b.exchange("hello", "hi")
    fork = script.fork("c", "b", script.events[-1].seq)
    step = b.say("to be deleted")
    fork.begin(fork.say("go on", cause=step.seq))
    fork.end()
    stop = b.stop("session", turn=0)
    b.receipt(stop)
    b.emit(SessionDeleted, events=9)
    a.exchange("still here", "yes")
    check_log(script.events)
    rest = [one for one in script.events if one.session != "b" or isinstance(one, SessionDeleted)]
    check_log(rest)
    kept = [one for one in script.events if one.session != "b" or isinstance(one, SessionDeleted | StopReceipt)]
    check_log(kept)
    assert offences([one for one in rest if not isinstance(one, SessionDeleted)]) != []


def test_a_harness_outlives_the_turn_that_started_it() -> None:
    chat = talk()
    harness = chat.inside(HarnessStarting, harness="acp")
    chat.inside(HarnessReady, request=harness.seq)
    chat.end()
    chat.emit(HarnessEnded, request=harness.seq)
    check_log(chat.script.events)


def test_a_closed_session_is_resumed_without_a_word() -> None:
    chat = talk()
    chat.end()
    chat.emit(SessionClosed)
    chat.exchange("again", "yes")
    check_log(chat.script.events)


def test_after_a_stop_of_all_things_start_again_once_admission_is_reopened() -> None:
    """H21: it stays closed until then, over restarts too."""
    script = Script()
    script.ready()
    chat = script.open("a")
    everything, [stop] = script.stop_all(chat)
    chat.receipt(stop)
    script.add(StopReceipt(request=everything.seq, confirmed=True))
    script.halt()
    script.ready()
    script.add(AdmissionReopened())
    chat.exchange("hello", "hi")
    check_log(script.events)


def test_plugins_may_say_what_they_like() -> None:
    chat = talk()
    chat.end()
    chat.script.add(PluginEvent(plugin="p", name="odd", session="nowhere", turn=7, cause=999, request=3))
    check_log(chat.script.events)


# -- logs that break them


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: str(plant.__name__))
def test_a_planted_log_is_refused_with_the_sentence_that_says_why(plant: Callable[[Chat], None]) -> None:
    """H18, H19, H21, H34, H35, H56: the rules of the log are each seen to fail."""
    chat = talk()
    plant(chat)
    with pytest.raises(LogBroken) as refused:
        check_log(chat.script.events)
    assert PLANTS[plant] in str(refused.value)
    assert all(sentence.startswith("seq ") and sentence.endswith(".") for sentence in refused.value.offences)


def test_every_offence_is_listed() -> None:
    chat = talk()
    chat.ask()
    chat.want()
    with pytest.raises(LogBroken, match="in 3 places") as refused:
        check_log(chat.script.events)
    assert len(refused.value.offences) == 3
    check_log(chat.script.events, live=True)


def test_every_reply_has_a_request_that_it_belongs_to() -> None:
    """H34: a new kind of reply is not passed over."""
    assert {kind for kind, one in KINDS.items() if issubclass(one, Reply)} == set(ANSWERS)
    assert set(ANSWERS.values()) == set(OPENERS)


# -- files


def stored(path: Path, rows: list[Row]) -> Path:
    async def write() -> None:
        store = SqliteStore(path)
        await store.open(lambda _: None)
        for row in rows:
            store.append(row, True)
        await store.close()

    asyncio.run(write())
    return path


def test_a_file_is_read_and_checked(tmp_path: Path) -> None:
    def row(event: Event) -> Row:
        return Row(event.seq, event.at, kind_of(event), event.session, encode(event))

    events = rich().events
    good = [row(event) for event in events]
    check_log(stored(tmp_path / "good", good))
    check_log(str(tmp_path / "good"))
    ended = next(place for place, event in enumerate(events) if event.kind == "tool.ended")
    missing = stored(tmp_path / "missing", good[:ended] + good[ended + 1 :])
    assert any("ends the turn while request" in one for one in offences(missing))
    odd = msgspec.structs.replace(good[ended], kind="tool.refused")
    [sentence] = offences(stored(tmp_path / "odd", [*good[:ended], odd, *good[ended + 1 :]]))
    assert sentence == f"seq {odd.seq}, tool.refused: the row holds tool.ended with seq {odd.seq}."
    unread = msgspec.structs.replace(good[-1], body=b'{"kind":"runtime.gone"}')
    [sentence] = offences(stored(tmp_path / "unread", [*good[:-1], unread]))
    assert sentence.startswith(f"seq {unread.seq}, runtime.stopped: it cannot be read: Invalid value 'runtime.gone'")


# -- every fault in turn


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: str(mutation.__name__))
def test_every_single_fault_in_a_good_log_is_found(mutation: Mutation) -> None:
    """H35, H56: each event of a rich log, and of random ones, is dropped, doubled, moved or changed."""
    tried = 0
    for name, log in [("rich", rich().events), *((f"seed {seed}", wander(seed)) for seed in range(WALKS // 5))]:
        assert offences(renumbered(log)) == [], name
        for what, broken in mutation(log):
            tried += 1
            assert offences(renumbered(broken)) != [], f"{name}: {what}"
    assert tried >= 20


def test_swapped_neighbours_of_one_request_are_found() -> None:
    """H56: reordered ends."""
    events = rich().events
    for place in range(len(events) - 1):
        first, second = events[place], events[place + 1]
        if isinstance(second, Reply) and (second.request == first.seq or first.request == second.request):
            swapped = renumbered([*events[:place], second, first, *events[place + 2 :]])
            parts = first.delta or second.delta or {first.kind, second.kind} & {"message.done"}
            assert parts or offences(swapped) != [], f"{first.kind} {second.kind}"
