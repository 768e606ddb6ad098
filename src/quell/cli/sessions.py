"""`quell session`: the sessions of this user wherever they ran, whether a server is up or not.

Logs are read beside whoever writes them; a change is made by whoever owns the log, or by a runtime of our own.
"""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import QuellError, StoreError, UsageError
from . import columns, places
from .flags import Config, Json, complete_past, group
from .flags import SomeState as State
from .screen import Screen, note, one_line

if TYPE_CHECKING:
    from .past import Digest

FAILED = 1
HEAD = ["SESSION", "WHEN", "STATE", "WHERE", "AGENT", "MODEL", "TITLE"]

session = group(
    """List, show, export, delete and fork sessions, wherever they ran.

    Those of the server, of `quell run` and `quell chat`, and of programs. ID is a session's id, the beginning of it
    (4 characters or more), or its title.

    \b
    quell session list
    quell session show 1f0c
    quell run --resume 1f0c "go on"
    """
)

Id = Annotated[str, typer.Argument(metavar="ID", help="A session.", autocompletion=complete_past)]


class Form(StrEnum):
    markdown = "markdown"
    jsonl = "jsonl"


@session.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="So many, the newest.")] = 20,
    everyone: Annotated[bool, typer.Option("--all", help="Sub-agents too.")] = False,
    as_json: Json = False,
    state: State = None,
) -> int:
    """List sessions, the newest last.

    Exit codes: 0; 125 a fault of quell's or of its options.

    \b
    quell session list --limit 5
    quell session list --json
    """
    screen = Screen()
    found, more = digests(_where(state), limit, everyone)
    if as_json:
        screen.json({"sessions": [_facts(one) for one in found], "more": more}, 2)
        return 0
    if not found:
        screen.line("no sessions")
        return 0
    columns.show(screen, [HEAD, *(_cells(one) for one in found)])
    if more:
        note(f"{more} more {'is' if more == 1 else 'are'} older: --limit {limit + more} lists all")
    return 0


@session.command()
def show(id_: Id, as_json: Json = False, state: State = None) -> int:
    """Show what happened in a session.

    As `quell logs` does; with --json the events, one a line. Of a fork, what it was forked from comes first.

    \b
    quell session show 1f0c
    quell session show 1f0c --json | jq 'select(.kind == "tool.requested")'
    """
    import json

    from .past import past
    from .transcript import Transcript

    known, screen, transcript = places.find(id_, _where(state)), Screen(), Transcript()
    with past(known.folder) as log:
        for row in log.conversation(known.id):
            event = json.loads(row.body)
            if as_json:
                screen.json(event)
            else:
                screen.lines(transcript.lines(event))
    return 0


@session.command()
def export(
    id_: Id,
    form: Annotated[Form, typer.Option("--form", help="For people, or every event for programs.")] = Form.markdown,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="By default standard output.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    state: State = None,
) -> int:
    """Export a session as a file.

    FILE is written whole or not at all.

    \b
    quell session export 1f0c -o talk.md
    quell session export 1f0c --form jsonl | wc -l
    """
    from ..events import decode
    from ..kernel.export import to_markdown
    from .outfile import write_whole
    from .past import past
    from .words import show as put

    if force and output is None:
        raise UsageError("--force is of a file: add -o FILE")
    known = places.find(id_, _where(state))
    with past(known.folder) as log:
        rows = log.conversation(known.id)
        if form is Form.jsonl:
            data = b"".join(row.body + b"\n" for row in rows)
        else:
            data = to_markdown([decode(row.body) for row in rows], known.title or known.id).encode()
    if output is None:
        return put(data.decode())
    write_whole(output, data, force=force)
    note(f"wrote {output}")
    return 0


@session.command()
def delete(
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Sessions.", autocompletion=complete_past)],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
    state: State = None,
) -> int:
    """Delete sessions, with their sub-agents, for good.

    One that runs is stopped first. Exit codes: 0 they are gone; 1 one is not, or it was answered no; 125 a fault of
    quell's or of its options.

    \b
    quell session delete 1f0c
    quell session delete 1f0c 2a9d --yes
    """
    from . import changing

    where = _where(state)
    known = list({one.id: one for one in (places.find(word, where) for word in ids)}.values())
    if not yes and not _agreed(known):
        return FAILED
    faults, screen = changing.delete(known), Screen()
    gone = [one.id for one in known if one.id not in faults]
    for error in faults.values():
        note(str(error))
    if as_json:
        told = [{"id": id_, "message": str(error)} for id_, error in faults.items()]
        screen.json({"deleted": gone, "faults": told}, 2)
    else:
        screen.lines([[("", f"deleted {id_}")] for id_ in gone])
    return FAILED if faults else 0


@session.command()
def fork(
    id_: Id,
    at: Annotated[
        int | None, typer.Option("--at", metavar="SEQ", min=1, help="The event to fork at; by default where it is now.")
    ] = None,
    as_json: Json = False,
    state: State = None,
    config: Config = None,
) -> int:
    """Fork a session.

    Prints the id of a new one, which begins with its history. `quell session show ID --json` tells the numbers of
    events.

    \b
    quell session fork 1f0c
    quell run --resume "$(quell session fork 1f0c --at 42)" "try it another way"
    """
    from . import changing

    known, screen = places.find(id_, _where(state)), Screen()
    home = places.usual() if state is None else known.folder
    new = changing.fork(known, at, home=home, config=config)
    if as_json:
        screen.json({"id": new, "origin": known.id, "folder": known.folder})
    else:
        screen.line(new)
    return 0


# -- parts


def _where(state: str | None) -> list[str]:
    """UsageError if there are none in a folder that was named."""
    import os

    if state is None:
        return places.folders()
    folder = os.path.abspath(state)
    if not os.path.exists(os.path.join(folder, places.LOG)):
        raise UsageError(f"there are no sessions in {folder}: it is no state directory, as it has no log")
    return [folder]


def digests(where: list[str], limit: int, everyone: bool) -> tuple[list[Digest], int]:
    """The newest, the newest last, and how many more there are. A log that cannot be read hides no other."""
    from .past import past

    found = []
    for folder in where:
        try:
            known = [one for one in places.sessions(folder) if everyone or not one.parent]
            with past(folder) as log:
                found += [(log.changed(one), one) for one in known]
        except StoreError as error:
            note(str(error))
    found.sort(key=lambda one: (one[0], one[1].id))
    newest = found[-limit:]
    told: dict[str, Digest] = {}
    for folder in dict.fromkeys(one.folder for _, one in newest):
        try:
            with past(folder) as log:
                states = _served(folder) if log.owned else {}
                for at, one in newest:
                    if one.folder == folder:
                        told[one.id] = log.digest(one, at, states.get(one.id, ""))
        except StoreError as error:
            note(str(error))
    return [told[one.id] for _, one in newest if one.id in told], len(found) - len(newest)


def _served(folder: str) -> dict[str, str]:
    """The states as its server has them, which knows more than the log; nothing where there is none."""
    from .client import Client
    from .flags import QUICK

    try:
        return {one["id"]: one["state"] for one in Client(folder).get("sessions", within=QUICK)["sessions"]}
    except (QuellError, LookupError, TypeError):
        return {}


def _cells(one: Digest) -> list[str]:
    today = time.strftime("%x") == time.strftime("%x", time.localtime(one.changed))
    when = time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M", time.localtime(one.changed))
    title = one.known.title or one.asked
    return [one.known.id, when, one.state, places.kind(one.known.folder), one.agent, one.model, title]


def _facts(one: Digest) -> dict[str, Any]:
    known = one.known
    return {
        "id": known.id,
        "title": known.title,
        "asked": one.asked,
        "agent": one.agent,
        "model": one.model,
        "cwd": known.cwd,
        "parent": known.parent,
        "opened": known.opened,
        "changed": one.changed,
        "state": one.state,
        "where": places.kind(known.folder),
        "folder": known.folder,
    }


def _agreed(known: list[places.Known]) -> bool:
    """On a terminal; elsewhere nobody can be asked."""
    import os
    import sys

    if not os.isatty(0):
        raise UsageError("there is nobody to ask: --yes deletes without asking")
    aside = Screen(2)
    for one in known:
        aside.line(f"  {one.id}  {one_line(one.title, 60)}".rstrip())
    aside.write(f"delete {'it' if len(known) == 1 else 'them'} for good? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
