"""A real browser before a real server: one Chromium for all of this folder, a `quell serve` of its own for each test.

A page that complains (an error on its console, a dialog, something that its own policy refuses) fails its test.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from quell.testing.counting import Leak
from tests.cli.serving import Served
from tests.web.visit import Visit

FLAGS = """--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-features=SpareRendererForSitePerProcess""".split()
NAMES = ("chromium", "chromium-browser", "google-chrome")
BOUND = 15_000  # milliseconds for what a page is expected to show
COMPOSED = Path(__file__).with_name("composed.py")

Open = Callable[..., Visit]
Serve = Callable[..., Served]


def of_the_browser(leak: Leak) -> bool:
    """Chromium starts and ends processes as it pleases; all of it goes with the browser."""
    return leak.kind in ("descendant", "namespace") and "chrom" in leak.what


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.leak_census(ignore=[of_the_browser], settle=5.0))


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    expect.set_options(timeout=BOUND)
    with sync_playwright() as play:
        found = [path for name in NAMES if (path := shutil.which(name))]
        assert found, f"these tests need a browser: none of {', '.join(NAMES)} is installed"
        browser = play.chromium.launch(executable_path=found[0], args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a server, with the agents and plugins of `composed.py` if asked; ends them all in good order."""
    running: list[Served] = []

    def start(name: str = "served", *args: str, composed: bool = False, term: float = 0.6) -> Served:
        script = COMPOSED.read_text() if composed else None
        server = Served(tmp_path / name, *args, script=script)
        running.append(server)
        server.__enter__()
        server.configure(ask=1.0, term=term)
        return server

    yield start
    for server in running:
        if server.process.poll() is None:
            server.signal(signal.SIGTERM)
    codes = [server.ends() for server in running]
    assert all(code in (0, -signal.SIGKILL) for code in codes), [server.err for server in running]


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Open]:
    """Opens the page of a server by a launch link, in a browser profile of its own."""
    visits: list[Visit] = []

    def start(server: Served, **how: object) -> Visit:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **how})  # type: ignore[arg-type]
        visits.append(Visit(context, server))
        return visits[-1]

    yield start
    for one in visits:
        one.context.close()
    for one in visits:
        assert not one.complaints, "\n".join(one.complaints)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where screenshots go: into the documentation when that is asked for."""
    return Path(__file__).parents[2] / "docs" if os.environ.get("QUELL_SCREENSHOTS") == "1" else tmp_path
