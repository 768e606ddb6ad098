"""Whatever a person, a model, a tool or a process is called or says: the page shows it as text, and runs none of it."""

import shlex
from pathlib import Path

from playwright.sync_api import expect

from tests.cli.oracle import wait_for
from tests.surfaces.xss import STRINGS
from tests.web.conftest import Open, Serve
from tests.web.visit import Visit

WITNESS = """
    globalThis.told = [];
    globalThis.pwned = (which) => told.push(String(which));
    globalThis.alert = globalThis.prompt = globalThis.confirm = () => told.push("a dialog");
    addEventListener("securitypolicyviolation", (event) => told.push(`${event.violatedDirective} ${event.blockedURI}`));
"""
FLAT = [" ".join(text.replace("\0", " ").splitlines()) for text in STRINGS]
"""As one line each, for commands."""


def innocent(visit: Visit) -> None:
    """Nothing ran, nothing tried to, and no link leads to a script."""
    visit.page.mouse.move(640, 400)
    assert visit.page.evaluate("told") == []
    assert visit.page.evaluate("typeof pwned") == "function"
    links = visit.page.locator("main a[href]").evaluate_all("links => links.map(one => one.protocol)")
    assert set(links) <= {"http:", "https:", "mailto:"}


def scroll_through(visit: Visit) -> None:
    """Everything comes near the screen once, so that it is rendered."""
    visit.page.evaluate("""async () => {
        const box = document.querySelector(".scroller");
        for (let at = 0; at <= box.scrollHeight; at += 700) {
            box.scrollTop = at;
            await new Promise(go => setTimeout(go, 15));
        }
    }""")


def test_nothing_that_is_said_runs_in_the_page(serve: Serve, visit: Open, tmp_path: Path) -> None:
    """Messages, answers as Markdown, commands, tool output, a title, and the last lines on cards."""
    server = serve()
    (tmp_path / "strings").write_text("\n".join(STRINGS))
    one = visit(server)
    one.page.evaluate(WITNESS)
    session = one.new(STRINGS[0])
    for text in STRINGS:
        server.client.post("sessions", session, "messages", body={"text": text})
    server.client.post("sessions", session, "messages", body={"text": f"$ cat {shlex.quote(f'{tmp_path}/strings')}"})
    expect(one.talk.locator(".turn")).to_have_count(len(STRINGS) + 1, timeout=30_000)
    expect(one.session).to_have_attribute("data-state", "idle")
    scroll_through(one)
    answers = one.talk.locator(".answer").count()
    wait_for(lambda: one.talk.locator(".answer[data-rendered]").count() > answers * 0.9, "answers are rendered")
    one.talk.get_by_role("button", name="Show all").click()
    innocent(one)
    assert one.talk.locator(".said p").evaluate_all("all => all.map(one => one.textContent)")[: len(STRINGS)] == [
        text.replace("\r\n", "\n") for text in STRINGS
    ]
    one.page.locator("a.mark").click()
    innocent(one)


def test_nothing_that_is_named_asked_or_stopped_runs_in_the_page(serve: Serve, visit: Open, tmp_path: Path) -> None:
    """Titles, approvals' arguments, argv of processes and receipts, reasons of stops, and errors of the server."""
    server = serve(composed=True)
    one = visit(server)
    one.page.evaluate(WITNESS)
    for text in STRINGS:
        server.session(title=text)
    server.session("\n".join(f"$ {text}" for text in FLAT), agent="careful")
    words = " ".join(shlex.quote(text) for text in FLAT)
    server.session(f"$ sh -c 'sleep 600; :' {words}", title="All of them")
    expect(one.page.locator(".question")).to_have_count(len(STRINGS), timeout=30_000)
    expect(one.page.locator(".trees > li")).to_have_count(1)
    shown = one.page.locator(".question .command").evaluate_all("all => all.map(one => one.textContent)")
    assert shown == [flat.strip() for flat in FLAT]
    innocent(one)

    one.page.keyboard.press("n")
    dialog = one.page.get_by_role("dialog")
    for text in FLAT[::10]:
        dialog.get_by_label("Folder").fill(f"/{text}")
        dialog.get_by_role("button", name="Start").click()
        expect(dialog.get_by_role("alert")).to_be_visible()
    one.page.keyboard.press("Escape")
    innocent(one)

    reason = " ".join(FLAT)[:490]
    server.client.post("sessions", server.session(title="Reasons"), "stop", body={"reason": reason})
    one.stop_all()
    receipt = one.halt.locator(".receipt[data-confirmed=yes]")
    expect(receipt).to_be_visible()
    expect(receipt).to_contain_text("<script>")
    slips = one.page.locator(".slip")
    expect(slips).not_to_have_count(0)
    slips.first.locator("summary").click()
    expect(slips.first.locator(".receipt")).to_be_visible()
    innocent(one)
