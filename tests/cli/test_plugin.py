"""`quell plugin`: what it changes it changes in one step; stopped or killed at any moment, nothing is left of it."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from quell.cli.install import _check
from quell.cli.shelf import Shelf
from quell.errors import UsageError
from tests.cli import oracle
from tests.cli.command import BOUND, CHECKOUT, Running, quell, start
from tests.cli.projects import put, slow_project, wheel

OURS, FAILED, INTERRUPTED = 125, 1, 130
OFFLINE = ["--", "--no-index"]
FROM_SOURCE = [*OFFLINE, "--no-build-isolation", "--no-deps"]
MARK = "QUELL_TEST_MARK"


def complaint(ended: subprocess.CompletedProcess[bytes], code: int = OURS) -> str:
    said = ended.stderr.decode()
    assert ended.returncode == code, said
    assert said.startswith("quell: ") and said.count("\n") == 1, said
    return said


def done(ended: subprocess.CompletedProcess[bytes]) -> str:
    assert (ended.returncode, ended.stderr) == (0, b""), ended.stderr.decode()
    return ended.stdout.decode()


def install(*words: str | Path, **settings: Any) -> subprocess.CompletedProcess[bytes]:
    return quell("plugin", "install", "--with", "pip", *words, **settings)


def listed() -> dict[str, dict[str, str]]:
    rows: list[dict[str, str]] = json.loads(done(quell("plugin", "list", "--json")))
    return {row["name"]: row for row in rows}


def picture(state: Path) -> dict[str, str]:
    """Every file of the installed plugins, with its content; byte code is made by whoever imports."""
    files = [path for path in (state / "plugins").rglob("[!.]*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# -- installing and removing


def test_a_plugin_is_installed_listed_replaced_and_removed(state_dir: Path, tmp_path: Path) -> None:
    first = wheel(tmp_path, "quell-hello", "hello", requires="quell>=0.0.1")
    assert done(install(first, *OFFLINE)).startswith("installed quell-hello 1.0, which brings hello;")
    row = listed()["hello"]
    assert (row["version"], row["distribution"], row["source"], row["state"], row["fault"]) == (
        "1.0",
        "quell-hello",
        "installed",
        "enabled",
        "",
    )
    folder = state_dir / "plugins" / "quell-hello"
    assert row["folder"] == str(folder)
    assert sorted(one.name for one in folder.iterdir() if one.name != "__pycache__") == [
        "quell_hello-1.0.dist-info",
        "quell_hello.py",
    ], "no second Quell: the one that is there satisfied the requirement"
    second = wheel(tmp_path, "quell-hello", "hello", version="2.0")
    done(install(second, *OFFLINE))
    assert listed()["hello"]["version"] == "2.0" and not (folder / "quell_hello-1.0.dist-info").exists()
    assert "hello" in done(quell("plugin", "list")) and "2.0" in done(quell("plugin", "list"))
    assert done(quell("plugin", "remove", "hello")).startswith("removed hello")
    assert "hello" not in listed()
    assert [one.name for one in (state_dir / "plugins").iterdir()] == [".lock"]


def test_what_the_page_lists_is_what_the_json_lists(tmp_path: Path, state_dir: Path) -> None:
    """H36."""
    put(wheel(tmp_path, "quell-hello", "hello"), state_dir, "quell-hello")
    (state_dir / "plugins" / "not-a-plugin").mkdir()
    lines = done(quell("plugin", "list")).splitlines()
    rows = listed()
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows.values(), strict=True):
        assert line.split()[:3] == [row["name"], row["version"] or "-", row["source"]]
        assert line.endswith(row["fault"] or row["state"])
    assert "brings no plugin" in rows["not-a-plugin"]["fault"]


def test_the_example_is_installed_and_passes_its_own_tests(state_dir: Path) -> None:
    done(install(CHECKOUT / "examples" / "greeter", *OFFLINE, "--no-build-isolation"))
    folder = listed()["greeter"]["folder"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", CHECKOUT / "examples" / "greeter"],
        cwd=state_dir,
        env=os.environ | {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        timeout=BOUND,
        check=False,
    )
    assert ended.returncode == 0 and b"4 passed" in ended.stdout, ended.stdout.decode()


def test_a_plugin_for_another_quell_is_refused(tmp_path: Path, state_dir: Path) -> None:
    ended = install(wheel(tmp_path, "quell-hello", "hello", requires="quell>=99"), *OFFLINE)
    assert ended.returncode == FAILED and b"quell>=99" in ended.stderr, ended.stderr.decode()
    assert "hello" not in listed()


def test_a_plugin_whose_name_is_taken_changes_nothing(tmp_path: Path, state_dir: Path) -> None:
    put(wheel(tmp_path, "quell-hello", "hello"), state_dir, "quell-hello")
    before = picture(state_dir)
    said = complaint(install(wheel(tmp_path, "sly", "hello"), *OFFLINE))
    assert "sly brings the plugin hello, which quell-hello brings already; nothing was changed" in said
    assert picture(state_dir) == before


@pytest.mark.parametrize(
    ("plugin", "part"),
    [
        ("", "sly is no plugin: it has no entry point of the group quell.plugins"),
        ("shell", "sly brings the plugin shell, which quell brings already"),
        ("Bad", "sly names a plugin 'Bad', but a name is a small letter"),
    ],
)
def test_what_must_not_be_a_plugin_is_refused(plugin: str, part: str, tmp_path: Path, state_dir: Path) -> None:
    """H52: the bundled names are taken."""
    put(wheel(tmp_path, "sly", plugin), state_dir, "target")
    with pytest.raises(UsageError, match=part):
        _check(Shelf(), str(state_dir / "plugins" / "target"), "sly")


def test_what_pip_says_is_shown_when_it_fails_and_with_verbose(tmp_path: Path, state_dir: Path) -> None:
    """H53: `--verbose` has an effect."""
    ended = install("quell-no-such-plugin", *OFFLINE)
    said = ended.stderr.decode()
    assert ended.returncode == FAILED and "No matching distribution" in said
    assert said.endswith("quell: pip could not install quell-no-such-plugin (exit 1); nothing was changed\n")
    path = wheel(tmp_path, "quell-hello", "hello")
    assert b"Processing" in install("--verbose", path, *OFFLINE).stderr


def test_the_tool_can_be_chosen(tmp_path: Path) -> None:
    """H53: `--with` has an effect; without it uv is taken where it is on PATH."""
    fake = tmp_path / "bin" / "uv"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho uv was run with "$@"\nexit 3\n')
    fake.chmod(0o755)
    with_uv = os.environ | {"PATH": f"{fake.parent}:{os.environ['PATH']}"}
    for words in ([], ["--with", "uv"], ["--with=uv"]):
        ended = quell("plugin", "install", *words, "thing", "--", "--extra", env=with_uv)
        assert b"uv was run with pip install --python" in ended.stderr and b"--extra thing" in ended.stderr
        assert ended.returncode == FAILED
    done(install(wheel(tmp_path, "quell-hello", "hello"), *OFFLINE, env=with_uv))
    without = os.environ | {"PATH": "/usr/bin:/bin"}
    assert "there is no uv on PATH" in complaint(quell("plugin", "install", "--with", "uv", "thing", env=without))


def test_what_is_bundled_cannot_be_removed_but_can_be_disabled(tmp_path: Path) -> None:
    """H52: whatever the state of things, its distribution is asked; here it was never loaded, and cannot be."""
    info = tmp_path / "quell-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: quell\nVersion: 9\n")
    (info / "entry_points.txt").write_text("[quell.plugins]\nbroken = quell.no_such_module:plugin\n")
    env = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    said = complaint(quell("plugin", "remove", "broken", env=env))
    assert "broken comes with Quell and cannot be removed" in said
    done(quell("plugin", "disable", "broken", env=env))
    assert "disabled" in done(quell("plugin", "list", env=env))


def test_what_is_in_the_environment_is_not_ours_to_remove(tmp_path: Path) -> None:
    info = tmp_path / "site" / "another-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: another\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[quell.plugins]\nanother = another:plugin\n")
    env = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    assert "is part of the environment" in complaint(quell("plugin", "remove", "another", env=env))


def test_enable_and_disable_are_remembered_and_forgotten_with_the_plugin(tmp_path: Path, state_dir: Path) -> None:
    path = wheel(tmp_path, "quell-hello", "hello")
    put(path, state_dir, "quell-hello")
    assert done(quell("plugin", "disable", "hello")).startswith("hello is disabled")
    assert listed()["hello"]["state"] == "disabled"
    assert done(quell("plugin", "disable", "hello")).startswith("hello is already disabled")
    assert done(quell("plugin", "enable", "hello")).startswith("hello is enabled")
    assert listed()["hello"]["state"] == "enabled"
    assert "did you mean hello?" in complaint(quell("plugin", "enable", "helo"))
    assert "did you mean hello?" in complaint(quell("plugin", "disable", "helo"))
    assert "did you mean hello?" in complaint(quell("plugin", "remove", "helo"))
    done(quell("plugin", "disable", "hello"))
    done(quell("plugin", "remove", "hello"))
    put(path, state_dir, "quell-hello")
    assert listed()["hello"]["state"] == "enabled"


# -- bad input


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "what to do is missing"),
        (["lst"], "did you mean list?"),
        (["list", "x"], "one word too many"),
        (["list", "--jsn"], "did you mean --json?"),
        (["list", "--json=1"], "no option --json=1"),
        (["install"], "needs what to install"),
        (["install", ""], "needs what to install"),
        (["install", "--with"], "--with takes pip or uv"),
        (["install", "--with", "conda", "x"], "--with takes pip or uv, not 'conda'"),
        (["install", "--no-index", "x"], "follow --"),
        (["install", "a", "b"], "'b' is one word too many"),
        (["remove"], "needs the name of a plugin"),
        (["remove", "--json", "x"], "no option --json"),
        (["enable", "a", "b"], "one word too many"),
        (["disable", "--", "a"], "no option --"),
        (["remove", "nothing"], "there is no installed plugin 'nothing'"),
        (["plugni"], "there is no plugin command 'plugni'"),
    ],
)
def test_bad_input_gets_one_sentence_that_helps(words: list[str], part: str) -> None:
    assert part in complaint(quell("plugin", *words))


def test_help_has_examples_and_is_an_answer() -> None:
    for words in (["--help"], ["-h"], ["install", "--help"], ["list", "-h"]):
        assert "examples:\n  quell plugin install" in done(quell("plugin", *words))


def test_a_state_folder_that_cannot_be_had_is_said(tmp_path: Path) -> None:
    env = os.environ | {"QUELL_STATE_DIR": "/dev/null/state"}
    assert "/dev/null/state" in complaint(quell("plugin", "install", "--with", "pip", "x", env=env))
    done(quell("plugin", "list", env=env))


def test_a_broken_note_of_what_is_disabled_is_said(state_dir: Path) -> None:
    (state_dir / "plugins").mkdir()
    (state_dir / "plugins" / "disabled.json").write_text("{")
    assert "mend it or delete it" in complaint(quell("plugin", "list"))


def test_help_loads_nothing_heavy() -> None:
    heavy = {"asyncio", "msgspec", "importlib.metadata", "json", "ctypes"}
    probe = "import sys; from quell.cli.plugin import run; run(['--help'], []); print(*sys.modules, file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=True)
    before = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules, file=sys.stderr)"], capture_output=True, check=True
    )
    assert (set(ended.stderr.decode().split()) - set(before.stderr.decode().split())) & heavy == set()


# -- interrupted


HELD_FIRST = """
import signal, sys
import quell.cli
class Look:
    def find_spec(self, name, *rest):
        if name == "quell.cli.plugin":
            held = signal.pthread_sigmask(signal.SIG_BLOCK, [])
            print({signal.SIGINT, signal.SIGTERM, signal.SIGHUP} <= held, file=sys.stderr)
sys.meta_path.insert(0, Look())
quell.cli.main(["plugin", "--help"])
"""


def test_signals_are_held_back_before_anything_slow() -> None:
    """H22: the boot window; from there on the tests below aim."""
    ended = subprocess.run([sys.executable, "-c", HELD_FIRST], capture_output=True, check=True)
    assert ended.stderr == b"True\n"


class Slow:
    """A slow install beside a plugin that is installed already; whatever it starts carries a mark."""

    def __init__(self, folder: Path, state: Path, seconds: float = 0.4, *, stubborn: bool = False) -> None:
        self.state = state
        self.project = slow_project(folder / "slow", seconds, stubborn=stubborn)
        put(wheel(folder, "quell-kept", "kept"), state, "quell-kept")
        done(quell("plugin", "list"))
        self.before = picture(state)
        self.mark = f"{os.getpid()}-{os.urandom(6).hex()}"

    def start(self) -> Running:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(MARK, self.mark)
            return start("plugin", "install", "--with", "pip", self.project, *FROM_SOURCE)

    def alive(self) -> list[list[str]]:
        """The argv of everything that carries the mark."""
        return [oracle.argv(pid) for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._is_marked(pid)]

    def _is_marked(self, pid: int) -> bool:
        try:
            return f"{MARK}={self.mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes() and oracle.alive(pid)
        except OSError:
            return False

    def check(self, ended: bool) -> None:
        """Nothing runs any more, what was installed is as it was, and the next command works and tidies up."""
        oracle.wait_for(lambda: not self.alive(), f"these to be gone: {self.alive()}")
        plugins = listed()
        assert plugins["kept"]["fault"] == "" and plugins["kept"]["state"] == "enabled"
        assert ("slow" in plugins) == ended
        if ended:
            done(quell("plugin", "remove", "slow"))
        assert picture(self.state) == self.before
        assert sorted(one.name for one in (self.state / "plugins").iterdir()) == [".lock", "quell-kept"]


def interrupt(slow: Slow, after: float, number: int = signal.SIGINT) -> str:
    """Signal it after so many seconds since quell is in charge. What came of it."""
    with slow.start() as running:
        oracle.wait_for(lambda: oracle.in_charge(running.pid), "quell to hold signals back")
        time.sleep(after)  # each turn aims at another moment
        running.send_signal(number)
        _, said = running.communicate(timeout=BOUND)
    if number == signal.SIGKILL:
        slow.check(ended=running.returncode == 0)
        return "killed"
    text = said.decode()
    if running.returncode == 0:
        assert text == ""
        slow.check(ended=True)
        return "installed"
    assert running.returncode == 128 + number, text
    assert text.startswith("quell: ") and text.endswith("; nothing was installed\n") and text.count("\n") == 1, text
    slow.check(ended=False)
    return "interrupted"


def moments(count: int, seconds: float) -> list[float]:
    """Spread over the whole install, each at a random place of its share."""
    chance = random.Random(count)
    return [seconds * (number + chance.random()) / count for number in range(count)]


def test_an_interrupted_install_leaves_nothing_and_changes_nothing(state_dir: Path, tmp_path: Path) -> None:
    """H22, H23: at moments all over it, and when the interpreter itself is starting."""
    slow = Slow(tmp_path, state_dir)
    results = {interrupt(slow, after) for after in moments(8, 1.6)}
    assert "interrupted" in results
    assert interrupt(slow, 0.9, signal.SIGTERM) == "interrupted"
    assert [interrupt(slow, after, signal.SIGKILL) for after in (0.3, 0.9)] == ["killed"] * 2
    with slow.start() as running:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=BOUND)
    assert running.returncode != 0
    slow.check(ended=False)


@pytest.mark.soak
def test_an_install_interrupted_at_100_moments_leaves_nothing(state_dir: Path, tmp_path: Path) -> None:
    """H22."""
    slow = Slow(tmp_path, state_dir)
    results = [interrupt(slow, after) for after in moments(100, 2.5)]
    assert set(results) == {"interrupted", "installed"}


def test_a_second_interrupt_forces(state_dir: Path, tmp_path: Path) -> None:
    """H22: whoever asks twice does not wait for what ignores SIGTERM."""
    slow = Slow(tmp_path, state_dir, seconds=60, stubborn=True)
    with slow.start() as running:
        oracle.wait_for(lambda: ["sleep", "99"] in slow.alive(), "the build to be at work")
        running.send_signal(signal.SIGINT)
        time.sleep(0.2)  # two at once are one
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=BOUND)
    assert running.returncode == INTERRUPTED and time.monotonic() - began < 1.5
    slow.check(ended=False)


def test_two_at_a_time_are_kept_apart(state_dir: Path, tmp_path: Path) -> None:
    """H51: and the one that lists does not sweep away what the other is making."""
    slow = Slow(tmp_path, state_dir, seconds=1.0)
    with slow.start() as running:
        oracle.wait_for(lambda: ["sleep", "99"] in slow.alive(), "the build to be at work")
        said = complaint(install(wheel(tmp_path, "quell-hello", "hello"), *OFFLINE))
        assert "another `quell plugin` changes the plugins now" in said
        assert "kept" in listed()
        running.communicate(timeout=BOUND)
    assert running.returncode == 0
    slow.check(ended=True)
