"""`quell run`: one turn of an agent in this terminal, with a runtime of its own; when it ends, nothing of it is left.

The answer is on stdout, all else on stderr, and the exit code says how the turn ended.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from .codes import ENDS, FAILED, OURS, TIMED_OUT
from .flags import (
    RunAgent,
    RunConfig,
    RunCwd,
    RunMaxSteps,
    RunModel,
    RunResume,
    RunState,
    RunStrategy,
    RunTitle,
    RunYes,
    named,
)
from .local import LAST_WORDS, Local, Wish
from .message import message
from .screen import ReaderGone, one_line
from .serve import fill_streams
from .slip import Slip
from .words import complain

if TYPE_CHECKING:
    from ..events import Event, Image, StopReceipt, TurnEnded
    from ..kernel.session import Session
    from ..supervise import Receipt
    from ..supervise.errand import Fact
    from .asking import Asking
    from .ending import Asked

LONGEST = 366 * 86400.0
HINT = "this was the offline model; for a real one: quell config set defaults.model openai:gpt-5, or --model"


def run(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="What to do; - reads it from standard input. What is piped in is put below it.",
        ),
    ] = None,
    agent: RunAgent = None,
    model: RunModel = None,
    strategy: RunStrategy = None,
    cwd: RunCwd = None,
    yes: RunYes = False,
    resume: RunResume = None,
    max_steps: RunMaxSteps = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="S", help="Stop it after so many seconds, and exit with 124.")
    ] = None,
    receipt: Annotated[
        str | None, typer.Option("--receipt", metavar="FILE", help="Write what the stop, or the end, observed as JSON.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Events on stdout, one a line, and nothing else.")] = False,
    image: Annotated[
        list[str] | None, typer.Option("--image", metavar="FILE", help="A picture to look at; may be repeated.")
    ] = None,
    state: RunState = None,
    config: RunConfig = None,
    title: RunTitle = None,
) -> int:
    """Have an agent do one thing, here and now. Works offline; no server is needed.

    The answer is on stdout, and what is done for it on stderr. Ctrl+C stops the turn and says what that ended; twice
    forces. When the run ends, so does whatever it left in the background.

    \b
    quell run "say hello"
    quell run '$ npm test'
    git diff | quell run --model openai:gpt-5 "review this"
    quell run --resume 1f0c "and now fix it" --yes --timeout 600

    Exit codes: 0 done; 1 the turn failed, or something would not end; 3 it was stopped by somebody else; 4 it met a
    limit; 124 --timeout; 125 a fault of quell's or of its options; 130 Ctrl+C, and 128 and its number for any other
    signal.
    """
    fill_streams()
    if timeout is not None and not 0 < timeout <= LONGEST:
        complain("--timeout takes a number of seconds above 0, up to a year")
        return OURS
    named("--receipt", receipt)
    wish = Wish(agent, model, strategy, cwd, resume, title, max_steps, state, config)
    local = Local(wish, ctx.obj)
    slip = Slip(receipt)
    once = Once(local, words or [], image or [], yes=yes, timeout=timeout, as_json=as_json, slip=slip)
    return local.leave(slip.write(once.run, local))


class Once:
    """One message and its turn."""

    def __init__(
        self,
        local: Local,
        words: list[str],
        pictures: list[str],
        *,
        yes: bool,
        timeout: float | None,
        as_json: bool,
        slip: Slip,
    ) -> None:
        from .display import Display
        from .outlet import Outlet

        local.say = self._complain
        self._local = local
        self._words = words
        self._pictures = pictures
        self._yes = yes
        self._timeout = timeout
        self._json = as_json
        self._slip = slip
        self._text = ""
        self._images: list[Image] = []
        self._display = Display(Outlet(), answers=not as_json)
        self._asking: Asking
        self._session: Session | None = None
        self._stopping: Fact[Receipt] | None = None
        self._ended: TurnEnded | None = None
        self._stop: StopReceipt | None = None
        self._late = False

    def run(self) -> int:
        try:
            return self._local.run(self._work, before=self._prepare, starting=self._starting)
        finally:
            self._display.status.stop()
            self._display.outlet.last()

    def _complain(self, sentence: str) -> None:
        """On a line of its own, after whatever was said."""
        self._display.break_line()
        self._display.outlet.last()
        complain(sentence)

    def _prepare(self) -> None:
        self._text = message(self._words, self._local.go_on)
        if self._pictures:
            from ..images import load

            self._images = [load(one) for one in self._pictures]

    def _starting(self) -> None:
        self._display.status.start()

    # -- the turn

    async def _work(self, local: Local, session: Session) -> int:
        from .asking import Asking

        self._session = session
        self._asking = Asking(self._display, local.approve, yes=self._yes)
        loop, began = asyncio.get_running_loop(), time.monotonic()
        clock = None if self._timeout is None else loop.call_later(self._timeout, self._run_out, self._timeout)
        try:
            sent = session.send(self._text, self._images)
            local.told = self._hear
            await self._follow(session, sent.message.seq)
        finally:
            if clock is not None:
                clock.cancel()
            self._asking.close()
        await self._finish(local, session, time.monotonic() - began)
        return self._code()

    async def _follow(self, session: Session, message: int) -> None:
        """Every event of the turn, and of its sub-agents, up to its end, and to the receipt if it was stopped."""
        from ..events import SessionOpened, StopReceipt, TurnEnded

        family = {session.id}
        tail = self._local.runtime.follow(message - 1)
        try:
            async for event in tail:
                if isinstance(event, SessionOpened) and event.parent in family:
                    family.add(event.session)
                if event.session not in family:
                    continue
                if event.session == session.id:
                    self._ended = event if isinstance(event, TurnEnded) else self._ended
                    self._stop = event if isinstance(event, StopReceipt) else self._stop
                await self._show(event)
                ended = self._ended
                if ended is not None and (ended.end != "stopped" or self._stop is not None):
                    return
        finally:
            tail.close()

    async def _show(self, event: Event) -> None:
        if self._json:
            from ..events import encode

            self._display.status.hear(event)
            self._display.break_line()
            self._display.out.json(json.loads(encode(event)))
        else:
            self._display.take(event)
        self._asking.take(event)
        try:
            await self._display.flush()
        except ReaderGone:
            self._begin_stop(self._display.outlet.fault or "nobody reads the answer")

    # -- stops

    def _begin_stop(self, reason: str) -> None:
        if self._stopping is None and self._session is not None and self._session.turn is not None:
            self._stopping = self._session.begin_stop("turn", reason)
            self._display.status.say("stopping; once more forces")

    def _hear(self, asked: Asked) -> None:
        if asked.reason == "SIGINT":
            self._display.interrupted()
        self._display.outlet.hurry(LAST_WORDS)
        self._begin_stop("Ctrl+C" if asked.reason == "SIGINT" else asked.reason)

    def _run_out(self, seconds: float) -> None:
        self._late = self._session is not None and self._session.turn is not None
        self._begin_stop(f"timeout of {seconds:g} s")

    # -- the end

    async def _finish(self, local: Local, session: Session, seconds: float) -> None:
        """The run ends here: what it left in the background goes with it, and is told of."""
        self._display.status.say("ending")
        ended = await local.finish()
        display = self._display
        jobs = f"{len(local.jobs)} background {'job' if len(local.jobs) == 1 else 'jobs'}" if local.jobs else ""
        more = f"; {jobs} ended with the run: {one_line(', '.join(local.jobs), 80)}" if jobs else ""
        if self._stop is not None:
            self._slip.stop = self._stop.receipt
            display.receipt(self._stop, more)
        elif self._ended is not None and not self._json:
            display.ended(self._ended)
        if more and self._stop is None:
            display.line("dim", more.removeprefix("; "))
        if ended is not None and ended.survivors:
            display.line("alarm", local.redact(ended.sentence()))
        if self._ended is not None and not self._json:
            display.summary(self._ended.usage, self._ended.steps, seconds, f"session {session.id}")
            if local.offline and self._ended.end == "completed" and display.aside.terminal:
                display.line("dim", HINT)
        display.status.stop()
        try:
            await display.flush()
        except ReaderGone:
            return
        finally:
            display.outlet.close()

    def _code(self) -> int:
        asked = self._local.ending.asked
        if self._stop is not None and not self._stop.confirmed:
            return FAILED
        if asked:
            return asked[0].code
        if fault := self._display.outlet.fault:
            self._complain(f"cannot write the answer: {fault}")
            return OURS
        if self._late:
            return TIMED_OUT
        return FAILED if self._ended is None else ENDS.get(self._ended.end, FAILED)
