"""What a supervisor holds at one moment, in numbers that must not grow: everywhere, not only where Quell says so."""

import gc
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import quell

from .conftest import own_cgroups
from .loops import until

Holdings = Counter[str]
_SIZED = (dict, list, set, bytearray)


def holdings(sup: quell.Supervisor) -> Holdings:
    """Open files, threads, processes below us with their open files, state, cgroups, and every object and map."""
    gc.collect()
    found: Holdings = Counter(threads=len(os.listdir("/proc/self/task")), cgroups=len(own_cgroups()))
    found["state files"] = sum(len(files) for _, _, files in os.walk(sup.state_dir))
    found.update(f"open {_kind(target)}" for target in _open_files(os.getpid()))
    for pid, name in below(os.getpid()):
        found[f"process {name}"] += 1
        found[f"open files of {name}"] += len(list(_open_files(pid)))
    for one in gc.get_objects():
        module = str(type(one).__module__)  # a class may have something else there
        if module.startswith("quell.") and not module.startswith("quell.testing."):
            found[f"objects {type(one).__qualname__}"] += 1
            for attribute, value in _attributes(one):
                if isinstance(value, _SIZED):
                    found[f"in {type(one).__qualname__}.{attribute}"] += len(value)
    return found


async def baseline(sup: quell.Supervisor) -> Holdings:
    """What it holds once the boxes that are made ahead of need are there."""
    zygote = sup._shared.hub.zygote
    assert await until(lambda: len(zygote._spare) == zygote._pool and all(box.keeper for box in zygote._spare))
    return holdings(sup)


def grown(before: Holdings, after: Holdings) -> list[str]:
    """What there is more of, in words."""
    return [f"{name}: {before[name]} before, {count} now" for name, count in after.items() if count > before[name]]


async def at_rest(sup: quell.Supervisor, before: Holdings) -> list[str]:
    """What there is more of for good: what is under way has time to end."""
    left: list[str] = []

    def nothing_more() -> bool:
        left[:] = grown(before, holdings(sup))
        return not left

    await until(nothing_more)
    return left


def memory() -> dict[str, int]:
    """Bytes of memory of this process, and of the largest of each kind below it."""
    gc.collect()
    found = {"this process": _anonymous(os.getpid())}
    for pid, name in below(os.getpid()):
        if name.startswith("quell-"):
            found[name] = max(found.get(name, 0), _anonymous(pid))
    return found


def below(pid: int) -> Iterator[tuple[int, str]]:
    """Every descendant with its name."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        children = [int(one) for task in tasks for one in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        try:
            yield child, Path(f"/proc/{child}/comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        yield from below(child)


def _open_files(pid: int) -> Iterator[str]:
    """Nothing where that is not ours to see."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return
    for name in names:
        try:
            yield os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:  # the listing's own
            continue


def _kind(target: str) -> str:
    return target.partition(":[")[0]


def _attributes(one: object) -> Iterator[tuple[str, object]]:
    yield from getattr(one, "__dict__", {}).items()
    for kind in type(one).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(one, name):
                yield name, getattr(one, name)


def _anonymous(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")), 0)
