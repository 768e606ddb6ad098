"""The processes below this one, the namespaces that they are in, and the cgroups below its own."""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING

from ..supervise.keeper.crowd import cgroup_pids
from ..supervise.keeper.proc import Proc
from .kinds import Thing
from .notes import known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .notes import Notes, Origin

_ARGV = 100
"""Characters of a command line that are shown."""

_NAMESPACES = "cgroup ipc mnt net pid time user uts".split()


class Descendant(Thing):
    """Known by its pid and its start time (H13)."""

    kind = "descendant"

    def __init__(self, pid: int, start: int, group: int, words: str, above: Descendant | None) -> None:
        self.pid = pid
        self.group = group
        self.words = words
        self.above = above
        """The descendant that is its parent; None where that is this process."""
        self.key = pid, start

    @property
    def what(self) -> str:
        return f"{self.pid} {self.words}"

    def origin(self, notes: Notes) -> Origin | None:
        """Its own, or that of the one of its ancestors that this process made."""
        found = notes.of_process(self.pid, self.group)
        if found is None and self.above is not None:
            return known(self.above.origin(notes))
        return found


class Namespace(Thing):
    """One that is not this process's own, known by the kernel's number for it."""

    kind = "namespace"

    def __init__(self, name: str, member: Descendant) -> None:
        self.key = name
        self.member = member

    @property
    def what(self) -> str:
        return f"{self.key} of process {self.member.what}"

    def origin(self, notes: Notes) -> Origin | None:
        return self.member.origin(notes)


def descendants() -> list[Descendant]:
    """All below this process, parents first: zombies, and orphans that came to it as a subreaper."""
    proc = Proc()
    try:
        me = proc.me()
        found: dict[int, Descendant] = {}
        for pid in proc.descendants(me):
            state = proc.stat(pid)
            if state is None:
                continue
            words = "ended, never reaped" if state.state in "ZX" else repr(" ".join(proc.argv(pid))[:_ARGV])
            found[pid] = Descendant(pid, state.start, state.group, words, found.get(state.parent))
        return list(found.values())
    finally:
        proc.close()


def namespaces(members: list[Descendant]) -> Iterator[Thing]:
    """Each once, with the first process that is in it."""
    known = {_namespace("self", kind) for kind in _NAMESPACES} if members else set()
    for member in members:
        for kind in _NAMESPACES:
            name = _namespace(str(member.pid), kind)
            if name and name not in known:
                known.add(name)
                yield Namespace(name, member)


def _namespace(pid: str, kind: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:  # it has ended, or this kernel has no such kind
        return ""


class Cgroup(Thing):
    kind = "cgroup"

    def __init__(self, path: str, shared: bool) -> None:
        self.key = self.path = path
        self.shared = shared

    @property
    def what(self) -> str:
        return self.path

    def origin(self, notes: Notes) -> Origin | None:
        return notes.paths.get(self.path)

    def is_ours(self, notes: Notes | None) -> bool:
        """If it was made here, has our pid in its name or a descendant in it; or is empty, where nobody else is."""
        if notes is not None and self.path in notes.paths:
            return super().is_ours(notes)
        if str(os.getpid()) in re.findall(r"\d+", os.path.basename(self.path)):
            return True
        members = set(cgroup_pids(self.path))
        return (not members and not self.shared) or not members.isdisjoint(one.pid for one in descendants())


def cgroups() -> Iterator[Thing]:
    """Those below the folders of this process; directly below where it is in the root, which is everybody's."""
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        own = file.read()
    for home, deep in _homes(own):
        yield from (Cgroup(path, not deep) for path in _folders(home, deep))


def _folders(home: str, deep: bool) -> Iterator[str]:
    try:
        with os.scandir(home) as entries:
            found = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for path in found:
        yield path
        if deep:
            yield from _folders(path, deep)


@functools.lru_cache(maxsize=8)
def _homes(own: str) -> list[tuple[str, bool]]:
    """The folders that `/proc/self/cgroup` tells of, as far as they are mounted; and whether each is not the root."""
    mounts = list(_mounts())
    found = []
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        wanted = set(controllers.split(",")) if controllers else {"cgroup2"}
        for root, mount, offered in mounts:
            if wanted <= offered and (path + "/").startswith(root + "/") and not path.startswith("/.."):
                found.append((mount + path.removeprefix(root).rstrip("/"), path != "/"))
                break
    return found


def _mounts() -> Iterator[tuple[str, str, set[str]]]:
    """Of each cgroup mount: the part of the hierarchy that is there, where, and its kind and controllers."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            kind, _, options = right.rstrip("\n").split(" ", 2)
            if kind in ("cgroup", "cgroup2"):
                root, mount = (part.replace("\\040", " ") for part in left.split()[3:5])
                yield root.rstrip("/"), mount, {kind, *options.split(",")}
