"""One request or WebSocket behind the guard: what comes in is counted, what goes out has the headers of every answer.

No body is kept, none longer than the limit gets through, and an answer that came before the end of a body closes the
connection, so that no rest of it is taken for the next request.
"""

from __future__ import annotations

import asyncio

import msgspec
from starlette.types import Message, Receive, Send

from .shapes import Fault

DRAIN_BYTES = 8 << 20
"""What is read and dropped after an answer that came before the end of the body."""
DRAIN_SECONDS = 1.0
"""How long: closed with bytes unread, a connection is reset, and the client may never see why."""
END_SECONDS = 1.0
"""How long a refused WebSocket's connection has to close."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types quell"
)

Headers = list[tuple[bytes, bytes]]

_ALWAYS: Headers = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_OURS = frozenset(name for name, _ in _ALWAYS)


class Reply(Exception):
    """What the guard answers in place of the app: a page, or a fault."""

    def __init__(self, status: int, code: str, message: str, *, page: str = "", headers: Headers | None = None) -> None:
        super().__init__(code)
        self.status = status
        self.body = page.encode() if page else msgspec.json.encode(Fault(code, message))
        kind = b"text/html; charset=utf-8" if page else b"application/json"
        self.headers = [
            (b"content-type", kind),
            (b"content-length", str(len(self.body)).encode()),
            *(headers or []),
        ]


def too_long(limit: int) -> Reply:
    return Reply(413, "too_long", f"the body is longer than {limit} bytes")


class Exchange:
    """One request and its answer. `body`: it has one; `patient`: its sender waits to be told to send it."""

    def __init__(self, receive: Receive, send: Send, limit: int, *, body: bool, patient: bool) -> None:
        self._receive = receive
        self._send = send
        self._limit = limit
        self._length = 0
        self._unread = body
        self._patient = patient
        self._started = False
        self.over = False
        """The guard has answered: the app is not heard any more."""

    async def receive(self) -> Message:
        if self.over:
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] != "http.request":
            return message
        self._length += len(message.get("body", b""))
        self._unread = message.get("more_body", False)
        if self._length <= self._limit:
            return message
        if not self._started:
            await self.reply(too_long(self._limit))
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if not self.over:
            await self._answer(message)

    async def reply(self, reply: Reply) -> None:
        self.over = True
        await self._answer({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
        await self._answer({"type": "http.response.body", "body": reply.body})

    async def _answer(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            message = {**message, "headers": _dressed(message, close=self._unread or self._length > self._limit)}
        elif message["type"] == "http.response.body" and not message.get("more_body", False) and self._unread:
            await self._send({**message, "more_body": True})
            await self._drain()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    async def _drain(self) -> None:
        left = 0 if self._patient else DRAIN_BYTES
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._unread and left > 0:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    self._unread = message["type"] == "http.request" and message.get("more_body", False)
        except TimeoutError:
            return


class Talk:
    """One WebSocket. `responds`: the server can answer a handshake with more than a bare 403."""

    def __init__(self, receive: Receive, send: Send, limit: int, *, responds: bool) -> None:
        self._receive = receive
        self._send = send
        self._limit = limit
        self._responds = responds
        self.over = False

    async def receive(self) -> Message:
        if self.over:
            return {"type": "websocket.disconnect", "code": 1009}
        message = await self._receive()
        if message["type"] != "websocket.receive":
            return message
        sent = message.get("bytes") or (message.get("text") or "").encode(errors="surrogatepass")
        if len(sent) <= self._limit:
            return message
        self.over = True
        await self._send({"type": "websocket.close", "code": 1009, "reason": "the message is too long"})
        return {"type": "websocket.disconnect", "code": 1009}

    async def send(self, message: Message) -> None:
        if self.over:
            return
        if message["type"] == "websocket.http.response.start":
            message = {**message, "headers": _dressed(message)}
        await self._send(message)

    async def reply(self, reply: Reply) -> None:
        """Before it is accepted, so that the client sees an HTTP answer and no connection."""
        self.over = True
        if (await self._receive())["type"] != "websocket.connect":
            return
        if not self._responds:
            await self._send({"type": "websocket.close", "code": 1008})
            return
        start: Message = {"type": "websocket.http.response.start", "status": reply.status, "headers": reply.headers}
        await self._send({**start, "headers": _dressed(start)})
        await self._send({"type": "websocket.http.response.body", "body": reply.body})
        await self._end()

    async def _end(self) -> None:
        """Until the connection is closed: uvicorn takes a handshake for forgotten, and logs an error, if we are first.
        It announces the end twice: when it has written the answer, and when the connection is gone."""
        try:
            async with asyncio.timeout(END_SECONDS):
                await self._receive()
                await self._receive()
        except TimeoutError:
            return


def _dressed(message: Message, close: bool = False) -> Headers:
    """The headers of an answer, with those that every answer has, each once."""
    ours = _OURS | {b"connection"} if close else _OURS
    headers = [(name, value) for name, value in message.get("headers", []) if name.lower() not in ours]
    if not any(name.lower() == b"cache-control" for name, _ in headers):
        headers.append((b"cache-control", b"no-store"))
    return [*headers, *_ALWAYS, *([(b"connection", b"close")] if close else [])]
