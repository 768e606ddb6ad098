"""Every coroutine of the store, cancelled before every step of any task, once and twice: no thread, no file is left."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from quell.errors import StoreError
from quell.stores.sqlite import SqliteStore
from quell.testing import cancel_everywhere
from tests.supervise.loops import LOOPS, until

from .logs import Told, opened, row

BUDGET = 0.6
"""Seconds for each: all single points, and as many pairs as fit. QUELL_CANCEL_BUDGET gives more; `make soak` does."""

Target = Callable[[], Awaitable[object]]
Scenario = Callable[[], contextlib.AbstractAsyncContextManager[Target]]


async def whole(path: Path) -> None:
    async with opened(path) as (store, told, last):
        store.append(row(last + 1), False)
        store.append(row(last + 2), True)
        await told.reaches(last + 2)
        assert await store.read(after=last)


async def refused(path: Path) -> None:
    with contextlib.suppress(StoreError):
        await SqliteStore(path.parent).open(Told())


def of_place(call: Callable[[Path], Awaitable[object]]) -> Scenario:
    @contextlib.asynccontextmanager
    async def scenario() -> AsyncIterator[Target]:
        with tempfile.TemporaryDirectory() as folder:
            yield lambda: call(Path(folder) / "log.db")

    return scenario


def of_store(call: Callable[[SqliteStore, Told], Awaitable[object]]) -> Scenario:
    """On an open store, of which both threads run."""

    @contextlib.asynccontextmanager
    async def scenario() -> AsyncIterator[Target]:
        with tempfile.TemporaryDirectory() as folder:
            async with opened(Path(folder) / "log.db") as (store, told, _):
                await store.read()
                yield lambda: call(store, told)

    return scenario


async def append(store: SqliteStore, told: Told) -> None:
    number = told.safe + 1
    store.append(row(number), True)
    assert await until(lambda: told.safe >= number)


async def read(store: SqliteStore, told: Told) -> None:
    store.append(row(1), False)
    assert len(await store.read()) == 1


async def close(store: SqliteStore, told: Told) -> None:
    store.append(row(1), False)
    await store.close()


SCENARIOS: dict[str, Scenario] = {
    "open, append, read, close": of_place(whole),
    "open refused": of_place(refused),
    "append": of_store(append),
    "read": of_store(read),
    "sessions": of_store(lambda store, told: store.sessions()),
    "forget": of_store(lambda store, told: store.forget("s")),
    "close": of_store(close),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_of_the_store_is_left_wherever_it_is_cancelled(name: str, loop: str) -> None:
    """H02, H03: once, and again during clean-up."""
    coverage = cancel_everywhere(
        SCENARIOS[name],
        name=f"store {name}-{loop}",
        loop_factory=LOOPS[loop],
        budget=BUDGET,
        ignore=lambda leak: leak.kind == "cgroup",
    )
    assert coverage.findings == []


def test_every_coroutine_of_the_store_has_its_scenario() -> None:
    """H56: one that is added later cannot be left out."""
    public = {
        name
        for name, member in vars(SqliteStore).items()
        if asyncio.iscoroutinefunction(member) and not name.startswith("_")
    }
    assert len(public) >= 5
    assert [name for name in sorted(public) if name not in " ".join(SCENARIOS)] == []
