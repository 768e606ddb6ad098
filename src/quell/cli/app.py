"""The commands as one typer app: a fault is one sentence on stderr, never a box or a traceback.

A command's module is loaded when that command runs, or is completed.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import QuellError
from . import COMMANDS, COMPLETE
from .screen import ReaderGone, note
from .values import HELP, understand
from .words import by_flag, complain, nearest, show

if TYPE_CHECKING:
    from typer.core import TyperGroup

OURS, INTERRUPTED = 125, 130
FUNCTIONS = {
    "run": ("run", "run"),
    "chat": ("chat", "chat"),
    "agent": ("agents", "agent"),
    "config": ("configuration", "config"),
    "session": ("sessions", "session"),
    "serve": ("serve", "serve"),
    "down": ("down", "down"),
    "open": ("opening", "open_page"),
    "ps": ("ps", "ps"),
    "logs": ("logs", "logs"),
    "send": ("send", "send"),
    "attach": ("attach", "attach"),
    "stop": ("stop", "stop"),
    "reopen": ("stop", "reopen"),
    "approve": ("approve", "approve"),
    "receipts": ("receipts", "receipts"),
    "completion": ("app", "completion"),
}
"""Where the function of each command is, or the app of its own commands."""
HEARS_ITSELF = ("run", "chat", "serve")
"""They take signals in a way of their own, and hold them until then (H22)."""
SHELLS = ("bash", "zsh", "fish")
WRONG: type[Exception] = typer.BadParameter.__mro__[1]
"""What typer raises for wrong words of any kind."""
_PLUGIN = ("list", "install", "remove", "enable", "disable")


def run(words: Sequence[str], mask: Collection[int]) -> int:
    """`mask` is the signal mask that we were started with; by now all are held back (H22)."""
    try:
        if not words or words[0] not in HEARS_ITSELF:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        asked = os.environ.get("COMP_WORDS", "") + os.environ.get("_TYPER_COMPLETE_ARGS", "")
        wanted = words[:1] or [name for name in FUNCTIONS if name in asked.split()]
        code = build(wanted).main(
            args=list(words), prog_name="quell", complete_var=COMPLETE, standalone_mode=False, obj=list(mask)
        )
        if sys.stdout is not None:  # closed at the start
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except ReaderGone:
        return 0
    except WRONG as error:
        complain(_sentence(error))
        return OURS
    except QuellError as error:
        note(by_flag(str(error)))
        return OURS
    except OSError as error:
        complain(f"{error.filename or 'cannot go on'}: {error.strerror or error}")
        return OURS
    except SystemExit as left:  # a completion
        return left.code if isinstance(left.code, int) else 0
    except Exception as error:  # noqa: BLE001  a boundary: a server of another version, or a fault of ours
        import traceback

        at = traceback.extract_tb(error.__traceback__)[-1]
        complain(f"unexpected {type(error).__name__}: {error} ({os.path.basename(at.filename)}, line {at.lineno})")
        return OURS


def build(wanted: Collection[str]) -> TyperGroup:
    """The app. Of the commands that are not wanted it has the names, and what each is for."""
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help="Quell: the agent runtime where stop means stop.",
        context_settings={"help_option_names": HELP, "terminal_width": _narrow()},
    )
    for name, purpose in COMMANDS.items():
        if name in FUNCTIONS and name in wanted:
            found = _found(name)
            if isinstance(found, typer.Typer):
                app.add_typer(found, name=name, short_help=purpose)
            else:
                app.command(name, short_help=purpose)(found)
        elif name == "plugin":
            app.command(name, short_help=purpose, context_settings=_ANY)(_plugin)
        else:
            app.command(name, short_help=purpose, context_settings=_ANY)(_elsewhere)
    if COMPLETE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
    group: Any = typer.main.get_command(app)
    understand(group)
    return group  # type: ignore[no-any-return]  # a group, because it has commands


def _narrow() -> int | None:
    """Columns for help on a terminal of less than fifty, which typer would not go below; else typer knows."""
    columns = shutil.get_terminal_size().columns
    return max(20, columns - 2) if columns < 52 else None


def _found(name: str) -> Callable[..., int] | typer.Typer:
    module, attribute = FUNCTIONS[name]
    found: Callable[..., int] | typer.Typer = getattr(importlib.import_module(f".{module}", __package__), attribute)
    return found


_ANY = {"ignore_unknown_options": True, "allow_extra_args": True}


def _elsewhere(words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Run by quell.cli, without typer."""


def _plugin(words: Annotated[list[str] | None, typer.Argument(autocompletion=lambda: list(_PLUGIN))] = None) -> None:
    """Run by quell.cli, without typer."""


def completion(
    shell: Annotated[
        str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", autocompletion=lambda: list(SHELLS))
    ],
) -> int:
    """Print what completes quell's commands, options and sessions in a shell.

    \b
    bash, in ~/.bashrc:  eval "$(quell completion bash)"
    zsh, in ~/.zshrc:    eval "$(quell completion zsh)"
    fish:  quell completion fish >~/.config/fish/completions/quell.fish
    """
    if shell not in SHELLS:
        raise QuellError(f"there is no completion for '{shell}'{nearest(shell, SHELLS)}; there is bash, zsh and fish")
    from typer._completion_shared import get_completion_script

    return show(get_completion_script(prog_name="quell", complete_var=COMPLETE, shell=shell) + "\n")


def _sentence(error: Exception) -> str:
    """What is wrong with the words, and where to look."""
    context: Any = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "quell"
    words = getattr(error, "format_message", error.__str__)().strip().rstrip(".")
    words = " ".join(words.split()).replace("Value error, ", "")
    if type(error).__name__ == "NoSuchOption" and context is not None:
        known = [name for param in context.command.params for name in param.opts if name.startswith("-")]
        option = getattr(error, "option_name", "")
        words = f"{command} has no option {option}{nearest(option, [*known, '--help'])}"
    else:
        words = f"{command}: {words[:1].lower()}{words[1:]}"
    return f"{words}; see {command} --help"
