"""The `quell` command as a person has it: the installed script, run as it is."""

import functools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import pytest

from tests.cli.oracle import Held

QUELL = Path(sys.executable).with_name("quell")
CHECKOUT = Path(__file__).resolve().parents[2]
RUNGS = ("pidns", "userns", "cgroup", "subreaper")
BOUND = 20.0  # seconds for any one command of a test; a busy machine needs a tenth of it


def quell(
    *args: str | Path,
    given: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    before: Sequence[str | Path] = (),
    timeout: float = BOUND,
) -> subprocess.CompletedProcess[bytes]:
    """Run `quell ARGS` to its end; `given` is its input, `before` a command that execs the rest (nice, nohup, …)."""
    return subprocess.run(
        [*map(str, before), str(QUELL), *map(str, args)],
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        env=None if env is None else dict(env),
        cwd=cwd,
        timeout=timeout,
        check=False,
    )


class Running(subprocess.Popen[bytes]):
    """A started `quell`; whatever a test does, it does not outlive the `with` block (nor does what it contains)."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.poll() is None:
            self.kill()
        super().__exit__(kind, error, at)


def start(*args: str | Path, held: Held | None = None, before: Sequence[str | Path] = ()) -> Running:
    """Start `quell ARGS` with pipes for its output; with `held`, all that it starts holds that FIFO."""
    running = Running(
        [*map(str, before), str(QUELL), *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[held.write] if held else [],
    )
    if held:
        held.let_go()
    return running


@functools.cache
def refusal(rung: str) -> str | None:
    """Why this machine does not give `rung` to this user, in quell's own words; None where it does."""
    if rung in ("none", "auto", "subreaper"):
        return None
    ended = quell("exec", "--contain", rung, "--", "true")
    return None if ended.returncode == 0 else ended.stderr.decode().strip() or f"exit {ended.returncode}"


def need(rung: str) -> None:
    """Skip the test where the rung is not to be had; as root every rung is, so there it is a failure."""
    if os.geteuid() and (why := refusal(rung)):
        pytest.skip(f"no {rung} here: {why}")
