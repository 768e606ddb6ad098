"""A signal sent to quell reaches CMD once; SIGTERM, SIGHUP and the second SIGINT stop all; death is a stop."""

import os
import select
import signal
import sys
import time

import pytest

from tests.cli import oracle
from tests.cli.command import BOUND, RUNGS, Running, need, start

everywhere = pytest.mark.parametrize("rung", RUNGS)
FORWARDED = ["USR1", "USR2", "ALRM", "WINCH", "CONT", "IO", "VTALRM", "PROF", "URG", "PWR", "QUIT", "INT", "RTMIN+1"]

# Says each signal that it gets, with its count, till it is killed.
SAY = r"""
import os, signal, sys, time
def number(name):
    base, _, more = name.partition("+")
    return signal.Signals["SIG" + base] + int(more or 0)
for name in sys.argv[1:]:
    signal.signal(number(name), lambda n, frame, name=name: os.write(1, f"got {name}\n".encode()))
os.write(1, b"up\n")
while True:
    time.sleep(0.05)
"""


def number(name: str) -> int:
    base, _, more = name.partition("+")
    return signal.Signals[f"SIG{base}"] + int(more or 0)


def line(running: Running) -> str:
    """The next line of output; '' when none comes in time, so that the assertion says what was awaited."""
    assert running.stdout is not None
    got = b""
    while not got.endswith(b"\n") and select.select([running.stdout], [], [], BOUND)[0]:
        letter = os.read(running.stdout.fileno(), 1)
        if not letter:
            break
        got += letter
    return got.decode().strip()


def shell(rung: str, script: str, *options: str) -> Running:
    """A running `quell exec` whose command has said `up`; scripts redirect what they leave running."""
    running = start("exec", "--contain", rung, *options, "--", "bash", "-c", script)
    assert line(running) == "up"
    return running


@everywhere
def test_signals_reach_the_command_once(rung: str) -> None:
    need(rung)
    with start("exec", "--contain", rung, "--", sys.executable, "-I", "-c", SAY, *FORWARDED, "SYS") as running:
        assert line(running) == "up"
        command = oracle.command_below(running.pid, "SYS")
        seen = []
        for name in [name for name in FORWARDED if name != "INT"]:
            running.send_signal(number(name))
            seen.append(line(running))
        os.kill(command, signal.SIGSYS)  # a mark at the end: a second copy of any signal would come before it
        seen.append(line(running))
        os.kill(command, signal.SIGKILL)
        assert running.wait(BOUND) == 128 + signal.SIGKILL
    assert seen == [f"got {name}" for name in FORWARDED if name != "INT"] + ["got SYS"]


@everywhere
def test_sigterm_is_the_commands_to_answer_first(rung: str) -> None:
    need(rung)
    with shell(rung, "trap 'exit 7' TERM; echo up; while :; do sleep 0.02; done") as running:
        running.terminate()
        assert running.wait(BOUND) == 7


@everywhere
@pytest.mark.parametrize("name", ["TERM", "HUP"])
def test_a_stop_ends_those_who_listen_without_waiting_for_the_grace(rung: str, name: str) -> None:
    need(rung)
    began = time.monotonic()
    with shell(rung, "sleep 1012 & echo up; wait", "--grace", "60") as running:
        running.send_signal(number(name))
        assert running.wait(BOUND) == 128 + number(name)
    assert time.monotonic() - began < 10


@everywhere
@pytest.mark.parametrize("name", ["TERM", "HUP"])
def test_a_stop_gives_the_grace_and_then_kills(rung: str, name: str) -> None:
    """H12: a command that ignores the signal is killed when its grace is over, not before."""
    need(rung)
    with shell(rung, "trap '' TERM HUP; echo up; while :; do sleep 0.02; done", "--grace", "1") as running:
        began = time.monotonic()
        running.send_signal(number(name))
        assert running.wait(BOUND) == 128 + signal.SIGKILL
        assert 0.95 < time.monotonic() - began < 5


@everywhere
@pytest.mark.parametrize("name", ["TERM", "HUP"])
def test_a_stop_wakes_what_is_stopped(rung: str, name: str) -> None:
    """A command stopped by SIGSTOP is continued, so that it can answer the signal."""
    need(rung)
    with shell(rung, f"trap 'exit 7' {name}; echo up; while :; do sleep 0.02; done", "--grace", "60") as running:
        command = oracle.command_below(running.pid, "echo up")
        os.kill(command, signal.SIGSTOP)
        oracle.wait_for(lambda: oracle.state(command) == "T", "the command to stop")
        running.send_signal(number(name))
        running.send_signal(signal.SIGCONT)  # as a shell does after a stop signal: quell mirrors the command's stop
        assert running.wait(BOUND) == 7


@everywhere
@pytest.mark.parametrize("names", [("TERM", "TERM"), ("INT", "INT"), ("HUP", "TERM", "TERM")])
def test_the_second_stop_forces(rung: str, names: tuple[str, ...]) -> None:
    """H22: whoever asks twice does not wait for the grace."""
    need(rung)
    words = [sys.executable, "-I", "-c", SAY, "TERM", "INT", "HUP"]
    began = time.monotonic()
    with start("exec", "--contain", rung, "--grace", "60", "--", *words) as running:
        assert line(running) == "up"
        for name in names[:-1]:
            running.send_signal(number(name))
            assert line(running) == f"got {name}"
            time.sleep(0.1)  # `timeout` signals its child and then its group: equal ones within 50 ms are one
        running.send_signal(number(names[-1]))
        assert running.wait(BOUND) == 128 + signal.SIGKILL
    assert time.monotonic() - began < 10


@everywhere
def test_one_sigint_is_the_commands_and_no_stop(rung: str) -> None:
    need(rung)
    with shell(rung, "trap 'echo interrupted' INT; echo up; sleep 0.5 & wait; wait; exit 5") as running:
        running.send_signal(signal.SIGINT)
        assert line(running) == "interrupted"
        assert running.wait(BOUND) == 5


@everywhere
def test_a_stop_after_an_interrupt_still_gives_the_grace(rung: str) -> None:
    """A command that took a SIGINT as its own (a REPL does) is asked by SIGTERM like any other."""
    need(rung)
    script = "trap 'echo interrupted' INT; trap 'exit 7' TERM; echo up; while :; do sleep 0.02; done"
    with shell(rung, script, "--grace", "60") as running:
        running.send_signal(signal.SIGINT)
        assert line(running) == "interrupted"
        time.sleep(0.1)
        running.terminate()
        assert running.wait(BOUND) == 7


@everywhere
def test_an_ignored_hangup_stays_ignored(rung: str) -> None:
    """Under nohup neither quell nor the command ends by SIGHUP; SIGTERM still stops both."""
    need(rung)
    script = "echo up; while :; do sleep 0.02; done"
    with start("exec", "--contain", rung, "--", "bash", "-c", script, before=["nohup"]) as running:
        assert line(running) == "up"
        chain = oracle.below(running.pid)
        for pid in (running.pid, *chain):
            os.kill(pid, signal.SIGHUP)
        time.sleep(0.3)  # nothing may happen: the only way to see that is to give it time
        assert running.poll() is None
        assert all(oracle.alive(pid) for pid in chain[:3])
        running.terminate()
        assert running.wait(BOUND) == 128 + signal.SIGTERM


@everywhere
def test_a_stop_of_quell_by_sigstop_and_sigcont_loses_nothing(rung: str) -> None:
    need(rung)
    with shell(rung, "echo up; sleep 0.3; echo done; exit 4") as running:
        running.send_signal(signal.SIGSTOP)
        oracle.wait_for(lambda: oracle.state(running.pid) == "T", "quell to stop")
        assert line(running) == "done"
        running.send_signal(signal.SIGCONT)
        assert running.wait(BOUND) == 4


@everywhere
@pytest.mark.parametrize("moment", range(8))
@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "KILL"])
def test_a_signal_in_the_first_moments_leaves_nothing(rung: str, moment: int, name: str) -> None:
    """H22: whatever had started by then is gone, and there is no traceback."""
    need(rung)
    with oracle.Held() as held:
        with start("exec", "--contain", rung, "--", "sleep", "1013", held=held) as running:
            if moment:
                oracle.wait_for(lambda: oracle.in_charge(running.pid), "quell to hold signals back")
            time.sleep(moment * 0.005)  # each turn aims at another moment of the start
            running.send_signal(number(name))
            _, said = running.communicate(timeout=BOUND)
        assert held.gone()
        if moment:
            assert running.returncode in (-number(name), 128 + number(name))
            assert said == b""
        else:  # the interpreter itself is starting: how it ends is its own matter
            assert running.returncode != 0


@everywhere
def test_nothing_outlives_a_quell_that_was_killed(rung: str) -> None:
    """H23: SIGKILL of quell is a stop."""
    need(rung)
    with oracle.Held() as held:
        script = "setsid sleep 1014 & (trap '' TERM HUP; setsid sh -c 'while :; do sleep 0.05; done') & echo up; wait"
        with start("exec", "--contain", rung, "--", "bash", "-c", script, held=held) as running:
            assert line(running) == "up"
            running.kill()
            assert held.gone()
