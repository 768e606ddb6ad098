"""`quell doctor`: the rungs that this machine gives and why not better, leftovers of crashes, limits, versions.

Each rung is tried with a real box, so that what it says is what happened. Exit 1 when a promise cannot be kept here.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import sys

from .. import __version__
from ..errors import QuellError
from ..supervise.contain import RUNGS, why_not
from ..supervise.ledger import Ledger, state_dir
from ..supervise.zygote import Zygote
from .words import complain, nearest, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

HELP = """\
What containment this machine gives, and what crashes left behind (found and
ended).

usage: quell doctor [--json]

Exit code 1 when a promise cannot be kept on this machine; it is named.

options:
  --json       the same as JSON
  -h, --help   this text

examples:
  quell doctor
  quell doctor --json
"""

RUNG_LIMITS = {
    "pidns": "processes outside are invisible inside; mounts made inside are private",
    "userns": "by name only: no setuid programs (sudo), no chgrp to other groups, ssh refuses root-owned includes",
    "cgroup": "quell, zygote and keeper killed at one moment leave it to the next start; root inside can get out",
    "subreaper": "quell, zygote and keeper killed at one moment leave escapees; so may a fork bomb of over 1000",
}


FLAGS = ("--json",)


def run(words: Sequence[str]) -> int:
    unknown = [word for word in words if word not in (*FLAGS, "-h", "--help")]
    if unknown:
        complain(
            f"doctor has no option '{unknown[0]}'{nearest(unknown[0], [*FLAGS, '--help'])}; see quell doctor --help"
        )
        return 125
    if "-h" in words or "--help" in words:
        return show(HELP)
    findings = examine()
    code = show((json.dumps(findings, indent=2) if "--json" in words else _page(findings)) + "\n")
    return 1 if findings["broken"] else code


def examine() -> dict[str, Any]:
    rungs = [_try(name) for name in RUNGS]
    works = {rung["name"] for rung in rungs if rung["works"]}
    default = next((name for name in ("pidns", "cgroup", "subreaper") if name in works), None)
    ledger_fault, leftovers = _leftovers()
    broken = []
    if default is None:
        why = next(rung["why"] for rung in rungs if rung["name"] == "subreaper")
        broken.append({"promise": 2, "name": "Stop means gone", "why": f"no rung works here: {why}"})
    if ledger_fault:
        broken.append({"promise": 5, "name": "Death is a stop", "why": f"no ledger: {ledger_fault}"})
    stubborn = [pid for box in leftovers for pid in box["survivors"]]
    if stubborn:
        broken.append({"promise": 5, "name": "Death is a stop", "why": f"a crash left pids {stubborn} that do not end"})
    return {
        "version": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "user": os.geteuid(),
        "default": default,
        "rungs": rungs,
        "leftovers": leftovers,
        "limits": _limits(),
        "state_dir": state_dir(),
        "broken": broken,
    }


def _try(name: str) -> dict[str, Any]:
    """Make a box on that rung and run something in it."""
    why = why_not(name)
    if why is None:
        try:
            zygote = Zygote.fork({b"PATH": os.defpath.encode()}, None)
            try:
                box = zygote.box(name)
                box.spawn(["true"], env={"PATH": os.defpath}).wait(10)
                why = None if box.stop(reason="doctor", grace=1).confirmed else "a stop on it was not confirmed"
            finally:
                zygote.close()
        except QuellError as error:
            why = str(error).partition(": ")[2] or str(error)
    return {"name": name, "works": why is None, "why": why, "limit": RUNG_LIMITS[name]}


def _leftovers() -> tuple[str | None, list[dict[str, Any]]]:
    try:
        ledger = Ledger()
        try:
            return None, ledger.reconcile()
        finally:
            ledger.close()
    except OSError as error:
        return f"{error.filename or state_dir()}: {error.strerror}", []


def _limits() -> dict[str, int | None]:
    def soft(which: int) -> int | None:
        limit = resource.getrlimit(which)[0]
        return None if limit == resource.RLIM_INFINITY else limit

    try:
        with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
            pids: int | None = int(file.read())
    except OSError:
        pids = None
    return {"processes": soft(resource.RLIMIT_NPROC), "open_files": soft(resource.RLIMIT_NOFILE), "pids": pids}


def _page(findings: dict[str, Any]) -> str:
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    good, bad, end = ("\033[32m", "\033[31m", "\033[0m") if colour else ("", "", "")
    lines = [f"quell {findings['version']} on Python {findings['python']}, {findings['system']}", "", "containment"]
    for rung in findings["rungs"]:
        mark = f"{good}yes{end}" if rung["works"] else f"{bad}no {end}"
        note = "the default here" if rung["name"] == findings["default"] else ""
        lines.append(f"  {rung['name']:<10} {mark}  {note or rung['why'] or rung['limit']}")
        if note:
            lines.append(f"  {'':<15} {rung['limit']}")
    lines += ["", "leftovers of crashes"]
    for box in findings["leftovers"]:
        count = f"{box['ended']} process{'' if box['ended'] == 1 else 'es'}"
        lines.append(f"  ended {count} of a quell that had pid {box['owner']} ({box['rung']})")
    lines += [] if findings["leftovers"] else ["  none"]
    limits = ", ".join(f"{name.replace('_', ' ')} {count or 'unlimited'}" for name, count in findings["limits"].items())
    lines += ["", f"limits       {limits}", f"state        {findings['state_dir']}", ""]
    for fault in findings["broken"]:
        lines.append(f"{bad}promise {fault['promise']}, {fault['name']}, cannot be kept here: {fault['why']}{end}")
    if not findings["broken"]:
        lines.append(f"{good}all that exec promises can be kept here{end}")
    return "\n".join(lines)
