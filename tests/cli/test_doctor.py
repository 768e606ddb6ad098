"""`quell doctor` says what this machine gives, which rung is the default and why not a better one."""

import json
import os
import platform
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli import unprivileged
from tests.cli.command import QUELL, RUNGS, quell


def report(*words: str | Path, **settings: Any) -> dict[str, Any]:
    ended = quell("doctor", "--json", *words, **settings)
    assert ended.stderr == b""
    got: dict[str, Any] = json.loads(ended.stdout)
    return got


def test_every_rung_is_named_with_its_reason() -> None:
    ended = quell("doctor")
    assert ended.returncode == 0
    shown = ended.stdout.decode()
    assert ended.stderr == b""
    for rung in RUNGS:
        assert re.search(rf"\b{rung}\b", shown), rung


def test_the_json_has_what_the_page_has() -> None:
    """H36: what a person is shown equals what `--json` lists."""
    shown, got = quell("doctor").stdout.decode(), report()
    rungs = {rung["name"]: rung for rung in got["rungs"]}
    assert set(RUNGS) <= set(rungs)
    for name, rung in rungs.items():
        assert isinstance(rung["available"], bool)
        assert rung["available"] or rung["reason"], f"{name} is refused without a reason"
        assert name in shown
    assert rungs[got["default"]]["available"]
    assert got["default"] in shown


def test_the_default_is_what_exec_uses(tmp_path: Path) -> None:
    quell("exec", "--receipt", tmp_path / "r", "--", "true")
    assert report()["default"] == json.loads((tmp_path / "r").read_text())["rung"]


def test_what_doctor_offers_exec_gives_and_what_it_refuses_exec_refuses() -> None:
    """H17: no rung is promised that is not to be had."""
    for rung in report()["rungs"]:
        if rung["name"] in RUNGS:
            ended = quell("exec", "--contain", rung["name"], "--", "true")
            assert (ended.returncode == 0) == rung["available"], rung


def test_versions_are_named() -> None:
    shown, got = quell("doctor").stdout.decode(), report()
    version = quell("--version").stdout.decode().split()[-1]
    for text in (version, platform.python_version(), platform.release()):
        assert text in shown
        assert text in json.dumps(got["versions"])


@pytest.mark.skipif(bool(os.geteuid()), reason="needs root to become another user")
@pytest.mark.parametrize("delegated", [False, True])
def test_a_stranger_is_told_its_own_rungs(delegated: bool) -> None:
    with unprivileged.user(delegated=delegated) as stranger:
        ended = stranger.run(QUELL, "doctor", "--json")
        assert ended.stderr == b""
        got = json.loads(ended.stdout)
        rungs = {rung["name"]: rung for rung in got["rungs"]}
        assert not rungs["pidns"]["available"]
        assert rungs["pidns"]["reason"]
        assert rungs["cgroup"]["available"] == delegated
        assert got["default"] == ("cgroup" if delegated else "subreaper")


def test_leftovers_of_a_crash_are_found_ended_and_named() -> None:
    """H23: covered where the crash is made; here: with nothing left, doctor says so."""
    assert report()["leftovers"] == []
    assert "leftover" in quell("doctor").stdout.decode()


def test_doctor_refuses_what_it_does_not_know() -> None:
    ended = quell("doctor", "--jsn")
    assert ended.returncode == 125
    assert b"--json" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_without_proc_no_promise_can_be_kept_and_doctor_says_so() -> None:
    """Exit 1, and the promise that cannot be kept here by its name."""
    if os.geteuid():
        pytest.skip("needs root to cover /proc")
    ended = quell("doctor", before=["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc; exec "$@"', "sh"])
    assert ended.returncode == 1
    assert b"/proc" in ended.stdout + ended.stderr
    assert b"Traceback" not in ended.stderr
