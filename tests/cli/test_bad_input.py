"""Whatever is wrong, quell says it in one sentence that helps, with the right exit code, and no work is lost."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli import unprivileged
from tests.cli.command import BOUND, QUELL, RUNGS, quell

OURS, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
root = pytest.mark.skipif(bool(os.geteuid()), reason="needs root to become another user or to change mounts")
IN_OWN_MOUNTS = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c"]


def complaint(ended: subprocess.CompletedProcess[bytes], code: int) -> str:
    """The one line on stderr, after the checks that hold for every complaint."""
    said = ended.stderr.decode(errors="replace")
    assert ended.returncode == code, said
    assert "Traceback" not in said
    assert said.startswith("quell: "), said
    assert said.endswith("\n")
    assert said.count("\n") == 1, said
    return said


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that the command makes when it runs: there or not says whether it ran."""
    return tmp_path / "the command ran"


# -- the command line ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["exec"], ["exec", "--"], ["exec", "--quiet"], ["exec", "--grace", "1", "--"]])
def test_a_missing_command_is_asked_for(words: list[str]) -> None:
    said = complaint(quell(*words), OURS)
    assert "command" in said.lower()
    assert "quell exec" in said, "the sentence shows how to call it"


@pytest.mark.parametrize("flag", ["--grace", "--timeout"])
@pytest.mark.parametrize("value", ["x", "-1", "nan", "-nan", "", "5s", "1,5", "0x10", "--"])
def test_a_bad_number_is_refused_before_anything_runs(flag: str, value: str, mark: Path) -> None:
    said = complaint(quell("exec", flag, value, "--", "touch", mark), OURS)
    assert flag in said
    assert "seconds" in said
    assert not mark.exists()


@pytest.mark.parametrize("flag", ["--grace", "--timeout"])
@pytest.mark.parametrize("value", ["inf", "1e999", "1e300", "99999999999999999999"])
def test_a_huge_number_is_refused_or_means_for_ever(flag: str, value: str) -> None:
    ended = quell("exec", flag, value, "--", "sh", "-c", "sleep 0.05 & exit 3")
    if ended.returncode != 3:
        assert flag in complaint(ended, OURS)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("--grce", "--grace"), ("--time-out", "--timeout"), ("--reciept", "--receipt"), ("--quite", "--quiet")],
)
def test_an_unknown_option_gets_the_nearest_one_named(wrong: str, right: str, mark: Path) -> None:
    said = complaint(quell("exec", wrong, "5", "--", "touch", mark), OURS)
    assert wrong in said
    assert right in said
    assert not mark.exists()


@pytest.mark.parametrize("wrong", ["-x", "--", "---", "--zzzzzz", "-"])
def test_an_option_like_no_other_is_refused_too(wrong: str, mark: Path) -> None:
    ended = (
        quell("exec", wrong, "--no-such-thing") if wrong in ("--", "-") else quell("exec", wrong, "--", "touch", mark)
    )
    complaint(ended, NOT_FOUND if wrong in ("--", "-") else OURS)
    assert not mark.exists()


@pytest.mark.parametrize("flag", ["--grace", "--timeout", "--receipt", "--contain"])
def test_an_option_without_its_value_is_named(flag: str) -> None:
    assert flag in complaint(quell("exec", flag), OURS)


@pytest.mark.parametrize("words", [["exce"], ["excec", "--", "true"], ["docter"]])
def test_an_unknown_subcommand_gets_the_nearest_one_named(words: list[str]) -> None:
    said = complaint(quell(*words), OURS)
    assert words[0] in said
    assert ("doctor" if words == ["docter"] else "exec") in said


def test_no_word_at_all_shows_the_help() -> None:
    ended = quell()
    assert b"quell exec" in ended.stdout + ended.stderr
    assert b"Traceback" not in ended.stderr
    assert ended.returncode in (0, OURS)


@pytest.mark.parametrize("words", [["--help"], ["exec", "--help"], ["doctor", "--help"], ["--version"]])
def test_help_and_version_are_answers_and_a_closed_reader_is_no_error(words: list[str]) -> None:
    ended = quell(*words)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout
    shell = '"$@" | true; "$@" >/dev/full; "$@" >&-'
    ended = subprocess.run(["sh", "-c", shell, "sh", QUELL, *words], capture_output=True, timeout=BOUND, check=False)
    assert b"Traceback" not in ended.stderr
    assert b"Exception" not in ended.stderr


# -- the command ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize(
    "name", ["no-such-command", "./no-such-file", "/no/such/file", "", "a/b", "x" * 300, "two\nlines"]
)
def test_a_command_that_is_not_there(rung: str, name: str) -> None:
    said = complaint(quell("exec", "--contain", rung, "--", name), NOT_FOUND)
    assert "not found" in said.lower() or "no such" in said.lower()


def test_a_name_that_is_no_text_is_still_one_sentence() -> None:
    for locale in ("C", "C.UTF-8"):
        ended = quell("exec", "--", os.fsdecode(b"\xff\xfe"), env={**os.environ, "LC_ALL": locale})
        complaint(ended, NOT_FOUND)


@pytest.mark.parametrize("rung", RUNGS)
def test_a_command_that_may_not_be_run(rung: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\x00\x01\x02")
    garbage.chmod(0o755)
    foreign = tmp_path / "foreign"  # a program for another kind of machine
    foreign.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(11) + b"\xb7" + bytes(100))
    foreign.chmod(0o755)
    for path in (plain, tmp_path, garbage, foreign):
        said = complaint(quell("exec", "--contain", rung, "--", path), NOT_EXECUTABLE)
        assert str(path) in said


@pytest.mark.parametrize("rung", RUNGS)
def test_a_script_whose_interpreter_is_missing(rung: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    ended = quell("exec", "--contain", rung, "--", script)
    assert str(script) in complaint(ended, ended.returncode)
    assert ended.returncode in (NOT_EXECUTABLE, NOT_FOUND)


def test_a_later_entry_of_path_is_found_behind_one_that_may_not_be_run(tmp_path: Path) -> None:
    for number, mode in ((1, 0o644), (2, 0o755)):
        tool = tmp_path / str(number) / "quell-test-tool"
        tool.parent.mkdir()
        tool.write_text("#!/bin/sh\necho ran\n")
        tool.chmod(mode)
    path = f"{tmp_path}/1:{tmp_path}/2:{os.environ['PATH']}"
    assert quell("exec", "--", "quell-test-tool", env={**os.environ, "PATH": path}).stdout == b"ran\n"
    only = quell("exec", "--", "quell-test-tool", env={**os.environ, "PATH": f"{tmp_path}/1:/usr/bin:/bin"})
    complaint(only, NOT_EXECUTABLE)


def test_an_argument_list_that_the_kernel_refuses() -> None:
    ended = quell("exec", "--", "true", *(["x" * 100_000] * 19))
    assert ended.returncode == 0 or complaint(ended, NOT_EXECUTABLE)


# -- rungs ---------------------------------------------------------------------------------------------------


def test_an_unknown_rung_gets_all_names(mark: Path) -> None:
    said = complaint(quell("exec", "--contain", "docker", "--", "touch", mark), OURS)
    assert all(rung in said for rung in (*RUNGS, "auto"))
    assert not mark.exists()


@root
@pytest.mark.parametrize("rung", ["pidns", "cgroup"])
def test_a_rung_that_a_stranger_is_not_given(rung: str) -> None:
    """H16: what was asked for by name is given or refused, never quietly replaced."""
    with unprivileged.user() as stranger:
        said = complaint(stranger.run(QUELL, "exec", "--contain", rung, "--", "touch", "ran"), OURS)
        assert rung in said
        assert re.search(r"; (run|start|use) ", said), "the sentence says what to do"
        assert not (stranger.home / "ran").exists()


@root
def test_user_namespaces_that_are_switched_off() -> None:
    limit = 'echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"'
    before = ["unshare", "--user", "--map-root-user", "--", "sh", "-c", limit, "sh"]
    said = complaint(quell("exec", "--contain", "userns", "--", "true", before=before), OURS)
    assert "userns" in said


@root
@pytest.mark.parametrize("how", ["umount -l /proc", "mount -t tmpfs none /proc"])
@pytest.mark.parametrize("rung", [*RUNGS, "auto"])
def test_a_machine_without_proc(how: str, rung: str, mark: Path) -> None:
    before = [*IN_OWN_MOUNTS, f'{how}; exec "$@"', "sh"]
    said = complaint(quell("exec", "--contain", rung, "--", "touch", mark, before=before), OURS)
    assert "/proc" in said
    assert "mount" in said, "the sentence says what to do"
    assert not mark.exists()


# -- files ---------------------------------------------------------------------------------------------------


def test_a_receipt_in_a_missing_folder_is_refused_before_anything_runs(tmp_path: Path, mark: Path) -> None:
    wanted = tmp_path / "missing" / "receipt"
    said = complaint(quell("exec", "--receipt", wanted, "--", "touch", mark), OURS)
    assert str(wanted) in said
    assert not mark.exists()


def test_a_receipt_that_is_a_folder_is_refused_before_anything_runs(tmp_path: Path, mark: Path) -> None:
    said = complaint(quell("exec", "--receipt", tmp_path, "--", "touch", mark), OURS)
    assert str(tmp_path) in said
    assert not mark.exists()


@root
def test_a_receipt_that_may_not_be_written_is_refused_before_anything_runs() -> None:
    with unprivileged.user() as stranger:
        (stranger.home / "closed").mkdir()
        (stranger.home / "old").write_text("")
        (stranger.home / "old").chmod(0o444)
        for wanted in ("closed/receipt", "old"):
            said = complaint(stranger.run(QUELL, "exec", "--receipt", wanted, "--", "touch", "ran"), OURS)
            assert wanted in said
            assert not (stranger.home / "ran").exists()


@pytest.mark.parametrize("code", [0, 3])
def test_a_full_disk_costs_the_receipt_and_not_the_work(code: int, mark: Path) -> None:
    ended = quell("exec", "--receipt", "/dev/full", "--", "sh", "-c", f'echo out; touch "$0"; exit {code}', mark)
    said, receipt = ended.stderr.decode().splitlines()
    assert (ended.returncode, ended.stdout) == (OURS, b"out\n")
    assert said.startswith("quell: ")
    assert "/dev/full: No space left" in said
    assert f"code is {code}" in said, "the command's own code is not lost"
    assert json.loads(receipt)["exit"] == {"code": code}, "nor is the receipt"
    assert mark.exists()


@root
@pytest.mark.parametrize("left", [0, 4096])
def test_a_full_disk_leaves_no_half_receipt(left: int, tmp_path: Path) -> None:
    """H17: a receipt that was not written whole is none; what reads it later finds nothing to believe."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f"""mount -t tmpfs -o size=8k none {disk}; head -c {8192 - left} /dev/zero >{disk}/filler
    "$@"; code=$?; test -s {disk}/receipt && echo half a receipt; exit $code"""
    words = ["exec", "--receipt", str(disk / "receipt"), "--", "echo", "out" * 3000]
    ended = quell(*words, before=[*IN_OWN_MOUNTS, script, "sh"])
    said, receipt = ended.stderr.decode().splitlines()
    assert (ended.returncode, ended.stdout) == (OURS, b"out" * 3000 + b"\n")
    assert f"{disk / 'receipt'}: No space left" in said
    assert json.loads(receipt)["exit"] == {"code": 0}


STATES = {"a file above it": "/dev/null/state", "in /proc": "/proc/state", "empty": "", "relative": "state/../state"}


@pytest.mark.parametrize("where", STATES)
def test_a_state_folder_that_cannot_be_had_costs_no_work(where: str, tmp_path: Path) -> None:
    env = {**os.environ, "QUELL_STATE_DIR": STATES[where]}
    ended = quell("exec", "--", "sh", "-c", "echo out; exit 3", env=env, cwd=tmp_path)
    assert b"Traceback" not in ended.stderr
    if ended.returncode == OURS:
        assert "state" in complaint(ended, OURS)
    else:
        assert (ended.returncode, ended.stdout) == (3, b"out\n")


@root
def test_a_stranger_without_a_home_can_still_run_commands() -> None:
    with unprivileged.user() as stranger:
        for env in ({"HOME": "/nonexistent"}, {"HOME": ""}, {"HOME": "/root", "XDG_STATE_HOME": "relative"}):
            ended = stranger.run(QUELL, "exec", "--", "echo", "out", env=env)
            assert b"Traceback" not in ended.stderr
            assert (ended.returncode, ended.stdout) == (0, b"out\n"), ended.stderr


def test_too_few_descriptors_is_one_sentence(mark: Path) -> None:
    for limit in range(3, 14):
        ended = quell("exec", "--", "touch", mark, before=["prlimit", f"--nofile={limit}:{limit}"])
        assert b"Traceback" not in ended.stderr, (limit, ended.stderr)
        if ended.returncode:
            break
