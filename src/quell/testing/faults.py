"""Faults: the n-th call of one kind fails as the kernel would fail it, and is not made.

It acts in this process and in the zygotes and keepers that it starts meanwhile; afterwards everything is as it was.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..supervise import zygote
from ..supervise.where import line_of
from .faulty import Patches, plant
from .tally import CALLS, Tally, new_log, read_log, whoami

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

KINDS = tuple(CALLS)
PLACES = ("all", "owner", "keepers")

# One round of rehearsal is as good as ten here, and has a tenth of the calls.
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); sys.path.append({folder!r}); "
    "import keeper.rehearsal; keeper.rehearsal.TIMES = 1; import keeper.zygote, where, testing.faulty, testing.tally; "
    "testing.faulty.plant(testing.tally.Tally(where.line_of, **{settings!r})); del sys.path[0], sys.path[-1]; {boot}"
)


class Faults:
    """`with Faults("pipe", n=2) as faults`: the second pipe that is asked for meanwhile is refused.

    `kind` is one of spawn, pipe, fd, write, fsync, cgroup, namespace. `error` is an errno, where the usual one of
    that call will not do; `every` fails all calls from the n-th on. `within` is the owner (this process), the
    keepers (zygote, guard and keepers started meanwhile, and what this process forks), or all of them.

    What is written in C and calls the kernel itself is not reached: uvloop, ctypes, sockets and files made before.
    """

    def __init__(
        self, kind: str, n: int = 1, *, error: int | None = None, every: bool = False, within: str = "all"
    ) -> None:
        if kind not in KINDS:
            raise UsageError(f"there is no kind '{kind}' of fault: choose one of {', '.join(KINDS)}")
        if within not in PLACES:
            raise UsageError(f"faults are not within '{within}': choose one of {', '.join(PLACES)}")
        if n < 1:
            raise UsageError(f"there is no call number {n}: the first is 1")
        self.kind = kind
        self.n = n
        code = None if error is None else int(error)
        self._settings: dict[str, Any] = {"kind": kind, "n": n, "error": code, "every": every, "within": within}
        self._log: str | None = None
        self._boot = ""
        self._tally: Tally
        self._patches: Patches
        self._seen: list[str] = []

    @classmethod
    def each(cls, kind: str, *, error: int | None = None, every: bool = False, within: str = "all") -> Iterator[Faults]:
        """One for each n from 1, until one was used and did not fire.

        for faults in Faults.each("pipe"):
            with faults:
                …
        """
        n = 1
        while True:
            faults = cls(kind, n, error=error, every=every, within=within)
            yield faults
            if faults.fired is None:
                return
            n += 1

    def __enter__(self) -> Faults:
        if self._log is not None:
            raise UsageError("these faults are in use: make others, they compose")
        self._log = new_log(tempfile.gettempdir())
        self._boot = zygote.BOOT
        settings = {**self._settings, "owner": whoami(), "log": self._log}
        try:
            self._tally = Tally(line_of, **settings)
            self._patches = plant(self._tally)
        except BaseException:
            self._leave()
            raise
        zygote.BOOT = _BOOT.format(
            folder=os.path.dirname(os.path.dirname(__file__)), settings=settings, boot=self._boot
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patches.undo()
        self._leave()

    def _leave(self) -> None:
        """Without the log nobody counts any more, wherever the calls are made."""
        assert self._log is not None
        self._seen = self.seen
        os.unlink(self._log)
        self._log = None
        zygote.BOOT = self._boot

    @contextmanager
    def paused(self) -> Iterator[None]:
        """In here this process makes calls that do not count, to look at what the faults did."""
        self._tally.paused = True
        try:
            yield
        finally:
            self._tally.paused = False

    @property
    def seen(self) -> list[str]:
        """Every call that was counted, with its line: `os.pipe at file:line in function (process)`."""
        return self._seen if self._log is None else read_log(self._log)

    @property
    def calls(self) -> int:
        """How many were made, the failed ones among them."""
        return len(self.seen)

    @property
    def fired(self) -> str | None:
        """The first call that was failed, with its line. None while there was none."""
        return self.seen[self.n - 1] if self.calls >= self.n else None

    def __repr__(self) -> str:
        return f"<Faults {self.kind} n={self.n} calls={self.calls} fired={self.fired!r}>"
