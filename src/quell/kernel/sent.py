"""What `send` gives: a message on its way to its answer. It owns nothing: letting go of it cancels nothing (H20)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import TYPE_CHECKING, Any

from ..errors import NotAnsweredError
from ..events import (
    Event,
    MessageUser,
    QueueDiscarded,
    QueueParked,
    QueueReleased,
    SessionClosed,
    SessionDeleted,
    TurnEnded,
)

if TYPE_CHECKING:
    from .session import Session
    from .tail import Tail
    from .turn import Turn


class Sent:
    """Iterate over it for the events, or await it for the end of the turn."""

    def __init__(self, session: Session, message: MessageUser) -> None:
        self.session = session
        self.message = message
        self.turn: Turn | None = None  # once it is its turn

    @property
    def text(self) -> str:
        """The answer, as far as there is one."""
        return self.turn.answer if self.turn is not None else ""

    async def accepted(self) -> MessageUser:
        """Until the message is on disk. StoreError: it is not."""
        await self.session.host.journal.committed(self.message)
        return self.message

    def __await__(self) -> Generator[Any, None, TurnEnded]:
        return self._end().__await__()

    async def _end(self) -> TurnEnded:
        if self.turn is not None:
            return await self.turn.over.wait()
        async for event in self:
            if isinstance(event, TurnEnded):
                return event
        raise NotAnsweredError(f"message {self.message.seq} was not answered: a stop parked it, or it was discarded")

    def __aiter__(self) -> AsyncIterator[Event]:
        return Course(self, self.session.follow(self.message.seq - 1))

    @property
    def parked(self) -> bool:
        """Whether it waits for somebody to release it."""
        return any(one.seq == self.message.seq for one in self.session.parked)


class Course:
    """The events of one message: itself, those of its turn, and the last one; nothing after that."""

    def __init__(self, sent: Sent, tail: Tail) -> None:
        self._sent = sent
        self._tail = tail
        self._turn = 0

    def __aiter__(self) -> Course:
        return self

    async def __anext__(self) -> Event:
        async for event in self._tail:
            number = self._sent.message.seq
            if event.kind == "turn.started" and event.cause == number:
                self._turn = event.turn
            mine = event.seq == number or (self._turn and event.turn == self._turn)
            queued = isinstance(event, QueueParked | QueueReleased | QueueDiscarded) and number in event.messages
            gone = isinstance(event, SessionClosed | SessionDeleted) and not self._turn
            over = gone or (isinstance(event, QueueDiscarded) and queued)
            waits = isinstance(event, QueueParked) and queued and self._sent.parked
            ended = bool(mine) and isinstance(event, TurnEnded)
            if waits or over or ended:
                self._tail.close()
            if ended and self._sent.turn is not None:
                await self._sent.turn.over.wait()  # who has seen the end finds the session ready for the next message
            if mine or queued or over:
                return event
        raise StopAsyncIteration
