"""A model behind HTTP: asked by its SDK, read from the bytes of the stream, with patience, and closed at once.

The SDK builds, signs and sends the request. Its own iterators are not used: closed half-way they leave the end of the
connection to the garbage collector.
"""

from __future__ import annotations

import asyncio
import importlib
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ..config import Provider
from ..errors import ModelError
from ..events import ToolCall
from ..ports import Anew, Ask, Chunk, Message, Notice, Text, ToolSpec
from .endpoint import Endpoint, bare, endpoint_of
from .faults import garbled, of_connection, of_status, was_lost
from .line import Line, Lines, Owner
from .patience import Passing, Patience, patient
from .sse import Garbled, read

if TYPE_CHECKING:
    import httpx2

Json = dict[str, Any]
DONE = "[DONE]"
LAST = 0.1
"""Seconds for the end of a stream after the end of its answer. A server that keeps it open loses the connection."""


class Broken(Exception):
    """An error that came as a part of the stream."""

    def __init__(self, body: object) -> None:
        super().__init__()
        self.body = body


class Reader(Protocol):
    """Makes chunks of the events of one answer."""

    over: bool
    """The answer is whole: nothing more is read."""

    def take(self, data: Json) -> Iterator[Chunk]:
        """Broken, if it is an error."""
        ...

    def end(self) -> Iterator[Chunk]:
        """What is left to say once all was read."""
        ...


class Response(Protocol):
    """What an SDK gives for a request whose answer is streamed."""

    @property
    def http_response(self) -> httpx2.Response: ...


class Api(Protocol):
    """One way to ask a provider, by its SDK."""

    def body(self, ask: Ask, endpoint: Endpoint) -> Json: ...

    def reader(self, ask: Ask, endpoint: Endpoint, provider: Provider) -> Reader: ...

    def send(self, http: httpx2.AsyncClient, endpoint: Endpoint, body: Json) -> AbstractAsyncContextManager[Response]:
        """Raises what its SDK raises."""
        ...

    def spare(self, body: Json, words: str) -> bool:
        """Take out of it what a server refused, where it can be done without; False where there is nothing."""
        ...


class Sdk(Protocol):
    """What the factory of a model made, in a thread: the SDK is imported, and its parts that come later too."""

    verify: ssl.SSLContext
    errors: tuple[type[Exception], ...]
    """Of the SDK, and of the HTTP client below it."""

    def api(self, provider: Provider, endpoint: Endpoint) -> Api: ...


def rehearse(sdk: Sdk, *providers: Provider) -> None:
    """Ask nobody, once: what is imported and made at the first use is so in this thread, not in the loop (H25)."""
    import httpx2

    for name in ("anyio._backends._asyncio", "httpcore2._async.http11", "httpcore2._backends.anyio"):
        importlib.import_module(name)
    ask = Ask([Message("user", "?")], [ToolSpec("a", "", {})], "none")

    async def sent() -> None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: httpx2.Response(503))) as http:
            for provider in providers:
                endpoint = Endpoint("http://localhost", False)
                api = sdk.api(provider, endpoint)
                with suppress(*sdk.errors):
                    async with api.send(http, endpoint, api.body(ask, endpoint)):
                        pass

    asyncio.run(sent())


class Served:
    """Implements `ports.Model`. With a scope, connections are used again, and go with it."""

    def __init__(
        self, provider: Provider, sdk: Sdk, patience: Patience | None = None, scope: Owner | None = None
    ) -> None:
        self._provider = provider
        self._sdk = sdk
        self._patience = patience or Patience()
        self._lines = Lines(sdk.verify, scope)
        self._unknown: dict[tuple[str, str], list[str]] = {}
        """By address and model: the refusals of what it does not know, so that it is not asked for that again."""

    async def answer(self, ask: Ask) -> AsyncIterator[Chunk]:
        if not ask.model:
            name = self._provider.name
            raise ModelError(f"which model of {name}? Name it after a colon: {name}:MODEL")
        endpoint = endpoint_of(self._provider)
        api = self._sdk.api(self._provider, endpoint)
        body = api.body(ask, endpoint)
        for words in self._unknown.get((endpoint.url, ask.model), ()):
            api.spare(body, words)
        answered = False
        async with aclosing(patient(lambda: self._attempts(api, ask, endpoint, body), self._patience)) as chunks:  # type: ignore[type-var]  # an async generator has aclose
            async for chunk in chunks:
                yield chunk
                answered = not isinstance(chunk, Anew) and (answered or isinstance(chunk, Text | ToolCall))
        if not answered:
            yield Notice("the model gave no answer: it said nothing")

    async def _attempts(self, api: Api, ask: Ask, endpoint: Endpoint, body: Json) -> AsyncIterator[Chunk]:
        """One, and another for each thing that the server does not know and we can do without."""
        while True:
            try:
                async with (
                    self._lines.to(endpoint.url) as line,
                    aclosing(self._attempt(line, api, ask, endpoint, body)) as chunks,  # type: ignore[type-var]
                ):
                    async for chunk in chunks:
                        yield chunk
                return
            except _Stale:
                continue
            except _Unknown as error:
                refused = error
            if not api.spare(body, str(refused)):
                raise refused.fault
            self._unknown.setdefault((endpoint.url, ask.model), []).append(str(refused))

    async def _attempt(self, line: Line, api: Api, ask: Ask, endpoint: Endpoint, body: Json) -> AsyncIterator[Chunk]:
        reader = api.reader(ask, endpoint, self._provider)
        answered = False
        try:
            async with api.send(line.http, endpoint, body) as sent:
                answered = True
                response = sent.http_response
                await _check(response)
                async with aclosing(response.aiter_bytes()) as parts:
                    async with aclosing(read(parts)) as events:  # type: ignore[type-var]
                        async for data in events:
                            if data.startswith(DONE):
                                break
                            for chunk in reader.take(_decoded(data)):
                                yield chunk
                            if reader.over:
                                break
                    line.whole = await self._ends(parts)
            for chunk in reader.end():
                yield chunk
            return
        except Broken as error:
            fault: Exception = of_status(endpoint, ask.model, 0, error.body, {}, streamed=True)
        except Garbled as error:
            fault = ModelError(garbled(endpoint, str(error)))
        except self._sdk.errors as error:
            stale = line.used and not answered and was_lost(error)
            fault = _Stale() if stale else _told(endpoint, ask.model, error)
        raise fault  # outside, so that it does not carry the SDK's own error along, with the key in its request

    async def _ends(self, parts: AsyncIterator[bytes]) -> bool:
        """Whether nothing follows: then the connection can be used again. The answer is whole either way."""
        try:
            async with asyncio.timeout(LAST):
                async for _ in parts:
                    pass
        except (TimeoutError, Garbled):
            return False
        except self._sdk.errors:
            return False
        return True


class _Stale(Exception):
    """A connection that had waited was gone when it was wanted: another is as good as new."""


class _Unknown(Exception):
    """A request that is refused for what is in it: perhaps for something that can be left out."""

    def __init__(self, words: str, fault: Exception) -> None:
        super().__init__(words)
        self.fault = fault


def _told(endpoint: Endpoint, model: str, error: Exception) -> Exception:
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return of_connection(endpoint, error)
    response: httpx2.Response = error.response  # type: ignore[attr-defined]  # of every error with a status
    body = getattr(error, "body", None)
    asked = endpoint.masked(bare(str(response.request.url)))
    fault = of_status(endpoint, model, status, body, response.headers, asked=asked)
    return _Unknown(endpoint.masked(str(body)), fault) if status in (400, 422) and type(fault) is ModelError else fault


def _decoded(data: str) -> Json:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        raise Garbled("an event of it is no JSON") from None
    if not isinstance(value, dict):
        raise Garbled("an event of it is no JSON object")
    return value


async def _check(response: httpx2.Response) -> None:
    """Whether it is a stream at all: a wrong address is often answered with a page."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.startswith("text/html"):
        raise Garbled("it is a web page")
    if kind == "application/json":
        try:
            body = msgspec.json.decode(await response.aread())
        except (ValueError, RecursionError):  # no JSON, or not in UTF-8
            raise Garbled("it is no stream of events") from None
        if isinstance(body, dict) and body.get("error"):
            raise Broken(body)
        raise Garbled("it is no stream of events")


def ended_early() -> Passing:
    return Passing("the answer broke off")
