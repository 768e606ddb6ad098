"""The API of a real runtime in a test: on the runtime's own loop, or as in reality on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec

from quell.kernel.runtime import Runtime
from quell.surfaces.http.app import Parts, ServerInfo, build
from quell.surfaces.http.board import Board
from quell.surfaces.http.bridge import Bridge
from quell.surfaces.http.feed import Feed, pump
from quell.surfaces.http.keys import Keys

T = TypeVar("T")
URL = "http://127.0.0.1:7717"
PREFIX = "/api/v1"


class House:
    """A runtime with a door. `calls` are made in the front's loop."""

    def __init__(self, rt: Runtime, front: asyncio.AbstractEventLoop, web: Path) -> None:
        self.rt = rt
        self.front = front
        self.board = Board()
        self.scope = rt.scope("api")
        self.bridge = Bridge(rt, self.scope)
        self.downs: list[bool] = []
        info = ServerInfo("1.2.3", rt.state_dir, URL, time.time(), "")
        self.feed = Feed(self.board)
        self.parts = Parts(self.board, self.feed, self.bridge, Keys("0" * 64), info, self.downs.append, web)
        self.app = build(self.parts)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=URL + PREFIX, timeout=30)
        pump(rt, self.scope, front, self.feed, 0)

    # -- requests

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> httpx.Response:
        if body is not None:
            more["content"] = body if isinstance(body, bytes) else msgspec.json.encode(body)
        if method != "GET":
            more["headers"] = {"Content-Type": "application/json"} | more.get("headers", {})
        return await self.client.request(method, path, **more)

    async def ok(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        answer = await self.call(method, path, body, **more)
        assert answer.is_success, (method, path, answer.status_code, answer.text)
        return answer.json()

    async def fault(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, str]:
        """Status and code; every answer that is not 2xx is a Fault."""
        answer = await self.call(method, path, body, **more)
        assert answer.status_code >= 400, answer.text
        said = answer.json()
        assert sorted(said) == ["code", "message"] and said["message"], said
        assert answer.headers["content-type"] == "application/json"
        return answer.status_code, said["code"]

    async def get(self, path: str, **more: Any) -> Any:
        return await self.ok("GET", path, **more)

    async def post(self, path: str, body: Any = None) -> Any:
        return await self.ok("POST", path, {} if body is None else body)

    async def card(self, id_: str, state: str, bound: float = 10.0) -> Any:
        """The card of a session, once it is in this state."""
        until = time.monotonic() + bound
        while (card := await self.get(f"/sessions/{id_}"))["state"] != state:
            assert time.monotonic() < until, card
            await asyncio.sleep(0.01)
        return card


@contextlib.asynccontextmanager
async def housed(rt: Runtime, web: Path) -> AsyncIterator[House]:
    """Both loops are one."""
    house = House(rt, asyncio.get_running_loop(), web)
    async with house.client:
        await house.parts.seen(rt.host.journal.last)
        yield house
    house.bridge.close()


class Front:
    """A loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="front", daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def __enter__(self) -> Front:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """From any thread: run it in the front's loop; what it gives, in this one."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.loop))


@contextlib.asynccontextmanager
async def apart(
    rt: Runtime, web: Path
) -> AsyncIterator[tuple[House, Callable[[Coroutine[Any, Any, T]], Awaitable[T]]]]:
    """Two loops, two threads; the second of what it gives runs something in the front's."""
    with Front() as front:
        house = House(rt, front.loop, web)
        await front.begin(house.parts.seen(rt.host.journal.last))
        try:
            yield house, front.begin
        finally:
            house.bridge.close()
            await front.begin(house.client.aclose())
