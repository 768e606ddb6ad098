"""`quell doctor` says what this machine gives, which rung is the default and why not a better one."""

import json
import os
import platform
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli import oracle, unprivileged
from tests.cli.command import QUELL, RUNGS, quell, start


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
        assert rung["works"] == (rung["why"] is None), f"{name} is refused without a reason"
        assert re.search(rf"^  {name} +{'yes' if rung['works'] else 'no'} ", shown, re.MULTILINE)
        assert (rung["why"] or rung["limit"]) in shown
    assert rungs[got["default"]]["works"]
    assert got["broken"] == []
    assert got["state_dir"] in shown
    assert got["default"] in shown


def test_the_default_is_what_exec_uses(tmp_path: Path) -> None:
    quell("exec", "--receipt", tmp_path / "r", "--", "true")
    assert report()["default"] == json.loads((tmp_path / "r").read_text())["rung"]


def test_what_doctor_offers_exec_gives_and_what_it_refuses_exec_refuses() -> None:
    """H17: no rung is promised that is not to be had."""
    for rung in report()["rungs"]:
        if rung["name"] in RUNGS:
            ended = quell("exec", "--contain", rung["name"], "--", "true")
            assert (ended.returncode == 0) == rung["works"], rung


def test_versions_are_named() -> None:
    shown, got = quell("doctor").stdout.decode(), report()
    version = quell("--version").stdout.decode().split()[-1]
    for text in (version, platform.python_version(), platform.release()):
        assert text in shown
        assert text in " ".join([got["version"], got["python"], got["system"]])


@pytest.mark.skipif(bool(os.geteuid()), reason="needs root to become another user")
@pytest.mark.parametrize("delegated", [False, True])
def test_a_stranger_is_told_its_own_rungs(delegated: bool) -> None:
    with unprivileged.user(delegated=delegated) as stranger:
        ended = stranger.run(QUELL, "doctor", "--json")
        assert ended.stderr == b""
        got = json.loads(ended.stdout)
        rungs = {rung["name"]: rung for rung in got["rungs"]}
        assert not rungs["pidns"]["works"]
        assert "CAP_SYS_ADMIN" in rungs["pidns"]["why"]
        assert rungs["cgroup"]["works"] == delegated
        assert got["default"] == ("cgroup" if delegated else "subreaper")
        assert got["user"] == unprivileged.UID


@pytest.mark.skipif(bool(os.geteuid()), reason="needs root for the cgroup rung")
@pytest.mark.parametrize("rung", ["cgroup", "subreaper"])
def test_what_a_crash_left_is_found_ended_and_named(rung: str) -> None:
    """H23: all three killed at one moment leave the box on these rungs; doctor ends it and says so, once."""
    with oracle.Held() as held:
        with start("exec", "--contain", rung, "--", "sh", "-c", "setsid sleep 4001 & exec sleep 4002", held=held) as q:
            for word in ("4001", "4002"):
                oracle.command_below(q.pid, word)
            ours = [pid for pid in oracle.below(q.pid) if oracle.comm(pid).startswith("quell")]
            for stop in (signal.SIGSTOP, signal.SIGKILL):
                for pid in (q.pid, *ours):
                    os.kill(pid, stop)
        assert not held.gone(0.3), "the crash left nothing, so this shows nothing"
        found = report()["leftovers"]
        assert held.gone()
    assert [(box["owner"], box["rung"], box["ended"], box["survivors"]) for box in found] == [(q.pid, rung, 2, [])]
    assert report()["leftovers"] == []
    assert "leftovers of crashes\n  none\n" in quell("doctor").stdout.decode()


def test_doctor_refuses_what_it_does_not_know() -> None:
    ended = quell("doctor", "--jsn")
    assert ended.returncode == 125
    assert ended.stderr.startswith(b"quell: ")
    assert b"'--jsn'" in ended.stderr
    assert ended.stderr.count(b"\n") == 1


def test_without_proc_no_promise_can_be_kept_and_doctor_says_so() -> None:
    """Exit 1, and the promise that cannot be kept here by its name."""
    if os.geteuid():
        pytest.skip("needs root to cover /proc")
    before = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc; exec "$@"', "sh"]
    ended = quell("doctor", before=before)
    assert (ended.returncode, ended.stderr) == (1, b"")
    assert b"Stop means gone, cannot be kept here: no rung works here: /proc is not mounted" in ended.stdout
    assert report(before=before)["broken"][0]["name"] == "Stop means gone"


def test_a_state_folder_that_cannot_be_had_breaks_a_promise_by_its_name() -> None:
    ended = quell("doctor", env={**os.environ, "QUELL_STATE_DIR": "/dev/null/state"})
    assert (ended.returncode, ended.stderr) == (1, b"")
    assert b"Death is a stop, cannot be kept here: no ledger: /dev/null" in ended.stdout
