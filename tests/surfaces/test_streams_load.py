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

from quell.events import DELTAS
from quell.kernel.runtime import LOG, Runtime
from quell.ports import Ask, Chunk, Reasoning, Text
from quell.stores.sqlite import read_rows
from quell.surfaces.http import client as clients
from quell.surfaces.http.front import Front
from quell.surfaces.http.keys import Keys
from tests.kernel.cast import Stage
from tests.supervise.loops import run_on, until

from .audience import Reader, come_and_go, dial, request

TOKEN = "0" * 64
BEARER = f"Authorization: Bearer {TOKEN}"
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
        logged: dict[str, list[dict[str, Any]]] = {}
        for row in read_rows(stage.state / LOG):
            if row.seq > result["after"]:
                logged.setdefault(row.session, []).append(json.loads(row.body))
        for client in result["clients"]:
            mine = sorted(
                (one for session in client["sessions"] for one in logged[session]), key=lambda one: one["seq"]
            )
            durable = [one for one in mine if one["kind"] not in DELTAS]
            have = client["durable"]
            assert have == durable[: len(have)]
            assert sum(one["kind"] == "turn.ended" for one in have) >= self.turns * 4
            texts: dict[str, str] = {}
            for one in mine:
                if one["kind"] in DELTAS:
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
    assert sorted(load.stops)[2] < 1.0 and max(load.stops) < 7.0  # the ladder, where the machine itself was busy


@pytest.mark.soak
def test_200_sessions_and_50_clients_of_which_5_stall(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H36, H39."""
    monkeypatch.setattr("tests.supervise.loops.BOUND", 250.0)
    load = Load(sessions=200, followers=50, stalled=5, chunks=600, pause=0.05, turns=2, size=60)
    print(play(load, Stage(tmp_path), caplog))
    assert max(load.stops) < 2.0


def test_a_client_that_comes_back_after_a_restart_misses_nothing_and_sees_nothing_twice(tmp_path: Path) -> None:
    """H36: though the server stopped while it streamed; only what streamed and never reached the disk is gone."""
    stage = Stage(tmp_path)
    load = Load(sessions=1, followers=1, stalled=0, chunks=10_000, pause=0.001, turns=1, size=60)
    stage.model.answer = load.speak  # type: ignore[method-assign]
    heard: list[dict[str, Any]] = []
    ports: list[int] = []

    async def follow(port: int, session: str, cursor: int) -> Reader:
        reader, writer = await asyncio.open_connection(sock=await dial(port, 0), limit=1 << 24)
        writer.write(request(f"/api/v1/events?session={session}", port, [BEARER, f"Last-Event-ID: {cursor}"]))
        return await Reader(reader, writer).begin()

    async def hear(reader: Reader, kind: str) -> None:
        """Until an event of that kind, or the end."""
        while (message := await reader.next()) is not None and message.kind != "bye":
            heard.extend(message.data["events"])
            if any(one["kind"] == kind for one in message.data["events"]):
                return

    async def before() -> str:
        async with stage.runtime() as rt:
            session = await stage.open(rt)
            async with served(rt) as port:
                ports.append(port)
                reader = await follow(port, session.id, 0)
                session.send("speak")
                await hear(reader, "message.delta")
                await hear(reader, "message.delta")
            await hear(reader, "turn.ended")  # the bye comes first
            await reader.leave()
        return session.id

    async def after(id_: str) -> None:
        load.chunks = 5
        async with stage.runtime() as rt, served(rt, ports[0]) as port:
            reader = await follow(port, id_, heard[-1]["seq"])
            (await rt.resume(id_)).send("again")
            await hear(reader, "turn.ended")
            await hear(reader, "turn.ended")
            await reader.leave()

    id_ = run_on(asyncio.new_event_loop, before)
    run_on(asyncio.new_event_loop, lambda: after(id_))
    seqs = [one["seq"] for one in heard]
    assert seqs == sorted(set(seqs))
    logged = [json.loads(row.body) for row in read_rows(stage.state / LOG) if row.session == id_]
    durable = [one for one in logged if one["kind"] not in DELTAS and one["seq"] <= seqs[-1]]
    assert [one for one in heard if one["kind"] not in DELTAS] == durable
    assert [one["kind"] for one in durable].count("turn.ended") == 2


@pytest.mark.soak
def test_10_000_that_come_and_vanish_leave_nothing_in_a_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H20."""
    monkeypatch.setattr("tests.supervise.loops.BOUND", 250.0)
    stage = Stage(tmp_path)

    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def main() -> None:
        async with stage.runtime() as rt:
            await stage.open(rt)
            async with served(rt) as port:
                await come_and_go(port, 0, BEARER)
                before = open_files()
                for first in range(0, 10_000, 50):
                    await asyncio.gather(*(come_and_go(port, first + number, BEARER) for number in range(50)))
                assert await until(lambda: open_files() <= before)
                reader, writer = await asyncio.open_connection(sock=await dial(port, 0))
                writer.write(request("/api/v1/health", port, [BEARER]))
                assert (await Reader(reader, writer).begin()).status == 200
                writer.close()

    with caplog.at_level(logging.WARNING):
        run_on(asyncio.new_event_loop, main)
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]
