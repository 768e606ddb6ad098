"""Logs that break one rule each, with what must be said of them."""

from collections.abc import Callable

import msgspec

from quell.events import (
    KINDS,
    MessageDelta,
    ModelFailed,
    ProcessSpawned,
    QueueDiscarded,
    RuntimeStopped,
    SessionCompacted,
    SessionConfigured,
    SessionDeleted,
    StopReceipt,
    StopRequested,
    TurnEnded,
)

from .script import Chat, Script


def talk(session: str = "a") -> Chat:
    """A session of a runtime that is ready, with a turn that has begun."""
    script = Script()
    script.ready()
    chat = script.open(session)
    chat.begin(chat.say())
    return chat


def missing_end(chat: Chat) -> None:
    chat.ask()
    chat.end()


def open_turn(chat: Chat) -> None:
    chat.ask()


def double_end(chat: Chat) -> None:
    tool = chat.use()
    chat.refuse(tool)
    chat.end()


def double_turn_end(chat: Chat) -> None:
    chat.end()
    chat.end("stopped")


def answer_without_request(chat: Chat) -> None:
    chat.inside(ModelFailed, request=1000)
    chat.end()


def end_of_the_wrong_kind(chat: Chat) -> None:
    request = chat.ask()
    chat.inside(TurnEnded, request=request.seq, end="completed")
    chat.inside(ModelFailed, request=request.seq)
    chat.end()


def end_of_another_session(chat: Chat) -> None:
    request = chat.ask()
    chat.script.open("b")
    chat.inside(ModelFailed, request=request.seq, session="b")
    chat.inside(ModelFailed, request=request.seq)
    chat.end()


def end_of_another_turn(chat: Chat) -> None:
    request = chat.ask()
    chat.inside(ModelFailed, request=request.seq, turn=2)
    chat.inside(ModelFailed, request=request.seq)
    chat.end()


def output_after_the_end(chat: Chat) -> None:
    chat.output(chat.use(), "late")
    chat.end()


def text_after_the_turn(chat: Chat) -> None:
    ended = chat.end()
    chat.inside(MessageDelta, request=ended.request, text="late")


def call_after_the_turn(chat: Chat) -> None:
    chat.end()
    chat.refuse(chat.want())


def process_after_the_turn(chat: Chat) -> None:
    chat.end()
    chat.inside(ProcessSpawned, pid=5)


def process_after_its_call(chat: Chat) -> None:
    chat.spawn(chat.use(), 5)
    chat.end()


def call_without_a_turn(chat: Chat) -> None:
    chat.end()
    tool = chat.want(turn=0)
    chat.inside(KINDS["tool.refused"], request=tool.seq, turn=0)


def two_turns_at_once(chat: Chat) -> None:
    first = chat.turn
    assert first is not None
    chat.begin(chat.say())
    chat.end()
    chat.inside(TurnEnded, request=first.seq, turn=1, end="completed")


def turn_number_skipped(chat: Chat) -> None:
    chat.end()
    chat.number += 1
    chat.exchange("x", "y")


def epoch_that_falls(chat: Chat) -> None:
    chat.end()
    chat.epoch -= 1
    chat.exchange("x", "y")


def stop_that_fences_nothing(chat: Chat) -> None:
    chat.epoch -= 1
    stop = chat.stop()
    chat.end("stopped")
    chat.receipt(stop)


def tool_after_the_stop(chat: Chat) -> None:
    tool = chat.want()
    stop = chat.stop()
    chat.start(tool)
    chat.finish(tool)
    chat.end("stopped")
    chat.receipt(stop)


def tool_after_the_stop_in_disguise(chat: Chat) -> None:
    tool = chat.want()
    stop = chat.stop()
    chat.start(tool, epoch=chat.epoch)
    chat.finish(tool)
    chat.end("stopped")
    chat.receipt(stop)


def model_after_the_stop(chat: Chat) -> None:
    stop = chat.stop()
    chat.answer("late")
    chat.end("stopped")
    chat.receipt(stop)


def approval_after_the_stop(chat: Chat) -> None:
    tool = chat.want()
    stop = chat.stop()
    chat.approve(chat.ask_approval(tool), allow=False)
    chat.refuse(tool)
    chat.end("stopped")
    chat.receipt(stop)


def process_after_the_stop(chat: Chat) -> None:
    tool = chat.want()
    chat.start(tool)
    stop = chat.stop()
    chat.spawn(tool, 7)
    chat.finish(tool)
    chat.end("stopped")
    chat.receipt(stop)


def effect_after_the_stop_of_all(chat: Chat) -> None:
    everything, _ = chat.script.stop_all()
    chat.answer("late")
    chat.end("stopped")
    chat.script.add(StopReceipt(request=everything.seq))


def sub_agent_after_the_stop(chat: Chat) -> None:
    tool = chat.want()
    chat.start(tool)
    child = chat.script.open("a/1", parent="a", cause=tool.seq)
    child.begin(child.say())
    stop = chat.stop()
    child.answer("late")
    child.end()
    chat.finish(tool)
    chat.end("stopped")
    chat.receipt(stop)


def sub_agent_after_its_call(chat: Chat) -> None:
    tool = chat.want()
    chat.start(tool)
    child = chat.script.open("a/1", parent="a", cause=tool.seq)
    child.begin(child.say())
    chat.finish(tool)
    child.answer("late")
    child.end()
    chat.end()


def stop_of_all_with_admission_open(chat: Chat) -> None:
    chat.end()
    everything = chat.script.add(StopRequested(reach="all"))
    chat.script.add(StopReceipt(request=everything.seq))


def turn_while_admission_is_closed(chat: Chat) -> None:
    chat.end()
    everything, _ = chat.script.stop_all()
    chat.script.add(StopReceipt(request=everything.seq))
    chat.exchange("x", "y")


def session_while_admission_is_closed(chat: Chat) -> None:
    chat.end()
    everything, _ = chat.script.stop_all()
    chat.script.add(StopReceipt(request=everything.seq))
    chat.script.open("b")


def receipt_that_lies(chat: Chat) -> None:
    stop = chat.stop()
    chat.receipt(stop)
    chat.end("stopped")


def receipt_of_all_that_lies(chat: Chat) -> None:
    everything, [stop] = chat.script.stop_all(chat)
    chat.script.add(StopReceipt(request=everything.seq, confirmed=True))
    chat.end("stopped")
    chat.receipt(stop)


def tool_that_was_not_approved(chat: Chat) -> None:
    tool = chat.want()
    chat.approve(chat.ask_approval(tool), allow=False)
    chat.start(tool)
    chat.finish(tool)
    chat.end()


def tool_that_did_not_wait_for_approval(chat: Chat) -> None:
    tool = chat.want()
    asked = chat.ask_approval(tool)
    chat.start(tool)
    chat.approve(asked)
    chat.finish(tool)
    chat.end()


def tool_started_twice(chat: Chat) -> None:
    tool = chat.want()
    chat.start(tool)
    chat.start(tool)
    chat.finish(tool)
    chat.end()


def tool_without_intent(chat: Chat) -> None:
    chat.finish(chat.want())
    chat.end()


def approval_of_nothing(chat: Chat) -> None:
    tool = chat.use()
    asked = chat.ask_approval(msgspec.structs.replace(tool, seq=1))
    chat.approve(asked)
    chat.end()


def parked_message_runs(chat: Chat) -> None:
    waiting = chat.say()
    chat.end()
    chat.park(waiting)
    chat.begin(waiting)
    chat.end()


def discarded_message_runs(chat: Chat) -> None:
    waiting = chat.say()
    chat.end()
    chat.emit(QueueDiscarded, messages=[waiting.seq])
    chat.begin(waiting)
    chat.end()


def message_runs_twice(chat: Chat) -> None:
    chat.end()
    message = chat.say()
    chat.begin(message)
    chat.end("interrupted")
    chat.begin(message)
    chat.end()


def turn_without_a_message(chat: Chat) -> None:
    ended = chat.end()
    chat.begin(msgspec.structs.replace(chat.say(), seq=ended.seq))
    chat.end()


def queue_names_a_stranger(chat: Chat) -> None:
    chat.end()
    chat.emit(QueueDiscarded, messages=[1])


def queue_names_what_ran(chat: Chat) -> None:
    ended = chat.end()
    chat.emit(QueueDiscarded, messages=[ended.request - 1])


def cause_in_the_future(chat: Chat) -> None:
    chat.end(cause=1000)


def cause_of_its_own(chat: Chat) -> None:
    chat.end()
    chat.say(cause=chat.script.events[-1].seq + 1)


def cause_that_is_missing(chat: Chat) -> None:
    chat.script.skip(3)
    chat.end()
    chat.say(cause=chat.script.events[-1].seq - 1)


def session_that_was_not_opened(chat: Chat) -> None:
    chat.end()
    Chat(chat.script, "b").say()


def session_opened_twice(chat: Chat) -> None:
    chat.end()
    chat.script.open("a")


def event_of_a_deleted_session(chat: Chat) -> None:
    chat.end()
    chat.emit(SessionDeleted)
    chat.say()


def live_session_deleted(chat: Chat) -> None:
    chat.emit(SessionDeleted)


def summary_of_the_future(chat: Chat) -> None:
    chat.end()
    chat.emit(SessionCompacted, summary="s", upto=1000)


def stopped_without_stopping(chat: Chat) -> None:
    chat.end()
    chat.script.add(RuntimeStopped())


def stopping_twice(chat: Chat) -> None:
    chat.end()
    chat.script.halt()
    chat.script.halt()


def stopped_with_open_requests(chat: Chat) -> None:
    chat.script.halt()
    chat.end()


def ready_with_what_a_crash_left(chat: Chat) -> None:
    chat.script.ready()
    chat.end("interrupted")


def turn_after_the_runtime_stopped(chat: Chat) -> None:
    chat.end()
    chat.script.halt()
    chat.exchange("x", "y")


def forked_in_the_middle(chat: Chat) -> None:
    chat.end()
    chat.emit(KINDS["session.forked"], origin="b", upto=1)


def another_agent_in_the_middle(chat: Chat) -> None:
    chat.emit(SessionConfigured, agent="other")
    chat.end()


def numbers_that_fall(chat: Chat) -> None:
    chat.end()
    chat.script.skip(-2)
    chat.say()


PLANTS: dict[Callable[[Chat], None], str] = {
    missing_end: "seq 6, turn.ended: ends the turn while request 5 (model.requested) is open",
    open_turn: "seq 4, turn.started: it never ended, by turn.ended",
    double_end: "tool.refused: a second end of request 5 (tool.requested), which tool.ended at seq 8 ended",
    double_turn_end: "turn.ended: a second end of request 4 (turn.started), which turn.ended at seq 5 ended",
    answer_without_request: "model.failed: there is no request 1000 before it",
    end_of_the_wrong_kind: "turn.ended: it does not belong to request 5 (model.requested), but to a turn.started",
    end_of_another_session: "model.failed: it is of session 'b', and request 5 (model.requested) of 'a'",
    end_of_another_turn: "model.failed: it is of turn 2, and request 5 (model.requested) of turn 1",
    output_after_the_end: "tool.output: comes after the end of request 5 (tool.requested), which was tool.ended",
    text_after_the_turn: "message.delta: comes after the end of request 4 (turn.started), which was turn.ended",
    call_after_the_turn: "tool.requested: turn 1 ended before, at seq 5",
    process_after_the_turn: "process.spawned: turn 1 ended before, at seq 5",
    process_after_its_call: "process.spawned: spawned by request 5 (tool.requested), which ended at seq 8",
    call_without_a_turn: "tool.requested: turn 0 of session 'a' has not started",
    two_turns_at_once: "turn.started: starts while request 4 (turn.started) is open",
    turn_number_skipped: "turn.started: turn 3 comes after turn 1",
    epoch_that_falls: "turn.started: its epoch 1 is not above 1",
    stop_that_fences_nothing: "stop.requested: its epoch 1 is not above 1, so it fences nothing",
    tool_after_the_stop: "tool.started: epoch 1 starts an effect after the stop at seq 6",
    tool_after_the_stop_in_disguise: "tool.started: epoch 1 starts an effect after the stop at seq 6",
    model_after_the_stop: "model.requested: epoch 1 starts an effect after the stop at seq 5",
    approval_after_the_stop: "approval.asked: epoch 1 starts an effect after the stop at seq 6",
    process_after_the_stop: "process.spawned: epoch 1 starts an effect after the stop at seq 7",
    effect_after_the_stop_of_all: "starts an effect of a turn that the stop of all at seq 6 ended",
    sub_agent_after_the_stop: "a sub-agent starts an effect after the stop at seq 10 of its request 5",
    sub_agent_after_its_call: "a sub-agent starts an effect after its request 5 (tool.requested) ended",
    stop_of_all_with_admission_open: "stop.requested: stops all while admission is open",
    turn_while_admission_is_closed: "turn.started: admission was closed at seq 6",
    session_while_admission_is_closed: "session.opened: admission was closed at seq 6",
    receipt_that_lies: "stop.receipt: confirmed while request 4 (turn.started) was open",
    receipt_of_all_that_lies: "stop.receipt: confirmed while request 4 (turn.started) was open",
    tool_that_was_not_approved: "tool.started: starts what request 6 (approval.asked) did not allow",
    tool_that_did_not_wait_for_approval: "tool.started: starts what request 6 (approval.asked) did not allow",
    tool_started_twice: "tool.started: request 5 (tool.requested) was started before, at seq 6",
    tool_without_intent: "tool.ended: ends request 5 (tool.requested) well, which no tool.started began",
    approval_of_nothing: "approval.asked: its cause 1 is no tool request of the session",
    parked_message_runs: "turn.started: message 5 was parked before",
    discarded_message_runs: "turn.started: message 5 was discarded before",
    message_runs_twice: "turn.started: message 6 was answered before",
    turn_without_a_message: "turn.started: its cause 5 is no message of the session",
    queue_names_a_stranger: "queue.discarded: 1 is no message of the session",
    queue_names_what_ran: "queue.discarded: message 3 was answered before",
    cause_in_the_future: "turn.ended: its cause 1000 does not come before it",
    cause_of_its_own: "message.user: its cause 6 does not come before it",
    cause_that_is_missing: "message.user: its cause 7 is not in the log",
    session_that_was_not_opened: "message.user: session 'b' was not opened before",
    session_opened_twice: "session.opened: session 'a' was opened before",
    event_of_a_deleted_session: "message.user: session 'a' was deleted before",
    live_session_deleted: "session.deleted: request 4 (turn.started) is open",
    summary_of_the_future: "session.compacted: what it reaches to, 1000, does not come before it",
    stopped_without_stopping: "runtime.stopped: comes after runtime.ready, but needs runtime.stopping",
    stopping_twice: "runtime.stopping: comes after runtime.stopped, but needs runtime.ready",
    stopped_with_open_requests: "runtime.stopped: request 4 (turn.started) is open",
    ready_with_what_a_crash_left: "runtime.ready: request 4 (turn.started) is open",
    turn_after_the_runtime_stopped: "turn.started: starts after runtime.stopped",
    forked_in_the_middle: "session.forked: its session had a turn before",
    another_agent_in_the_middle: "session.configured: another answers while request 4 (turn.started) is open",
    numbers_that_fall: "message.user: comes after seq 5, but seq must rise",
}
"""What is done to a session whose turn has begun, and what must be said of it."""
