"""A conversation in the terminal: a line to type on, what happens above it, and keys that stop.

The line is never taken away by what happens, and nothing that is typed on it answers a question by accident.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from typing import TYPE_CHECKING

from ..errors import QuellError
from ..events import ApprovalAnswered, ApprovalAsked, ApprovalWithdrawn, Event, SessionOpened, StopReceipt, TurnEnded
from .above import Above
from .asking import KEYS, SHOW, WORDS, question
from .display import Display
from .local import Local
from .screen import one_line, safe
from .slash import Slash

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.formatted_text import AnyFormattedText
    from prompt_toolkit.key_binding import KeyPressEvent

    from ..kernel.session import Session
    from ..supervise import Receipt
    from ..supervise.errand import Fact
    from .ending import Asked

PROMPT = "> "
HISTORY = "chat-history"
CHOICES = "y once / s this session / a always / n no / v show, and Enter"
AT_LEAST = 0.3
"""Seconds that a question stands there before a line answers it."""
BEAT = 0.5
"""Seconds between two looks at the clock while a turn runs."""


class Talk:
    def __init__(self, local: Local, first: str, *, yes: bool) -> None:
        self._local = local
        self._first = first
        self._yes = yes
        self._above: Above
        self._display: Display
        self._session: Session
        self._line: PromptSession[str]
        self._questions: deque[tuple[ApprovalAsked, float]] = deque()
        self._stopping: Fact[Receipt] | None = None
        self._since = 0.0
        self._beat: asyncio.TimerHandle | None = None
        self.receipt: StopReceipt | None = None
        """The latest."""

    def run(self) -> int:
        return self._local.run(self._work)

    # -- from the first line to the last

    async def _work(self, local: Local, session: Session) -> int:
        self._session = session
        self._above = Above()
        self._display = Display(self._above)
        self._line = self._prompt()
        self._above.application = self._line.app
        scope = local.runtime.scope("chat")
        slash = Slash(self, local, session, self._display)
        pump = scope.task(self._above.pump(), name="what is said")
        follow = scope.task(self._follow(), name="what happens")
        local.told = self._hear
        self._greet()
        if self._first.strip():
            self._say(self._first)
        reading = scope.task(self._read(slash), name="what is typed")
        try:
            await asyncio.wait([reading])
            if not reading.cancelled():
                reading.result()
        finally:
            for task in (follow, reading):
                task.cancel()
            if self._beat is not None:
                self._beat.cancel()
            self._above.close()
            await asyncio.wait([pump])
        await self._farewell()
        return 0

    def _greet(self) -> None:
        session = self._session
        display = self._display
        model = session.agent.model or session.agent.harness
        display.line("bold", f"session {session.id}, {session.agent.name} ({one_line(model)}) in {session.cwd}")
        display.line("dim", "Ctrl+C stops a turn, Ctrl+D leaves, /help lists what else there is")
        self._tell_parked()

    def _tell_parked(self) -> None:
        if parked := len(self._session.parked):
            what = "1 message is" if parked == 1 else f"{parked} messages are"
            self._display.line("yellow", f"{what} parked; /queue lists them, /queue release sends them")

    async def _farewell(self) -> None:
        receipt = await self._local.finish()
        jobs = self._local.jobs
        if jobs:
            self._display.line("dim", f"ended with the conversation: {one_line(', '.join(jobs), 200)}")
        if receipt is not None and not receipt.confirmed:
            self._display.line("alarm", self._local.redact(receipt.sentence()))
        self._display.line("dim", f"session {self._session.id}; quell chat --resume {self._session.id} goes on with it")
        self._display.break_line()
        self._above.last()

    # -- the line

    def _prompt(self) -> PromptSession[str]:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.enums import EditingMode
        from prompt_toolkit.filters import Condition

        from .typing_line import bindings, history, style

        return PromptSession(
            self._message,
            multiline=Condition(lambda: True),
            prompt_continuation=lambda width, number, wraps: " " * width,
            completer=Slash.completer(self._local),
            complete_while_typing=False,
            history=history(os.path.join(self._local.runtime.home, HISTORY)),
            bottom_toolbar=self._toolbar,
            key_bindings=bindings(self._interrupted),
            editing_mode=EditingMode.EMACS,
            enable_suspend=True,
            enable_open_in_editor=True,
            erase_when_done=True,  # what was typed is shown above, once
            style=style(self._display.out.colour),
        )

    async def _read(self, slash: Slash) -> None:
        """Line after line, until it is left."""
        while True:
            try:
                text = await self._line.prompt_async(set_exception_handler=False, handle_sigint=False)
            except EOFError:
                return
            except KeyboardInterrupt:
                continue
            if text.strip():
                self._display.line("bold", f"{PROMPT}{text}")
                if await self._typed(text, slash):
                    return

    async def _typed(self, text: str, slash: Slash) -> bool:
        """Whether that was the last."""
        word = text.strip().lower()
        if self._questions and word in (*KEYS, SHOW):
            self._answer(word)
        elif text.lstrip().startswith("/"):
            return await slash.do(text.strip())
        else:
            self._say(text)
        return False

    def _say(self, text: str) -> None:
        try:
            self._session.send(text)
        except QuellError as error:
            self._display.line("red", str(error))
            return
        if waiting := len(self._session.waiting):
            self._display.line("dim", f"it waits for its turn ({waiting} in the queue)")

    # -- what happens

    async def _follow(self) -> None:
        runtime, session = self._local.runtime, self._session
        family = {session.id}
        tail = runtime.follow(runtime.host.journal.last)
        try:
            async for event in tail:
                if isinstance(event, SessionOpened) and event.parent in family:
                    family.add(event.session)
                if event.session in family:
                    self._take(event)
        finally:
            tail.close()

    def _take(self, event: Event) -> None:
        self._display.take(event)
        match event:
            case ApprovalAsked() if self._yes:
                self._give(event, "y", "--yes")
            case ApprovalAsked():
                self._questions.append((event, time.monotonic()))
                self._ask(event)
            case ApprovalAnswered() | ApprovalWithdrawn():
                self._over(event)
            case StopReceipt() if event.session == self._session.id:
                self.receipt, self._stopping = event, None
                self._display.receipt(event)
                self._tell_parked()
            case TurnEnded() if event.session == self._session.id:
                self._display.ended(event)
                self._display.summary(event.usage, event.steps, time.monotonic() - self._since)
        if event.kind == "turn.started" and event.session == self._session.id:
            self._since = time.monotonic()
            self._tick()
        self._above.kick()

    def _tick(self) -> None:
        """The clock in the toolbar, while there is something to wait for."""
        self._line.app.invalidate()
        if self._beat is not None:
            self._beat.cancel()
        busy = self._session.turn is not None or self._session.state == "stopping"
        self._beat = asyncio.get_running_loop().call_later(BEAT, self._tick) if busy else None

    def _message(self) -> AnyFormattedText:
        from .typing_line import wrapped

        over = wrapped(self._above.open, self._display.out.width) if self._above.open else []
        words = [("", f"{CHOICES}\n")] if self._questions else []
        return [*over, *words, ("", PROMPT)]

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
        facts.append(one_line(session.agent.model or session.agent.harness))
        return " " + (" · " if self._display.fancy else ", ").join(facts)

    # -- questions

    def _ask(self, asked: ApprovalAsked, *, whole: bool = False) -> None:
        lines, _ = question(asked, self._display.aside.width, whole=whole)
        self._display.lines(lines)

    def _answer(self, word: str) -> None:
        asked, since = self._questions[0]
        if word == SHOW:
            self._ask(asked, whole=True)
        elif time.monotonic() - since < AT_LEAST:
            self._display.line("yellow", "that came before the question: answer again")
        else:
            self._display.line("dim", f"  {WORDS[word]}")
            self._give(asked, word, "")

    def _give(self, asked: ApprovalAsked, word: str, reason: str) -> None:
        allow, extent = KEYS[word]
        try:
            self._local.approve(asked, allow, reason or ("" if allow else "the person said no"), extent)
        except QuellError:
            return  # withdrawn in the same moment

    def _over(self, event: ApprovalAnswered | ApprovalWithdrawn) -> None:
        mine = [asked for asked, _ in self._questions if asked.seq == event.request]
        self._questions = deque(one for one in self._questions if one[0].seq != event.request)
        if mine and isinstance(event, ApprovalWithdrawn):
            self._display.line("dim", f"  withdrawn: {safe(event.reason)}")

    # -- stops

    def stop(self, reason: str, *, force: bool = False) -> bool:
        """Whether there was anything to stop. Asked again it forces."""
        session = self._session
        if session.turn is None and self._stopping is None and not session.waiting:
            return False
        again = force or self._stopping is not None
        self._stopping = session.begin_stop("turn", reason, force=again)
        self._display.line("dim", "stopping by force" if again else "stopping; Ctrl+C once more forces")
        return True

    def _interrupted(self, event: KeyPressEvent) -> None:
        """Ctrl+C on the line."""
        if self.stop("Ctrl+C"):
            return
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            self._display.line("dim", "nothing runs; Ctrl+D leaves")
        self._above.kick()

    def _hear(self, asked: Asked) -> None:
        """A signal from outside: Ctrl+C's own stops the turn, the others end the conversation."""
        if asked.reason == "SIGINT" and self.stop("SIGINT"):
            self._local.ending.met()
            return
        if self._line.app.is_running:
            self._line.app.exit(exception=EOFError())
