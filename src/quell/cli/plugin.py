"""`quell plugin`: which plugins there are, and install, remove, enable and disable them.

Plugins are installed below the state folder, never into the environment; what comes with Quell cannot be removed.
"""

from __future__ import annotations

from ..errors import QuellError, UsageError
from .words import complain, nearest, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence

    from ..kernel.discovery import Found
    from .shelf import Shelf
else:
    import _signal as signal  # without the enums, as in the package

HELP = """\
Which plugins there are; install, remove, enable and disable them.

usage: quell plugin list [--json]
       quell plugin install [--with pip|uv] [--verbose] WHAT [-- OPTION...]
       quell plugin remove NAME
       quell plugin enable NAME
       quell plugin disable NAME

WHAT is whatever pip takes: a name, a path, a URL; options for pip or uv
follow `--`. It is installed into a folder of its own below Quell's state
folder, in one step and in a box: Ctrl+C ends it and changes nothing. The
environment is never touched. A plugin is loaded at the next start of the
runtime.

Exit codes: 0 done, 1 pip or uv could not install it, 125 a fault of quell's
or of its options, 130 Ctrl+C.

options:
  --json           for list: the same as JSON
  --with TOOL      pip or uv; by default uv where it is on PATH, else pip
  --verbose        show what pip or uv says while it works, on no terminal too
  -h, --help       this text

examples:
  quell plugin install quell-greeter
  quell plugin install ./greeter -- --no-index --no-build-isolation
  quell plugin disable greeter
"""

COMMANDS = ("list", "install", "remove", "enable", "disable")
OURS = 125
INTERRUPTED = 130


class Options:
    def __init__(self) -> None:
        self.command = ""
        self.json = False
        self.verbose = False
        self.tool = ""
        self.help = False
        self.what: list[str] = []
        self.extra: list[str] = []


def run(words: Sequence[str], mask: list[int]) -> int:
    """`mask` is the signal mask that we were started with; by now all are held back (H22)."""
    try:
        options = parse(words)
        if options.help:
            return show(HELP)
        if options.command == "install":
            return _install(options, mask)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return _DO[options.command](options)
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except QuellError as error:
        complain(str(error))
        return OURS
    except OSError as error:
        complain(f"{error.filename or 'the plugins'}: {error.strerror or error}")
        return OURS


def parse(words: Sequence[str]) -> Options:
    """UsageError says what is wrong and what to do."""
    options, rest = Options(), list(words)
    options.command = rest.pop(0) if rest else ""
    if options.command in ("-h", "--help", "help"):
        options.help = True
        return options
    if options.command not in COMMANDS:
        said = f"there is no plugin command '{options.command}'{nearest(options.command, COMMANDS)}"
        raise UsageError(f"{said if options.command else 'what to do is missing'}; see quell plugin --help")
    while rest:
        word = rest.pop(0)
        if word == "--" and options.command == "install":
            options.extra = rest
            break
        if word.startswith("-"):
            _option(options, word, rest)
        else:
            options.what.append(word)
    if not options.help:
        _complete(options)
    return options


FLAGS = {"list": ("--json",), "install": ("--with", "--verbose")}


def _option(options: Options, word: str, rest: list[str]) -> None:
    known = FLAGS.get(options.command, ())
    name, equals, value = word.partition("=")
    if word in ("-h", "--help"):
        options.help = True
    elif name not in known or (equals and name != "--with"):
        more = "; options for pip or uv follow --" if options.command == "install" else ""
        raise UsageError(
            f"quell plugin {options.command} has no option {word}{nearest(name, [*known, '--help'])}{more};"
            " see quell plugin --help"
        )
    elif name == "--json":
        options.json = True
    elif name == "--verbose":
        options.verbose = True
    else:
        options.tool = value if equals else rest.pop(0) if rest else ""
        if options.tool not in ("pip", "uv"):
            raise UsageError(f"--with takes pip or uv, not '{options.tool}'")


def _complete(options: Options) -> None:
    wanted = 0 if options.command == "list" else 1
    if len(options.what) > wanted:
        raise UsageError(f"quell plugin {options.command}: '{options.what[wanted]}' is one word too many")
    if len(options.what) < wanted or not all(options.what):
        kind = "what to install" if options.command == "install" else "the name of a plugin"
        raise UsageError(f"quell plugin {options.command} needs {kind}; see quell plugin --help")


def _shelf() -> Shelf:
    from .shelf import Shelf

    return Shelf()


def _install(options: Options, mask: list[int]) -> int:
    from .boxed import hold_only_ours
    from .install import install

    hold_only_ours(mask)
    return install(_shelf(), options.what[0], options.extra, options.tool, options.verbose)


# -- those that are quick


def _list(options: Options) -> int:
    from ..kernel.discovery import find

    shelf = _shelf()
    shelf.tidy()
    disabled = shelf.disabled()
    rows = [_row(one, disabled) for one in find((), shelf.path)]
    if options.json:
        import json

        return show(json.dumps(rows, indent=2) + "\n")
    if not rows:
        return show("no plugins\n")
    lines = [[row["name"], row["version"] or "-", row["source"], row["fault"] or row["state"]] for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    return show("".join(f"{'  '.join(map(str.ljust, line, [*widths, 0]))}\n" for line in lines))


def _row(one: Found, disabled: set[str]) -> dict[str, str]:
    state = "disabled" if one.name in disabled else "enabled"
    facts = {"name": one.name, "version": one.version, "distribution": one.distribution, "source": one.source}
    return {**facts, "state": state, "folder": one.folder, "fault": one.fault}


def _remove(options: Options) -> int:
    from ..kernel.discovery import find, is_bundled

    shelf, [name] = _shelf(), options.what
    if is_bundled(name, shelf.path):
        raise UsageError(f"{name} comes with Quell and cannot be removed; quell plugin disable {name} switches it off")
    with shelf.locked():
        found = find((), shelf.path)
        mine = [one for one in found if one.folder and name in (one.name, one.distribution)]
        if not mine:
            if any(one.name == name for one in found):
                raise UsageError(f"{name} is part of the environment: remove it there, or quell plugin disable {name}")
            removable = [one.name for one in found if one.folder]
            raise UsageError(f"there is no installed plugin '{name}'{nearest(name, removable)}; see quell plugin list")
        folder = mine[0].folder
        names = {one.name for one in found if one.folder == folder}
        shelf.take_away(folder)
        if (disabled := shelf.disabled()) & names:
            shelf.note_disabled(disabled - names)
    return show(f"removed {name}; a runtime that has loaded it keeps it until it ends\n")


def _enable(options: Options) -> int:
    return _switch(options.what[0], on=True)


def _disable(options: Options) -> int:
    return _switch(options.what[0], on=False)


def _switch(name: str, *, on: bool) -> int:
    from ..kernel.discovery import find

    shelf = _shelf()
    with shelf.locked():
        disabled = shelf.disabled()
        known = {one.name for one in find((), shelf.path)}
        if name not in known and not (on and name in disabled):
            raise UsageError(f"there is no plugin '{name}'{nearest(name, sorted(known))}; see quell plugin list")
        wanted = disabled - {name} if on else disabled | {name}
        already = "already " if wanted == disabled else ""
        if not already:
            shelf.note_disabled(wanted)
    return show(f"{name} is {already}{'enabled' if on else 'disabled'}; that counts at the next start\n")


_DO: dict[str, Callable[[Options], int]] = {"list": _list, "remove": _remove, "enable": _enable, "disable": _disable}
