"""What a person does with a session on the page, and sees of it: what the server has, and nothing else."""

import re
from pathlib import Path

from playwright.sync_api import expect

from quell.testing import check_log
from quell.testing.llm import ModelServer, Says
from tests.web.conftest import Open, Serve


def test_a_conversation_streams_and_its_calls_show_their_output(serve: Serve, visit: Open) -> None:
    one = visit(serve())
    one.new("Talk", "Some **bold** words\n$ for n in 1 2 3; do echo out $n; sleep 0.2; done; exit 3")
    call = one.talk.locator(".call")
    expect(call.locator(".command")).to_have_text("for n in 1 2 3; do echo out $n; sleep 0.2; done; exit 3")
    expect(call.locator(".output")).to_contain_text("out 1")
    expect(call).to_have_attribute("data-state", "done")
    expect(call.locator(".output")).to_have_text("out 1\nout 2\nout 3\n[exit 3]")
    expect(one.talk.locator(".answer strong")).to_have_text("bold")  # Markdown of the server's making
    expect(one.session).to_have_attribute("data-state", "idle")
    one.say("$ seq 1 4000")
    long = one.talk.locator(".call").nth(1)
    expect(long).to_have_attribute("data-state", "done")
    expect(long.locator(".output")).not_to_contain_text("\n2000\n")
    long.get_by_role("button", name=re.compile("Show all")).click()
    expect(long.locator(".output")).to_contain_text("\n2000\n")


def test_what_a_model_said_before_it_broke_off_goes_from_the_page(serve: Serve, visit: Open, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    broken, again = Says("one two three").cut(2), Says("four five").hang(2)
    with ModelServer(broken, again) as model:
        config.write_text(
            f'[models.there]\nbase_url = "{model.url}"\n[agents.talker]\nmodel = "there:llama3"\n', encoding="utf-8"
        )
        one = visit(serve("served", "--config", str(config)))
        one.new("Talk", "Count.", agent="talker")
        expect(one.talk.locator(".note")).to_contain_text("what it said so far is void")
        expect(one.talk.locator(".answer")).to_have_text("four five")
        one.page.keyboard.press("Escape")


def test_approvals_show_all_arguments_and_are_answered_once(serve: Serve, visit: Open, tmp_path: Path) -> None:
    server = serve(composed=True)
    one = visit(server)
    session = one.new("Careful", f"$ touch {tmp_path}/allowed", agent="careful")
    approval = one.page.get_by_role("group", name="Approval of shell")
    expect(one.talk.locator(".call .command")).to_have_text(f"touch {tmp_path}/allowed")
    expect(one.card("Careful")).to_have_attribute("data-state", "asking")
    approval.get_by_role("button", name="Allow once").click()
    expect(approval).to_have_count(0)
    expect(one.talk.locator(".call")).to_have_attribute("data-state", "done")
    assert (tmp_path / "allowed").exists()

    calls = one.talk.locator(".call")
    for word, told in (("This session", "allowed in this session"), ("Always", "always allowed")):
        for count in range(2):
            before = calls.count()
            one.say(f"$ : {word}")
            if not count:
                button = approval.get_by_role("button", name=word)
                button.focus()
                one.page.keyboard.press("Enter")
            expect(calls).to_have_count(before + 1)
            expect(calls.last).to_have_attribute("data-state", "done")
            expect(calls.last.locator(".note")).to_have_count(0 if count else 1)  # the second was not asked
            if not count:
                expect(calls.last.locator(".note")).to_have_text(told)
    assert [one["arguments"]["command"] for one in server.client.get("grants")["grants"]] == [": Always"]
    asked = calls.count()

    one.say(f"$ touch {tmp_path}/denied")
    one.page.locator("a.mark").click()  # the overview has every open question
    question = one.page.locator(".question")
    expect(question.locator(".command")).to_have_text(f"touch {tmp_path}/denied")
    question.get_by_label("Reason").fill("not on my disk")
    question.get_by_role("button", name="Refuse").click()
    expect(question).to_have_count(0)
    one.open(session)
    expect(calls.nth(asked)).to_have_attribute("data-state", "refused")
    expect(calls.nth(asked)).to_contain_text("not on my disk")
    assert not (tmp_path / "denied").exists()


def test_the_queue_waits_is_parked_released_and_discarded(serve: Serve, visit: Open) -> None:
    """H19."""
    one = visit(serve())
    one.new("Queue", "$ sleep 600")
    for text in ("first", "second", "third"):
        one.say(text)
    queue = one.page.locator(".queue")
    expect(queue).to_contain_text("3 waiting")
    one.page.keyboard.press("Escape")
    expect(queue).to_contain_text("3 parked")
    expect(one.session).to_have_attribute("data-state", "idle")
    queue.get_by_role("listitem").filter(has_text="second").get_by_role("button", name="Discard").click()
    expect(queue).to_contain_text("2 parked")
    queue.get_by_role("listitem").filter(has_text="third").get_by_role("button", name="Release").click()
    expect(one.talk).to_contain_text("You said: third")
    expect(queue).to_contain_text("1 parked")
    queue.get_by_role("button", name="Release").click()
    expect(one.talk).to_contain_text("You said: first")
    expect(queue).to_be_hidden()
    expect(one.talk).not_to_contain_text("You said: second")


def test_a_session_is_renamed_forked_restarted_exported_and_deleted(serve: Serve, visit: Open) -> None:
    server = serve()
    one = visit(server)

    def choose(act: str) -> None:
        one.page.get_by_role("button", name="Session: more").click()
        one.page.get_by_role("menuitem", name=act).click()

    first = one.new("Work", "hello")
    expect(one.talk).to_contain_text("You said: hello")
    choose("Rename")
    one.page.get_by_role("dialog").get_by_label("Title").fill("Better name")
    one.page.get_by_role("dialog").get_by_role("button", name="Rename").click()
    expect(one.page.locator("h1")).to_have_text("Better name")
    expect(one.card("Better name")).to_be_visible()

    for form, word in (("Export as JSONL", '"kind":"message.user"'), ("Export as Markdown", "## User")):
        with one.page.expect_download() as download:
            choose(form)
        path = download.value.path()
        assert word in Path(path).read_text()

    choose("Fork")
    expect(one.talk).to_contain_text("Forked from")
    expect(one.talk).to_contain_text("You said: hello")
    fork = one.page.url.rpartition("/")[2]
    assert fork != first
    one.say("$ sleep 600")
    expect(one.session).to_have_attribute("data-state", "running")
    choose("Restart")
    expect(one.page.locator(".toast")).to_contain_text("Restarted. confirmed")
    expect(one.talk.locator(".turn").last).to_have_attribute("data-end", "stopped")

    choose("Delete")
    one.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(one.page).to_have_url(f"{server.url}/#/")
    expect(one.page.locator("article.card")).to_have_count(1)
    assert [card["id"] for card in server.client.get("sessions")["sessions"]] == [first]
    check_log(server.folder / "log.sqlite", live=True)


def test_a_sub_agent_is_a_card_below_its_parent(serve: Serve, visit: Open) -> None:
    one = visit(serve())
    one.new("Parent", "@scripted $ sleep 600")
    below = one.page.locator("ul.below article.card")
    expect(below).to_have_attribute("data-state", "running")
    expect(below).to_contain_text("sleep 600")
    one.talk.get_by_role("link", name="open sub-agent").click()
    expect(one.talk.locator(".call .command")).to_have_text("sleep 600")
    one.stop("Parent")
    expect(one.page.locator("details.finished:not([hidden]) > summary")).to_have_text("1 finished sub-agent")


def test_who_is_configured_to_answer_is_chosen_until_another_is(serve: Serve, visit: Open, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[defaults]\nagent = "helper"\n[agents.helper]\n')
    server = serve("served", "--config", str(file))
    one = visit(server)
    one.page.get_by_role("button", name="Start a session").click()  # the example is for the offline one
    expect(one.page.get_by_label("Agent").locator("option")).to_have_count(3)
    expect(one.page.get_by_label("Agent")).to_have_value("scripted")
    one.page.keyboard.press("Escape")
    assert server.client.get("sessions", one.new("Usual", "hello"))["agent"] == "helper"
    assert server.client.get("sessions", one.new("Other", "hello", agent="scripted"))["agent"] == "scripted"


def test_what_the_server_refuses_is_said_in_its_own_words(serve: Serve, visit: Open) -> None:
    server = serve()
    one = visit(server)
    one.page.keyboard.press("n")
    dialog = one.page.get_by_role("dialog")
    dialog.get_by_label("Folder").fill("/no/such/folder")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog.get_by_role("alert")).to_contain_text("/no/such/folder")
    one.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    one.new("Closed", "hello")
    server.client.post("admission", "close", body={"reason": "by hand"})
    expect(one.gate).to_be_visible()
    expect(one.halt).to_be_hidden()  # nobody pressed Stop All
    expect(one.page.locator(".composer .closed")).to_contain_text("Admission is closed")
    one.page.locator(".composer").get_by_role("button", name="Reopen").click()
    expect(one.gate).to_be_hidden()
    one.say("there again")
    expect(one.talk).to_contain_text("You said: there again")


def test_every_page_has_what_the_api_has(serve: Serve, visit: Open) -> None:
    """H36: one that comes late and one that was there all the time list the same, and show the same conversation."""
    server = serve()
    early = visit(server)
    for n in range(4):
        server.session(f"$ echo {n}", title=f"session {n}")
    lines = server.session("$ for n in $(seq 1 40); do echo line $n; sleep 0.02; done", title="lines")
    late = visit(server)
    for one in (early, late):
        expect(one.page.locator("article.card")).to_have_count(5)
        links = one.page.locator("a.name").evaluate_all("links => links.map(one => one.hash.slice(4))")
        assert sorted(links) == sorted(card["id"] for card in server.client.get("sessions")["sessions"])
        one.open(lines)
    for one in (early, late):
        expect(one.talk.locator(".turn")).to_have_attribute("data-end", "completed")
        one.talk.get_by_role("button", name="Show all").click()
        expect(one.talk.locator(".output")).to_have_text("\n".join(f"line {n}" for n in range(1, 41)) + "\n")
