"""The command line: each command loads only what it needs, and `quell exec` next to nothing."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
else:
    import _signal as signal  # without the enums, which take longer than all of `quell --version`

COMMANDS = {
    "exec": "run a command; nothing survives it",
    "plugin": "list, install, remove, enable and disable plugins",
    "doctor": "what containment this machine gives, and leftovers of crashes",
}

HELP = """\
Quell: the agent runtime where stop means stop.

usage: quell COMMAND [options]

commands:
  exec     run a command contained; when it ends, or quell does, nothing of it survives
  plugin   list, install, remove, enable and disable plugins
  doctor   what containment this machine gives, leftovers of crashes found and ended

options:
  -h, --help     this text; `quell COMMAND --help` for a command's own
  --version      the version

example:
  quell exec -- npm test
"""


def hold_signals() -> list[int]:
    """Hold back every signal that can be, before anything slow: a Ctrl+C while we start is not lost (H22)."""
    return [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())]


def script() -> None:
    """The `quell` command. Leaves without the interpreter's own tidying up, which takes longer than `quell exec`."""
    code = main()
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = words.pop(0) if words else "--help"
    if command == "exec":
        mask = hold_signals()
        from .exec import run as run_exec

        return run_exec(words, mask)
    if command == "plugin":
        mask = hold_signals()
        from .plugin import run as run_plugin

        return run_plugin(words, mask)
    if command == "doctor":
        from .doctor import run

        return run(words)
    from .words import show

    if command == "--version":
        from .. import __version__

        return show(f"quell {__version__}\n")
    if command in ("-h", "--help", "help"):
        return show(HELP)
    from .words import complain, nearest

    complain(f"there is no command '{command}'{nearest(command, COMMANDS)}; see quell --help")
    return 125
