"""Reading `/proc`: who descends from whom, under which argv, in which state.

A process is known by its pid together with its start time, or by its place below a living ancestor of ours;
never by the number alone (H13).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_ARGV_BYTES = 4096
_WHOLE = 2048  # bytes: procfs hands out less than this in one go only when there is no more
_DEAD = "ZX"
_GONE = (FileNotFoundError, ProcessLookupError)


class Seen:
    """One process as a walk saw it. `inner` is its pid in the keeper's PID namespace, where that has its own."""

    __slots__ = ("argv", "inner", "pid")

    def __init__(self, pid: int, inner: int | None, argv: list[str]) -> None:
        self.pid = pid
        self.inner = inner
        self.argv = argv


class Stat:
    __slots__ = ("group", "parent", "start", "state")

    def __init__(self, state: str, parent: int, group: int, start: int) -> None:
        self.state = state
        self.parent = parent
        self.group = group
        self.start = start


class Proc:
    """One mount of procfs. Pids are those of the namespace that the mount belongs to."""

    def __init__(self, path: str = "/proc") -> None:
        self._dir = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            me = self.me()
            self.has_children_files = os.path.exists(f"/proc/self/fd/{self._dir}/{me}/task/{me}/children")
        except OSError:
            os.close(self._dir)
            raise

    def close(self) -> None:
        os.close(self._dir)

    def me(self) -> int:
        return int(os.readlink("self", dir_fd=self._dir))

    def _read(self, path: str, limit: int = 1 << 20, strict: bool = False) -> bytes:
        """Nothing of what is gone. Nothing of what cannot be read either, unless `strict`: then OSError."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._dir)
        except OSError as error:
            if strict and not isinstance(error, _GONE):
                raise
            return b""
        try:
            data = os.read(fd, min(limit, 1 << 16))
            while _WHOLE <= len(data) < limit:
                more = os.read(fd, 1 << 16)
                if not more:
                    break
                data += more
            return data
        except OSError as error:
            if strict and not isinstance(error, _GONE):
                raise
            return b""
        finally:
            os.close(fd)

    def stat(self, pid: int, strict: bool = False) -> Stat | None:
        fields = self._read(f"{pid}/stat", 4096, strict).rpartition(b")")[2].split()
        return Stat(fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[19])) if len(fields) > 19 else None

    def usage(self, pid: int) -> tuple[int, int, int] | None:
        """Processor time in ticks, memory in pages, and the start in ticks since boot; None if it is dead."""
        fields = self._read(f"{pid}/stat", 4096).rpartition(b")")[2].split()
        if len(fields) < 22 or fields[0].decode() in _DEAD:
            return None
        return int(fields[11]) + int(fields[12]), int(fields[21]), int(fields[19])

    def alive(self, pid: int, start: int | None = None) -> bool:
        """Whether that very process runs: a zombie does not, nor another one under its number."""
        stat = self.stat(pid)
        return stat is not None and stat.state not in _DEAD and start in (None, stat.start)

    def argv(self, pid: int) -> list[str]:
        raw = self._read(f"{pid}/cmdline", _ARGV_BYTES).rstrip(b"\0")
        return [os.fsdecode(part) for part in raw.split(b"\0")] if raw else []

    def pid_of(self, pidfd: int) -> int:
        """The pid that this mount has for a process held by one of our pidfds; not above 0 if it is gone."""
        for line in self._read(f"self/fdinfo/{pidfd}", 4096).split(b"\n"):
            if line.startswith(b"Pid:"):
                return int(line[4:])
        return 0

    def at_rest(self, pid: int) -> bool:
        """Whether every thread of it is stopped, or it is dead or gone: it has the children that it will have."""
        fields = self._read(f"{pid}/stat", 4096).rpartition(b")")[2].split()
        if len(fields) < 18:
            return True
        if fields[0] not in b"TtZX":
            return False
        try:
            return fields[17] in b"01" or all(self._task_at_rest(pid, task) for task in self._tasks(pid))
        except OSError:  # gone meanwhile
            return True

    def _task_at_rest(self, pid: int, task: str) -> bool:
        fields = self._read(f"{pid}/task/{task}/stat", 4096).rpartition(b")")[2].split()
        return not fields or fields[0] in b"TtZX"

    def everybody(self) -> list[int]:
        """Every pid of the namespace that this mount belongs to."""
        return [int(name) for name in os.listdir(self._dir) if name.isdecimal()]

    def in_cgroup(self, pid: int, path: str) -> bool:
        """Whether that process is in the cgroup v2 folder `path` or below it."""
        for line in self._read(f"{pid}/cgroup", 8192).split(b"\n"):
            if line.startswith(b"0::/"):
                return os.path.basename(path) in os.fsdecode(line[4:]).split("/")
        return False

    def children(self, pid: int, strict: bool = False) -> list[int]:
        """`strict`: OSError where that cannot be told (no descriptor is left), rather than nobody."""
        try:
            if not self.has_children_files:
                return self._families(strict).get(pid, [])
            threads = os.stat(f"{pid}/task", dir_fd=self._dir).st_nlink - 2
            tasks = [str(pid)] if threads == 1 else self._tasks(pid)
        except OSError as error:
            if strict and not isinstance(error, _GONE):
                raise
            return []
        found: list[int] = []
        for task in tasks:
            found += map(int, self._read(f"{pid}/task/{task}/children", strict=strict).split())
        return found

    def _tasks(self, pid: int) -> list[str]:
        fd = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._dir)
        try:
            return os.listdir(fd)
        finally:
            os.close(fd)

    def _families(self, strict: bool = False) -> dict[int, list[int]]:
        """Children by parent from one pass over every process, for kernels without `children` files."""
        families: dict[int, list[int]] = {}
        for pid in self.everybody():
            stat = self.stat(pid, strict)
            if stat:
                families.setdefault(stat.parent, []).append(pid)
        return families

    def descendants(self, root: int, skip: Collection[int] = ()) -> Iterator[int]:
        """Parents before children, so that a caller who stops each one as it comes meets what it forked before.

        What is in `skip` is left out with everything below it.
        """
        families = None if self.has_children_files else self._families()
        queue, known = [root], {root, *skip}
        for pid in queue:
            if pid != root:
                yield pid
            for child in self.children(pid) if families is None else families.get(pid, []):
                if child not in known:
                    known.add(child)
                    queue.append(child)

    def see(self, root: int) -> list[Seen]:
        """Every living process below `root`."""
        return [Seen(pid, None, argv) for pid in self.descendants(root) if (argv := self.argv(pid)) or self.alive(pid)]
