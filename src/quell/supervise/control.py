"""A supervisor's control socket, and the thread that listens on it: a stop does not need the event loop (H25).

The thread also sees to stops that the loop began and cannot go on with, because something in it blocks.
One JSON line is asked, one is answered.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import NoSupervisorError, QuellError, UsageError
from .hub import Hub
from .ledger import state_dir
from .receipt import Receipt
from .state import CONTROL, StateFolder
from .stopping import LAST_LOOK, SLACK

if TYPE_CHECKING:
    from .scope import Scope
    from .shared import Shared
    from .stopping import Stop
    from .supervisor import Supervisor

_LONGEST = 1 << 16  # bytes of a question
_TICK = 0.05  # seconds between two looks at a stop that the loop does not see to
_LOOK = 3600.0  # seconds between two looks at nothing: a poll cannot be told of more than some days
_FLUSH = 1.0  # seconds to hand over the last answers
_PATIENCE = 0.2  # seconds for a client to read its answer
_log = logging.getLogger("quell")


class Listener(threading.Thread):
    """Makes the hub, listens, and takes the hub down again: what may wait waits here and not in the loop."""

    def __init__(
        self, shared: Shared, root: Supervisor, named: str | None, ready: Callable[[Hub | Exception], None]
    ) -> None:
        super().__init__(name="quell control", daemon=True)
        self._shared = shared
        self._root = root
        self._named = named
        self._ready = ready
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._bell_lock = threading.Lock()
        try:
            self._reserve = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(self._bell)
            raise
        self._poller = select.poll()
        self._clients: dict[int, Client] = {}
        self._ending = False
        self.folder: StateFolder | None = None
        self._ended: Callable[[], object] = lambda: None

    def wake(self) -> None:
        """From any thread: there is something to see to."""
        with self._bell_lock:
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)

    def end(self, ended: Callable[[], object]) -> None:
        """Take everything down, and call this when that is done."""
        with self._bell_lock:
            over = self._bell < 0
            self._ended, self._ending = ended, True
        if over:
            ended()
        else:
            self.wake()

    def run(self) -> None:
        hub: Hub | None = None
        server: socket.socket | None = None
        try:
            self.folder = StateFolder(self._named)
            server = _listen(self.folder.path)
            hub = Hub(self._shared.contain, self.folder.ledger)
            self._ready(hub)
            self._serve(server, hub)
        except Exception as error:  # noqa: BLE001  a boundary: told to whoever starts the supervisor
            self._ready(error)
        finally:
            try:
                with contextlib.ExitStack() as stack:  # in reverse, each whatever the others raise
                    if self.folder is not None:
                        stack.callback(self.folder.close)
                    if hub is not None:
                        stack.callback(hub.close)
                    if server is not None:
                        stack.callback(server.close)
                    for client in self._clients.values():
                        stack.callback(client.close)
            finally:
                with self._bell_lock:
                    os.close(self._bell)
                    self._bell = -1
                os.close(self._reserve)
                self._ended()

    def _serve(self, server: socket.socket, hub: Hub) -> None:
        self._poller.register(self._bell, select.POLLIN)
        self._poller.register(server, select.POLLIN)
        deadline = float("inf")
        while True:
            ready = {fd for fd, _ in self._poller.poll(self._wait() * 1000)}
            if self._bell in ready:
                os.eventfd_read(self._bell)
            if server.fileno() in ready:
                self._accept(server)
            for fd in [fd for fd in ready if fd in self._clients]:
                self._hear(self._clients[fd])
            try:
                self._stand_in(hub)
                self._answer()
            except Exception:  # noqa: BLE001  a boundary: this thread is what stops rely on, and goes on
                _log.exception("the thread for stops met a fault of its own")
            if self._ending:
                deadline = min(deadline, time.monotonic() + _FLUSH)
                if time.monotonic() >= deadline or not any(client.busy for client in self._clients.values()):
                    return

    def _wait(self) -> float:
        """Seconds until something must be looked at."""
        now = time.monotonic()
        times = [stop.due if now < stop.due else now + _TICK for stop in list(self._shared.stops)]
        return max(0.0, min([*times, now + _LOOK]) - now) if not self._ending else _TICK

    def _stand_in(self, hub: Hub) -> None:
        """For stops that the loop should have gone on with by now."""
        now = time.monotonic()
        late = [stop for stop in list(self._shared.stops) if now >= stop.due]
        for stop in late:
            stop.ask_trees()
        if late:
            hub.pump()
            hub.look_at_late()

    # -- clients

    def _accept(self, server: socket.socket) -> None:
        try:
            sock, _ = server.accept()
        except BlockingIOError:
            return
        except OSError:  # no descriptor is left: turn it away with the one in reserve, or it would be asked for again
            os.close(self._reserve)
            with contextlib.suppress(OSError):
                server.accept()[0].close()
            self._reserve = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
            return
        client = Client(sock)
        if not client.is_ours():
            client.close()
            return
        self._clients[sock.fileno()] = client
        self._poller.register(sock, select.POLLIN)

    def _hear(self, client: Client) -> None:
        question = client.read()
        if question is not None:
            try:
                client.stop = self._obey(question)
            except QuellError as error:
                client.answer({"error": str(error)})
            except Exception as error:  # noqa: BLE001  a boundary: told to who asked; the thread goes on
                client.answer({"error": f"the stop could not be begun: {type(error).__name__}: {error}"})
        if client.closed and not client.busy:
            self._drop(client)
        elif client.closed:  # it has said all that it will say, and still waits for the answer
            self._poller.unregister(client.sock)
            client.deaf = True

    def _obey(self, question: dict[str, Any]) -> Stop:
        if question.get("op") != "stop":
            raise UsageError(f"there is no {question.get('op')!r} to ask for: ask to stop")
        scope = self._find(str(question.get("scope") or ""))
        reason, grace = str(question.get("reason") or "stop"), question.get("grace")
        stop = scope.plan_stop(reason, grace, bool(question.get("force")))
        self._shared.loop.call_soon_threadsafe(self._root.take_up, stop)
        return stop

    def _find(self, path: str) -> Scope:
        scope: Scope = self._root
        for name in path.strip("/").split("/") if path.strip("/") else ():
            found = scope.find(name)
            if found is None:
                raise UsageError(f"there is no scope {path!r}: it has ended, or never was")
            scope = found
        return scope

    def _answer(self) -> None:
        now = time.monotonic()
        for client in list(self._clients.values()):
            stop = client.stop
            if stop is None:
                continue
            if stop.result.known:
                client.answer({"receipt": stop.result.get().to_json()})
            elif stop.trees_settled:
                client.settled = client.settled or now
                if now > max(client.settled, stop.ask_until) + LAST_LOOK + SLACK:
                    client.answer({"receipt": stop.receipt(blocked=self._shared.loop_thread).to_json()})
            if client.deaf and not client.busy:
                self._drop(client)

    def _drop(self, client: Client) -> None:
        fd = client.sock.fileno()
        if not client.deaf:
            self._poller.unregister(fd)
        del self._clients[fd]
        client.close()


class Client:
    """One connection: a question, then its answer."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.stop: Stop | None = None
        self.settled = 0.0
        self.closed = False
        self.deaf = False  # it is not listened to any more
        self._in = b""

    @property
    def busy(self) -> bool:
        return self.stop is not None

    def is_ours(self) -> bool:
        """Whether the same user, or root, is at the other end."""
        raw = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return struct.unpack("3i", raw)[1] in (os.geteuid(), 0)

    def read(self) -> dict[str, Any] | None:
        """The question, once it is there whole."""
        try:
            data = self.sock.recv(_LONGEST)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            data = b""
        self._in += data
        self.closed = not data or len(self._in) > _LONGEST
        line, end, self._in = self._in.partition(b"\n")
        if not end:
            self._in = line
            return None
        try:
            question = json.loads(line)
        except ValueError:
            question = None
        return question if isinstance(question, dict) else {}

    def answer(self, body: dict[str, Any]) -> None:
        self.stop = None
        try:
            self.sock.setblocking(True)
            self.sock.settimeout(_PATIENCE)  # one that does not read gets no answer, and holds nobody up for longer
            self.sock.sendall(json.dumps(body).encode() + b"\n")
            self.sock.setblocking(False)
        except OSError:
            self.closed = True

    def close(self) -> None:
        self.sock.close()


def _listen(folder: str) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _Short(folder) as path:
            if os.path.lexists(path):  # of an owner that was killed: the lock says that there is no other
                os.unlink(path)
            server.bind(path)
            os.chmod(path, 0o600)
        server.listen()
        server.setblocking(False)
    except BaseException:
        server.close()
        raise
    return server


class _Short:
    """A path to the socket that is short enough for the kernel, however deep its folder is."""

    def __init__(self, folder: str) -> None:
        self._fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> str:
        return f"/proc/self/fd/{self._fd}/{CONTROL}"

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def ask_stop(
    folder: str | None = None,
    *,
    scope: str = "",
    reason: str = "stop",
    grace: float | None = None,
    force: bool = False,
    timeout: float | None = None,
) -> Receipt:
    """Stop a supervisor, or the scope with this path in it, from any thread or process; waits for the receipt.

    It works while the supervisor's event loop is blocked. NoSupervisorError says that nobody is there.
    """
    where = folder or state_dir()
    question = {"op": "stop", "scope": scope, "reason": reason, "grace": grace, "force": force}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout)
        try:
            with _Short(where) as path:
                sock.connect(path)
            sock.sendall(json.dumps(question).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                data = sock.recv(_LONGEST)
                if not data:
                    raise NoSupervisorError(f"the supervisor in {where} ended before it answered")
                answer += data
        except TimeoutError:
            raise NoSupervisorError(f"the supervisor in {where} did not answer within {timeout:g} s") from None
        except OSError:
            raise NoSupervisorError(f"no supervisor listens in {where}: it has ended, or uses another") from None
    body = json.loads(answer)
    if "error" in body:
        raise UsageError(body["error"])
    return Receipt.from_json(body["receipt"])
