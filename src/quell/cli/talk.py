"""A conversation in the terminal: a line to type on, what happens above it, and Ctrl+C that stops.

The line is never taken away by what happens, and whatever goes wrong the terminal is given back as it was found.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any

from prompt_toolkit.formatted_text import ANSI, AnyFormattedText, to_formatted_text

from ..errors import QuellError
from ..events import Event, MessageUser, SessionOpened, StopReceipt, TurnEnded, TurnStarted
from .above import Above, rows
from .display import Display
from .local import Local
from .outlet import Outlet
from .questions import Questions, is_answer
from .remembered import Remembered
from .screen import one_line
from .slash import Slash, completions
from .typing_line import Line

if TYPE_CHECKING:
    from ..events import Reach
    from ..kernel.session import Session
    from .ending import Asked

PROMPT = "> "
HISTORY = "chat-history"
BEAT = 0.5
"""Seconds between two looks at the clock while a turn runs."""
WAITING = 3
"""Messages of the queue that are shown over the line."""
PAST = 4
"""Messages that are shown of a session that is gone on with."""


class Talk:
    def __init__(self, local: Local, first: str, *, yes: bool) -> None:
        self._local = local
        self._first = first
        self._yes = yes
        self._start = Display(Outlet())  # while there is no line yet
        self._above: Above
        self._display: Display
        self._session: Session
        self._questions: Questions
        self._line: Line
        self._messages: dict[int, str] = {}  # those that have no turn yet
        self._reach: Reach = "turn"  # of the stop that is under way
        self._since = 0.0
        self._beat: asyncio.TimerHandle | None = None
        self._error: BaseException | None = None
        self.receipt: StopReceipt | None = None
        """The latest."""

    def run(self) -> int:
        try:
            return self._local.run(self._work, starting=self._start.status.start)
        finally:
            self._start.status.stop()
            self._start.outlet.last()

    # -- from the first line to the last

    async def _work(self, local: Local, session: Session) -> int:
        self._prepare(local, session)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._broke)
        scope = local.runtime.scope("chat")
        slash = Slash(self, local, session, self._display)
        tail = local.runtime.follow(local.runtime.host.journal.last)
        local.told, local.lives_on = self._hear, True
        tasks = [
            scope.task(self._above.pump(), name="what is said"),
            scope.task(self._follow(tail), name="what happens"),
            scope.task(self._do(slash), name="what was typed"),
        ]
        try:
            self._greet()
            if self._first.strip():
                self._say(self._first)
            reading = scope.task(self._line.read(), name="what is typed")
            await asyncio.wait([reading, *tasks], return_when=asyncio.FIRST_COMPLETED)
            self._line.leave()
            await asyncio.wait([reading])
        finally:
            tail.close()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            if self._beat is not None:
                self._beat.cancel()
            loop.set_exception_handler(None)
            self._above.last()
        self._raise([reading, *tasks])
        return await self._farewell()

    def _prepare(self, local: Local, session: Session) -> None:
        self._start.status.stop()
        self._start.outlet.last()
        self._session = session
        self._messages = {one.seq: one.text for one in session.parked}
        self._above = Above()
        self._display = Display(self._above)
        self._questions = Questions(self._display, local.approve, yes=self._yes)
        self._line = Line(
            over=self._over,
            toolbar=self._toolbar,
            interrupted=self._interrupted,
            history=Remembered(os.path.join(local.runtime.home, HISTORY), local.redact, is_answer),
            offer=lambda before: completions(before, local.runtime.host.agents),
            colour=self._display.out.colour,
        )
        self._above.application = self._line.app
        local.ending.last = self._line.keyboard.give_back

    def _raise(self, tasks: list[asyncio.Task[None]]) -> None:
        """What went wrong, if anything did; the terminal is as it was by now."""
        errors = [one.exception() for one in tasks if not one.cancelled()]
        for error in (self._error, *errors):
            if error is not None:
                raise error

    def _broke(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something raised where nobody waits for it: a key, a redraw. That ends the conversation, in a sentence."""
        error = context.get("exception")
        if error is None or "future" in context:  # said at the end of some object's life, by whatever made it
            return
        self._error = self._error or error
        self._line.leave()

    def _greet(self) -> None:
        session, display = self._session, self._display
        display.line("bold", f"session {session.id}, {who(session)} in {one_line(session.cwd)}")
        display.line("dim", "Ctrl+C stops a turn, Ctrl+D leaves, /help lists what else there is")
        past = [one for one in session.history.messages("") if one.role in ("user", "assistant") and one.text.strip()]
        if len(past) > PAST:
            display.line("dim", f"{len(past) - PAST} earlier messages; /export writes them all")
        for one in past[-PAST:]:
            display.line("dim", f"{PROMPT if one.role == 'user' else ''}{one_line(one.text, 4 * display.out.width)}")
        self._tell_parked()

    def _tell_parked(self) -> None:
        if parked := len(self._session.parked):
            what = "1 message is" if parked == 1 else f"{parked} messages are"
            self._display.line("yellow", f"{what} parked; /queue lists them, /queue release sends them")

    async def _farewell(self) -> int:
        """All of it ends here. Ctrl+C is a signal again, and forces."""
        session, display, local = self._session, self._display, self._local
        code, busy = next((one.code for one in local.ending.asked), 0), session.turn is not None
        if busy or session.jobs():
            display.line("dim", "ending what runs; Ctrl+C forces")
            self._above.last()
        receipt = await local.finish()
        if local.jobs:
            display.line("dim", f"ended with the conversation: {one_line(', '.join(local.jobs), 200)}")
        if receipt is not None and (busy or not receipt.confirmed):
            display.line("green" if receipt.confirmed else "alarm", local.redact(receipt.sentence()))
        display.line("dim", f"session {session.id}; quell chat --resume {session.id} goes on with it")
        self._above.last()
        return code

    # -- the line

    async def _do(self, slash: Slash) -> None:
        """What was entered, in its order: a command may take its time, and the line stays."""
        while True:
            text, begun = await self._line.entered.get()
            if self._questions.answered(text, begun):
                pass
            elif text.lstrip().startswith("/"):
                self._display.line("bold", f"{PROMPT}{text.strip()}")
                if await slash.do(text.strip()):
                    return
            else:
                self._say(text)
            self._above.kick()

    def _say(self, text: str) -> None:
        try:
            self._session.send(text)
        except QuellError as error:
            self._display.line("bold", f"{PROMPT}{text}")
            self._display.line("red", str(error))

    # -- what happens

    async def _follow(self, tail: Any) -> None:
        family = {self._session.id}
        async for event in tail:
            if isinstance(event, SessionOpened) and event.parent in family:
                family.add(event.session)
            if event.session in family:
                self._take(event)

    def _take(self, event: Event) -> None:
        if event.session == self._session.id:
            self._before(event)
        self._display.take(event)
        self._questions.take(event)
        if event.session == self._session.id:
            self._after(event)
        self._above.kick()

    def _before(self, event: Event) -> None:
        """A message is shown when its turn comes, above its answer."""
        match event:
            case MessageUser():
                self._messages[event.seq] = event.text
            case TurnStarted():
                self._since = time.monotonic()
                self._tick()
                self._display.line("", "")
                self._display.line("bold", f"{PROMPT}{self._messages.pop(event.cause, '')}")

    def _after(self, event: Event) -> None:
        match event:
            case StopReceipt():
                joined = self.receipt is not None and self.receipt.receipt == event.receipt  # it forced that stop
                self.receipt = event
                if not joined:
                    self._display.receipt(event)
                    self._tell_parked()
            case TurnEnded():
                self._display.ended(event)
                self._display.summary(event.usage, event.steps, time.monotonic() - self._since)

    def _tick(self) -> None:
        """The clock in the toolbar, while there is something to wait for."""
        self._display.rest()
        self._line.app.invalidate()
        if self._beat is not None:
            self._beat.cancel()
        busy = self._session.turn is not None or self._session.state == "stopping"
        self._beat = asyncio.get_running_loop().call_later(BEAT, self._tick) if busy else None

    def _over(self) -> AnyFormattedText:
        """What is being said, what waits and what is asked stand over the line."""
        width = self._display.out.width
        lines = rows(self._above.open, width) if self._above.open else []
        if tip := self._display.tip:
            bar = "│" if self._display.fancy else "|"
            lines.append(self._display.out.painted("dim", f"{bar} {one_line(tip, width - 3)}"))
        waiting = list(self._session.waiting)
        lines += [f"  {one_line(f'waits: {one.text}', width - 3)}" for one in waiting[:WAITING]]
        if len(waiting) > WAITING:
            lines.append(f"  and {len(waiting) - WAITING} more")
        if choices := self._questions.choices:
            lines.append(choices)
        return to_formatted_text(ANSI("".join(f"{one}\n" for one in lines) + PROMPT))

    def _toolbar(self) -> str:
        session = self._session
        facts: list[str] = [session.state]
        if session.turn is not None:
            facts = [f"{session.state} {time.monotonic() - self._since:.0f} s", "Ctrl+C stops"]
        if session.waiting:
            facts.append(f"{len(session.waiting)} in the queue")
        if session.parked:
            facts.append(f"{len(session.parked)} parked")
        if jobs := len(session.jobs()):
            facts.append(f"{jobs} in the background")
        facts.append(one_line(session.model or session.agent.harness))
        return " " + (" · " if self._display.fancy else ", ").join(facts)

    # -- stops

    def stop(self, reason: str, *, reach: Reach = "turn", force: bool = False) -> bool:
        """Whether there was anything to stop. Asked again it forces."""
        session = self._session
        again = force or bool(session.halts)
        if not (session.turn or session.halts or session.waiting or (reach == "session" and session.jobs())):
            return False
        self._reach = reach if not session.halts or reach == "session" else self._reach
        session.begin_stop(self._reach, reason, force=again)
        self._display.line("dim", "stopping by force" if again else "stopping; Ctrl+C once more forces")
        self._above.kick()
        return True

    def _interrupted(self) -> None:
        """Ctrl+C: the turn, else the search, else what is typed."""
        if self.stop("Ctrl+C") or self._line.clear():
            return
        if self._session.jobs():
            self._display.line("dim", "no turn runs; /stop session ends the background too, Ctrl+D leaves")
        else:
            self._display.line("dim", "nothing runs; Ctrl+D leaves")
        self._above.kick()

    def _hear(self, asked: Asked) -> None:
        """A signal: Ctrl+C is for the turn, the others end the conversation."""
        if asked.reason == "SIGINT" and self._line.there and not self._line.leaving:
            self._interrupted()
            self._local.ending.met()
        elif asked.reason != "SIGINT" or not self.stop("Ctrl+C"):
            self._line.leave()


def who(session: Session) -> str:
    """Who answers, and with what."""
    return f"{session.agent.name} ({one_line(session.model or session.agent.harness)})"
