"""A stage for the tests of the kernel. The log that it leaves is one of an orderly end, and is checked as such."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quell.kernel.runtime import LOG
from quell.testing.checking import check_log

from .cast import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    yield Stage(tmp_path)
    for log in sorted(tmp_path.rglob(LOG)):
        check_log(log)
