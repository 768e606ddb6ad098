"""The tool `fetch`: a public page or file of the web as text, fetched by a process that ends with the call.

No agent has it unless its configuration names it, and one without a network is refused. The process runs in the
agent's own sandbox, if it has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from ..errors import ToolError
from ..ports import Caller, PluginContext, ToolSpec
from . import apart
from .arguments import schema, taken
from .tape import seam

SECONDS = 30.0  # from the first look-up to the last byte
TEXT_MOST = 50_000  # characters that are given at once


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: Annotated[str, msgspec.Meta(min_length=1, max_length=8000, description="An http or https address.")]
    start: Annotated[int, msgspec.Meta(ge=0, description="Where to go on in a long text, in characters.")] = 0


class Fetch:
    """`local` lets it reach this machine and private networks: for tests."""

    spec = ToolSpec("fetch", "Fetch a page or text file from the web, as text.", schema(Page))

    def __init__(self, *, local: bool = False, seconds: float = SECONDS) -> None:
        self._local = local
        self._seconds = seconds

    async def call(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        if not caller.network:
            raise ToolError("fetch: this agent has no network")
        page = taken("fetch", Page, arguments)
        request = {"url": page.url, "local": self._local}
        said = await apart.ask("fetch", "fetching", request, caller, self._seconds)
        if not said.in_time:
            raise ToolError(f"fetch: {page.url} was not there within {self._seconds:g} s")
        text, head = "".join(said.found), said.last["head"]
        if page.start and page.start >= len(text):
            raise ToolError(f"fetch: the text has {len(text)} characters, and none at {page.start}")
        begin = seam(text, page.start, caller.redact) if page.start else 0
        end = seam(text, begin + TEXT_MOST, caller.redact)
        if begin or end < len(text):
            further = f"; go on with start={end}" if end < len(text) else ""
            head += f", characters {begin} to {end} of {len(text)}{further}"
        return f"[{head}]\n{text[begin:end]}"


class _Plugin:
    name = "fetch"

    def setup(self, ctx: PluginContext) -> None:
        ctx.tool(Fetch())


plugin = _Plugin()
