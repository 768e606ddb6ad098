"""`quell chat` as a person uses it, in a real terminal: the line, what happens above it, and what Ctrl+C ends.

After each conversation the shell is back, the terminal is as it was found, and no process lives; every log is checked.
"""

import json
import os
import re
import signal
import stat
import time
from pathlib import Path

import pytest

from quell.cli import places
from quell.testing.llm import ModelServer, Reply
from tests.cli import oracle
from tests.cli.oracle import wait_for
from tests.cli.test_tmux_run import ROOM, script, served, shell
from tests.cli.tmux import Tmux, running

FLAGS = {
    "chat --agent": "test_what_is_named_on_the_command_line_is_what_answers",
    "chat --model": "test_what_is_named_on_the_command_line_is_what_answers",
    "chat --strategy": "test_what_is_named_on_the_command_line_is_what_answers",
    "chat --cwd": "test_what_is_named_on_the_command_line_is_what_answers",
    "chat --yes": "test_what_is_named_on_the_command_line_is_what_answers",
    "chat --resume": "test_what_is_named_on_the_command_line_is_what_answers",
    "chat --max-steps": "test_what_is_named_on_the_command_line_is_what_answers",
    "chat --state": "test_what_is_named_on_the_command_line_is_what_answers",
    "chat --config": "test_what_is_named_on_the_command_line_is_what_answers",
    "chat --title": "test_what_is_named_on_the_command_line_is_what_answers",
}


def begin(t: Tmux, words: str = "", before: str = "") -> None:
    """Start a chat and wait for its line."""
    t.clear()
    t.line(f"{before}quell chat {words}")
    t.expect(r"/help\s+lists\s+what\s+else\s+there\s+is")
    t.expect("^>", screen=True)


def leave(t: Tmux) -> None:
    t.expect("^>$", screen=True)  # Ctrl+D leaves where nothing is typed
    t.key("C-d")
    t.expect(r"goes\s+on\s+with\s+it")
    t.given_back()


def line(t: Tmux, text: str) -> None:
    """What stands on the line, as it is typed."""
    t.expect(rf"^{re.escape(text)}$", screen=True)


def interrupted(t: Tmux) -> None:
    """Ctrl+C while it starts, and out of it if it has started by then."""
    t.key("C-c")
    if t.expect(r"\nready>$|/help lists")[0] == "/help lists":
        t.expect("^>", screen=True)
        t.key("C-d")


# -- a conversation


def test_the_line_stays_while_things_happen_above_it(tmp_path: Path) -> None:
    slow = [{"say": "# Head\none **bold** "}, {"wait": 1.2}, {"say": "two\nlast `line`\n"}]
    model = script(tmp_path, slow, {"say": "Second answer."}, {"say": "Third answer."})
    with Tmux(tmp_path, columns=70, rows=30) as t:
        begin(t, f"--model {model} first question")
        t.expect(r"^one bold$", screen=True)
        assert "Third" not in t.screen and "last line" not in t.screen, "it streams"
        t.write("half typed")
        line(t, "> half typed")
        t.resize(50, 30)  # in the middle of both
        t.expect(r"^one bold two\nlast line$", screen=True)
        line(t, "> half typed")
        assert "\x1b[1mbold" in t.coloured and "**" not in t.screen
        column, row = t.cursor
        assert t.screen.split("\n")[row] == "> half typed" and column == len("> half typed")
        t.key("C-c")  # nothing runs: what is typed goes
        t.expect_not("half typed")
        t.key("C-c")
        t.expect("nothing runs; Ctrl.D leaves")
        t.line("second question")
        t.expect(r"^> second question\nSecond answer\.", screen=True)
        t.write("two")
        t.key("M-Enter")
        t.write("lines")
        t.key("Enter")
        t.expect(r"^> two\nlines\nThird answer\.", screen=True)
        t.key("Up")
        line(t, "> two")
        t.key("Up", "Up")  # over its two lines
        wait_for(lambda: t.screen.count("> second question") == 2, "it is brought back")
        t.key("C-c")
        wait_for(lambda: t.screen.count("> second question") == 1, "it is gone again")
        t.write("/rec")
        t.key("Tab")
        t.expect("^> /receipt$", screen=True)
        t.key("Enter")
        t.expect("nothing was stopped yet")
        assert t.all.count("first question") == 2, "on the command line and above its answer"
        leave(t)


def test_what_is_typed_while_a_turn_runs_waits_and_a_stop_parks_it(tmp_path: Path) -> None:
    """H19"""
    with Tmux(tmp_path, columns=90, rows=35) as t:
        begin(t)
        t.line("$ echo up; sleep 6011.5")
        t.expect("│ up")
        t.line("later one")
        t.line("later two")
        t.expect(r"^  waits: later one\n  waits: later two\n>", screen=True)
        t.expect(r"running \d+ s · Ctrl\+C stops · 2 in the queue", screen=True)
        t.line("/queue")
        t.expect(r"^ +\d+  waits   later one\n +\d+  waits   later two")
        t.line("/ps")
        t.expect(r"^ +\d+  turn 1 +\d+ s  echo up; sleep 6011.5")
        t.key("C-c")
        t.expect(r"stopped; confirmed: \d process(es)? ended")
        t.expect("2 messages are parked; /queue lists them, /queue release sends them")
        assert running("6011.5") == [] and "You said: later" not in t.all
        number = t.expect(r"^ +(\d+)  waits   later one")[1]
        t.line(f"/queue discard {number}")
        t.expect("discarded 1")
        t.line("/queue release")
        t.expect("released 1")
        t.expect(r"^> later two\nYou said: later two")
        t.line("/receipt")
        t.expect(r"^confirmed: .*\n( +\d+ .*\n)+(.*\n)* +signalled")
        assert "You said: later one" not in t.all
        for wrong, sentence in {
            "/queue discard 99999": "message 99999 of session",
            "/queue x": "/queue takes release or discard, not x",
            "/queue release x": "a message is named by its number, not x",
            "/stop x": "/stop takes turn, session and force, not x",
            "/stop": "nothing runs",
            "/stpo": r"there is no /stpo \(did you mean /stop\?\)",
            "/model nosuch:x": "there is no model 'nosuch'",
            "/agent nosuch": "there is no agent 'nosuch'",
        }.items():
            t.line(wrong)
            t.expect(rf"^> {re.escape(wrong)}\n.*{sentence}")
        t.line("/agent scripted")
        t.expect(r"^scripted \(scripted\); there are assistant, scripted")
        t.line("/model scripted:no.jsonl")
        t.expect(r"^scripted:no\.jsonl$")
        t.line("/model scripted")
        t.line("/export talk.md")
        t.expect(rf"^written to {t.home}/talk\.md")
        t.line("/export talk.md")
        t.expect(r"talk\.md: File exists")
        t.line("/export talk.jsonl")
        t.expect(r"written to .*talk\.jsonl")
        t.line("/help")
        t.expect(r"^  /quit     leave, as Ctrl\+D does")
        t.line("$ sleep 6012.5 &")
        t.expect("1 in the background", screen=True)
        t.expect_not("running")
        t.key("C-c")
        t.expect("no turn runs; /stop session ends the background too")
        t.line("$ trap '' TERM; while :; do sleep 6012.5; done &")
        t.expect("2 in the background", screen=True)
        t.expect_not("running")
        t.line("/stop session")
        t.expect(r"> /stop session\nstopping; Ctrl\+C once more forces\n(.*\n)*> *$")
        t.key("C-c")
        began = time.monotonic()
        wait_for(lambda: running("6012.5") == [], "the end of the background")
        assert time.monotonic() - began < 2, "a force reaches as far as what it forces"
        t.expect_not("in the background .")
        t.line("/quit")
        t.given_back()
        assert "later two" in (t.home / "talk.md").read_text()
        assert json.loads((t.home / "talk.jsonl").read_text().splitlines()[0])["kind"]


def test_ctrl_c_ends_the_model_the_tool_the_question_and_twice_forces(tmp_path: Path) -> None:
    """H14, H18, H35"""
    with ModelServer() as server, Tmux(tmp_path, columns=90, rows=35) as t:
        server.otherwise(Reply().hang())
        begin(t, f"--config {served(tmp_path, server)} --model there:x --yes")
        took = []
        for number in (1, 2):
            t.line(f"number {number}")
            server.wait_request(number, bound=20)
            t.key("C-c")
            began = time.monotonic()
            wait_for(lambda: t.all.count("stopped; confirmed") == number, "the receipt")  # noqa: B023  called here
            took.append(time.monotonic() - began)
        assert min(took) < 0.2 or max(took) < ROOM, took
        assert len(server.wait_closed()) == 2 and server.connections == 0
        t.line("/agent scripted")
        t.line("/model scripted")
        t.line("$ (setsid sleep 6013.5 &); setsid -f sleep 6013.5; echo up; sleep 6013.5")
        t.expect("│ up")
        wait_for(lambda: len(running("6013.5")) >= 3, "the three of them")
        t.resize(60, 25)
        t.key("C-c")
        t.expect(r"stopped; confirmed: [3-9] processes ended")
        assert running("6013.5") == []
        t.line("$ trap '' TERM; echo stubborn; while :; do sleep 6014.5; done")
        t.expect("│ stubborn")
        t.key("C-c")
        t.expect("stopping; Ctrl.C once more forces$")
        t.pause()
        assert running("6014.5")
        t.key("C-c")
        began = time.monotonic()
        t.expect("stopping by force")
        wait_for(lambda: running("6014.5") == [], "the end of it")
        assert time.monotonic() - began < 2, "without the grace of the first"
        t.expect(r"(?s)stubborn.*stopped; confirmed")
        t.line("still here")
        t.expect("You said: still here")
        assert t.all.count("stopped; confirmed") == 4, "what was forced has one receipt"
        leave(t)


def test_a_question_is_answered_by_a_line_that_was_meant_for_it(tmp_path: Path) -> None:
    one, other = shell("echo one"), shell("echo other")
    model = script(
        tmp_path, [one], {"say": "First."}, [one, other], {"say": "Second."}, [other], {"say": "Third."}, [other]
    )
    with Tmux(tmp_path, columns=90, rows=35) as t:
        begin(t, f"--agent assistant --model {model}")
        t.write("go")
        t.key("Enter")
        t.write("y")  # begun before the question is there
        t.expect(
            r"shell asks for leave\n  │ echo one\n.*y once / s this session / a always / n no / v show, and Enter\n> y$"
        )
        t.pause()
        t.pause()
        t.key("Enter")
        t.expect("that was begun before the question was there")
        t.line("tell me more")  # no answer either
        t.expect("waits: tell me more", screen=True)
        assert "│ one" not in t.all
        t.line("v")
        t.resize(40, 35)
        t.expect(r"^y/s/a/n/v\? and Enter$", screen=True)
        t.resize(90, 35)
        t.line("s")
        t.expect(r"(?s)allowed in this session.*│ one.*First\.")
        t.expect(r"shell asks for leave\n  │ echo other")
        wait_for(lambda: t.all.count("│ one") == 2, "what is not asked again")
        t.pause()
        t.pause()
        t.line("no")
        t.expect(r"(?s)  refused\n.*refused: .*Second\.")
        t.line("again")
        t.expect(r"(?s)> again.*shell asks for leave")
        t.pause()
        t.pause()
        t.line("a")
        t.expect(r"(?s)always allowed.*│ other.*Third\.")
        t.line("and again")
        t.expect(r"(?s)> and again.*│ other")
        assert t.all.count("> and again") == 1
        leave(t)
        history = (tmp_path / "state" / "quell" / "chat-history").read_text().splitlines()
        assert '"go"' in history and '"s"' not in history and '"y"' not in history

        begin(t, f"--agent assistant --model {script(tmp_path, [one], name='withdrawn')} hi")
        t.expect(r"shell asks for leave")
        t.key("C-c")
        t.expect(r"withdrawn: stopped: Ctrl\+C")
        t.expect("stopped; confirmed: nobody was there")
        t.expect_not("this session")
        t.key("Up")
        line(t, "> and again")
        t.key("C-c")
        t.expect_not("> and again")
        leave(t)


def test_what_is_said_can_do_nothing_to_the_terminal(tmp_path: Path) -> None:
    bad = "\x1b[2J\x1b[?1049h\x1b]0;title\x07\x1b[6n\x1b[?25l\x1b[31m\x9b2Jred\x07\u202e"
    wide = "漢字" * 200 + "\ttab " + "e\u0301" * 30
    model = script(
        tmp_path,
        [
            {"say": f"before {bad}after\n"},
            {"say": wide},
            {"wait": 0.5},
            {"say": "." + "\n"},
            shell(r"printf '\033[2J\033[?1049hx\n'"),
        ],
        [{"say": "x" * 100_000}, {"say": " end"}, {"hang": True}],
    )
    with Tmux(tmp_path, columns=44, rows=25) as t:
        begin(t, f"--model {model}")
        t.line("go")
        t.expect(r"^before redafter|^before red.*after")
        t.expect(r"x+ end", bound=30)
        t.write("here")
        line(t, "> here")
        assert t.ask("#{alternate_on} #{pane_title}").split()[0] == "0" and "title" not in t.ask("#{pane_title}")
        assert t.all.replace("\n", "").count("漢字" * 200) == 1, "all of a long line is seen, once"
        t.key("C-c")
        t.expect("stopped; confirmed")
        t.key("C-c")
        leave(t)


# -- how it ends


def changed(change: str) -> str:
    """A chat in which something is wrong."""
    program = f"import sys, time, quell.cli.talk, quell.models.scripted; {change}; from quell.cli import script"
    return f'python -c \'{program}; sys.argv = ["quell", "chat", "hi"]; script()\''


def test_whatever_ends_it_the_terminal_is_given_back(tmp_path: Path) -> None:
    with Tmux(tmp_path) as t:
        begin(t, "'$ (setsid sleep 6015.5 &); echo up; sleep 6015.5'")
        t.expect("│ up")
        t.write("half a line")
        t.expect("^> half a line$")
        t.key("C-z")
        t.prompt()
        assert t.modes() == t.as_found
        t.line("fg")
        t.expect(r"running \d+ s", screen=True)
        t.expect(r"fg\nquell chat.*\n> half a line$")
        t.key("C-u")
        t.expect_not("half a line")
        t.key("C-d")  # with a turn under way
        t.expect(r"(?s)ending what runs; Ctrl\+C forces.*confirmed.*goes on with it")
        t.given_back()
        assert running("6015.5") == []

        begin(t, "\"$ trap '' TERM; while :; do sleep 6015.5; done &\"")
        t.expect("1 in the background", screen=True)
        t.expect_not("running")
        t.key("C-d")
        t.expect("ending what runs")
        began = time.monotonic()
        t.key("C-c")
        t.given_back()
        assert running("6015.5") == [] and time.monotonic() - began < 2
        assert "code 0" in t.run("echo code $?")

        begin(t, "'$ (setsid sleep 6015.5 &); echo up; sleep 6015.5'")
        t.expect("│ up")
        os.kill(t.quell(), signal.SIGTSTP)
        t.prompt()
        t.line("fg")
        t.expect(r"running \d+ s", screen=True)
        os.kill(t.quell(), signal.SIGTERM)
        t.given_back()
        assert running("6015.5") == [] and "code 143" in t.run("echo code $?")

        t.clear()
        t.line(changed("quell.cli.talk.Talk._toolbar = lambda self: 1 / 0"))
        t.expect("^quell: unexpected ZeroDivisionError: division by zero")
        t.given_back()
        assert "Traceback" not in t.all and "code 125" in t.run("echo code $?")

        begin(t, "'$ (setsid sleep 6015.5 &); echo up; sleep 6015.5'")
        t.expect("│ up")
        t.close_window()
        assert t.gone()
        wait_for(lambda: running("6015.5") == [], "the end of what ran")


def test_ctrl_c_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    """H22"""
    with Tmux(tmp_path) as t:
        for moment in (0.0, 0.1, 0.2, 0.3):
            t.clear()
            t.line("quell chat")
            t.quell()
            time.sleep(moment)
            interrupted(t)
            t.given_back()
            assert "Traceback" not in t.all


# -- where it cannot be, and how it looks elsewhere


def test_it_is_plain_where_that_is_wanted_and_refuses_where_it_cannot_be(tmp_path: Path) -> None:
    secret = "sk-canary-0123456789"
    with Tmux(tmp_path, variables={"MY_API_KEY": secret}) as t:
        assert "quell: quell chat needs a terminal that can be drawn on, and TERM is 'dumb'" in t.run(
            "TERM=dumb quell chat"
        )
        assert "quell: quell chat needs a terminal; quell run" in t.run("quell chat </dev/null")
        begin(t, before="LC_ALL=C NO_COLOR=1 ")
        t.line(f"$ echo {secret[:10]} # {secret} größe")
        t.expect(r"^\| sk-canary-\n` exit 0 - ")
        t.key("C-r")
        t.write("canary")
        t.expect("I-search backward: canary$", screen=True)
        t.key("C-c")
        t.expect_not("I-search")
        t.key("C-c")
        t.expect_not(f"# {secret}")
        assert not re.search(r"\x1b\[(3[0-7]|9[0-7]|4[0-7])", t.coloured)
        pid = t.quell()
        spent = sum(map(int, oracle._stat(pid)[11:13]))
        time.sleep(0.5)
        assert sum(map(int, oracle._stat(pid)[11:13])) - spent <= 2, "of 50 ticks in half a second: it is idle"
        leave(t)
        history = tmp_path / "state" / "quell" / "chat-history"
        assert stat.S_IMODE(history.stat().st_mode) == 0o600
        assert secret not in history.read_text() and "gr\\u00f6" in history.read_text()


def test_what_is_named_on_the_command_line_is_what_answers(tmp_path: Path) -> None:
    """H53: chat --agent --model --strategy --cwd --yes --resume --max-steps --state --config --title."""
    model = script(tmp_path, [shell("echo at $(pwd)")], {"say": "Over."})
    config = tmp_path / "mine.toml"
    config.write_text('[agents.mine]\nmodel = "nosuch:x"\napproval = {"*" = "ask"}\n')
    own = tmp_path / "own"
    with Tmux(tmp_path, columns=150) as t:
        begin(
            t,
            f"--agent mine --model {model} --strategy react --cwd /usr --yes --max-steps 1 --state {own}"
            f" --config {config} --title Named hello there",
        )
        t.expect(rf"session \w+, mine \({re.escape(model)}\) in /usr$")
        t.expect(r"(?s)Action: shell.*│ at /usr.*the turn met a limit: steps: 1")
        assert "asks for leave" not in t.all
        leave(t)
        assert [one.title for one in places.sessions(str(own))] == ["Named"]
        assert (own / "chat-history").exists() is False, "nothing was typed"

        begin(t, f"--resume Named --state {own} --config {config} --model scripted")
        t.expect(r"^> hello there$")
        t.line("more")
        t.expect("You said: more")
        leave(t)
        assert len(places.sessions(str(own))) == 1


@pytest.mark.soak
def test_ctrl_c_at_many_moments_leaves_nothing(tmp_path: Path) -> None:
    """H22"""
    with Tmux(tmp_path) as t:
        for moment in range(0, 900, 15):
            t.clear()
            t.line("quell chat '$ sleep 6016.5'")
            t.quell()
            time.sleep(moment / 1000)
            interrupted(t)
            t.given_back()
            assert "Traceback" not in t.all
        assert running("6016.5") == []


@pytest.mark.soak
def test_ctrl_c_is_heard_although_a_plugin_blocks_the_loop(tmp_path: Path) -> None:
    with Tmux(tmp_path) as t:
        t.clear()
        t.line(changed("quell.models.scripted._plain = lambda ask: time.sleep(600)"))
        t.expect("/help lists")
        t.pause()
        t.key("C-c")  # the loop is blocked, and hears of no key
        t.expect("a plugin blocks quell; what ran was ended")
        t.key("C-c")
        t.expect("quell ends while a plugin blocks it")
        t.given_back()
        assert t.run("echo code $?") == "code 1", "nothing that the terminal said is left for the shell"
