"""An export holds everything that was said, and nothing in it breaks out of its place."""

import re

import pytest

from quell.events import Event, QueueDiscarded, StopReceipt, StopRequested, ToolCall, decode
from quell.kernel.export import code, fenced, quoted, to_jsonl, to_markdown

from ..testing.script import Chat, Script, rich


def page(chat: Chat, title: str = "t") -> str:
    return to_markdown(chat.script.events, title)


def headings(markdown: str) -> list[str]:
    """Those outside of fences and quotations, read line by line as Markdown does."""
    found, fence = [], ""
    for line in markdown.splitlines():
        if fence:
            fence = "" if re.fullmatch(f"{fence}`*", line) else fence
        elif opening := re.match(r"`{3,}", line):
            fence = opening[0]
        elif line.startswith("#"):
            found.append(line)
    assert not fence, "a fence is never closed"
    return found


def test_jsonl_is_every_event_in_its_one_form() -> None:
    events = rich().events
    lines = list(to_jsonl(events))
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    assert [decode(line) for line in lines] == events


def test_a_conversation_reads_from_top_to_bottom() -> None:
    a = Script().open("a")
    a.begin(a.say("look"))
    a.answer("I look.", ToolCall("c1", "shell", {"command": "ls"}))
    a.use(ToolCall("c1", "shell", {"command": "ls"}), "a b")
    a.answer("done")
    a.done("done")
    a.end()
    text = page(a, "A look")
    assert headings(text) == ["# A look", "## User", "## Assistant", "### `shell`", "## Assistant"]
    assert text.index("> look") < text.index("> I look.") < text.index('"ls"') < text.index("\na b\n")
    assert text.count("> done") == 1, "the answer is the model's last words, once"


@pytest.mark.parametrize(
    "text",
    [
        "```\n# out\n```",
        "`````\n## User\n",
        "a ```` b",
        "```",
        "~~~\n# out",
        "# out",
        "> x\n\n# out",
        "a\r# out\r\n## out",
    ],
)
def test_nothing_that_is_said_breaks_out_of_its_place(text: str) -> None:
    a = Script().open("a")
    a.begin(a.say(text))
    a.answer(text, ToolCall("c1", text, {text: text}))
    tool = a.want(ToolCall("c1", text, {text: text}))
    a.start(tool)
    a.finish(tool, text, error=text)
    a.refuse(a.want(ToolCall("c2", "shell", {})), text)
    stop = a.stop(reason=text)
    a.compact(text, 1)
    a.end("stopped", reason=text)
    a.receipt(stop)
    found = headings(page(a, text))
    assert [one.split(" ")[0] for one in found] == ["#", "##", "##", "###", "###"]
    assert found[1:3] == ["## User", "## Assistant"]


def test_a_fence_is_longer_than_any_in_the_text() -> None:
    assert fenced("a", "text") == "```text\na\n```"
    assert fenced("```\n", "json") == "````json\n```\n````"
    assert code("a`b") == "``a`b``"
    assert code("`a`") == "`` `a` ``"
    assert code("a\nb") == "`a b`"
    assert quoted("") == ">"
    assert quoted("a\n\nb") == "> a\n>\n> b"


def test_stops_refusals_and_summaries_are_told() -> None:
    a = Script().open("a")
    a.begin(a.say("go"))
    waiting, other = a.say("later"), a.say("not at all")
    tool = a.want()
    a.approve(a.ask_approval(tool), allow=False)
    a.refuse(tool, "not approved")
    cut = a.want("c2")
    a.start(cut)
    stop = a.stop(reason="enough")
    a.finish(cut, "", error="stopped")
    a.end("stopped", reason="enough")
    a.park(waiting, other)
    a.emit(StopReceipt, turn=1, request=stop.seq, confirmed=False, receipt={"processes": [{}, {}], "survivors": [7, 8]})
    a.emit(QueueDiscarded, messages=[other.seq], reason="changed my mind")
    text = page(a)
    for words in (
        "*Not approved*",
        "### `shell`, refused",
        "### `shell`, failed",
        "*Stop of turn was asked for: enough*",
        "*The turn ended: stopped: enough*",
        "*Parked, of what waits: 2: stopped*",
        "**Stop unconfirmed** after 4.0 s; processes: 2; alive: 7, 8",
        "*Discarded, of what waits: 1: changed my mind*",
        "## User, not answered yet\n\n> later",
    ):
        assert words in text, words
    assert "not at all" not in text


def test_what_is_still_open_is_told_at_the_end() -> None:
    a = Script().open("a")
    a.begin(a.say("go"))
    a.want()
    assert page(a).endswith('### `shell`, without a result\n\n```json\n{\n  "command": "true"\n}\n```\n')


def test_a_receipt_of_an_odd_shape_and_one_without_its_stop_are_told_too() -> None:
    events: list[Event] = [
        StopRequested(seq=1, session="a"),
        StopReceipt(seq=2, session="a", request=9, confirmed=True, receipt={"processes": 3, "survivors": None}),
    ]
    assert "**Stop confirmed**\n" in to_markdown(events, "t")
