"""What a runtime stands on: real by default, and a simulation brings its own."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ports import Clock, Spawner, Store
from ..supervise import Scope, Supervisor
from .discovery import Found

if TYPE_CHECKING:
    from typing import Any


class WallClock:
    def now(self) -> float:
        return time.time()


async def spawn_in(scope: Scope, argv: Sequence[str], **wishes: Any) -> Any:
    return await scope.spawn(argv, **wishes)


@dataclass(frozen=True)
class Ports:
    store: Callable[[str], Store]
    """Given the path of the log."""
    find: Callable[[], list[Found]] = list
    """The plugins that there are. Called in a thread."""
    supervisor: Callable[..., Supervisor] = Supervisor
    clock: Clock = WallClock()  # noqa: RUF009  it has no state
    spawn: Spawner = spawn_in
    ids: Callable[[], str] = lambda: secrets.token_hex(5)
