"""Where the runtimes of this user keep their logs: that of the server and of programs, and one for each `quell run`.

A state directory has one owner (H51), so several runs at once each take the first that is free.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from ..errors import NoSessionError, StoreError
from ..supervise.ledger import state_dir
from .screen import one_line

LOG = "log.sqlite"
RUNTIME = "runtime"
"""Below the usual place: of `quell serve`, and of programs that name no other."""
RUNS = "runs"
"""Below the usual place: a folder for each run at a time."""
MOST = 1000
"""Runs at a time."""
PREFIX = 4
"""Characters of an id that may stand for it, at least."""
_NAMED = 5  # sessions in a sentence
_ROWS = 1_000_000


@dataclass(frozen=True)
class Known:
    """A session that a log has."""

    id: str
    title: str
    agent: str
    cwd: str
    parent: str
    opened: float
    folder: str


def usual() -> str:
    """Of this user; what all runtimes of theirs share is in it."""
    return os.path.abspath(state_dir())


def runs() -> Iterator[str]:
    """One after the other, to take the first that is free."""
    for number in range(1, MOST + 1):
        yield os.path.join(usual(), RUNS, str(number))


def folders() -> list[str]:
    """Every state directory of this user that has a log."""
    top = usual()
    try:
        numbers = sorted((name for name in os.listdir(os.path.join(top, RUNS)) if name.isdecimal()), key=int)
    except OSError:
        numbers = []
    found = [top, os.path.join(top, RUNTIME), *(os.path.join(top, RUNS, name) for name in numbers)]
    return [one for one in found if os.path.isfile(os.path.join(one, LOG))]


def kind(folder: str) -> str:
    """Whose a state directory is, in a word."""
    if os.path.dirname(folder) == os.path.join(usual(), RUNS):
        return "run"
    return "server" if folder == os.path.join(usual(), RUNTIME) else folder


def sessions(folder: str) -> list[Known]:
    """Those of one log, the oldest first; it may be in use. StoreError where it cannot be read."""
    from ..stores.reader import select
    from ..stores.schema import check, connect_readonly, damaged, refusal

    path = os.path.join(folder, LOG)
    try:
        with closing(connect_readonly(path)) as connection:
            rows = select(connection, 0, None, None, ("session.",), _ROWS) if check(connection, path) else []
        bodies = [json.loads(row.body) for row in rows]
    except sqlite3.Error as error:
        raise refusal(path, error) from None
    except ValueError as error:
        raise damaged(path, str(error)) from None
    found: dict[str, Known] = {}
    for row, body in zip(rows, bodies, strict=True):
        if row.kind == "session.opened":
            words = {name: str(body.get(name, "")) for name in ("title", "agent", "cwd", "parent")}
            found[row.session] = Known(id=row.session, opened=row.at, folder=folder, **words)
        elif row.kind == "session.renamed" and row.session in found:
            found[row.session] = replace(found[row.session], title=str(body.get("title", "")))
        elif row.kind == "session.deleted":
            found.pop(row.session, None)
    return list(found.values())


def everywhere(where: Sequence[str], faults: list[StoreError] | None = None) -> list[Known]:
    """Those of all these folders; a log that cannot be read hides no other, and is among the `faults`."""
    found: list[Known] = []
    for folder in where:
        try:
            found += sessions(folder)
        except StoreError as error:
            if faults is not None:
                faults.append(error)
    return found


def find(word: str, where: Sequence[str] | None = None) -> Known:
    """The session that is meant: by its id, the beginning of it, or its title. NoSessionError says what there is."""
    faults: list[StoreError] = []
    known = everywhere(folders() if where is None else where, faults)
    exact = [one for one in known if one.id == word]
    found = exact or [
        one for one in known if (len(word) >= PREFIX and one.id.startswith(word)) or (word and one.title == word)
    ]
    if len(found) == 1:
        return found[0]
    wanted = repr(one_line(word, 60))
    if found:
        raise NoSessionError(f"{wanted} may be {_names(found, ' or ')}: name one by its id")
    tops = sorted((one for one in known if not one.parent), key=lambda one: one.opened)
    there = "are none" if not tops else "is " if len(tops) == 1 else "are "
    hidden = f", and {faults[0]}" if faults else ""
    raise NoSessionError(f"there is no session {wanted}; there {there}{_names(tops, ', ')}{hidden}")


def _names(known: Sequence[Known], between: str) -> str:
    """The latest, if there are too many."""
    named = [f"{one.id} ({one_line(one.title, 40)!r})" if one.title else one.id for one in known[-_NAMED:]]
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return between.join(named) + more
