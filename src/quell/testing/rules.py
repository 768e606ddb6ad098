"""What every log keeps, as one pass over it: order, causality, one end for each request, one turn at a time, the fence.

A log that keeps them all makes no offence; each offence is one sentence with the event's `seq` and kind.
"""

from __future__ import annotations

from ..events import (
    ENDERS,
    OPENERS,
    ApprovalAnswered,
    Event,
    QueueDiscarded,
    QueueParked,
    QueueReleased,
    Reply,
    SessionCompacted,
    SessionForked,
    StopReceipt,
    ToolEnded,
)
from .standing import ANSWERS, EFFECTS, INNER, OF_SESSIONS, Message, Request, Session


class Rules:
    """Feed it the events in the order of the log, then ask for the offences."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str]] = []
        self._last = 0
        self._seen: set[int] = set()
        self._uncaused: list[Event] = []
        self._deleted = 0
        self._requests: dict[int, Request] = {}
        self._open: dict[int, Request] = {}
        self._calls: dict[int, Request] = {}
        """Tool requests by their own `seq` and that of their tool.started: what opens a sub-agent's session."""
        self._sessions: dict[str, Session] = {}
        self._admission_closed = 0
        self._all_stopped = 0
        self._runtime = ""
        self._special = {
            "admission.closed": self._admission,
            "admission.reopened": self._admission,
            "approval.answered": self._approval_answered,
            "approval.asked": self._approval_asked,
            "message.user": self._message,
            "process.spawned": self._process_spawned,
            "queue.discarded": self._queue,
            "queue.parked": self._queue,
            "queue.released": self._queue,
            "runtime.ready": self._run,
            "runtime.stopped": self._run,
            "runtime.stopping": self._run,
            "session.compacted": self._upto,
            "session.configured": self._configured,
            "session.deleted": self._session_deleted,
            "session.forked": self._session_begins,
            "session.opened": self._session_begins,
            "stop.receipt": self._stop_receipt,
            "stop.requested": self._stop_requested,
            "tool.ended": self._tool_ended,
            "tool.started": self._tool_started,
            "turn.ended": self._turn_ended,
            "turn.started": self._turn_started,
        }

    def see(self, event: Event) -> None:
        kind, seq = event.kind, event.seq
        if seq <= self._last:
            self.say(event, f"comes after seq {self._last}, but seq must rise")
        else:
            self._last = seq
        if event.cause and event.cause not in self._seen and kind != "x":
            self._uncaused.append(event)
        self._seen.add(seq)
        if kind == "x":
            return
        if event.session and kind.partition(".")[0] in OF_SESSIONS:
            self._of_session(event)
        request = self._reply(event) if isinstance(event, Reply) else None
        if kind in OPENERS:
            self._opens(event)
        if kind in EFFECTS:
            self._fence(event)
        if special := self._special.get(kind):
            special(event)
        if request is not None and kind in ENDERS:
            self._ends(event, request)

    def say(self, event: Event, sentence: str) -> None:
        self._found.append((event.session, f"seq {event.seq}, {event.kind}: {sentence}."))

    def offences(self, live: bool) -> list[str]:
        """All that were found. Unless the log is `live`, what is open now will never end."""
        for event in self._uncaused:
            if event.cause >= event.seq:
                self.say(event, f"its cause {event.cause} does not come before it")
            elif event.cause > self._deleted:  # else it may have gone with the session that was deleted later
                self.say(event, f"its cause {event.cause} is not in the log")
        if not live:
            for one in self._open.values():
                ends = " or ".join(OPENERS[one.kind])
                self._found.append((one.session, f"seq {one.seq}, {one.kind}: it never ended, by {ends}."))
        forgotten = {name for name, session in self._sessions.items() if session.deleted and not session.opened}
        return [sentence for session, sentence in self._found if session not in forgotten]

    # -- requests

    def _reply(self, event: Event) -> Request | None:
        request = self._requests.get(event.request)
        if request is None:
            self.say(event, f"there is no request {event.request} before it")
        elif request.kind != ANSWERS[event.kind]:
            self.say(event, f"it does not belong to {request}, but to a {ANSWERS[event.kind]}")
        elif request.end and event.kind in ENDERS:
            self.say(event, f"a second end of {request}, which {request.end} at seq {request.ended} ended")
        elif request.end:
            self.say(event, f"comes after the end of {request}, which was {request.end} at seq {request.ended}")
        elif event.session != request.session:
            self.say(event, f"it is of session {event.session!r}, and {request} of {request.session!r}")
        elif event.turn != request.turn and request.kind != "harness.starting":  # which outlives the turn
            self.say(event, f"it is of turn {event.turn}, and {request} of turn {request.turn}")
        else:
            return request
        return None

    def _opens(self, event: Event) -> None:
        request = Request(event)
        self._requests[event.seq] = self._open[event.seq] = request
        if event.kind == "tool.requested":
            self._calls[event.seq] = request
        needs_turn = event.kind in INNER and (event.turn or event.kind != "model.requested")  # to compact takes none
        if needs_turn and (turn := self._turn(event)) is not None:
            turn.inner[event.seq] = request

    def _ends(self, event: Event, request: Request) -> None:
        request.end, request.ended = event.kind, event.seq
        self._open.pop(request.seq, None)
        if request.kind in INNER and (turn := self._session(event).turns.get(event.turn)):
            turn.inner.pop(request.seq, None)

    def _turn(self, event: Event) -> Request | None:
        """The turn of an event that needs one which runs."""
        turn = self._session(event).turns.get(event.turn)
        if turn is None:
            self.say(event, f"turn {event.turn} of session {event.session!r} has not started")
        elif turn.end:
            self.say(event, f"turn {event.turn} ended before, at seq {turn.ended}")
            return None
        return turn

    # -- the fence

    def _fence(self, event: Event) -> None:
        session = self._session(event)
        turn = session.turns.get(event.turn)
        epoch = event.epoch if turn is None else min(event.epoch, turn.epoch)
        if epoch < session.fence:
            self.say(event, f"epoch {epoch} starts an effect after the stop at seq {session.stop}")
        elif turn is not None and turn.seq < self._all_stopped:
            self.say(event, f"starts an effect of a turn that the stop of all at seq {self._all_stopped} ended")
        outer = turn.outer if turn else None
        while outer is not None:
            above = self._sessions[outer.session]
            if outer.end:
                self.say(event, f"a sub-agent starts an effect after its {outer} ended")
            elif outer.epoch < above.fence:
                self.say(event, f"a sub-agent starts an effect after the stop at seq {above.stop} of its {outer}")
            higher = above.turns.get(outer.turn)
            outer = higher.outer if higher else None

    def _stop_requested(self, event: Event) -> None:
        if not event.session:
            self._all_stopped = event.seq
            if not self._admission_closed:
                self.say(event, "stops all while admission is open")
            return
        session = self._session(event)
        running = session.running
        if event.epoch < session.epoch or (running and event.epoch <= running.epoch):
            self.say(event, f"its epoch {event.epoch} is not above {session.epoch}, so it fences nothing")
        session.epoch = session.fence = max(session.epoch, event.epoch)
        session.stop = event.seq

    def _stop_receipt(self, event: Event) -> None:
        assert isinstance(event, StopReceipt)
        if not event.confirmed or (stop := self._requests.get(event.request)) is None:
            return
        if event.session:
            running = self._session(event).running
            turns = [running] if running else []
        else:
            turns = [one for one in self._open.values() if one.kind == "turn.started"]
        for turn in turns:
            if turn.seq < stop.seq:
                self.say(event, f"confirmed while {turn} was open")

    def _admission(self, event: Event) -> None:
        self._admission_closed = event.seq if event.kind == "admission.closed" else 0

    def _admitted(self, event: Event) -> None:
        if self._admission_closed:
            self.say(event, f"admission was closed at seq {self._admission_closed}")

    # -- sessions and turns

    def _session(self, event: Event) -> Session:
        found = self._sessions.get(event.session)
        if found is None:
            found = self._sessions[event.session] = Session()
        return found

    def _of_session(self, event: Event) -> None:
        session = self._session(event)
        if session.deleted:
            self.say(event, f"session {event.session!r} was deleted before")
        elif not (session.opened or session.forked) and not event.kind.startswith("session."):
            self.say(event, f"session {event.session!r} was not opened before")

    def _session_begins(self, event: Event) -> None:
        session = self._session(event)
        word = "forked" if isinstance(event, SessionForked) else "opened"
        if getattr(session, word):
            self.say(event, f"session {event.session!r} was {word} before")
        elif not session.opened and not session.forked:
            self._admitted(event)
        setattr(session, word, True)
        session.outer = self._calls.get(event.cause, session.outer)
        if isinstance(event, SessionForked):
            self._upto(event)
            if session.turns:
                self.say(event, "its session had a turn before")

    def _upto(self, event: Event) -> None:
        assert isinstance(event, SessionForked | SessionCompacted)
        if event.upto >= event.seq:
            self.say(event, f"what it reaches to, {event.upto}, does not come before it")

    def _configured(self, event: Event) -> None:
        if running := self._session(event).running:
            self.say(event, f"another answers while {running} is open")

    def _session_deleted(self, event: Event) -> None:
        session = self._session(event)
        session.deleted = True
        self._deleted = event.seq
        if session.running:
            self.say(event, f"{session.running} is open")

    def _turn_started(self, event: Event) -> None:
        session, turn = self._session(event), self._requests[event.seq]
        self._admitted(event)
        if self._runtime == "runtime.stopped":
            self.say(event, "starts after runtime.stopped")
        if session.running:
            self.say(event, f"starts while {session.running} is open")
        if event.turn != session.number + 1:
            self.say(event, f"turn {event.turn} comes after turn {session.number}")
        if event.epoch <= session.epoch:
            self.say(event, f"its epoch {event.epoch} is not above {session.epoch}")
        message = session.messages.get(event.cause)
        if message is None:
            self.say(event, f"its cause {event.cause} is no message of the session")
        else:
            if message.state:
                self.say(event, f"message {event.cause} was {message.state} before")
            message.state = "answered"
            turn.outer = message.outer
        session.running = session.turns[event.turn] = turn
        session.number, session.epoch = event.turn, max(session.epoch, event.epoch)

    def _turn_ended(self, event: Event) -> None:
        session = self._session(event)
        turn = self._requests.get(event.request)
        if turn is None or turn is not session.running:
            return
        session.running = None
        for one in turn.inner.values():
            self.say(event, f"ends the turn while {one} is open")

    def _run(self, event: Event) -> None:
        needed = {"runtime.stopping": "runtime.ready", "runtime.stopped": "runtime.stopping"}.get(event.kind)
        if needed and self._runtime != needed:  # while a runtime may be ready after anything: it was killed
            self.say(event, f"comes after {self._runtime or 'nothing'}, but needs {needed}")
        if event.kind != "runtime.stopping":
            for one in self._open.values():
                if event.kind == "runtime.stopped" or one.kind in INNER or one.kind == "turn.started":
                    self.say(event, f"{one} is open")
        self._runtime = event.kind

    # -- messages, tools, approvals

    def _message(self, event: Event) -> None:
        session = self._session(event)
        outer = session.outer  # once its call is over, a sub-agent's session is one like any other
        session.messages[event.seq] = Message(None if outer is None or outer.end else outer)

    def _queue(self, event: Event) -> None:
        assert isinstance(event, QueueParked | QueueReleased | QueueDiscarded)
        messages = self._session(event).messages
        for seq in event.messages:
            if (message := messages.get(seq)) is None:
                self.say(event, f"{seq} is no message of the session")
            elif message.state in ("answered", "discarded"):
                self.say(event, f"message {seq} was {message.state} before")
            else:
                word = event.kind.partition(".")[2]
                message.state = "" if word == "released" else word

    def _tool_started(self, event: Event) -> None:
        tool = self._requests.get(event.request)
        if tool is None:
            return
        self._calls[event.seq] = tool
        if tool.started:
            self.say(event, f"{tool} was started before, at seq {tool.started}")
        tool.started = event.seq
        for approval in tool.approvals:
            if not approval.allowed:
                self.say(event, f"starts what {approval} did not allow")

    def _tool_ended(self, event: Event) -> None:
        assert isinstance(event, ToolEnded)
        tool = self._requests.get(event.request)
        if not event.error and tool and not tool.started:
            self.say(event, f"ends {tool} well, which no tool.started began")

    def _approval_asked(self, event: Event) -> None:
        tool = self._requests.get(event.cause)
        if tool is None or tool.kind != "tool.requested" or tool.session != event.session:
            self.say(event, f"its cause {event.cause} is no tool request of the session")
        else:
            tool.approvals.append(self._requests[event.seq])

    def _approval_answered(self, event: Event) -> None:
        assert isinstance(event, ApprovalAnswered)
        if approval := self._requests.get(event.request):
            approval.allowed = event.allow and not approval.end

    def _process_spawned(self, event: Event) -> None:
        if event.turn:
            self._turn(event)
        if (tool := self._requests.get(event.cause)) and tool.kind == "tool.requested" and tool.end:
            self.say(event, f"spawned by {tool}, which ended at seq {tool.ended}")
