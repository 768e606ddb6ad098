"""Approvals at a terminal: nothing is hidden, a key that came after the question answers it, and the modes are kept."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from quell.cli.approve import question_lines
from quell.cli.cells import cells
from quell.cli.leave import LINES, question
from quell.cli.screen import Screen
from quell.cli.transcript import Transcript
from quell.events import ApprovalAsked
from tests.cli.command import QUELL, quell
from tests.cli.terminal import Terminal

CHOICES = "n no / v show"
READY = 0.15  # seconds that a person takes for a key at least


def asks(tmp_path: Path, *calls: dict[str, Any] | list[dict[str, Any]], name: str = "script") -> str:
    """A run whose model calls `shell` so, one after the other, and then is done."""
    script = tmp_path / f"{name}.jsonl"
    answers: list[Any] = [
        [{"call": "shell", "arguments": one} for one in (each if isinstance(each, list) else [each])] for each in calls
    ]
    script.write_text("\n".join(map(json.dumps, [*answers, {"say": "Done."}])))
    return f"run --agent assistant --model scripted:{script}"


def terminal(columns: int = 120) -> Terminal:
    found = {"PATH": f"{QUELL.parent}:/usr/bin:/bin", "QUELL_STATE_DIR": os.environ["QUELL_STATE_DIR"]}
    return Terminal(variables=found, columns=columns)


def press(t: Terminal, key: str) -> None:
    time.sleep(READY)
    t.send(key)


def test_a_question_hides_nothing() -> None:
    """What would be taken out of an answer must be seen in what is approved."""
    asked = ApprovalAsked(
        tool="shell", arguments={"command": "echo \x1b]0;\x07\x9d x; rm -rf ~\x9c\r\u202e", "timeout": 5}
    )
    lines, cut = question(asked, 80)
    text = "\n".join("".join(words for _, words in line) for line in lines)
    assert "echo \\x1b]0;\\x07\\x9d x; rm -rf ~\\x9c\\r\\u202e" in text and "timeout  5" in text and not cut


def test_nothing_in_an_argument_looks_like_another() -> None:
    """Every line of a text has a bar before it, on any width; what could be taken for a number is in quotes."""
    arguments = {"path": "x.py", "content": "one\n  path  other.py\nthree", "depth": "5", "empty": "", "n": 5}
    asked = ApprovalAsked(tool="write", arguments=arguments)
    for width in (20, 80):
        rows = ["".join(words for _, words in line) for line in question(asked, width)[0]]
        assert rows[0] == "write asks for leave" and max(map(len, rows)) <= width
        assert "  │ one" in rows and "  │ three" in rows and not any(one.startswith("  path  other") for one in rows)
        assert [one for one in rows if one.split()[:1] == ["path"]] == ["  path     x.py"]
        assert '  depth    "5"' in rows and '  empty    ""' in rows and "  n        5" in rows
    plain = question(asked, 80, fancy=False)[0]
    assert "".join(words for line in plain for _, words in line).isascii()


def test_a_long_question_is_cut_and_all_of_it_can_be_seen() -> None:
    asked = ApprovalAsked(tool="write", arguments={"path": "x", "content": "y" * 5000, "list": list(range(100))})
    lines, cut = question(asked, 80)
    assert cut and len(lines) == LINES + 1 and all(len(words) <= 80 for line in lines for _, words in line)
    whole, cut = question(asked, 80, whole=True)
    text = "".join(words.removeprefix("  │ ") for line in whole for _, words in line)
    assert not cut and "y" * 5000 in text and "99" in text


def test_a_person_says_once_in_this_session_all_or_no(tmp_path: Path) -> None:
    long = "\n".join(f"echo {number}" for number in range(40))
    words = asks(
        tmp_path, {"command": "echo o''ne"}, {"command": "echo t''wo"}, {"command": "echo t''wo"}, {"command": long}
    )
    with terminal() as t:
        modes = t.settings()
        t.line(f"quell {words} hi")
        t.send("y")  # typed ahead: answers nothing
        t.expect("shell asks for leave")
        t.expect(CHOICES)
        press(t, "\x1b[A")  # an arrow ends in the letter of `always`
        press(t, "yes please")  # a paste
        press(t, "y")
        t.expect("allowed once")
        assert "two" not in t.expect(CHOICES)

        time.sleep(READY)
        t.key("C-z")  # suspended: the shell has its terminal as it was
        t.prompt()
        assert t.settings() == modes
        t.line("fg")
        t.expect(CHOICES)
        press(t, "s")
        t.expect("allowed in this session")

        between = t.expect("more lines")
        assert between.count("exit 0") == 2, "the same again is not asked"
        assert "echo 30" not in between
        t.expect(CHOICES)
        press(t, "v")
        assert "echo 39" in t.expect(CHOICES)
        press(t, "n")
        t.expect("refused: the person said no")
        t.expect("Done.")
        t.prompt()
        assert t.settings() == modes and t.left() == []


def test_a_yes_for_good_is_kept_for_other_runs(tmp_path: Path) -> None:
    words = asks(tmp_path, {"command": "echo k''ept"})
    with terminal() as t:
        t.line(f"quell {words} hi")
        t.expect(CHOICES)
        press(t, "a")
        t.expect("always allowed")
        t.prompt()
        again = t.run(f"quell {words} hi")
        assert "kept" in again and CHOICES not in again


def test_what_was_piped_in_is_the_message_and_the_terminal_is_asked(tmp_path: Path) -> None:
    with terminal(columns=30) as t:
        t.line(f"echo piped | quell {asks(tmp_path, [{'command': 'echo a'}, {'command': 'echo b'}])}")
        for _ in range(2):  # several at once: one after the other
            t.expect("y/s/a/n/v?")
            press(t, "y")
            t.expect("allowed once")
        t.expect("Done.")
        t.prompt()


@pytest.mark.parametrize("how", ["C-c", "timeout"])
def test_a_question_goes_when_its_turn_is_stopped(tmp_path: Path, how: str) -> None:
    with terminal() as t:
        modes = t.settings()
        t.line(f"quell {asks(tmp_path, {'command': 'echo no'})} hi {'--timeout 0.3' if how == 'timeout' else ''}")
        t.expect(CHOICES)
        if how == "C-c":
            press(t, "\x03")
        t.expect("withdrawn: stopped")
        t.expect("stopped; confirmed" if how == "C-c" else "stopped: timeout of 0.3 s; confirmed")
        t.prompt()
        assert t.run("echo code $?").strip() == f"code {130 if how == 'C-c' else 124}"
        assert t.settings() == modes and t.left() == []


def test_without_a_terminal_it_is_refused_at_once_with_what_to_do(tmp_path: Path) -> None:
    words = asks(tmp_path, {"command": "echo no"}, {"command": "echo no"}).split()
    ended = quell(*words, "hi", before=["setsid", "--wait"])
    assert ended.returncode == 0
    said = ended.stderr.decode()
    assert (
        said.count("no terminal to ask on; --yes says yes") == 1 and said.count("refused: nobody is there to ask") == 2
    )
    allowed = quell(*words, "--yes", "hi", before=["setsid", "--wait"])
    assert allowed.stderr.decode().count("exit 0") == 2


def test_a_yes_to_all_is_none_to_what_is_denied(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[agents.assistant]\napproval = {shell = "deny"}\n')
    words = asks(tmp_path, {"command": "echo no"}).split()
    ended = quell(*words, "--yes", "--config", config, "hi", before=["setsid", "--wait"])
    assert "refused" in ended.stderr.decode() and "exit 0" not in ended.stderr.decode()


def test_a_list_of_what_waits_hides_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """`quell approve`, and what `quell logs` tells of a call: the same as a question at a terminal."""
    arguments = {"command": "echo hi\x9d; rm -rf ~ #\x9c\x9b8m\x1b]0;x\x07"}
    asked = {"session": "s", "request": 7, "at": 0.0, "tool": "shell", "arguments": arguments}
    Screen().lines(question_lines(asked))
    Screen().lines(Transcript().lines({"kind": "tool.requested", **asked}))
    assert capfd.readouterr().out.count("echo hi\\x9d; rm -rf ~ #\\x9c\\x9b8m\\u001b]0;x\\u0007") == 2


def test_neither_a_name_nor_wide_text_gets_out_of_its_place() -> None:
    """A model chooses the names of arguments too; and a line that does not fit would go on where others begin."""
    arguments = {
        "x\n  path  notes.txt": "1",
        "│": "rm",
        "n" * 100 + " path": "2",
        "text": "宽" * 20 + " path  notes.txt",
        "quotes": ' "' * 24,
        "tabs": "a\t" * 20 + "path",
        "path": "a\u200bb\U000e0041\u3164\ufe0f\xa0c",
    }
    for columns in (20, 60):
        lines = question(ApprovalAsked(tool="write", arguments=arguments), columns, whole=True)[0]
        rows = ["".join(words for _, words in line) for line in lines]
        assert not any("\n" in one or "\t" in one or cells(one) > columns for one in rows)
        assert [one for one in rows if one.split()[:1] == ["path"]] in (["  path"], [])
        assert "a\\u200bb\\U000e0041\\u3164\\ufe0f\\xa0c" in "".join(one.removeprefix("  │ ") for one in rows)
        assert not any(one.startswith("  │  rm") for one in rows)
