"""A server that is killed and comes back: the page comes back by itself and misses nothing (H36)."""

import signal
from typing import Any

from playwright.sync_api import expect

from tests.web.conftest import Open, Serve
from tests.web.visit import Visit


def shown(visit: Visit) -> list[list[str]]:
    """Of every turn: what was asked and what was answered, as the page has it."""
    turns = """turns => turns.map(turn => [
        turn.querySelector(".said p").textContent, turn.dataset.end ?? "",
        ...[...turn.querySelectorAll(".output")].map(one => one.textContent),
    ])"""
    found: list[list[str]] = visit.talk.locator(".turn").evaluate_all(turns)
    return found


def logged(events: list[dict[str, Any]]) -> list[list[str]]:
    """The same, by the log."""
    turns: dict[int, list[str]] = {}
    asked = {event["seq"]: event["text"] for event in events if event["kind"] == "message.user"}
    for event in events:
        match event["kind"]:
            case "turn.started":
                turns[event["turn"]] = [asked[event["cause"]], ""]
            case "turn.ended":
                turns[event["turn"]][1] = event["end"]
            case "tool.ended" if event.get("result"):
                turns[event["turn"]].append(event["result"])
    return list(turns.values())


def test_the_page_comes_back_after_a_killed_server_and_misses_nothing(serve: Serve, visit: Open) -> None:
    """H23: what ran is interrupted, what waited is parked, and the open page tells both."""
    server = serve()
    one = visit(server)
    session = one.new("Long work", "$ echo before")
    expect(one.talk).to_contain_text("before")
    one.say("$ echo begun; sleep 600")
    expect(one.talk.locator(".call").nth(1)).to_contain_text("begun")
    one.say("and then this")
    expect(one.page.locator(".queue")).to_contain_text("1 waiting")

    server.signal(signal.SIGKILL)
    server.ends()
    expect(one.banner("The connection is lost")).to_be_visible()
    again = serve("served", "--port", str(server.port))
    expect(one.page.locator(".banner")).to_have_count(0)
    expect(one.talk.locator(".turn").nth(1)).to_have_attribute("data-end", "interrupted")
    expect(one.page.locator(".queue")).to_contain_text("1 parked")
    one.page.locator(".queue").get_by_role("button", name="Release").click()
    expect(one.talk).to_contain_text("You said: and then this")
    one.say("$ echo after")
    expect(one.talk.locator(".turn").nth(3)).to_have_attribute("data-end", "completed")

    wanted = logged(again.client.get("sessions", session, "history")["events"])
    assert [end for _, end, *_ in wanted] == ["completed", "interrupted", "completed", "completed"]
    wanted[1].append("begun\n")  # it was seen, and stays on the page; the log has no result of it
    assert shown(one) == wanted
    one.page.reload()
    expect(one.talk.locator(".turn")).to_have_count(4)


def test_a_server_that_stops_says_so_and_a_browser_that_is_not_let_in_is_told_how(serve: Serve, visit: Open) -> None:
    server = serve()
    one = visit(server)
    server.signal(signal.SIGTERM)
    expect(one.banner("The server has stopped")).to_be_visible()
    server.ends()
    one.context.clear_cookies()
    serve("served", "--port", str(server.port))
    expect(one.banner("quell open")).to_be_visible()  # let in no more: it says what to do
    one.page.goto(server.client.post("launches")["url"])
    expect(one.page.locator("#pulse")).to_have_text("idle")
    expect(one.page.locator(".banner")).to_have_count(0)
