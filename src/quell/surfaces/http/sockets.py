"""The sockets that the server listens on: bound before anything slow, and refused with one sentence.

The Unix socket is replaced only by whoever holds the state directory's lock, however deep that directory is.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import UsageError

API = "api.sock"
"""In the state directory."""
BACKLOG = 1024
LOOPBACK = "127.0.0.1"
_EVERYWHERE = {"0.0.0.0": LOOPBACK, "::": "::1"}
_PEER = struct.Struct("3i")


class PortTakenError(UsageError):
    """Somebody listens on that port already."""


def listen_tcp(address: str, port: int) -> socket.socket:
    """Listening at once: only so is the port ours. Who connects is answered when the server is up."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTakenError(
                f"port {port} is taken by another program; --port 0 takes any that is free, --port N another"
            ) from None
        if error.errno == errno.EACCES:
            raise UsageError(f"port {port} is for root only; choose one above 1023 with --port") from None
        raise UsageError(f"this machine cannot listen on {address}: {error.strerror}; name one that it has") from None
    return sock


def listen_unix(folder: str) -> socket.socket:
    """For the owner of the state directory: what lies there is of one that was killed."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(folder) as path:
            remove(folder)
            sock.bind(path)
            os.chmod(path, 0o600)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise UsageError(f"no socket can be made in {folder}: {error.strerror}") from None
    return sock


def connect_unix(folder: str, limit: float | None = None) -> socket.socket:
    """To the server of a state directory. OSError where there is none."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(limit)
        with _short(folder) as path:
            sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock


def remove(folder: str) -> None:
    try:
        os.unlink(os.path.join(folder, API))
    except FileNotFoundError:
        return


def peer(sock: socket.socket) -> tuple[int, int]:
    """Process and user at the other end of a Unix socket."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, uid, _ = _PEER.unpack(raw)
    return pid, uid


def is_ours(sock: socket.socket) -> bool:
    """Whether the same user, or root, is at the other end."""
    try:
        return peer(sock)[1] in (os.geteuid(), 0)
    except OSError:
        return False


def url_of(address: str, port: int) -> str:
    """Where a browser on this machine finds it."""
    name = _as_browsers_write(address)
    return f"http://{_at(_EVERYWHERE.get(name, name), port)}/"


def hosts_of(address: str, port: int) -> frozenset[str]:
    """Every `Host` that a request may name: this machine to itself, and the address that was asked for."""
    names = {LOOPBACK, "::1", "localhost", _as_browsers_write(address)}
    bare = {name for name in names if port == 80}  # browsers leave it out then
    return frozenset(_at(name, port) for name in names) | frozenset(f"[{one}]" if ":" in one else one for one in bare)


def _as_browsers_write(address: str) -> str:
    """Names in small letters, addresses in their shortest form: a `Host` is compared as it is."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address.lower()


def _at(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextmanager
def _short(folder: str) -> Iterator[str]:
    """A path to the socket that is short enough for the kernel, however deep its folder is."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{API}"
    finally:
        os.close(fd)
