"""The whole way under load: many sessions stream, many clients follow, some stall; nobody misses anything or waits."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import quell
from quell.kernel.runtime import Runtime
from quell.ports import Ask, Chunk, Reasoning, Text
from quell.surfaces.http import client as clients
from quell.surfaces.http.front import Front
from quell.surfaces.http.keys import Keys
from tests.kernel.cast import Stage
from tests.supervise.loops import run_on

TOKEN = "0" * 64
CROWD = str(Path(__file__).with_name("crowd.py"))


@asynccontextmanager
async def served(rt: Runtime, port: int = 0) -> AsyncIterator[int]:
    """The front of this runtime, on a port whose buffers are small: a stalled client is one soon."""
    tcp = socket.socket()
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 15)
    tcp.bind(("127.0.0.1", port))
    tcp.listen(200)
    tcp.setblocking(False)
    address = f"127.0.0.1:{tcp.getsockname()[1]}"
    front = Front(
        rt,
        tcp=tcp,
        unix=None,
        keys=Keys(TOKEN),
        hosts=frozenset({address}),
        url=f"http://{address}",
        down=lambda _: None,
    )
    try:
        await front.start()
        yield int(address.rpartition(":")[2])
    finally:
        await front.stop()


def attend(plan: dict[str, Any]) -> dict[str, Any]:
    """What the clients heard."""
    given = json.dumps(plan).encode()
    ended = subprocess.run([sys.executable, CROWD], input=given, capture_output=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


class Load:
    """So many sessions that stream so many chunks, and so many clients that follow four of them each."""

    def __init__(
        self, *, sessions: int, followers: int, stalled: int, chunks: int, pause: float, turns: int, size: int
    ) -> None:
        self.sessions = sessions
        self.followers = followers
        self.stalled = stalled
        self.chunks = chunks
        self.pause = pause
        self.turns = turns
        self.size = size
        self.stops: list[float] = []

    async def speak(self, ask: Ask) -> AsyncIterator[Chunk]:
        for number in range(self.chunks):
            words = f"{number} ".ljust(self.size, ".")
            yield Reasoning(words) if number % 3 == 0 else Text(words)
            await asyncio.sleep(self.pause)

    async def run(self, stage: Stage, rt: Runtime) -> dict[str, Any]:
        stage.model.answer = self.speak  # type: ignore[method-assign]
        opened = [await stage.open(rt) for _ in range(self.sessions)]
        others = [await stage.open(rt) for _ in range(5)]  # nobody follows these: they are to be stopped
        async with served(rt) as port:
            plan = {
                "port": port,
                "token": TOKEN,
                "after": rt.host.journal.last,
                "turns": self.turns,
                "clients": [
                    [opened[(client * 4 + number) % self.sessions].id for number in range(4)]
                    for client in range(self.followers)
                ],
                "stalled": list(range(self.stalled)),
                "restless": list(range(self.stalled, self.stalled * 2)),
            }
            found = asyncio.get_running_loop().run_in_executor(None, attend, plan)
            await asyncio.sleep(0.3)  # clients come before, while and after sessions begin to speak
            for session in (*opened, *others):
                for _ in range(self.turns):
                    session.send("speak")
            for session in others:
                await asyncio.sleep(0.2)
                began = time.monotonic()
                assert (await session.stop(reach="turn")).confirmed
                self.stops.append(time.monotonic() - began)
            return await found | {"after": plan["after"]}

    def check(self, stage: Stage, result: dict[str, Any]) -> None:
        """Each client against the log: durable events exactly once and in order, and all of the text."""
        logged = [(one, event) for one in stage.events() for event in [json.loads(quell.events.encode(one))]]
        for client in result["clients"]:
            mine = [event for one, event in logged if one.session in client["sessions"] and one.seq > result["after"]]
            durable = [one for one in mine if one["kind"] not in quell.events.DELTAS]
            have = client["durable"]
            assert have == durable[: len(have)]
            assert sum(one["kind"] == "turn.ended" for one in have) >= self.turns * 4
            texts: dict[str, str] = {}
            for one in mine:
                if one["kind"] in quell.events.DELTAS:
                    key = f"{one['kind']} {one['request']} {one.get('channel', '')}"
                    texts[key] = texts.get(key, "") + one["text"]
            assert client["texts"] == texts
            assert len(texts) == 2 * 4 * self.turns
            if client["stalled"]:
                assert client["connections"] > 1, "a stalled client was not cut off"

    def report(self, result: dict[str, Any]) -> str:
        found, lasted = result["clients"], result["lasted"]
        sent = (self.sessions + 5) * self.turns * self.chunks / lasted
        quick = [one for one in found if not one["stalled"]]
        heard = sum(len(one["durable"]) + one["deltas"] for one in quick)
        messages, size = (sum(one[name] for one in quick) / lasted for name in ("messages", "bytes"))
        late, stop = max(one["late"] for one in quick), max(self.stops)
        return (
            f"{self.sessions} sessions streamed {sent:,.0f} events/s for {lasted:.1f} s; {len(quick)} clients got"
            f" {messages:,.0f} messages/s of {heard / lasted:,.0f} events/s after merging, {size / 1e6:.1f} MB/s;"
            f" no durable event came later than {late * 1000:.0f} ms; {self.stalled} clients stalled;"
            f" no stop took longer than {stop * 1000:.0f} ms"
        )


def play(load: Load, stage: Stage, caplog: pytest.LogCaptureFixture) -> str:
    results: list[dict[str, Any]] = []

    async def main() -> None:
        async with stage.runtime() as rt:
            results.append(await load.run(stage, rt))

    with caplog.at_level(logging.WARNING):
        run_on(asyncio.new_event_loop, main)
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]
    load.check(stage, results[0])
    return load.report(results[0])


def test_whoever_follows_under_load_has_all_of_it_in_order_and_a_stalled_client_delays_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H36, H39: restless and stalled clients too, once they are back."""
    monkeypatch.setattr(clients, "SEND_LIMIT", 1.0)
    load = Load(sessions=40, followers=12, stalled=3, chunks=150, pause=0.02, turns=1, size=1500)
    print(play(load, Stage(tmp_path), caplog))
    assert max(load.stops) < 2.0


@pytest.mark.soak
def test_200_sessions_and_50_clients_of_which_5_stall(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H36, H39."""
    monkeypatch.setattr("tests.supervise.loops.BOUND", 250.0)
    load = Load(sessions=200, followers=50, stalled=5, chunks=600, pause=0.05, turns=2, size=60)
    print(play(load, Stage(tmp_path), caplog))
    assert max(load.stops) < 2.0
