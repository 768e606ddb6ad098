"""The board: every rule by which events become cards, names, queues and receipts."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from quell.errors import NoSessionError
from quell.events import (
    DELTAS,
    KINDS,
    AdmissionClosed,
    AdmissionReopened,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalWithdrawn,
    ConfigChanged,
    Event,
    MessageDelta,
    MessageDone,
    MessageUser,
    ModelAnswered,
    ModelDelta,
    ModelFailed,
    ModelRequested,
    PluginEvent,
    ProcessEnded,
    ProcessSpawned,
    QueueDiscarded,
    QueueParked,
    QueueReleased,
    RuntimeReady,
    RuntimeStopped,
    SessionClosed,
    SessionConfigured,
    SessionDeleted,
    SessionForked,
    SessionOpened,
    SessionRenamed,
    StopReceipt,
    StopRequested,
    ToolEnded,
    ToolOutput,
    ToolRefused,
    TurnEnded,
    TurnStarted,
)
from quell.surfaces.http import board as boards
from quell.surfaces.http.board import RECEIPTS, Board
from quell.surfaces.http.shapes import Admission, Card, Question, Queued, Running, Slip
from quell.surfaces.http.tile import LONG, SHORT, WORDS


class Log:
    """Writes events, numbered and timed, and has two boards: one hears all of them, the other only its kinds."""

    def __init__(self) -> None:
        self.board = Board()
        self.read = Board()
        self.seq = 0

    def add(self, make: type[Event], session: str = "a", **fields: Any) -> int:
        self.seq += 1
        event = make(seq=self.seq, at=1000.0 + self.seq, session=session, **fields)
        self.board.apply(event)
        if event.kind in Board.KINDS:
            self.read.apply(event)
        return self.seq

    def open(self, session: str = "a", **fields: Any) -> int:
        return self.add(SessionOpened, session, **fields)

    def turn(self, session: str = "a", number: int = 1, **fields: Any) -> int:
        return self.add(TurnStarted, session, turn=number, **fields)

    def card(self, session: str = "a") -> Card:
        """The same for both, but for what streams."""
        card, read = self.board.card(session), self.read.card(session)
        assert card is not None and read is not None
        assert {**vars_of(card), "last": ""} == {**vars_of(read), "last": ""}
        return card

    def state(self, session: str = "a") -> str:
        return self.card(session).state


def vars_of(card: Card) -> dict[str, object]:
    return {name: getattr(card, name) for name in card.__struct_fields__}


@pytest.fixture
def log() -> Log:
    return Log()


# -- state


def test_a_session_is_idle_runs_and_is_idle_again(log: Log) -> None:
    log.open(agent="coder", cwd="/src", title="a title")
    assert log.card() == Card(
        id="a",
        title="a title",
        agent="coder",
        model="",
        cwd="/src",
        parent="",
        origin="",
        opened=1001.0,
        changed=1001.0,
        state="idle",
        turn=0,
        end="",
        reason="",
        asked="",
        last="",
        queue=[],
        approvals=[],
        processes=[],
        stopped=0,
        confirmed=True,
    )
    turn = log.turn(number=3)
    assert (log.state(), log.board.turn("a"), log.card().turn, log.card().end) == ("running", 3, 3, "")
    log.add(TurnEnded, turn=3, request=turn, end="failed", reason="no money")
    assert (log.state(), log.board.turn("a")) == ("idle", 0)
    assert (log.card().turn, log.card().end, log.card().reason) == (3, "failed", "no money")
    log.turn(number=4)
    assert (log.card().end, log.card().reason) == ("", "")


@pytest.mark.parametrize("end", [ApprovalAnswered, ApprovalWithdrawn])
def test_it_asks_while_a_question_is_open(log: Log, end: type[Event]) -> None:
    log.open()
    log.turn()
    first = log.add(ApprovalAsked, tool="shell", arguments={"command": "rm -r x"}, digest="d1")
    second = log.add(ApprovalAsked, tool="write", digest="d2")
    assert log.state() == "asking"
    assert log.card().approvals[0] == Question(first, "a", "shell", {"command": "rm -r x"}, "d1", 1003.0)
    log.add(end, request=first)
    assert log.state() == "asking"
    assert [one.request for one in log.board.approvals()] == [second]
    log.add(end, request=second)
    assert log.state() == "running"


def test_questions_of_all_sessions_are_in_their_order(log: Log) -> None:
    log.open("a")
    log.open("b")
    asked = [log.add(ApprovalAsked, session, tool="shell") for session in ("b", "a", "b")]
    assert [one.request for one in log.board.approvals()] == asked


def test_it_is_stopping_until_every_stop_has_its_receipt(log: Log) -> None:
    log.open()
    turn = log.turn()
    log.add(ApprovalAsked, tool="shell")
    first, second = log.add(StopRequested, reach="turn"), log.add(StopRequested, reach="session", reason="enough")
    assert log.state() == "stopping"
    log.add(TurnEnded, turn=1, request=turn, end="stopped")
    log.add(StopReceipt, request=first, confirmed=True)
    assert log.state() == "stopping"
    seq = log.add(StopReceipt, request=second, confirmed=False, receipt={"survivors": [7]})
    assert log.state() == "asking"  # in a log that is as it must be, the question was withdrawn
    assert (log.card().stopped, log.card().confirmed) == (seq, False)
    assert log.board.receipts("a")[0] == Slip(seq, "a", "session", "enough", 1000.0 + seq, False, {"survivors": [7]})


def test_a_stop_of_all_is_a_stop_of_those_that_it_names(log: Log) -> None:
    log.open("a")
    log.open("b")
    everything = log.add(StopRequested, "", reach="all", reason="stop all")
    one = log.add(StopRequested, "a", reach="session", cause=everything)
    assert (log.state("a"), log.state("b")) == ("stopping", "idle")
    log.add(StopReceipt, "a", request=one, confirmed=True)
    seq = log.add(StopReceipt, "", request=everything, confirmed=True)
    assert log.state("a") == "idle"
    assert [(one.session, one.reach) for one in log.board.receipts()] == [("", "all"), ("a", "session")]
    assert log.board.receipt(seq) == log.board.receipts()[0]


@pytest.mark.parametrize("again", [MessageUser, SessionRenamed, QueueReleased, StopRequested])
def test_it_is_closed_until_something_happens_in_it(log: Log, again: type[Event]) -> None:
    log.open()
    log.add(SessionClosed)
    assert log.state() == "closed"
    log.add(RuntimeReady, "")
    log.add(ConfigChanged, "")
    assert log.state() == "closed"
    log.add(again)
    assert log.state() != "closed"


def test_what_a_crash_cut_off_is_interrupted(log: Log) -> None:
    """H23: as the next start writes it."""
    log.open()
    said = log.add(MessageUser, text="one")
    turn = log.turn(cause=said)
    waits = log.add(MessageUser, text="two")
    asked = log.add(ApprovalAsked, turn=1, tool="shell")
    stop = log.add(StopRequested, reach="session", reason="enough")
    log.add(StopReceipt, request=stop, receipt={"reason": "interrupted"})
    log.add(ApprovalWithdrawn, request=asked, reason="interrupted")
    log.add(TurnEnded, request=turn, end="interrupted", reason="interrupted")
    log.add(QueueParked, messages=[waits], reason="interrupted")
    log.add(RuntimeReady, "")
    card = log.card()
    assert (card.state, card.end, card.confirmed, card.approvals) == ("idle", "interrupted", False, [])
    assert [(one.text, one.parked) for one in card.queue] == [("two", True)]
    assert log.board.receipts("a")[0].reason == "enough"


# -- where it comes from


def test_sub_agents_and_forks_say_whose_they_are(log: Log) -> None:
    log.open("a")
    log.open("b", parent="a", depth=1)
    log.open("c", title="a title")
    log.add(SessionForked, "c", origin="a", upto=1)
    log.add(SessionRenamed, "c", title="another")
    assert log.card("b").parent == "a"
    assert (log.card("c").origin, log.card("c").title) == ("a", "another")
    assert [one.id for one in log.board.cards()] == ["a", "b", "c"]


# -- the queue


def test_messages_wait_until_a_turn_answers_them(log: Log) -> None:
    log.open()
    first, second = log.add(MessageUser, text="one"), log.add(MessageUser, text="two")
    assert log.board.queue("a") == [
        Queued(first, "one", 1000.0 + first, False),
        Queued(second, "two", 1000.0 + second, False),
    ]
    log.turn(cause=first)
    assert [one.message for one in log.card().queue] == [second]
    assert log.card().asked == "two"


def test_messages_are_parked_released_and_discarded(log: Log) -> None:
    log.open()
    one, two, three = (log.add(MessageUser, text=text) for text in ("one", "two", "three"))
    log.add(QueueParked, messages=[one, two, three], reason="stop")
    four = log.add(MessageUser, text="four")
    assert [(entry.message, entry.parked) for entry in log.card().queue] == [
        *((one, True), (two, True), (three, True), (four, False))
    ]
    log.add(QueueReleased, messages=[two])
    log.add(QueueDiscarded, messages=[three])
    log.add(QueueDiscarded, messages=[999])
    assert [(entry.message, entry.parked) for entry in log.card().queue] == [(one, True), (two, False), (four, False)]
    log.turn(cause=two)
    assert [entry.message for entry in log.card().queue] == [one, four]


def test_a_long_message_is_short_on_the_card_and_longer_in_the_queue(log: Log) -> None:
    log.open()
    log.add(MessageUser, text="x" * 100_000)
    assert log.card().asked == "x" * SHORT + "…"
    assert log.card().queue[0].text == "x" * SHORT + "…"
    assert log.board.queue("a")[0].text == "x" * LONG + "…"


# -- processes


def spawn(log: Log, pid: int, session: str = "a", **fields: Any) -> int:
    return log.add(ProcessSpawned, session, turn=1, pid=pid, argv=["sleep", "9"], **fields)


def pids(log: Log, session: str = "a") -> list[int]:
    return [one.pid for one in log.card(session).processes]


def test_processes_are_there_until_they_end(log: Log) -> None:
    log.open()
    log.turn()
    first, second = spawn(log, 10), spawn(log, 11, background=True)
    assert log.card().processes == [
        Running(10, ["sleep", "9"], False, 1, 1000.0 + first),
        Running(11, ["sleep", "9"], True, 1, 1000.0 + second),
    ]
    log.add(ProcessEnded, cause=first, pid=10, end="exit 0")
    assert pids(log) == [11]


def test_the_end_of_a_process_is_not_that_of_another_with_its_pid(log: Log) -> None:
    log.open()
    first, _ = spawn(log, 10), spawn(log, 10)
    log.add(ProcessEnded, cause=first, pid=10, end="exit 0")
    assert pids(log) == [10]


def test_after_kill_9_of_the_runtime_no_process_is_left(log: Log) -> None:
    """Nobody was there to write the ends: the next start is the word that they are gone."""
    log.open("a")
    log.open("b")
    spawn(log, 10, "a"), spawn(log, 11, "b", background=True)
    log.add(RuntimeReady, "")
    assert pids(log, "a") == pids(log, "b") == []


@pytest.mark.parametrize(("confirmed", "left"), [(True, []), (False, [10])])
def test_the_end_of_the_runtime_is_that_of_processes_if_it_was_seen(log: Log, confirmed: bool, left: list[int]) -> None:
    log.open()
    spawn(log, 10)
    log.add(RuntimeStopped, "", confirmed=confirmed)
    assert pids(log) == left


@pytest.mark.parametrize(
    ("reach", "confirmed", "left"),
    [("session", True, []), ("session", False, [10, 11]), ("turn", True, [10, 11])],
)
def test_a_confirmed_stop_of_a_session_leaves_no_process(
    log: Log, reach: str, confirmed: bool, left: list[int]
) -> None:
    log.open("a")
    log.open("b")
    spawn(log, 10), spawn(log, 11, background=True), spawn(log, 12, "b")
    stop = log.add(StopRequested, reach=reach)
    log.add(StopReceipt, request=stop, confirmed=confirmed)
    assert pids(log) == left
    assert pids(log, "b") == [12]


def test_a_stop_of_all_leaves_only_what_was_started_after_it(log: Log) -> None:
    log.open()
    spawn(log, 10)
    stop = log.add(StopRequested, "", reach="all")
    spawn(log, 11)
    log.add(StopReceipt, "", request=stop, confirmed=True)
    assert pids(log) == [11]


def test_a_session_that_is_closed_has_no_processes(log: Log) -> None:
    log.open()
    spawn(log, 10)
    log.add(SessionClosed)
    assert pids(log) == []


def test_a_long_command_is_shortened(log: Log) -> None:
    log.open()
    log.add(ProcessSpawned, pid=1, argv=["x" * 10_000] * 1_000)
    assert log.card().processes[0].argv == ["x" * SHORT + "…"] * WORDS


# -- the last output


def test_the_last_output_is_that_of_model_or_tool(log: Log) -> None:
    log.open()
    log.turn()
    course: list[tuple[type[Event], dict[str, Any], str]] = [
        (ModelDelta, {"request": 3, "text": "I lo"}, "I lo"),
        (ModelDelta, {"request": 3, "text": "ok"}, "I look"),
        (ModelAnswered, {"request": 3, "text": "I look at it"}, "I look at it"),
        (ToolOutput, {"request": 6, "text": "line 1\n"}, "line 1\n"),
        (ToolOutput, {"request": 7, "text": "another\n"}, "another\n"),
        (ToolEnded, {"request": 6, "result": "done"}, "done"),
        (ToolEnded, {"request": 7, "error": "exit 1"}, "exit 1"),
        (ToolRefused, {"request": 8, "reason": "not approved"}, "not approved"),
        (MessageDelta, {"request": 2, "text": "It "}, "It "),
        (MessageDelta, {"request": 2, "text": "is"}, "It is"),
        (ModelAnswered, {"request": 9, "text": ""}, "not approved"),
        (MessageDelta, {"request": 2, "text": "so"}, "so"),
        (ModelFailed, {"request": 9, "error": "OSError: gone"}, "OSError: gone"),
        (MessageDone, {"request": 2, "text": "It is so"}, "It is so"),
        (ModelDelta, {"request": 10, "text": "hm", "channel": "reasoning"}, "hm"),
        (ModelDelta, {"request": 10, "text": "yes"}, "yes"),
        (TurnEnded, {"request": 2, "end": "stopped"}, "It is so"),
    ]
    for make, fields, last in course:
        log.add(make, **fields)
        assert log.card().last == last
    assert log.read.card("a") == log.board.card("a")


def test_summaries_are_no_output(log: Log) -> None:
    log.open()
    asked = log.add(ModelRequested, purpose="compact")
    log.add(ModelDelta, request=asked, text="In short: ")
    log.add(ModelAnswered, request=asked, text="In short: nothing")
    failed = log.add(ModelRequested, purpose="compact")
    log.add(ModelFailed, request=failed, error="OSError: gone")
    assert log.card().last == ""


def test_a_card_tells_who_answers_now(log: Log) -> None:
    log.open(agent="coder")
    log.add(ModelRequested, model="openai:small")
    assert (log.card().agent, log.card().model) == ("coder", "openai:small")
    log.add(SessionConfigured, agent="other", model="anthropic:large")
    assert (log.card().agent, log.card().model) == ("other", "anthropic:large")


def test_an_answer_that_begins_again_is_shown_without_what_is_void(log: Log) -> None:
    log.open()
    turn = log.turn()
    asked = log.add(ModelRequested)
    log.add(MessageDelta, request=turn, cause=asked, text="Hal")
    log.add(ModelDelta, request=asked, channel="notice", text="asking again")
    assert log.card().last == "asking again"
    log.add(MessageDelta, request=turn, cause=asked, text="Hel")
    assert log.card().last == "Hel"
    log.add(ModelAnswered, request=asked, text="Hello")
    log.add(MessageDone, request=turn, text="Hello")
    assert log.card().last == "Hello"


def test_that_it_is_summed_up_is_shown_while_it_is(log: Log) -> None:
    log.open()
    asked = log.add(ModelRequested, purpose="compact")
    log.add(ModelDelta, request=asked, channel="notice", text="summarising")
    log.add(ModelDelta, request=asked, text="In short: ")
    assert log.card().last == "summarising"
    log.add(ModelAnswered, request=asked, text="In short: nothing")
    assert log.card().last == ""


def test_of_a_long_output_the_end_is_shown_whether_it_streamed_or_not(log: Log) -> None:
    log.open()
    text = "".join(f"line {number}\n" for number in range(500))
    for line in text.splitlines(keepends=True):
        log.add(ToolOutput, request=2, text=line)
    shown = "…" + text[-SHORT:]
    assert log.card().last == shown
    log.add(ToolEnded, request=2, result=text)
    assert log.card().last == shown
    log.add(ToolOutput, request=9, text="y" * 1_000_000)
    assert log.card().last == "…" + "y" * SHORT


# -- admission


def test_admission_says_why_it_is_closed_and_since_when(log: Log) -> None:
    assert log.board.admission() == Admission(True)
    log.add(AdmissionClosed, "", reason="stop all")
    assert log.board.admission() == Admission(False, "stop all", 1001.0)
    log.add(RuntimeReady, "")
    assert log.board.snapshot().admission == Admission(False, "stop all", 1001.0)
    log.add(AdmissionReopened, "")
    assert log.board.admission() == Admission(True, "", 1003.0)


# -- receipts


def stop(log: Log, session: str = "a") -> int:
    asked = log.add(StopRequested, session, reach="session")
    return log.add(StopReceipt, session, request=asked, confirmed=True)


def test_the_last_receipts_are_kept_and_the_last_of_each_session(log: Log) -> None:
    log.open("a")
    log.open("b")
    first = stop(log, "a")
    others = [stop(log, "b") for _ in range(RECEIPTS + 5)]
    assert [one.seq for one in log.board.receipts()] == others[: -RECEIPTS - 1 : -1]
    assert [one.seq for one in log.board.receipts(limit=2)] == [others[-1], others[-2]]
    assert [one.seq for one in log.board.receipts("a")] == [first]
    assert (log.board.receipts("nobody"), log.board.receipts(limit=0), log.board.receipts(limit=-1)) == ([], [], [])
    kept = log.board.receipt(first)
    assert kept is not None and kept.session == "a"
    assert log.board.receipt(others[0]) is None


def test_a_receipt_without_its_request_is_passed_over(log: Log) -> None:
    log.open()
    log.add(StopReceipt, request=99, confirmed=True)
    assert log.board.receipts() == []


# -- deleting


def test_of_a_deleted_session_nothing_is_left(log: Log) -> None:
    for session in ("a", "b"):
        log.open(session, title=session * 2)
        log.add(MessageUser, session, text="a secret")
        log.add(ApprovalAsked, session, tool="shell")
        spawn(log, 10, session)
        stop(log, session)
        log.add(StopRequested, session, reach="turn")
    seq = log.add(SessionDeleted, "a", events=9)
    board = log.board
    assert [one.id for one in board.cards()] == ["b"]
    assert (board.card("a"), board.queue("a"), board.turn("a"), board.receipts("a")) == (None, [], 0, [])
    assert {one.session for one in board.receipts()} == {one.session for one in board.approvals()} == {"b"}
    assert (list(board.changed), board.removed, len(board._stops)) == (["b"], {"a": seq}, 1)
    with pytest.raises(NoSessionError):
        board.resolve("aa")
    log.add(ProcessEnded, "a", cause=1)
    log.add(ToolOutput, "a", request=1, text="late")
    assert [one.id for one in board.cards()] == ["b"]


def test_only_so_many_deleted_sessions_are_remembered(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "REMOVED", 3)
    for number in range(10):
        log.open(f"s{number}")
        log.add(SessionDeleted, f"s{number}")
    assert list(log.board.removed) == ["s7", "s8", "s9"]


# -- what changed


def test_what_changed_since_is_told_each_once(log: Log) -> None:
    log.open("a")
    log.open("b")
    mark = log.open("c")
    assert log.board.since(mark) == ([], [])
    log.add(ToolOutput, "b", request=1, text="x")
    log.add(SessionRenamed, "a", title="new")
    log.add(ToolOutput, "b", request=1, text="y")
    log.add(SessionDeleted, "c")
    log.add(ConfigChanged, "")
    cards, removed = log.board.since(mark)
    assert ([one.id for one in cards], removed) == (["a", "b"], ["c"])
    assert log.board.changed == {"a": mark + 2, "b": mark + 3}
    assert log.board.since(mark + 2) == ([log.board.card("b")], ["c"])
    assert log.board.since(log.board.seq) == ([], [])
    mark = log.board.seq
    log.add(ToolOutput, "a", request=1, text="z")
    assert [one.id for one in log.board.since(mark)[0]] == ["a"]


def test_what_a_stop_of_all_ends_has_changed(log: Log) -> None:
    log.open("a")
    spawn(log, 10)
    asked = log.add(StopRequested, "", reach="all")
    mark = log.board.seq
    assert pids(log) == [10]
    log.add(StopReceipt, "", request=asked, confirmed=True)
    assert [(one.id, one.processes) for one in log.board.since(mark)[0]] == [("a", [])]


def test_a_card_is_made_once_for_each_change(log: Log) -> None:
    log.open("a")
    log.open("b")
    card, other = log.board.card("a"), log.board.card("b")
    log.add(ToolOutput, "a", request=1, text="x")
    assert log.board.card("b") is other
    assert log.board.card("a") is not card
    assert log.board.card("a") is log.board.snapshot().sessions[0]


def test_an_event_counts_once(log: Log) -> None:
    """H36: where reading the log and following it overlap."""
    log.open()
    event = ToolOutput(seq=2, session="a", request=1, text="x")
    for _ in range(2):
        log.board.apply(event)
    log.board.apply(SessionDeleted(seq=1, session="a"))
    card = log.board.card("a")
    assert card is not None and card.last == "x" and log.board.seq == 2


# -- names


def test_a_session_is_found_by_id_prefix_and_title(log: Log) -> None:
    log.open("abcdef01", title="fix it")
    log.open("abcdef02", title="twice")
    log.open("ffff0000", title="twice")
    log.open("fff")
    found = log.board.resolve
    assert found("abcdef01") == found("abcdef01"[:8]) == found("fix it") == "abcdef01"
    assert found("ffff") == "ffff0000"
    assert found("fff") == "fff"


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("abcd", "'abcd' may be abcdef01 ('fix it') or abcdef02 ('twice'): name one by its id"),
        ("twice", "'twice' may be abcdef02 ('twice') or ffff0000 ('twice'): name one by its id"),
        (
            "fff",
            "there is no session 'fff'; there are abcdef01 ('fix it'), abcdef02 ('twice'), ffff0000 ('twice')",
        ),
        ("", "there is no session ''; there are abcdef01 ('fix it'), abcdef02 ('twice'), ffff0000 ('twice')"),
    ],
)
def test_the_sentence_says_what_there_is(log: Log, word: str, sentence: str) -> None:
    log.open("abcdef01", title="fix it")
    log.open("abcdef02", title="twice")
    log.open("ffff0000", title="twice")
    with pytest.raises(NoSessionError) as refused:
        log.board.resolve(word)
    assert str(refused.value) == sentence


def test_the_sentence_is_never_long(log: Log) -> None:
    with pytest.raises(NoSessionError, match="there is no session 'x'; there are none"):
        log.board.resolve("x")
    log.open("s0", title="only\x1b[2J one")
    with pytest.raises(NoSessionError, match=r"there is s0 \('only\\x1b\[2J one'\)$"):
        log.board.resolve("x")
    for number in range(1, 500):
        log.open(f"s{number}", title="t" * 500)
    with pytest.raises(NoSessionError, match=r"s499 .* and 490 more") as refused:
        log.board.resolve("x" * 100_000)
    assert len(str(refused.value)) < 1500


# -- size and speed


def test_the_kinds_are_kinds_and_none_of_them_streams() -> None:
    assert set(Board.KINDS) <= set(KINDS)
    assert not set(Board.KINDS) & DELTAS


def test_events_of_any_kind_are_taken(log: Log) -> None:
    """Also of sessions that nobody knows: those of a log that was cut, say."""
    log.open("a")
    for session in ("a", "nobody", ""):
        for kind, make in KINDS.items():
            fields: dict[str, Any] = {"request": 1} if make.__mro__[1].__name__ == "Reply" else {}
            if kind == "turn.ended":
                fields["end"] = "completed"
            if kind == "x":
                fields |= {"plugin": "p", "name": "n"}
            if make is not SessionDeleted and not (session != "a" and make is SessionOpened):
                log.add(make, session, **fields)
    log.add(PluginEvent, "a", plugin="p", name="n")
    assert [one.id for one in log.board.cards()] == ["a"]
    assert log.board.seq == log.seq


def test_a_session_that_streams_for_long_stays_small(log: Log) -> None:
    log.open()
    for round_ in range(300):
        said = log.add(MessageUser, text="x" * 10_000)
        turn = log.turn(number=round_ + 1, cause=said)
        asked = log.add(ModelRequested, purpose="compact")
        log.add(ModelAnswered, request=asked, text="y" * 10_000)
        log.add(MessageDelta, request=turn, text="z" * 10_000)
        call = spawn(log, 10)
        log.add(ProcessEnded, cause=call, pid=10)
        log.add(TurnEnded, request=turn, end="completed", reason="r")
    tile = log.board._tiles["a"]
    assert [len(one) for one in (tile._queue, tile._processes, tile._summaries, tile._stops)] == [0, 0, 0, 0]
    assert sum(sys.getsizeof(one) for one in (tile._settled, tile._stream, tile._asked)) < 4 * SHORT + 500


def test_a_delta_costs_little(log: Log) -> None:
    """30,000 of them a second pass through, from 200 sessions: they may take a tenth of it."""
    board = Board()
    for number in range(200):
        board.apply(SessionOpened(seq=number + 1, session=f"s{number}"))
    deltas = [
        ModelDelta(seq=1000 + number, session=f"s{number % 200}", request=5, text="some words ")
        for number in range(30_000)
    ]
    began = time.process_time()
    for delta in deltas:
        board.apply(delta)
    assert time.process_time() - began < 0.3
