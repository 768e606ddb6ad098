"""Every Stop of the page, from the button to the dead process (H14), with a witness outside."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from playwright.sync_api import expect

from quell.testing import check_log
from tests.cli.oracle import wait_for
from tests.web.composed import BLOCK, SECONDS
from tests.web.conftest import Open, Serve
from tests.web.trees import Tree
from tests.web.visit import Visit

LADDER = 8.0
"""Seconds from a press until all must be gone: 1 s to ask, 0.6 s of grace, 2 s to kill, and a slow machine."""


TITLES = ("Nightly build", "Web crawler", "Dev server")


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="acme-") as folder:
        yield Path(folder)


@pytest.fixture
def trees(folder: Path) -> Iterator[list[Tree]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Tree(folder, name)) for name in ("nightly-build", "crawl", "dev-server")]


def start_all(visit: Visit, folder: Path, trees: list[Tree]) -> None:
    """Three sessions by the page, each with a tree that has escapees."""
    for title, tree in zip(TITLES, trees, strict=True):
        visit.new(title, tree.line, folder=str(folder))
    for tree in trees:
        tree.grown()


def confirmed(visit: Visit) -> None:
    """The panel of Stop All has the sum receipt, admission is closed, and nobody runs."""
    expect(visit.halt.locator(".receipt[data-confirmed=yes]")).to_be_visible()
    expect(visit.gate).to_be_visible()


def test_stop_all_ends_three_sessions_with_escapees(
    serve: Serve, visit: Open, folder: Path, trees: list[Tree], pictures: Path
) -> None:
    """H14, H21: from the button to the dead process; admission is closed, and Reopen opens it."""
    server = serve()
    one = visit(server)
    expect(one.page.get_by_role("heading", name="Stop means stop.")).to_be_visible()
    start_all(one, folder, trees)
    one.say("And then run the tests.")
    expect(one.page).to_have_title("(3) Dev server – Quell")
    assert all(tree.whole for tree in trees)
    expect(one.talk.locator(".output")).to_contain_text("[8/8]")
    expect(one.page.locator(".aside .trees ul li", has_text="sleep 600")).to_have_count(4)
    (pictures / "page-desktop.png").write_bytes(one.page.screenshot())
    phone = visit(server, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    expect(phone.page.locator("article.card")).to_have_count(3)
    (pictures / "page-phone.png").write_bytes(phone.page.screenshot())
    dark = visit(server, color_scheme="dark")
    dark.open(one.page.url.rpartition("/")[2])

    one.stop_all()
    expect(one.page.locator("#stop-all")).to_contain_text("Stopping")
    for tree in trees:
        tree.gone(LADDER)
    for each in (one, dark):  # who pressed, and who only looks on
        confirmed(each)
    receipt = one.halt.locator(".receipt")
    expect(receipt.locator("header")).to_contain_text("nobody is left")
    for title in TITLES:
        expect(one.card(title).locator(".verdict[data-confirmed=yes]")).to_be_visible()
    expect(one.talk.locator(".receipt[data-confirmed=yes]")).to_be_visible()
    expect(one.page).to_have_title("Dev server – Quell")
    expect(one.page.locator(".queue")).to_contain_text("1 parked")
    (pictures / "page-dark.png").write_bytes(dark.page.screenshot())

    one.gate.get_by_role("button", name="Reopen").click()
    expect(one.gate).to_be_hidden()
    expect(dark.gate).to_be_hidden()
    one.page.locator(".queue").get_by_role("button", name="Release").click()
    expect(one.talk).to_contain_text("You said: And then run the tests.")
    check_log(server.folder / "log.sqlite", live=True)
    for picture in ("page-desktop.png", "page-phone.png", "page-dark.png"):
        assert (pictures / picture).stat().st_size < 200_000


def test_stop_on_one_card_leaves_the_others_alone(serve: Serve, visit: Open, folder: Path, trees: list[Tree]) -> None:
    one = visit(serve())
    start_all(one, folder, trees)
    one.stop("Web crawler")
    trees[1].gone(LADDER)
    expect(one.card("Web crawler").locator(".verdict[data-confirmed=yes]")).to_be_visible()
    for tree, title in ((trees[0], "Nightly build"), (trees[2], "Dev server")):
        assert tree.whole
        expect(one.card(title)).to_have_attribute("data-state", "running")
    expect(one.gate).to_be_hidden()
    one.page.keyboard.press("Escape")  # the open one: its turn
    trees[2].gone(LADDER)
    expect(one.talk.locator(".receipt[data-confirmed=yes]")).to_be_visible()
    assert trees[0].whole


def test_a_page_that_is_loaded_again_in_the_middle_of_a_stop_shows_how_it_ends(
    serve: Serve, visit: Open, folder: Path, trees: list[Tree]
) -> None:
    """H20: the stop goes on without who asked for it."""
    one = visit(serve(term=1.5))
    start_all(one, folder, trees)
    one.stop_all()
    expect(one.card("Web crawler")).to_have_attribute("data-state", "stopping")
    one.page.reload()
    expect(one.halt.locator(".ladder")).to_be_visible()  # it is under way, and the page knows
    for tree in trees:
        tree.gone(LADDER)
    confirmed(one)
    one.page.reload()
    confirmed(one)  # and it is there for who looks later
    one.halt.get_by_role("button", name="Dismiss").click()
    expect(one.halt).to_be_hidden()
    one.page.reload()
    expect(one.gate).to_be_visible()
    expect(one.halt).to_be_hidden()


def test_a_network_that_is_cut_in_the_middle_of_a_stop_loses_no_receipt(
    serve: Serve, visit: Open, folder: Path, trees: list[Tree]
) -> None:
    one = visit(serve(term=1.5))
    start_all(one, folder, trees)
    one.stop_all()
    expect(one.card("Web crawler")).to_have_attribute("data-state", "stopping")
    one.context.set_offline(True)
    expect(one.banner("There is no network")).to_be_visible()
    for tree in trees:
        tree.gone(LADDER)
    one.context.set_offline(False)
    confirmed(one)
    expect(one.halt.locator("header .found").first).not_to_have_text("nobody is left")  # it is *that* stop's receipt
    expect(one.page.locator(".banner")).to_have_count(0)


def test_a_stop_that_is_pressed_without_a_network_is_carried_out_when_there_is_one(
    serve: Serve, visit: Open, folder: Path, trees: list[Tree]
) -> None:
    one = visit(serve())
    start_all(one, folder, trees)
    one.context.set_offline(True)
    one.stop("Web crawler")
    one.stop_all()
    expect(one.halt).to_contain_text("asked for again as soon as the server is there")
    assert all(tree.whole for tree in trees)
    one.context.set_offline(False)
    for tree in trees:
        tree.gone(LADDER)
    confirmed(one)


def test_stop_all_under_load(serve: Serve, visit: Open, folder: Path, trees: list[Tree]) -> None:
    """Many sessions that write as fast as they can, and one of them on the screen."""
    server = serve()
    one = visit(server)
    start_all(one, folder, trees)
    noisy = [server.session("$ while :; do echo a line of a command that never stops; done") for _ in range(12)]
    one.open(noisy[0])
    expect(one.talk.locator(".output")).to_contain_text("never stops")
    pressed = time.monotonic()
    one.stop_all()
    for tree in trees:
        tree.gone(LADDER)
    assert time.monotonic() - pressed < LADDER
    confirmed(one)
    assert server.client.get("state")["admission"]["open"] is False


def test_stop_all_while_a_handler_blocks_the_loop(serve: Serve, visit: Open, folder: Path, trees: list[Tree]) -> None:
    """H25: the button works, the receipt comes, and the page says what is the matter."""
    server = serve(composed=True)
    one = visit(server)
    start_all(one, folder, trees)
    one.new("Blocker")
    one.page.get_by_label("Message").fill(BLOCK)
    blocked = time.monotonic()
    one.page.keyboard.press("Enter")
    expect(one.banner("held up")).to_be_visible()
    one.stop_all()
    for tree in trees:
        tree.gone(LADDER)
    receipt = one.halt.locator(".receipt")
    expect(receipt).to_contain_text("Blocker.setup")  # it names who would not end: that is no process
    expect(receipt.locator(".survivors")).to_have_count(0)
    assert time.monotonic() - blocked < SECONDS - 5  # all that while it is blocked
    server.signal(signal.SIGKILL)


def test_a_stop_needs_no_stream(serve: Serve, visit: Open, folder: Path, trees: list[Tree]) -> None:
    """The WebSocket is gone and does not come back: Stop works, and its receipt is shown from the answer."""
    server = serve()
    one = visit(server)
    one.new("Nightly build", trees[0].line, folder=str(folder))
    trees[0].grown()
    expect(one.session).to_have_attribute("data-state", "running")
    one.page.evaluate("""() => {
        globalThis.WebSocket = class extends WebSocket { constructor() { super("/nowhere") } };
        dispatchEvent(new Event("offline"));  // as when a connection dies
    }""")
    expect(one.banner("connection")).to_be_visible()
    one.page.locator(".head").get_by_role("button", name="Stop", exact=True).click()
    trees[0].gone(LADDER)
    expect(one.page.locator(".strip .receipt[data-confirmed=yes]")).to_be_visible()


def test_stop_all_finds_a_connection_free_while_many_stops_wait(
    serve: Serve, visit: Open, folder: Path, trees: list[Tree]
) -> None:
    """A browser has six connections to a server, and a stop with its grace holds one of them."""
    server = serve(term=8.0)
    one = visit(server)
    stubborn = [server.session("$ trap '' TERM; sleep 600", title=f"stubborn {n}") for n in range(8)]
    start_all(one, folder, trees)
    for n in range(len(stubborn)):
        expect(one.card(f"stubborn {n}")).to_contain_text("trap")
    for n in range(len(stubborn)):
        one.stop(f"stubborn {n}")
    one.stop_all()
    wait_for(lambda: not server.client.get("state")["admission"]["open"], "Stop All is heard", 3.0)
    one.halt.get_by_role("button", name="Force").click()
    for tree in trees:
        tree.gone(LADDER)
    confirmed(one)


UNCONFIRMED = {
    "confirmed": False,
    "sentence": "unconfirmed: 1 process would not end: 4711 (dd if=/dev/sdb)",
    "receipt": {
        "verdict": "unconfirmed", "reason": "stop", "confirmed": False, "rung": "pidns", "survivors": [4711],
        "processes": [
            {"pid": 4711, "inner": 5, "argv": ["dd", "if=/dev/sdb"], "end": "alive", "at": 7.0},
            {"pid": 4712, "inner": 6, "argv": ["sleep", "600"], "end": "signal 15", "at": 0.01},
        ],
        "phases": {"tasks": 0.01, "ask": 5.0, "kill": 2.0, "total": 7.01},
        "tasks": [{"name": "tool shell", "end": "alive", "where": "shell.py:93"}],
    },
}  # fmt: skip


def test_what_survives_a_stop_is_named_in_red(serve: Serve, visit: Open) -> None:
    """H17: the page never says more than the receipt. The answer is made up: nothing survives a real one here."""
    one = visit(serve())
    one.new("Image", "hello")
    one.page.route("**/stop", lambda route: route.fulfill(json=UNCONFIRMED))
    one.page.locator(".head").get_by_role("button", name="Stop", exact=True).click()
    receipt = one.page.locator(".strip .receipt")
    expect(receipt.locator(".verdict")).to_have_text("unconfirmed")
    survivor = receipt.locator(".survivors li")
    expect(survivor).to_contain_text("4711")
    expect(survivor).to_contain_text("dd if=/dev/sdb")
    expect(survivor).to_have_css("color", "rgb(184, 31, 40)")
    expect(receipt).to_contain_text("shell.py:93")
    expect(one.card("Image").locator(".verdict")).to_have_text("stop unconfirmed")
