"""A session: a conversation with one agent, one turn at a time, with a queue that a stop parks and never loses (H19).

A stop is recorded and fences in one step; what it ends, and in which order, is `halting.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from ..config import Agent
from ..errors import NoSessionError, UsageError
from ..events import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    Extent,
    Image,
    MessageUser,
    Reach,
    SessionClosed,
    SessionConfigured,
    SessionRenamed,
    StopRequested,
)
from ..images import checked
from ..supervise import Process, Receipt, Scope
from ..supervise.errand import Errand, Fact
from ..supervise.receipt import of_nobody
from ..supervise.request import plain
from .answering import answer
from .asked import is_text
from .commands import Commands, Spawned
from .ends import receipt_of
from .export import to_jsonl, to_markdown
from .halting import Halt
from .history import History
from .hosting import Guest, dismiss, leave
from .parking import discard, park, release
from .sent import Sent
from .turn import Turn

if TYPE_CHECKING:
    from .host import Host
    from .tail import Tail

E = TypeVar("E", bound=Event)


class Session:
    """Made by the runtime: `open`, `resume`, `fork`."""

    def __init__(
        self,
        host: Host,
        id: str,  # noqa: A002  the word for it everywhere
        agent: Agent,
        cwd: str,
        title: str,
        parent: Session | None,
        ground: Scope | None,
    ) -> None:
        self.host = host
        self.id = id
        self.agent = agent
        self.cwd = cwd
        self.title = title
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.epoch = 0
        self.turns = 0
        self.turn: Turn | None = None
        self.waiting: deque[MessageUser] = deque()
        self.parked: list[MessageUser] = []
        self.history = History()
        self.children: dict[str, Session] = {}
        self.halts: set[Halt] = set()
        self.guest: Guest | None = None
        self.commands = Commands()
        self.allowed: set[tuple[str, str]] = set()  # by agent and digest: what is not asked again here
        self.keeping: dict[int, Fact[bool]] = {}  # approvals that are being written down for always
        self.gone = False  # closed or deleted: nothing is added any more
        self._above = ground
        self._recorded: Scope | None = None  # whose stop is in the log
        self._scope: Scope | None = None
        self._jobs_scope: Scope | None = None
        self._sent: dict[int, Sent] = {}
        self._closed: Fact[Receipt] | None = None
        self._again = False  # closed to be started again
        self._goodbye: SessionClosed | None = None

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.state}>"

    @property
    def state(self) -> Literal["closed", "stopping", "running", "idle"]:
        if self.gone:
            return "closed"
        return "stopping" if self.halts else "running" if self.turn is not None else "idle"

    @property
    def model(self) -> str:
        """What answers: `provider:model`; empty where a harness does."""
        return "" if self.agent.harness else self.agent.model

    @property
    def closing(self) -> Fact[Receipt] | None:
        """Its close, once somebody has asked for it."""
        return self._closed

    @property
    def at_work(self) -> bool:
        """Whether there is anything that a stop would end or park."""
        lives = self._scope is not None and not self._scope.over
        return lives or self.turn is not None or bool(self.waiting or self.halts or self.children)

    def line(self) -> Iterator[Session]:
        """It, and those above it, the nearest first."""
        found: Session | None = self
        while found is not None:
            yield found
            found = found.parent

    # -- what a person asks for

    def send(self, text: str, images: Sequence[Image] = ()) -> Sent:
        """Say something to the agent: at once, or after what it is busy with. Refused while admission is closed.

        Iterate over what this gives to see the events of the answer, or await it for how the turn ended. Letting go
        of it cancels nothing (H20). `quell.images.load` makes an image of a file.
        """
        self._alive()
        self.host.admit()
        is_text("a message", text)
        pictures = checked(images)
        if pictures and self.agent.harness:
            raise UsageError(f"the agent {self.agent.name} is a harness, which takes no images")
        message = self.emit(MessageUser(session=self.id, epoch=self.epoch, source="user", text=text, images=pictures))
        sent = self._sent[message.seq] = Sent(self, message)
        self.waiting.append(message)
        self.go_on()
        return sent

    async def stop(
        self, *, reach: Reach = "session", reason: str = "stop", grace: float | None = None, force: bool = False
    ) -> Receipt:
        """End the turn, or all of the session: background jobs and sub-agents too. The queue is parked.

        Asking again joins; `force` cuts it short. Cancelling the asker changes nothing.
        """
        if reach not in ("turn", "session"):
            raise UsageError(
                f"a session stops with reach 'turn' or 'session', not {reach!r}; Runtime.stop_all stops all"
            )
        reason, _ = plain(reason, 0 if grace is None else grace)  # refused before anything is begun
        return await self.begin_stop(reach, reason, grace, force).wait()

    def approve(self, request: int, allow: bool, reason: str = "", extent: Extent = "once") -> ApprovalAnswered:
        """Answer an approval, named by the `seq` of its question.

        A yes is for once, or the same call is not asked again: in this session, or always, for this agent in this
        folder. An `always` that cannot be kept is for once, and a notice says so.
        """
        return answer(self, request, allow, reason, extent)

    def release(self, messages: Iterable[int] | None = None) -> list[int]:
        """Let the parked messages run, or those of these numbers, in their order, before any that came later."""
        self._alive()
        self.host.admit()
        return release(self, messages)

    def discard(self, messages: Iterable[int] | None = None) -> list[int]:
        """Drop the parked messages, or those of these numbers."""
        self._alive()
        dropped = discard(self, messages)
        for number in dropped:
            self._sent.pop(number, None)
        return dropped

    async def rename(self, title: str) -> None:
        self._alive()
        is_text("a title", title)
        renamed = self.emit(SessionRenamed(session=self.id, epoch=self.epoch, source="user", title=title))
        self.title = renamed.title
        await self.host.journal.committed(renamed)

    async def use(self, agent: str | None = None, model: str | None = None) -> None:
        """From the next turn on this agent answers, with this model. UsageError while a turn runs.

        Another agent brings its own model, if it has one and none is named.
        """
        self._alive()
        chosen = self.host.chosen(self, agent, model)
        await self.host.sandbox.check(chosen, self.cwd)
        self._alive()
        if self.turn is not None:
            raise UsageError(f"session {self.id} is busy: another agent or model answers only after the turn's end")
        configured = self.emit(configuration(self, chosen, "user", chosen=bool(agent)))
        if self.guest is not None and self.guest.request.harness != chosen.harness:
            dismiss(self, "another agent answers now")
        self.agent = chosen
        await self.host.journal.committed(configured)

    async def fork(self, upto: int | None = None) -> Session:
        """A new session that begins with the history of this one, up to and with the event `upto`."""
        self._alive()
        return await self.host.fork(self, upto)

    async def delete(self) -> Receipt:
        """Stop it, then remove all of it from the log."""
        return await self.host.archive.delete(self.id)

    async def close(self) -> Receipt:
        """Stop it and let go of it. It stays in the log, and can be resumed."""
        return await self.begin_close("closed").wait()

    async def restart(self, *, reason: str = "restart") -> Receipt:
        """Stop all of it, and begin anew: `Runtime.resume` gives the new incarnation, and this object is done with.

        Its queue stays parked. Asking again joins; cancelling the asker changes nothing.
        """
        if not self.host.restarts(self.id):
            self._alive()
        receipt, _ = await self.host.restart(self.id, reason)
        return receipt

    async def export(self, form: Literal["jsonl", "markdown"] = "jsonl") -> str:
        """The whole conversation; of a fork, with what it began with."""
        events = await self.host.archive.events(self.id)
        if form == "jsonl":
            return b"".join(to_jsonl(events)).decode()
        if form == "markdown":
            return to_markdown(events, self.title or self.id)
        raise UsageError(f"an export is 'jsonl' or 'markdown', not {form!r}")

    def processes(self) -> list[Spawned]:
        """The commands of it that run now, in the foreground and in the background."""
        return self.commands.all()

    def follow(self, after: int = 0) -> Tail:
        """All events of this session after that one, and then those that come."""
        return self.host.follow(after, self.id)

    # -- turns

    def emit(self, event: E) -> E:
        """Record an event of this session."""
        self.host.journal.emit(event)
        if event.seq:
            self.history.apply(event)
        return event

    def go_on(self) -> None:
        """Start the next turn, if there is one and nothing is in its way."""
        if self.turn is None and not self.halts and self.waiting and not self.gone and self.host.open:
            Turn(self, self.waiting[0], self.turns + 1, self.epoch + 1).begin()

    def turn_begins(self, turn: Turn) -> None:
        """By the turn, once its end is seen to whatever comes."""
        self.turn, self.turns, self.epoch = turn, turn.number, turn.epoch
        if (sent := self._sent.get(turn.message.seq)) is not None:
            sent.turn = turn
        self.waiting.popleft()

    def turn_over(self, turn: Turn) -> None:
        """By the turn, at its end."""
        if self.turn is turn:  # else its end was begun again, and the next one runs
            self.turn = None
        self._sent.pop(turn.message.seq, None)
        self.go_on()

    # -- stops

    def begin_stop(
        self, reach: Reach, reason: str, grace: float | None = None, force: bool = False, cause: int = 0
    ) -> Fact[Receipt]:
        """In one step: recorded, fenced, parked, begun. What was asked for is a fact that nobody can cancel."""
        if self.gone or (self.host.closing and not self.at_work):
            return known(self.host.loop, of_nobody(reason))
        self.epoch += 1
        turn = self.turn
        asked = self.emit(
            StopRequested(
                session=self.id,
                turn=turn.number if turn is not None else 0,
                epoch=self.epoch,
                source="user" if not cause else "kernel",
                cause=cause,
                reach=reach,
                reason=reason,
                force=force,
            )
        )
        if turn is not None:
            turn.doom("stopped", reason)
            open_ = self.host.journal.open_in(self.id, turn.number)
            approvals = [one for one in open_ if isinstance(one, ApprovalAsked)]
            self.host.journal.end_all(approvals, f"stopped: {reason}", self.epoch)  # nobody can say yes any more
        park(self, asked, reason)
        below = [one.begin_stop("session", reason, grace, force, asked.seq) for one in list(self.children.values())]
        if reach != "turn":
            self.recorded()
        scope = self._scope if reach != "turn" else turn.scope if turn is not None else None
        return Halt(self, asked, scope if scope is not None and not scope.over else None, below, grace).done

    def begin_close(self, reason: str, *, again: bool = False) -> Fact[Receipt]:
        """Stop it first, if there is anything to stop. To be started `again` it is always stopped, and not closed."""
        if self._closed is None:
            self._again = again
            nobody = known(self.host.loop, of_nobody(reason))
            stopped = self.begin_stop("session", reason) if again or self.at_work else nobody
            self._closed = self.host.see_to(lambda: self._close(stopped, reason))
        return self._closed

    async def _close(self, stopped: Fact[Receipt], reason: str) -> Receipt:
        receipt = await stopped.wait()
        if self._goodbye is None and not self._again:  # else begun again after an interrupt
            self._goodbye = self.emit(SessionClosed(session=self.id, epoch=self.epoch, reason=reason))
        self.gone = True
        self.host.forget(self)
        self._sent.clear()
        if self._goodbye is not None:
            await self.host.journal.seen_to(self._goodbye)
        return receipt

    # -- where its work lives

    def ground(self) -> Scope:
        """Its scope, with a box of its own; a new one after a stop of the whole session."""
        if self._scope is None or self._scope.stopping is not None:
            above = self._above if self._above is not None else self.host.ground()
            self._scope = above.scope(self.id, box=self.parent is None)
            self._jobs_scope = None
            Errand(self.host.loop, self._watch(self._scope))
        return self._scope

    @property
    def stands(self) -> bool:
        """Whether its scope is there, and is not being stopped."""
        return self._scope is not None and self._scope.stopping is None

    def recorded(self) -> None:
        """A stop of the scope that it has now is in the log."""
        self._recorded = self._scope

    async def _watch(self, scope: Scope) -> None:
        """Somebody stops it from outside while it is idle: recorded when the loop turns (H25)."""
        receipt = await scope.stopped()
        if scope is self._recorded or self.gone or self.turn is not None:
            return
        self.epoch += 1
        asked = self.emit(
            StopRequested(session=self.id, epoch=self.epoch, source="control", reach="session", reason=receipt.reason)
        )
        park(self, asked, receipt.reason)
        leave(self, receipt.reason)
        self.emit(receipt_of(asked, receipt))

    def jobs_scope(self) -> Scope:
        """For what was put in the background on purpose: it outlives the turn."""
        ground = self.ground()
        if self._jobs_scope is None or self._jobs_scope.stopping is not None:
            self._jobs_scope = ground.scope("jobs")
        return self._jobs_scope

    def jobs(self) -> Sequence[Process]:
        """The commands of its background that still run."""
        return self.commands.background()

    def resumed(self, title: str, epoch: int, turns: int, parked: list[MessageUser]) -> None:
        """As the log has it."""
        self.title, self.epoch, self.turns, self.parked = title, epoch, turns, parked

    def _alive(self) -> None:
        if self.gone or self._closed is not None:
            state = "was restarted" if self._again else "is closed"
            what = "gives its new incarnation" if self._again else "opens it again"
            raise NoSessionError(f"session {self.id} {state}; Runtime.resume({self.id!r}) {what}")
        self.host.archive.exists(self.id)
        self.host.running()


def configuration(
    session: Session, agent: Agent, source: str, cause: int = 0, *, chosen: bool = False
) -> SessionConfigured:
    """What is recorded of who answers: of a harness only the name."""
    return SessionConfigured(
        session=session.id,
        epoch=session.epoch,
        source=source,
        cause=cause,
        agent=agent.name,
        model="" if agent.harness else agent.model,
        chosen=chosen,
    )


def known(loop: asyncio.AbstractEventLoop, receipt: Receipt) -> Fact[Receipt]:
    fact: Fact[Receipt] = Fact(loop)
    fact.tell(receipt)
    return fact
