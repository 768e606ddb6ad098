"""uvicorn's protocols with what we need of a connection: who is at its other end, and how to cut it off.

They are given no server of uvicorn's: that one wakes ten times a second, and ours does nothing while nothing happens.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import TYPE_CHECKING, Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from .sockets import BACKLOG, is_ours

if TYPE_CHECKING:
    from websockets.http11 import Request

KEEP_ALIVE = 15
"""Seconds that a connection may rest between two requests."""
HEAD_LIMIT = 10.0
"""Seconds for the head of a request to arrive."""
HEAD_BYTES = 1 << 16
"""How long that may be: whoever sends it has shown no token yet."""
MOST = 4000
"""Connections at a time by one door, if the machine gives as many descriptors; the next are turned away."""
AT_ONCE = 16
"""Connections that are let in before the next look at how many there are."""
LARGEST = 1 << 16
"""Bytes of a WebSocket message from a client: it only says what it wants to follow."""


class Connection(HttpToolsProtocol):
    """One HTTP connection. On a Unix socket, that of another user is closed before it is read."""

    _silent: asyncio.TimerHandle | None = None
    _in_head = True
    _head_ended = False
    _head = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        sock = transport.get_extra_info("socket")
        stranger = sock.family == socket.AF_UNIX and not is_ours(sock)
        if stranger or len(self.connections) > most():
            self.transport.abort()
            return
        self._silent = self.loop.call_later(HEAD_LIMIT, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        before, self._head_ended = self._in_head, False
        super().data_received(data)
        self._head = self._head + len(data) if before and not self._head_ended else 0  # a whole request begins anew
        if self._head > HEAD_BYTES:
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast("dict[str, Any]", self.scope)["extensions"] = reach(self.transport)
        if self._silent is None:
            self._silent = self.loop.call_later(HEAD_LIMIT, self.transport.abort)

    def on_headers_complete(self) -> None:
        self._heard()
        self._in_head, self._head_ended = False, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._heard()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def _heard(self) -> None:
        if self._silent is not None:
            self._silent.cancel()
            self._silent = None


class Socket(WebSocketsSansIOProtocol):
    """One WebSocket connection."""

    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.conn.debug = False  # it would write down every header, the token too

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_initiated:  # the whole head came at once: this never becomes a handshake
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not is_text(b"".join(self.frames)):
            self.curr_msg_data_type = "bytes"  # refused as such; uvicorn would log it as an error of ours
        super().send_receive_event_to_app()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:  # its task is made, and has not taken a step
            cast("dict[str, Any]", self.scope)["extensions"].update(reach(self.transport))


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def most() -> int:
    """So that commands, and stops, find a descriptor whoever connects how often."""
    return min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 3)


def reach(transport: asyncio.Transport) -> dict[str, Any]:
    """How a stream gets at its connection, to cut off a client that does not read."""
    return {"quell": {"transport": transport}}


class Door:
    """One listening socket, and whoever came in by it."""

    def __init__(self, sock: socket.socket, app: Any) -> None:
        self._sock = sock
        self._state = ServerState()
        self._config = Config(
            app,
            interface="asgi3",
            http=Connection,
            ws=Socket,
            ws_max_size=LARGEST,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE,
        )
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._config.load()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, sock=self._sock, backlog=AT_ONCE)
        self._sock.listen(BACKLOG)

    def _connection(self) -> Connection:
        return Connection(self._config, self._state, {})

    def shut(self) -> None:
        """Let nobody in any more."""
        if self._server is not None:
            self._server.close()
        self._sock.close()

    def usher(self) -> None:
        """Close the connections that rest; the others close when they have their answer, streams when they end."""
        for one in self.connections():
            if not (isinstance(one, Socket) and not one.close_sent):
                one.shutdown()

    def connections(self) -> list[Connection | Socket]:
        return [one for one in self._state.connections if isinstance(one, Connection | Socket)]

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """The requests that are being answered."""
        return self._state.tasks
