"""A history is the same folded live and from the log, and no call in it is without its one result."""

import pytest

from quell.events import Event, MessageDone, ModelFailed, QueueDiscarded, ToolCall, decode, encode
from quell.kernel.history import STOPPED, SUMMARY, History
from quell.ports import Message, ToolResult

from ..testing.script import Chat, Script, rich
from ..testing.wander import wander

LS, ID = ToolCall("c1", "shell", {"command": "ls"}), ToolCall("c2", "shell", {"command": "id"})


def chat() -> Chat:
    return Script().open("a")


def folded(events: list[Event]) -> History:
    history = History()
    for event in events:
        history.apply(event)
    return history


def told(chat: Chat, system: str = "") -> list[Message]:
    return folded(chat.script.events).messages(system)


def sessions(events: list[Event]) -> list[list[Event]]:
    return [[one for one in events if one.session == name] for name in sorted({one.session for one in events} - {""})]


def dangling(messages: list[Message]) -> list[str]:
    """Calls without exactly one result right after them, in their order; and results without a call."""
    wrong = []
    for place, message in enumerate(messages):
        after = messages[place + 1] if place + 1 < len(messages) else Message("user")
        if message.calls and [one.id for one in message.calls] != [one.call for one in after.results]:
            wrong.append(f"the calls of message {place} have other results")
        if message.role == "tool" and (not place or not messages[place - 1].calls):
            wrong.append(f"message {place} answers no call")
    return wrong


def test_a_conversation_with_tools_reads_as_models_want_it() -> None:
    a = chat()
    a.begin(a.say("look"))
    a.answer("I look.", LS, ID)
    one, two = a.want(LS), a.want(ID)
    a.start(one)
    a.start(two)
    a.finish(two, "root")
    a.finish(one, "a b", error="exit 1")
    a.answer("done")
    a.done("done")
    a.end()
    assert told(a, "be brief") == [
        Message("system", "be brief"),
        Message("user", "look"),
        Message("assistant", "I look.", [LS, ID]),
        Message("tool", results=[ToolResult("c1", "shell", "exit 1\na b", True), ToolResult("c2", "shell", "root")]),
        Message("assistant", "done"),
    ]
    assert told(a)[0].role == "user", "no system prompt, no message for it"


def test_a_message_counts_once_its_turn_began() -> None:
    """H19: what waits, is parked or was discarded is not what the model answers."""
    a = chat()
    a.begin(a.say("first"))
    second, third, fourth = a.say("second"), a.say("third"), a.say("fourth")
    a.end()
    a.park(second, third)
    a.emit(QueueDiscarded, messages=[third.seq])
    assert [one.text for one in told(a)] == ["first"]
    a.begin(fourth)
    a.end()
    a.release(second)
    a.begin(second)
    assert [one.text for one in told(a)] == ["first", "fourth", "second"]


def test_a_call_that_was_refused_or_cut_off_has_a_result_that_says_so() -> None:
    a = chat()
    a.begin(a.say())
    a.answer("", LS, ID)
    a.refuse(a.want(LS), "not approved")
    a.end("stopped")
    [_, wanted, got] = told(a)
    assert wanted.calls == [LS, ID]
    assert got.results == [
        ToolResult("c1", "shell", "refused: not approved", True),
        ToolResult("c2", "shell", STOPPED, True),
    ]


def test_two_calls_of_one_name_keep_their_own_results() -> None:
    a = chat()
    a.begin(a.say())
    a.answer("", LS, LS)
    one, two = a.want(LS), a.want(LS)
    a.start(one)
    a.start(two)
    a.finish(two, "second")
    a.finish(one, "first")
    assert [one.text for one in told(a)[-1].results] == ["first", "second"]


def test_calls_that_a_strategy_read_out_of_the_text_are_calls() -> None:
    a = chat()
    a.begin(a.say())
    a.answer("Action: shell")
    a.use(LS, "a b")
    assert told(a)[1:] == [
        Message("assistant", "Action: shell", [LS]),
        Message("tool", results=[ToolResult("c1", "shell", "a b")]),
    ]


def test_calls_and_answers_that_no_model_made_are_told_too() -> None:
    a = chat()
    a.begin(a.say())
    a.use(LS, "a b")
    a.end()
    turn = a.begin(a.say("again"))
    a.inside(MessageDone, request=turn.seq, text="from elsewhere")
    a.end()
    assert [one.role for one in told(a)] == ["user", "assistant", "tool", "user", "assistant"]
    assert told(a)[-1].text == "from elsewhere"


def test_an_answer_of_nothing_is_left_out() -> None:
    a = chat()
    a.begin(a.say())
    a.answer("")
    request = a.ask()
    a.inside(ModelFailed, request=request.seq, error="no")
    assert [one.role for one in told(a)] == ["user"]


def test_a_summary_stands_for_what_came_before_it() -> None:
    a = chat()
    a.exchange("one", "1")
    a.exchange("two", "2")
    turn = a.begin(a.say("three"))
    before = folded(a.script.events).size
    a.compact("they count", turn.seq - 1)
    a.answer("3")
    a.end()
    assert [one.text for one in told(a)] == [f"{SUMMARY}they count", "three", "3"]
    assert folded(a.script.events).size < before + len("they count")

    turn = a.begin(a.say("four"))
    a.compact("they count on", turn.seq - 1)
    assert [one.text for one in told(a)] == [f"{SUMMARY}they count on", "four"]


def test_a_message_that_waited_while_a_summary_was_made_is_not_lost_in_it() -> None:
    a = chat()
    a.begin(a.say("one"))
    waiting = a.say("two")
    a.compact("summed up", waiting.seq)
    a.end()
    a.begin(waiting)
    assert [one.text for one in told(a)] == [f"{SUMMARY}summed up", "one", "two"]


def test_a_summary_in_the_middle_of_a_step_leaves_no_result_without_its_call() -> None:
    a = chat()
    a.begin(a.say("one"))
    answered = a.answer("", LS, ID)
    tool = a.want(LS)
    a.compact("summed up", answered.seq)
    a.start(tool)
    a.finish(tool, "a b")
    assert [(one.role, one.text) for one in told(a)] == [
        ("user", f"{SUMMARY}summed up"),
        ("user", "one"),
        ("assistant", ""),
        ("tool", ""),
    ]
    assert dangling(told(a)) == []
    a.end()
    a.exchange("two", "2")
    assert [one.text for one in told(a)][-2:] == ["two", "2"]


def test_a_summary_reaches_as_far_as_is_needed_and_leaves_steps_whole() -> None:
    a = chat()
    a.exchange("x" * 100, "y" * 100)
    a.begin(a.say("q" * 1000))
    last = []
    for number in range(3):
        a.answer("z" * 100, ToolCall(f"c{number}", "shell", {}))
        a.use(ToolCall(f"c{number}", "shell", {}), "r" * 93)
        last.append(a.script.events[-1].seq)
    history = folded(a.script.events)
    assert history.reach(10_000) == 0, "there is room for all of it, but for the question"
    assert [history.reach(room) for room in (199, 200, 399, 400, 599)] == [last[2], last[1], last[1], last[0], last[0]]
    a.compact("so far", history.reach(399))
    assert [(one.role, one.text[:6]) for one in told(a)] == [
        ("user", SUMMARY[:6]),
        ("user", "qqqqqq"),
        ("assistant", "zzzzzz"),
        ("tool", ""),
    ]
    assert dangling(told(a)) == []


def test_a_fork_goes_on_from_where_it_was_made() -> None:
    """The same history up to there, cut in the middle of a turn or not; then its own."""
    script = Script()
    a = script.open("a")
    a.exchange("one", "1")
    waiting = a.say("two")
    a.begin(waiting)
    answered = a.answer("", LS)
    a.say("this waits in the origin")
    tool = a.want(LS)
    cut = tool.seq
    a.start(tool)
    a.finish(tool, "a b")
    a.end()
    b = script.fork("b", "a", cut)
    b.exchange("three", "3")
    history = folded([one for one in script.events if (one.session == "a" and one.seq <= cut) or one.session == "b"])
    messages = history.messages("")
    assert [one.text for one in messages] == ["one", "1", "two", "", "", "three", "3"]
    assert messages[4].results == [ToolResult("c1", "shell", STOPPED, True)]
    assert history.last_seq == script.events[-1].seq
    assert answered.seq < cut


def test_the_size_grows_with_what_is_said() -> None:
    a = chat()
    assert folded(a.script.events).size == 0
    a.exchange("x" * 400, "y" * 400)
    assert folded(a.script.events).size == 200
    a.begin(a.say())
    a.use(LS, "z" * 4000)
    assert 1200 <= folded(a.script.events).size <= 1220


@pytest.mark.parametrize("log", [rich().events, *(wander(seed) for seed in range(40))], ids=lambda log: str(len(log)))
def test_live_and_from_the_log_it_is_the_same_and_nothing_dangles_at_any_cut(log: list[Event]) -> None:
    """H23: what a crash cut off anywhere is a history that a model takes."""
    for events in sessions(log):
        live = History()
        for place, event in enumerate(events, 1):
            live.apply(event)
            seen = live.messages("s")
            assert dangling(seen) == [], f"after {event.seq} {event.kind}"
            if event.kind.startswith("turn.") or place == len(events):
                again = folded([decode(encode(one)) for one in events[:place]])
                assert (again.messages("s"), again.size, again.last_seq) == (seen, live.size, event.seq)


def test_a_history_keeps_nothing_of_what_is_over() -> None:
    """H09: after any number of turns what it keeps in between is back to its size."""
    a = chat()
    for number in range(50):
        a.begin(a.say(str(number)))
        a.compact("so far", a.script.events[-1].seq - 1)
        a.answer("", LS)
        a.want(LS)
        a.end("stopped")
    history = folded(a.script.events)
    kept = {name: len(value) for name, value in vars(history).items() if isinstance(value, dict | set)}
    assert set(kept.values()) == {0}
    assert len(history.messages("")) == 4


def test_a_result_that_dangles_would_be_seen() -> None:
    """H56: the check of calls and results is seen to fail."""
    result = Message("tool", results=[ToolResult("c1", "shell", "x")])
    assert dangling([Message("assistant", "", [LS])]) != []
    assert dangling([Message("assistant", "", [LS, ID]), result]) != []
    assert dangling([result]) != []
    assert dangling([Message("assistant", "", [LS]), result]) == []
