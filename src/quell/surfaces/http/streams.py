"""Events as SSE and WebSocket: a snapshot or what is missing, then changes, with no gap and nothing twice (H36).

Whoever is too slow is told so and cut off, and can go on where it was (H39). Closing a stream stops nothing (H20).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import msgspec

from ...errors import UsageError
from .client import BrokenError, Client, Hub
from .faults import fault
from .outbox import Wish

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

__all__ = ["Hub", "sse", "websocket"]

BEAT = 15.0
"""Seconds of silence after which an SSE client hears that the connection lives."""
FIRST_LIMIT = 10.0
"""Seconds for a WebSocket client to say what it wants."""
FRAME = 1 << 16
"""Characters that a client may say at once."""
CLOSE_ROOM = 120
"""Bytes of a reason that a close frame has room for."""
MOST = 1000
"""Sessions that one client may name."""
UNCLEAR = 'this does not say what to follow, as {"sessions": [], "after": null, "board": true, "events": true} does'
LAST_SEQ = (1 << 53) - 1
_log = logging.getLogger("quell")


class SseClient(Client):
    """Server-sent events: all that it is heard to say is that it has gone."""

    def __init__(self, hub: Hub, scope: Scope, receive: Receive, send: Send, wish: Wish) -> None:
        super().__init__(hub, scope, receive, send)
        self._wanted = wish
        self._spoke = self._loop.time()
        self._clock: asyncio.TimerHandle | None = None

    async def serve(self) -> None:
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
            (b"connection", b"close"),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send(_part(b"retry: 1000\n\n"))
        self._tick()
        try:
            await self.attend()
        finally:
            if self._clock is not None:
                self._clock.cancel()

    def frame(self, kind: str, body: bytes, seq: int | None) -> Message:
        self._spoke = self._loop.time()
        mark = b"" if seq is None else b"id: %d\n" % seq
        return _part(b"event: %b\n%bdata: %b\n\n" % (kind.encode(), mark, body))

    async def beat(self) -> None:
        self._spoke = self._loop.time()
        await self.pass_on(_part(b":\n\n"))

    async def farewell(self, code: int, reason: str) -> None:
        await self.pass_on({"type": "http.response.body", "body": b"", "more_body": False})

    def _tick(self) -> None:
        quiet = self._loop.time() - self._spoke
        if quiet >= BEAT:
            quiet, self._beat_due = 0.0, True
            self.look()
        self._clock = self._loop.call_later(BEAT - quiet, self._tick)


class SocketClient(Client):
    """WebSocket: its first message says what it wants, and every further one says so anew."""

    async def serve(self) -> None:
        if (await self._receive())["type"] != "websocket.connect":
            return
        try:
            await self.pass_on({"type": "websocket.accept"})
        except BrokenError as error:
            _log.debug("a client was gone before it was let in: %s", error)
            return
        sentence = f"nothing was asked for within {FIRST_LIMIT:g} s: say what to follow"
        self._clock = self._loop.call_later(FIRST_LIMIT, self.refuse, 1008, sentence)
        self._heeds_end = not self._feed.ended
        try:
            await self.attend()
        finally:
            self._clock.cancel()

    def frame(self, kind: str, body: bytes, seq: int | None) -> Message:
        return {"type": "websocket.send", "text": body.decode()}

    def hear(self, message: Message) -> None:
        self._clock.cancel()
        text = message.get("text")
        if text is None:
            self.refuse(1003, "only text is understood here: say what to follow as JSON")
        elif len(text) > FRAME:
            self.refuse(1009, f"a message has at most {FRAME} characters")
        else:
            try:
                self.want(checked(msgspec.json.decode(text, type=Wish)))
            except UsageError as error:
                self.refuse(1008, f"this does not say what to follow: {error}")
            except (ValueError, RecursionError):  # what it says repeats words of the client's, maybe a secret
                self.refuse(1008, UNCLEAR)

    async def farewell(self, code: int, reason: str) -> None:
        short = reason.encode("utf-8", "replace")[:CLOSE_ROOM].decode("utf-8", "ignore")
        await self.pass_on({"type": "websocket.close", "code": code, "reason": short})


def _part(body: bytes) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": True}


class Sse:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            wish = wish_of(scope)
        except UsageError as error:
            await fault(400, "bad_request", str(error))(scope, receive, send)
        else:
            await SseClient(self._hub, scope, receive, send, wish).serve()


class Socket:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await SocketClient(self._hub, scope, receive, send).serve()


def sse(hub: Hub) -> Sse:
    """The endpoint of `GET …/events?session=ID&after=N&board=1&events=0`; the header Last-Event-ID wins."""
    return Sse(hub)


def websocket(hub: Hub) -> Socket:
    """The endpoint of a WebSocket whose messages are each a Wish."""
    return Socket(hub)


def wish_of(scope: Scope) -> Wish:
    """UsageError says what is wrong with the request."""
    sessions: list[str] = []
    given: dict[str, str] = {}
    for name, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name == "session":
            sessions.append(value)
        else:
            given[name] = value
    after = given.get("after")
    for key, header in scope["headers"]:
        if key == b"last-event-id":
            after = header.decode("latin-1")
    if after is not None and not (after.isascii() and after.isdecimal() and len(after) <= 16):
        raise UsageError("`after`, or Last-Event-ID, is the `seq` of an event, a whole number")
    board, events = _flag(given, "board", "0"), _flag(given, "events", "1")
    return checked(Wish(sessions, None if after is None else int(after), board, events))


def _flag(given: dict[str, str], name: str, usual: str) -> bool:
    word = given.get(name, usual)
    if word not in ("0", "1", "true", "false"):
        raise UsageError(f"`{name}` is 0 or 1")
    return word in ("1", "true")


def checked(wish: Wish) -> Wish:
    if wish.after is not None and not 0 <= wish.after <= LAST_SEQ:
        raise UsageError("`after` is the `seq` of an event")
    if len(wish.sessions) > MOST:
        raise UsageError(f"at most {MOST} sessions are followed by name: name none to follow all")
    if not all(0 < len(word) <= 200 for word in wish.sessions):
        raise UsageError("a session is named by up to 200 characters")
    return wish
