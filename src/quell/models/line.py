"""A connection to a provider, for one request at a time. One that ends well leaves it to the next, in a scope's hands.

A request that does not end well ends its connection too, however it is left: the server sees it at once. What is
connected is known before anybody uses it, so that a cancel in the middle of a TLS handshake leaves no socket behind. No
answer, be it an error, is read without an end.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ScopeStoppedError
from . import sse

if TYPE_CHECKING:
    import ssl

    import httpx2

CONNECT = 10.0
SILENT = 600.0
"""Seconds without a byte until a peer counts as dead. A model that thinks for long is the user's to stop."""
KEPT = 60.0
"""Seconds that a connection waits for another request: as long as most tools take. Few servers wait longer."""
SPARE = 8
"""Connections that wait, at most: sub-agents that ask at the same time."""


class Owner(Protocol):
    """What is asked of a scope."""

    async def enter(self, manager: AbstractAsyncContextManager[None]) -> None: ...

    def task(self, coroutine: Coroutine[Any, Any, None], *, name: str | None = None) -> object: ...


class Line:
    """A client with one connection. `whole` is set once the answer was read to its end: another may follow."""

    def __init__(self, verify: ssl.SSLContext) -> None:
        import httpx2

        self.whole = False
        self.used = False
        """Whether it has carried a request before this one."""
        self.due: asyncio.TimerHandle | None = None
        self._streams: list[Any] = []
        self.http = httpx2.AsyncClient(
            verify=verify,
            timeout=httpx2.Timeout(SILENT, connect=CONNECT),
            limits=httpx2.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=None),
            follow_redirects=False,  # a key goes nowhere but where it was meant for
            event_hooks={"request": [self._watch], "response": [_bound]},
        )

    async def _watch(self, request: httpx2.Request) -> None:
        request.extensions = {**request.extensions, "trace": self._seen}

    async def _seen(self, name: str, info: dict[str, Any]) -> None:
        if name.endswith(".connect_tcp.complete"):
            self._streams.append(info["return_value"])

    @property
    def lives(self) -> bool:
        """Whether the other side still holds it: nothing can be read of one that waits but its end."""
        return len(self._streams) == 1 and not self._streams[0].get_extra_info("is_readable")

    async def close(self) -> None:
        if self.due is not None:
            self.due.cancel()
        try:
            await _hang_up(self._streams)
        finally:
            await self.http.aclose()


class Lines:
    """The connections of one model. Without a scope each is for one request only."""

    def __init__(self, verify: ssl.SSLContext, scope: Owner | None = None) -> None:
        self._verify = verify
        self._scope = scope
        self._asked = False
        self._owned = False
        self._waiting: list[tuple[str, Line]] = []

    @asynccontextmanager
    async def to(self, place: str) -> AsyncIterator[Line]:
        await self._own()
        line = await self._waited(place) or Line(self._verify)
        try:
            yield line
        finally:
            if not (line.whole and self._keep(place, line)):
                await line.close()

    # -- those that wait

    async def _own(self) -> None:
        """Have the scope close what waits, before anything does."""
        if self._scope is None or self._asked:
            return
        self._asked = True
        try:
            await self._scope.enter(self._owning())
        except ScopeStoppedError:
            pass  # then nothing waits
        except BaseException:
            self._asked = False
            raise

    @asynccontextmanager
    async def _owning(self) -> AsyncIterator[None]:
        self._owned = True
        try:
            yield
        finally:
            self._owned = False
            await self._close_all()

    async def _close_all(self) -> None:
        if self._waiting:
            try:
                await self._waiting.pop()[1].close()
            finally:
                await self._close_all()

    async def _waited(self, place: str) -> Line | None:
        """The latest that lives: it is the likeliest to do so for long enough."""
        for entry in reversed(self._waiting.copy()):
            where, line = entry
            if where == place and entry in self._waiting:  # another may have taken it while we closed one
                self._waiting.remove(entry)
                if line.lives:
                    assert line.due is not None
                    line.due.cancel()
                    line.whole, line.used = False, True
                    return line
                await line.close()
        return None

    def _keep(self, place: str, line: Line) -> bool:
        """In one step with the end of its request: there is no moment in which it is nobody's."""
        if not self._owned or len(self._waiting) >= SPARE or not line.lives:
            return False
        line.http.cookies.clear()  # what a server remembers of one request is nothing for another
        entry = place, line
        self._waiting.append(entry)
        nobody = contextvars.Context()  # else it would hold on to the turn that made it
        line.due = asyncio.get_running_loop().call_later(KEPT, self._retire, entry, context=nobody)
        return True

    def _retire(self, entry: tuple[str, Line]) -> None:
        async def retire() -> None:
            if entry in self._waiting:  # else it is somebody else's by now
                self._waiting.remove(entry)
                await entry[1].close()

        assert self._scope is not None
        try:
            self._scope.task(retire(), name="an unused connection")
        except ScopeStoppedError:
            pass  # which closes it


async def _bound(response: httpx2.Response) -> None:
    streams_events = response.headers.get("content-type", "").startswith("text/event-stream")
    if response.is_error or not streams_events:  # who reads events counts
        response.stream = _bounded()(response.stream)


@functools.cache
def _bounded() -> Any:
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        """The same, and no longer than any answer is."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = sse.MOST
            async with aclosing(aiter(self._stream)) as parts:
                async for part in parts:
                    left -= len(part)
                    if left < 0:
                        raise sse.Garbled(sse.TOO_LONG)
                    yield part

        async def aclose(self) -> None:
            await self._stream.aclose()

    return Bounded


async def _hang_up(streams: list[Any]) -> None:
    """The first step of closing one ends its connection: a second cancel comes too late to spare any."""
    if streams:
        try:
            await streams.pop().aclose()
        finally:
            await _hang_up(streams)
