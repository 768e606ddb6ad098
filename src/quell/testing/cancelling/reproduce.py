"""The one command that shows a finding again, and the reading of it: `QUELL_CANCEL_AT=name:17,23 …`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from .coverage import Moment

if TYPE_CHECKING:
    Plan = tuple[Moment, ...]

AT = "QUELL_CANCEL_AT"
BUDGET = "QUELL_CANCEL_BUDGET"


def key_of(scenario: Any) -> str:
    """A word for a scenario: the function's name, or the line of a lambda."""
    while hasattr(scenario, "func"):  # functools.partial
        scenario = scenario.func
    name = getattr(scenario, "__name__", None) or type(scenario).__name__
    if name == "<lambda>":
        name = f"lambda-{scenario.__code__.co_firstlineno}"
    return word(name)


def word(name: str) -> str:
    """What needs no quotes in a shell, and has no colon."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-") or "scenario"


def asked(name: str) -> Plan | None:
    """The steps that the environment asks for; none at all if it names another scenario. Step 0 never comes."""
    text = os.environ.get(AT)
    if not text:
        return None
    key, colon, steps = text.rpartition(":")
    if not re.fullmatch(r"\d+\+?(,\d+\+?)?", steps):
        raise UsageError(f"{AT}={text} is not NAME:STEP or NAME:STEP,STEP, each with a + if it is meant to be after it")
    if colon and key != name:
        return ()
    return tuple(Moment(int(step.rstrip("+")), step.endswith("+")) for step in steps.split(","))


def budget(default: float) -> float:
    """Seconds for one call, which the environment may set."""
    text = os.environ.get(BUDGET)
    try:
        return float(text) if text else default
    except ValueError:
        raise UsageError(f"{BUDGET}={text} is not a number of seconds") from None


def command(name: str, plan: Plan) -> str:
    """What to paste into a shell, in this folder, to have these cancels again."""
    setting = f"{AT}={name}:{','.join(map(str, plan or (0,)))}"
    test = os.environ.get("PYTEST_CURRENT_TEST")
    if test is None:
        return f"{setting} {shlex.join(sys.orig_argv)}"
    node = test.rpartition(" ")[0]
    return f"{setting} {shlex.join([_python(), '-m', 'pytest', _from_here(node)])}"


def _python() -> str:
    """This Python, as short as the shell finds it."""
    for name in ("python", "python3"):
        if shutil.which(name) == sys.executable:
            return name
    short = os.path.relpath(sys.executable)
    return sys.executable if short.startswith("..") else short


def _from_here(node: str) -> str:
    """Pytest names a test from its root folder, which is this one or above it."""
    path, colons, rest = node.partition("::")
    folder = os.getcwd()
    while not os.path.exists(os.path.join(folder, path)) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    full = os.path.join(folder, path)
    return (os.path.relpath(full) if os.path.exists(full) else path) + colons + rest
