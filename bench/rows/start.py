"""The wall time that `quell exec` adds to a command, and that of `quell --version`."""

import compileall
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import quell
from bench.command import BWRAP, popen
from bench.ending import rungs
from bench.line import Line, lines, ms, plus
from bench.safety import safely
from bench.sampling import Contender, Samples, take_turns

EXEC_EXTRA = 0.025
VERSION_EXTRA = 0.060
QUELL = f"{sysconfig.get_path('scripts')}/quell"
PASS = "`python3 -I -c pass`"


def measure(quick: bool) -> list[Line]:
    return lines(safely(starts, 8 if quick else 40))


def starts(rounds: int) -> list[Line]:
    compileall.compile_dir(Path(quell.__file__).parent, quiet=1)  # as in any installed package
    contenders: dict[str, Contender] = {
        "true": popen(["true"]),
        PASS: popen([sys.executable, "-I", "-c", "pass"]),
        "auto": popen([QUELL, "exec", "--", "true"]),
        "version": popen([QUELL, "--version"], stdout=subprocess.DEVNULL),
    }
    contenders |= {rung: popen([QUELL, "exec", "--contain", rung, "--", "true"]) for rung in rungs()}
    if shutil.which("bwrap"):
        contenders["bwrap"] = popen([*BWRAP, "true"])
    samples = take_turns("start", contenders, rounds)
    found = [
        over_pass(f"`quell exec true` over bare `true`, {rung}", samples, rung, ["true"], EXEC_EXTRA)
        for rung in ("auto", *rungs())
    ]
    if "bwrap" in contenders:
        found.append(Line("`bwrap true` over bare `true`", "–", "–", ms(samples.over("bwrap", "true"))))
    return [*found, over_pass("`quell --version`", samples, "version", [], VERSION_EXTRA)]


def over_pass(work: str, samples: Samples, ours: str, less: list[str], extra: float) -> Line:
    difference = samples.over(ours, *less, PASS)
    target = f"≤ + {extra * 1000:g} ms"
    figures = ms(samples.of(PASS)), ms(samples.over(ours, *less))
    return Line(work, PASS, *figures, plus(difference), target, difference.p50 <= extra)
