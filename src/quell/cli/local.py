"""The runtime of this terminal: read top to bottom, this is the order of its start and of its end.

Signals are heard from the first step on, by a thread of their own (H22). Whatever is half started is taken down, and
when it has ended nothing of it is left, which its receipt says.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import LogUnreadableError, QuellError, StateInUseError, UsageError
from . import places
from .codes import FAILED, OURS
from .ending import Asked, Ending
from .flags import named
from .words import by_flag, complain

if TYPE_CHECKING:
    from ..config import Agent
    from ..configfile import Loaded
    from ..events import ApprovalAsked, Extent
    from ..kernel.redaction import Redaction
    from ..kernel.session import Session
    from ..runtime import Runtime
    from ..supervise import Receipt

LAST_WORDS = 0.5
"""Seconds for whoever reads our output to take the last of it, once somebody wants an end."""
CHEAP = 0.15
"""Seconds for what is left of a runtime to be asked nicely after its turn was stopped: it holds nothing by then."""


@dataclass(frozen=True)
class Wish:
    """What a person asked for on the command line."""

    agent: str | None = None
    model: str | None = None
    strategy: str | None = None
    cwd: str | None = None
    resume: str | None = None
    title: str | None = None
    max_steps: int | None = None
    state: str | None = None
    config: str | None = None

    def __post_init__(self) -> None:
        """An empty word is a variable of a script that is not set, and no wish. UsageError."""
        for flag in ("agent", "model", "strategy", "cwd", "resume", "state", "config"):
            named(f"--{flag}", getattr(self, flag))


class Interrupted(Exception):
    """Somebody asked to end before there was a session."""


Work = Callable[["Local", "Session"], Awaitable[int]]
Step = Callable[[], object]


def nothing() -> None:
    """The step that is not there."""


class Local:
    """`run` starts a runtime, has the work done in a session of it, and ends it. `told` hears of signals meanwhile."""

    def __init__(self, wish: Wish, mask: list[int]) -> None:
        self.ending = Ending(mask, complain)  # first of all
        self.told: Callable[[Asked], None] | None = None
        """What the work wants to be called with when somebody asks to end; before that, all is ended."""
        self.lives_on = False
        """Whether Ctrl+C is the work's however often it comes; otherwise the second ends all."""
        self.say: Callable[[str], None] = complain
        """How a fault is told."""
        self.receipt: Receipt | None = None
        """Of the end of the runtime."""
        self.jobs: list[str] = []
        """What still ran in the background when the end was begun."""
        self.offline = False
        """Whether the offline model answers because nobody named another."""
        self._wish = wish
        self._named = None if wish.state is None else os.path.abspath(wish.state)
        self._loaded: Loaded | None = None
        self._runtime: Runtime | None = None
        self._records: logging.Handler | None = None
        self._finishing = False

    # -- from the first step to the last

    def run(self, work: Work, *, before: Step = nothing, starting: Step = nothing) -> int:
        """The exit code. `before` is done first of all, `starting` when the loop turns; each may raise a sentence."""
        runner: asyncio.Runner | None = None
        try:
            before()
            self.go_on()
            runner = asyncio.Runner()
            return runner.run(self._main(work, starting))
        except Interrupted:
            if os.isatty(2):
                os.write(2, b"\n")  # after the `^C` of the terminal
            return self.ending.asked[0].code
        except QuellError as error:
            self.say(self.redact(by_flag(str(error))))
            return OURS
        except OSError as error:  # the machine refuses us a file, a thread or a descriptor
            self.say(f"{error.filename or 'quell'}: {error.strerror or error}")
            return OURS
        finally:
            if runner is not None and not self.stuck:
                runner.close()
            self._show_records(None)
            self.ending.close()

    @property
    def stuck(self) -> bool:
        """Whether a thread or task would not end: closing the loop would wait for it."""
        return self.receipt is not None and not self.receipt.confirmed

    def leave(self, code: int) -> int:
        """At the very end: what is stuck cannot hold us up, it ends with the process."""
        if self.stuck:
            os._exit(code)
        return code

    def _show_records(self, redaction: Redaction | None) -> None:
        """What any library logs is masked as well: an SDK that is told to by a variable logs addresses with a key."""
        root = logging.getLogger()
        if self._records is not None:
            root.removeHandler(self._records)
            self._records = None
        if redaction is not None and not root.handlers:
            self._records = logging.StreamHandler()
            self._records.addFilter(redaction)
            root.addHandler(self._records)

    def go_on(self) -> None:
        """Between two steps."""
        if self.ending.asked:
            raise Interrupted

    def redact(self, text: str) -> str:
        return text if self._runtime is None else self._runtime.redact(text)

    async def _main(self, work: Work, starting: Step) -> int:
        self.ending.attach(asyncio.get_running_loop(), self._hear)
        try:
            starting()
            session = await self._start()
            code = await work(self, session)
        except BaseException:
            await self.finish(hurry=True)
            if self.ending.asked and self.told is None:
                raise Interrupted from None
            raise
        receipt = await self.finish()
        return FAILED if receipt is not None and receipt.survivors else code

    # -- start

    @property
    def loaded(self) -> Loaded:
        """The configuration. UsageError is one sentence."""
        if self._loaded is None:
            from .composing import loaded_from

            self._loaded = loaded_from(self._wish.config)
        return self._loaded

    @property
    def runtime(self) -> Runtime:
        assert self._runtime is not None
        return self._runtime

    def agent(self) -> Agent:
        """Who answers in a new session."""
        from .composing import OFFLINE, chosen

        wish, defaults = self._wish, self.loaded.defaults
        found = chosen(self.loaded, wish.agent, wish.model)
        self.offline = found.name == OFFLINE and not (wish.agent or wish.model or defaults.agent or defaults.model)
        return found

    async def _start(self) -> Session:
        resumed = self._find() if self._wish.resume is not None else None
        agent = None if resumed else self.agent()
        self.go_on()
        await self._take_place(resumed)
        self.go_on()
        session = await self._session(resumed, agent)
        self.go_on()
        return session

    def _find(self) -> places.Known:
        wish = self._wish
        assert wish.resume is not None
        for flag, value in (("--cwd", wish.cwd), ("--title", wish.title)):
            if value is not None:
                raise UsageError(f"{flag} is for a new session, and --resume goes on with an old one")
        return places.find(wish.resume, None if self._named is None else [self._named])

    async def _take_place(self, resumed: places.Known | None) -> None:
        """The state directory that was named, that of the session, or the first that is free; and a runtime on it."""
        named = resumed.folder if resumed is not None else self._named
        if named is not None:
            try:
                await self._enter(named)
            except StateInUseError as error:
                raise StateInUseError(_in_use(named, resumed, str(error))) from None
            except LogUnreadableError as error:
                raise LogUnreadableError(_within(named, error)) from None
            return None
        for folder in places.runs():
            try:
                return await self._enter(folder)
            except StateInUseError:
                continue
            except LogUnreadableError as error:
                self.say(f"{_within(folder, error)}; this goes on in another folder")
        raise UsageError(f"{places.MOST} runs are going on: that is enough")

    async def _enter(self, folder: str) -> None:
        from .composing import runtime_for

        home = places.usual() if self._wish.state is None else folder
        runtime = runtime_for(self.loaded, folder=folder, home=home, config=self._wish.config)
        self._runtime = runtime
        self._show_records(runtime.redaction)
        try:
            await runtime.__aenter__()
        except (StateInUseError, LogUnreadableError):
            self._runtime = None
            raise
        self.ending.serve(folder, lambda reason: None)

    async def _session(self, resumed: places.Known | None, agent: Agent | None) -> Session:
        from msgspec.structs import replace

        wish, runtime = self._wish, self.runtime
        if wish.strategy is not None:
            runtime.host.registry.strategy(wish.strategy)  # refused before anything is begun
        if resumed is not None:
            session = await self._resume(resumed)
        else:
            assert agent is not None
            session = await runtime.open(agent.name, wish.cwd or ".", title=wish.title or "", model=wish.model)
        changes: dict[str, Any] = {} if wish.strategy is None else {"strategy": wish.strategy}
        if wish.max_steps is not None:
            changes["limits"] = replace(session.agent.limits, steps=wish.max_steps)
        if changes:
            session.agent = replace(session.agent, **changes)
        return session

    async def _resume(self, resumed: places.Known) -> Session:
        wish = self._wish
        try:
            return await self.runtime.resume(resumed.id, agent=wish.agent or "", model=wish.model or "")
        except UsageError as error:  # whoever answered in it is not configured any more
            if wish.agent:
                raise
            flags = "--agent" if wish.model else "--agent or --model"
            raise UsageError(f"{error}; {flags} says who goes on with session {resumed.id}") from None

    # -- while it runs

    def approve(self, asked: ApprovalAsked, allow: bool, reason: str, extent: Extent) -> None:
        """Answer a question of a session or of one of its sub-agents. UsageError if it is not open any more."""
        session = self.runtime.host.live.get(asked.session)
        if session is not None:
            session.approve(asked.seq, allow, reason, extent=extent)

    def _hear(self, asked: Asked) -> None:
        """In the loop: a signal. The first is the work's, if it has begun; the second forces."""
        from ..supervise.errand import see_to

        runtime = self._runtime
        mine = not asked.force or (self.lives_on and asked.reason == "SIGINT")
        if self.told is not None and mine and not self._finishing:
            self.told(asked)
        elif runtime is not None:
            force = asked.force or self._finishing
            see_to(asyncio.get_running_loop(), lambda: runtime.close(reason=asked.reason, force=force))

    # -- end

    async def finish(self, *, hurry: bool = False) -> Receipt | None:
        """End whatever there is. Who is in a hurry has had the turn stopped: what is left but no job gets a moment."""
        runtime, asked = self._runtime, self.ending.asked
        if runtime is None or self.receipt is not None:
            return self.receipt
        self._finishing = True
        try:
            live = list(runtime.host.live.values())
        except QuellError:  # it never was ready
            live = []
        self.jobs += [" ".join(one.argv[-1:]) for each in live for one in each.processes() if one.background]
        reason = asked[0].reason if asked else "end of the run"
        cheap = (hurry or bool(asked)) and not self.jobs
        self.receipt = await runtime.close(reason=reason, grace=CHEAP if cheap else None)
        return self.receipt


def _within(folder: str, error: LogUnreadableError) -> str:
    """Whose log it is about: the kernel knows no files."""
    return str(error) if folder in str(error) else f"{os.path.join(folder, places.LOG)}: {error}; move it away"


def _in_use(folder: str, resumed: places.Known | None, sentence: str) -> str:
    """By whom, and what to do instead."""
    from ..surfaces.http.sockets import connect_unix

    try:
        connect_unix(folder, 1.0).close()
    except OSError:
        return sentence
    if resumed is None:
        return f"{folder} is served: quell send --new speaks to that server, or name another folder with --state"
    return (
        f"session {resumed.id} is on the server that runs: quell attach {resumed.id} follows it,"
        f" quell send {resumed.id} speaks to it"
    )
