"""Approvals at a terminal: one question at a time, answered by one key that was pressed after it was shown.

The terminal is given back as it was found, whatever happens: an answer, a stop, a suspend.
"""

from __future__ import annotations

import asyncio
import os
import signal
import termios
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from ..errors import QuellError
from ..events import ApprovalAnswered, ApprovalAsked, ApprovalWithdrawn, Event, Extent
from .display import Display
from .leave import SHOW, question

PAUSE = 0.2
"""Seconds between an answer and the next question: a key that was pressed twice answers one."""
KEYS: Mapping[str, tuple[bool, Extent]] = {
    "y": (True, "once"), "s": (True, "session"), "a": (True, "always"), "n": (False, "once"),
}  # fmt: skip
WORDS = {"y": "allowed once", "s": "allowed in this session", "a": "always allowed", "n": "refused"}
CHOICES = "y once / s this session / a always / n no / v show"
SHORT = "y/s/a/n/v?"
"""The same where that is too long for a line."""
DEAF = 0.03
"""Seconds after an arrow or another key of several characters: its rest is no answer."""
_END = "\x04"  # Ctrl+D


class Answers(Protocol):
    """Who answers for a session: `Session.approve`."""

    def __call__(self, asked: ApprovalAsked, allow: bool, reason: str, extent: Extent) -> object: ...


class Terminal:
    """The terminal that we have, to read single keys from."""

    def __init__(self) -> None:
        try:
            self.fd = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:
            self.fd = -1
        self._before: list[Any] | None = None

    @property
    def there(self) -> bool:
        return self.fd >= 0

    def take(self) -> None:
        """Single keys, unseen, from now on; what was typed before is nobody's answer. OSError if it is not ours."""
        if self._before is None:
            self._before = termios.tcgetattr(self.fd)
        modes = termios.tcgetattr(self.fd)
        modes[3] &= ~(termios.ICANON | termios.ECHO)
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self.fd, termios.TCSANOW, modes)  # TCSAFLUSH would wait for a terminal held by Ctrl+S
        termios.tcflush(self.fd, termios.TCIFLUSH)

    def give_back(self) -> None:
        """Idempotent, and also from the background."""
        before, self._before = self._before, None
        if before is None:
            return
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
        try:
            termios.tcsetattr(self.fd, termios.TCSANOW, before)
        except (OSError, termios.error):
            return  # hung up: there is nothing to give back
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def forget_typed(self) -> None:
        if self.fd >= 0:
            try:
                termios.tcflush(self.fd, termios.TCIFLUSH)
            except termios.error:
                return

    def read(self) -> str:
        try:
            return os.read(self.fd, 256).decode(errors="replace")
        except BlockingIOError:
            return ""
        except OSError:
            return _END

    def close(self) -> None:
        self.give_back()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Asking:
    """Questions of a session and its sub-agents. `take` each event; what comes of it reaches `answer`."""

    def __init__(
        self, display: Display, answer: Answers, *, yes: bool = False, terminal: Terminal | None = None
    ) -> None:
        self._display = display
        self._answer = answer
        self._yes = yes
        self._terminal = Terminal() if terminal is None else terminal
        self._waiting: deque[ApprovalAsked] = deque()
        self._asked: ApprovalAsked | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reads = False
        self._told = False
        self._deaf_until = 0.0

    def take(self, event: Event) -> None:
        match event:
            case ApprovalAsked() if self._yes:
                self._give(event, True, "--yes", "once")
            case ApprovalAsked() if not (self._terminal.there and self._display.aside.terminal):
                self._refuse(event)
            case ApprovalAsked():
                self._waiting.append(event)
                self._next()
            case ApprovalAnswered() | ApprovalWithdrawn():
                self._over(event)

    def close(self) -> None:
        self._waiting.clear()
        self._rest()
        self._display.ask(None)
        self._asked = None
        self._terminal.close()

    # -- one question

    def _next(self) -> None:
        if self._asked is not None or not self._waiting or self._timer is not None:
            return
        self._asked = self._waiting.popleft()
        self._display.status.hidden = True
        lines, _ = question(self._asked, self._display.aside.width, fancy=self._display.fancy)
        self._display.lines(lines)
        self._choices()

    def _choices(self) -> None:
        """The last line of a question: once it is written, keys count."""
        waiting = f"  ({len(self._waiting)} more wait)" if self._waiting else ""
        width = self._display.aside.width - 2
        words = CHOICES if len(CHOICES) <= width else SHORT
        waiting = waiting if len(words) + len(waiting) <= width else ""
        self._display.ask([("bold", words), ("dim", waiting), ("", " ")])
        self._display.draw_footer()
        self._display.outlet.kick(self._listen)

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        if self._asked is None or self._reads:
            return
        try:
            self._terminal.take()
        except (OSError, termios.error):
            self._display.ask(None)
            asked, self._asked = self._asked, None
            self._display.status.hidden = False
            self._refuse(asked)
            self._next()
            return
        self._reads = True
        loop.add_reader(self._terminal.fd, self._key)
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        loop.add_signal_handler(signal.SIGCONT, self._resumed)

    def _rest(self) -> None:
        """No question is open: the terminal is as it was."""
        self._display.status.hidden = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._reads:
            self._reads = False
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._terminal.fd)
            loop.remove_signal_handler(signal.SIGTSTP)
            loop.remove_signal_handler(signal.SIGCONT)
        self._terminal.give_back()

    def _key(self) -> None:
        typed, asked, now = self._terminal.read(), self._asked, time.monotonic()
        if "\x1b" in typed:
            self._deaf_until = now + DEAF
        key = typed.strip(" \r\n").lower()
        if asked is None or now < self._deaf_until or len(key) != 1:  # a paste is no answer either
            return
        if key == SHOW:
            lines, _ = question(asked, self._display.aside.width, whole=True, fancy=self._display.fancy)
            self._display.lines(lines)
            self._display.draw_footer()
            self._display.outlet.kick(self._terminal.forget_typed)
        elif key in KEYS or key == _END:
            key = "n" if key == _END else key
            allow, extent = KEYS[key]
            self._close_question("" if allow else "yellow", WORDS[key])
            self._give(asked, allow, "" if allow else "the person said no", extent)

    def _close_question(self, style: str, words: str) -> None:
        """The choices go, and what came of it stands there."""
        self._asked = None
        self._rest()
        self._display.ask(None)
        self._display.line(style or "dim", f"  {words}")
        self._display.outlet.kick()
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(PAUSE, self._after_pause)

    def _after_pause(self) -> None:
        self._timer = None
        self._next()

    def _over(self, event: ApprovalAnswered | ApprovalWithdrawn) -> None:
        """Answered by somebody, or withdrawn: nobody is asked any more."""
        if self._asked is not None and self._asked.seq == event.request:
            why = f"withdrawn: {event.reason}" if isinstance(event, ApprovalWithdrawn) else "answered elsewhere"
            self._close_question("dim", why)
        self._waiting = deque(one for one in self._waiting if one.seq != event.request)

    # -- answers

    def _give(self, asked: ApprovalAsked, allow: bool, reason: str, extent: Extent) -> None:
        try:
            self._answer(asked, allow, reason, extent)
        except QuellError:
            return  # withdrawn in the same moment

    def _refuse(self, asked: ApprovalAsked) -> None:
        """Nobody is there to say yes."""
        if not self._told:
            self._told = True
            self._display.line(
                "yellow",
                f"{asked.tool} was refused: it needs leave, and there is no terminal to ask on;"
                " --yes says yes to what is asked, and the agent's approval says it for good",
            )
        self._give(asked, False, "nobody is there to ask", "once")

    # -- suspend and resume

    def _suspend(self) -> None:
        """Ctrl+Z: the shell gets its terminal as it was; here it goes on once we are continued."""
        self._terminal.give_back()
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGTSTP)
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)

    def _resumed(self) -> None:
        if not self._reads:
            return
        try:
            self._terminal.take()
        except (OSError, termios.error):
            return
        self._display.redraw_footer()
        self._display.outlet.kick()
