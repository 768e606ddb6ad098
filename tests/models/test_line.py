"""Connections are used again after a whole answer, by one request at a time; all others end with their request."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import quell
from quell.config import Agent
from quell.models import line
from quell.models.providers import plugin_for
from quell.models.served import Served
from quell.ports import Anew, Chunk, Model, Notice
from quell.supervise import Scope
from quell.testing import Coverage, cancel_everywhere
from quell.testing.llm import Calls, Fails, ModelServer, Says, Thinks

from .serving import APIS, MODELS, QUICK, TOOLS, answer, asking, first, provider, run, sdk, text_of

AT_ONCE = 0.2
"""Seconds, as in test_served.py."""

each_api = pytest.mark.parametrize("api", APIS)


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """The SDKs, before anything is measured."""
    sdk("openai"), sdk("anthropic")


def kept(api: str, server: ModelServer, scope: Any) -> Model:
    return Served(provider(api, server), sdk("anthropic" if api == "anthropic" else "openai"), QUICK, scope)


@asynccontextmanager
async def owner(server: ModelServer) -> AsyncIterator[Scope]:
    """A scope whose end leaves no connection."""
    async with quell.Supervisor() as supervisor:
        scope = supervisor.scope("models")
        yield scope
        receipt = await scope.stop()
        assert receipt.confirmed, receipt.sentence()
        await server.alone()


@each_api
def test_the_steps_of_turns_share_one_connection_which_goes_with_the_runtime(api: str, tmp_path: Path) -> None:
    agent = Agent(name="real", model=f"it:{MODELS[api]}", tools=("glob",), approval={"*": "allow"})
    call = Thinks("So.") + Says("I look.") + Calls(("glob", {"pattern": "*"}))

    async def main(server: ModelServer) -> None:
        plugins = [plugin_for(provider(api, server))]
        async with quell.Runtime(state_dir=tmp_path / "state", agents=[agent], plugins=plugins) as rt:
            session = await rt.open("real", tmp_path)
            for _ in range(2):
                assert (await session.send("Hello.")).end == "completed"
            assert len(server.requests) == 5 and server.refused == []
            assert server.accepted == server.connections == 1
        await server.alone()

    with ModelServer(call, call, Says("Done."), call, Says("Done.")) as server:
        run(main(server))


@each_api
@pytest.mark.parametrize("after", [None, 0, 2], ids=["before headers", "after headers", "mid-stream"])
def test_a_cancel_closes_a_connection_that_was_used_before(api: str, after: int | None) -> None:
    """The server sees it at once, whatever the connection has carried before."""

    async def main(server: ModelServer) -> None:
        async with owner(server) as scope:
            mine = kept(api, server, scope)
            await answer(mine, asking(api))
            task: asyncio.Task[list[Chunk]] = asyncio.get_running_loop().create_task(
                first(mine.answer(asking(api)), 100)
            )
            await server.requested(2)
            if after:
                await server.sent(after, 2)
            task.cancel()
            began = time.monotonic()
            with pytest.raises(asyncio.CancelledError):
                await task
            (left,) = await server.closed()
            assert left.ended_at - began < AT_ONCE
            await server.alone()
            assert server.accepted == 1
            assert text_of(await answer(mine, asking(api))) == "again"
            assert server.accepted == 2

    with ModelServer(Says("one"), Says("one two three").hang(after), Says("again")) as server:
        run(main(server))


@each_api
def test_requests_at_the_same_time_have_connections_of_their_own(api: str) -> None:
    async def main(server: ModelServer) -> None:
        async with owner(server) as scope:
            mine = kept(api, server, scope)
            await asyncio.gather(*(answer(mine, asking(api)) for _ in range(3)))
            assert server.accepted == 3
            await asyncio.gather(*(answer(mine, asking(api)) for _ in range(3)))
            assert server.accepted == server.connections == 3

    with ModelServer().otherwise(Says("one two").slow(0.02)) as server:
        run(main(server))


@each_api
def test_what_does_not_end_well_is_not_used_again(api: str) -> None:
    async def main(server: ModelServer) -> list[Chunk]:
        async with owner(server) as scope:
            mine = kept(api, server, scope)
            said = await answer(mine, asking(api))
            assert server.connections == 1
            return said

    broken = Says("one two three")
    with ModelServer(Fails(503), broken.cut(2), broken + Fails("overloaded"), Says("four")) as server:
        said = run(main(server))
        assert server.accepted == 4
    assert [type(one) for one in said if isinstance(one, Notice | Anew)] == [Notice, Anew, Anew]


@each_api
def test_a_connection_that_was_closed_while_it_waited_is_replaced_without_a_word(api: str) -> None:
    """One that is seen to be closed, and one that is closed in the moment in which it is used."""

    async def main(server: ModelServer) -> None:
        async with owner(server) as scope:
            mine = kept(api, server, scope)
            await answer(mine, asking(api))
            port = int(server.root.rpartition(":")[2])
            server.close()
            with ModelServer(Says("two"), Says("").cut(), Says("three"), port=port) as other:
                assert text_of(await answer(mine, asking(api))) == "two"
                assert other.accepted == 1
                said = await answer(mine, asking(api))
                assert text_of(said) == "three" and not any(isinstance(one, Notice | Anew) for one in said)
                assert other.accepted == 2

    with ModelServer(Says("one")) as server:
        run(main(server))


@each_api
def test_one_that_nobody_wants_is_closed_after_a_while(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "KEPT", 0.05)

    async def main(server: ModelServer) -> None:
        async with owner(server) as scope:
            mine = kept(api, server, scope)
            await answer(mine, asking(api))
            await server.alone()
            assert text_of(await answer(mine, asking(api))) == "two"
            assert server.accepted == 2

    with ModelServer(Says("one"), Says("two")) as server:
        run(main(server))


def test_a_stream_that_does_not_end_with_its_answer_is_hung_up_on_and_no_cookie_goes_on() -> None:
    event = 'data: {"choices": [{"delta": {"content": "Hi."}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    kind = "content-type: text/event-stream\r\nset-cookie: who=you\r\ntransfer-encoding: chunked"
    heads: list[bytes] = []
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            while True:
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                size = int(heads[-1].lower().partition(b"content-length:")[2].split()[0])
                await reader.readexactly(size)
                end = "" if len(heads) == 1 else "0\r\n\r\n"  # the first is left open
                writer.write(f"HTTP/1.1 200 OK\r\n{kind}\r\n\r\n{len(event):x}\r\n{event}\r\n{end}".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def main() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, quell.Supervisor() as supervisor:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            mine = Served(provider("chat", base_url=url), sdk("openai"), QUICK, supervisor.scope("models"))
            began = time.monotonic()
            for number in (1, 2, 2):
                assert text_of(await answer(mine, asking("chat"))) == "Hi."
                assert connections == number
            assert time.monotonic() - began < 2
            await supervisor.stop()

    run(main())
    assert len(heads) == 3 and not any(b"cookie" in one.lower() for one in heads)


class Owner(AsyncExitStack):
    """What is asked of a scope here, without its processes: they would take nearly all of the time."""

    enter = AsyncExitStack.enter_async_context


def reused_cancelled(api: str, budget: float) -> Coverage:
    reply = (Says("one two") + Calls(("shell", {"command": "ls"}))).slow(
        0.002
    )  # in parts, so that there are more steps
    with ModelServer().otherwise(reply) as server:

        async def scenario(go: Callable[..., Awaitable[object]]) -> None:
            async with Owner() as scope:
                mine = kept(api, server, scope)
                ask = asking(api, tools=TOOLS)
                await answer(mine, ask)

                async def target() -> None:
                    assert text_of(await answer(mine, ask)) == "one two"

                await go(target)
                assert text_of(await answer(mine, ask)) == "one two"
            await server.alone()

        return cancel_everywhere(scenario, name=f"reused-{api}", budget=budget)


@each_api
def test_a_request_over_a_used_connection_is_cancelled_anywhere(api: str) -> None:
    """Once or twice, at as many steps as there is time for; and the next request is answered."""
    assert reused_cancelled(api, 1.5).points_covered > 5


@pytest.mark.soak
@each_api
def test_a_request_over_a_used_connection_is_cancelled_everywhere(api: str) -> None:
    """Once and twice, at every step."""
    assert reused_cancelled(api, 60.0).pairs_covered > 20
