"""A real terminal with a real interactive bash in it: keys are typed, what is shown is read.

Lines are typed only when the shell shows its prompt, and every wait is for a text with a bound, so what the
terminal shows is the same each time and two runs can be compared letter by letter.
"""

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cli import oracle

PROMPT = "ready> "
BOUND = 15.0  # seconds for any one text to come; far above what a busy machine needs
# Cursor movement, modes, character sets, titles, and replies to questions: all that is not text.
ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P][^\x07\x1b]*(?:\x07|\x1b\\)|[()*+][A-Za-z0-9]|[=>78McDEHZ])")
UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]P][^\x07\x1b]*\x1b?|[()*+])?$")
KEYS = {"C-c": "\x03", "C-d": "\x04", "C-z": "\x1a", "C-\\": "\x1c", "C-o": "\x0f", "C-x": "\x18", "Esc": "\x1b"}


class NotShown(AssertionError):
    """The terminal did not show the awaited text in time; the message has what it shows instead."""


class Terminal:
    """One PTY of its own session, with `bash` as its leader; `$Q` is put before each command under test."""

    def __init__(self, prefix: str = "", *, variables: dict[str, str] | None = None, columns: int = 160) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="quell-terminal-"))
        self.raw = bytearray()
        self.closed = False
        self._seen = 0
        self._held = oracle.Held()
        self._master, slave = os.openpty()
        self.resize(24, columns)
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(self.folder),
            "TERM": "xterm",
            "LANG": "C.UTF-8",
            "PS1": PROMPT,
            "PS2": "",
            "HISTFILE": "",
            "PYTHON_BASIC_REPL": "1",
            "XDG_STATE_HOME": str(self.folder / "state"),
            "Q": prefix,
            **(variables or {}),
        }
        self._shell = subprocess.Popen(
            ["setsid", "--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"],
            stdin=slave, stdout=slave, stderr=slave, cwd=self.folder, env=environment, pass_fds=[self._held.write],
        )  # fmt: skip
        os.close(slave)
        self._held.let_go()
        self.expect(PROMPT)
        self.run("ulimit -c 0")  # "(core dumped)" depends on the machine

    @property
    def shell(self) -> int:
        """The pid of bash, which is also the id of the terminal's session."""
        return self._shell.pid

    @property
    def text(self) -> str:
        """All that was shown so far, as plain text."""
        shown = self.raw.decode(errors="replace")
        return ESCAPE.sub("", UNFINISHED.sub("", shown)).replace("\r", "")

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def pause(self) -> None:
        """As long as a quick person takes between two keys: without it, keys come before a signal has done its work."""
        time.sleep(0.1)

    def key(self, name: str) -> None:
        self.send(KEYS[name])

    def line(self, text: str) -> None:
        """Type one line and see it echoed; what follows is not waited for."""
        self.send(text + "\n")
        self.expect(text + "\n")

    def run(self, text: str) -> str:
        """Type one line at the prompt and give what it showed up to the next prompt."""
        self.line(text)
        return self.prompt()

    def prompt(self) -> str:
        """Wait for the prompt; what was shown before it."""
        return self.expect(PROMPT).removesuffix(PROMPT)

    def expect(self, text: str, bound: float = BOUND) -> str:
        """Wait until `text` is shown after what was awaited before; all from there up to and with it."""
        deadline = time.monotonic() + bound
        while (at := self.text.find(text, self._seen)) < 0:
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(left):
                raise NotShown(f"{text!r} was not shown; after the last match came {self.text[self._seen :]!r}")
        start, self._seen = self._seen, at + len(text)
        return self.text[start : self._seen]

    def _read(self, bound: float) -> bool:
        """Take what the terminal has to show; False when it has closed."""
        if not select.select([self._master], [], [], bound)[0]:
            return True
        try:
            got = os.read(self._master, 65536)
        except OSError:  # EIO: no process has the other side open any more
            return False
        self.raw += got
        return bool(got)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def echoes(self) -> bool:
        """Whether the terminal shows what is typed."""
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def settings(self) -> list[object]:
        """The modes of the terminal (what `stty -a` shows)."""
        return list(termios.tcgetattr(self._master))

    def command(self, word: str) -> int:
        """The pid, as this process sees it, of the command with `word` in its argv."""
        return oracle.command_below(self.shell, word)

    def in_front(self, word: str) -> int:
        """Wait until the command with `word` in its argv is in the foreground and waits (for input); its pid.

        A pager, editor or REPL may lose a signal that comes between its prompt and its wait for a key.
        """
        pid = self.command(word)

        def waits() -> bool:
            return os.tcgetpgrp(self._master) == os.getpgid(pid) and oracle.state(pid) == "S"

        def front() -> bool:
            """At rest, not just between two steps: five looks in 50 ms say the same."""
            for _ in range(5):
                if not waits():
                    return False
                time.sleep(0.01)
            return True

        oracle.wait_for(front, f"{word!r} in the foreground")
        return pid

    def left(self) -> list[tuple[int, str, str]]:
        """What is alive in the session or below the shell, besides the shell: pid, state, argv."""
        pids = {*oracle.in_session(self.shell), *oracle.below(self.shell)} - {self.shell}
        return [(pid, oracle.state(pid), " ".join(oracle.argv(pid))) for pid in sorted(pids)]

    def idle(self) -> bool:
        return not self.left()

    def hang_up(self) -> None:
        """Close the terminal, as closing its window does."""
        if not self.closed:
            self.closed = True
            os.close(self._master)

    def gone(self, bound: float = BOUND) -> bool:
        """Nothing that ever ran in this terminal is alive: no holder of the FIFO, no member of the session."""
        self._shell.wait(bound)
        if not self._held.gone(bound):
            return False
        oracle.wait_for(lambda: not oracle.in_session(self.shell), "the end of the session", bound)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.hang_up()
        for pid in (self.shell, *(pid for pid, _, _ in self.left())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._shell.wait()
        self._held.__exit__(kind, error, at)
        subprocess.run(["rm", "-rf", str(self.folder)], check=True)
