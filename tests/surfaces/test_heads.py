"""A head that never ends, or is no handshake, costs the server neither memory nor a connection."""

import asyncio
import socket
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from quell.surfaces.http import protocol
from quell.surfaces.http.protocol import HEAD_BYTES, Door
from quell.surfaces.http.sockets import LOOPBACK, listen_tcp


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def told(*pieces: bytes) -> bytes:
    """All that the server says to this, until it closes the connection."""
    door = Door(listen_tcp(LOOPBACK, 0), nothing)
    await door.open()
    reader, writer = await asyncio.open_connection(LOOPBACK, door._sock.getsockname()[1])
    try:
        async with asyncio.timeout(10):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()
        door.shut()
        while door.connections() or door.tasks:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.01)


HELLO = b"GET / HTTP/1.1\r\nHost: x\r\n"


def test_a_head_that_is_too_long_is_cut_off() -> None:
    filler = [b"x-%d: %s\r\n" % (number, b"y" * 8000) for number in range(HEAD_BYTES // 8000 + 40)]
    assert asyncio.run(told(HELLO, *filler)) == b""


def test_many_requests_by_one_connection_are_each_answered() -> None:
    """A page asks by one connection for hours: what is bounded is a head, not all of them together."""
    ask = HELLO + b"x-long: %s\r\n" % (b"y" * 1000)
    count = 2 * HEAD_BYTES // len(ask)
    said = asyncio.run(told(*[ask + b"\r\n"] * count, ask + b"connection: close\r\n\r\n"))
    assert said.count(b"HTTP/1.1 204") == count + 1


def test_a_head_that_is_too_long_is_cut_off_after_others_too() -> None:
    filler = [b"x-%d: %s\r\n" % (number, b"y" * 8000) for number in range(HEAD_BYTES // 8000 + 40)]
    assert asyncio.run(told(HELLO + b"\r\n", HELLO, *filler)).count(b"HTTP/1.1") <= 1


def test_the_second_head_of_a_connection_has_its_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_LIMIT", 0.2)
    said = asyncio.run(told(HELLO + b"\r\n" + HELLO))
    assert said.startswith(b"HTTP/1.1 204") and said.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("extra", [b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n"])
def test_an_upgrade_with_a_body_is_refused_and_closed(extra: bytes) -> None:
    head = HELLO + b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    head += b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    assert asyncio.run(told(head + extra + b"\r\n")).startswith(b"HTTP/1.1 400")


def test_answers_are_not_held_back_by_the_kernel() -> None:
    """asyncio turns Nagle's algorithm off only for sockets that say that they are TCP: else an answer takes 40 ms."""
    with listen_tcp(LOOPBACK, 0) as sock:
        assert sock.proto == socket.IPPROTO_TCP


def test_text_that_is_none_is_the_clients_mistake_and_no_error_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        heard.append(await receive())
        await send({"type": "websocket.close", "code": 1008})

    async def main() -> None:
        door = Door(listen_tcp(LOOPBACK, 0), app)
        await door.open()
        async with connect(f"ws://{LOOPBACK}:{door._sock.getsockname()[1]}/") as client:
            await client.send(b"\xff\xfe", text=True)
            with pytest.raises(ConnectionClosed):
                await client.recv()
        door.shut()
        while door.connections() or door.tasks:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.01)

    with caplog.at_level("DEBUG"):
        asyncio.run(main())
    assert heard[0]["bytes"] == b"\xff\xfe"
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []
