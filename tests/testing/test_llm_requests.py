"""A model server refuses what the APIs would refuse, in their words: a wrong client is noticed."""

import copy
import itertools
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types.message_create_params import MessageCreateParamsBase
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from quell.testing import Calls, Fails, ModelServer, Reply, Says, Thinks
from quell.testing.llm import asked_anthropic, asked_chat, asked_responses
from quell.testing.llm.issued import seal

from .sdks import PATHS, body_of, post

USER = {"role": "user", "content": "Hi."}
TOO_LONG = "x" * 65


def called(*ids: str) -> dict[str, Any]:
    """The message of a chat that makes these calls."""
    calls = [{"id": each, "type": "function", "function": {"name": "shell", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def told(call: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": "Done."}


def fc(call: str, **more: Any) -> dict[str, Any]:
    """The item of a response that makes this call."""
    return {"type": "function_call", "call_id": call, "name": "shell", "arguments": "{}", **more}


def out(call: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call, "output": "Done."}


def said(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def heard(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def use(call: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": "shell", "input": {}, **more}


def result(call: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": "Done."}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


CACHED = {"cache_control": {"type": "ephemeral"}}

WRONG: dict[str, list[tuple[dict[str, Any], str]]] = {
    "chat": [
        ({"messages": [USER, called("a", "b"), told("a")]}, "did not have response messages: b"),
        ({"messages": [USER, called("a"), USER, told("a")]}, "did not have response messages: a"),
        ({"messages": [USER, called("a"), told("a"), told("a")]}, "'tool_call_id' of 'a' not found"),
        ({"messages": [USER, called("a"), told("c")]}, "'tool_call_id' of 'c' not found"),
        ({"messages": [USER, told("a")]}, "must be a response to a preceeding message"),
        ({"messages": [USER, called(TOO_LONG), told(TOO_LONG)]}, "maximum length 40"),
        ({"messages": [USER, called()]}, "empty array"),
        ({"messages": [USER, {"role": "assistant", "content": None}]}, "expected a string, got null"),
        ({"messages": [heard({"type": "image"})]}, "Invalid value: 'image'"),
        ({"messages": [heard({"type": "image_url"})]}, "image_url.url"),
        ({"messages": [{"role": "robot", "content": "Hi."}]}, "Invalid value: 'robot'"),
        ({"messages": []}, "empty array"),
        ({"messages": None}, "Missing required parameter: 'messages'"),
        ({"messages": [USER, {**called("a"), "tool_calls": [{"id": "a"}]}]}, "Invalid request: KeyError"),
        ({"tools": []}, "empty array"),
        ({"tools": [{"type": "function", "name": "shell"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "pattern"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": {}}}]}, "Invalid schema"),
        ({"stream": False}, "only allowed when 'stream' is enabled"),
        ({"thinking": True}, "Unrecognized request argument supplied: thinking"),
        ({"model": ""}, "you must provide a model parameter"),
    ],
    "responses": [
        ({"input": [USER, fc("a"), fc("b"), out("a")]}, "No tool output found for function call b."),
        ({"input": [USER, fc("a"), out("a"), out("a")]}, "No tool call found for function call output"),
        ({"input": [USER, out("c")]}, "No tool call found for function call output with call_id c."),
        ({"input": [USER, fc("a", id="a"), out("a")]}, "begins with 'fc'"),
        ({"input": [USER, fc(TOO_LONG), out(TOO_LONG)]}, "maximum length 64"),
        ({"input": [USER, fc("a", arguments={}), out("a")]}, "expected a string, but got an object"),
        ({"input": [heard(text("Hi."))]}, "Supported values are: 'input_text'"),
        ({"input": [said({"type": "input_text", "text": "Hi."})]}, "Supported values are: 'output_text'"),
        ({"input": [{"type": "tool_result"}]}, "Invalid value: 'tool_result'"),
        ({"input": [{"type": "function_call_output", "call_id": "a"}]}, "'input[0].output'"),
        ({"input": [USER, {"type": "reasoning", "id": "rs_1", "summary": []}]}, "Items are not persisted"),
        (
            {"input": [USER, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "other"}]},
            "could not be verified",
        ),
        ({"input": []}, "Missing required parameter: 'input'"),
        ({"max_output_tokens": 1}, "Expected a value >= 16"),
        ({"tools": [{"type": "function", "function": {"name": "a"}}]}, "'tools[0].name'"),
        ({"tools": [{"type": "function", "name": "a", "parameters": {"type": "array"}}]}, "Invalid schema"),
        ({"previous_response_id": "resp_0"}, "Previous response with id 'resp_0' not found."),
        ({"messages": [USER]}, "Unknown parameter: 'messages'"),
    ],
    "anthropic": [
        ({"messages": [USER, said(use("a"), use("b")), heard(result("a"))]}, "immediately after: b."),
        ({"messages": [USER, said(use("a")), USER, heard(result("a"))]}, "immediately after: a."),
        ({"messages": [USER, said(use("a"))]}, "immediately after: a."),
        ({"messages": [USER, said(use("a")), heard(result("a"), result("a"))]}, "must have a single result"),
        ({"messages": [USER, said(use("a")), heard(result("c"))]}, "unexpected `tool_use_id`"),
        ({"messages": [USER, said(use("a"), use("a")), heard(result("a"))]}, "ids must be unique"),
        ({"messages": [USER, said(use("a b")), heard(result("a b"))]}, "tool_use.id: String should match pattern"),
        ({"messages": [USER, said(use("a", input="{}")), heard(result("a"))]}, "valid dictionary"),
        ({"messages": [said(text("Hi.")), USER]}, 'first message must use the "user" role'),
        ({"messages": [{"role": "system", "content": "Be kind."}, USER]}, "top-level `system` parameter"),
        ({"messages": [USER, said(), USER]}, "non-empty content"),
        ({"messages": [heard(text(""))]}, "must be non-empty"),
        ({"messages": [heard(text(" \n"))]}, "non-whitespace"),
        ({"messages": [USER, said(text("So: "))]}, "trailing whitespace"),
        ({"messages": [heard(use("a"))]}, "Input tag 'tool_use'"),
        ({"messages": [heard({"type": "image", "source": {"type": "base64", "media_type": "a/b"}})]}, "media_type"),
        ({"messages": [USER, said({"type": "thinking", "thinking": "Hm."}), USER]}, "signature: Field required"),
        (
            {"messages": [USER, said({"type": "thinking", "thinking": "Hm.", "signature": "x"}), USER]},
            "Invalid `signature`",
        ),
        ({"messages": [USER, said({"type": "redacted_thinking", "data": "x"}), USER]}, "Invalid `data`"),
        ({"messages": [heard(*[text("Hi.", **CACHED)] * 5)]}, "A maximum of 4 blocks"),
        ({"messages": []}, "at least one message"),
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"max_tokens": 0}, "greater than or equal to 1"),
        ({"thinking": {"type": "enabled"}}, "budget_tokens: Field required"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10}}, "greater than or equal to 1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5000}}, "must be greater than `thinking.budget_tokens`"),
        ({"temperature": 0.5}, "`temperature` may only be set to 1"),
        ({"tool_choice": {"type": "any"}}, "forces tool use"),
        ({"tools": [{"name": "a b", "input_schema": {"type": "object"}}]}, "custom.name"),
        ({"tools": [{"name": "a"}]}, "input_schema: Field required"),
        ({"tools": [{"name": "a", "input_schema": {}}]}, "Input should be 'object'"),
        ({"tools": [{"name": "a", "input_schema": {"type": "object"}}] * 2}, "must be unique"),
        ({"stream_options": {}}, "stream_options: Extra inputs are not permitted"),
    ],
}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.mark.parametrize("api", WRONG)
def test_what_the_api_would_not_take_is_refused_in_its_words(server: ModelServer, api: str) -> None:
    server.will(Says("Never used."))
    for change, sentence in WRONG[api]:
        status, body = post(server, PATHS[api], {**body_of(api), **change})
        error = json.loads(body)["error"]
        assert sentence in error["message"], change
        assert status in (400, 404) and error["type"] == "invalid_request_error"
    assert len(server.refused) == len(WRONG[api]) and server.unused == 1
    assert post(server, PATHS[api], "no object")[0] == 400
    assert post(server, PATHS[api], body_of(api))[0] == 200


def test_no_parameter_that_an_sdk_sends_is_unknown() -> None:
    for sent, known in (
        (CompletionCreateParamsBase, asked_chat.KNOWN),
        (ResponseCreateParamsBase, asked_responses.KNOWN),
        (MessageCreateParamsBase, asked_anthropic.KNOWN),
    ):
        assert set(sent.__annotations__) - known == set()


def test_anthropic_wants_its_version_and_takes_neighbours_of_one_role_as_one(server: ModelServer) -> None:
    body = body_of("anthropic") | {"stream": False, "messages": [USER, USER, said(text("Yes?")), USER]}
    assert json.loads(post(server, PATHS["anthropic"], body)[1])["content"][0]["text"] == "You said: Hi."
    with openai.OpenAI(base_url=server.url, api_key="key", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError, match="anthropic-version: header is required"):
            client.post("/messages", body=body, cast_to=object)


def test_thinking_comes_back_unchanged_while_tools_are_used(server: ModelServer) -> None:
    server.will((Thinks("Look.") + Thinks("Secret.", hidden=True) + Calls(("shell", {}))), Says("Done."))
    body = body_of("anthropic") | {"stream": False}
    answer = json.loads(post(server, PATHS["anthropic"], body)[1])["content"]
    assert [block["type"] for block in answer] == ["thinking", "redacted_thinking", "tool_use"]
    back = heard(result(answer[2]["id"]))

    def again(blocks: list[dict[str, Any]]) -> str:
        messages = [USER, said(*blocks), back]
        found = json.loads(post(server, PATHS["anthropic"], {**body, "messages": messages})[1])
        return str(found["error"]["message"] if "error" in found else found["content"][0]["text"])

    changed = copy.deepcopy(answer)
    changed[0]["thinking"] = "Look away."
    assert "cannot be modified" in again(changed)
    forged = seal("Look away.")[:-8] + seal("Look along")[-8:]
    assert "Invalid `signature`" in again([{**answer[0], "signature": forged}, *answer[1:]])
    assert "Expected `thinking` or `redacted_thinking`, but found `tool_use`" in again(answer[2:])
    assert again(answer) == "Done."
    server.will(Thinks("Look.") + Calls(("shell", {})), Says("Streamed."))
    with anthropic.Anthropic(base_url=server.root, api_key="key", max_retries=0) as client:
        asked: Any = {name: value for name, value in body.items() if name != "stream"}
        with client.messages.stream(**asked) as stream:
            streamed = [block.model_dump(exclude_none=True) for block in stream.get_final_message().content]
    back = heard(result(streamed[1]["id"]))
    assert again(streamed) == "Streamed."
    body["thinking"] = {"type": "adaptive", "display": "omitted"}
    server.will(Thinks("Look.") + Says("Hm."))
    shown = json.loads(post(server, PATHS["anthropic"], body)[1])["content"]
    assert shown[0]["thinking"] == "" and len(shown[0]["signature"]) > 20
    del body["thinking"]
    server.will(Thinks("Look.") + Says("Hm."))
    unasked = json.loads(post(server, PATHS["anthropic"], body)[1])["content"]
    assert [block["type"] for block in unasked] == ["text"], "nobody asked it to think"


def test_reasoning_comes_back_with_what_followed_from_it(server: ModelServer) -> None:
    reply = Thinks("Look.") + Calls(("shell", {"command": "ls"}))
    server.will(reply, Says("Done."))
    with openai.OpenAI(base_url=server.url, api_key="key", max_retries=0) as client:
        include: Any = ["reasoning.encrypted_content"]
        first = client.responses.create(model="m", input="Hi.", store=False, include=include)
        thought, call = (item.model_dump(exclude_none=True) for item in first.output)
        assert thought["summary"] == [] and thought["encrypted_content"], "no summary was asked for"
        done = out(call["call_id"])

        def again(*items: Any, **more: Any) -> str:
            given: Any = [USER, *items]
            return str(client.responses.create(model="m", input=given, store=False, **more).output_text)

        with pytest.raises(openai.BadRequestError, match="without its required 'reasoning' item"):
            again(call, done)
        with pytest.raises(openai.BadRequestError, match="without its required following item"):
            again(thought, USER)
        with pytest.raises(openai.NotFoundError, match="not persisted"):
            again({"type": "reasoning", "id": thought["id"], "summary": []}, call, done)
        assert again(thought, call, done) == "Done."
        server.will(reply)
        kept = client.responses.create(model="m", input="Hi.")
        output: Any = [out(kept.output[-1].call_id)] if kept.output[-1].type == "function_call" else []
        with pytest.raises(openai.BadRequestError, match="No tool output found"):
            client.responses.create(model="m", input="And?", previous_response_id=kept.id)
        assert client.responses.create(model="m", input=output, previous_response_id=kept.id).output_text


def test_a_key_a_model_and_a_window_are_as_the_server_was_told() -> None:
    with ModelServer(key="right", models=["one", "two"], window=100) as server:
        for api, key, model, words, status in itertools.chain.from_iterable(
            (
                (api, "wrong", "one", "Hi.", 401),
                (api, "", "one", "Hi.", 401),
                (api, "right", "three", "Hi.", 404),
                (api, "right", "two", "Hi. " * 200, 400),
                (api, "right", "two", "Hi.", 200),
            )
            for api in PATHS
        ):
            header = {"x-api-key": key} if api == "anthropic" else {"authorization": f"Bearer {key}"}
            assert post(server, PATHS[api], {**body_of(api, words), "model": model}, **header)[0] == status
        assert len(server.refused) == 12
        with anthropic.Anthropic(base_url=server.root, api_key="right", max_retries=0) as client:
            assert [each.id for each in client.models.list()] == ["one", "two"]
        with anthropic.Anthropic(base_url=server.root, api_key="wrong", max_retries=0) as client:
            with pytest.raises(anthropic.AuthenticationError):
                client.models.list()


def test_without_a_script_it_answers_as_the_scripted_model_does(server: ModelServer) -> None:
    """In every API: what was said comes back, commands become calls, and results are told."""
    asked = "Look.\n$ ls"
    first = json.loads(post(server, PATHS["chat"], {"model": "m", "messages": [{"role": "user", "content": asked}]})[1])
    message = first["choices"][0]["message"]
    assert message["content"] == "You said: Look.\n"
    assert message["tool_calls"][0]["function"] == {"name": "shell", "arguments": '{"command":"ls"}'}
    user = {"role": "user", "content": asked}
    histories: dict[str, dict[str, Any]] = {
        "chat": {"messages": [user, message, told(message["tool_calls"][0]["id"])]},
        "responses": {"input": [user, fc("a"), out("a")]},
        "anthropic": {"messages": [user, said(use("a")), heard(result("a"))]},
    }
    for api, change in histories.items():
        server.otherwise(Reply().slow(0.001))
        body = {**body_of(api), **change, "stream": False}
        body.pop("stream_options", None)
        assert b"shell: Done." in post(server, PATHS[api], body)[1]
    server.otherwise(Fails(500))
    assert post(server, PATHS["chat"], body_of("chat"))[0] == 500
    assert server.otherwise(None).refused == []
