"""A plugin in one file: a tool that greets, and a handler that tells of every greeting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quell.errors import ToolError
from quell.events import Event, ToolRequested

if TYPE_CHECKING:
    from quell.ports import Caller, PluginContext

GREETINGS = {"en": "Hello", "fr": "Bonjour", "de": "Hallo"}


async def greet(who: str, caller: Caller, language: str = "en") -> str:
    """Greet somebody in their language: en, fr or de."""
    if language not in GREETINGS:
        raise ToolError(f"I do not speak {language}; I speak {', '.join(GREETINGS)}")
    caller.output(f"greeting {who}\n")
    return f"{GREETINGS[language]}, {who}!"


class Greeter:
    name = "greeter"

    def setup(self, ctx: PluginContext) -> None:
        self.ctx = ctx
        ctx.tool(greet)
        ctx.on("tool.requested", self.notice)

    async def notice(self, event: Event) -> None:
        """The event that it makes is called `x.greeter.asked` in the log."""
        if isinstance(event, ToolRequested) and event.tool == "greet":
            self.ctx.emit("asked", {"who": event.arguments.get("who")}, session=event.session)
