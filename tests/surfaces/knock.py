"""Speaks ASGI to an app as a server would, without one: what was asked, and all that came back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

from quell.surfaces.http.keys import Keys

TOKEN = "5a" * 32
HOST = "127.0.0.1:7717"
HOSTS = frozenset({HOST, "localhost:7717", "[::1]:7717"})
ORIGIN = f"http://{HOST}"
JSON = ("content-type", "application/json")
BEARER = ("authorization", f"Bearer {TOKEN}")

Header = tuple[str, str]


def cookie(keys: Keys) -> Header:
    return ("cookie", f"{keys.cookie_name}={keys.cookie}")


@dataclass
class Answer:
    status: int = 0
    """0: there was none. 101: the WebSocket was accepted."""
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    whole: bool = False
    closed: int = 0
    """The code that a WebSocket was closed with."""
    left: int = 0
    """Messages of the client that nobody received."""

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    @property
    def text(self) -> str:
        return f"{self.headers} {self.body.decode()}"


def head(kind: str, method: str, target: str, headers: Sequence[Header], host: str | None) -> dict[str, Any]:
    raw, _, query = target.partition("?")
    own = [("host", host)] if host is not None else []
    scope: dict[str, Any] = {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "path": unquote(raw),
        "raw_path": raw.encode(),
        "root_path": "",
        "query_string": query.encode("latin-1"),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in [*own, *headers]],
        "server": ("127.0.0.1", 7717),
        "client": ("127.0.0.1", 50000),
        "extensions": {"websocket.http.response": {}},
    }
    if kind == "http":
        scope["method"] = method
    return scope


def http(
    app: ASGIApp,
    method: str = "GET",
    target: str = "/",
    *headers: Header,
    body: Sequence[bytes] = (),
    host: str | None = HOST,
    endless: bool = False,
) -> Answer:
    """`endless`: more of the body is announced after these parts, and never comes."""
    parts = [{"type": "http.request", "body": part, "more_body": True} for part in body]
    if not endless:
        last = parts[-1] if parts else {"type": "http.request", "body": b""}
        parts = [*parts[:-1], last | {"more_body": False}]
    return speak(app, head("http", method, target, headers, host), parts)


def websocket(
    app: ASGIApp,
    target: str = "/ws",
    *headers: Header,
    says: Sequence[str | bytes] = (),
    host: str | None = HOST,
    bare: bool = False,
) -> Answer:
    """`bare`: a server that can refuse only with a 403."""
    scope = head("websocket", "GET", target, headers, host)
    if bare:
        scope["extensions"] = {}
    said = [{"type": "websocket.receive", "text" if isinstance(one, str) else "bytes": one} for one in says]
    return speak(app, scope, [{"type": "websocket.connect"}, *said])


def speak(app: ASGIApp, scope: dict[str, Any], messages: Sequence[Message]) -> Answer:
    answer, waiting, gone = Answer(), list(messages), asyncio.Event()
    wrong: list[str] = []
    end = {"type": "http.disconnect"} if scope["type"] == "http" else {"type": "websocket.disconnect", "code": 1005}

    async def receive() -> Message:
        if waiting:
            return waiting.pop(0)
        if scope["type"] == "http":
            await gone.wait()  # whoever asked waits for the answer; of a WebSocket, goes when all is said
        return end

    async def send(message: Message) -> None:
        if answer.whole or answer.closed:
            wrong.append(f"{message['type']} after the end")
        match message["type"].removeprefix("websocket."):
            case "http.response.start":
                wrong.extend(["a second answer"] if answer.status else [])
                answer.status = message["status"]
                answer.headers = [(name.decode().lower(), value.decode()) for name, value in message["headers"]]
            case "http.response.body":
                answer.body += message.get("body", b"")
                answer.whole = not message.get("more_body", False)
            case "accept":
                answer.status = 101
            case "close":
                answer.status, answer.closed = answer.status or 403, message.get("code", 1000)
        if answer.whole or answer.closed:
            gone.set()

    async def main() -> None:
        async with asyncio.timeout(10):
            await app(scope, receive, send)

    asyncio.run(main())
    assert wrong == []
    answer.left = len(waiting)
    return answer
