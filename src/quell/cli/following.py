"""Follow a server's events: one that reconnects goes on from its cursor, misses nothing and sees nothing twice.

Over plain sockets, so that a command can wait for its events and for the keyboard at once.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import QuellError
from .client import ANSWER, Client, MuteServerError, NoServerError, RefusedError, path, understood

Message = dict[str, Any]

QUIET = 45.0  # seconds without even a heartbeat, of which there is one every 15
RETRY = 0.2  # seconds between two looks for a server that is gone
_PIECE = 1 << 16


class Stream:
    """One connection: what comes in is bytes, what comes out are messages."""

    def __init__(self, sock: socket.socket, target: str) -> None:
        self.sock = sock
        self._raw = bytearray()
        self._text = bytearray()
        self._head: tuple[int, str, bool] | None = None
        self._left = 0  # bytes of the chunk that is being read
        self._over = False
        sock.settimeout(ANSWER)
        sock.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode())

    def read(self) -> list[Message]:
        """What one read brings. EOFError at the end, RefusedError if the server does not want to."""
        try:
            data = self.sock.recv(_PIECE)
        except TimeoutError:
            return []
        except OSError:
            data = b""
        self._raw += data
        if not data:
            self._over = True
        if self._head is None and not self._read_head():
            return self._at_end([])
        assert self._head is not None
        status, kind, chunked = self._head
        if chunked:
            self._dechunk()
        else:
            self._text += self._raw
            self._raw.clear()
        if status != 200:
            if self._over:
                understood(status, kind, bytes(self._text))
            return self._at_end([])
        return self._at_end(list(self._messages()))

    def _at_end(self, found: list[Message]) -> list[Message]:
        if self._over and not found:
            raise EOFError
        return found

    def _read_head(self) -> bool:
        head, end, rest = bytes(self._raw).partition(b"\r\n\r\n")
        if not end:
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        words = first.split()
        status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        chunked = fields.get("transfer-encoding", "").lower() == "chunked"
        self._head, self._raw = (status, fields.get("content-type", ""), chunked), bytearray(rest)
        return True

    def _dechunk(self) -> None:
        while self._raw and not self._over:
            if self._left == 0:
                start = 2 if self._raw.startswith(b"\r\n") else 0  # the end of the chunk before
                end = self._raw.find(b"\r\n", start)
                if end < 0:
                    return
                self._left = int(self._raw[start:end].split(b";")[0], 16)
                self._over = self._left == 0
                del self._raw[: end + 2]
                continue
            piece = self._raw[: self._left]
            self._text += piece
            self._left -= len(piece)
            del self._raw[: len(piece)]

    def _messages(self) -> Iterator[Message]:
        *blocks, rest = bytes(self._text).replace(b"\r\n", b"\n").split(b"\n\n")
        self._text = bytearray(rest)
        for block in blocks:
            lines = block.split(b"\n")
            data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
            kinds = [line[6:].strip().decode() for line in lines if line.startswith(b"event:")]
            if data:
                yield {"type": kinds[-1] if kinds else "events", **json.loads(b"\n".join(data))}


class Follower:
    """Events of a session, or of all; or with `board` the cards of all sessions, a snapshot first."""

    def __init__(self, client: Client, *, session: str = "", after: int | None = None, board: bool = False) -> None:
        self.cursor = after
        self.gone_since = 0.0
        """When the server was last lost; 0 while it is there."""
        self._client = client
        self._session = session
        self._board = board
        self._stream: Stream | None = None
        self._heard = 0.0
        self._connect()  # the first time its absence is an error

    def fileno(self) -> int:
        """To be waited on; -1 while there is no connection."""
        return -1 if self._stream is None else self._stream.sock.fileno()

    def take(self, limit: float) -> list[Message]:
        """What has come, within so many seconds. While the server is gone it is looked for."""
        if self._stream is None and not self._find(limit):
            return []
        assert self._stream is not None
        poller = select.poll()
        poller.register(self._stream.sock, select.POLLIN)
        if not poller.poll(limit * 1000):
            if time.monotonic() - self._heard > QUIET:
                self._lose()
            return []
        self._heard = time.monotonic()
        try:
            found = self._stream.read()
        except (EOFError, ValueError):
            self._lose()
            return []
        except RefusedError as error:
            if error.status < 500:
                raise
            self._lose()
            return []
        for message in found:
            if message["type"] in ("events", "snapshot"):
                self.cursor = message["seq"]
            elif message["type"] in ("cut", "bye"):
                self._lose()
                break
        return found

    def close(self) -> None:
        if self._stream is not None:
            self._stream.sock.close()
            self._stream = None

    def _find(self, limit: float) -> bool:
        try:
            self._connect()
        except (NoServerError, MuteServerError, RefusedError):
            time.sleep(min(limit, RETRY))
            return False
        return True

    def _connect(self) -> None:
        if self._board:
            target = path("events", board=1, events=0)
        else:
            target = path("events", session=self._session or None, after=self.cursor)
        sock = self._client.reach(ANSWER)
        try:
            self._stream = Stream(sock, target)
        except OSError:
            sock.close()
            raise self._client.lost() from None
        self._heard, self.gone_since = time.monotonic(), 0.0

    def _lose(self) -> None:
        self.close()
        self.gone_since = time.monotonic()


class Patience:
    """Says once that the server is gone, and once that it is back; gives up after `limit` seconds, if there is one."""

    def __init__(self, follower: Follower, say: Callable[[str], None], limit: float | None = None) -> None:
        self._follower = follower
        self._say = say
        self._limit = limit
        self._said = False

    def look(self) -> None:
        gone = self._follower.gone_since
        if gone and not self._said and time.monotonic() - gone > 2 * RETRY:
            self._said = True
            self._say("the server is gone; waiting for it to come back")
        elif not gone and self._said:
            self._said = False
            self._say("the server is back")
        if gone and self._limit is not None and time.monotonic() - gone > self._limit:
            raise QuellError(f"the server is gone, and did not come back within {self._limit:g} s")
