"""The SDKs of OpenAI and Anthropic hear from a model server what its replies say, and see it fail as they would."""

import asyncio
import json
import operator
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection, IncompleteRead
from typing import Any, Literal, get_args

import anthropic
import openai
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from quell.errors import UsageError
from quell.testing import Calls, Fails, Malformed, ModelRequest, ModelServer, Reply, Says, Thinks
from quell.testing.llm.replies import Fault, Garbled

from .sdks import APIS, PATHS, Client, Heard, body_of, post

LS, PWD = ("shell", {"command": "ls -la /tmp"}), ("shell", {"command": "pwd"})
FULL = (Thinks("Let me look.") + Says("I list it.") + Calls(LS, PWD)).counts(100, 20, cached=40, written=10, thought=5)

each_api = pytest.mark.parametrize("api", APIS)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server
    assert server.open == [] and server.connections == 0


@pytest.fixture
def client(server: ModelServer, api: str) -> Iterator[Client]:
    with ExitStack() as stack:
        yield Client(server, api, stack)


@each_api
def test_the_sdk_hears_what_the_reply_says_in_a_stream_and_whole(server: ModelServer, client: Client, api: str) -> None:
    stop = {"chat": "tool_calls", "responses": "completed", "anthropic": "tool_use"}[api]
    calls = [(tool, json.dumps(arguments, separators=(",", ":"))) for tool, arguments in (LS, PWD)]
    expected = Heard("Let me look.", "I list it.", calls, (100, 20, 40, 10), stop)
    server.will(FULL, FULL, FULL)
    assert client.ask() == client.ask(stream=False) == expected
    assert post(server, PATHS[api], body_of(api))[0] == 200
    assert server.wait_closed() == []
    assert [request.ended for request in server.requests] == ["answered"] * 3
    assert server.refused == [] and server.unused == 0
    why = {"chat": "'length'", "responses": "'max_output_tokens'", "anthropic": "'max_tokens'"}[api]
    server.will(Says("Too").stops("length"))
    events, error = client.events()
    assert why in repr(events) and error is None


@each_api
def test_every_event_is_as_the_sdk_declares_it(server: ModelServer, api: str) -> None:
    """An SDK takes much that is wrong; the types that it declares do not."""
    types: dict[str, Any] = {
        "chat": ChatCompletionChunk,
        "responses": ResponseStreamEvent,
        "anthropic": RawMessageStreamEvent,
    }
    declared: TypeAdapter[Any] = TypeAdapter(types[api])
    whole: type[Any] = {"chat": ChatCompletion, "responses": Response, "anthropic": Message}[api]
    tool = {"name": "shell", "description": "Run it.", "parameters": {"type": "object", "properties": {}}}
    tools = {
        "chat": {"type": "function", "function": tool},
        "responses": {"type": "function", "strict": False, **tool},
        "anthropic": {"name": "shell", "input_schema": tool["parameters"]},
    }
    body = {**body_of(api), "tools": [tools[api]]}
    replies = (FULL, Thinks("Hidden.", hidden=True) + Calls(LS, PWD, mixed=True), Says("").stops("filter"), Reply())
    seen: set[str] = set()
    for reply in replies:
        server.will(reply, reply)
        status, stream = post(server, PATHS[api], body)
        assert status == 200
        for event in stream.decode().removesuffix("data: [DONE]\n\n").strip().split("\n\n"):
            data = json.loads(event.partition("data: ")[2])
            name = event.partition("\n")[0].removeprefix("event: ") if event.startswith("event") else "data"
            assert name == data.get("type", "data")
            seen.add(name)
            if name != "ping":
                declared.validate_python(data)
        once = {name: value for name, value in body.items() if name != "stream_options"}
        whole.model_validate_json(post(server, PATHS[api], {**once, "stream": False})[1])
    assert len(seen) == {"chat": 1, "responses": 16, "anthropic": 7}[api]


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_calls_come_one_after_the_other_or_a_bit_of_each_in_turn(server: ModelServer, client: Client, api: str) -> None:
    server.will(Calls(LS, LS), Calls(LS, LS, mixed=True))
    for expected in ([0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1]):
        if api == "chat":
            deltas = [call for event in client.stream() for one in event.choices for call in one.delta.tool_calls or ()]
            order = [call.index for call in deltas if call.function.arguments]
        else:
            order = [event.output_index for event in client.stream() if event.type.endswith("arguments.delta")]
        assert order == expected


FAULTS: list[tuple[Reply, int, type[Exception], int, type[Exception]]] = [
    (Fails(429, retry_after=2), 429, openai.RateLimitError, 429, anthropic.RateLimitError),
    (Fails("quota"), 429, openai.RateLimitError, 400, anthropic.BadRequestError),
    (Fails(500), 500, openai.InternalServerError, 500, anthropic.InternalServerError),
    (Fails("overloaded"), 503, openai.InternalServerError, 529, anthropic.OverloadedError),
    (Fails(529), 529, openai.InternalServerError, 529, anthropic.OverloadedError),
    (Fails(401), 401, openai.AuthenticationError, 401, anthropic.AuthenticationError),
    (Fails("model"), 404, openai.NotFoundError, 404, anthropic.NotFoundError),
    (Fails("context"), 400, openai.BadRequestError, 400, anthropic.BadRequestError),
    (Fails(418, message="I am a teapot."), 418, openai.APIStatusError, 418, anthropic.APIStatusError),
]


@each_api
def test_errors_are_those_of_the_api(server: ModelServer, client: Client, api: str) -> None:
    for reply, openai_status, openai_error, anthropic_status, anthropic_error in FAULTS:
        expected = (anthropic_status, anthropic_error) if api == "anthropic" else (openai_status, openai_error)
        server.will(reply, reply)
        for stream in (True, False):
            with pytest.raises(expected[1]) as raised:
                client.ask(stream=stream)
            error: Any = raised.value
            assert error.status_code == expected[0], reply
            assert isinstance(error.body, dict), "the body is the API's"
            if reply == FAULTS[0][0]:
                assert error.response.headers["retry-after"] == "2"
            if "context" in repr(reply):
                said = "prompt is too long: 200001 tokens > 200000 maximum" if api == "anthropic" else "context"
                assert said in str(error)
                assert api == "anthropic" or error.code == "context_length_exceeded"
    assert server.refused == [], "the script wanted them"


@each_api
def test_an_error_in_the_midst_of_a_stream_comes_after_what_was_said(
    server: ModelServer, client: Client, api: str
) -> None:
    faults: tuple[Fault, ...] = ("server", "overloaded", "context", "rate")
    for why in faults:
        server.will(*[Says("one two") + Fails(why)] * 2)
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)):
            client.ask(stream=False)
        heard, error = client.events()
        assert "two" in repr(heard)
        if api != "responses":
            assert isinstance(error, openai.APIError | anthropic.APIError) and isinstance(error.body, dict)
        elif why == "overloaded":
            assert heard[-1].type == "error" and error is None
        else:
            code = {"server": "server_error", "context": "context_length_exceeded", "rate": "rate_limit_exceeded"}[why]
            assert heard[-1].type == "response.failed" and heard[-1].response.error.code == code


@each_api
def test_a_hung_answer_is_open_until_the_client_leaves(server: ModelServer, api: str) -> None:
    sdk: Any = anthropic.AsyncAnthropic if api == "anthropic" else openai.AsyncOpenAI

    async def listen(client: Any) -> None:
        ask = {"chat": "chat.completions.create", "responses": "responses.create", "anthropic": "messages.create"}[api]
        async with await operator.attrgetter(ask)(client)(**body_of(api)) as stream:
            async for _ in stream:
                pass

    async def main() -> None:
        base = server.root if api == "anthropic" else server.url
        async with sdk(base_url=base, api_key="key", max_retries=0) as client:
            for n, after in enumerate((None, 0, 2), 1):
                server.will(Says("one two three").hang(after))
                listening = asyncio.create_task(listen(client))
                request = await server.sent(after or 0, n)
                assert server.open == [request] and request.pieces == (after or 0)
                listening.cancel()
                began = time.monotonic()
                await server.closed(1.0)
                assert request.ended == "left" and request.ended_at - began < 0.2
                await asyncio.wait([listening])

    asyncio.run(main())


@each_api
def test_a_broken_stream_breaks_as_its_reply_wants(server: ModelServer, client: Client, api: str) -> None:
    hows: tuple[Literal["close", "reset", "end"], ...] = ("close", "reset", "end")
    for how in hows:
        for after in (None, 0, 2):
            server.will(Says("one two three").cut(after, how))
            heard, error = client.events()
            assert (error is None) == (how == "end" and after is not None), error
            assert ("two" in repr(heard)) == (after == 2) and "three" not in repr(heard)
            assert server.requests[-1].ended == "cut"
    server.will(Says("one two three").cut(2), Says("one two three").cut(2, "reset"))
    for error_of in (IncompleteRead, ConnectionResetError):
        with pytest.raises(error_of):
            post(server, PATHS[api], body_of(api))
    server.will(Says("x" * 100).cut(1))
    with pytest.raises((openai.APIConnectionError, anthropic.APIConnectionError)):
        client.ask(stream=False)


@each_api
def test_a_malformed_answer_ends_and_is_never_taken_for_another(server: ModelServer, client: Client, api: str) -> None:
    server.will(Says("Right."), Says("Right."))
    good = client.ask(), client.ask(stream=False)
    for what in get_args(Garbled):
        for stream in (True, False):
            server.will(Malformed(what) + (Says("Right.") if what == "wrong type" else Reply()))
            try:
                heard: object = client.ask(stream=stream)
            except Exception as error:  # noqa: BLE001  what an SDK makes of it is its own affair
                heard = error
            assert what == "wrong type" or heard not in good
            assert server.wait_closed() == [] and server.requests[-1].ended == "answered"
    assert server.unused == 0


@each_api
def test_a_huge_answer_arrives_and_one_that_nobody_reads_does_not_hinder_the_end(
    server: ModelServer, client: Client, api: str
) -> None:
    server.will(Says("x" * 1_000_000), Says("y " * 1_000), Says("z " * 100_000))
    assert len(client.ask().said) == 1_000_000
    assert len(client.ask().said) == 2_000
    unread = client.stream()
    request = server.wait_pieces(100, n=3)
    assert server.open == [request]
    began = time.monotonic()
    server.close()
    assert time.monotonic() - began < 0.5 and request.ended == "cut"
    unread.close()


def test_a_slow_answer_takes_its_time_and_does_not_hold_up_others(server: ModelServer) -> None:
    server.will(Says("one two three").slow(0.05), Says("at once"))
    slow = threading.Thread(target=post, args=(server, PATHS["chat"], body_of("chat")))
    slow.start()
    server.wait_request()
    assert b"once" in post(server, PATHS["chat"], body_of("chat"))[1]
    first, second = server.requests
    assert second.ended == "answered" and first.ended == ""
    slow.join(5)
    assert first.ended_at - first.at >= 0.15


def test_closing_ends_every_connection_however_it_hangs() -> None:
    hung = [Says("one two three").hang(after) for after in (None, 0, 1, 2)] * 4
    with ModelServer(*hung) as server, ExitStack() as stack:
        port = int(server.root.rpartition(":")[2])
        links = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(20)]
        body = json.dumps(body_of("chat")).encode()
        for link in links[:16]:
            link.sendall(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        links[16].sendall(b"POST /v1/chat/comp")
        links[17].sendall(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 100\r\n\r\n{")
        server.wait_request(16)
        assert len(server.open) == 16
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < 0.5
        server.close()
        for link in links:
            link.settimeout(5)
            try:
                while link.recv(1 << 16):
                    pass
            except ConnectionResetError:  # it had more to read
                pass
        assert {request.ended for request in server.requests} == {"cut"} and server.connections == 0


def test_what_is_no_http_is_closed_and_the_next_request_of_a_connection_is_answered(server: ModelServer) -> None:
    port = int(server.root.rpartition(":")[2])
    for nonsense in (b"hello\r\n\r\n", b"A B C\r\ntransfer-encoding: chunked\r\n\r\n", b"x" * 70_000):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
            link.sendall(nonsense)
            try:
                assert link.recv(1) == b""
            except ConnectionResetError:
                pass
    with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as kept:
        for path, status in (("/v1/models", 200), ("/v1/nowhere", 404), ("/v1/messages", 405)):
            kept.request("GET", path)
            answer = kept.getresponse()
            assert answer.status == status and json.loads(answer.read())
        assert server.connections == 1
        kept.request("GET", "/v1/models", headers={"connection": "close"})
        assert kept.getresponse().read()
    assert [request.path for request in server.requests] == ["/v1/models", "/v1/nowhere", "/v1/messages", "/v1/models"]


def test_waiting_for_what_does_not_come_says_so(server: ModelServer) -> None:
    with pytest.raises(TimeoutError, match=r"request number 1 did not come within 0.01 s: 0 requests, 0 open"):
        server.wait_request(bound=0.01)
    with pytest.raises(TimeoutError, match=r"request number 2 did not come within 0.01 s"):
        asyncio.run(server.requested(2, bound=0.01))
    assert asyncio.run(server.closed()) == server.wait_closed() == []


def test_a_reply_can_be_a_function_and_one_that_raises_fails_the_test() -> None:
    def shout(request: ModelRequest) -> Reply:
        return Says(str(request.body["messages"][0]["content"]).upper())

    def wrong(request: ModelRequest) -> Reply:
        raise LookupError("no such reply")

    server = ModelServer(shout, wrong).__enter__()
    assert b"HI." in post(server, PATHS["chat"], body_of("chat"))[1]
    with pytest.raises(ConnectionError):
        post(server, PATHS["chat"], body_of("chat"))
    with pytest.raises(LookupError, match="no such reply"):
        server.__exit__(None, None, None)
    with pytest.raises(UsageError, match="started before"):
        server.__enter__()
    wishes: list[Callable[[], Reply]] = [lambda: Fails("wrath"), lambda: Malformed("mess"), Calls]  # type: ignore[arg-type]
    for wish in wishes:
        with pytest.raises(UsageError):
            wish()


def test_it_runs_as_a_program_until_it_is_interrupted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    argv = [sys.executable, "-m", "quell.testing.llm", "--port", str(port), "--key", "secret", "--slow", "0.05"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        try:
            assert program.stdout is not None
            url = program.stdout.readline().strip()
            assert url == f"http://127.0.0.1:{port}/v1"
            with pytest.raises(openai.AuthenticationError), openai.OpenAI(base_url=url, api_key="other") as stranger:
                stranger.models.list()
            with openai.OpenAI(base_url=url, api_key="secret") as client:
                assert [model.id for model in client.models.list()] == ["quell-1"]
                began = time.monotonic()
                answer = client.responses.create(model="m", input="Hi there.\n$ ls")
            assert answer.output_text == "You said: Hi there.\n" and answer.output[-1].type == "function_call"
            assert time.monotonic() - began > 0.05
        finally:
            os.kill(program.pid, signal.SIGINT)
        assert program.wait(5) == 0
