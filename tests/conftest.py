"""Every test has its own state directory, leaves no child and no open file behind, and is never skipped in CI."""

import gc
import os
import signal
import sysconfig
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

ALLOWED_SKIPS: dict[str, str] = {}
"""Node ids that may be skipped where skips are failures, each with its reason. None now."""

SETTLE = 2.0
"""Seconds that what a test started may take to be reaped and closed (asyncio reaps in a thread on 3.11)."""

Census = dict[str, str]
"""What this process owns now: each child and each open file, with what is known of it."""


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


def census() -> Census:
    """The children and the open files of this process."""
    return children() | open_files()


def children() -> Census:
    found: Census = {}
    for task in _list("/proc/self/task"):
        for pid in _read(f"/proc/self/task/{task}/children").split():
            found[f"child {pid}"] = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip() or "ended, never reaped"
    return found


def open_files() -> Census:
    found: Census = {}
    for number in _list("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the listing's own
            continue
        found[f"fd {number} of {target}"] = "still open"
    return found


def leaked(before: Census, bound: float = SETTLE) -> list[str]:
    """What is here now and was not `before`, once it has had `bound` seconds to go."""
    end = time.monotonic() + bound
    while True:
        new = [f"{name}: {what}" for name, what in census().items() if name not in before]
        if not new or time.monotonic() > end:
            return new
        gc.collect()
        time.sleep(0.01)


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:  # no Linux: no census
        return []


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.fixture(autouse=True)
def leak_census() -> Iterator[None]:
    before = census()
    yield
    if left := leaked(before):
        pytest.fail("the test left behind:\n  " + "\n  ".join(left), pytrace=False)


@pytest.fixture(autouse=True)
def state_dir(leak_census: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty state directory of the test's own, named to every quell that it starts."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("QUELL_STATE_DIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def quell() -> list[str]:
    """The beginning of an argv that runs the quell of this environment."""
    return [str(Path(sysconfig.get_path("scripts")) / "quell")]
