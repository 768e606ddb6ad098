"""`quell serve` with what tests need besides: an agent that asks before it acts, and a handler that blocks the loop."""

import sys
import time
from typing import Any

import quell.runtime as home
from quell.cli import main
from quell.config import Agent
from quell.ports import PluginContext

BLOCK = "hold everything up"
SECONDS = 30.0


class Blocker:
    name = "blocker"

    def setup(self, ctx: PluginContext) -> None:
        async def hear(event: Any) -> None:
            if event.text == BLOCK:
                time.sleep(SECONDS)  # noqa: ASYNC251  what is proven is that a stop does not need the loop

        ctx.on("message.user", hear)


class Composed(home.Runtime):
    def __init__(self, **given: Any) -> None:
        given["agents"] = [*given.get("agents", ()), Agent(name="careful")]
        given["plugins"] = [*given.get("plugins", ()), Blocker()]
        super().__init__(**given)


if __name__ == "__main__":
    home.Runtime = Composed  # type: ignore[misc]  # in this program only
    sys.exit(main(sys.argv[1:]))
