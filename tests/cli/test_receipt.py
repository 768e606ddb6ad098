"""When CMD ends, what it left is ended: one line says so, and a receipt says exactly what was seen."""

import datetime
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli import oracle
from tests.cli.command import BOUND, RUNGS, need, quell, start

everywhere = pytest.mark.parametrize("rung", RUNGS)
QUIETLY = ">/dev/null 2>&1 </dev/null"  # a leftover that holds none of the test's pipes
STUBBORN = f"(trap '' TERM; while :; do sleep 0.05; done) {QUIETLY} &"


def receipt(path: Path, rung: str, reason: str) -> dict[str, Any]:
    """Read a receipt and check all that is true of every receipt."""
    got: dict[str, Any] = json.loads(path.read_text())
    assert got["version"] == 1
    assert got["reason"] == reason
    assert got["rung"] == rung
    assert (got["verdict"], got["confirmed"]) == ("confirmed", True)
    assert got["survivors"] == []
    datetime.datetime.fromisoformat(got["started"])
    assert set(got["phases"]) == {"ask", "kill", "total"}
    assert 0 <= max(got["phases"]["ask"], got["phases"]["kill"]) <= got["phases"]["total"]
    for process in got["processes"]:
        assert set(process) == {"pid", "inner", "argv", "end", "at"}
        assert process["pid"] > 1
        assert not oracle.alive(process["pid"]) or oracle.argv(process["pid"]) != process["argv"]
        if rung in ("pidns", "userns"):
            assert process["inner"] is None or process["inner"] > 1
        else:
            assert process["inner"] is None
        kind, _, number = process["end"].partition(" ")
        assert kind in ("exit", "signal", "gone"), process
        assert number.isdigit() == (kind != "gone")
    return got


def ends(got: dict[str, Any]) -> list[tuple[str, str]]:
    """How each process ended, by the last word of its argv."""
    return sorted(((process["argv"] or ["?"])[-1], process["end"]) for process in got["processes"])


# -- the line ------------------------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize(("count", "words"), [(1, "1 process"), (2, "2 processes"), (3, "3 processes")])
def test_one_line_says_how_many_processes_a_command_left_behind(rung: str, count: int, words: str) -> None:
    need(rung)
    script = "".join(f"sleep 20{number} {QUIETLY} & " for number in range(count)) + "exit 3"
    ended = quell("exec", "--contain", rung, "--", "/bin/sh", "-c", script)
    assert (ended.returncode, ended.stderr.decode()) == (3, f"quell: ended {words} that sh left behind\n")


@everywhere
def test_a_command_that_leaves_nothing_behind_gets_no_line(rung: str) -> None:
    need(rung)
    ended = quell("exec", "--contain", rung, "--", "sh", "-c", "sleep 0.05 & wait")
    assert (ended.returncode, ended.stderr) == (0, b"")


@everywhere
def test_escapees_are_counted_and_ended(rung: str) -> None:
    """H11: `setsid` and a double fork take nothing out of the box."""
    need(rung)
    with oracle.Held() as held:
        script = f"setsid sleep 2010 {QUIETLY} & (setsid sh -c 'sleep 2011 & exit' {QUIETLY} &); sleep 0.2"
        with start("exec", "--contain", rung, "--", "bash", "-c", script, held=held) as running:
            _, said = running.communicate(timeout=BOUND)
        assert held.gone()
    assert said.decode() == "quell: ended 2 processes that bash left behind\n"


@everywhere
def test_quiet_leaves_the_line_out(rung: str) -> None:
    need(rung)
    ended = quell("exec", "--contain", rung, "--quiet", "--", "sh", "-c", f"sleep 2012 {QUIETLY} &")
    assert (ended.returncode, ended.stderr) == (0, b"")


# -- the grace -----------------------------------------------------------------------------------------------


@everywhere
def test_a_grace_is_given_to_those_who_ignore_sigterm_and_to_nobody_else(rung: str) -> None:
    """H15: each phase ends as soon as all are gone; the grace is a bound, not a delay."""
    need(rung)
    for script, grace, least, most in (
        (f"sleep 2013 {QUIETLY} &", "60", 0.0, 5.0),
        (STUBBORN, "1", 1.0, 6.0),
        (STUBBORN, "0", 0.0, 5.0),
    ):
        began = time.monotonic()
        ended = quell("exec", "--contain", rung, "--quiet", "--grace", grace, "--", "bash", "-c", f"{script} sleep 0.1")
        assert ended.returncode == 0
        assert least <= time.monotonic() - began < most, (script, grace)


def test_the_default_grace_is_five_seconds() -> None:
    began = time.monotonic()
    assert quell("exec", "--quiet", "--", "bash", "-c", f"{STUBBORN} sleep 0.1").returncode == 0
    assert 5 <= time.monotonic() - began < 12


# -- the receipt ---------------------------------------------------------------------------------------------


@everywhere
def test_a_receipt_of_a_command_that_left_nothing(rung: str, tmp_path: Path) -> None:
    need(rung)
    ended = quell("exec", "--contain", rung, "--receipt", tmp_path / "r", "--", "sh", "-c", "exit 3")
    got = receipt(tmp_path / "r", rung, "exit")
    assert (ended.returncode, got["exit"], got["command"]) == (3, {"code": 3}, ["sh", "-c", "exit 3"])
    assert ends(got) == [("exit 3", "exit 3")]


@everywhere
def test_a_receipt_says_what_was_left_behind(rung: str, tmp_path: Path) -> None:
    need(rung)
    script = f"sleep 2014 {QUIETLY} & {STUBBORN} sleep 0.1; kill -KILL $$"
    ended = quell(
        "exec", "--contain", rung, "--grace", "0.5", "--receipt", str(tmp_path / "r"), "--", "bash", "-c", script
    )
    got = receipt(tmp_path / "r", rung, "exit")
    assert (ended.returncode, got["exit"]) == (137, {"signal": 9})
    by_end = dict(ends(got))
    assert by_end["2014"] in ("signal 15", "gone")
    assert by_end[script] in ("signal 9", "gone")
    assert 0.4 < got["phases"]["ask"] < 5
    stubborn = [process["at"] for process in got["processes"] if process["end"] == "signal 9" and process["at"] > 0.4]
    assert stubborn, got["processes"]


@everywhere
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_receipt_of_a_stop_by_signal(rung: str, name: str, code: int, tmp_path: Path) -> None:
    need(rung)
    words = [
        "exec",
        "--contain",
        rung,
        "--receipt",
        str(tmp_path / "r"),
        "--",
        "bash",
        "-c",
        "sleep 2015 & echo up; wait",
    ]
    with start(*words) as running:
        assert running.stdout is not None
        running.stdout.readline()
        pids = {pid for pid in oracle.below(running.pid) if not oracle.comm(pid).startswith("quell")}
        running.send_signal(signal.Signals[name])
        assert running.wait(BOUND) == code
    got = receipt(tmp_path / "r", rung, name)
    assert {process["pid"] for process in got["processes"]} == pids
    assert {process["end"] for process in got["processes"]} <= {f"signal {code - 128}", "gone"}
    assert got["exit"] == {"signal": code - 128}
    if rung in ("pidns", "userns"):
        assert all(process["inner"] for process in got["processes"])


@everywhere
def test_a_receipt_of_a_forced_stop(rung: str, tmp_path: Path) -> None:
    need(rung)
    script = "trap 'echo asked' INT; echo up; while :; do sleep 0.02; done"
    words = ["exec", "--contain", rung, "--grace", "60", "--receipt", str(tmp_path / "r"), "--", "bash", "-c", script]
    with start(*words) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"up\n"
        running.send_signal(signal.SIGINT)
        assert running.stdout.readline() == b"asked\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(BOUND) == 137
    got = receipt(tmp_path / "r", rung, "SIGINT")
    assert got["exit"] == {"signal": 9}
    assert got["phases"]["ask"] < 5


@everywhere
def test_a_receipt_of_a_timeout(rung: str, tmp_path: Path) -> None:
    need(rung)
    options = ["--contain", rung, "--timeout", "0.2", "--grace", "0.3", "--receipt", str(tmp_path / "r")]
    ended = quell("exec", *options, "--", "bash", "-c", f"{STUBBORN} wait")
    got = receipt(tmp_path / "r", rung, "timeout")
    assert ended.returncode == 124
    assert got["exit"] in ({"signal": 15}, {"signal": 9})
    assert 0.25 < got["phases"]["ask"] < 5


@everywhere
@pytest.mark.parametrize("role", ["zygote", "keeper"])
def test_a_receipt_when_one_of_our_own_was_killed(rung: str, role: str, tmp_path: Path) -> None:
    """H17: quell reports the death of its own helper, and only what it saw after it."""
    need(rung)
    with oracle.Held() as held:
        words = [
            "exec",
            "--contain",
            rung,
            "--receipt",
            str(tmp_path / "r"),
            "--",
            "bash",
            "-c",
            "sleep 2016 & echo up; wait",
        ]
        with start(*words, held=held) as running:
            assert running.stdout is not None
            running.stdout.readline()
            ours = [pid for pid in oracle.below(running.pid) if oracle.comm(pid) == f"quell-{role}"]
            os.kill(ours[0], signal.SIGKILL)
            assert running.wait(BOUND) != 0
        assert held.gone()
    got = receipt(tmp_path / "r", rung, f"{role} died")
    assert got["confirmed"]


def test_a_receipt_replaces_an_older_one_and_is_private(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("older and longer " * 1000)
    quell("exec", "--receipt", tmp_path / "r", "--", "true")
    receipt(tmp_path / "r", json.loads((tmp_path / "r").read_text())["rung"], "exit")


def test_a_receipt_may_go_to_a_pipe(tmp_path: Path) -> None:
    ended = quell("exec", "--receipt", "/dev/stderr", "--", "true")
    assert json.loads(ended.stderr)["reason"] == "exit"


def test_strange_bytes_in_arguments_are_still_json(tmp_path: Path) -> None:
    quell("exec", "--receipt", tmp_path / "r", "--", "true", os.fsdecode(b"\xff\xfe"), "ü", "\n")
    assert len(json.loads((tmp_path / "r").read_text())["command"]) == 4
