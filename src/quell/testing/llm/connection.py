"""One connection of a client: requests come in and are answered in turn, each as slowly or badly as its reply wants.

It owns its socket and nothing else, never blocks, and is turned by the thread of the server.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from .requests import Ended, ModelRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from .answers import Answer
    from .replies import Ending

_READ = 1 << 16
_AHEAD = 1 << 16  # bytes that are made ready at most before they can be sent
_LONGEST_HEAD = 1 << 16


class Connection:
    """`ask` is given each request, and gives its answer. `news` is called whenever it got further."""

    def __init__(self, link: socket.socket, ask: Callable[[ModelRequest], Answer], news: Callable[[], None]) -> None:
        self.link = link
        self.closed = False
        self.due: float | None = None
        """When it wants to be turned though nothing can be read or written."""
        self._ask = ask
        self._news = news
        self._in = bytearray()
        self._out = bytearray()
        self._request: ModelRequest | None = None
        self._answer: Answer | None = None
        self._made = 0  # bytes of the body
        self._then: Ending | None = None
        """What is done when all that is ready is sent; None while there is more to make ready."""

    @property
    def wants(self) -> int:
        """The events of its socket that it waits for. It always reads, for that is how it sees that the client left."""
        more = self._answer is not None and self._then != "hang" and self.due is None
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out or more else 0)

    def turn(self, mask: int) -> None:
        try:
            if mask & selectors.EVENT_READ:
                self._read()
            if self.due is not None and self.due <= time.monotonic():
                self.due = None
                self._fill()
            if not self.closed and self.wants & selectors.EVENT_WRITE:
                self._write()
        except BlockingIOError:
            pass
        except OSError:  # reset by the client
            self.close("left")

    def close(self, how: Ended = "cut", *, reset: bool = False) -> None:
        if self.closed:
            return
        self.closed = True
        if reset:
            self.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._end(how)
        self.link.close()

    # -- in

    def _read(self) -> None:
        data = self.link.recv(_READ)
        if not data:
            self.close("left")
            return
        self._in += data
        self._begin()

    def _begin(self) -> None:
        """Begin to answer the next request, if it is all here and the last one has its answer."""
        if self.closed or self._request is not None:
            return
        end = self._in.find(b"\r\n\r\n")
        if end < 0:
            if len(self._in) > _LONGEST_HEAD:
                self.close()
            return
        first, *lines = self._in[:end].decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = headers.get("content-length", "0")
        if not length.isdigit() or "transfer-encoding" in headers or first.count(" ") != 2:
            self.close()  # no client of these APIs speaks so
            return
        start = end + 4
        if len(self._in) < start + int(length):
            return
        method, target, _ = first.split(" ")
        try:
            body = msgspec.json.decode(bytes(self._in[start : start + int(length)]) or b"null")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            body = None
        del self._in[: start + int(length)]
        self._request = ModelRequest(method, target.partition("?")[0], headers, body)
        self._answer = self._ask(self._request)
        self._made = 0
        self._then = None
        if not self._breaks_at(None):
            self._out += _head(self._answer)
            self._breaks_at(0)
            self._wait()

    # -- out

    def _wait(self) -> None:
        """A slow answer waits before each piece."""
        if self._answer is not None and self._answer.pace and self._then is None:
            self.due = time.monotonic() + self._answer.pace

    def _fill(self) -> None:
        """Make pieces ready: one if the answer is slow, else as many as are enough to send."""
        request, answer = self._request, self._answer
        assert request is not None and answer is not None
        made = 0
        while self._then is None and len(self._out) < _AHEAD and not (made and answer.pace):
            data, piece = next(answer.pieces, (b"", False))
            if not data:
                self._finish(answer)
                return
            self._out += data if answer.length is not None else b"%x\r\n%b\r\n" % (len(data), data)
            self._made += len(data)
            if piece:
                made += 1
                request.pieces += 1
                if self._breaks_at(request.pieces):
                    return
            if self._made == answer.length:
                self._finish(answer)
        self._wait()

    def _finish(self, answer: Answer) -> None:
        self._out += b"" if answer.length is not None else b"0\r\n\r\n"
        self._then = "end"

    def _breaks_at(self, pieces: int | None) -> bool:
        """Whether the answer breaks off here; nothing more is made ready then."""
        answer = self._answer
        assert answer is not None
        if answer.ending is None or answer.after != pieces:
            return False
        if answer.ending == "end" and pieces is not None and answer.length is None:
            self._finish(answer)
        else:
            self._then = "close" if answer.ending == "end" else answer.ending
        return True

    def _write(self) -> None:
        if not self._out and self._then is None:
            self._fill()
        if self._out:
            self._send()
        if self._out or self._then is None or self._then == "hang":
            return
        if self._then != "end":
            self.close("cut", reset=self._then == "reset")
            return
        request = self._request
        assert request is not None
        self._end(self._outcome())
        if request.headers.get("connection", "").lower() == "close":
            self.close()
        self._begin()

    def _send(self) -> None:
        """As much as goes. A client that has the end of its answer finds the request ended: it is so before it goes."""
        request = self._request
        assert request is not None
        if self._then == "end":
            request.ended_at, request.ended = time.monotonic(), self._outcome()
        try:
            del self._out[: self.link.send(self._out)]
        finally:
            if self._out:
                request.ended = ""
            self._news()

    def _outcome(self) -> Ended:
        return "answered" if self._answer is not None and self._answer.ending is None else "cut"

    def _end(self, how: Ended) -> None:
        request, self._request, self._answer, self.due = self._request, None, None, None
        if request is not None and not request.ended:
            request.ended_at = time.monotonic()
            request.ended = how
        self._news()


def _head(answer: Answer) -> bytes:
    length = "transfer-encoding: chunked" if answer.length is None else f"content-length: {answer.length}"
    headers = [f"{name}: {value}" for name, value in answer.headers.items()]
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:  # 529 is nobody's but theirs
        phrase = "Overloaded"
    return "\r\n".join([f"HTTP/1.1 {answer.status} {phrase}", *headers, length, "", ""]).encode("latin-1")
