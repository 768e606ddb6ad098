"""What a command is given: its folder, environment, limits and streams, and nothing else."""

import json
import os
import sys
from pathlib import Path

import pytest

from quell.supervise import NULL, PIPE, PTY, Box, Zygote, allow

SHOW = """
import json, os, resource, signal, sys
fds = [int(name) for name in os.listdir("/proc/self/fd")]
mask = os.umask(0)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "cwd": os.getcwd(), "env": dict(os.environ), "umask": mask, "nice": os.nice(0), "argv": sys.argv[1:],
    "nofile": resource.getrlimit(resource.RLIMIT_NOFILE), "core": resource.getrlimit(resource.RLIMIT_CORE),
    "fds": sorted(fds), "ignored": int(status["SigIgn"], 16), "blocked": int(status["SigBlk"], 16),
    "own_session": os.getsid(0) == os.getpid(),
}))
"""
NOT_OURS = (1 << 12) | (1 << 24) | (3 << 31)  # SIGPIPE and SIGXFSZ by Python itself, 32 and 33 by glibc's posix_spawn


def shown(box: Box, **wishes: object) -> dict[str, object]:
    tree = box.spawn([sys.executable, "-I", "-c", SHOW, "an arg", "ü\udcff"], stdin=NULL, stdout=PIPE, **wishes)  # type: ignore[arg-type]
    assert tree.stdout is not None
    text = tree.stdout.read()
    assert tree.wait(10) == {"code": 0}
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("limited", [False, True], ids=["posix_spawn", "fork and exec"])
def test_a_command_gets_what_it_was_meant_to_get(box: Box, tmp_path: Path, limited: bool) -> None:
    wishes: dict[str, object] = {"cwd": str(tmp_path), "env": {"A": "1", "B": "x=ü"}, "umask": 0o27}
    if limited:
        wishes |= {"rlimits": {"RLIMIT_NOFILE": (111, 222), "RLIMIT_CORE": (0, 0)}, "nice": 7}
    found = shown(box, **wishes)
    assert found["cwd"] == str(tmp_path) and found["umask"] == 0o27 and found["own_session"]
    env = found["env"]
    assert isinstance(env, dict) and {name: env[name] for name in ("A", "B")} == {"A": "1", "B": "x=ü"}
    assert set(env) <= {"A", "B", "LC_CTYPE"}  # Python adds the last to its own
    assert found["argv"] == ["an arg", "ü\udcff"]
    if limited:
        assert found["nofile"] == [111, 222] and found["core"] == [0, 0] and found["nice"] == 7


@pytest.mark.parametrize("limited", [False, True], ids=["posix_spawn", "fork and exec"])
def test_a_command_gets_no_other_descriptor_and_default_signals(box: Box, limited: bool) -> None:
    """H03: no socket, pidfd or pipe of ours reaches a child."""
    leaky = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaky, True)
    try:
        found = shown(box, **({"nice": 1} if limited else {}))
    finally:
        os.close(leaky)
    assert found["fds"] == [0, 1, 2, 3] or found["fds"] == [0, 1, 2]  # 3: the listing itself
    ignored, blocked = found["ignored"], found["blocked"]
    assert isinstance(ignored, int) and ignored & ~NOT_OURS == 0
    assert blocked == 0


def test_streams_may_be_files(box: Box, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("hello\n")
    with open(tmp_path / "in", "rb") as source, open(tmp_path / "out", "wb") as sink:
        tree = box.spawn(["sh", "-c", "cat; echo error >&2"], stdin=source, stdout=sink, stderr=sink.fileno())
        assert tree.wait(10) == {"code": 0}
    assert (tmp_path / "out").read_text() == "hello\nerror\n"


def test_a_pipe_to_a_command_carries_its_input(box: Box) -> None:
    tree = box.spawn(["wc", "-c"], stdin=PIPE, stdout=PIPE)
    assert tree.stdin is not None and tree.stdout is not None
    tree.stdin.write(b"12345")
    tree.stdin.close()
    assert tree.stdout.read().strip() == b"5"


def test_a_terminal_is_the_commands_own_and_can_be_resized(box: Box) -> None:
    script = "trap 'stty size; exit' WINCH; tty >/dev/null && stty size; echo ready; while :; do sleep 0.05; done"
    tree = box.spawn(["sh", "-c", script], stdin=PTY)
    assert tree.terminal is not None
    text = _read_until(tree.terminal, b"ready")
    assert b"0 0" in text
    tree.resize(33, 99)
    assert b"33 99" in _read_until(tree.terminal, b"99")
    assert tree.wait(10) == {"code": 0}


def test_only_a_command_with_a_terminal_can_be_resized(box: Box) -> None:
    tree = box.spawn(["true"])
    with pytest.raises(ValueError, match="no terminal"):
        tree.resize(1, 1)


def test_a_script_without_a_first_line_runs_as_shells_run_it(box: Box, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo $1; exit 5\n")
    script.chmod(0o755)
    tree = box.spawn([str(script), "word"], stdout=PIPE)
    assert tree.stdout is not None and tree.stdout.read() == b"word\n"
    assert tree.wait(10) == {"code": 5}


def test_the_path_that_is_searched_is_the_commands_own(box: Box, tmp_path: Path) -> None:
    tool = tmp_path / "only-here"
    tool.write_text("#!/bin/sh\nexit 6\n")
    tool.chmod(0o755)
    assert box.spawn(["only-here"], env={"PATH": str(tmp_path)}).wait(10) == {"code": 6}


def test_the_least_environment_is_an_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    monkeypatch.setenv("WANTED", "yes")
    found = allow("WANTED", EXTRA="1")
    assert "SECRET_KEY" not in found and found["WANTED"] == "yes" and found["EXTRA"] == "1"
    assert found["PATH"] == os.environ["PATH"]
    assert allow(source={"HOME": "/x", "Z": "z"}) == {"HOME": "/x"}


def test_zygote_and_keepers_are_not_called_python(plain: Zygote) -> None:
    """H16: agents type `pkill -9 -f python`; ours are not hit by it."""
    box = plain.box()
    box.spawn(["sleep", "600"])
    pid = box.keeper
    for name in ("quell-keeper", "quell-zygote", "quell-guard"):
        assert Path(f"/proc/{pid}/comm").read_text().strip() == name
        assert Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0") == name.encode()
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert pid == os.getpid()
    box.stop(force=True)


def _read_until(fd: int, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        seen += os.read(fd, 1024)
    return seen
