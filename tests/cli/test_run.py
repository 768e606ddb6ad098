"""`quell run` as a person has it: one turn, on a pipe and on a terminal, and nothing of it left."""

import contextlib
import json
import os
import re
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quell.cli import message as told
from quell.cli import places
from tests.cli import oracle
from tests.cli.command import BOUND, QUELL, Running, quell
from tests.cli.oracle import Held, wait_for
from tests.cli.serving import Served
from tests.cli.terminal import Terminal

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)


def script(tmp_path: Path, *answers: Any, name: str = "script") -> str:
    """The name of a model that answers so."""
    file = tmp_path / f"{name}.jsonl"
    file.write_text("\n".join(map(json.dumps, answers)))
    return f"scripted:{file}"


def said(*words: str | Path, **how: Any) -> tuple[int, str, str]:
    """The exit code of `quell run`, and what is on stdout and stderr."""
    ended = quell("run", *words, **how)
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


def events(*words: str | Path, **how: Any) -> list[dict[str, Any]]:
    _, out, _ = said("--json", *words, **how)
    return [json.loads(line) for line in out.splitlines()]


def started(*words: str, held: Held | None = None) -> Running:
    running = Running(
        [str(QUELL), "run", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[held.write] if held else [],
    )
    if held:
        held.let_go()
    return running


def together(*commands: list[str]) -> list[tuple[int, str, str]]:
    """As `said`, for several at once."""
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(started(*words)) for words in commands]
        told = [one.communicate(timeout=BOUND) for one in running]
        return [(one.returncode, out.decode(), err.decode()) for one, (out, err) in zip(running, told, strict=True)]


def until(running: Running, words: str) -> str:
    """What it says on stderr, up to these words."""
    assert running.stderr is not None
    shown, deadline = b"", time.monotonic() + BOUND
    while words.encode() not in shown:
        assert select.select([running.stderr], [], [], deadline - time.monotonic())[0], shown
        piece = os.read(running.stderr.fileno(), 65536)
        assert piece, shown
        shown += piece
    return shown.decode()


def holds_signals(pid: int) -> bool:
    """Whether SIGINT waits there: before that it is Python's own start, which knows nothing of us."""
    blocked = Path(f"/proc/{pid}/status").read_text().partition("SigBlk:")[2].split()
    return bool(blocked) and bool(int(blocked[0], 16) & 1 << signal.SIGINT - 1)


def terminal(**variables: str) -> Terminal:
    found = {"PATH": f"{QUELL.parent}:/usr/bin:/bin", "QUELL_STATE_DIR": os.environ["QUELL_STATE_DIR"], **variables}
    return Terminal(variables=found, columns=100)


@pytest.fixture
def mute() -> Iterator[tuple[str, socket.socket]]:
    """The address of a server that takes a request and never answers, and its socket."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(BOUND)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1", listening


# -- what is said, and where


def test_it_works_offline_at_once_with_the_answer_on_stdout_and_all_else_on_stderr(tmp_path: Path) -> None:
    plain, shell = together(["say", "**hello**"], ["$ echo from $(pwd); exit 3", "--cwd", str(tmp_path)])
    code, out, err = plain
    assert (code, out) == (0, "You said: say **hello**\n")
    assert "tokens in" in err and "session" in err and "offline" not in err
    code, out, err = shell
    assert code == 0 and f"│ from {tmp_path}\n" in err and "└ exit 3 · " in err
    assert "▸ shell  echo from $(pwd); exit 3\n" in err and "▸" not in out


def test_it_loads_nothing_that_it_does_not_need() -> None:
    """What typer, SDKs and the line of a conversation would load takes longer than the run."""
    command = [sys.executable, "-X", "importtime", str(QUELL), "run", "--max-steps", "3", "hi"]
    ended = subprocess.run(command, capture_output=True, timeout=BOUND, stdin=subprocess.DEVNULL)
    loaded = {line.rpartition("|")[2].split(".")[0].strip() for line in ended.stderr.decode().splitlines()}
    assert ended.returncode == 0 and "msgspec" in loaded
    assert not loaded & {"pydantic", "prompt_toolkit", "openai", "anthropic", "httpx", "starlette", "uvicorn"}


def test_what_is_piped_in_is_the_message_or_comes_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said("look", "at:", given=b"a diff\n")[1] == "You said: look at:\n\na diff\n"
    monkeypatch.setattr(told, "read_input", lambda go_on: "from a pipe\n")
    monkeypatch.setattr(told, "is_piped", lambda: True)
    assert told.message(["-"], lambda: None) == told.message([" "], lambda: None) == "from a pipe\n"
    monkeypatch.setattr(told, "is_piped", lambda: False)
    assert told.message(["a", "b"], lambda: None) == "a b"


def test_what_is_piped_in_without_end_is_not_kept() -> None:
    with Running(["yes"], stdout=subprocess.PIPE) as endless:
        running = subprocess.run([QUELL, "run", "-"], stdin=endless.stdout, capture_output=True, timeout=BOUND)
    assert running.returncode == 125 and running.stderr.startswith(b"quell: standard input has more than 10 MB")


def _to_do(words: list[str]) -> list[str]:
    return words if words == ["-"] else [*words, "hi"]


def test_wrong_words_are_one_sentence(tmp_path: Path) -> None:
    text = tmp_path / "text.png"
    text.write_text("no picture")
    wrong = {
        "did you mean assistant?": ["--agent", "asistant"],
        "the agent assistant has no model: name one with --model": ["--agent", "assistant"],
        "there is no model 'nobody'": ["--model", "nobody:x"],
        "did you mean tools?": ["--strategy", "tols"],
        "gone": ["--cwd", str(tmp_path / "gone")],
        "there is no session 'nosuch'": ["--resume", "nosuch"],
        "--timeout takes a number of seconds": ["--timeout", "0"],
        "no picture": ["--image", str(text)],
        "the receipt cannot be written": ["--receipt", str(tmp_path / "gone" / "x")],
        "--state is empty": ["--state", ""],
        "name another with --state": ["--state", "/dev/null/x"],
        "there is nothing to do": ["-"],
    }
    for sentence, (code, out, err) in zip(wrong, together(*(_to_do(words) for words in wrong.values())), strict=True):
        assert (code, out) == (125, "") and sentence in err and err.count("\n") == 1, err


def test_json_is_every_event_of_the_turn_and_of_its_sub_agents_and_nothing_else() -> None:
    found = events("@scripted $ echo below")
    kinds = [one["kind"] for one in found]
    assert kinds[0] == "message.user" and kinds[-1] == "turn.ended"
    assert [one["seq"] for one in found] == sorted({one["seq"] for one in found})
    assert len({one["session"] for one in found}) == 2
    assert {"session.opened", "tool.output", "process.ended", "message.done"} <= set(kinds)


def test_calls_are_shown_tidily_and_what_a_tool_says_can_do_nothing_to_the_terminal(tmp_path: Path) -> None:
    model = script(
        tmp_path,
        [
            {"think": "Let me see."},
            {"notice": "trying again in 1 s"},
            {"say": "Two \x1b[2Jthings.\n"},
            {"call": "shell", "arguments": {"command": "seq 1 100; printf '\\033]0;x\\007\\033[31mred'"}},
            {"call": "shell", "arguments": {"command": "echo other; exit 1"}},
            {"call": "nothing", "arguments": {"a": "\x1b[2J"}},
        ],
        [{"say": "Done."}, {"usage": {"input": 1234, "output": 5, "cost": 0.5, "cached": 1000}}],
    )
    code, out, err = said("--model", model, "hi")
    assert (code, out) == (0, "Two things.\nDone.\n")
    assert "\x1b" not in err and "\x07" not in err
    assert "Let me see.\ntrying again in 1 s\n" in err
    assert "1 ▸ shell  seq 1 100" in err and "2 ▸ shell  echo other" in err
    assert "1 │ 1\n" in err and "1 │ … 81 lines left out …\n" in err and "1 │ red\n1 └ exit 0 · " in err
    assert "2 │ other\n" in err and "2 └ exit 1 · " in err and "3 └ refused: " in err
    assert "1,234 tokens in (1,000 cached), 5 out · $0.5000" in err or "$0.5000" in err


def test_progress_is_one_line_and_what_is_not_shown_is_told_while_it_is_waited_for() -> None:
    steps = 'for i in $(seq 1 24); do printf "\\rstep $i"; sleep 0.1; done; echo; seq 1 40; sleep 2.2'
    _, _, err = said(f"$ {steps}")
    assert "│ step 24\n│ 1\n" in err and err.count("step") == 3  # the call has two
    assert "│ 15\n│ … 21 lines left out …\n│ 37\n" in err
    with terminal() as t:
        t.line(f"quell run '$ {steps}'")
        t.expect(r"exit 0")
        t.prompt()
        assert re.search(rb"shell runs \xe2\x80\xa6 \d s \xc2\xb7 step \d+", t.raw)
        assert re.search(rb"shell runs \xe2\x80\xa6 \d s \xc2\xb7 \xe2\x80\xa6 40", t.raw)


def test_the_width_is_that_of_the_terminal_that_is_written_to(tmp_path: Path) -> None:
    model = script(tmp_path, [{"call": "shell", "arguments": {"command": "echo " + "x" * 200}}], {"say": "word " * 40})
    with terminal() as t:
        shown = t.run(f"quell run --model {model} hi | cat")
        assert f"│ {'x' * 96}…\n" in shown.replace("\r", "") and "word " * 39 in shown


def test_without_utf_8_or_colours_it_is_plain(tmp_path: Path) -> None:
    model = script(tmp_path, [{"call": "shell", "arguments": {"command": "echo x"}}], {"say": "- **a**"})
    plain = {**os.environ, "LC_ALL": "C"}
    _, out, err = said("--model", model, "hi", env=plain)
    assert out == "- **a**\n" and "> shell  echo x\n| x\n` exit 0 - " in err and err.isascii()
    with terminal(NO_COLOR="1") as t:
        shown = t.run(f"quell run --model {model} hi")
        assert "- **a**" in shown and b"\x1b[1m" not in t.raw


# -- flags


def test_an_agent_and_a_model_that_are_named_answer(tmp_path: Path) -> None:
    model = script(tmp_path, [{"call": "shell", "arguments": {"command": "echo x"}}], {"say": "played"})
    config = tmp_path / "config.toml"
    config.write_text(f'[agents.mine]\nmodel = "{model}"\napproval = {{"*" = "deny"}}\n')
    free, named = together(["--model", model, "hi"], ["--agent", "mine", "--config", str(config), "hi"])
    assert free[1] == "played\n" and "exit 0" in free[2], "the offline agent has a free hand"
    assert named[1] == "played\n" and "refused" in named[2]


def test_a_strategy_limits_a_title_and_pictures_reach_the_turn(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(PNG)
    image = str(tmp_path / "dot.png")
    first, (code, _, err) = together(
        ["--json", "--strategy", "react", "$ echo x", "--title", "My run", "--image", image],
        ["--max-steps", "1", "$ echo x"],
    )
    react = [json.loads(line) for line in first[1].splitlines()]
    assert any(one["kind"] == "model.answered" and "Action: shell" in one["text"] for one in react)
    assert [one["media"] for one in react[0]["images"]] == ["image/png"]
    assert places.find("My run").id == react[0]["session"]
    assert code == 4 and "the turn met a limit: steps: 1" in err


def test_a_session_is_resumed_where_it_is(tmp_path: Path) -> None:
    together(["first", "--title", "one"], ["--state", str(tmp_path / "own"), "elsewhere"])
    first = places.find("one")
    assert first.folder == os.path.join(os.environ["QUELL_STATE_DIR"], "runs", "1")
    other = places.sessions(str(tmp_path / "own"))[0]
    model = script(tmp_path, {"say": "another model"})
    here, there = together(
        ["--json", "--resume", first.id[:5], "--model", model, "second"],
        ["--json", "--resume", other.id, "--state", str(tmp_path / "own"), "x"],
    )
    found = [json.loads(line) for line in here[1].splitlines()]
    assert (found[0]["session"], found[-1]["turn"]) == (first.id, 2)
    assert any(one["kind"] == "message.done" and one["text"] == "another model" for one in found)
    assert json.loads(there[1].splitlines()[-1])["turn"] == 2


def test_one_that_a_server_has_is_not_resumed_here(state_dir: Path) -> None:
    with Served(state_dir / "runtime") as server:
        session = server.session("hello")
        its, another = together(["--resume", session, "hi"], ["--state", str(server.folder), "hi"])
        assert its[0] == 125 and f"quell attach {session}" in its[2] and f"quell send {session}" in its[2]
        assert another[0] == 125 and "is served" in another[2]


def test_several_run_at_once_each_in_a_folder_of_its_own(state_dir: Path) -> None:
    """H51"""
    with started("$ echo up; sleep 60", "--title", "busy") as first, started("$ echo up; sleep 60") as second:
        until(first, "│ up")
        until(second, "│ up")
        code, _, err = said("--resume", "busy", "hi")
        assert code == 125 and f"in use by process {first.pid}" in err
        assert sorted(path.name for path in (state_dir / "runs").iterdir()) == ["1", "2"]
        assert len(places.folders()) == 2
        for one in (first, second):
            one.send_signal(signal.SIGINT)
        assert (first.wait(BOUND), second.wait(BOUND)) == (130, 130)
    assert said("third")[0] == 0 and not (state_dir / "runs" / "3").exists()


@pytest.mark.parametrize("damage", ["an event", "the file"])
def test_a_log_that_cannot_be_read_is_named_and_left_and_the_run_goes_on_elsewhere(
    state_dir: Path, damage: str
) -> None:
    assert said("first", "--title", "lost")[0] == 0
    log = state_dir / "runs" / "1" / "log.sqlite"
    if damage == "an event":
        with contextlib.closing(sqlite3.connect(log)) as connection, connection:
            connection.execute("UPDATE events SET body = x'7b7d' WHERE seq = (SELECT max(seq) FROM events)")
    else:
        log.write_bytes(b"no database" * 100)
    before = log.read_bytes()
    code, out, err = said("second")
    assert (code, out) == (0, "You said: second\n")
    assert err.count(str(log)) == 1 and "goes on in another folder" in err and "unexpected" not in err
    assert (state_dir / "runs" / "2").exists() and not (state_dir / "runs" / "3").exists()
    named = said("--state", log.parent, "third")
    assert named[0] == 125 and str(log) in named[2] and "unexpected" not in named[2]
    if damage == "the file":
        assert log.read_bytes() == before
    log.unlink()  # every log that is left is checked


def test_a_session_whose_agent_and_model_are_gone_is_resumed_with_others(tmp_path: Path) -> None:
    config = tmp_path / "gone.toml"
    config.write_text('[models.gone]\nbase_url = "http://127.0.0.1:1/v1"\n[agents.its]\nmodel = "gone:x"\n')
    assert said("--config", config, "--agent", "its", "--title", "orphan", "hi")[0] == 1
    assert said("--config", config, "--model", "gone:y", "--title", "bare", "hi")[0] == 1
    for words, sentence in (
        (["--resume", "orphan", "hi"], "there is no agent 'its'.*--agent or --model says who goes on"),
        (["--resume", "orphan", "--model", "scripted", "hi"], "there is no agent 'its'.*; --agent says who goes on"),
        (["--resume", "bare", "hi"], "there is no model 'gone'.*--agent or --model says who goes on"),
    ):
        code, _, err = said(*words)
        assert code == 125 and re.search(sentence, err), err
    assert said("--resume", "orphan", "--agent", "scripted", "again")[:2] == (0, "You said: again\n")
    assert said("--resume", "bare", "--model", "scripted", "again")[:2] == (0, "You said: again\n")
    assert said("--resume", "orphan", "and now without")[:2] == (0, "You said: and now without\n")


# -- ends


def test_the_exit_code_says_how_it_ended_and_the_receipt_what_is_left(tmp_path: Path) -> None:
    failed, late = tmp_path / "failed.json", tmp_path / "late.json"
    broken, slow = together(
        ["--receipt", str(failed), "hi", "--model", script(tmp_path, {"fail": "no more credit"})],
        ["--timeout", "0.5", "--receipt", str(late), "$ sleep 60"],
    )
    assert broken[0] == 1 and "the turn failed: no more credit" in broken[2]
    slip = json.loads(failed.read_text())
    assert (slip["verdict"], slip["reason"]) == ("confirmed", "end of the run")
    assert slow[0] == 124 and "stopped: timeout of 0.5 s; confirmed: 1 process ended" in slow[2]
    assert json.loads(late.read_text())["reason"] == "timeout of 0.5 s"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_turn_and_all_in_the_background(tmp_path: Path, number: int) -> None:
    slip = tmp_path / "slip.json"
    lines = "$ setsid sleep 601 &\n$ sleep 602 | (echo up; setsid sleep 603)"
    with Held() as held, started("--receipt", str(slip), lines, held=held) as running:
        until(running, "│ up")
        running.send_signal(number)
        _, err = running.communicate(timeout=BOUND)
        assert running.returncode == 128 + number
        why = "" if number == signal.SIGINT else f": {signal.Signals(number).name}"
        assert f"stopped{why}; confirmed: " in err.decode()
        assert "1 background job ended with the run" in err.decode()
        assert held.gone()
    assert json.loads(slip.read_text())["confirmed"] is True


def test_a_second_signal_forces() -> None:
    with started("$ trap '' TERM; echo up; while :; do sleep 1; done") as running:
        until(running, "│ up")
        running.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        began = time.monotonic()
        running.communicate(timeout=BOUND)
        assert running.returncode == 130 and time.monotonic() - began < 1


def test_a_model_that_never_answers_is_left_within_200_ms_and_its_connection_closed(
    tmp_path: Path, mute: tuple[str, socket.socket]
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[defaults]\nagent = "scripted"\n[models.there]\nbase_url = "{mute[0]}"\n')
    took: list[float] = []
    while not took or (took[-1] > 0.2 and len(took) < 3):  # a busy machine may take its time once
        with started("--config", str(config), "--model", "there:x", "hi") as running:
            connection, _ = mute[1].accept()
            with connection:
                connection.settimeout(BOUND)
                assert connection.recv(65536).startswith(b"POST /v1/")
                running.send_signal(signal.SIGINT)
                began = time.monotonic()
                running.communicate(timeout=BOUND)
                took.append(time.monotonic() - began)
                while connection.recv(65536):
                    pass
        assert running.returncode == 130
    assert took[-1] < 0.2, took
    agents = {one.agent for one in places.everywhere(places.folders())}
    assert agents == {"assistant"}, "a model that is named never gets the free hand of the offline agent"


def test_ctrl_c_while_it_starts_leaves_nothing(state_dir: Path) -> None:
    """H22: at any moment from our first line on."""
    for number in range(5):
        with Held() as held, started("$ sleep 60", held=held) as running:
            wait_for(lambda: holds_signals(running.pid), "our first line")
            time.sleep(number * 0.06)
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=BOUND)
            assert running.returncode == 130 and b"Traceback" not in err, err
            assert held.gone()
    assert not list(state_dir.rglob("control.sock"))


def test_a_factory_that_takes_its_time_does_not_hold_up_a_ctrl_c(tmp_path: Path) -> None:
    """H22, H26: the thread ends with the process."""
    program = f"""
import sys, time
import quell.models.scripted as scripted
scripted.Scripted = lambda: (open({str(tmp_path / "begun")!r}, "w").close(), time.sleep(60))
from quell.cli import script
sys.argv = ["quell", "run", "hi"]
script()
"""
    with Running(
        [sys.executable, "-c", program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        wait_for((tmp_path / "begun").exists, "the factory runs")
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=BOUND)
        assert running.returncode == 130 and b"Traceback" not in err, err


def test_whoever_does_not_read_holds_up_the_output_and_nothing_else(tmp_path: Path) -> None:
    model = script(
        tmp_path, [{"say": "word " * 20_000}, {"call": "shell", "arguments": {"command": f"touch {tmp_path}/done"}}]
    )
    with started("--model", model, "hi") as running:
        wait_for((tmp_path / "done").exists, "the turn goes on")
        running.send_signal(signal.SIGTERM)
        assert running.wait(BOUND) == 143
    with started("--model", model, "hi") as running:  # and a reader that goes ends it
        assert running.stdout is not None
        os.read(running.stdout.fileno(), 10)
        running.stdout.close()
        assert running.wait(BOUND) == 3
    with open("/dev/full", "wb") as full:  # and a disk that is full is a fault
        ended = subprocess.run(
            [QUELL, "run", "hi"], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, timeout=BOUND
        )
    assert ended.returncode == 125 and b"quell: cannot write the answer: No space left on device" in ended.stderr


# -- on a terminal


def test_a_person_sees_it_stream_and_what_is_waited_for(tmp_path: Path) -> None:
    model = script(tmp_path, [{"say": "# Title\nsome **bold** words\n"}, {"hang": True}])
    with terminal() as t:
        modes = t.settings()
        shown = t.run('quell run "say **hello**"')
        assert "You said: say hello\n" in shown and "quell config set defaults.model" in shown
        t.line(f"quell run --model {model} hi")
        t.expect("Title\nsome bold words\n")
        t.expect("waiting for scripted")
        t.key("C-c")
        t.expect("stopped; confirmed: nobody was there")
        t.prompt()
        assert t.run("echo code $?") == "code 130\n"
        assert b"\x1b[1;4mTitle" in t.raw and b"\r\x1b[K" in t.raw

        t.line("quell run '$ echo up; sleep 600'")
        t.expect("│ up")
        t.key("C-z")
        t.prompt()
        t.line("fg")
        t.pause()
        t.key("C-c")
        t.expect("stopped; confirmed: ")
        t.prompt()
        t.line("quell run -")  # and while it reads what is typed
        wait_for(lambda: any(map(holds_signals, oracle.below(t.shell))), "it reads")
        t.key("C-c")
        t.prompt()
        assert t.run("echo code $?") == "code 130\n"
        assert t.settings() == modes and t.left() == []
