"""A real terminal as a person has one: a tmux of the test's own, keys pressed in it, and its screen read.

Its server is a child of the test, on a socket of its own; when it is left, all that ever ran in it is gone.
"""

import contextlib
import os
import re
import select
import shlex
import signal
import subprocess
import tempfile
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cli import oracle
from tests.cli.command import QUELL

PROMPT = "ready>"
SHELL = f"exec env PS1='{PROMPT} ' bash --norc --noprofile --noediting -i"  # any shell in between would unset it
BOUND = 15.0  # seconds for any one text to come; far above what a busy machine needs
STANDS = (
    "#{cursor_flag} #{alternate_on} #{insert_flag} #{wrap_flag} #{keypad_flag} #{keypad_cursor_flag} #{mouse_any_flag}"
)


class NotShown(AssertionError):
    """The screen did not show it in time; the message has what it shows instead."""


def running(word: str) -> list[int]:
    """Whoever on this machine has that word in its argv, wherever it has escaped to."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if oracle.alive(pid) and word in oracle.argv(pid)]


class Tmux:
    """One pane with an interactive bash. `screen` is what is seen, `all` also what has scrolled away."""

    def __init__(
        self, folder: Path, *, columns: int = 100, rows: int = 40, variables: Mapping[str, str] | None = None
    ) -> None:
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        self._environment = {
            "PATH": f"{QUELL.parent}:/usr/bin:/bin",
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "HISTFILE": "",
            **(variables or {}),
        }
        self._client: subprocess.Popen[bytes] | None = None
        self._interrupted = 0.0
        with contextlib.ExitStack() as stack:  # whatever fails, nothing of it stays
            self._held = stack.enter_context(oracle.Held())
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="quell-tmux-"))
            self._environment["TMUX_TMPDIR"] = place
            self._socket = Path(place, "s")
            self._server = self._tmux("-D", "-f", "/dev/null")
            stack.callback(self._end)
            oracle.wait_for(self._socket.exists, "the server of tmux", BOUND)
            begin = ["set-option", "-g", "history-limit", "20000", ";", "new-session", "-d", SHELL]
            assert self._tmux(*begin).wait(BOUND) == 0
            self._attach()
            self.resize(columns, rows)
            self._pane = self.ask("#{pane_id}")
            self.shell = int(self.ask("#{pane_pid}"))
            self._tty = os.open(self.ask("#{pane_tty}"), os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
            stack.callback(os.close, self._tty)
            self.prompt()
            self.run(f"exec 9>/proc/{os.getpid()}/fd/{self._held.write}; ulimit -c 0")
            self.clear()
            self._held.let_go()
            self.as_found = self.modes()
            self._stack = stack.pop_all()

    # -- tmux

    def _tmux(self, *words: str) -> subprocess.Popen[bytes]:
        piped = subprocess.PIPE if "-C" in words else subprocess.DEVNULL
        return subprocess.Popen(
            ["tmux", "-S", str(self._socket), *words],
            stdin=piped, stdout=piped, stderr=subprocess.DEVNULL, cwd=self.home, env=self._environment,
            start_new_session=True,
        )  # fmt: skip

    def _attach(self) -> None:
        """Commands go through one client. Now and then tmux does not begin to read from it: then another is tried."""
        for _ in range(5):
            self._unread = b""
            self._client = self._tmux("-C", "attach-session")
            try:
                self._answer(1.0)
                for _ in range(5):
                    self.tell("refresh-client -f no-output", 1.0)
                return
            except TimeoutError:
                self._let_go_of_client()
        raise AssertionError("tmux does not answer")

    def _let_go_of_client(self) -> None:
        if self._client is None:
            return
        self._client.kill()
        self._client.wait()
        for stream in (self._client.stdin, self._client.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def tell(self, command: str, bound: float = BOUND) -> str:
        """A command of tmux, and what it says."""
        assert self._client is not None and self._client.stdin is not None
        self._client.stdin.write(command.encode() + b"\n")
        self._client.stdin.flush()
        return self._answer(bound)

    def _answer(self, bound: float) -> str:
        """Between %begin and %end; whatever else the server tells is not waited for."""
        lines: list[bytes] | None = None
        while True:
            line = self._line(bound)
            if line.startswith(b"%begin "):
                lines = []
            elif line.startswith(b"%end ") and lines is not None:
                return b"\n".join(lines).decode(errors="replace")
            elif line.startswith(b"%error "):
                raise AssertionError(b"\n".join(lines or []).decode())
            elif lines is not None:
                lines.append(line)

    def _line(self, bound: float) -> bytes:
        assert self._client is not None and self._client.stdout is not None
        while b"\n" not in self._unread:
            if not select.select([self._client.stdout], [], [], bound)[0]:
                raise TimeoutError("tmux does not answer")
            got = os.read(self._client.stdout.fileno(), 1 << 16)
            assert got, "tmux is gone"
            self._unread += got
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def ask(self, what: str) -> str:
        return self.tell(f"display-message -p {shlex.quote(what)}")

    # -- hands

    def write(self, text: str) -> None:
        """Letter by letter, without Enter."""
        assert "\n" not in text
        self.tell(f"send-keys -l -- {shlex.quote(text)}")

    def key(self, *names: str) -> None:
        """As tmux calls them: Enter, C-c, M-Enter, Up, Tab. Nobody presses Ctrl+C twice within 50 ms."""
        if "C-c" in names:
            time.sleep(max(0.0, self._interrupted + 0.1 - time.monotonic()))
            self._interrupted = time.monotonic()
        self.tell(f"send-keys {' '.join(names)}")

    def line(self, text: str) -> None:
        self.write(text)
        self.key("Enter")

    def paste(self, text: str) -> None:
        """As a terminal does it: marked as pasted where the program asked for that."""
        file = self._socket.with_name("pasted")
        file.write_bytes(text.encode(errors="surrogateescape"))
        self.tell(f"load-buffer {shlex.quote(str(file))}")
        self.tell("paste-buffer -p -r")

    def resize(self, columns: int, rows: int = 40) -> None:
        self.tell(f"refresh-client -C {columns}x{rows}")

    # -- eyes

    @property
    def screen(self) -> str:
        """What is seen now, each line without the blanks at its end."""
        return self.tell("capture-pane -p").rstrip("\n")

    @property
    def all(self) -> str:
        """Also what has scrolled away; a line that the terminal broke is one."""
        lines = self.tell("capture-pane -p -J -S -").rstrip("\n").split("\n")
        return "\n".join(line.rstrip() for line in lines)

    @property
    def coloured(self) -> str:
        return self.tell("capture-pane -p -e").rstrip("\n")

    @property
    def last(self) -> str:
        """The last line of the screen that is not empty."""
        return self.screen.rpartition("\n")[2].rstrip()

    @property
    def cursor(self) -> tuple[int, int]:
        """Column and row."""
        column, row = self.ask("#{cursor_x} #{cursor_y}").split()
        return int(column), int(row)

    def expect(self, pattern: str, bound: float = BOUND, *, screen: bool = False) -> re.Match[str]:
        """Wait until it is shown, on the screen or anywhere before it."""
        deadline = time.monotonic() + bound
        while True:
            shown = self.screen if screen else self.all
            if found := re.search(pattern, shown, re.MULTILINE):
                return found
            if time.monotonic() > deadline:
                raise NotShown(f"{pattern!r} was not shown within {bound} s; the screen is\n{shown[-4000:]}")
            time.sleep(0.01)

    def expect_not(self, pattern: str, bound: float = BOUND) -> None:
        """Wait until it is not on the screen any more."""
        deadline = time.monotonic() + bound
        while re.search(pattern, self.screen, re.MULTILINE):
            if time.monotonic() > deadline:
                raise NotShown(f"{pattern!r} is still shown after {bound} s; the screen is\n{self.screen}")
            time.sleep(0.01)

    def prompt(self, bound: float = BOUND) -> None:
        """Wait until the shell is back."""
        deadline = time.monotonic() + bound
        while self.last != PROMPT:
            if time.monotonic() > deadline:
                raise NotShown(f"the shell is not back after {bound} s; the screen is\n{self.screen}")
            time.sleep(0.002)

    def run(self, text: str) -> str:
        """Type a line at the prompt; what it shows up to the next one. The screen is cleared before."""
        self.clear()
        self.line(text)
        oracle.wait_for(lambda: self.screen.strip() not in ("", PROMPT), f"the echo of {text}", BOUND)
        self.prompt()
        return self.all.partition("\n")[2].rpartition("\n")[0]

    def quell(self) -> int:
        """The pid of the quell in the foreground, once it is in charge: before that it is Python that starts."""

        def found() -> int:
            below = [
                pid for pid in oracle.below(self.shell) if any(word.endswith("/quell") for word in oracle.argv(pid))
            ]
            return next((pid for pid in below if oracle.in_charge(pid)), 0)

        return oracle.wait_for(found, "a quell in the terminal", BOUND)

    def pause(self) -> None:
        """As long as a quick person takes between two keys."""
        time.sleep(0.25)

    def clear(self) -> None:
        """Forget what was shown. At the prompt only."""
        self.tell("send-keys -R")
        self.tell("clear-history")

    # -- what is left

    def modes(self) -> tuple[list[object], str]:
        """What `stty -a` shows, and what the terminal itself was told."""
        return list(termios.tcgetattr(self._tty)), self.ask(STANDS)

    def given_back(self) -> None:
        """The prompt is there, the terminal is as it was found, and nothing but the shell lives in it."""
        self.prompt()
        assert self.modes() == self.as_found
        oracle.wait_for(lambda: not self.left(), "nothing is left", BOUND)

    def left(self) -> list[str]:
        """What is alive in the session or below the shell, besides the shell."""
        pids = {*oracle.in_session(self.shell), *oracle.below(self.shell)} - {self.shell}
        return [f"{pid} {' '.join(oracle.argv(pid))}" for pid in sorted(pids)]

    def close_window(self) -> None:
        """As a person closes the terminal's window: what runs in it hangs up."""
        self.tell("new-session -d sleep 1000")  # for us to stay
        self.tell(f"kill-pane -t {self._pane}")

    def gone(self, bound: float = BOUND) -> bool:
        """Nothing that ever ran in this terminal is alive."""
        return self._held.gone(bound)

    def _end(self) -> None:
        self._server.terminate()
        try:
            self._server.wait(2)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._let_go_of_client()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """What still runs hangs up, and has to end by that. After a failure it is ended by force."""
        left = [int(one.split()[0]) for one in self.left()]
        with self._stack:
            self._end()
            if kind is None:
                assert self.gone(), "somebody lives on without its terminal"
            for pid in left if kind is not None else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
