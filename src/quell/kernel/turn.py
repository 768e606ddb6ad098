"""One turn: it begins with a message, and ends exactly once, whatever raises, hangs or dies in between.

The fence is here: once a stop is recorded, nothing of the turn starts an effect (H18).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import FencedError, QuellError
from ..events import EndCause, Event, MessageDone, MessageUser, StopRequested, TurnEnded, TurnStarted, Usage
from ..supervise import Scope
from ..supervise.errand import Errand, Fact
from ..supervise.receipt import Receipt, of_nobody
from .ends import receipt_of
from .hosting import leave
from .loop import run
from .mind import LimitReached
from .parking import park
from .subscription import said

if TYPE_CHECKING:
    from .session import Session

E = TypeVar("E", bound=Event)
NEVER = 1 << 62
"""The request of an end that is not recorded: an interrupt came before its turn was."""


class Turn:
    """Made by its session. `over` tells how it ended."""

    def __init__(self, session: Session, message: MessageUser, number: int, epoch: int) -> None:
        self.session = session
        self.message = message
        self.number = number
        self.epoch = epoch
        self.steps = 0
        self.usage = Usage()
        self.spent = Usage()
        """With that of the sub-agents that it waits for: what its limits are of."""
        self.answer = ""
        self.deciding = asyncio.Lock()
        """Held while it is decided whether a call of it may be made."""
        self.scope: Scope | None = None
        self.ending: tuple[EndCause, str] | None = None  # why nothing may start any more
        self.over: Fact[TurnEnded] = Fact(session.host.loop)
        self.started = TurnStarted(session=session.id, turn=number, epoch=epoch, cause=message.seq)
        self._ended: TurnEnded | None = None
        self._outside: bool | None = None  # whether somebody else stopped its scope
        self._task: asyncio.Task[None] | None = None
        self._quiet: Fact[None] = Fact(session.host.loop)  # its task has ended, or its scope
        self._clock: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """In one step: recorded, owned, running."""
        try:
            self.session.turn_begins(self)
            self.session.emit(self.started)
            self.scope = self.session.ground().scope(f"turn-{self.number}")
            self._task = self.scope.task(run(self), name=f"turn {self.number} of {self.session.id}")
            self._task.add_done_callback(self._task_ended)
            Errand(self.session.host.loop, self._watch(self.scope))
            if seconds := self.session.agent.limits.seconds:
                self._clock = self.session.host.loop.call_later(seconds, self._run_out, seconds)
        except Exception as error:  # noqa: BLE001  a boundary: it has begun, and gets its end (H35)
            self.doom("failed", str(error) if isinstance(error, QuellError) else said(error))
            self._quiet.tell(None)
        except BaseException as error:
            self.doom("failed", said(error))
            self._quiet.tell(None)
            raise
        finally:
            self.session.host.see_to(self._finish)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # read here, whoever asks for it later
        self._quiet.tell(None)

    # -- the fence

    def doom(self, end: EndCause, reason: str) -> None:
        """From here on nothing of it starts. The first reason counts."""
        if self.ending is None:
            self.ending = end, reason

    def pass_fence(self) -> None:
        """In the same step in which an effect starts: FencedError if it must not."""
        if self.ending is not None:
            raise FencedError(f"the turn was {self.ending[0]}: {self.ending[1] or 'nothing of it starts any more'}")
        stopped = self.scope is not None and self.scope.stopping is not None  # from outside, and not yet recorded
        if stopped or self.session.epoch != self.epoch:
            raise FencedError("the turn was stopped: nothing of it starts any more")

    def used(self, usage: Usage) -> None:
        """Counts for this turn, and against the limits of all turns that wait for it."""
        self.usage += usage
        for turn in self.line():
            turn.spent += usage

    def line(self) -> Iterator[Turn]:
        """This turn, and those above it that wait for it."""
        yield self
        for session in list(self.session.line())[1:]:
            if session.turn is not None:
                yield session.turn

    def emit(self, make: type[E], **fields: Any) -> E:
        """An event of this turn. Once that has ended there are none: FencedError."""
        if self.over.known:
            raise FencedError("the turn has ended: nothing can be added to it")
        event = self.session.emit(make(session=self.session.id, turn=self.number, epoch=self.epoch, **fields))
        if isinstance(event, MessageDone):
            self.answer = event.text
        return event

    # -- the end

    def _run_out(self, seconds: float) -> None:
        self.doom("limit", f"time: {seconds:g} s")
        assert self.scope is not None
        self.scope.begin_stop("out of time")

    async def _watch(self, scope: Scope) -> None:
        """A task that will not end is named on the receipt, and does not keep the turn from ending."""
        await scope.stopped()
        self._quiet.tell(None)

    async def _finish(self) -> None:
        """Nobody's task, so nobody can cancel it; may be begun again after an interrupt."""
        await self._quiet.wait()
        if self._outside is None:  # else begun again: the stop is our own
            self._outside = self.scope is not None and self.scope.stopping is not None and self.ending is None
        receipt = of_nobody("end of turn")
        if self.scope is not None:
            receipt = await self.scope.begin_stop("end of turn").wait()
        if self._clock is not None:
            self._clock.cancel()
        if self._outside and self.ending is None:
            self._stopped_from_outside(receipt)
        end, reason = self.ending or self._outcome(receipt)
        self.doom(end, reason)
        journal = self.session.host.journal
        inner = journal.open_in(self.session.id, self.number)
        for event in journal.end_all(inner, f"{end}: {reason}" if reason else end):
            self.session.history.apply(event)
        ended = self._ended = self._ended or self.emit(
            TurnEnded,
            request=self.started.seq or NEVER,
            cause=self.started.seq,
            end=end,
            reason=reason,
            steps=self.steps,
            usage=self.usage,
        )
        await journal.seen_to(ended)
        self.session.turn_over(self)
        self.over.tell(ended)

    def _outcome(self, receipt: Receipt) -> tuple[EndCause, str]:
        task = self._task
        left = "" if receipt.confirmed else receipt.sentence()
        if task is None or not task.done() or task.cancelled():
            return "failed", left or "cancelled from inside"
        error = task.exception()
        if error is None:
            return "completed", left
        if isinstance(error, LimitReached):
            return "limit", str(error)
        return "failed", str(error) if isinstance(error, QuellError) else said(error)

    def _stopped_from_outside(self, receipt: Receipt) -> None:
        """By the control socket, say, while the loop was held up: recorded when it turns again (H25)."""
        self.session.epoch += 1
        self.doom("stopped", receipt.reason)
        asked = self.session.emit(
            StopRequested(
                session=self.session.id,
                turn=self.number,
                epoch=self.session.epoch,
                source="control",
                reach="turn" if self.session.stands else "session",
                reason=receipt.reason,
            )
        )
        self.session.recorded()
        park(self.session, asked, receipt.reason)
        if not self.session.stands:
            leave(self.session, receipt.reason)
        self.over.then(lambda: self.session.emit(receipt_of(asked, receipt)))
