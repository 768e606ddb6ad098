"""What the tests of `cancel_everywhere` share."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from quell.testing.cancelling import Coverage, cancel_everywhere
from quell.testing.counting import KINDS

Cover = Callable[..., Coverage]
Run = Callable[[Any], Awaitable[Any]]

SHORT = 0.3
"""Seconds for what a planted fault leaves; it will not go, so there is no use in waiting."""
OF_THIS_PROCESS = [kind for kind in KINDS if kind != "cgroup"]
"""Cgroups may be anybody's on this machine."""


def everywhere(scenario: Callable[..., Any], **wishes: Any) -> Coverage:
    return cancel_everywhere(scenario, **({"kinds": OF_THIS_PROCESS} | wishes))


async def three_steps() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def clean_up_of_one_step() -> None:
    try:
        await asyncio.sleep(0)
    finally:
        await asyncio.sleep(0)
