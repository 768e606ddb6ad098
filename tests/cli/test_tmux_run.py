"""`quell run` as a person uses it, in a real terminal: what is seen, what Ctrl+C ends, and what is left of it.

After each step the shell is back, the terminal is as it was found, and no process lives; every log is checked.
"""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from quell.testing.llm import ModelServer, Reply, Says
from tests.cli.oracle import wait_for
from tests.cli.tmux import Tmux, running

ROOM = 1.0
"""Seconds for the prompt to be back after Ctrl+C on a noisy machine; on a quiet one it is well below 0.2."""


def script(folder: Path, *answers: Any, name: str = "script") -> str:
    """The name of a model that answers so."""
    file = folder / f"{name}.jsonl"
    file.write_text("\n".join(map(json.dumps, answers)))
    return f"scripted:{file}"


def shell(command: str, **more: Any) -> dict[str, Any]:
    return {"call": "shell", "arguments": {"command": command, **more}}


def served(folder: Path, server: ModelServer) -> Path:
    """A configuration that names it."""
    config = folder / "config.toml"
    config.write_text(f'[models.there]\nbase_url = "{server.url}"\n')
    return config


def test_it_streams_and_is_seen_whole_on_any_width(tmp_path: Path) -> None:
    say = [{"say": "# Head\n- some **bold** words "}, {"wait": 1.0}, {"say": "and `the rest`\n"}]
    model = script(tmp_path, say, name="slow")
    calls = script(tmp_path, [shell("echo one; echo two; exit 3")], {"say": "Done."}, name="calls")
    with Tmux(tmp_path, columns=60, rows=30) as t:
        t.line(f"quell run --model {model} hi")
        t.expect(r"^• some bold words *$", screen=True)
        assert "the rest" not in t.screen and t.modes() == t.as_found
        t.resize(30, 20)  # in the middle of it
        t.expect(r"^• some bold words and the rest$", screen=True)
        t.given_back()
        shown = t.coloured
        assert "\x1b[1;4mHead" in shown or "\x1b[1m\x1b[4mHead" in shown, shown
        assert "**" not in shown and "\x1b[36mthe" in shown

        shown = t.run(f"quell run --model {calls} hi")  # 30 columns
        assert "▸ shell  echo one; echo two;…\n│ one\n│ two\n└ exit 3 · " in shown.replace("ex…", "…"), shown
        assert "\nDone.\n" in shown
        assert all(len(line) <= 30 for line in t.screen.split("\n"))
        t.given_back()


def test_ctrl_c_ends_the_model_the_tool_and_who_escaped_and_twice_forces(tmp_path: Path) -> None:
    """H14, H18"""
    hang = script(tmp_path, [{"say": "Let me "}, {"hang": True}])
    with Tmux(tmp_path) as t:
        t.line(f"quell run --model {hang} hi")
        t.expect("^Let me$")
        t.key("C-c")
        t.prompt(ROOM + 1)
        assert "Let me^C\nstopped; confirmed: nobody was there\n" in t.all, t.all
        t.given_back()

        t.clear()
        t.line("quell run '$ (setsid sleep 6001.5 &) ; setsid -f sleep 6001.5; echo up; sleep 6001.5'")
        t.expect("│ up")
        wait_for(lambda: len(running("6001.5")) >= 3, "the three of them")
        t.key("C-c")
        t.expect(r"└ stopped · .*\n+stopped; confirmed: \d+ processes ended in [0-9.]+ s, nobody is left")
        t.given_back()
        assert running("6001.5") == []
        assert "code 130" in t.run("echo code $?")

        t.clear()
        t.line("quell run \"$ trap '' TERM; echo up; while :; do sleep 6002.5; done\"")
        t.expect("│ up")
        t.key("C-c")
        t.expect("stopping; once more forces", screen=True)
        t.key("C-c")
        t.expect("stopped; confirmed")
        t.given_back()
        assert running("6002.5") == []


def test_it_is_asked_and_each_answer_goes_as_far_as_it_says(tmp_path: Path) -> None:
    """H35"""
    step = [shell("echo same")]
    model = script(tmp_path, step, step, [shell("echo other")], [shell("echo other")], {"say": "Done."})
    ask = f"quell run --agent assistant --model {model} hi"
    with Tmux(tmp_path, columns=100) as t:
        t.line(ask)
        t.expect(r"shell asks for leave\n  │ echo same\n.*\by once / s this session", screen=True)
        t.key("x", "Escape", "Up")  # nothing of that is an answer
        t.pause()
        t.key("v")
        t.expect(r"(?s)shell asks for leave\n  │ echo same\n.*shell asks for leave\n  │ echo same")
        t.key("s")
        t.expect(r"allowed in this session\n.*│ same\n└ exit 0", screen=True)
        t.expect(r"shell asks for leave\n  │ echo other")
        assert t.all.count("│ same") == 2 and t.all.count("  allowed in this session") == 1, "not asked again"
        t.pause()
        t.key("n")
        t.expect(r"  refused\n")
        t.expect(r"(?s)refused: .*shell asks for leave\n  │ echo other")
        t.pause()
        t.key("a")
        t.expect(r"(?s)always allowed.*│ other.*Done\.")
        t.given_back()

        model = script(tmp_path, [shell("echo other"), shell("echo third")], {"say": "Over."}, name="later")
        t.clear()
        t.line(f"quell run --agent assistant --model {model} hi")
        t.expect(r"shell asks for leave\n  │ echo third")
        t.expect(r"│ other")
        assert t.all.count("asks for leave") == 1, "what was always allowed is not asked again"
        t.resize(30, 20)  # while somebody is asked
        t.key("C-c")
        t.expect("withdrawn: stopped: Ctrl.C")
        t.expect("stopped; confirmed")
        t.given_back()
        assert "│ third" not in t.all


def test_ctrl_c_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    """H22: at any moment from our first line on, as a person presses it."""
    with Tmux(tmp_path) as t:
        for moment in (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4):
            t.clear()
            t.line("quell run '$ sleep 6003.5'")
            t.quell()
            time.sleep(moment)
            t.key("C-c")
            t.given_back()
            assert "Traceback" not in t.all
        assert running("6003.5") == []


def test_a_model_that_never_answers_gives_the_prompt_back_at_once_and_its_connection_is_closed(tmp_path: Path) -> None:
    with ModelServer() as server, Tmux(tmp_path) as t:
        server.otherwise(Reply().hang())
        took = ctrl_c_against(t, served(tmp_path, server), server, 2)
        assert min(took) < 0.2 or max(took) < ROOM, took
        assert server.connections == 0

        server.will(Says("one two three").hang(after=2))
        t.clear()
        t.line(f"quell run --config {tmp_path}/config.toml --model there:x hi")
        t.expect("^one two")
        t.key("C-c")
        t.prompt(ROOM)
        assert len(server.wait_closed()) == 3
        t.given_back()


def ctrl_c_against(t: Tmux, config: Path, server: ModelServer, times: int) -> list[float]:
    """How long the prompt took to be back, each time."""
    took = []
    for number in range(len(server.requests) + 1, len(server.requests) + 1 + times):
        t.clear()
        t.line(f"quell run --config {config} --model there:x hi")
        server.wait_request(number, bound=20)
        t.key("C-c")
        began = time.monotonic()
        t.prompt()
        took.append(time.monotonic() - began)
        server.wait_closed()
        t.given_back()
    return took


@pytest.mark.soak
def test_ctrl_c_at_many_moments_leaves_nothing(tmp_path: Path) -> None:
    """H22"""
    with Tmux(tmp_path) as t:
        for moment in range(0, 900, 15):
            t.clear()
            t.line("quell run '$ sleep 6004.5'")
            t.quell()
            time.sleep(moment / 1000)
            t.key("C-c")
            t.given_back()
            assert "Traceback" not in t.all
        assert running("6004.5") == []


@pytest.mark.soak
def test_the_prompt_is_back_within_200_ms_of_ctrl_c(tmp_path: Path) -> None:
    with ModelServer() as server, Tmux(tmp_path) as t:
        server.otherwise(Reply().hang())
        took = sorted(ctrl_c_against(t, served(tmp_path, server), server, 10))
        assert took[len(took) // 2] < 0.2, took
