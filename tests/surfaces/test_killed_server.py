"""`kill -9` of a server with busy sessions: nobody is left, nothing is lost, and who followed goes on where it was."""

import http.client
import json
import os
import secrets
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Origin

from quell.ports import Row
from quell.stores.sqlite import read_rows
from quell.testing import check_log
from tests.cli.command import BOUND, quell
from tests.cli.oracle import alive, below, wait_for
from tests.cli.serving import Served

BUSY = 20
DELTAS = ("message.delta", "model.delta", "tool.output")
Event = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


def marked(marker: str) -> list[int]:
    """The live processes that have the marker in what they were started with, as the kernel tells it."""
    found = []
    for pid in [int(one) for one in os.listdir("/proc") if one.isdigit()]:
        try:
            told = b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("environ", "cmdline"))
        except OSError:
            continue
        if marker.encode() in told and alive(pid):
            found.append(pid)
    return found


class Follower:
    """A client of the streams, which remembers what it heard over all its connections, and where it was."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.cursor = 0
        self.held = ExitStack()

    def leave(self) -> None:
        self.held.close()

    def take(self, message: dict[str, Any]) -> None:
        if message["type"] == "events":
            self.events += message["events"]
            self.cursor = int(message["seq"])

    def heard(self) -> list[int]:
        return [int(one["seq"]) for one in self.events]


class Reader(Follower):
    """Server-sent events."""

    def connect(self, server: Served) -> None:
        connection = self.held.enter_context(
            closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=BOUND))
        )
        headers = {"Authorization": f"Bearer {server.token}", "Last-Event-ID": str(self.cursor)}
        connection.request("GET", "/api/v1/events", headers=headers)
        self._answer = self.held.enter_context(connection.getresponse())
        assert self._answer.status == 200

    def read(self, upto: int) -> None:
        """Until that event, or to the end of what still comes."""
        while self.cursor < upto:
            try:
                line = self._answer.readline()
            except (http.client.HTTPException, ConnectionError):
                return
            if not line:
                return
            if line.startswith(b"data: "):
                self.take(json.loads(line[6:]))


class Talker(Follower):
    """A WebSocket."""

    def connect(self, server: Served) -> None:
        self._socket = self.held.enter_context(
            connect(
                f"ws://127.0.0.1:{server.port}/api/v1/ws",
                origin=Origin(server.url),
                additional_headers={"Authorization": f"Bearer {server.token}"},
                proxy=None,
                close_timeout=0.2,
                max_size=1 << 25,
            )
        )
        self._socket.send(json.dumps({"after": self.cursor}))

    def read(self, upto: int) -> None:
        while self.cursor < upto:
            try:
                self.take(json.loads(self._socket.recv(BOUND)))
            except ConnectionClosed:
                return


def open_busy(server: Served, marker: str) -> list[str]:
    """Sessions whose commands ignore SIGTERM and have an escapee each, with a second message that waits."""
    command = f"export MARK={marker}; trap '' TERM; echo up; setsid sleep 600 & sleep 600"
    found = [server.session(f"$ {command}", title=f"busy {number}") for number in range(BUSY)]
    for number, session in enumerate(found):
        said = server.client.post("sessions", session, "messages", body={"text": f"$ echo second {number}"})
        assert said["queued"]

    def up() -> bool:
        cards = server.client.get("sessions")["sessions"]
        return all("up" in card["last"] and len(card["queue"]) == 1 for card in cards)

    wait_for(up, "all are busy", BOUND)
    return found


def told(events: Iterable[Event]) -> dict[tuple[str, int, str, str], str]:
    """All that was streamed, by stream."""
    texts: dict[tuple[str, int, str, str], str] = {}
    for one in events:
        if one["kind"] in DELTAS:
            stream = (one["session"], one["request"], one["kind"], one.get("channel", ""))
            texts[stream] = texts.get(stream, "") + one["text"]
    return texts


def assert_whole(follower: Follower, rows: Sequence[Row]) -> None:
    """It heard the log, in order and once; deltas may have been merged."""
    seqs = follower.heard()
    assert seqs == sorted(set(seqs)), "something came twice, or out of order"
    once = [one.seq for one in rows if one.kind not in DELTAS]
    assert [one["seq"] for one in follower.events if one["kind"] not in DELTAS] == once
    assert told(follower.events) == told(json.loads(one.body) for one in rows)


def listed(server: Served) -> list[Event]:
    """The sessions, which are the same whoever is asked."""
    shown = json.loads(quell("ps", "--json", "--state", server.folder).stdout)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=BOUND)
    connection.request("GET", "/api/v1/events", headers={"Authorization": f"Bearer {server.token}"})
    answer = connection.getresponse()
    while not (line := answer.readline()).startswith(b"data: "):
        assert line
    snapshot = json.loads(line[6:])
    answer.close()
    connection.close()
    sessions: list[Event] = server.client.get("sessions")["sessions"]
    assert snapshot.pop("type") == "snapshot"
    assert shown == snapshot and shown["sessions"] == sessions
    return sessions


def test_a_killed_server_leaves_nobody_and_the_next_one_goes_on_where_it_was(folder: Path) -> None:
    """H20, H23, H36: 20 busy sessions; the next server has them, interrupted, and who reconnects misses nothing."""
    marker = f"quell-mark-{secrets.token_hex(8)}"
    reader, talker = Reader(), Talker()
    with Served(folder) as server:
        reader.connect(server)
        talker.connect(server)
        talker.read(1)  # and then nothing: it is behind when the server dies
        sessions = open_busy(server, marker)
        before = listed(server)
        admission = server.client.post("admission", "close", body={"reason": "nothing new today"})
        port = server.port
        reader.read(server.client.get("state")["seq"])
        ours = below(server.process.pid)
        assert len(marked(marker)) >= 2 * BUSY and len(ours) >= 2 * BUSY

        server.signal(signal.SIGKILL)
        killed = time.monotonic()
        wait_for(lambda: not marked(marker) and not any(map(alive, ours)), "everybody is gone", 5)
        assert time.monotonic() - killed < 1.0
        reader.read(1 << 53)
        for one in (reader, talker):
            one.leave()

    with Served(folder, "--port", str(port)) as server:
        reader.connect(server)
        talker.connect(server)
        assert server.port == port
        cards = listed(server)
        assert [card["id"] for card in cards] == [card["id"] for card in before] == sessions
        for card, earlier in zip(cards, before, strict=True):
            assert card["end"] == "interrupted" and card["processes"] == [] and card["turn"] == earlier["turn"]
            assert [(one["message"], one["text"], one["parked"]) for one in card["queue"]] == [
                (one["message"], one["text"], True) for one in earlier["queue"]
            ]
        assert server.client.get("admission") == admission and not admission["open"]
        assert server.client.get("processes") == {"processes": []}

        server.client.post("admission", "reopen")
        assert listed(server)[0]["queue"][0]["parked"], "reopening releases nothing"
        picked = server.client.post("sessions", sessions[0], "queue", "release")
        assert picked["messages"] == [before[0]["queue"][0]["message"]]
        done = wait_for(lambda: ended(server, sessions[0]), "the released message ran")
        assert "second 0" in done["last"] and done["queue"] == []

        last = server.client.get("state")["seq"]
        for one in (reader, talker):
            one.read(last)
            one.leave()
        assert quell("down", "--state", folder).returncode == 0
    rows = [one for one in read_rows(folder / "log.sqlite") if one.seq <= last]
    assert_whole(reader, rows)
    assert_whole(talker, rows)
    check_log(folder / "log.sqlite", live=True)


def ended(server: Served, session: str) -> Event:
    """Nothing, until its turn has ended well."""
    card: Event = server.client.get("sessions", session)
    return card if card["end"] == "completed" else {}
