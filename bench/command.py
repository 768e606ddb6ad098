"""Running one command to its end, the plain way."""

import subprocess
import time

from bench.sampling import Contender

BWRAP = "bwrap --dev-bind / / --unshare-pid --proc /proc".split()


def popen(argv: list[str], stdout: int | None = None) -> Contender:
    def once() -> float:
        began = time.perf_counter()
        subprocess.Popen(argv, stdout=stdout).wait()
        return time.perf_counter() - began

    return once
