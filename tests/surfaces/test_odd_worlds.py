"""`quell serve` in a world that is not as it should be: its clock jumps, its disk is full or cannot be written.

What it says is one clear sentence, what goes on goes on, and nothing that was there is lost.
"""

import http.client
import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from quell.stores.sqlite import read_rows
from quell.testing import check_log
from tests.cli.command import BOUND, quell
from tests.cli.oracle import alive, wait_for
from tests.cli.serving import Served

HOUR = 3600.0
JUMPY = """
import sys, time
real, place = time.time, {place!r}
def now():
    with open(place) as file:
        return real() + float(file.read())
time.time = now
from quell.cli import script
script()
"""
CONFIG = """
[agents.limited]
approval = { "*" = "allow" }
limits = { seconds = 600 }

[agents.careful]
approval = { "*" = "ask" }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


class Offset:
    """What the wall clock of a server is off by."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set(0.0)
        self.script = JUMPY.format(place=str(path))

    def set(self, seconds: float) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(str(seconds))
        fresh.rename(self._path)


def streamed(server: Served, upto: int) -> list[dict[str, Any]]:
    """What an SSE client hears of everything, until that event."""
    found: list[dict[str, Any]] = []
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=BOUND)) as connection:
        connection.request("GET", "/api/v1/events?after=0", headers={"Authorization": f"Bearer {server.token}"})
        with connection.getresponse() as answer:
            while not found or found[-1]["seq"] < upto:
                line = answer.readline()
                assert line
                found += json.loads(line[6:])["events"] if line.startswith(b"data: ") else []
    return found


def launches(server: Served, link: str) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=BOUND)) as connection:
        connection.request("GET", link.removeprefix(server.url))
        return connection.getresponse().status


def says(server: Served, text: str, **wish: str) -> dict[str, Any]:
    """A session that answers this, once it has."""
    session = server.session(text, **wish)
    return wait_for(lambda: done(server, session), f"{text} is answered")


def done(server: Served, session: str) -> dict[str, Any]:
    """Nothing, until its turn has ended."""
    card: dict[str, Any] = server.client.get("sessions", session)
    return card if card["end"] else {}


def test_a_clock_that_jumps_back_and_forth_stops_nothing(folder: Path, tmp_path: Path) -> None:
    """Deadlines and launch codes are no matter of the wall clock; order is that of the events, not of their times."""
    offset = Offset(tmp_path / "offset")
    config = tmp_path / "config.toml"
    config.write_text(CONFIG)
    with Served(folder, "--config", str(config), script=offset.script) as server:
        first, second = server.link, str(server.client.post("launches")["url"])
        stubborn = server.session("$ trap '' TERM; echo up; while :; do sleep 0.1; done", agent="limited")
        question = server.session("$ echo yes", agent="careful")
        [asked] = wait_for(lambda: server.client.get("sessions", question)["approvals"], "it asks")
        [running] = wait_for(lambda: server.client.get("sessions", stubborn)["processes"], "it runs")

        offset.set(-HOUR)
        assert "after" in says(server, "$ echo after the step back")["last"]
        assert launches(server, first) == 200

        offset.set(HOUR)
        assert "after" in says(server, "$ echo after the step forth")["last"]
        assert launches(server, second) == 200 and launches(server, second) == 403
        cards = {card["id"]: card for card in server.client.get("sessions")["sessions"]}
        assert cards[stubborn]["state"] == "running" and cards[question]["state"] == "asking"
        assert alive(running["pid"]), "an hour on the wall is no time that it had"

        offset.set(-HOUR)
        server.client.post("sessions", question, "approvals", asked["request"], body={"allow": True})
        assert "yes" in wait_for(lambda: done(server, question), "it was allowed")["last"]
        began = time.monotonic()
        stopped = server.client.post("sessions", stubborn, "stop", body={"grace": 0.3})
        assert stopped["confirmed"] and time.monotonic() - began < 5 and not alive(running["pid"])
        assert_sane(stopped["receipt"])

        heard = streamed(server, server.client.get("state")["seq"])
        seqs, times = [one["seq"] for one in heard], [one["at"] for one in heard]
        assert seqs == sorted(set(seqs))
        assert max(times) - min(times) > HOUR and times != sorted(times), "its clock did jump"
        for words in (["ps"], ["logs"], ["receipts"]):
            assert quell(*words, "--state", folder).returncode == 0
        known = [card["id"] for card in server.client.get("sessions")["sessions"]]
        assert quell("down", "--state", folder).returncode == 0
        assert "Traceback" not in server.log.read_text() and "ERROR" not in server.log.read_text()
    check_log(folder / "log.sqlite")

    offset.set(-2 * HOUR)
    with Served(folder, script=offset.script) as server:
        assert [card["id"] for card in server.client.get("sessions")["sessions"]] == known
        assert says(server, "hello")["last"] == "You said: hello"
        assert quell("down", "--state", folder).returncode == 0


def assert_sane(receipt: dict[str, Any]) -> None:
    """No duration of it is an hour, or less than nothing."""
    for name, value in receipt.items():
        if isinstance(value, dict):
            assert_sane(value)
        elif isinstance(value, float) and value < 1e6:  # more is a time of day
            assert 0 <= value < 60, (name, value)


# -- a disk that does not take anything


def unshared(script: str) -> list[str]:
    """A command before another, which has mounts of its own."""
    if os.geteuid():
        pytest.skip("mounts of one's own need root")
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh"]


def lived(folder: Path) -> tuple[str, list[int]]:
    """A state directory that was served before: a session of it, and all events."""
    with Served(folder) as server:
        session = str(says(server, "remember me")["id"])
        assert quell("down", "--state", folder).returncode == 0
    return session, [row.seq for row in read_rows(folder / "log.sqlite")]


def contents(folder: Path) -> dict[str, bytes]:
    """All but what it says of itself while it runs."""
    files = [one for one in folder.rglob("*") if one.is_file() and not one.name.startswith("serve.log")]
    return {str(one.relative_to(folder)): one.read_bytes() for one in files}


def refused(folder: Path, script: str) -> str:
    """The one sentence of a server that cannot serve there."""
    ended = quell("serve", "--port", "0", "--no-browser", "--state", folder, before=unshared(script))
    said = ended.stderr.decode()
    assert ended.returncode == 125 and ended.stdout == b"", (ended, said)
    assert said.startswith("quell: ") and len(said.splitlines()) == 1 and "Traceback" not in said, said
    return said


def assert_nothing_is_lost(folder: Path, session: str, seqs: list[int]) -> None:
    with Served(folder) as server:
        [card] = server.client.get("sessions")["sessions"]
        assert card["id"] == session and card["last"] == "You said: remember me"
        assert server.client.post("sessions", session, "messages", body={"text": "again"})["message"] > seqs[-1]
        assert quell("down", "--state", folder).returncode == 0
    assert [row.seq for row in read_rows(folder / "log.sqlite")][: len(seqs)] == seqs


def test_a_disk_that_takes_nothing_any_more_is_said_and_nothing_of_the_state_is_lost(
    folder: Path, tmp_path: Path
) -> None:
    """Read-only it is left as it is; full, it goes on when there is room again."""
    session, seqs = lived(folder)
    before = contents(folder)
    said = refused(folder, f'mount --bind {folder} {folder}; mount -o remount,bind,ro {folder}; exec "$@"')
    assert str(folder) in said and "read-only" in said.lower(), said
    assert contents(folder) == before

    saved = tmp_path / "saved"
    fill = f"dd if=/dev/zero of={folder}/filler bs=1k 2>/dev/null || true"
    inside = f"cp -a {folder} {saved}; mount -t tmpfs -o size=2m none {folder}; cp -a {saved}/. {folder}; {fill}"
    keep = f'code=0; "$@" || code=$?; rm {folder}/filler; rm -r {saved}; cp -a {folder} {saved}; exit $code'
    said = refused(folder, f"{inside}; {keep}")
    assert "disk" in said or "space" in said or "full" in said, said
    assert_nothing_is_lost(saved, session, seqs)
