"""What a runtime holds at one moment: the size of every map, list and queue that can be reached from it, by name."""

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from quell.kernel.runtime import Runtime
from tests.supervise.conftest import own_cgroups
from tests.supervise.holdings import grown, holdings
from tests.supervise.loops import until

_SIZED = (dict, list, set, frozenset, tuple, deque)
Sizes = Counter[str]


def sizes(rt: Runtime) -> Sizes:
    """By class and attribute. Objects of others (asyncio's, SQLite's) are not entered."""
    found: Sizes = Counter()
    seen: set[int] = set()
    todo: list[tuple[str, Any]] = [("Runtime", rt)]
    while todo:
        name, one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, _SIZED):
            found[f"reached in {name}"] += len(one)
            inside = [*one.keys(), *one.values()] if isinstance(one, dict) else list(one)
            todo += [(f"{name}[]", each) for each in inside]
        elif is_ours(one):
            found[f"reached {type(one).__qualname__}"] += 1
            todo += [(f"{type(one).__qualname__}.{attribute}", value) for attribute, value in attributes(one)]
    return found


def is_ours(one: object) -> bool:
    module = str(type(one).__module__)
    return module.startswith("quell") and not module.startswith("quell.testing")


def attributes(one: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(one, "__dict__", {}).items()
    for kind in type(one).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(one, name):
                yield name, getattr(one, name)


def everything(rt: Runtime) -> Sizes:
    """That, and all objects of ours that are in memory, threads, processes, open files."""
    assert rt._supervisor is not None
    return Counter(holdings(rt._supervisor)) + sizes(rt)


async def baseline(rt: Runtime) -> Sizes:
    """Once the boxes that are made ahead of need are there."""
    assert rt._supervisor is not None
    zygote = rt._supervisor._shared.hub.zygote

    def full() -> bool:
        zygote.refill()
        return len(zygote._spare) >= zygote._pool and all(box.settled() for box in zygote._spare)

    assert await until(full)
    assert own_cgroups() == []
    return everything(rt)


async def more(rt: Runtime, before: Sizes, bound: float = 10.0) -> list[str]:
    """What there is more of for good, in words: what is under way has time to end."""
    left: list[str] = []

    def nothing_more() -> bool:
        left[:] = grown(before, everything(rt))
        return not left

    await until(nothing_more, bound)
    return left
