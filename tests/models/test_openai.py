"""OpenAI's two APIs: what is asked of each, and what is understood of servers that only resemble them."""

from typing import Any

import pytest

from quell.config import Provider
from quell.errors import ModelError
from quell.events import Usage
from quell.models.chat import ChatReader
from quell.models.endpoint import OPENAI, Endpoint
from quell.models.responses import ResponsesReader
from quell.ports import Chunk, Message, Reasoning, Text
from quell.testing.llm import Fails, ModelServer, Says, Thinks

from .serving import TOOLS, answer, asking, calls_of, chunks, model, run, sdk, text_of

ELSEWHERE = Provider(name="local", base_url="http://localhost:11434/v1")
THERE = Endpoint("http://localhost:11434/v1", False)
OWN = Endpoint(OPENAI.url, True)


def read(*events: dict[str, Any]) -> list[Chunk]:
    """As a server of chat completions sent them."""
    reader = ChatReader(asking("chat", tools=TOOLS), THERE, ELSEWHERE)
    found = [chunk for event in events for chunk in reader.take(event)]
    return [*found, *reader.end()]


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def call(**fields: Any) -> dict[str, Any]:
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return {**fields, "function": function}


@pytest.mark.parametrize("calls", [5, True, {"a": 1}, "shell"])
def test_calls_that_are_no_list_are_none(calls: Any) -> None:
    assert read(delta("stop", content="Hi.", tool_calls=calls)) == [Text("Hi.")]


def test_openai_itself_is_asked_for_responses_and_all_others_for_chat() -> None:
    made = sdk("openai")
    own, other = Endpoint(OPENAI.url, True), Endpoint("http://localhost:1/v1", False)
    shown = [
        type(made.api(provider, endpoint)).__name__
        for provider, endpoint in (
            (Provider(name="openai"), own),
            (Provider(name="local"), other),
            (Provider(name="openai", api="chat"), own),
            (Provider(name="local", api="responses"), other),
        )
    ]
    assert shown == ["_Responses", "_Chat", "_Chat", "_Responses"]


def test_nothing_is_stored_and_the_session_names_the_cache() -> None:
    with ModelServer().otherwise(Says("Hi.")) as server:
        chunks("responses", server, Message("system", "Be kind."), "Hello.", session="s1", longest=500, effort="high")
        chunks("responses", server, model="gpt-4.1-mini")
        chunks("chat", server, longest=500, effort="low")
        thinker, plain, chat = (request.body for request in server.requests)
        assert server.refused == []
    assert (thinker["store"], thinker["prompt_cache_key"], thinker["instructions"]) == (False, "s1", "Be kind.")
    assert thinker["include"] == ["reasoning.encrypted_content"]
    assert thinker["reasoning"] == {"summary": "auto", "effort": "high"}
    assert thinker["max_output_tokens"] == 500
    assert plain.keys().isdisjoint({"reasoning", "include", "instructions", "tools", "max_output_tokens"})
    assert (chat["max_tokens"], chat["reasoning_effort"]) == (500, "low")
    assert chat["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    "parts",
    [
        [[call(index=0, id="a", name="shell", arguments='{"comm')], [call(index=0, arguments='and": "ls"}')]],
        [[call(id="a", name="shell", arguments='{"command": "ls"}')]],
        [[call(name="shell", arguments={"command": "ls"})]],
        [[call(index=0, name="shell", arguments="")], [call(index=0, name="shell", arguments='{"command": "ls"}')]],
        [[call(name="shell", arguments='{"comm')], [call(arguments='and": "ls"}')]],
    ],
    ids=["in parts", "whole", "an object", "the name twice", "without a place"],
)
def test_calls_are_understood_however_they_come(parts: list[list[dict[str, Any]]]) -> None:
    """Servers give calls whole, as an object, without ids or places."""
    said = read(*(delta(tool_calls=part) for part in parts), delta("tool_calls"))
    ((found),) = calls_of(said)
    assert (found.tool, found.arguments) == ("shell", {"command": "ls"})
    assert found.id


def test_calls_that_share_a_place_are_told_apart_by_their_ids() -> None:
    both = [call(index=0, id=one, name="shell", arguments=f'{{"command": "{one}"}}') for one in ("a", "b")]
    assert [one.arguments["command"] for one in calls_of(read(delta("stop", tool_calls=both)))] == ["a", "b"]


def test_thoughts_in_either_field_and_a_price_that_the_server_tells() -> None:
    said = read(
        delta(role="assistant", content=""),
        delta(reasoning_content="Hm."),
        delta(reasoning="So."),
        delta(content="Hi."),
        delta("stop", content=None),
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "cost": 0.25}},
    )
    assert said == [Reasoning("Hm."), Reasoning("So."), Text("Hi."), Usage(7, 2, 0.25)]
    assert read(delta("stop", content="Hi.")) == [Text("Hi.")], "a server that counts nothing"


def test_what_a_server_does_not_know_is_left_out() -> None:
    with ModelServer(
        Fails(400, message="Unknown parameter: 'stream_options'."),
        Fails(422, message="reasoning_effort: extra fields not permitted"),
        Says("Hi."),
    ) as server:
        assert text_of(chunks("chat", server, effort="low")) == "Hi."
        assert [("stream_options" in one.body, "reasoning_effort" in one.body) for one in server.requests] == [
            (True, True),
            (False, True),
            (False, False),
        ]
    with ModelServer(Fails(400, message="Unknown parameter: 'stream_options'.")) as server:
        stubborn = model("chat", server)
        for _ in range(3):
            assert text_of(run(answer(stubborn, asking("chat")))) == "You said: Hello."
        assert ["stream_options" in one.body for one in server.requests] == [True, False, False, False], "it remembers"
    with ModelServer(
        Fails(400, message="Your organization must be verified to generate reasoning summaries."),
        Thinks("Hm.") + Says("Hi."),
    ) as server:
        assert text_of(chunks("responses", server, effort="low")) == "Hi."
        assert server.requests[1].body["reasoning"] == {"effort": "low"}


def test_a_server_that_tells_of_its_items_only_at_the_end_is_understood() -> None:
    reader = ResponsesReader(asking("responses", tools=TOOLS), THERE, ELSEWHERE)
    output = [
        {"type": "message", "content": [{"type": "output_text", "text": "Hi."}]},
        {"type": "function_call", "call_id": "a", "name": "files_read", "arguments": '{"path": "x"}'},
    ]
    usage = {"input_tokens": 3, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 2}}
    assert list(reader.take({"type": "response.completed", "response": {"output": output, "usage": usage}})) == []
    said = list(reader.end())
    assert (text_of(said), calls_of(said)[0].tool, said[-1]) == ("Hi.", "files.read", Usage(3, 4, 0.0, 2))


@pytest.mark.parametrize("api", ["responses", "chat"])
def test_what_is_cached_written_and_long_has_its_price(api: str) -> None:
    """As it is published: a long request costs more as a whole, and what goes into the cache a quarter more."""
    into, out = ("input_tokens", "output_tokens") if api == "responses" else ("prompt_tokens", "completion_tokens")

    def cost(where: Endpoint, model: str, taken: int) -> float:
        details = {"cached_tokens": taken // 2, "cache_write_tokens": taken // 4}
        usage = {into: taken, out: 100_000, f"{into}_details": details}
        whose, ask = Provider(name="openai"), asking(api, model=model)
        if api == "responses":
            reader: Any = ResponsesReader(ask, where, whose)
            list(reader.take({"type": "response.completed", "response": {"usage": usage}}))
        else:
            reader = ChatReader(ask, where, whose)
            list(reader.take({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage}))
        found: float = next(one.cost for one in reader.end() if isinstance(one, Usage))
        return found

    short = (50_000 * 2.0 + 100_000 * 0.1 + 50_000 * 2.5 + 100_000 * 10.0) / 1e6
    assert cost(OWN, "gpt-6.1-sol", 200_000) == pytest.approx(short)
    long = (100_000 * 4.0 + 200_000 * 0.2 + 100_000 * 5.0 + 100_000 * 15.0) / 1e6
    assert cost(OWN, "gpt-6.1-sol", 400_000) == pytest.approx(long)
    assert cost(OWN, "gpt-6.1-nova", 200_000) == 0, "what is not known costs nothing, rather than wrong"
    assert cost(THERE, "gpt-6.1-sol", 200_000) == 0, "what somebody else asks for it is not known"


def test_a_model_has_to_be_named() -> None:
    with ModelServer() as server, pytest.raises(ModelError, match="it:MODEL"):
        chunks("chat", server, model="")
