"""`quell exec -- CMD` ends as CMD ends, and CMD finds itself as if quell were not there."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quell.cli.options import PLAIN, VALUED
from tests.cli import oracle, test_receipt
from tests.cli.command import BOUND, QUELL, RUNGS, need, quell, start

everywhere = pytest.mark.parametrize("rung", RUNGS)


@everywhere
@pytest.mark.parametrize("code", [0, 1, 3, 124, 125, 126, 127, 200, 255])
def test_the_exit_code_is_the_commands_own(rung: str, code: int) -> None:
    need(rung)
    ended = quell("exec", "--contain", rung, "--", "sh", "-c", f"exit {code}")
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, b"", b"")


@everywhere
@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGKILL", "SIGSEGV", "SIGUSR1", "SIGPIPE", "SIGTERM"])
def test_a_command_that_dies_of_a_signal_gives_128_and_its_number(rung: str, name: str) -> None:
    need(rung)
    number = signal.Signals[name]
    ended = quell("exec", "--contain", rung, "--", "sh", "-c", f"ulimit -c 0; kill -{number.value} $$")
    assert (ended.returncode, ended.stderr) == (128 + number, b"")


@everywhere
def test_timeout_ends_the_command_with_124(rung: str) -> None:
    """H12: a command that ignores SIGTERM gets its grace and then SIGKILL."""
    need(rung)
    for words in (["sleep", "100"], ["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"]):
        began = time.monotonic()
        ended = quell("exec", "--contain", rung, "--timeout", "0.3", "--grace", "0.5", "--", *words)
        assert ended.returncode == 124
        assert 0.3 <= time.monotonic() - began < 5


def test_a_timeout_that_is_not_reached_changes_nothing() -> None:
    ended = quell("exec", "--timeout", "20", "--", "sh", "-c", "echo done; exit 4")
    assert (ended.returncode, ended.stdout, ended.stderr) == (4, b"done\n", b"")


@everywhere
def test_contain_chooses_the_rung_that_it_names(rung: str, tmp_path: Path) -> None:
    need(rung)
    quell("exec", "--contain", rung, "--receipt", tmp_path / "receipt", "--", "true")
    assert json.loads((tmp_path / "receipt").read_text())["rung"] == rung


def test_auto_is_the_default_rung(tmp_path: Path) -> None:
    quell("exec", "--receipt", tmp_path / "default", "--", "true")
    quell("exec", "--contain", "auto", "--receipt", tmp_path / "auto", "--", "true")
    rungs = [json.loads((tmp_path / name).read_text())["rung"] for name in ("default", "auto")]
    assert rungs[0] == rungs[1]
    if not os.geteuid():
        assert rungs[0] == "pidns"


@pytest.mark.parametrize("words", [["echo", "-n", "x"], ["--", "echo", "-n", "x"], ["--quiet", "echo", "-n", "x"]])
def test_the_dashes_may_be_left_out_and_the_commands_options_stay_its_own(words: list[str]) -> None:
    ended = quell("exec", *words)
    assert (ended.returncode, ended.stdout) == (0, b"x")


@pytest.mark.parametrize("words", [["", "a b", "*", "ü\n", "--grace"], ["--", "--", "-x"], ["--help"], ["--version"]])
def test_arguments_reach_the_command_untouched(words: list[str]) -> None:
    ended = quell("exec", "--", sys.executable, "-I", "-c", "import json, sys; print(json.dumps(sys.argv[1:]))", *words)
    assert json.loads(ended.stdout) == words


def test_a_command_is_looked_up_as_shells_do(tmp_path: Path) -> None:
    """PATH for a bare name, the file for a name with a slash, and a script without #! is not quell's to guess."""
    tool = tmp_path / "quell-test-tool"
    tool.write_text("#!/bin/sh\necho found $0\n")
    tool.chmod(0o755)
    on_path = quell("exec", "--", tool.name, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert on_path.stdout == f"found {tool}\n".encode()
    assert quell("exec", "--", f"./{tool.name}", cwd=tmp_path).stdout == f"found ./{tool.name}\n".encode()
    assert quell("exec", "--", tool.name, cwd=tmp_path).returncode == 127


# -- what a process inherits ---------------------------------------------------------------------------------

# Of /proc/self/status: all that a parent hands down. (Pids, memory and counters are each process's own.)
HANDED_DOWN = re.compile(
    r"^(Umask|Uid|Gid|Groups|Sig(?:Blk|Ign|Cgt)|Cap\w+|NoNewPrivs|Seccomp|Cpus_allowed\w*|Mems\w*):"
)
# The part that a namespace of its own makes different on purpose: a user namespace has its own capabilities.
OWN = {"userns": re.compile(r"^Cap|^Groups"), "pidns": None, "cgroup": None, "subreaper": None}


def handed_down(words: list[str], rung: str) -> list[str]:
    seen = subprocess.run(
        [*words, "cat", *(f"/proc/self/{name}" for name in ("status", "limits", "oom_score_adj", "timerslack_ns"))],
        capture_output=True,
        timeout=BOUND,
        check=True,
        text=True,
    ).stdout.splitlines()
    own = OWN[rung]
    # glibc's posix_spawn leaves its two own signals, 32 and 33, ignored in all that it starts.
    seen = [f"SigIgn: {int(line[8:], 16) & ~(3 << 31):x}" if line.startswith("SigIgn:") else line for line in seen]
    return [line for line in seen if (HANDED_DOWN.match(line) or ":" not in line) and not (own and own.match(line))]


@everywhere
@pytest.mark.parametrize(
    "before",
    [
        ["env"],
        ["env", "--ignore-signal=HUP,INT,USR1"],
        ["env", "--block-signal=USR2,TERM"],
        ["env", "--default-signal=PIPE"],
        ["nice", "-n", "7"],
        ["prlimit", "--nofile=200:300", "--core=0:0", "--stack=4194304:", "--fsize=100000000:"],
        ["sh", "-c", 'umask 027; exec "$@"', "sh"],
        ["taskset", "1"],
        ["choom", "-n", "300", "--"],
    ],
    ids=lambda before: " ".join(before[:2]),
)
def test_a_command_inherits_what_it_inherits_without_quell(rung: str, before: list[str]) -> None:
    need(rung)
    with_quell = handed_down([*before, str(QUELL), "exec", "--contain", rung, "--"], rung)
    assert with_quell == handed_down(before, rung)


@everywhere
def test_niceness_scheduling_and_priority_are_inherited(rung: str) -> None:
    need(rung)
    probe = "import os; print(os.nice(0), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))"
    words = [sys.executable, "-I", "-c", probe]
    ended = quell("exec", "--contain", rung, "--", *words, before=["nice", "-n", "7"])
    assert ended.stdout == subprocess.run(["nice", "-n", "7", *words], capture_output=True, check=True).stdout


@everywhere
def test_the_environment_is_untouched(rung: str) -> None:
    need(rung)
    strange = {"EMPTY": "", "SPACES": " a  b ", "LINES": "one\ntwo", "PYTHONPATH": "/nowhere", "BYTES": "\udcff\udc80"}
    env = {**os.environ, **strange}
    ended = quell("exec", "--contain", rung, "--", "env", "-0", env=env)
    assert ended.stdout == subprocess.run(["env", "-0"], env=env, capture_output=True, check=True).stdout


@everywhere
def test_the_working_directory_is_untouched(rung: str, tmp_path: Path) -> None:
    need(rung)
    folder = tmp_path / "with space"
    folder.mkdir()
    ended = quell("exec", "--contain", rung, "--", "pwd", "-P", cwd=folder)
    assert ended.stdout == f"{folder.resolve()}\n".encode()


@everywhere
def test_a_removed_working_directory_is_no_hindrance(rung: str, tmp_path: Path) -> None:
    need(rung)
    folder = tmp_path / "removed"
    folder.mkdir()
    ended = quell(
        "exec", "--contain", rung, "--", "printf", "here", cwd=folder,
        before=["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh"],
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"here", b"")


@everywhere
def test_the_command_is_in_quells_session_and_group_with_a_keeper_above_it(rung: str) -> None:
    need(rung)
    with start("exec", "--contain", rung, "--", "sleep", "1008") as running:
        command = oracle.command_below(running.pid, "1008")
        chain = oracle.below(running.pid)
        assert [oracle.comm(pid) for pid in chain[: chain.index(command)]] == ["quell-zygote", "quell-keeper"]
        assert {os.getpgid(pid) for pid in chain} == {os.getpgid(running.pid)}
        assert {os.getsid(pid) for pid in chain} == {os.getsid(running.pid)}
        names = [(oracle.comm(pid), *oracle.argv(pid)) for pid in (running.pid, *chain)]
        assert not [name for name in names if "python" in " ".join(name)]


# -- flags ---------------------------------------------------------------------------------------------------

# Each flag of `quell exec`, and the test that shows what it does.
EFFECTS = {
    "--grace": test_receipt.test_a_grace_is_given_to_those_who_ignore_sigterm_and_to_nobody_else,
    "--timeout": test_timeout_ends_the_command_with_124,
    "--receipt": test_receipt.test_a_receipt_says_what_was_left_behind,
    "--contain": test_contain_chooses_the_rung_that_it_names,
    "--quiet": test_receipt.test_quiet_leaves_the_line_out,
}


def test_every_flag_has_a_test_of_its_effect() -> None:
    """H53: what the live help names is what is tested, and each test uses its flag."""
    help_text = quell("exec", "--help").stdout.decode()
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", help_text)) - {"--help"}
    assert flags == set(EFFECTS) == {*VALUED, *PLAIN} - {"-h", "--help"}
    for flag, test in EFFECTS.items():
        assert flag in test.__code__.co_consts or any(flag in str(const) for const in test.__code__.co_consts), flag
