"""`remember` and `recall` hand on to the memory of the agent, and say what came of it."""

from pathlib import Path

import pytest

from quell.errors import ToolError
from quell.toolbox.remember import TEXT_MOST, Recall, Remember, plugin

from .callers import Session, in_session


def test_what_is_remembered_is_recalled(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        assert await session.call(Recall(), {"query": "port"}) == "Nothing is remembered on that."
        for text in ("the port is 8080", "the port was 80", "tea"):
            assert await session.call(Remember(), {"text": text}) == "Remembered."
        assert await session.call(Recall(), {"query": "port"}) == "- the port is 8080\n\n- the port was 80"
        assert await session.call(Recall(), {"query": "port", "limit": 1}) == "- the port is 8080"

    in_session(tmp_path, body)


def test_bad_arguments_are_refused_with_a_sentence(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        for tool, arguments, sentence in (
            (Remember(), {}, "remember: Object missing required field `text`"),
            (Remember(), {"text": ""}, "remember: Expected `str` of length >= 1"),
            (Remember(), {"text": "x" * (TEXT_MOST + 1)}, "remember: Expected `str` of length <= 10000"),
            (Recall(), {"query": 3}, "recall: Expected `str`, got `int`"),
            (Recall(), {"query": "x", "limit": 0}, "recall: Expected `int` >= 1"),
            (Recall(), {"query": "x", "who": "all"}, "recall: Object contains unknown field `who`"),
        ):
            with pytest.raises(ToolError) as refusal:
                await session.call(tool, arguments)
            assert str(refusal.value).startswith(sentence)
        assert session.remembered == []

    in_session(tmp_path, body)


def test_the_plugin_has_both_tools() -> None:
    assert (plugin.name, Remember.spec.name, Recall.spec.name) == ("remember", "remember", "recall")
