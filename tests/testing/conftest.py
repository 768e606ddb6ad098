"""Fixtures for the tests of the census."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import uvloop


@pytest.fixture(scope="session")
def libuv() -> None:
    """Its first loop makes a pipe that the process keeps."""
    uvloop.new_event_loop().close()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of the test's own: what others do in the shared one is none of its business."""
    folder = tmp_path / "temporary"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio says it too."""
    caplog.set_level("CRITICAL", "asyncio")
