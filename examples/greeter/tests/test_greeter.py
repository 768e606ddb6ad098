"""The plugin as Quell finds it, by its entry point: with a stand-in for what Quell gives it, and in a real runtime."""

import asyncio
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import quell
from quell.errors import ToolError
from quell.events import ToolEnded, ToolRequested
from quell.models.scripted import Scripted
from quell.runtime import installed
from quell.testing import check_log


@pytest.fixture
def ctx() -> Mock:
    """A context that has been given to the plugin."""
    [entry] = entry_points(group="quell.plugins", name="greeter")
    ctx = Mock()
    entry.load()().setup(ctx)
    return ctx


def greet(ctx: Mock, **arguments: Any) -> str:
    [function] = ctx.tool.call_args.args
    answer: str = asyncio.run(function(caller=Mock(), **arguments))
    return answer


def test_it_greets(ctx: Mock) -> None:
    assert greet(ctx, who="Ada") == "Hello, Ada!"
    assert greet(ctx, who="Ada", language="fr") == "Bonjour, Ada!"


def test_a_language_that_it_does_not_speak_is_told_to_the_model(ctx: Mock) -> None:
    with pytest.raises(ToolError, match="I do not speak tlh"):
        greet(ctx, who="Worf", language="tlh")


def test_it_tells_of_every_greeting_that_is_asked_for(ctx: Mock) -> None:
    kind, handler = ctx.on.call_args.args
    assert kind == "tool.requested"
    asyncio.run(handler(ToolRequested(session="s1", tool="greet", arguments={"who": "Ada"})))
    asyncio.run(handler(ToolRequested(session="s1", tool="shell", arguments={})))
    ctx.emit.assert_called_once_with("asked", {"who": "Ada"}, session="s1")


def test_an_agent_greets_with_it(tmp_path: Path) -> None:
    [entry] = entry_points(group="quell.plugins", name="greeter")

    class Polite:
        name = "polite"

        def setup(self, ctx: Any) -> None:
            steps: list[list[dict[str, Any]]] = [[{"call": "greet", "arguments": {"who": "Ada"}}], [{"say": "done"}]]
            ctx.model("polite", lambda: Scripted(steps))

    agent = quell.Agent(name="polite", model="polite", tools=("greet",), approval={"greet": "allow"})

    async def main() -> list[quell.Event]:
        given = [Polite()] if "greeter" in [one.name for one in installed()] else [entry.load()(), Polite()]
        async with quell.Runtime(state_dir=tmp_path / "state", plugins=given, agents=[agent]) as runtime:
            session = await runtime.open("polite", tmp_path)
            return [event async for event in session.send("greet Ada")]

    events = asyncio.run(main())
    assert [one.result for one in events if isinstance(one, ToolEnded)] == ["Hello, Ada!"]
    check_log(tmp_path / "state" / "log.sqlite")
