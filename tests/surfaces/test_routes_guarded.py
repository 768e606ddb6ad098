"""Every route that the live router has is behind the guard: a new one cannot escape it, whatever kind it is."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Host, Mount, Route, Router, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

import quell
from quell.surfaces.http import front
from quell.surfaces.http.app import Parts, ServerInfo, build
from quell.surfaces.http.board import Board
from quell.surfaces.http.feed import Feed
from quell.surfaces.http.front import WEB, Front
from quell.surfaces.http.guard import BODY_LIMIT, Guard
from quell.surfaces.http.keys import Keys
from quell.surfaces.http.protocol import Door
from quell.surfaces.http.sockets import hosts_of, listen_tcp

from . import knock
from .knock import HOST, HOSTS, JSON, TOKEN, Header

REFUSALS = frozenset({400, 401, 403, 413, 415})
ANY_METHOD = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
EVERYTHING = (*ANY_METHOD, "WEBSOCKET")
FILE_METHODS = ("GET", "HEAD")
VALUES = {"str": "x", "path": "x/y", "int": "1", "float": "1.5", "uuid": "0" * 32}
KEYS = Keys(TOKEN)
PART = b"x" * (1 << 17)
TOO_MANY = BODY_LIMIT // len(PART) + 1


# -- the ways in


@dataclass(frozen=True)
class Way:
    """One method of one path, or a WebSocket; `{…}` filled in."""

    method: str
    path: str

    @property
    def websocket(self) -> bool:
        return self.method == "WEBSOCKET"

    @property
    def changes(self) -> bool:
        return not self.websocket and self.method not in {"GET", "HEAD"}

    @property
    def has_body(self) -> bool:
        return self.method in {"POST", "PUT", "PATCH"}


def ways(routes: Iterable[BaseRoute], above: str = "") -> Iterator[Way]:
    """All that a router answers to. A kind of route that is not known here is an error: it would go untried."""
    for route in routes:
        if isinstance(route, Route):
            path = above + filled(route.path)
            yield from (Way(method, path) for method in sorted(route.methods or ANY_METHOD))
        elif isinstance(route, WebSocketRoute):
            yield Way("WEBSOCKET", above + filled(route.path))
        elif isinstance(route, Mount | Host):
            here = above + (filled(route.path) if isinstance(route, Mount) else "")
            below = list(route.routes or [])
            yield from ways(below, here)
            if not below:  # an app of its own: files, or anything
                files = isinstance(route, Mount) and isinstance(route.app, StaticFiles)
                yield from (Way(method, f"{here}/x") for method in (FILE_METHODS if files else EVERYTHING))
        else:
            raise TypeError(f"{type(route).__name__} is a kind of route that is not tried")


def filled(path: str) -> str:
    return re.sub(r"{\w+(?::(\w+))?}", lambda found: VALUES[found[1] or "str"], path)


# -- the attempts


@dataclass(frozen=True)
class Attempt:
    way: Way
    headers: tuple[Header, ...]
    host: str
    body: tuple[bytes, ...] = ()
    says: tuple[str, ...] = field(default=())
    """On a WebSocket that was accepted."""


def attempts(way: Way, host: str, keys: Keys) -> Iterator[tuple[str, Attempt]]:
    """What must be refused, each wrong in one thing and right in all others, by a program and by a browser."""
    bearer, cookie = ("authorization", f"Bearer {keys.token}"), knock.cookie(keys)
    origin = ("origin", f"http://{host}")
    own = [origin] if way.websocket else []
    rest = (JSON, ("content-length", "2")) if way.has_body else ()
    body = (b"{}",) if way.has_body else ()

    def wrong(name: str, *headers: Header, host: str = host) -> tuple[str, Attempt]:
        return name, Attempt(way, headers, host, body)

    yield wrong("no token", *own, *rest)
    yield wrong("no token, from the page", origin, *rest)
    yield wrong("wrong token", ("authorization", f"Bearer {'0' * 64}"), *own, *rest)
    yield wrong("wrong token, right cookie", ("authorization", f"Bearer {'0' * 64}"), cookie, origin, *rest)
    yield wrong("wrong cookie", ("cookie", f"{keys.cookie_name}={'0' * 64}"), origin, *rest)
    for who in (bearer, cookie):
        name = who[0]
        yield wrong(f"foreign Origin, {name}", who, ("origin", "http://evil.example"), *rest)
        yield wrong(f"another port's Origin, {name}", who, ("origin", "http://127.0.0.1:1"), *rest)
        yield wrong(f"Origin: null, {name}", who, ("origin", "null"), *rest)
        yield wrong(f"cross-site, {name}", who, origin, ("sec-fetch-site", "cross-site"), *rest)
        yield wrong(f"same-site, {name}", who, origin, ("sec-fetch-site", "same-site"), *rest)
        yield wrong(f"rebinding Host, {name}", who, *own, *rest, host="evil.example:7717")
        evil = ("origin", "http://evil.example:7717")
        yield wrong(f"rebinding Host and Origin, {name}", who, evil, *rest, host="evil.example:7717")
    if way.websocket:
        yield wrong("WebSocket without Origin, token", bearer)
        yield wrong("WebSocket without Origin, cookie", cookie)
    elif way.changes:
        yield wrong("a browser without Origin", cookie, *rest)
    yield from unfit(way, host, (bearer, *own))
    yield from unfit(way, host, (cookie, origin))


def unfit(way: Way, host: str, who: tuple[Header, ...]) -> Iterator[tuple[str, Attempt]]:
    streamed = ("transfer-encoding", "chunked")
    for name in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        plain = (*who, ("content-type", name), ("content-length", "2"))
        yield f"{name}, {who[0][0]}", Attempt(way, plain, host, (b"{}",))
    said = (*who, JSON, ("content-length", str(BODY_LIMIT + 1)))
    yield f"a body that says it is too long, {who[0][0]}", Attempt(way, said, host, (PART,))
    yield f"a body that is too long, {who[0][0]}", Attempt(way, (*who, JSON, streamed), host, (PART,) * TOO_MANY)
    if way.websocket:
        yield f"a message that is too long, {who[0][0]}", Attempt(way, who, host, says=("x" * (BODY_LIMIT + 1),))


def allowed(way: Way) -> Attempt:
    kind = (JSON, ("content-length", "2")) if way.has_body else ()
    origin = ("origin", f"http://{HOST}")
    return Attempt(way, (knock.cookie(KEYS), origin, *kind), HOST, (b"{}",) if way.has_body else ())


# -- trying them


class Noted:
    """Before an app: notes that somebody came through, and what it was told."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.reached = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.reached += 1
        await self.app(scope, receive, send)


def tried(app: ASGIApp, attempt: Attempt) -> knock.Answer:
    way = attempt.way
    if way.websocket:
        return knock.websocket(app, way.path, *attempt.headers, says=attempt.says, host=attempt.host)
    return knock.http(app, way.method, way.path, *attempt.headers, body=attempt.body, host=attempt.host)


def escapes(served: ASGIApp, found: Iterable[Way], inside: Noted | None = None) -> list[str]:
    """Every attempt that was not refused, or by what is inside: there, only what it reads may be cut off."""
    out = []
    for way in found:
        for name, attempt in attempts(way, HOST, KEYS):
            before = inside.reached if inside else 0
            answer = tried(served, attempt)
            cut_off = answer.status == 101 and answer.closed == 1009
            if answer.status not in REFUSALS and not cut_off:
                out.append(f"{way.method} {way.path}: {name}: {answer.status}")
            elif inside and inside.reached > before and "that is too long" not in name:
                out.append(f"{way.method} {way.path}: {name}: not by the guard")
    return out


def live() -> Starlette:
    """The app as the server has it, with nothing behind: no attempt may get as far as to need it."""
    board = Board()
    info = ServerInfo("0", "/nowhere", f"http://{HOST}", 0.0)
    return build(Parts(board, Feed(board), Mock(spec_set=[]), KEYS, info, Mock(spec_set=[]), WEB))


def test_no_route_of_the_live_router_escapes_the_guard() -> None:
    app = live()
    inside = Noted(app)
    assert escapes(Guard(inside, KEYS, HOSTS), ways(app.routes), inside) == []


def test_what_is_right_in_all_things_comes_in_everywhere() -> None:
    """A guard that refused everything would pass the tests above."""
    welcome = Noted(hello)
    served = Guard(welcome, KEYS, HOSTS)
    found = list(ways(live().routes))
    assert [tried(served, allowed(way)).status for way in found] == [101 if way.websocket else 200 for way in found]
    assert welcome.reached == len(found)


def test_the_walk_finds_the_routes_that_are_known_to_be_there() -> None:
    found = set(ways(live().routes))
    assert {
        Way("GET", "/api/v1/state"),
        Way("POST", "/api/v1/stop"),
        Way("DELETE", "/api/v1/sessions/x"),
        Way("PATCH", "/api/v1/config"),
        Way("GET", "/api/v1/events"),
        Way("WEBSOCKET", "/api/v1/ws"),
        Way("GET", "/api/v1/openapi.json"),
        Way("POST", "/api/v1/down"),
        Way("GET", "/"),
        Way("GET", "/static/main.js"),
    } <= found
    assert len([way for way in found if way.path.startswith("/api/v1/")]) >= 35


# -- the test is seen to fail


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await greet(WebSocket(scope, receive, send))
    else:
        await (await answered(Request(scope, receive)))(scope, receive, send)


async def greet(socket: WebSocket) -> None:
    """Listens as long as somebody speaks."""
    await socket.accept()
    async for _ in socket.iter_text():
        continue


async def answered(request: Request) -> PlainTextResponse:
    await request.body()
    return PlainTextResponse("hello")


async def blind(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


def planted(folder: Path) -> dict[str, BaseRoute]:
    return {
        "/plain": Route("/plain", answered, methods=["GET", "POST"]),
        "/{name}/{rest:path}": Route("/{name}/{rest:path}", answered),
        "/any": Route("/any", Noted(hello)),
        "/ws": WebSocketRoute("/ws", greet),
        "/files": Mount("/files", StaticFiles(directory=folder)),
        "/deep": Mount("/deep", routes=[Mount("/er", routes=[Route("/in", answered), WebSocketRoute("/ws", greet)])]),
        "/other": Mount("/other", Router([Route("/in", answered)])),
        "/app": Mount("/app", hello),
        "host": Host("evil.example", Router([Route("/hosted", answered)])),
    }


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("/plain", {"GET /plain", "HEAD /plain", "POST /plain"}),
        ("/{name}/{rest:path}", {"GET /x/x/y", "HEAD /x/x/y"}),
        ("/any", {f"{method} /any" for method in ANY_METHOD}),
        ("/ws", {"WEBSOCKET /ws"}),
        ("/files", {f"{method} /files/x" for method in FILE_METHODS}),
        ("/deep", {"GET /deep/er/in", "HEAD /deep/er/in", "WEBSOCKET /deep/er/ws"}),
        ("/other", {"GET /other/in", "HEAD /other/in"}),
        ("/app", {f"{method} /app/x" for method in EVERYTHING}),
        ("host", {"GET /hosted", "HEAD /hosted"}),
    ],
)
def test_a_route_outside_the_guard_is_found_whatever_its_kind(tmp_path: Path, name: str, seen: set[str]) -> None:
    (tmp_path / "x").write_text("a file")
    route = planted(tmp_path)[name]
    found = list(ways([route]))
    assert {f"{way.method} {way.path}" for way in found} == seen
    assert escapes(Guard(Starlette(routes=[route]), KEYS, HOSTS), found) == []
    if name == "host":  # it answers only there, which the guard does not
        return
    beside = Starlette(routes=[route, Mount("/", Guard(hello, KEYS, HOSTS))])
    caught = {way for way in found if escapes(beside, [way])}
    assert caught == set(found)


def test_a_post_that_does_not_look_at_its_body_is_found() -> None:
    """It would do what it does for a body without end."""
    route = Route("/blind", blind, methods=["POST"])
    found = escapes(Guard(Starlette(routes=[route]), KEYS, HOSTS), ways([route]))
    assert found == [f"POST /blind: a body that is too long, {who}: 200" for who in ("authorization", "cookie")]


def test_a_kind_of_route_that_is_not_known_is_an_error() -> None:
    with pytest.raises(TypeError, match="not tried"):
        list(ways([BaseRoute()]))


# -- the real server


async def wired(port: int, attempt: Attempt) -> int:
    """The status that comes back over a real connection."""
    way, sized = attempt.way, {name for name, _ in attempt.headers}
    lines = [f"{'GET' if way.websocket else way.method} {way.path} HTTP/1.1", f"host: {attempt.host}"]
    lines += [f"{name}: {value}" for name, value in attempt.headers]
    if way.websocket:
        key = "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA=="
        lines += ["connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13", key]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode())
        if "transfer-encoding" in sized:
            writer.write(b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in attempt.body) + b"0\r\n\r\n")
        elif "content-length" in sized:
            writer.write(b"".join(attempt.body))
        line = await reader.readline()
        return int(line.split()[1])
    finally:
        writer.close()
        await writer.wait_closed()


def by_wire(attempts: Iterable[tuple[str, Attempt]]) -> Iterator[tuple[str, Attempt]]:
    """Without the bodies and messages where none belongs, of which the test above has all."""
    return ((name, each) for name, each in attempts if each.way.has_body or not (each.says or each.body))


def test_no_route_of_the_running_server_escapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The routes are taken from the app that the server has made, and tried through its own port."""
    made: list[Any] = []

    class Seen(Door):
        def __init__(self, sock: socket.socket, app: Any) -> None:
            super().__init__(sock, app)
            made.append(app)

    async def main() -> list[str]:
        async with quell.Runtime(state_dir=str(tmp_path)) as runtime:
            tcp = listen_tcp("127.0.0.1", 0)
            port = tcp.getsockname()[1]
            hosts = hosts_of("127.0.0.1", port)
            server = Front(
                runtime, tcp=tcp, unix=None, keys=KEYS, hosts=hosts, url=f"http://{HOST}", down=lambda force: None
            )
            await server.start()
            try:
                return await refused_all(port, made[0])
            finally:
                await server.stop()

    async def refused_all(port: int, guard: Guard) -> list[str]:
        out = []
        app = guard._app
        assert isinstance(app, Starlette)
        for way in ways(app.routes):
            for name, attempt in by_wire(attempts(way, f"127.0.0.1:{port}", KEYS)):
                status = await wired(port, attempt)
                if status not in REFUSALS:
                    out.append(f"{way.method} {way.path}: {name}: {status}")
        return out

    monkeypatch.setattr(front, "Door", Seen)
    assert asyncio.run(main()) == []
    assert len(made) == 1
