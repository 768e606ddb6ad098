"""The guard behind a real server on a real socket: what clients see, what the next request sees, and what is logged."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from starlette.types import Receive, Scope, Send

from quell.surfaces.http.guard import Guard
from quell.surfaces.http.keys import Keys
from quell.surfaces.http.protocol import Door
from quell.surfaces.http.sockets import hosts_of, listen_tcp
from tests.supervise.loops import until

from .knock import TOKEN

LIMIT = 1 << 20
BEARER = f"authorization: Bearer {TOKEN}"
JSON = "content-type: application/json"
UPGRADE = (
    "connection: upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
)


class Line:
    """One connection, on which one can say anything."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, *lines: str, body: bytes = b"") -> None:
        self.writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    async def status(self) -> int:
        """Of the next answer, whose body is read to its end."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = re.search(r"content-length: (\d+)", head)
        await self.reader.readexactly(int(length[1]) if length else 0)
        return int(head.split()[1])

    async def closed(self) -> bool:
        """Whether nothing more comes."""
        return await self.reader.read() == b""


class House:
    def __init__(self, keys: Keys, port: int, door: Door) -> None:
        self.keys = keys
        self.port = port
        self.door = door
        self.host = f"host: 127.0.0.1:{port}"
        self.origin = f"origin: http://127.0.0.1:{port}"

    @asynccontextmanager
    async def line(self) -> AsyncIterator[Line]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Line(reader, writer)
        finally:
            writer.transport.abort()

    async def ask(self, *lines: str, body: bytes = b"") -> int:
        async with self.line() as line:
            line.say(*lines, body=body)
            return await line.status()


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] == "websocket.receive":
            continue
        return
    size, more = 0, scope["method"] == "POST"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    body = f"{scope['method']} {scope['path']} {size}".encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def run(caplog: pytest.LogCaptureFixture) -> Callable[[Callable[[House], Awaitable[None]]], None]:
    """Runs a test in a server of its own. Whatever the test does, nothing is an error and no key is logged."""

    def run(test: Callable[[House], Awaitable[None]]) -> None:
        async def main() -> House:
            keys, sock = Keys(TOKEN), listen_tcp("127.0.0.1", 0)
            port = sock.getsockname()[1]
            door = Door(sock, Guard(echo, keys, hosts_of("127.0.0.1", port), LIMIT))
            await door.open()
            house = House(keys, port, door)
            try:
                async with asyncio.timeout(20):
                    await test(house)
            finally:
                door.shut()
                for one in door.connections():
                    one.transport.abort()
                assert await until(lambda: not door.tasks and not door.connections())
            return house

        with caplog.at_level(logging.INFO):
            house = asyncio.run(main())
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
        assert house.keys.token not in caplog.text and house.keys.cookie not in caplog.text

    return run


Run = Callable[[Callable[[House], Awaitable[None]]], None]


def test_a_client_that_keeps_its_connection_is_answered_in_step(run: Run) -> None:
    """Refusals with and without a body, and what is let in, one after the other on one connection."""

    async def test(house: House) -> None:
        async with house.line() as line:
            for _ in range(3):
                line.say("GET /a HTTP/1.1", house.host)
                assert await line.status() == 401
                line.say("POST /a HTTP/1.1", house.host, BEARER, JSON, "content-length: 2", body=b"{}")
                assert await line.status() == 200
                line.say("GET /a HTTP/1.1", house.host, BEARER)
                assert await line.status() == 200

    run(test)


def test_the_rest_of_a_refused_body_is_never_the_next_request(run: Run) -> None:
    inner = f"GET /smuggled HTTP/1.1\r\nhost: x\r\n{BEARER}\r\n\r\n".encode()

    async def test(house: House) -> None:
        size = f"content-length: {len(inner)}"
        for lines in (
            ("POST / HTTP/1.1", house.host, JSON, size),
            ("POST / HTTP/1.1", "host: evil.example", JSON, size, BEARER),
            ("POST / HTTP/1.1", house.host, size, BEARER),
            ("GET / HTTP/1.1", house.host, JSON, size, BEARER),
            ("GET /launch?code=x HTTP/1.1", house.host, size),
        ):
            async with house.line() as line:
                line.say(*lines, body=inner + inner)
                assert await line.status() in {400, 401, 403, 415}
                assert await line.closed()

    run(test)


def test_who_sends_too_much_still_reads_why(run: Run) -> None:
    """All of it is sent before the answer is looked at: a reset would lose that."""

    async def test(house: House) -> None:
        long = b"x" * (3 * LIMIT)
        async with house.line() as line:
            line.say("POST / HTTP/1.1", house.host, BEARER, JSON, f"content-length: {len(long)}", body=long)
            await line.writer.drain()
            assert await line.status() == 413
            assert await line.closed()
        async with house.line() as line:
            chunks = (b"%x\r\n%b\r\n" % (1 << 16, long[: 1 << 16])) * 48
            line.say("POST / HTTP/1.1", house.host, BEARER, JSON, "transfer-encoding: chunked", body=chunks)
            await line.writer.drain()
            assert await line.status() == 413

    run(test)


async def flood(line: Line, part: bytes, times: int) -> None:
    for _ in range(times):
        line.writer.write(part)
        await line.writer.drain()


def test_a_body_without_end_is_answered_and_then_cut_off(run: Run) -> None:
    async def test(house: House) -> None:
        async with house.line() as line:
            line.say("POST / HTTP/1.1", house.host, BEARER, JSON, "transfer-encoding: chunked")
            part = b"%x\r\n%b\r\n" % (1 << 16, b"x" * (1 << 16))
            with pytest.raises(ConnectionError):
                await flood(line, part, 400)  # 25 MiB, of which so much is read as is dropped after an answer
        assert await until(lambda: not house.door.tasks)

    run(test)


def test_who_asks_before_sending_is_refused_before_sending(run: Run) -> None:
    async def test(house: House) -> None:
        head = (house.host, JSON, f"content-length: {2 * LIMIT}", "expect: 100-continue")
        for who, status in ((BEARER, 413), ("x: y", 401)):
            async with house.line() as line:
                line.say("POST / HTTP/1.1", *head, who)
                assert await line.status() == status  # and not 100
                assert await line.closed()

    run(test)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("GET http://evil.example/a HTTP/1.1", "{host}", BEARER), 200),  # there is but one server here: Host decides
        (("GET http://127.0.0.1/a HTTP/1.1", "host: evil.example", BEARER), 403),
        (("GET http://evil.example/launch?code=x HTTP/1.1", "{host}"), 403),
        (("GET /a HTTP/1.1", "{host}", "host: evil.example", BEARER), 400),
        (("GET /a HTTP/1.1", "{host}", "{host}", BEARER), 400),
        (("GET /a HTTP/1.1", BEARER), 403),
        (("GET /a HTTP/1.0", BEARER), 403),
        (("GET /a HTTP/1.1", "{host}", BEARER, BEARER), 400),
        (("GET /a HTTP/1.1", "{host}", BEARER, "{origin}", "origin: null"), 400),
        (("OPTIONS * HTTP/1.1", "{host}"), 401),
        (("TRACE /a HTTP/1.1", "{host}"), 401),
        (("PROPFIND /a HTTP/1.1", "{host}"), 401),
        (("HEAD /a HTTP/1.1", "{host}"), 401),
        (("CONNECT 127.0.0.1:1 HTTP/1.1", "{host}"), 400),
        (("BREW /a HTTP/1.1", "{host}", BEARER), 400),
        (("GET //launch?code=x HTTP/1.1", "{host}"), 401),
        (("GET /%2e/launch?code=x HTTP/1.1", "{host}"), 401),
        (("GET /launch%3fcode=x HTTP/1.1", "{host}"), 401),
        (("GET /launch/?code=x HTTP/1.1", "{host}"), 401),
        (("GET /launch?code=x HTTP/1.1", "{host}"), 403),
        (("GET /launch#?code=x HTTP/1.1", "{host}"), 403),
        (("POST /a HTTP/1.1", "{host}", BEARER, JSON, "content-length: 2", "content-length: 3"), 400),
        (("POST /a HTTP/1.1", "{host}", BEARER, JSON, "content-length: 2", "transfer-encoding: chunked"), 400),
        (("POST /a HTTP/1.1", "{host}", BEARER, JSON, "content-length: -1"), 400),
        (("GET /ws HTTP/1.1", "{host}", BEARER, *UPGRADE), 403),
        (("GET /ws HTTP/1.1", "{host}", "{origin}", *UPGRADE), 401),
        (("GET /ws HTTP/1.1", "{host}", "{origin}", BEARER, *UPGRADE), 101),
        (("GET /ws HTTP/1.1", "{host}", "{origin}", "origin: null", BEARER, *UPGRADE), 400),
        (("GET /ws HTTP/1.1", "{host}", "host: evil.example", "{origin}", BEARER, *UPGRADE), 400),
        (("GET /ws HTTP/1.1", "host: evil.example", "origin: http://evil.example", BEARER, *UPGRADE), 403),
        (("GET /launch?code=x HTTP/1.1", "{host}", "{origin}", *UPGRADE), 401),
    ],
)
def test_what_comes_over_the_wire_is_seen_as_it_is(run: Run, lines: tuple[str, ...], status: int) -> None:
    async def test(house: House) -> None:
        said = [each.replace("{host}", house.host).replace("{origin}", house.origin) for each in lines]
        if lines[0].startswith("HEAD"):
            async with house.line() as line:
                line.say(*said)
                assert (await line.reader.readuntil(b"\r\n\r\n")).split()[1] == b"401"
        else:
            assert await house.ask(*said) == status

    run(test)


def test_a_hundred_websockets_are_refused_without_an_error(run: Run) -> None:
    """Whether they wait for the refusal or are gone before."""

    async def test(house: House) -> None:
        for index in range(100):
            async with house.line() as line:
                line.say("GET /ws HTTP/1.1", house.host, "origin: null", *UPGRADE)
                if index % 2:
                    assert await line.status() == 403
                else:
                    await line.writer.drain()
        assert await until(lambda: not house.door.tasks and not house.door.connections())

    run(test)


def test_a_used_launch_code_is_in_no_log(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    codes: list[str] = []

    async def test(house: House) -> None:
        codes.extend([house.keys.new_code(), house.keys.new_code()])
        assert await house.ask(f"GET /launch?code={codes[0]} HTTP/1.1", house.host) == 200
        assert await house.ask(f"GET /launch?code={codes[0]} HTTP/1.1", house.host) == 403
        assert await house.ask(f"GET /launch?code={codes[1]} HTTP/1.1", house.host, house.origin, *UPGRADE) == 401

    run(test)
    assert not [code for code in codes if code in caplog.text]
