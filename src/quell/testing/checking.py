"""`check_log`: a log that broke a promise is refused, with every offence in a sentence of its own.

Each request has one end, causes come first, a session has one turn at a time, and nothing starts behind the fence.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from ..events import Event, decode, kind_of
from .rules import Rules

Log = str | os.PathLike[str] | Iterable[Event]
"""The file of a log, or its events in order."""


class LogBroken(AssertionError):
    """Raised for a log that breaks a rule; `offences` are the sentences."""

    def __init__(self, offences: list[str]) -> None:
        super().__init__("\n".join([f"the log breaks its rules in {len(offences)} places:", *offences]))
        self.offences = offences


def check_log(log: Log, *, live: bool = False) -> None:
    """Raise LogBroken unless the log keeps every rule.

    With `live` requests may be open at the end: the runtime still runs, or was killed.
    """
    if found := offences(log, live=live):
        raise LogBroken(found)


def offences(log: Log, *, live: bool = False) -> list[str]:
    """What is wrong with the log; nothing, when all is well."""
    rules = Rules()
    unread: list[str] = []
    for event in _stored(log, unread) if isinstance(log, str | os.PathLike) else log:
        rules.see(event)
    return unread + rules.offences(live)


def _stored(path: str | os.PathLike[str], unread: list[str]) -> Iterator[Event]:
    """The events of a file; a row that holds none, or another than it says, is an offence."""
    from ..stores.sqlite import read_rows

    for row in read_rows(path):
        try:
            event = decode(row.body)
        except ValueError as error:
            unread.append(f"seq {row.seq}, {row.kind}: it cannot be read: {error}.")
            continue
        if (row.seq, row.kind, row.session) != (event.seq, kind_of(event), event.session):
            unread.append(f"seq {row.seq}, {row.kind}: the row holds {kind_of(event)} with seq {event.seq}.")
        yield event
