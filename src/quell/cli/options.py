"""The options of `quell exec`, read by hand: argparse costs more than the rest of the command."""

from __future__ import annotations

from ..errors import UsageError
from ..supervise.box import GRACE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

HELP = """\
Run a command contained; when it ends, or quell does, nothing of it survives.

usage: quell exec [options] -- CMD [ARGUMENT...]

Streams, signals, job control and the exit code pass through. Exit codes of
our own: 124 timeout, 125 a fault of quell's or of its options, 126 CMD cannot
be executed, 127 CMD not found, 1 the stop is unconfirmed (the pids that are
left are named).

options:
  --grace S        seconds between SIGTERM and SIGKILL, for a stop and for what
                   CMD left running (default 5)
  --timeout S      stop CMD after this many seconds and exit with 124
  --receipt FILE   write what the stop observed as JSON
  --contain RUNG   pidns, userns, cgroup, subreaper, or auto, the default: the
                   strongest that costs nothing
  --quiet          do not tell what CMD left behind
  -h, --help       this text

examples:
  quell exec -- claude -p "fix the tests"
  quell exec --timeout 600 --receipt build.json -- make -j8
"""

LONGEST = 366 * 86400.0

VALUED = ("--grace", "--timeout", "--receipt", "--contain")
PLAIN = ("--quiet", "--help", "-h")


class Options:
    def __init__(self) -> None:
        self.grace = GRACE
        self.timeout: float | None = None
        self.receipt: str | None = None
        self.contain = "auto"
        self.quiet = False
        self.help = False
        self.command: list[str] = []


def parse(words: Sequence[str]) -> Options:
    """UsageError says what is wrong and what to do."""
    options, rest = Options(), list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            rest.insert(0, word)
            break
        name, equals, value = word.partition("=")
        if name in VALUED:
            if not equals:
                if not rest:
                    raise UsageError(f"{name} needs a value; see quell exec --help")
                value = rest.pop(0)
            _set(options, name, value)
        elif word == "--quiet":
            options.quiet = True
        elif word in ("-h", "--help"):
            options.help = True
        else:
            from .words import nearest

            known = nearest(name, (*VALUED, *PLAIN))
            raise UsageError(f"there is no option {name}{known}; put -- before the command; see quell exec --help")
    options.command = rest
    if not rest and not options.help:
        raise UsageError("there is no command to run: quell exec [options] -- CMD...")
    return options


def _set(options: Options, name: str, value: str) -> None:
    if name == "--grace":
        options.grace = _seconds(name, value)
    elif name == "--timeout":
        options.timeout = _seconds(name, value)
    elif name == "--receipt":
        if not value:
            raise UsageError("--receipt needs the name of a file")
        options.receipt = value
    else:
        options.contain = value


def _seconds(name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = float("nan")
    if not (0 <= seconds <= LONGEST):
        raise UsageError(f"{name} takes a number of seconds, from 0 to a year, not '{value}'")
    return seconds
