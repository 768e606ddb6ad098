"""Every test has its own state directory, and is never skipped in CI. The census around each is our own plugin's."""

import os
import signal
import sysconfig
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from quell.kernel.runtime import LEFT_OPEN
from quell.testing import check_log

ALLOWED_SKIPS: dict[str, str] = {}
"""Node ids that may be skipped where skips are failures, each with its reason. None now."""


def pytest_configure() -> None:
    """What we were started with ignored (nohup, a script's `&`) would be ignored by all that the tests start."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP, signal.SIGCHLD):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def skips_are_failures() -> bool:
    return os.environ.get("CI") == "true" or os.environ.get("QUELL_NO_SKIPS") == "1"


def refused(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Why this report may not stand where nothing is skipped; None when it may."""
    expected = getattr(report, "wasxfail", None)
    if not skips_are_failures() or report.nodeid in ALLOWED_SKIPS:
        return None
    if report.outcome != "skipped" and expected is None:
        return None
    reason = expected if expected is not None else report.longrepr
    if isinstance(reason, tuple):
        reason = reason[2]
    return f"{report.nodeid} did not run as a test must here (a skip or an expected failure): {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (sentence := refused(report)) is not None:
        report.outcome = "failed"
        report.longrepr = sentence
        vars(report).pop("wasxfail", None)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if (sentence := refused(report)) is not None:
        report.outcome = "failed"
        report.longrepr = sentence
    return report


@pytest.fixture(autouse=True)
def state_dir(
    leak_census: object,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """An empty state directory of the test's own, named to every quell that it starts.

    Every log that the test leaves there or in its own folder is checked (H35, H18).
    """
    folder = tmp_path_factory.mktemp("state")
    own = [request.getfixturevalue("tmp_path")] if "tmp_path" in request.fixturenames else []
    monkeypatch.setenv("QUELL_STATE_DIR", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))  # nor does it read what whoever runs this configured
    yield folder
    for log in [log for place in (folder, *own) for log in place.rglob("log.sqlite")]:
        check_log(log, live=True)  # of an orderly end it demands that everything has ended all the same
        assert LEFT_OPEN.encode() not in log.read_bytes(), f"{log}: the runtime ended what should have had its end"


@pytest.fixture(scope="session")
def quell() -> list[str]:
    """The beginning of an argv that runs the quell of this environment."""
    return [str(Path(sysconfig.get_path("scripts")) / "quell")]
