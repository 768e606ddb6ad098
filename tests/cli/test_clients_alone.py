"""Each client does what its help says, against a server that behaves as none should: silent, killed, or hostile."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

import quell
from quell.cli.client import Client, MuteServerError, usual_place
from quell.cli.screen import one_line, safe
from tests.cli import oracle
from tests.cli.command import QUELL, Running
from tests.cli.command import quell as run
from tests.cli.stand_in import HOLD, MUTE, StandIn, board, bundle, card, heard, receipt, said
from tests.cli.terminal import Terminal
from tests.cli.test_bad_input import complaint

OURS = 125
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x1b[31mred\x1b[0m\r\x08\x00\u202etxt\x1b"
PATH = {"PATH": f"{QUELL.parent}:/usr/bin:/bin"}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def start(*words: str, stdin: int = subprocess.DEVNULL) -> Running:
    """A client whose output is read while it runs."""
    return Running([str(QUELL), *words], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def interrupt(client: Running) -> None:
    oracle.wait_for(lambda: not oracle.in_charge(client.pid), "the client to hear signals")
    client.send_signal(signal.SIGINT)


def line_of(client: Running) -> str:
    """The next line on its stderr."""
    assert client.stderr is not None
    return client.stderr.readline().decode()


# -- no server, or one that is silent


NEEDS_A_SERVER = (
    "ps|ps --watch|logs|logs x|logs -f|send x y|send --new y|attach x|stop x|stop --all|reopen|approve|approve x"
    "|receipts|receipts 3|open"
).split("|")


def told(words: str) -> str:
    """The one sentence that a command says."""
    code, _, said = heard(*words.split())
    return complaint(subprocess.CompletedProcess([], code, b"", said.encode()), OURS)


def test_without_a_server_each_says_so_and_what_to_do(state: Path) -> None:
    for words in NEEDS_A_SERVER:
        assert told(f"{words} --state {state}") == (
            f"quell: no server runs on {state}: start one with quell serve\n"
        ), words


def test_the_usual_state_directory_is_that_of_a_runtime(state_dir: Path) -> None:
    assert usual_place() == quell.Runtime().state_dir == str(state_dir / "runtime")
    with StandIn(state_dir / "runtime", {"GET /state": board(card("aaaa"))}):
        assert b"aaaa" in run("ps").stdout


def test_a_state_directory_may_be_deeper_than_a_socket_path_is_long(tmp_path: Path) -> None:
    state = tmp_path.joinpath(*["a" * 60] * 4)
    state.mkdir(parents=True)
    with StandIn(Path("/proc/self/fd") / str(fd := os.open(state, os.O_PATH)), {"GET /state": board(card("aaaa"))}):
        assert b"aaaa" in run("ps", "--state", state).stdout
    os.close(fd)


def test_an_answer_that_is_not_understood_is_no_traceback(state: Path) -> None:
    busy = (503, {"code": "busy", "message": "busy"})
    with StandIn(state, {"GET /state": (500, "?"), "GET /approvals": {"unknown": 1}, "GET /receipts": busy}):
        assert "the server answered 500" in told(f"ps --state {state}")
        assert "KeyError: 'approvals'" in told(f"approve --state {state}")
        assert told(f"receipts --state {state}") == "quell: busy\n"


def test_a_server_that_is_killed_before_it_answers_is_told(state: Path) -> None:
    state.mkdir()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(state / "api.sock"))
        door.listen()
        with start("ps", "--state", str(state)) as client:
            door.accept()[0].close()
            assert line_of(client) == f"quell: the server on {state} ended before it answered\n"
            assert client.wait(10) == OURS


def test_a_silent_server_is_told_within_its_bound(state: Path) -> None:
    with StandIn(state, {"GET /state": MUTE}), pytest.raises(MuteServerError, match=r"did not answer within 0\.2 s"):
        Client(str(state)).get("state", within=0.2)


def test_a_wrong_word_is_told_in_one_sentence_with_the_nearest_right_one() -> None:
    for words, hint in {
        "ps --jsno": "--json",
        "stop --al": "--all",
        "stop x --reach trn": "'turn', 'session'",
        "stop x --grace soon": "--grace",
        "sned x": "send",
        "ps extra": "extra",
        "receipts -n 0": "-n",
        "completion bahs": "bash",
        "send x": "send ID TEXT",
        "send x y --title t": "--new",
        "stop": "--all",
        "stop x --all": "not both",
        "stop --all --reach turn": "--reach",
        "approve --deny": "approve ID",
        "approve --always": "approve ID",
        "approve x --deny --always": "one of",
        "approve x --session --always": "one of",
        "approve x --granted": "stand alone",
        "approve --granted --revoke abcd": "stand alone",
        "approve --revoke=": "--granted lists",
        "logs --state": "--state",
    }.items():
        assert hint in told(words), words


# -- what a terminal is shown


def test_nothing_that_a_model_says_can_act_on_a_terminal() -> None:
    shown = safe(EVIL)
    assert "red" in shown
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert "\\u202e" in shown
    assert safe("tab\tand\nline\r\nend\rover") == "tab\tand\nline\nend\nover"
    assert safe("family: 👩‍👩‍👧, nbsp:\xa0") == "family: 👩‍👩‍👧, nbsp:\xa0"
    assert one_line("a\n\x1b[1mb", 20) == "a b"


def test_no_command_lets_an_escape_sequence_through_to_a_terminal(state: Path) -> None:
    evil = card("aaaa", title=EVIL, last=EVIL, asked=EVIL, agent=EVIL, state="running")
    question = {"request": 5, "session": "aaaa", "tool": EVIL, "arguments": {EVIL: EVIL}, "digest": "", "at": 1.0}
    slip = {"seq": 4, "session": "aaaa", "reach": EVIL, "reason": EVIL, "at": 1.0, "confirmed": False}
    body = receipt(False, [43])["receipt"]
    body["processes"][0]["argv"] = [EVIL]
    body["threads"] = [{"name": EVIL, "end": "alive", "where": EVIL}]
    kinds = ["message.user", "message.done", "tool.output", "model.failed", "session.renamed", "x.evil.kind"]
    events = [said(at, EVIL + "\n", kind=kind, error=EVIL, title=EVIL, data=EVIL) for at, kind in enumerate(kinds, 1)]
    answers = {
        "GET /state": {**board(evil), "admission": {"open": False, "reason": EVIL, "since": 0.0}},
        "GET /sessions/aaaa": evil,
        "GET /approvals": {"approvals": [question]},
        "GET /receipts": {"receipts": [{**slip, "receipt": body}]},
        "GET /receipts/4": {**slip, "receipt": body},
        "GET /sessions/aaaa/events": lambda query: {"events": events if query["after"] == "0" else []},
        "POST /sessions/aaaa/stop": {**receipt(False), "receipt": body},
        "POST /sessions": (400, {"code": "bad_request", "message": EVIL}),
    }
    with StandIn(state, answers), Terminal(variables={**PATH, "NO_COLOR": "1"}) as terminal:
        for words in ("ps", "ps --json", "logs aaaa", "logs aaaa --json", "approve", "receipts", "receipts 4"):
            terminal.run(f"quell {words} --state {state}")
        terminal.run(f"quell stop aaaa --state {state}; quell send --new x --state {state}")
        assert "red" in terminal.text
        raw = terminal.raw.decode()
    assert "\x1b]" not in raw
    assert "\x1b[31m" not in raw
    assert "\x1b[2J" not in raw
    assert not any("\x80" <= char <= "\x9f" or char in "\x00\x08\u202e" for char in raw)


def test_colours_are_for_terminals_and_go_with_no_color(state: Path) -> None:
    """H17: who lives on is in red."""
    answers = {"POST /sessions/aaaa/stop": receipt(False, [4343]), "GET /sessions/aaaa": card("aaaa")}
    with StandIn(state, answers):
        with Terminal(variables=PATH) as terminal:
            terminal.run(f"quell stop aaaa --state {state}")
            red = [part.partition("\x1b[0m")[0] for part in terminal.raw.decode().split("\x1b[1;31m")[1:]]
            assert any("4343" in part for part in red)
            mark = len(terminal.raw)
            terminal.run(f"NO_COLOR=1 quell stop aaaa --state {state}")
            assert b"\x1b[1;31m" not in terminal.raw[mark:]
        assert b"\x1b" not in run("stop", "aaaa", "--state", state).stdout


@pytest.mark.parametrize("columns", [24, 70, 200])
def test_the_table_fits_the_terminal(state: Path, columns: int) -> None:
    child = card("bbbbbbbbbb", parent="aaaaaaaaaa", state="running", turn=3, title="t" * 90, last="漢字" * 90)
    with StandIn(state, {"GET /state": board(card("aaaaaaaaaa", last="x " * 300), child, open_=False)}):
        with Terminal(variables=PATH, columns=columns) as terminal:
            shown = terminal.run(f"quell ps --state {state} 2>&1 | cat >/dev/null; quell ps --state {state}")
    table = [line for line in shown.splitlines() if "aaaaaaaaaa" in line or "bbbbbbbbbb" in line]
    assert len(table) >= 2, shown
    assert all(len(line) <= columns for line in table)


def test_children_stand_below_their_parents(state: Path) -> None:
    cards = [
        card("one1"),
        card("two2"),
        card("kid1", parent="one1"),
        card("kid2", parent="kid1"),
        card("lost", parent="?"),
    ]
    with StandIn(state, {"GET /state": board(*cards)}):
        lines = heard("ps", "--state", str(state))[1].splitlines()
    assert [line.split("  idle")[0].rstrip() for line in lines[1:]] == ["one1", "  kid1", "    kid2", "two2", "lost"]


def test_a_reader_that_leaves_is_no_fault(state: Path) -> None:
    events = [said(at, "x" * 1000) for at in range(1, 500)]
    with StandIn(state, {"GET /sessions/aaaa": card("aaaa"), "GET /sessions/aaaa/events": {"events": events}}):
        command = f"set -o pipefail; {QUELL} logs aaaa --state {state} | head -1"
        ended = subprocess.run(["bash", "-c", command], capture_output=True, timeout=20, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    with StandIn(state, {"GET /state": board()}), open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [str(QUELL), "ps", "--state", state], stdout=full, stderr=subprocess.PIPE, timeout=20, check=False
        )
    assert "No space left" in complaint(subprocess.CompletedProcess([], ended.returncode, b"", ended.stderr), OURS)


# -- following


def test_a_follower_goes_on_from_its_cursor_over_restarts_and_cuts(state: Path) -> None:
    """H36: nothing is missed and nothing is seen twice."""
    streams: list[list[Any]] = [
        [bundle(said(1, "one"), said(2, "two"))],
        [bundle(said(3, "three")), {"type": "cut", "reason": "too slow", "seq": 3}],
        [bundle(said(7, "seven")), {"type": "bye", "reason": "the server stops"}],
        [bundle(said(8, "eight")), HOLD],
    ]
    answers = {"GET /sessions/aaaa": card("aaaa"), "GET /sessions/aaaa/events": {"events": []}}
    with StandIn(state, answers, streams) as server, start("logs", "aaaa", "-f", "--state", str(state)) as client:
        assert client.stdout is not None
        lines = [client.stdout.readline().decode() for _ in range(5)]
        assert [line.split()[-1] for line in lines] == ["one", "two", "three", "seven", "eight"]
        asked = server.bodies("GET /events")
        assert [query["after"] for query in asked] == ["0", "2", "3", "7"]
        assert {query["session"] for query in asked} == {"aaaa"}
        interrupt(client)
        assert client.wait(10) == 0


def test_a_follower_waits_for_a_server_that_comes_back_and_says_so(state: Path) -> None:
    answers = {"GET /sessions/aaaa": card("aaaa"), "GET /sessions/aaaa/events": {"events": []}}
    with StandIn(state, answers, [[bundle(said(1, "one"))]]):
        client = start("logs", "aaaa", "-f", "--state", str(state))
        assert client.stdout is not None
        assert client.stdout.readline().endswith(b"one\n")
    with client:
        assert line_of(client) == "quell: the server is gone; waiting for it to come back\n"
        with StandIn(state, answers, [[bundle(said(2, "two")), HOLD]]):
            assert client.stdout.readline().endswith(b"two\n")
            assert line_of(client) == "quell: the server is back\n"
            interrupt(client)
            assert client.wait(10) == 0


def test_send_tells_by_its_exit_code_how_the_turn_ended(state: Path) -> None:
    def ends(*events: dict[str, Any]) -> int:
        answers = {
            "GET /sessions/aaaa": card("aaaa"),
            "POST /sessions/aaaa/messages": (202, {"message": 4, "queued": True}),
        }
        with StandIn(state, answers, [[bundle(*events), HOLD]]):
            return heard("send", "aaaa", "hi", "--state", str(state))[0]

    def turn(end: str) -> list[dict[str, Any]]:
        started = said(6, "", kind="turn.started", turn=2, cause=4)
        foreign = said(5, "", kind="turn.ended", turn=1, end="failed")
        return [foreign, started, said(7, "", kind="turn.ended", turn=2, request=6, end=end)]

    codes = {end: ends(*turn(end)) for end in ("completed", "failed", "limit", "interrupted", "stopped")}
    assert codes == {"completed": 0, "failed": 1, "limit": 4, "interrupted": 1, "stopped": 3}
    assert ends(said(5, "", kind="queue.parked", messages=[3, 4])) == 3
    assert ends(said(5, "", kind="queue.discarded", messages=[4])) == 3
    assert ends(said(5, "", kind="session.deleted")) == 3


# -- stopping


def test_a_stop_that_is_unconfirmed_exits_1_and_names_the_pids(state: Path) -> None:
    """H17: it never lies."""
    with StandIn(state, {"POST /sessions/aaaa/stop": receipt(False, [4343]), "POST /stop": receipt(False, [4343])}):
        for words in (["aaaa"], ["--all"], ["aaaa", "--json"]):
            code, shown, _ = heard("stop", *words, "--state", str(state))
            assert (code, "4343" in shown) == (1, True)


def test_several_sessions_are_stopped_at_once_and_one_fault_hides_no_other(state: Path) -> None:
    """H24: the second is asked for before the first has answered."""
    with StandIn(state, {}) as server:

        def late(_body: Any) -> Any:
            server.waits_for("POST /sessions/bbbb/stop")
            return receipt()

        server._answers |= {"POST /sessions/aaaa/stop": late, "POST /sessions/bbbb/stop": receipt()}
        code, shown, fault = heard("stop", "aaaa", "cccc", "bbbb", "--json", "--state", str(state))
    lines = [json.loads(line) for line in shown.splitlines()]
    assert [(line["session"], line["confirmed"]) for line in lines] == [("aaaa", True), ("bbbb", True)]
    assert code == OURS
    assert "/sessions/cccc/stop" in fault


def test_ctrl_c_lets_a_stop_go_on_and_a_second_one_forces_it(state: Path) -> None:
    def answer(body: dict[str, Any]) -> Any:
        return receipt() if body.get("force") else MUTE

    with StandIn(state, {"POST /sessions/aaaa/stop": answer}) as server:
        with start("stop", "aaaa", "--grace", "7", "--state", str(state)) as client:
            server.waits_for("POST /sessions/aaaa/stop")
            interrupt(client)
            assert line_of(client) == "quell: the stop goes on; Ctrl+C again forces it\n"
            assert client.poll() is None
            client.send_signal(signal.SIGINT)
            assert line_of(client).startswith("quell: forcing")
            assert client.wait(10) == 0
        asked = server.bodies("POST /sessions/aaaa/stop")
    assert [(one["force"], one["grace"]) for one in asked] == [(False, 7.0), (True, 7.0)]


def test_a_third_ctrl_c_leaves(state: Path) -> None:
    with StandIn(state, {"POST /stop": MUTE}) as server, start("stop", "--all", "--state", str(state)) as client:
        server.waits_for("POST /stop")
        for _ in range(2):
            interrupt(client)
            line_of(client)
        client.send_signal(signal.SIGINT)
        assert client.wait(10) == 130


# -- opening


def test_open_shows_the_link_to_the_browser_unless_it_is_told_not_to(state: Path, tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" >>{opened}\n')
    browser.chmod(0o755)
    link = "http://127.0.0.1:1/launch?code=x"
    with StandIn(state, {"POST /launches": (201, {"url": link})}):
        with Terminal(variables={**PATH, "BROWSER": str(browser)}) as terminal:
            assert link in terminal.run(f"quell open --no-browser --state {state}")
            assert not opened.exists()
            assert link in terminal.run(f"quell open --state {state}")
            oracle.wait_for(lambda: opened.exists() and opened.read_text(), "the browser is started")
            terminal.run("sleep 0.5")  # the one that should not be was started before it
    assert opened.read_text() == f"{link}\n", "once"
