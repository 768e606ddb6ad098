"""A census tells what this process owns; two of them tell what leaked, and the line that made it.

    before = census()
    …
    for leak in before.leaks():
        print(leak)

What is there now and was not before is a leak, once it has had a moment to go. Inside a running loop it is
`await before.settled_leaks()`. Under `with tracking():` each leak comes with its line, and tasks that were destroyed
while they were pending, or that only the end of their runner cancelled, are leaks too.
"""

from __future__ import annotations

import asyncio
import fnmatch
import gc
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ..errors import UsageError
from . import kinds as of_kind
from . import pending
from .kinds import Thing
from .notes import Origin
from .origins import SETTLE, active, tracking
from .processes import cgroups, descendants, namespaces

__all__ = ["KINDS", "SETTLE", "Census", "Ignore", "Leak", "Thing", "census", "tracking"]

KINDS = ("task", "thread", "fd", "socket", "descendant", "temp", "cgroup", "namespace")

_COLLECT = 0.25
"""Seconds between two collections of garbage while we wait."""


@dataclass(frozen=True)
class Leak:
    """One thing that was left behind. `made` is `file:line in function`, where that was seen."""

    kind: str
    what: str
    made: str | None = None
    caller: str | None = None
    """The first line of the project's own that led to `made`, where that is a library's."""

    def __str__(self) -> str:
        made = f", made at {self.made}" if self.made else ""
        caller = f", called from {self.caller}" if self.caller else ""
        return f"{self.kind} {self.what}{made}{caller}"


Ignore = str | Callable[[Leak], bool]
"""A predicate, or a pattern as for file names over `kind what`: `"thread 'asyncio_*"`."""


def census(kinds: Iterable[str] | str = KINDS, ignore: Ignore | Iterable[Ignore] = ()) -> Census:
    """What this process owns now, of these kinds; what matches `ignore` will be no leak."""
    wanted = {kinds} if isinstance(kinds, str) else set(kinds)
    for unknown in sorted(wanted.difference(KINDS)):
        raise UsageError(f"there is no kind '{unknown}': choose among {', '.join(KINDS)}")
    return Census(tuple(kind for kind in KINDS if kind in wanted), _predicate(ignore), tempfile.gettempdir())


def _predicate(ignore: Ignore | Iterable[Ignore]) -> Callable[[Leak], bool]:
    each = [ignore] if isinstance(ignore, str) or callable(ignore) else list(ignore)
    return lambda leak: any(
        one(leak) if callable(one) else fnmatch.fnmatchcase(f"{leak.kind} {leak.what}", one) for one in each
    )


class Census:
    """A look at one moment. Iterating over it gives its things."""

    def __init__(self, kinds: tuple[str, ...], ignore: Callable[[Leak], bool], folder: str) -> None:
        self.kinds = kinds
        self.ignore = ignore
        self._folder = folder  # the one for temporary files, which a test may change
        self._notes = active()
        self._lost = len(self._notes.lost) if self._notes is not None else 0
        self._things = {(thing.kind, thing.key): thing for thing in self._look()}

    def _look(self) -> Iterator[Thing]:
        kinds = self.kinds
        if "task" in kinds:
            yield from of_kind.tasks()
        if "thread" in kinds:
            yield from of_kind.threads()
        if "fd" in kinds or "socket" in kinds:
            yield from (one for one in of_kind.descriptors() if one.kind in kinds)
        if "descendant" in kinds or "namespace" in kinds:
            below = descendants()
            yield from below if "descendant" in kinds else ()
            yield from namespaces(below) if "namespace" in kinds else ()
        if "temp" in kinds:
            yield from of_kind.temporaries(self._folder)
        if "cgroup" in kinds:
            yield from cgroups()

    def __iter__(self) -> Iterator[Thing]:
        return iter(self._things.values())

    def __len__(self) -> int:
        return len(self._things)

    def leaks(self, after: Census | None = None, settle: float = SETTLE) -> list[Leak]:
        """What is there `after`, or now and `settle` seconds from now, and was not at this census.

        It blocks. Under `tracking()`, loops of this thread that stand still are turned, so that their tasks can end.
        """
        if after is not None:
            return [*self._lost_until(after), *map(_leak, self._new(after))]
        wait = _Wait(self, settle)
        while not wait.over():
            wait.turn_loops()
            time.sleep(pending.PAUSE)
        return wait.leaks()

    async def settled_leaks(self, settle: float = SETTLE) -> list[Leak]:
        """The same inside a loop, which goes on meanwhile."""
        wait = _Wait(self, settle)
        while not wait.over():  # noqa: ASYNC110  # what we wait for sets no event
            await asyncio.sleep(pending.PAUSE)
        return wait.leaks()

    def _new(self, after: Census) -> list[Thing]:
        """What `after` has more, without what is ignored or not ours."""
        new = [thing for key, thing in after._things.items() if key not in self._things]
        return [thing for thing in new if thing.is_ours(active()) and not self.ignore(_leak(thing))]

    def _lost_until(self, after: Census | None, told: Iterable[int] = ()) -> Iterator[Leak]:
        """Tasks that were lost since; not those that were there before, or are `told` of already."""
        notes = active()
        if notes is None or "task" not in self.kinds:
            return
        first = self._lost if notes is self._notes else 0
        known = {thing.ident for thing in self if isinstance(thing, of_kind.Task)}.union(told)
        for lost in notes.lost[first : None if after is None else after._lost]:
            leak = Leak("task", lost.what, *(lost.origin or ()))
            if lost.ident in known:
                known.remove(lost.ident)  # the next of that number is another
            elif not self.ignore(leak):
                yield leak


def _leak(thing: Thing) -> Leak:
    notes = active()
    origin: Origin | tuple[()] = (thing.origin(notes) if notes is not None else None) or ()
    return Leak(thing.kind, thing.what, *origin)


class _Wait:
    """The time that new things get to go."""

    def __init__(self, before: Census, settle: float) -> None:
        self._before = before
        self._end = time.monotonic() + settle
        self._collected = 0.0
        self._new: list[Thing] = []
        self._never: dict[int, Leak] = {}  # tasks whose loop is closed: collecting the garbage only hides them

    def turn_loops(self) -> None:
        tasks = [task for thing in self._new if isinstance(thing, of_kind.Task) and (task := thing.task) is not None]
        if (notes := active()) is not None and tasks:
            pending.turn(tasks, notes)

    def over(self) -> bool:
        """Look again: whether nothing is left that could go, or no time."""
        before = self._before
        self._new = []
        for thing in before._new(Census(before.kinds, before.ignore, before._folder)):
            if isinstance(thing, of_kind.Task) and thing.never_ends:
                self._never[thing.ident] = _leak(thing)
            else:
                self._new.append(thing)
        now = time.monotonic()
        if not self._new or now > self._end:
            return True
        if now - self._collected > _COLLECT:
            self._collected = now
            gc.collect()
        return False

    def leaks(self) -> list[Leak]:
        lost = self._before._lost_until(None, told=self._never)
        found = [*lost, *self._never.values(), *map(_leak, self._new)]
        return sorted(found, key=lambda leak: KINDS.index(leak.kind))
