"""Real libraries with tasks and sockets of their own leave nothing of them behind when their scope stops."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import anyio
import anyio.abc
import httpx
import pytest
from acp.core import AgentSideConnection, ClientSideConnection, run_agent
from aiohttp import web

import quell

from .loops import outcome, until
from .owned import AT_ONCE, EVERY_LOOP, PATIENT, AnyTask, Body, Run, forever, run_within

# anyio knows eager tasks by the factory of the standard library, which uvloop cannot use on every Python.
LOOPS = [name for name in EVERY_LOOP if name != "uvloop, eager"]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a test inside a supervisor, on each loop."""

    def within(body: Body) -> None:
        run_within(EVERY_LOOP[request.param], body)

    return within


@pytest.fixture(params=LOOPS)
def run_patiently(request: pytest.FixtureRequest) -> Run:
    """The same with a ladder that nobody would wait out."""

    def within(body: Body) -> None:
        run_within(EVERY_LOOP[request.param], body, PATIENT)

    return within


def others() -> set[AnyTask]:
    """Every task of the loop but the one that asks."""
    return asyncio.all_tasks() - {asyncio.current_task()}


class Silent:
    """An HTTP server that takes requests and never answers. It ends a connection when the client does."""

    def __init__(self) -> None:
        self.asked = 0
        self.left = 0
        self.url = ""

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server:
            yield

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        while await reader.read(1 << 16):
            pass
        self.left += 1
        writer.close()


async def body_without_end() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 1024
        await asyncio.sleep(0.001)


# -- HTTP clients


async def httpx_get(url: str) -> None:
    async with httpx.AsyncClient() as client:
        await client.get(url)


async def httpx_post_without_closing(url: str) -> None:
    await httpx.AsyncClient().post(url, content=body_without_end())


async def aiohttp_get(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(url):
        await forever()


async def aiohttp_post(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.post(url, data=body_without_end()):
        await forever()


@pytest.mark.parametrize("request_of", [httpx_get, httpx_post_without_closing, aiohttp_get, aiohttp_post])
def test_a_client_that_is_stopped_in_the_middle_of_its_requests_leaves_no_task_and_no_socket(
    run: Run, request_of: Any
) -> None:
    """H03: the server sees the connections close. H07: aiohttp makes tasks around the factory from Python 3.12 on."""

    async def body(sup: quell.Supervisor) -> None:
        server, scope = Silent(), sup.scope("client")
        await sup.scope("server").enter(server.serve())
        before = others()
        for _ in range(3):
            scope.task(request_of(server.url))
        assert await until(lambda: server.asked == 3)
        receipt = await scope.stop()
        assert receipt.confirmed, receipt.sentence()
        assert await until(lambda: server.left == 3)
        assert await until(lambda: others() <= before)

    run(body)


def test_a_client_that_the_scope_entered_is_closed_by_it(run_patiently: Run) -> None:
    """H07: connections are closed by their scope, at once."""

    async def body(sup: quell.Supervisor) -> None:
        server, scope = Silent(), sup.scope("client")
        await sup.scope("server").enter(server.serve())
        before = others()
        session = await scope.enter(aiohttp.ClientSession())
        client = await scope.enter(httpx.AsyncClient())
        scope.task(session.get(server.url).__aenter__())
        scope.task(client.get(server.url))
        assert await until(lambda: server.asked == 2)
        began = time.monotonic()
        receipt = await scope.stop()
        assert receipt.confirmed and time.monotonic() - began < AT_ONCE
        assert [one.end for one in receipt.closers] == ["closed", "closed"]
        assert session.closed and client.is_closed
        assert await until(lambda: server.left == 2 and others() <= before)

    run_patiently(body)


# -- an HTTP server


def test_a_server_whose_handlers_hang_ends_with_its_scope(run: Run) -> None:
    """H07: a server waits a minute for its handlers, whose tasks it made around the factory (Python 3.12 and later)."""

    async def body(sup: quell.Supervisor) -> None:
        asked: list[AnyTask] = []
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        scope = sup.scope("server")

        async def hang(_: web.Request) -> web.Response:
            task = asyncio.current_task()
            assert task is not None
            asked.append(task)
            await forever()
            raise AssertionError

        async def serve() -> None:
            app = web.Application()
            app.router.add_get("/", hang)
            runner = web.AppRunner(app, shutdown_timeout=60)
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                host, port = runner.addresses[0][:2]
                address.set_result(f"http://{host}:{port}/")
                await forever()
            finally:
                await runner.cleanup()

        scope.task(serve())
        client = sup.scope("client").task(httpx_get(await address))
        assert await until(lambda: len(asked) == 1)
        receipt = await scope.stop()
        assert asked[0].done()
        assert receipt.confirmed, receipt.sentence()
        assert await outcome(client) != "cancelled"  # it is another scope's: it sees its connection end

    run(body)


# -- anyio


def test_anyio_is_what_it_was_within_a_supervisor(run: Run) -> None:
    """H16: a cancel scope in the first step of a child works, though the loop starts tasks eagerly."""

    async def body(sup: quell.Supervisor) -> None:
        done: list[str] = []

        async def child(name: str) -> None:
            with anyio.move_on_after(0.01):
                await anyio.sleep_forever()
            done.append(name)

        async def root() -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(child, "a")
                await group.start(started)

        async def started(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            task_status.started()
            await child("b")

        assert await outcome(sup.scope("x").task(root())) == "done"
        assert sorted(done) == ["a", "b"]

    run(body)


# -- the reference ACP SDK


class Agent:
    """Whoever asks it anything waits for ever."""

    def __init__(self) -> None:
        self.asked = 0

    async def initialize(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        await forever()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            raise AttributeError(name)
        return self.initialize


LOOPS_OF_ACP = {"acp.Sender.loop", "acp.Connection.receive", "acp.Connection.request"}
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def line() -> AsyncIterator[tuple[Streams, Streams]]:
    """Both ends of a connection, closed in the end: the SDK leaves that to whoever opened them."""
    left, right = socket.socketpair()
    ends = [await asyncio.open_connection(sock=left), await asyncio.open_connection(sock=right)]
    try:
        yield ends[0], ends[1]
    finally:
        for _, writer in ends:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def acp_tasks() -> dict[str, AnyTask]:
    return {task.get_name(): task for task in others() if task.get_name().startswith("acp.")}


async def ask(streams: Streams) -> None:
    """Have the agent at the other end work on something."""
    writer = streams[1]
    writer.write(b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}\n')
    await writer.drain()


def test_the_loops_of_a_connection_that_the_scope_entered_end_with_it(run_patiently: Run) -> None:
    """H07: closed by the scope, in its own task, at once."""

    async def body(sup: quell.Supervisor) -> None:
        agent, scope = Agent(), sup.scope("agent")
        ours, theirs = await sup.scope("line").enter(line())

        @contextlib.asynccontextmanager
        async def connection() -> AsyncIterator[AgentSideConnection]:
            async with AgentSideConnection(agent, ours[1], ours[0]) as connection:
                yield connection

        await scope.enter(connection())
        await ask(theirs)
        assert await until(lambda: agent.asked == 1)
        assert set(acp_tasks()) == LOOPS_OF_ACP
        began = time.monotonic()
        receipt = await scope.stop()
        assert receipt.confirmed, receipt.sentence()
        assert [one.end for one in receipt.closers] == ["closed"] and time.monotonic() - began < AT_ONCE
        assert acp_tasks() == {}

    run_patiently(body)


@pytest.mark.parametrize("listening", [True, False], ids=["in a loop of its own", "in the task that listens"])
def test_the_loops_of_a_connection_that_nobody_closes_end_with_the_scope(run_patiently: Run, listening: bool) -> None:
    """H07: the listener is cancelled and closes nothing; the loops that its library made are ended by the scope."""

    async def body(sup: quell.Supervisor) -> None:
        agent, scope = Agent(), sup.scope("agent")
        ours, theirs = await sup.scope("line").enter(line())

        async def listen() -> None:
            made = AgentSideConnection(agent, ours[1], ours[0], listening)
            await (forever() if listening else made.listen())

        task = scope.task(listen())
        await ask(theirs)
        assert await until(lambda: agent.asked == 1)
        loops = acp_tasks()
        assert set(loops) == LOOPS_OF_ACP - (set() if listening else {"acp.Connection.receive"})
        began = time.monotonic()
        receipt = await scope.stop()
        assert receipt.confirmed, receipt.sentence()
        assert task.done() and all(loop.done() for loop in loops.values())
        assert {one.name for one in receipt.tasks} >= set(loops) and time.monotonic() - began < AT_ONCE

    run_patiently(body)


def test_both_sides_of_a_connection_end_each_with_its_own_scope(run_patiently: Run) -> None:
    """H07: a client that waits for an answer ends when its scope does, and the agent's loops live on."""

    async def body(sup: quell.Supervisor) -> None:
        agent, client_scope, agent_scope = Agent(), sup.scope("client"), sup.scope("agent")
        ours, theirs = await sup.scope("line").enter(line())

        async def serve() -> None:
            await run_agent(agent, ours[1], ours[0])

        async def ask_and_wait() -> None:
            connection = ClientSideConnection(Agent(), theirs[1], theirs[0])
            await connection.initialize(protocol_version=1)

        serving = agent_scope.task(serve())
        agents = {}
        assert await until(lambda: "acp.Sender.loop" in acp_tasks())
        agents = acp_tasks()
        waiting = client_scope.task(ask_and_wait())
        assert await until(lambda: agent.asked == 1)
        assert (await client_scope.stop()).confirmed and waiting.cancelled()
        assert not serving.done() and not any(task.done() for task in agents.values())
        assert (await agent_scope.stop()).confirmed and serving.done()
        assert acp_tasks() == {}

    run_patiently(body)
