"""`quell config`: what is in force and where it comes from, and changes that keep the rest of the file as it is."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ..config import what_there_is
from ..configfile import Loaded, load, place
from ..errors import UsageError
from .flags import Config, Json, group
from .screen import Screen, note

WRONG = 1
"""The exit code of `check` where the file makes no sense."""

config = group(
    """Show, set and check the settings: those of the runtime, defaults, agents and models.

    They are in one file, as TOML. What it says goes before the defaults, a variable QUELL_... before the file, and a
    flag before all. Keys of models do not belong into it: models.NAME.key_env names the variable that holds one.

    \b
    quell config set defaults.model openai:gpt-5
    quell config set models.local.base_url http://127.0.0.1:11434/v1
    quell config show
    """
)


def complete_key(ctx: typer.Context, incomplete: str) -> list[str]:
    from .schema import keys

    try:
        found = keys(load(ctx.params.get("config"), os.environ))
        return [one for one in found if one.startswith(incomplete)]
    except UsageError:
        return []


@config.command()
def show(as_json: Json = False, config: Config = None) -> int:
    """Show what is in force.

    Each value with where it comes from: default, built in, file, or a variable QUELL_...; of agents, only what is not a
    default (`quell agent show NAME` tells the rest, --json all). Secrets are masked.

    Exit codes: 0; 125 a fault of quell's or of its options, or the file makes no sense.

    \b
    quell config show
    quell config show --json
    QUELL_TERM=2 quell config show
    """
    from .composing import loaded_from
    from .effective import Effective, lines, nested

    loaded, screen = loaded_from(config), Screen()
    rows = Effective(loaded).all()
    path = place(config, os.environ)
    if as_json:
        tables = {"settings": {}, "defaults": {}, "models": {}, "agents": {}, **nested(rows)}
        screen.json({"path": path, "file": loaded.file, **tables}, 2)
        return 0
    screen.line(("bold", path), ("dim", "" if loaded.file else "  (not there: these are the defaults)"))
    usual = ("default", "built in")
    told = [
        row for row in rows if row.key[0] != "agents" or row.origin not in usual or row.key[2] in ("model", "tools")
    ]
    screen.lines(lines(told))
    return 0


@config.command("set")
def set_(
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="As in settings.term or agents.coder.limits.steps.", autocompletion=complete_key
        ),
    ],
    value: Annotated[str | None, typer.Argument(metavar="VALUE", help="A list has commas between.")] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Take the key out of the file.")] = False,
    config: Config = None,
) -> int:
    """Set a key in the file.

    Comments and order are kept, and what makes no sense changes nothing. A file that is not there is made, for you
    alone. It counts at the next start.

    \b
    quell config set settings.term 3
    quell config set defaults.model openai:gpt-5
    quell config set agents.coder.tools shell,read,write,edit
    quell config set 'agents.coder.approval.shell(git status*)' allow
    quell config set models.local.key_env LOCAL_API_KEY
    quell config set settings.term --unset
    """
    from .draft import editing
    from .schema import key_of, value_of

    found = key_of(key)
    if unset == (value is not None):
        raise UsageError("quell config set takes a key and a value, or a key and --unset")
    with editing(config) as draft:
        if value is None:
            if not draft.has(found.parts):
                raise UsageError(f"{found} is not set in {draft.path}")
            draft.drop(found.parts)
        else:
            draft.put(found.parts, value_of(found, value))
        loaded = draft.save()
    for warning in (*loaded.warnings, *_doubts(found.parts, value or "", loaded)):
        note(warning)
    shown = "is taken out of" if value is None else "is set in"
    Screen().line(f"{found} {shown} {draft.path}{_over(found.parts)}")
    return 0


def _doubts(parts: tuple[str, ...], value: str, loaded: Loaded) -> list[str]:
    """A name that nobody has may be that of something that comes later: it is set, and told of."""
    from .composing import agents_of
    from .offered import providers

    if parts == ("defaults", "agent") and value:
        known = sorted(agents_of(loaded))
        return [] if value in known else [f"there is no agent {value!r} yet; {what_there_is('agents', value, known)}"]
    if parts[-1] == "model" and len(parts) == (2 if parts[0] == "defaults" else 3) and value:
        provider, known = value.partition(":")[0], providers(loaded)
        return [] if provider in known else [f"nobody serves {value!r}: a model is PROVIDER:MODEL, as in openai:gpt-5"]
    return []


def _over(parts: tuple[str, ...]) -> str:
    variable = f"QUELL_{parts[-1].upper()}"
    stands = parts[0] in ("settings", "defaults") and os.environ.get(variable, "").strip()
    return f"; but {variable} is set, and goes before the file" if stands else ""


@config.command()
def path(config: Config = None) -> int:
    """Print where the file is.

    Whether it is there or not: --config, QUELL_CONFIG, or the usual place.

    \b
    $EDITOR "$(quell config path)"
    """
    Screen().line(place(config, os.environ))
    return 0


@config.command()
def check(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="By default the one that is in force.")] = None,
    as_json: Json = False,
    config: Config = None,
) -> int:
    """Check that the file makes sense.

    Says `ok`, or in one sentence what does not: also a model, tool or agent that it names and is not there.

    Exit codes: 0 it does; 1 it does not, or it is not there; 125 a fault of quell's or of its options.

    \b
    quell config check
    quell config check ./team.toml
    """
    from .offered import doubts

    if file is not None and config is not None:
        raise UsageError("quell config check takes one file")
    screen, named = Screen(), file or config
    try:
        loaded = load(named, os.environ)
        faults, said = doubts(loaded)
        problem, warnings = "; ".join(faults), [*loaded.warnings, *said]
    except UsageError as error:
        problem, warnings = str(error), []
    where = place(named, os.environ)
    if as_json:
        screen.json({"path": where, "ok": not problem, "problem": problem, "warnings": warnings}, 2)
        return WRONG if problem else 0
    aside = Screen(2)
    for warning in warnings:
        aside.line(("yellow", f"quell: {warning}"))
    if problem:
        aside.line(f"quell: {problem}")
        return WRONG
    screen.line(f"ok: {where}" if os.path.exists(where) else f"ok: {where} is not there, so these are the defaults")
    return 0
