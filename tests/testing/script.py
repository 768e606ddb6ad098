"""Logs written by hand: a `Script` numbers events, a `Chat` is one session in it and knows its turn and epoch."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from quell.events import (
    AdmissionClosed,
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    MessageDelta,
    MessageDone,
    MessageUser,
    ModelAnswered,
    ModelRequested,
    ProcessEnded,
    ProcessSpawned,
    QueueParked,
    QueueReleased,
    RuntimeReady,
    RuntimeStopped,
    RuntimeStopping,
    SessionCompacted,
    SessionForked,
    SessionOpened,
    StopReceipt,
    StopRequested,
    ToolCall,
    ToolEnded,
    ToolOutput,
    ToolRefused,
    ToolRequested,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)

E = TypeVar("E", bound=Event)


class Script:
    """A log in the making."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._next = 1

    def add(self, event: E) -> E:
        numbered: E = msgspec.structs.replace(event, seq=self._next, at=1_000_000.0 + self._next)
        self._next += 1
        self.events.append(numbered)
        return numbered

    def skip(self, count: int) -> None:
        """Numbers that were given away, and lost in a crash."""
        self._next += count

    def ready(self) -> RuntimeReady:
        return self.add(RuntimeReady(version="1"))

    def halt(self) -> None:
        self.add(RuntimeStopping())
        self.add(RuntimeStopped())

    def open(self, session: str, **fields: Any) -> Chat:
        chat = Chat(self, session)
        chat.emit(SessionOpened, agent="scripted", **fields)
        return chat

    def fork(self, session: str, origin: str, upto: int) -> Chat:
        chat = self.open(session)
        chat.emit(SessionForked, origin=origin, upto=upto)
        return chat

    def stop_all(self, *chats: Chat) -> tuple[StopRequested, list[StopRequested]]:
        """Admission is closed, everything is asked to stop."""
        self.add(AdmissionClosed(reason="stop all"))
        everything = self.add(StopRequested(reach="all"))
        return everything, [chat.stop("all", cause=everything.seq) for chat in chats]


class Chat:
    """One session. Events get its turn and epoch; `turn` is that of the last turn that began."""

    def __init__(self, script: Script, session: str) -> None:
        self.script = script
        self.session = session
        self.number = 0
        self.epoch = 0
        self.turn: TurnStarted | None = None
        self._turn_epoch = 0

    def emit(self, make: type[E], **fields: Any) -> E:
        """An event of the session; `inside` has it carry the turn that runs."""
        return self.script.add(make(**{"session": self.session, "epoch": self.epoch, **fields}))

    def inside(self, make: type[E], **fields: Any) -> E:
        return self.emit(make, **{"turn": self.number, "epoch": self._turn_epoch, **fields})

    # -- turns

    def say(self, text: str = "hello", **fields: Any) -> MessageUser:
        return self.emit(MessageUser, source="user", text=text, **fields)

    def begin(self, message: MessageUser) -> TurnStarted:
        self.number += 1
        self.epoch += 1
        self._turn_epoch = self.epoch
        self.turn = self.inside(TurnStarted, cause=message.seq)
        return self.turn

    def end(self, end: str = "completed", **fields: Any) -> TurnEnded:
        assert self.turn is not None
        return self.inside(TurnEnded, **{"request": self.turn.seq, "cause": self.turn.seq, "end": end, **fields})

    def exchange(self, text: str, answer: str) -> None:
        """A whole turn without tools."""
        self.begin(self.say(text))
        self.answer(answer)
        self.done(answer)
        self.end()

    # -- models

    def ask(self, **fields: Any) -> ModelRequested:
        return self.inside(ModelRequested, model="scripted", **fields)

    def answer(self, text: str = "", *calls: ToolCall) -> ModelAnswered:
        request = self.ask()
        return self.inside(ModelAnswered, request=request.seq, cause=request.seq, text=text, calls=list(calls))

    def done(self, text: str) -> MessageDone:
        assert self.turn is not None
        self.inside(MessageDelta, request=self.turn.seq, text=text)
        return self.inside(MessageDone, request=self.turn.seq, text=text)

    def compact(self, summary: str, upto: int) -> SessionCompacted:
        request = self.ask(purpose="compact")
        answered = self.inside(ModelAnswered, request=request.seq, cause=request.seq, text=summary)
        return self.inside(SessionCompacted, cause=answered.seq, summary=summary, upto=upto)

    # -- tools

    def want(self, call: ToolCall | str = "c1", **fields: Any) -> ToolRequested:
        wish = ToolCall(call, "shell", {"command": "true"}) if isinstance(call, str) else call
        return self.inside(ToolRequested, tool=wish.tool, call=wish.id, arguments=wish.arguments, **fields)

    def start(self, tool: ToolRequested, **fields: Any) -> ToolStarted:
        return self.inside(ToolStarted, request=tool.seq, cause=tool.seq, **fields)

    def output(self, tool: ToolRequested, text: str) -> ToolOutput:
        return self.inside(ToolOutput, request=tool.seq, text=text)

    def finish(self, tool: ToolRequested, result: str = "ok", **fields: Any) -> ToolEnded:
        return self.inside(ToolEnded, request=tool.seq, cause=tool.seq, result=result, **fields)

    def refuse(self, tool: ToolRequested, reason: str = "stopped") -> ToolRefused:
        return self.inside(ToolRefused, request=tool.seq, cause=tool.seq, reason=reason)

    def use(self, call: ToolCall | str = "c1", result: str = "ok") -> ToolRequested:
        """A whole call."""
        tool = self.want(call)
        self.start(tool)
        self.output(tool, result)
        self.finish(tool, result)
        return tool

    def ask_approval(self, tool: ToolRequested) -> ApprovalAsked:
        return self.inside(ApprovalAsked, cause=tool.seq, tool=tool.tool, arguments=tool.arguments)

    def approve(self, asked: ApprovalAsked, allow: bool = True) -> ApprovalAnswered:
        return self.inside(ApprovalAnswered, request=asked.seq, cause=asked.seq, source="user", allow=allow)

    def spawn(self, tool: ToolRequested, pid: int, **fields: Any) -> ProcessSpawned:
        return self.inside(ProcessSpawned, cause=tool.seq, pid=pid, argv=["sleep", "9"], **fields)

    def reap(self, spawned: ProcessSpawned) -> ProcessEnded:
        return self.inside(ProcessEnded, cause=spawned.seq, pid=spawned.pid, end="exit 0")

    # -- stops and the queue

    def stop(self, reach: str = "turn", **fields: Any) -> StopRequested:
        self.epoch += 1
        return self.emit(StopRequested, **{"turn": self.number, "reach": reach, "source": "user", **fields})

    def receipt(self, stop: StopRequested, confirmed: bool = True) -> StopReceipt:
        return self.emit(StopReceipt, turn=stop.turn, request=stop.seq, cause=stop.seq, confirmed=confirmed)

    def park(self, *messages: MessageUser) -> QueueParked:
        return self.emit(QueueParked, messages=[one.seq for one in messages], reason="stopped")

    def release(self, *messages: MessageUser) -> QueueReleased:
        return self.emit(QueueReleased, messages=[one.seq for one in messages])


def rich() -> Script:
    """A log in which nearly everything happens once, and that keeps every rule."""
    script = Script()
    script.ready()
    a = script.open("a")
    a.begin(a.say("look around"))
    step = a.answer("I look.", ToolCall("c1", "shell", {"command": "ls"}), ToolCall("c2", "shell", {"command": "id"}))
    one, two = a.want("c1", cause=step.seq), a.want("c2", cause=step.seq)
    a.approve(a.ask_approval(two))
    a.start(one)
    job = a.spawn(one, 10, background=True)
    a.start(two)
    a.output(two, "some")
    a.finish(two)
    a.finish(one)
    a.answer("all fine")
    a.done("all fine")
    a.end()

    a.begin(a.say("ask another"))
    tool = a.want("c3")
    started = a.start(tool)
    child = script.open("a/1", parent="a", depth=1, cause=tool.seq)
    child.begin(child.say("sub-task", cause=tool.seq))
    child.answer("done")
    child.use("c1")
    child.done("done")
    child.end()
    a.finish(tool)
    waiting, later = a.say("and then?"), a.say("never mind")
    slow = a.want("c4", cause=started.seq)
    a.start(slow)
    asked = a.want("c5")
    approval = a.ask_approval(asked)
    stop = a.stop()
    late = a.want("c6")
    a.refuse(late)
    a.approve(approval, allow=False)
    a.refuse(asked)
    a.finish(slow, "", error="stopped")
    a.end("stopped")
    a.park(waiting, later)
    a.receipt(stop)
    a.reap(job)
    a.exchange("at once", "yes")
    a.release(waiting)
    a.begin(waiting)
    a.compact("they looked around", waiting.seq)
    a.end("failed", reason="no")

    fork = script.fork("b", "a", step.seq)
    fork.exchange("go on", "I go on")
    busy = fork.begin(fork.say("forever"))
    everything, stops = script.stop_all(a, fork)
    fork.end("stopped", reason=str(busy.seq))
    a.receipt(stops[0])
    fork.receipt(stops[1])
    script.add(StopReceipt(request=everything.seq, confirmed=True))
    script.halt()
    return script
