"""`quell run` and `quell chat` in other terminals: each has a runtime of its own, and is found by whoever owns its log.

They are listed from their logs, and stopped by their control sockets, which need none of their event loops (H25).
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any

from ..errors import NoSupervisorError, StoreError, UsageError
from ..supervise.control import ask_stop
from ..supervise.receipt import Receipt
from ..supervise.state import owner_of
from . import places
from .screen import one_line

Card = dict[str, Any]
LAST = 120.0
"""Seconds for a stop, however long its grace is."""
GONE = 10.0
"""Seconds for a run whose work was stopped to be gone."""


@dataclass(frozen=True)
class Elsewhere:
    """A runtime of this user that is not the server."""

    folder: str
    pid: int
    """0 if it runs in another container."""

    def __str__(self) -> str:
        return f"process {self.pid}" if self.pid else "another container"


def live(server: str) -> list[Elsewhere]:
    """All but that of the server in that folder."""
    found = [(folder, owner_of(folder)) for folder in places.folders() if folder != server]
    return [Elsewhere(folder, pid) for folder, pid in found if pid is not None and pid != os.getpid()]


def cards(server: str) -> list[Card]:
    """Their sessions, as `quell ps` shows those of a server. A log that cannot be read hides no other."""
    found: list[Card] = []
    for one in live(server):
        try:
            found += _cards(one)
        except StoreError:
            continue
    return found


def _cards(one: Elsewhere) -> list[Card]:
    from .past import past

    found: list[Card] = []
    with past(one.folder) as log:
        for known in places.sessions(one.folder):
            if not log.awake(known.id):
                continue
            told = log.digest(known, 0.0)
            facts = {"id": known.id, "title": known.title, "parent": known.parent, "cwd": known.cwd, "pid": one.pid}
            doing = {"asked": told.asked, "agent": told.agent, "model": told.model, "state": told.state}
            found.append({**facts, **doing, "processes": log.processes(known.id), "folder": one.folder})
    return found


def find(word: str, server: str) -> tuple[Elsewhere, str] | None:
    """The runtime that runs this session, and its whole id; None if none does. UsageError where it may be several."""
    there = cards(server)
    found = [one for one in there if one["id"] == word] or [
        one
        for one in there
        if (len(word) >= places.PREFIX and one["id"].startswith(word)) or (word and one["title"] == word)
    ]
    if len(found) > 1:
        names = " or ".join(str(one["id"]) for one in found)
        raise UsageError(f"{one_line(word, 60)!r} may be {names}: name one by its id")
    return (Elsewhere(found[0]["folder"], found[0]["pid"]), found[0]["id"]) if found else None


def stop(one: Elsewhere, session: str, wish: dict[str, Any], timeout: float) -> Receipt:
    """A session of it, or all: a run ends then, and a chat is idle. NoSupervisorError if it has ended by itself."""
    asked = {"reason": wish["reason"], "grace": wish.get("grace"), "force": wish["force"], "timeout": timeout}
    if session:
        return ask_stop(one.folder, scope=f"sessions/{session}", **asked)
    try:
        return ask_stop(one.folder, scope="sessions", **asked)
    except UsageError:  # it only starts, and has none yet
        return ask_stop(one.folder, **asked)


def release(one: Elsewhere, session: str, reason: str) -> bool:
    """End the run or chat that has this session, and wait until its log is free; False if it has another, or stays."""
    if not any(card["id"] == session for card in _cards(one)):
        return False
    try:
        ask_stop(one.folder, reason=reason, timeout=LAST)
    except NoSupervisorError:  # it has ended by itself, or cannot be asked
        return owner_of(one.folder) is None
    until = time.monotonic() + GONE
    while owner_of(one.folder) is not None and time.monotonic() < until:
        time.sleep(0.02)
    return owner_of(one.folder) is None


def as_answer(receipt: Receipt) -> dict[str, Any]:
    """As a server tells it."""
    body = json.loads(receipt.to_json())
    return {"confirmed": receipt.confirmed, "sentence": receipt.sentence(), "receipt": body}
