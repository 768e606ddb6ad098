"""Messages and file descriptors over one Unix socket, without ever blocking on the other side."""

from __future__ import annotations

import marshal  # C, no import cost, and both ends are the same interpreter; nobody else has the socket
import select
import sys

from .light import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]

_HEADER = 8  # four bytes of length, four of how many descriptors come along
_CHUNK = 1 << 16
_FD = 4  # bytes of a descriptor in a control message; `array` would bring collections with it, 2 ms of every start
_CONTROL = socket.CMSG_SPACE(64 * _FD)
_LONGEST = 86400.0  # seconds; whoever waits longer waits again


def milliseconds(seconds: float | None) -> float | None:
    """For `poll`: rounded up, and never more than it can take."""
    return None if seconds is None else min(seconds, _LONGEST) * 1000 + 0.5


class Link:
    """One end. `closed` is set when the other end is gone; nothing is raised for it."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._out: list[tuple[bytes, list[int]]] = []
        self._in = bytearray()
        self._fds: list[int] = []
        self.closed = False

    @classmethod
    def of(cls, fd: int) -> Link:
        """The link over a socket that came as a bare descriptor, which it takes over."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def wants_write(self) -> bool:
        return bool(self._out) and not self.closed

    def send(self, message: Message, fds: tuple[int, ...] | list[int] = ()) -> None:
        """Queue and try to write at once. The descriptors stay the caller's until written: pass lasting ones."""
        body = marshal.dumps(message)
        header = len(body).to_bytes(4, "little") + len(fds).to_bytes(4, "little")
        for fd in fds:
            fd.to_bytes(_FD, sys.byteorder)  # what cannot be sent must not stand in the way of what can
        self._out.append((header + body, list(fds)))
        self.flush()

    def flush(self) -> None:
        while self._out and not self.closed:
            data, fds = self._out[0]
            rights = b"".join([fd.to_bytes(_FD, sys.byteorder) for fd in fds])
            control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if fds else []
            try:
                sent = self._sock.sendmsg([data], control, socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._lose()
                return
            if sent == len(data):
                self._out.pop(0)
            else:
                self._out[0] = (data[sent:], [])

    def _lose(self) -> None:
        """The other end may be there still: let it know, so that neither waits for the other."""
        self.closed = True
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def drain(self, seconds: float) -> None:
        """Write out what is queued, waiting for the other side no longer than this."""
        while self.wants_write:
            poller = select.poll()
            poller.register(self, select.POLLOUT)
            if not poller.poll(milliseconds(seconds)):
                return
            self.flush()

    def receive(self) -> list[tuple[Message, list[int]]]:
        """What has arrived whole, each message with its descriptors; `closed` may be set by a later call only."""
        while True:
            try:
                data, control, _, _ = self._sock.recvmsg(_CHUNK, _CONTROL, socket.MSG_CMSG_CLOEXEC)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self.closed = True
                break
            for level, kind, payload in control:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    starts = range(0, len(payload) - _FD + 1, _FD)
                    self._fds += [int.from_bytes(payload[at : at + _FD], sys.byteorder) for at in starts]
            if not data:
                self.closed = True
                break
            self._in += data
            if len(data) < _CHUNK:  # what is left, if anything, wakes its reader again
                break
        return self._whole()

    def _whole(self) -> list[tuple[Message, list[int]]]:
        messages = []
        while len(self._in) >= _HEADER:
            size = int.from_bytes(self._in[:4], "little")
            count = int.from_bytes(self._in[4:8], "little")
            if len(self._in) < _HEADER + size:
                break
            body = bytes(self._in[_HEADER : _HEADER + size])
            del self._in[: _HEADER + size]
            fds, self._fds = self._fds[:count], self._fds[count:]
            messages.append((marshal.loads(body), fds))
        return messages

    def close(self) -> None:
        self.closed = True
        self._sock.close()


def pair() -> tuple[Link, Link]:
    """Two ends of a fresh link."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Link(one), Link(other)
