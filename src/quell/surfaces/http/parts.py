"""What the HTTP API stands on, and how long a reader of its own orders waits for the board to have seen them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...config import SCRIPTED
from .bridge import LIMIT, Bridge

if TYPE_CHECKING:
    from ...kernel.runtime import Runtime
    from .board import Board
    from .feed import Feed
    from .keys import Keys

T = TypeVar("T")
CATCH_UP = 2.0
"""Seconds for the board to see what an order led to: it is behind by a commit, or the log is broken."""


@dataclass(frozen=True)
class ServerInfo:
    version: str
    state_dir: str
    url: str
    """Without a slash at its end; empty if there is no address but the Unix socket."""
    started: float
    config_file: str = ""
    usual: Callable[[str], str] = lambda _model: SCRIPTED.name
    """Who answers where no agent is named, with that model or, if it is empty, with none named. UsageError."""


@dataclass(frozen=True)
class Parts:
    board: Board
    feed: Feed
    bridge: Bridge
    keys: Keys | None
    info: ServerInfo
    down: Callable[[bool], object]
    """Stop the server; True: by force. Called in the front's loop."""
    web: Path
    """The files of the page."""

    async def order(self, make: Callable[[Runtime], Awaitable[T]], limit: float = LIMIT) -> T:
        """In the kernel's loop. When this returns, the board has seen what came of it."""

        async def run(rt: Runtime) -> tuple[T, int]:
            result = await make(rt)
            return result, rt.host.journal.last

        result, seq = await self.bridge.ask(run, limit)
        await self.seen(seq)
        return result

    async def seen(self, seq: int, bound: float = CATCH_UP) -> None:
        """Until the board is there, or a bound."""
        await self.feed.reach(seq, bound)
