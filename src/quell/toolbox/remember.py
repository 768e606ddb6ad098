"""The tools `remember` and `recall`: what an agent keeps for later, in the memory that it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from ..ports import Caller, PluginContext, ToolSpec
from .arguments import schema, taken

TEXT_MOST = 10_000  # characters of one thing to remember
QUERY_MOST = 10_000
FOUND, MOST_FOUND = 5, 50


class Thing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[
        str,
        msgspec.Meta(
            min_length=1, max_length=TEXT_MOST, description="What to keep: whole sentences, which explain themselves."
        ),
    ]


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    query: Annotated[str, msgspec.Meta(max_length=QUERY_MOST, description="Words on it; empty gives the latest.")]
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_FOUND, description="How many to give at the most.")] = FOUND


class Remember:
    spec = ToolSpec("remember", "Keep something for later sessions.", schema(Thing))

    async def call(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        await caller.remember(taken("remember", Thing, arguments).text)
        return "Remembered."


class Recall:
    spec = ToolSpec("recall", "Find what was remembered, in this session or an earlier one.", schema(Question))

    async def call(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        question = taken("recall", Question, arguments)
        found = await caller.recall(question.query, question.limit)
        return "\n\n".join(f"- {one}" for one in found) or "Nothing is remembered on that."


class _Plugin:
    name = "remember"

    def setup(self, ctx: PluginContext) -> None:
        ctx.tool(Remember())
        ctx.tool(Recall())


plugin = _Plugin()
