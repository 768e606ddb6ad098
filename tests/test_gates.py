"""The suite's own gates: the skip policy of conftest.py and the leak census around every test, each seen to fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def run_planted(folder: Path, text: str, **environment: str) -> tuple[int, str]:
    """Exit code and output of pytest over one planted test file, under this suite's conftest.py."""
    shutil.copy(Path(__file__).with_name("conftest.py"), folder / "conftest.py")
    (folder / "test_planted.py").write_text(f"import os, subprocess, sys, pytest\n{text}", encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\nleak_census = true\n", encoding="utf-8")
    clean = {
        name: value for name, value in os.environ.items() if name not in {"CI", "QUELL_NO_SKIPS", "PYTEST_ADDOPTS"}
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "."]
    done = subprocess.run(command, cwd=folder, env=clean | environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


SKIPPERS = {
    "a call": "def test_a():\n    pytest.skip('no such tool')",
    "a mark": "@pytest.mark.skipif(True, reason='no such tool')\ndef test_a():\n    pass",
    "a fixture": "@pytest.fixture\ndef tool():\n    pytest.skip('no such tool')\ndef test_a(tool):\n    pass",
    "a module": "pytest.skip('no such tool', allow_module_level=True)",
    "an xfail": "@pytest.mark.xfail(reason='no such tool')\ndef test_a():\n    assert False",
    "an xpass": "@pytest.mark.xfail(reason='no such tool')\ndef test_a():\n    pass",
}


@pytest.mark.parametrize("how", SKIPPERS)
@pytest.mark.parametrize("variable", [{"CI": "true"}, {"QUELL_NO_SKIPS": "1"}], ids=["CI", "QUELL_NO_SKIPS"])
def test_a_skip_in_ci_is_a_failure_that_says_why(how: str, variable: dict[str, str], tmp_path: Path) -> None:
    """H56: a test that did not run is no test."""
    code, output = run_planted(tmp_path, SKIPPERS[how], **variable)
    assert code != 0
    assert "no such tool" in output


@pytest.mark.parametrize("how", SKIPPERS)
def test_elsewhere_a_skip_is_a_skip(how: str, tmp_path: Path) -> None:
    code, output = run_planted(tmp_path, SKIPPERS[how] + "\ndef test_b():\n    pass")
    assert code == (5 if how == "a module" else 0), output


END = """
@pytest.fixture(scope="session", autouse=True)
def end():
    yield
    for process in globals().get("kept", []):
        process.kill()
        process.wait()
"""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("def test_a():\n    os.open('/dev/null', os.O_RDONLY)", "of /dev/null"),
        ("def test_a():\n    os.set_inheritable(os.pipe()[0], True)", "of pipe:["),
        ("kept = []\ndef test_a():\n    kept.append(subprocess.Popen(['sleep', '20']))", "'sleep 20'"),
        ("def test_a():\n    os.fork() or os._exit(0)", "ended, never reaped"),
    ],
)
def test_what_a_test_leaves_behind_is_named(text: str, named: str, tmp_path: Path) -> None:
    """H03, H56: the leak census is seen to fail, and names what it found."""
    code, output = run_planted(tmp_path, text + END)
    assert code != 0
    assert "the test left behind" in output
    assert named in output


def test_a_test_that_cleans_up_passes_the_census(tmp_path: Path) -> None:
    text = "def test_a():\n    subprocess.run(['true'], check=True)\n    os.close(os.open('/dev/null', os.O_RDONLY))"
    code, output = run_planted(tmp_path, text)
    assert code == 0, output


def test_each_test_has_a_state_directory_of_its_own(state_dir: Path, quell: list[str]) -> None:
    assert os.environ["QUELL_STATE_DIR"] == str(state_dir)
    assert list(state_dir.iterdir()) == []
    assert os.access(quell[0], os.X_OK)
