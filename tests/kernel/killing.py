"""Kills a working runtime at a moment, and looks what is left: of its processes, of its log, at the next start."""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import quell
from quell.events import (
    Event,
    MessageUser,
    QueueDiscarded,
    QueueParked,
    QueueReleased,
    SessionDeleted,
    TurnEnded,
    TurnStarted,
    decode,
    encode,
)
from quell.stores.sqlite import read_rows
from quell.testing.checking import check_log

from .victim import AGENTS, MARKS, SETTINGS

ROOT = Path(__file__).parents[2]
BOUND = 1.0
"""Seconds within which nothing of a killed runtime is left (H23)."""
EFFECTS = {"tool.started", "process.spawned", "model.requested", "turn.started"}

Said = list[dict[str, Any]]


class Killed:
    """One state folder, on which runtimes live and die. Everything in sight but ourselves must be theirs."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.log = self.state / "log.sqlite"
        self.folder = folder / "work"
        self.folder.mkdir(parents=True)
        self.said: Said = []
        self.slowest = 0.0
        """The longest that anything of a killed runtime lived on."""

    def run(self, seed: int, moment: float, from_ready: bool) -> None:
        """Let one work, until `moment` seconds after its start, or after it was ready."""
        words = [sys.executable, "-m", "tests.kernel.victim", str(self.state), str(self.folder), str(seed)]
        others = everybody()
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as victim:
            assert victim.stdout is not None
            fd = victim.stdout.fileno()
            os.set_blocking(fd, False)
            heard = hear(fd, 20.0, b"\n") if from_ready else b""
            heard += hear(fd, moment)
            assert victim.poll() is None, "the victim ended by itself"
            victim.send_signal(signal.SIGKILL)
            died = time.monotonic()
            victim.wait()
            heard += hear(fd, BOUND)
            while left := everybody() - others - {victim.pid}:
                assert time.monotonic() - died < BOUND, f"{[words_of(pid) for pid in left]} lived on (H23)"
                time.sleep(0.002)
        self.slowest = max(self.slowest, time.monotonic() - died)
        self.said += [json.loads(line) for line in heard.split(b"\n")[:-1]]

    def look(self) -> None:
        """Right after the kill, before anybody else has opened the log."""
        if self.log.exists():
            check_log(self.log, live=True)
            assert lost(self.said, self.events()) == []
        marks = self.marks()
        assert len(marks) == len(set(marks)), "an effect was repeated"
        begun = {one.request for one in self.events() if one.kind == "tool.started"}
        meant = [str(one) for one in self.events() if one.kind == "tool.requested" and one.seq in begun]
        for mark in marks if not deleted(self.events()) else []:
            assert any(f"echo {mark} " in words for words in meant), f"{mark} had its effect before its intent"

    def start_again(self) -> int:
        """What the next start makes of it. How many turns were in flight."""
        before, marks = self.events(), self.marks()
        asyncio.run(self._start_again(before))
        after = self.events()
        check_log(self.log)
        assert lost(self.said, after) == []
        assert self.marks() == marks, "an effect was repeated"
        last = before[-1].seq if before else 0
        new = [one for one in after if one.seq > last]
        assert [one.kind for one in new if one.kind in EFFECTS] == []
        in_flight = open_turns(before)
        interrupted = {one.request for one in new if isinstance(one, TurnEnded) and one.end == "interrupted"}
        assert interrupted == in_flight
        assert parked(after) == unanswered(before)
        return len(in_flight)

    async def _start_again(self, before: list[Event]) -> None:
        async with quell.Runtime(state_dir=self.state, agents=AGENTS, settings=SETTINGS) as rt:
            waiting = unanswered(before)
            for info in await rt.sessions():
                session = await rt.resume(info.id)
                assert [one.seq for one in session.parked] == waiting.get(info.id, [])
                assert session.state == "idle" and not session.waiting

    def events(self) -> list[Event]:
        return [decode(row.body) for row in read_rows(self.log)] if self.log.exists() else []

    def marks(self) -> list[str]:
        path = self.folder / MARKS
        return path.read_text().split() if path.exists() else []


def lost(said: Said, events: Iterable[Event]) -> list[str]:
    """What was acknowledged and is not in the log, in words. Of a deleted session only that is left."""
    found = {one.seq: json.loads(encode(one)) for one in events}
    of = {str(body.get("session", "")): set[str]() for body in found.values()}
    for body in found.values():
        of[str(body.get("session", ""))].add(body["kind"])
    gone = {session for session, kinds in of.items() if "session.deleted" in kinds}
    stopped = {body.get("reason"): seq for seq, body in found.items() if body["kind"] == "stop.requested"}
    ends = [body for body in found.values() if body["kind"] == "stop.receipt"]
    receipts = {body["request"]: bool(body.get("confirmed")) for body in ends}
    wrong = []
    for word in said:
        session = word.get("session", word.get("event", {}).get("session", ""))
        if session in gone:
            continue
        match word["ack"]:
            case "event" if found.get(word["event"]["seq"]) != word["event"]:
                wrong.append(f"the event {word['event']}")
            case "receipt" if receipts.get(stopped.get(word["reason"], 0)) != word["confirmed"]:
                wrong.append(f"the receipt {word}")
            case "opened" | "closed" | "deleted" if f"session.{word['ack']}" not in of.get(session, set()):
                wrong.append(f"that a session was {word['ack']}: {word}")
    return wrong


def deleted(events: list[Event]) -> set[str]:
    return {one.session for one in events if isinstance(one, SessionDeleted)}


def unanswered(events: list[Event]) -> dict[str, list[int]]:
    """By session, the messages that wait, whatever for. One that is deleted has none, though its rows may still go."""
    gone = deleted(events)
    done = {one.cause for one in events if isinstance(one, TurnStarted)}
    done |= {seq for one in events if isinstance(one, QueueDiscarded) for seq in one.messages}
    waiting: dict[str, list[int]] = {}
    for one in events:
        if isinstance(one, MessageUser) and one.seq not in done and one.session not in gone:
            waiting.setdefault(one.session, []).append(one.seq)
    return waiting


def parked(events: list[Event]) -> dict[str, list[int]]:
    """By session, the messages that the log says are parked."""
    found: dict[str, set[int]] = {}
    for one in events:
        if isinstance(one, QueueParked):
            found.setdefault(one.session, set()).update(one.messages)
        elif isinstance(one, QueueReleased | QueueDiscarded):
            found[one.session].difference_update(one.messages)
    return {session: sorted(messages) for session, messages in found.items() if messages}


def open_turns(events: list[Event]) -> set[int]:
    gone = deleted(events)
    begun = {one.seq for one in events if isinstance(one, TurnStarted) and one.session not in gone}
    return begun - {one.request for one in events if isinstance(one, TurnEnded)}


def hear(fd: int, seconds: float, word: bytes | None = None) -> bytes:
    """What comes out of it until then; sooner when it ends, or has said the word."""
    heard, until = b"", time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if not select.select([fd], [], [], left)[0]:
            break
        piece = os.read(fd, 1 << 16)
        heard += piece
        if not piece or (word is not None and word in heard):
            break
    return heard


def everybody() -> set[int]:
    """Every process that runs. Zombies do not, and nobody reaps them here."""
    return {int(name) for name in os.listdir("/proc") if name.isdecimal() and runs(name)}


def runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def words_of(pid: int) -> str:
    try:
        return f"{pid}: {Path(f'/proc/{pid}/cmdline').read_bytes().replace(bytes(1), b' ').decode()}"
    except OSError:
        return f"{pid}: gone meanwhile"
