"""The tool `agent` hands a task to another agent and gives its answer."""

from pathlib import Path

import pytest

from quell.errors import ToolError
from quell.toolbox.agent import Agent, plugin

from .callers import Session, in_session


def test_the_answer_of_the_other_agent_is_the_result(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        assert await session.call(Agent(), {"agent": "scripted", "text": "$ echo hi"}) == "scripted did it"
        assert session.delegated == [("scripted", "$ echo hi")]

    in_session(tmp_path, body)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"agent": "a"}, "agent: Object missing required field `text`"),
        ({"agent": "", "text": "go"}, "agent: Expected `str` of length >= 1 - at `$.agent`"),
        ({"agent": "a", "text": 3}, "agent: Expected `str`, got `int` - at `$.text`"),
        ({"agent": "a", "text": "go", "depth": 3}, "agent: Object contains unknown field `depth`"),
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(tmp_path: Path, arguments: dict[str, object], sentence: str) -> None:
    async def body(session: Session) -> None:
        with pytest.raises(ToolError) as refusal:
            await session.call(Agent(), arguments)
        assert str(refusal.value).startswith(sentence)
        assert session.delegated == []

    in_session(tmp_path, body)


def test_the_plugin_has_the_name_of_its_tool() -> None:
    assert plugin.name == Agent().spec.name == "agent"
    assert Agent.spec.parameters["required"] == ["agent", "text"]
