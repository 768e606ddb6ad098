"""A server of its own thread that speaks to clients as LLM APIs do, and leaves nothing behind when it is closed.

No tasks and one thread, however many connections hang: what a test counts is the test's.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...errors import UsageError
from .answers import Answer, Answers, Wanted
from .connection import Connection
from .requests import ModelRequest

if TYPE_CHECKING:
    import asyncio
    from types import TracebackType

BOUND = 5.0
"""Seconds that a wait takes at most, where it is not told."""

_BACKLOG = 512


class ModelServer:
    """`with ModelServer(Says("Hello.")) as server`: the first request, to whichever API, is answered with `Hello.`

    `url` is what OpenAI's clients call the base URL, `root` what Anthropic's do. With a `key` clients have to show it,
    with `models` others are unknown, and with a `window` of tokens longer requests are refused.
    """

    def __init__(
        self,
        *script: Wanted,
        key: str = "",
        models: Sequence[str] = (),
        window: int = 0,
        port: int = 0,
    ) -> None:
        self.requests: list[ModelRequest] = []
        """All of them, in the order in which they came."""
        self.accepted = 0
        """The connections that clients have made so far."""
        self._answers = Answers(key=key, models=models, window=window)
        self._answers.script += script
        self._port = port
        self._connections: set[Connection] = set()
        self._broken: Exception | None = None
        self._news = threading.Condition()
        self._watchers: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._closing = False
        self._thread: threading.Thread | None = None

    # -- what it answers

    def will(self, *replies: Wanted) -> ModelServer:
        """Answer the next requests with these, one each. A function is given the request and gives the reply."""
        self._answers.script += replies
        return self

    def otherwise(self, reply: Wanted | None) -> ModelServer:
        """Answer with this when there is no other reply left; None is as the scripted model does."""
        self._answers.otherwise = reply
        return self

    @property
    def unused(self) -> int:
        """Replies that nobody has asked for yet."""
        return len(self._answers.script)

    # -- where it is

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    # -- what it sees

    @property
    def open(self) -> list[ModelRequest]:
        """The requests that are being answered now."""
        return [request for request in self.requests if not request.ended]

    @property
    def connections(self) -> int:
        """The connections that clients have now, also those that wait for another request."""
        return len(self._connections)

    @property
    def refused(self) -> list[str]:
        """What was wrong with requests, as the client was told."""
        return [request.refused for request in self.requests if request.refused]

    def wait_request(self, n: int = 1, bound: float = BOUND) -> ModelRequest:
        """The n-th request, when it is here."""
        self._wait(lambda: len(self.requests) >= n, bound, f"request number {n}")
        return self.requests[n - 1]

    def wait_pieces(self, pieces: int, n: int = 1, bound: float = BOUND) -> ModelRequest:
        """The n-th request, when so many pieces of its answer are sent."""
        self._wait(self._has_pieces(pieces, n), bound, f"{pieces} pieces of the answer to request number {n}")
        return self.requests[n - 1]

    def wait_closed(self, bound: float = BOUND) -> list[ModelRequest]:
        """When no answer is under way: the requests that the client left before their end."""
        self._wait(lambda: not self.open, bound, "the end of every answer")
        return [request for request in self.requests if request.ended == "left"]

    def wait_alone(self, bound: float = BOUND) -> None:
        """When no client has a connection any more, be it one that waits for another request."""
        self._wait(lambda: not self._connections, bound, "the end of every connection")

    async def requested(self, n: int = 1, bound: float = BOUND) -> ModelRequest:
        """As `wait_request`, in a loop."""
        await self._watch(lambda: len(self.requests) >= n, bound, f"request number {n}")
        return self.requests[n - 1]

    async def sent(self, pieces: int, n: int = 1, bound: float = BOUND) -> ModelRequest:
        """As `wait_pieces`, in a loop."""
        await self._watch(self._has_pieces(pieces, n), bound, f"{pieces} pieces of the answer to request number {n}")
        return self.requests[n - 1]

    async def closed(self, bound: float = BOUND) -> list[ModelRequest]:
        """As `wait_closed`, in a loop."""
        await self._watch(lambda: not self.open, bound, "the end of every answer")
        return [request for request in self.requests if request.ended == "left"]

    async def alone(self, bound: float = BOUND) -> None:
        """As `wait_alone`, in a loop."""
        await self._watch(lambda: not self._connections, bound, "the end of every connection")

    def _has_pieces(self, pieces: int, n: int) -> Callable[[], bool]:
        return lambda: len(self.requests) >= n and self.requests[n - 1].pieces >= pieces

    def _wait(self, fact: Callable[[], bool], bound: float, what: str) -> None:
        with self._news:
            if not self._news.wait_for(fact, bound):
                raise TimeoutError(self._missing(what, bound))

    async def _watch(self, fact: Callable[[], bool], bound: float, what: str) -> None:
        import asyncio

        happened = asyncio.Event()
        watcher = asyncio.get_running_loop(), happened
        with self._news:
            self._watchers.append(watcher)
        try:
            async with asyncio.timeout(bound):
                while not fact():
                    happened.clear()
                    if not fact():
                        await happened.wait()
        except TimeoutError:
            raise TimeoutError(self._missing(what, bound)) from None
        finally:
            with self._news:
                self._watchers.remove(watcher)

    def _missing(self, what: str, bound: float) -> str:
        return f"{what} did not come within {bound:g} s: {len(self.requests)} requests, {len(self.open)} open"

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()
            for loop, happened in self._watchers:
                try:
                    loop.call_soon_threadsafe(happened.set)
                except RuntimeError:  # it was closed while one waited in it
                    pass

    # -- its life

    def __enter__(self) -> ModelServer:
        if self._thread is not None:
            raise UsageError("this model server was started before: make another")
        self._listening = socket.create_server(("127.0.0.1", self._port), backlog=_BACKLOG)
        self._port = self._listening.getsockname()[1]
        self._listening.setblocking(False)
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="quell-model-server", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            for each in (self._listening, self._wake, self._woken):
                each.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self._broken is not None and error is None:
            raise self._broken

    def close(self) -> None:
        """Close every connection, whatever is under way there, and end the thread. May be called twice."""
        if self._thread is None or self._closing:
            return
        self._closing = True
        self._wake.close()  # whose other end is what the thread wakes by
        self._thread.join()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector, self._listening, self._woken:
            selector.register(self._listening, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            try:
                while not self._closing:
                    self._turn(selector)
            finally:
                for connection in self._connections:
                    connection.close("cut")
                self._connections.clear()
                self._tell()

    def _turn(self, selector: selectors.BaseSelector) -> None:
        """Wait for what can be done, and do it."""
        dues = [connection.due for connection in self._connections if connection.due is not None]
        events = selector.select(max(0.0, min(dues) - time.monotonic()) if dues else None)
        ready = {key.data: mask for key, mask in events if key.data is not None}
        if any(key.fileobj is self._listening for key, _ in events):
            self._accept(selector)
        for connection in list(self._connections):
            if connection not in ready and connection.due is None:
                continue
            try:
                connection.turn(ready.get(connection, 0))
            except Exception as error:  # noqa: BLE001  a reply that cannot be sent fails the test at the end, not the thread
                self._broken = error
                connection.close("cut")
            self._settle(connection, selector)

    def _settle(self, connection: Connection, selector: selectors.BaseSelector) -> None:
        if connection.closed:
            selector.unregister(connection.link)
            self._connections.discard(connection)
            self._tell()
        elif selector.get_key(connection.link).events != connection.wants:
            selector.modify(connection.link, connection.wants, connection)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            link, _ = self._listening.accept()
        except OSError:  # the client is gone already
            return
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(link, self._ask, self._tell)
        self.accepted += 1
        self._connections.add(connection)
        selector.register(link, connection.wants, connection)

    def _ask(self, request: ModelRequest) -> Answer:
        try:
            answer = self._answers.answer(request)
            request.refused = answer.refused
            return answer
        finally:
            self.requests.append(request)
            self._tell()
