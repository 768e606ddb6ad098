"""`quell run`, in a home that Quell has not been used in yet: no command of an agent writes the configuration."""

from pathlib import Path

import pytest

from quell.supervise.contain import why_not
from tests.cli.command import quell


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".config" / "quell" / "config.toml"


@pytest.mark.skipif(why_not("pidns") is not None, reason="the boxes of this user have no mounts of their own")
def test_the_configuration_cannot_be_written_though_a_person_says_yes(file: Path) -> None:
    """H67: nor by `quell config`; and what the person writes is written."""
    for command in (f"echo evil > {file}", "mkdir -p .config/quell && touch .config/quell/config.toml"):
        ended = quell("run", "--yes", f"$ {command}; quell config set defaults.model evil:x")
        assert b"Read-only file system" in ended.stdout, ended
        assert not file.exists()
    assert quell("config", "set", "defaults.agent", "scripted").returncode == 0 and file.exists()


def test_a_command_that_names_it_is_not_run_where_nobody_can_be_asked(file: Path) -> None:
    """H67: `scripted` may use the shell."""
    ended = quell("run", f"$ touch here {file}")
    assert not file.exists() and not Path("here").exists(), ended
    assert b"not approved" in ended.stdout + ended.stderr or b"refused" in ended.stdout + ended.stderr, ended
    assert quell("run", "$ touch here").returncode == 0 and Path("here").exists()
