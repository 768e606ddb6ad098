"""The plugin as Quell finds it, by its entry point, with a stand-in for what Quell gives it."""

import asyncio
from importlib.metadata import entry_points
from typing import Any
from unittest.mock import Mock

import pytest

from quell.errors import ToolError
from quell.events import ToolRequested


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
