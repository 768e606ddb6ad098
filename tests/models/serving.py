"""The models of each API against a local server that speaks it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import quell.models.anthropic
import quell.models.openai
from quell.config import Provider
from quell.events import ToolCall
from quell.models.patience import Patience
from quell.models.served import Served
from quell.ports import Ask, Chunk, Keep, Message, Model, Text, ToolResult, ToolSpec
from quell.testing.llm import ModelServer

T = TypeVar("T")

APIS = ("responses", "chat", "anthropic")
MODELS = {"responses": "gpt-5", "chat": "llama3", "anthropic": "claude-sonnet-4-6"}
QUICK = Patience(first=0.002)
TOOLS = [
    ToolSpec("shell", "Runs a command.", {"type": "object", "properties": {"command": {"type": "string"}}}),
    ToolSpec("files.read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),
]


@functools.cache
def sdk(kind: str) -> Any:
    """Of each kind one: to make it takes a while."""
    return quell.models.anthropic._Sdk() if kind == "anthropic" else quell.models.openai._Sdk()


def provider(api: str, server: ModelServer | None = None, **wishes: Any) -> Provider:
    url = "" if server is None else server.root if api == "anthropic" else server.url
    given = {"name": "it", "base_url": url} | wishes
    if api == "anthropic":
        return Provider(kind="anthropic", **given)
    return Provider(api="responses" if api == "responses" else "chat", **given)


def model(api: str, server: ModelServer | None = None, patience: Patience = QUICK, **wishes: Any) -> Model:
    return Served(provider(api, server, **wishes), sdk("anthropic" if api == "anthropic" else "openai"), patience)


def asking(api: str, *messages: Message | str, **wishes: Any) -> Ask:
    found = [Message("user", one) if isinstance(one, str) else one for one in messages or ("Hello.",)]
    return Ask(found, **({"model": MODELS[api]} | wishes))


def run(main: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(10):
            return await main

    return asyncio.run(bounded())


async def answer(model: Model, ask: Ask) -> list[Chunk]:
    return [chunk async for chunk in model.answer(ask)]


def chunks(api: str, server: ModelServer, *messages: Message | str, **wishes: Any) -> list[Chunk]:
    """One answer, in a loop of its own."""
    return run(answer(model(api, server), asking(api, *messages, **wishes)))


def text_of(said: list[Chunk]) -> str:
    return "".join(one.text for one in said if isinstance(one, Text))


def calls_of(said: list[Chunk]) -> list[ToolCall]:
    return [one for one in said if isinstance(one, ToolCall)]


def replied(said: list[Chunk], *results: str, failed: bool = False) -> list[Message]:
    """What goes into the history: the answer with what it wants back, and the results of its calls."""
    calls = calls_of(said)
    kept = {one.kind: one.data for one in said if isinstance(one, Keep)}
    found = [ToolResult(call.id, call.tool, text, failed) for call, text in zip(calls, results, strict=True)]
    return [Message("assistant", text_of(said), calls, kept=kept), Message("tool", results=found)]


async def first(stream: AsyncIterator[Chunk], count: int) -> list[Chunk]:
    """So many chunks of it; then it is closed."""
    found: list[Chunk] = []
    async with aclosing(stream) as chunks:  # type: ignore[type-var]  # an async generator has aclose
        async for chunk in chunks:
            found.append(chunk)
            if len(found) == count:
                break
    return found
