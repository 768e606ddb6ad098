"""Who follows in the tests of the streams: clients on real sockets, and a log in memory that is fed to them."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Route, WebSocketRoute
from websockets.asyncio.client import ClientConnection, connect

from quell.events import Event, MessageDelta, MessageUser, SessionOpened, encode, kind_of
from quell.ports import Row
from quell.surfaces.http.board import Board
from quell.surfaces.http.feed import Feed
from quell.surfaces.http.protocol import Door
from quell.surfaces.http.streams import Hub, sse, websocket
from tests.supervise.loops import run_on, until

BOUND = 10.0
"""Seconds for what takes no time, on a busy machine."""


def delta(seq: int, text: str, *, session: str = "s1", request: int = 1) -> MessageDelta:
    return MessageDelta(seq=seq, session=session, request=request, text=text)


def said(seq: int, text: str = "hello", *, session: str = "s1") -> MessageUser:
    return MessageUser(seq=seq, session=session, text=text)


class Log:
    """Numbers what happens, keeps it, and hands it to the feed: what a runtime and its pump do."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.events: list[Event] = []
        self.feed = Feed(Board())
        self.reads = 0
        self.reading: Callable[[], Awaitable[None]] | None = None

    @property
    def last(self) -> int:
        return self.rows[-1].seq if self.rows else 0

    def write(self, *events: Event) -> list[Event]:
        """It is in the log; nobody heard of it yet."""
        for event in events:
            msgspec.structs.force_setattr(event, "seq", self.last + 1)
            self.events.append(event)
            self.rows.append(Row(event.seq, 0.0, kind_of(event), event.session, encode(event)))
        return list(events)

    def say(self, *events: Event) -> None:
        self.feed.take([(event, encode(event)) for event in self.write(*events)])

    def open(self, *sessions: str) -> None:
        self.say(*(SessionOpened(session=one, title=f"the {one}") for one in sessions))

    async def read_rows(self, after: int, upto: int, session: str | None, limit: int) -> list[Row]:
        self.reads += 1
        if self.reading is not None:
            await self.reading()
        found = [one for one in self.rows if after < one.seq <= upto and session in (None, one.session)]
        return found[:limit]


class House:
    """A server on a port of its own, with the streams and nothing else."""

    def __init__(self, log: Log, door: Door, port: int) -> None:
        self.log = log
        self.feed = log.feed
        self.door = door
        self.port = port
        self.clients: list[Reader | Talker] = []

    async def sse(self, query: str = "", *headers: str, buffer: int = 0) -> Reader:
        sock = await dial(self.port, buffer)
        reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 25)
        writer.write(request(f"/api/v1/events{'?' if query else ''}{query}", self.port, headers))
        await writer.drain()
        self.clients.append(one := Reader(reader, writer))
        return one

    async def ws(self, first: object = None, **options: Any) -> Talker:
        talker = Talker(await connect(f"ws://127.0.0.1:{self.port}/api/v1/ws", max_size=1 << 25, **options))
        self.clients.append(talker)
        if first is not None:
            await talker.say(first)
        return talker

    async def empty(self) -> bool:
        """Whether nothing of any client is left."""
        feed = self.feed
        kept = (feed._outboxes, feed._of_all, feed._of_session, feed._of_board, feed._paced)
        return await until(lambda: not any(kept) and not self.door.tasks and not self.door.connections(), BOUND)


async def dial(port: int, buffer: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    if buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return sock


class Message:
    """What an SSE client was told."""

    def __init__(self, fields: dict[str, str]) -> None:
        self.kind = fields.get("event", "")
        self.id = int(fields["id"]) if "id" in fields else None
        self.data: dict[str, Any] = json.loads(fields["data"]) if "data" in fields else {}


class Reader:
    """An SSE client, which reads by chunks as HTTP sends them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._rest = b""
        self.status = 0
        self.head: dict[str, str] = {}
        self.beats = 0

    async def begin(self) -> Reader:
        async with asyncio.timeout(BOUND):
            lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.status = int(lines[0].split()[1])
        self.head = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return self

    async def next(self) -> Message | None:
        """None: the stream has ended in order."""
        async with asyncio.timeout(BOUND):
            while True:
                while b"\n\n" not in self._rest:
                    size = int(await self._reader.readline() or b"-1", 16)
                    if size < 0:
                        raise ConnectionResetError
                    chunk = await self._reader.readexactly(size + 2)
                    if not size:
                        return None
                    self._rest += chunk[:-2]
                block, self._rest = self._rest.split(b"\n\n", 1)
                fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if not line.startswith(":"))
                self.beats += block.startswith(b":")
                if "event" in fields:
                    return Message(fields)

    async def body(self) -> bytes:
        async with asyncio.timeout(BOUND):
            return await self._reader.readexactly(int(self.head["content-length"]))

    async def heard(self, count: int) -> list[dict[str, Any]]:
        """So many events, whatever messages they come in."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            message = await self.next()
            assert message is not None and message.kind != "cut", message and message.data
            found += message.data.get("events", [])
        return found

    def pause(self) -> None:
        """Read nothing any more: what is sent piles up at the sender."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def resume(self) -> None:
        self._writer.transport.resume_reading()  # type: ignore[attr-defined]

    async def leave(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass


class Talker:
    """A WebSocket client."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, words: object) -> None:
        await self.connection.send(words if isinstance(words, str | bytes) else json.dumps(words))

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(BOUND):
            found: dict[str, Any] = json.loads(await self.connection.recv())
            return found

    async def closed(self) -> tuple[int, str]:
        """How the server closed it."""
        async with asyncio.timeout(BOUND):
            await self.connection.wait_closed()
        assert self.connection.close_code is not None
        return self.connection.close_code, self.connection.close_reason or ""

    async def leave(self) -> None:
        self.connection.transport.resume_reading()
        await self.connection.close()


def handshake(port: int, headers: Sequence[str]) -> bytes:
    return request(
        "/api/v1/ws",
        port,
        [
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version: 13",
            f"Origin: http://127.0.0.1:{port}",
            *headers,
        ],
    )


def request(path: str, port: int, headers: Sequence[str]) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *headers, "", ""]).encode()


def frame(payload: bytes, opcode: int = 1) -> bytes:
    """As a client sends it: masked, with a mask of zeros."""
    size = len(payload)
    head = struct.pack("!BB", 0x80 | opcode, 0x80 | (size if size < 126 else 126))
    return head + (b"" if size < 126 else struct.pack("!H", size)) + bytes(4) + payload


SSE = ("/api/v1/events?board=1", "/api/v1/events?after=0")
FIRST_WORDS = (
    b"",
    frame(b'{"board":true}'),
    frame(b'{"after":0}') + frame(b'{"after":1}'),
    frame(b"rubbish"),
    frame(b'{"board":true}') + frame(struct.pack("!H", 1000), 8),
)


async def come_and_go(port: int, number: int, *headers: str) -> None:
    """A client that opens, says its first word, and is gone: each number by another way, at another point."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    way, point = number % 7, number // 7 % 4
    is_sse, then = way < 2, b"" if way < 2 else FIRST_WORDS[way - 2]
    writer.write(request(SSE[way], port, headers) if is_sse else handshake(port, headers))
    if point:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(then)
    if point == 2:
        await asyncio.sleep(0)
    elif point == 3 and is_sse:
        await reader.readuntil(b"data: ")
    elif point == 3 and then:
        await reader.read(1)
    if number % 10 < 7:
        writer.transport.abort()
    writer.close()


@asynccontextmanager
async def housed(log: Log) -> AsyncIterator[House]:
    """Nothing of the clients may be left in it at the end."""
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setblocking(False)
    hub = Hub(log.feed, log.feed.board, log.read_rows)
    app = Starlette(
        routes=[
            Route("/api/v1/events", sse(hub), methods=["GET"]),
            WebSocketRoute("/api/v1/ws", websocket(hub)),
        ]
    )
    door = Door(sock, app)
    await door.open()
    house = House(log, door, sock.getsockname()[1])
    try:
        yield house
    finally:
        door.shut()
        log.feed.end("the test is over")
        assert await until(lambda: not door.tasks, BOUND), "a stream outlived its feed"
        for client in house.clients:
            await client.leave()
        for one in door.connections():
            one.transport.abort()
        assert await house.empty(), "something of a client was kept"


Body = Callable[[House], Coroutine[Any, Any, None]]
Run = Callable[[Body], None]


@pytest.fixture
def run(caplog: pytest.LogCaptureFixture) -> Run:
    """Run a test inside a house. Nobody may have logged an error, and the loop may not have complained."""

    def whole(body: Body) -> None:
        complaints: list[str] = []

        async def main() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(
                lambda _, said: complaints.append(f"{said['message']}: {said.get('exception')!r}")
            )
            async with housed(Log()) as house:
                await body(house)

        with caplog.at_level(logging.WARNING):
            run_on(asyncio.new_event_loop, main)
        assert complaints == []
        errors = [one for one in caplog.records if one.levelno >= logging.ERROR]
        assert not errors, errors

    return whole


def texts(events: Sequence[dict[str, Any]]) -> str:
    """All that was streamed."""
    return "".join(one["text"] for one in events if one["kind"].endswith((".delta", ".output")))
