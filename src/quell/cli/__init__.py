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
    "run": "give an agent one task, here and now",
    "chat": "talk with an agent in this terminal",
    "agent": "list, add, show and remove agents",
    "config": "show, set and check the settings",
    "session": "list, show, export, delete and fork sessions, wherever they ran",
    "serve": "run agents, with an HTTP API and a page",
    "open": "open the page in the browser",
    "down": "end the server, and everything that runs in it",
    "ps": "list the sessions, in every terminal",
    "logs": "what happened in a session, or in all",
    "send": "send a message and show the answer",
    "attach": "follow a session and type to it",
    "stop": "stop sessions and print the receipts",
    "reopen": "let new work in again after a stop of all",
    "approve": "what waits for leave, and give it",
    "receipts": "what stops observed",
    "exec": "run a command; nothing survives it",
    "plugin": "list, install, remove, enable and disable plugins",
    "doctor": "what containment this machine gives, and leftovers of crashes",
    "completion": "completion of all this for bash, zsh and fish",
}

COMPLETE = "_QUELL_COMPLETE"
"""The variable by which a shell asks for completions."""

HELP = """\
Quell: the agent runtime where stop means stop.

usage: quell COMMAND [options]

begin here:
  run         give an agent one task, here and now; works offline, without a key
  chat        talk with an agent in this terminal
  exec        run any command contained; when it ends, nothing of it survives

what you have:
  agent       list, add, show and remove agents
  config      show, set and check the settings, models and defaults
  session     list, show, export, delete and fork sessions, wherever they ran
  plugin      list, install, remove, enable and disable plugins

a server and its page:
  serve       run agents, with an HTTP API and a page
  open        open the page in the browser
  down        end the server, and everything that runs in it

the server's sessions (all with --json):
  ps          list them, and what runs in other terminals; --watch goes on
  logs        what happened; -f goes on
  send        send a message and show the answer; --new opens a session first
  attach      follow a session and type to it
  stop        stop sessions, or --all, in every terminal; prints the receipts
  reopen      let new work in again after a stop of all
  approve     what waits for leave, and give it
  receipts    what stops observed

this machine:
  doctor      what containment it gives, leftovers of crashes found and ended
  completion  completion of all this for bash, zsh and fish

options:
  -h, --help     this text; `quell COMMAND --help` for a command's own
  --version      the version

examples:
  quell run "say hello"
  quell run '$ npm test'
  quell config set defaults.model openai:gpt-5 && quell chat
  quell exec -- npm test
  quell serve --detach && quell send --new '$ npm test'
  quell stop --all
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
    if not words and COMPLETE in os.environ:
        return _app(words)
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
    if command in COMMANDS:
        return _app([command, *words])
    from .words import show

    if command == "--version":
        from .. import __version__

        return show(f"quell {__version__}\n")
    if command in ("-h", "--help", "help"):
        return show(HELP)
    from .words import complain, nearest

    complain(f"there is no command '{command}'{nearest(command, COMMANDS)}; see quell --help")
    return 125


def _app(words: list[str]) -> int:
    mask = hold_signals()
    from .app import run

    return run(words, mask)
