"""The front runs beside the kernel: it answers whatever blocks that, can be ended at any point, and leaves nothing."""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import quell
from quell.errors import QuellError, ScopeStoppedError
from quell.kernel.footing import Ports
from quell.kernel.runtime import Runtime as Kernel
from quell.runtime import installed
from quell.stores.sqlite import SqliteStore
from quell.surfaces.http import front as front_module
from quell.surfaces.http import protocol
from quell.surfaces.http.front import Front
from quell.surfaces.http.keys import Keys
from quell.surfaces.http.sockets import hosts_of, is_ours, listen_tcp, listen_unix, peer, url_of
from tests.supervise.loops import LOOPS, run_on, until


def front_of(rt: Kernel, downs: list[bool] | None = None) -> tuple[Front, str]:
    tcp = listen_tcp("127.0.0.1", 0)
    port = tcp.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    front = Front(
        rt,
        tcp=tcp,
        unix=listen_unix(rt.state_dir),
        keys=Keys("0" * 64),
        hosts=hosts_of("127.0.0.1", port),
        url=url,
        down=(downs if downs is not None else []).append,
    )
    return front, url


@contextlib.asynccontextmanager
async def served(folder: Path, rt: Kernel | None = None) -> AsyncIterator[tuple[Front, httpx.AsyncClient]]:
    """A runtime with its front, stopped in the order of the command."""
    rt = rt or quell.Runtime(state_dir=folder)
    async with rt:
        front, url = front_of(rt)
        await front.start()
        bearer = {"Authorization": f"Bearer {'0' * 64}"}
        async with httpx.AsyncClient(base_url=f"{url}/api/v1", headers=bearer, trust_env=False, timeout=10) as client:
            try:
                yield front, client
            finally:
                front.finish("the test is over")
                await rt.close(force=True)
                await front.stop()


def test_it_answers_on_both_sockets_and_ends_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (front, client):
            assert (await client.get("/health")).json()["status"] == "ok"
            local = httpx.AsyncHTTPTransport(uds=str(tmp_path / "api.sock"))
            async with httpx.AsyncClient(transport=local, base_url="http://localhost/api/v1") as near:
                assert (await near.get("/health")).json()["status"] == "ok"
            front.finish("enough")
            assert not (tmp_path / "api.sock").exists()
            await front.stop()
            await front.stop()
            with pytest.raises(httpx.TransportError):
                await client.get("/health")

    run_on(LOOPS["asyncio"], main)


def test_it_works_beside_a_kernel_on_uvloop(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (_, client):
            card = (await client.post("/sessions", json={"text": "$ echo hello"})).json()

            async def over() -> bool:
                return bool((await client.get(f"/sessions/{card['id']}")).json()["end"] == "completed")

            end = time.monotonic() + 10
            while not await over():
                assert time.monotonic() < end
                await asyncio.sleep(0.01)

    run_on(LOOPS["uvloop"], main)


def test_what_is_in_the_log_is_on_the_board_before_anybody_is_let_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H36: read in pages, and what happens meanwhile follows."""
    monkeypatch.setattr(front_module, "PAGE", 3)

    async def main() -> None:
        async with quell.Runtime(state_dir=tmp_path) as rt:
            before = [(await rt.open(title=f"session {number}")).id for number in range(10)]
        rt = quell.Runtime(state_dir=tmp_path)
        async with served(tmp_path, rt) as (_, client):
            found = (await client.get("/state")).json()
            assert [card["id"] for card in found["sessions"]] == before
            assert found["seq"] <= rt.host.journal.last
            later = (await client.post("/sessions", json={})).json()["id"]
            assert [card["id"] for card in (await client.get("/state")).json()["sessions"]] == [*before, later]

    run_on(LOOPS["asyncio"], main)


@pytest.mark.parametrize("point", ["before", "reading", "starting"])
def test_it_can_be_ended_at_any_half_started_point(point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H22."""

    async def main() -> None:
        async with quell.Runtime(state_dir=tmp_path) as rt:
            front, _ = front_of(rt)
            if point == "reading":
                plain = rt.host.journal.rows

                async def rows(*args: Any) -> Any:
                    front.finish("ended while it read the log")
                    return await plain(*args)

                monkeypatch.setattr(rt.host.journal, "rows", rows)
            if point == "starting":
                run = front._run

                def slowly(*args: Any) -> None:
                    front.finish("ended while its thread began")
                    front._ending = True
                    run(*args)

                monkeypatch.setattr(front, "_run", slowly)
            if point != "before":
                with contextlib.suppress(ScopeStoppedError):
                    await front.start()
            await front.stop()
            assert not (tmp_path / "api.sock").exists()

    run_on(LOOPS["asyncio"], main)


def test_what_keeps_it_from_starting_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(parts: object) -> None:
        raise RuntimeError("no routes")

    monkeypatch.setattr(front_module, "build", broken)

    async def main() -> None:
        async with quell.Runtime(state_dir=tmp_path) as rt:
            front, _ = front_of(rt)
            with pytest.raises(QuellError, match="could not be started: RuntimeError: no routes"):
                await front.start()
            await front.stop()

    run_on(LOOPS["asyncio"], main)


def test_whoever_asked_before_the_end_is_answered(tmp_path: Path) -> None:
    """A stop that is under way when the server ends has its receipt."""

    async def main() -> None:
        rt = quell.Runtime(state_dir=tmp_path)
        async with served(tmp_path, rt) as (front, client):
            card = (await client.post("/sessions", json={"text": "$ trap '' TERM; sleep 600"})).json()
            session = await rt.resume(card["id"])
            assert await until(lambda: bool(session.processes()))
            asked = asyncio.ensure_future(client.post(f"/sessions/{card['id']}/stop", json={"grace": 0.5}))
            assert await until(lambda: any(one.kind == "stop.requested" for one in rt.host.journal.requests.values()))
            front.finish("the server stops")
            await rt.close()
            await front.stop()
            answer = await asked
            assert answer.status_code == 200 and answer.json()["confirmed"]
            assert answer.headers["connection"] == "close"

    run_on(LOOPS["asyncio"], main)


@pytest.mark.parametrize(("takes", "answered"), [(0.3, True), (60.0, False)])
def test_an_answer_that_is_almost_there_is_waited_for_and_no_other(
    takes: float, answered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[float] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.append(takes)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(receive_end(receive), takes)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"here"})

    async def receive_end(receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    monkeypatch.setattr(front_module, "build", lambda parts: app)

    async def main() -> None:
        async with served(tmp_path) as (front, client):
            waiting = asyncio.ensure_future(client.get("/anything"))
            assert await until(lambda: bool(asked))
            began = time.monotonic()
            await front.stop()
            assert time.monotonic() - began < 2
            if answered:
                assert (await waiting).text == "here"
            else:
                with pytest.raises(httpx.TransportError):
                    await waiting

    run_on(LOOPS["asyncio"], main)
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []


def test_who_connects_and_says_nothing_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_LIMIT", 0.1)

    async def main() -> None:
        async with served(tmp_path) as (_, client):
            for word in (b"", b"GET / HT"):
                reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
                writer.write(word)
                with contextlib.suppress(ConnectionResetError):
                    assert await asyncio.wait_for(reader.read(), 5) == b""
                writer.close()
                with contextlib.suppress(ConnectionResetError):
                    await writer.wait_closed()
            assert (await client.get("/health")).status_code == 200

    run_on(LOOPS["asyncio"], main)


def test_words_that_are_no_http_harm_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        async with served(tmp_path) as (_, client):
            for words in (b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"):
                reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
                writer.write(words)
                assert (await asyncio.wait_for(reader.read(100), 5)).startswith(b"HTTP/1.1 4")
                writer.close()
                with contextlib.suppress(ConnectionResetError):
                    await writer.wait_closed()
            assert (await client.get("/health")).status_code == 200
        assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []

    run_on(LOOPS["asyncio"], main)


class Jumping:
    """A clock that somebody sets while everything runs."""

    def __init__(self) -> None:
        self.offset = 0.0

    def now(self) -> float:
        return time.time() + self.offset


def test_a_clock_that_jumps_changes_no_order_and_ends_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        clock = Jumping()
        rt = Kernel(Ports(store=SqliteStore, find=installed, clock=clock), state_dir=tmp_path)
        async with served(tmp_path, rt) as (_, client):
            ids = []
            for clock.offset in (0.0, -86400.0, 86400.0):
                card = (await client.post("/sessions", json={"text": "$ echo hello"})).json()
                session = await rt.resume(card["id"])
                assert await until(lambda session=session: session.turn is None)  # type: ignore[misc]  # bound here
                ids.append(card["id"])
            cards = (await client.get("/state")).json()["sessions"]
            assert [card["id"] for card in cards] == ids
            assert {card["end"] for card in cards} == {"completed"}
            events = [(await client.get(f"/sessions/{one}/events")).json()["events"] for one in ids]
            numbers = [event["seq"] for some in events for event in some]
            assert numbers == sorted(numbers)

    run_on(LOOPS["asyncio"], main)


def test_a_peer_is_known_by_the_kernels_word() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert peer(one) == (os.getpid(), os.geteuid())
        assert is_ours(other)
    with socket.socket() as closed:
        closed.close()
        assert not is_ours(closed)


def test_a_socket_file_that_cannot_be_removed_holds_up_no_end(tmp_path: Path) -> None:
    """A disk that became read-only, say: what runs is stopped all the same."""

    async def main() -> None:
        async with served(tmp_path) as (front, client):
            (tmp_path / "api.sock").unlink()
            (tmp_path / "api.sock").mkdir()
            front.finish("enough")
            await front.stop()
            with pytest.raises(httpx.TransportError):
                await client.get("/health")
        (tmp_path / "api.sock").rmdir()

    asyncio.run(main())


def test_hosts_are_as_a_browser_writes_them() -> None:
    assert "box.example:7717" in hosts_of("Box.Example", 7717) and url_of("Box.Example", 1) == "http://box.example:1/"
    assert "[2001:db8::7]:7717" in hosts_of("2001:DB8:0:0:0:0:0:7", 7717)
    assert url_of("2001:DB8:0:0:0:0:0:7", 7717) == "http://[2001:db8::7]:7717/"
    assert url_of("0:0:0:0:0:0:0:0", 7717) == "http://[::1]:7717/"


def test_hosts_are_exact_and_have_the_port() -> None:
    assert hosts_of("127.0.0.1", 7717) == {"127.0.0.1:7717", "localhost:7717", "[::1]:7717"}
    assert "192.0.2.7:80" in hosts_of("192.0.2.7", 80) and "192.0.2.7" in hosts_of("192.0.2.7", 80)
