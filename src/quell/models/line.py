"""One HTTP client for one request. When it is left, by whatever way, the server sees the connection closed. No answer,
be it an error, is read without an end.

What is connected is known before anybody uses it: a cancel in the middle of a TLS handshake leaves no socket behind.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

from . import sse

if TYPE_CHECKING:
    import ssl

    import httpx2

CONNECT = 10.0
SILENT = 600.0
"""Seconds without a byte until a peer counts as dead. A model that thinks for long is the user's to stop."""


@asynccontextmanager
async def line(verify: ssl.SSLContext) -> AsyncIterator[httpx2.AsyncClient]:
    import httpx2

    streams: list[Any] = []

    async def seen(name: str, info: dict[str, Any]) -> None:
        if name.endswith(".connect_tcp.complete"):
            streams.append(info["return_value"])

    async def watch(request: httpx2.Request) -> None:
        request.extensions = {**request.extensions, "trace": seen}

    async def bound(response: httpx2.Response) -> None:
        streams_events = response.headers.get("content-type", "").startswith("text/event-stream")
        if response.is_error or not streams_events:  # who reads events counts
            response.stream = _bounded()(response.stream)

    client = httpx2.AsyncClient(
        verify=verify,
        timeout=httpx2.Timeout(SILENT, connect=CONNECT),
        follow_redirects=False,  # a key goes nowhere but where it was meant for
        event_hooks={"request": [watch], "response": [bound]},
    )
    try:
        yield client
    finally:
        try:
            await _hang_up(streams)
        finally:
            await client.aclose()


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
