"""Anthropic's messages: what is cached, how hard it thinks, and what becomes of its thoughts."""

import time
from typing import Any

import pytest

from quell.config import Provider
from quell.errors import ModelError
from quell.events import ToolCall, Usage
from quell.models.endpoint import Endpoint
from quell.models.messages import MessagesReader, messages_body
from quell.ports import Ask, Keep, Message, ToolResult
from quell.testing.llm import Calls, ModelServer, Says, Thinks

from .serving import TOOLS, asking, chunks, replied, text_of

OWN = Endpoint("https://api.anthropic.com", True)


def body(*messages: Message | str, **wishes: Any) -> dict[str, Any]:
    return messages_body(asking("anthropic", *messages, **wishes), OWN)


def calling(text: str) -> list[Message]:
    call = ToolCall("a", "shell", {"command": "ls"})
    return [Message("assistant", "I look.", [call]), Message("tool", results=[ToolResult("a", "shell", text)])]


def marks(value: Any) -> int:
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(marks(one) for one in value.values())
    return sum(marks(one) for one in value) if isinstance(value, list) else 0


def test_what_stays_the_same_is_cached_with_the_last_of_the_conversation() -> None:
    """Four marks are allowed: the tools, the system prompt, and two of the user's."""
    history = [Message("system", "Be kind."), Message("user", "Hello."), *calling("a.txt"), *calling("b.txt")]
    sent = body(*history, tools=TOOLS)
    assert marks(sent) == 4
    assert "cache_control" in sent["tools"][-1] and "cache_control" in sent["system"][0]
    assert ["cache_control" in one["content"][-1] for one in sent["messages"] if one["role"] == "user"] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "config", "longest"),
    [
        ("claude-opus-4-6", "high", "adaptive", {"effort": "high"}, 32_000),
        ("claude-sonnet-5-5", "low", "adaptive", {"effort": "low"}, 32_000),
        ("claude-something-new", "medium", "adaptive", {"effort": "medium"}, 32_000),
        ("claude-haiku-4-5-20251001", "medium", 8_192, None, 32_000),
        ("claude-opus-4-5", "high", 16_384, None, 32_000),
        ("claude-sonnet-4-20250514", "low", 2_048, None, 32_000),
        ("claude-3-5-haiku-20241022", "high", None, None, 8_192),
        ("claude-opus-4-6", "", None, None, 32_000),
        ("claude-opus-5-5", "", "adaptive", None, 32_000),
        ("claude-fable-5-1", "", "adaptive", None, 32_000),
    ],
)
def test_effort_is_said_as_the_model_wants_it(
    model: str, effort: Any, thinking: object, config: object, longest: int
) -> None:
    sent = body(model=model, effort=effort)
    found = sent.get("thinking", {})
    assert (found.get("budget_tokens", found.get("type")), sent.get("output_config")) == (thinking, config)
    assert sent["max_tokens"] == longest
    assert found.get("display", "summarized") == "summarized"


def test_a_budget_stays_below_the_longest_answer_and_out_of_a_turn_that_was_begun_without() -> None:
    assert body(model="claude-opus-4-5", effort="high", longest=4000)["thinking"]["budget_tokens"] == 2976
    assert "thinking" not in body(model="claude-opus-4-5", effort="high", longest=2000)
    begun: list[Message | str] = ["Hello.", *calling("a.txt")]
    assert "thinking" not in body(*begun, tools=TOOLS, model="claude-opus-4-5", effort="high")
    assert "thinking" in body(*begun, "And?", tools=TOOLS, model="claude-opus-4-5", effort="high")


def test_hidden_and_interleaved_thoughts_go_back_where_they_were() -> None:
    with ModelServer(
        Thinks("secret", hidden=True) + Thinks("open") + Says("I look. ") + Calls(("shell", {"command": "ls"})),
        Says("Done."),
    ) as server:
        said = chunks("anthropic", server, tools=TOOLS, effort="low", model="claude-opus-4-5")
        history: list[Message | str] = ["Hello.", *replied(said, "a.txt", failed=True)]
        again = chunks("anthropic", server, *history, tools=TOOLS, effort="low", model="claude-opus-4-5")
        assert text_of(again) == "Done." and server.refused == []
        answer, results = server.requests[1].body["messages"][1:]
    assert [one["type"] for one in answer["content"]] == ["redacted_thinking", "thinking", "text", "tool_use"]
    assert results["content"][0]["is_error"] is True


def test_a_summary_is_asked_for_without_tools_to_call() -> None:
    """The API refuses calls of the past whose tools it does not know."""
    sent = body("Hello.", *calling("a.txt"), "Summarise.")
    assert sent["tool_choice"] == {"type": "none"} and [one["name"] for one in sent["tools"]] == ["shell"]
    roles = [one["role"] for one in sent["messages"]]
    assert roles == ["user", "assistant", "user"], "the results and what the user says are one message"
    assert "tool_choice" not in body("Hello.", *calling("a.txt"), tools=TOOLS)


def test_what_was_written_to_the_cache_is_counted_and_paid() -> None:
    def used(model: str, where: Endpoint = OWN) -> Usage:
        reader = MessagesReader(asking("anthropic", model=model), where, Provider(name="anthropic", kind="anthropic"))
        usage = {"cache_read_input_tokens": 600_000, "cache_creation_input_tokens": 300_000, "input_tokens": 100_000}
        for event in (
            {"type": "message_start", "message": {"usage": {**usage, "output_tokens": 1}}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 100_000}},
            {"type": "message_stop"},
        ):
            assert list(reader.take(event)) == []
        (found,) = reader.end()
        assert isinstance(found, Usage) and (found.input, found.cached, found.output) == (1_000_000, 600_000, 100_000)
        return found

    assert used("claude-sonnet-4-6").cost == pytest.approx(0.1 * 3.0 + 0.6 * 0.3 + 0.3 * 3.75 + 0.1 * 15.0)
    long = 0.1 * 0.5 + 0.6 * 0.05 + 0.3 * 0.625 + 0.1 * 2.5  # more than 100,000 tokens: all of it five times as much
    assert used("claude-haiku-5-5").cost == pytest.approx(long)
    assert used("claude-sonnet-4-6", Endpoint("http://localhost", False)).cost == 0


def test_a_refusal_says_why() -> None:
    reader = MessagesReader(asking("anthropic"), OWN, Provider(name="anthropic", kind="anthropic"))
    details = {"type": "refusal", "category": "bio", "explanation": "This could do harm."}
    delta = {"stop_reason": "refusal", "stop_details": details}
    list(reader.take({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}}))
    with pytest.raises(ModelError, match=r"refused to answer this: This could do harm\."):
        list(reader.end())


def test_an_empty_history_is_still_a_question() -> None:
    assert messages_body(Ask([], model="claude-opus-5"), OWN)["messages"][0]["role"] == "user"


def test_a_long_thought_takes_no_longer_for_each_word_than_a_short_one() -> None:
    """Copied for every word, this one would keep the loop for a quarter of a minute."""
    reader = MessagesReader(asking("anthropic"), OWN, Provider(name="anthropic", kind="anthropic"))
    block = {"type": "thinking", "thinking": "so, "}
    word = {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "word"}}
    signed = word | {"delta": {"type": "signature_delta", "signature": "signed"}}
    list(reader.take({"type": "content_block_start", "index": 0, "content_block": block}))
    began = time.perf_counter()
    for _ in range(200_000):
        list(reader.take(word))
    assert time.perf_counter() - began < 5
    list(reader.take(signed))
    list(reader.take({"type": "message_stop"}))
    kept = next(one for one in reader.end() if isinstance(one, Keep))
    assert kept.data["items"] == [block | {"thinking": "so, " + "word" * 200_000, "signature": "signed"}]
