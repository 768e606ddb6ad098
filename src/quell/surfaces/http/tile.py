"""One session of the board: what its events add up to, bounded however long it lives. Cards are made when asked for."""

from __future__ import annotations

from ...events import (
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalWithdrawn,
    Event,
    MessageDone,
    MessageUser,
    ModelAnswered,
    ModelFailed,
    ModelRequested,
    ModelRestarted,
    ProcessEnded,
    ProcessSpawned,
    QueueDiscarded,
    QueueParked,
    QueueReleased,
    SessionClosed,
    SessionConfigured,
    SessionForked,
    SessionOpened,
    SessionRenamed,
    StopReceipt,
    StopRequested,
    ToolEnded,
    ToolRefused,
    TurnEnded,
    TurnStarted,
)
from .shapes import Card, Question, Queued, Running, Slip, State

SHORT = 300
"""Characters of a message or an output on a card."""
LONG = 20_000
"""Characters of a message in its queue."""
WORDS = 32
"""Words of a command."""


class Tile:
    """Of one session."""

    def __init__(self, opened: SessionOpened) -> None:
        self.id = opened.session
        self.title = opened.title
        self.slip: Slip | None = None
        self.turn = 0
        self.running = False
        self.changed = opened.at
        self._opened = opened
        self._agent, self._model = opened.agent, ""
        self._origin = ""
        self._closed = False
        self._end = self._reason = self._asked = ""
        self._settled = self._stream = ""
        self._streaming: tuple[int, str] = 0, ""  # the request whose output that is, and its channel
        self._summaries: set[int] = set()  # requests for one, which are no part of the conversation
        self._stops: set[int] = set()
        self._queue: dict[int, Queued] = {}
        self._approvals: dict[int, Question] = {}
        self._processes: dict[int, Running] = {}
        self._card: Card | None = None

    # -- what is asked for

    @property
    def state(self) -> State:
        if self._stops:
            return "stopping"
        if self._approvals:
            return "asking"
        return "running" if self.running else "closed" if self._closed else "idle"

    def card(self) -> Card:
        if self._card is None:
            opened, slip = self._opened, self.slip
            self._card = Card(
                id=self.id,
                title=self.title,
                agent=self._agent,
                model=self._model,
                cwd=opened.cwd,
                parent=opened.parent,
                origin=self._origin,
                opened=opened.at,
                changed=self.changed,
                state=self.state,
                turn=self.turn,
                end=self._end,
                reason=self._reason,
                asked=self._asked,
                last=tail(self._stream or self._settled, SHORT),
                queue=[head_of(one) for one in self.queue()],
                approvals=self.approvals(),
                processes=self.processes(),
                stopped=slip.seq if slip is not None else 0,
                confirmed=slip.confirmed if slip is not None else True,
            )
        return self._card

    def queue(self) -> list[Queued]:
        """In the order in which they were said."""
        return [self._queue[seq] for seq in sorted(self._queue)]

    def approvals(self) -> list[Question]:
        return list(self._approvals.values())

    def processes(self) -> list[Running]:
        return list(self._processes.values())

    # -- what happens

    def hear(self, request: int, channel: str, text: str) -> None:
        """A part of a stream: tens of thousands a second come by here."""
        if request in self._summaries and channel != "notice":
            return
        if self._streaming != (request, channel):
            self._streaming = request, channel
            self._stream = ""
        self._stream = (self._stream + text)[-SHORT - 1 :]
        self._card = None

    def apply(self, event: Event) -> None:
        self._card = None
        self.changed = event.at
        self._closed = isinstance(event, SessionClosed)
        match event:
            case TurnStarted():
                self.turn, self.running = event.turn, True
                self._end = self._reason = ""
                self._queue.pop(event.cause, None)
            case TurnEnded():
                self.running = False
                self._end, self._reason = event.end, event.reason
                self._settle("")
            case StopRequested():
                self._stops.add(event.seq)
            case StopReceipt():
                self._stops.discard(event.request)
            case SessionRenamed():
                self.title = event.title
            case SessionConfigured():
                self._agent, self._model = event.agent, event.model
            case SessionForked():
                self._origin = event.origin
            case SessionClosed():
                self._processes.clear()  # nothing of it runs, and nobody will say so of each
            case ApprovalAsked():
                self._approvals[event.seq] = Question(
                    event.seq, self.id, event.tool, event.arguments, event.digest, event.at
                )
            case ApprovalAnswered() | ApprovalWithdrawn():
                self._approvals.pop(event.request, None)
            case ProcessSpawned():
                argv = [head(word, SHORT) for word in event.argv[:WORDS]]
                self._processes[event.seq] = Running(event.pid, argv, event.background, event.turn, event.at)
            case ProcessEnded():
                self._processes.pop(event.cause, None)
            case MessageUser():
                self._asked = head(event.text, SHORT)
                self._queue[event.seq] = Queued(event.seq, head(event.text, LONG), event.at, False)
            case QueueParked() | QueueReleased():
                self._move(event.messages, parked=isinstance(event, QueueParked))
            case QueueDiscarded():
                for seq in event.messages:
                    self._queue.pop(seq, None)
            case _:
                self._said(event)

    def _said(self, event: Event) -> None:
        match event:
            case ModelRequested():
                self._model = event.model
                if event.purpose == "compact":
                    self._summaries.add(event.seq)
            case ModelRestarted():
                self._settle(event.reason)
            case ModelAnswered() | ModelFailed() if event.request in self._summaries:
                self._summaries.discard(event.request)
                self._settle("")
            case ModelAnswered() | MessageDone():
                self._settle(event.text)
            case ModelFailed():
                self._settle(event.error)
            case ToolEnded():
                self._settle(event.result or event.error)
            case ToolRefused():
                self._settle(event.reason)

    def _settle(self, text: str) -> None:
        """What was streamed is over, and this is what came of it: the same whether the stream was seen or not."""
        self._settled = text[-SHORT - 1 :] or self._settled
        self._stream, self._streaming = "", (0, "")

    def _move(self, messages: list[int], parked: bool) -> None:
        for seq in messages:
            if (one := self._queue.get(seq)) is not None:
                self._queue[seq] = Queued(one.message, one.text, one.at, parked)

    def gone(self, before: int) -> bool:
        """The processes that were spawned before this event have ended. Whether there were any."""
        ended = [seq for seq in self._processes if seq < before]
        for seq in ended:
            del self._processes[seq]
        self._card = None if ended else self._card
        return bool(ended)


def head(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


def tail(text: str, most: int) -> str:
    return text if len(text) <= most else "…" + text[-most:]


def head_of(one: Queued) -> Queued:
    return one if len(one.text) <= SHORT else Queued(one.message, head(one.text, SHORT), one.at, one.parked)
