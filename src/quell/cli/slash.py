"""The commands of `quell chat`: a line that begins with a slash is for Quell, and nothing of it reaches the model."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from ..errors import QuellError, UsageError
from .screen import one_line
from .words import nearest

if TYPE_CHECKING:
    from ..events import Reach
    from ..kernel.session import Session
    from .display import Display
    from .local import Local
    from .talk import Talk

COMMANDS = {
    "/stop": "stop the turn; /stop force ends it at once, /stop session the background too",
    "/queue": "what waits and what is parked; /queue release, /queue discard, each with a number or for all",
    "/ps": "the commands that run",
    "/receipt": "what the last stop observed, process by process",
    "/model": "which model answers; /model openai:gpt-5 changes it",
    "/agent": "which agent answers; /agent NAME changes it",
    "/export": "write the conversation to a file: /export [FILE], as JSON lines if that ends with .jsonl",
    "/help": "this list",
    "/quit": "leave, as Ctrl+D does",
}
_WORDS: dict[str, Iterable[str]] = {"/stop": ("force", "session", "turn"), "/queue": ("discard", "release")}
WIDE = 90


class Slash:
    def __init__(self, talk: Talk, local: Local, session: Session, display: Display) -> None:
        self._talk = talk
        self._local = local
        self._session = session
        self._display = display

    async def do(self, line: str) -> bool:
        """Whether that was the last. A mistake is one sentence."""
        word, *rest = line.split()
        known: dict[str, Callable[[list[str]], Awaitable[None]]] = {
            "/stop": self._stop,
            "/queue": self._queue,
            "/ps": self._ps,
            "/receipt": self._receipt,
            "/model": self._model,
            "/agent": self._agent,
            "/export": self._export,
            "/help": self._help,
        }
        try:
            if word in ("/quit", "/exit"):
                return True
            if word not in known:
                raise UsageError(f"there is no {word}{nearest(word, COMMANDS)}; /help lists what there is")
            await known[word](rest)
        except QuellError as error:
            self._tell(self._local.redact(str(error)), "red")
        except OSError as error:
            self._tell(f"{error.filename or word}: {error.strerror or error}", "red")
        return False

    def _tell(self, text: str, style: str = "") -> None:
        self._display.line(style, text)

    async def _stop(self, words: list[str]) -> None:
        if unknown := [one for one in words if one not in ("force", "turn", "session")]:
            raise UsageError(f"/stop takes turn, session and force, not {unknown[0]}")
        reach: Reach = "session" if "session" in words else "turn"
        if not self._talk.stop("/stop", reach=reach, force="force" in words):
            self._tell("nothing runs", "dim")

    async def _queue(self, words: list[str]) -> None:
        session = self._session
        if words and words[0] in ("release", "discard"):
            if wrong := [one for one in words[1:] if not one.isdecimal()]:
                raise UsageError(f"a message is named by its number, not {wrong[0]}")
            act = session.release if words[0] == "release" else session.discard
            done = act([int(one) for one in words[1:]] or None)
            what = "released" if words[0] == "release" else "discarded"
            self._tell(f"{what} {len(done)}" if done else "nothing is parked", "dim")
        elif words:
            raise UsageError(f"/queue takes release or discard, not {words[0]}")
        else:
            for what, messages in (("waits", list(session.waiting)), ("parked", session.parked)):
                for one in messages:
                    self._tell(f"{one.seq:>6}  {what:6}  {one_line(one.text, WIDE)}")
            if not session.waiting and not session.parked:
                self._tell("nothing waits", "dim")

    async def _ps(self, words: list[str]) -> None:
        found = self._session.processes()
        for one in found:
            where = "background" if one.background else f"turn {one.turn}"
            self._tell(f"{one.pid:>8}  {where:10}  {time.time() - one.since:5.0f} s  {one_line(one.argv[-1], WIDE)}")
        if not found:
            self._tell("nothing runs", "dim")

    async def _receipt(self, words: list[str]) -> None:
        from .receipts import describe

        latest = self._talk.receipt
        if latest is None:
            self._tell("nothing was stopped yet", "dim")
        else:
            self._display.lines(describe(latest.receipt, latest.confirmed, None))

    async def _model(self, words: list[str]) -> None:
        if words:
            await self._session.use(model=words[0])
        self._tell(self._session.model or self._session.agent.harness, "dim")

    async def _agent(self, words: list[str]) -> None:
        if words:
            await self._session.use(agent=words[0])
        agents = ", ".join(sorted(self._local.runtime.host.agents))
        model = self._session.model or self._session.agent.harness
        self._tell(f"{self._session.agent.name} ({one_line(model)}); there are {agents}", "dim")

    async def _export(self, words: list[str]) -> None:
        file = " ".join(words) or f"{self._session.id}.md"
        text = await self._session.export("jsonl" if file.endswith(".jsonl") else "markdown")
        self._tell(f"written to {_written(self._session.cwd, file, text)}", "dim")

    async def _help(self, words: list[str]) -> None:
        for name, purpose in COMMANDS.items():
            self._display.lines([[("bold", f"  {name:10}"), ("", purpose)]], hang=12)
        keys = "  Enter sends, Alt+Enter begins a new line, Ctrl+C stops a turn, Ctrl+D leaves"
        self._display.lines([[("dim", keys)]], hang=2)


def completions(before: str, agents: Iterable[str]) -> list[str]:
    """What the last word of a line may become: a command, or what goes with one. Of any other line nothing."""
    if not before.startswith("/") or "\n" in before:
        return []
    *words, last = before.split(" ")
    known = COMMANDS if not words else {**_WORDS, "/agent": agents}.get(words[0], ())
    return [one for one in sorted(known) if one.startswith(last)]


def _written(folder: str, file: str, text: str) -> str:
    """Where. A file that is there is left as it is: OSError."""
    path = os.path.join(folder, os.path.expanduser(file))
    with open(path, "x", encoding="utf-8") as opened:
        opened.write(text)
    return path
