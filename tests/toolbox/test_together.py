"""The bundled tools in a running runtime: the kernel's own caller, its limits, its memory and its log."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import quell
from quell.events import ToolCall
from quell.ports import Ask, Chunk, PluginContext, Text

SAFE = ("read", "write", "edit", "glob", "grep", "fetch", "remember", "recall")


class Typist:
    """Calls the tools that it was given a list of, and says what came of them."""

    name = "typist"

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        self._calls = calls
        self.heard: list[str] = []

    def setup(self, ctx: PluginContext) -> None:
        ctx.model("typist", lambda: self)

    async def answer(self, ask: Ask) -> AsyncIterator[Chunk]:
        results = [one for message in ask.messages for one in message.results]
        if results:
            self.heard = [one.text for one in results]
            yield Text("done")
            return
        for number, (tool, arguments) in enumerate(self._calls):
            yield ToolCall(f"call-{number}", tool, arguments)


def test_the_tools_work_in_a_session_and_keep_away_from_what_is_quells_own(tmp_path: Path) -> None:
    """H50: notes that are made at once in one turn are all there in the next runtime."""
    (tmp_path / "a.txt").write_text("findable")
    (tmp_path / "link").symlink_to("state")
    agent = quell.Agent(name="typist", model="typist", tools=SAFE, memory="sqlite", approval={"*": "allow"})

    async def turn(*calls: tuple[str, dict[str, Any]]) -> list[str]:
        typist = Typist(*calls)
        async with asyncio.timeout(30):
            async with quell.Runtime(state_dir=tmp_path / "state", agents=[agent], plugins=[typist]) as runtime:
                session = await runtime.open("typist", tmp_path)
                ended = await session.send("go")
                assert (ended.end, ended.reason) == ("completed", "")
        return typist.heard

    async def main() -> None:
        heard = await turn(
            ("read", {"path": "a.txt"}),
            ("write", {"path": "sub/b.txt", "text": "findable too"}),
            ("read", {"path": "state/log.sqlite"}),
            ("write", {"path": "link/x", "text": "y"}),
            ("glob", {"pattern": "**/*.sqlite*"}),
            ("grep", {"pattern": "tool.requested", "path": "state"}),
            ("fetch", {"url": "http://127.0.0.1/"}),
            *(("remember", {"text": f"number {n}"}) for n in range(20)),
        )
        assert heard[0] == "findable" and heard[1].startswith("Made sub/b.txt")
        assert all("is Quell's own" in one for one in (heard[2], heard[3], heard[5]))
        assert heard[4] == "Nothing matches." and "not on the public internet" in heard[6]
        assert heard[7:] == ["Remembered."] * 20
        recalled, found = await turn(("recall", {"query": "number", "limit": 50}), ("grep", {"pattern": "findable"}))
        assert sorted(recalled.split("\n\n")) == sorted(f"- number {n}" for n in range(20))
        assert found == "a.txt:1: findable\nsub/b.txt:1: findable too"

    asyncio.run(main())
