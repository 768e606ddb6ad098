"""The clients against a real server: what they show is what is, and what they stop is gone by the kernel's own word."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quell.cli import stop
from quell.cli.attach import Attached
from quell.kernel.grants import Grant, Grants
from quell.testing import check_log
from tests.cli import oracle, projects
from tests.cli.command import BOUND, QUELL
from tests.cli.command import quell as run
from tests.cli.serving import Served
from tests.cli.stand_in import heard
from tests.cli.terminal import Terminal
from tests.cli.test_clients_alone import PATH, interrupt, line_of, start

# The server of this module and what it runs are no test's own; that nothing of it is left is looked at in the end.
pytestmark = pytest.mark.leak_census(kinds=("task", "thread", "fd", "socket"))

BLOCKS = """
import time

class Plugin:
    name = "block"

    def setup(self, ctx):
        ctx.on("message.user", self.hear)

    async def hear(self, event):
        if event.text.startswith("block "):
            time.sleep(float(event.text.split()[1]))
"""
CONFIG = """
[agents.careful]
approval = { "*" = "ask" }
"""
ESCAPEES = (
    '$ sh -c \'trap "" TERM; sleep {mark}1 & setsid sleep {mark}2 & (setsid sh -c "trap : TERM; sleep {mark}3" &) ;'
    " nohup sleep {mark}4 >/dev/null 2>&1 & wait; sleep {mark}5'"
)
"""Five that hold on: one ignores SIGTERM, two are in sessions of their own, one is an orphan."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    wheel = projects.wheel(home, "quell-block", "block")
    projects.put(wheel, home, "quell-block")
    (home / "plugins" / "quell-block" / "quell_block.py").write_text(BLOCKS)
    config = home / "quell.toml"
    config.write_text(CONFIG)
    folder = home / "runtime"
    with Served(folder, "--config", str(config), env={"QUELL_STATE_DIR": str(home)}) as running:
        running.configure(ask=0.3, term=0.5)
        yield running
        running.signal(signal.SIGTERM)
        assert running.ends() == 0, running.err
        assert oracle.below(running.process.pid) == []
    check_log(folder / "log.sqlite")


def ask(server: Served, *words: str, code: int = 0) -> str:
    """What a client prints."""
    got, out, err = heard(*words, "--state", str(server.folder))
    assert got == code, err
    return out


def refused(server: Served, *words: str) -> str:
    got, _, err = heard(*words, "--state", str(server.folder))
    assert got == 125
    return err


def told(server: Served, *words: str, code: int = 0) -> Any:
    return json.loads(ask(server, *words, "--json", code=code))


def lines(server: Served, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ask(server, *words, "--json").splitlines()]


def card(server: Served, session: str) -> dict[str, Any]:
    found: dict[str, Any] = server.client.get("sessions", session)
    return found


def idle(server: Served, session: str) -> None:
    oracle.wait_for(lambda: card(server, session)["state"] in ("idle", "closed"), f"{session} has ended its turn")


def alive(mark: str) -> list[int]:
    """Every process of the machine with this mark in its argv, by /proc: no word of quell's is taken for it."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if oracle.alive(pid) and any(mark in word for word in oracle.argv(pid))]


def tree(server: Served, mark: str) -> str:
    """A session whose tool runs a tree with escapees; back when all of it runs."""
    session = server.session(ESCAPEES.format(mark=mark))
    oracle.wait_for(lambda: all(alive(f"{mark}{number}") for number in range(1, 5)), f"the tree {mark} runs")
    return session


# -- speaking and reading


def test_send_streams_the_answer_to_stdout_and_the_rest_beside(server: Served) -> None:
    ended = run("send", "--new", "hello\n$ echo out of the tool; exit 3", "--state", server.folder)
    assert ended.returncode == 0
    assert ended.stdout.decode() == "You said: hello\nshell: out of the tool\n[exit 3]\n"
    beside = ended.stderr.decode()
    assert "tool      shell" in beside
    assert "output  out of the tool" in beside
    assert "[exit 3]" in beside


def test_send_opens_a_session_as_it_is_told_to(server: Served, tmp_path: Path) -> None:
    ask(server, "send", "--new", "--agent", "careful", "--cwd", str(tmp_path), "--title", "a title", "--no-wait", "hi")
    found = card(server, "a title")
    assert (found["agent"], found["cwd"], found["asked"]) == ("careful", str(tmp_path), "hi")
    here = json.loads(ask(server, "send", "--new", "--no-wait", "--json", "hi"))["session"]
    assert card(server, here)["cwd"] == os.getcwd()
    idle(server, here)
    idle(server, found["id"])


def test_send_takes_its_text_from_standard_input_and_finds_a_session_by_its_beginning(server: Served) -> None:
    session = server.session()
    piped = run("send", session[:5], "-", "--state", server.folder, given=b"two\nlines\n")
    assert piped.stdout == b"You said: two\nlines\n"
    assert ask(server, "send", session, "several", "words") == "You said: several words\n"


def test_send_without_waiting_says_what_its_message_is(server: Served) -> None:
    session = server.session()
    said = json.loads(ask(server, "send", session, "one", "--no-wait", "--json"))
    assert said == {"session": session, "message": said["message"], "queued": False}
    [message] = [one for one in lines(server, "logs", session) if one["seq"] == said["message"]]
    assert message["text"] == "one"
    assert f"to session {session}" in ask(server, "send", session, "two", "--no-wait")
    idle(server, session)


def test_send_as_json_gives_the_events_of_its_turn(server: Served) -> None:
    session = server.session()
    events = lines(server, "send", session, "hi")
    assert [events[0]["kind"], events[-1]["kind"]] == ["turn.started", "turn.ended"]
    assert {one["turn"] for one in events} == {1}


def test_ctrl_c_while_it_waits_only_detaches(server: Served) -> None:
    """H20: disconnect is not cancel."""
    session = server.session()
    with start("send", session, "$ sleep 600", "--state", str(server.folder)) as client:
        oracle.wait_for(lambda: card(server, session)["processes"], "the command runs")
        interrupt(client)
        assert client.wait(BOUND) == 130
        assert client.stderr is not None
        assert f"detached; the session goes on: quell attach {session}" in client.stderr.read().decode()
    [command] = card(server, session)["processes"]
    assert card(server, session)["state"] == "running"
    assert oracle.alive(command["pid"])
    assert told(server, "stop", session)["confirmed"]
    assert not oracle.alive(command["pid"])


def test_ps_as_json_is_the_answer_of_the_api(server: Served) -> None:
    """H36: what the page lists, which is the stream's snapshot, equals what --json lists."""
    server.session("hi")
    parked = server.session(title="parked")
    oracle.wait_for(lambda: all(one["state"] == "idle" for one in server.client.get("state")["sessions"]), "all idle")
    board = told(server, "ps")
    assert board == server.client.get("state")
    with start("ps", "--watch", "--json", "--state", str(server.folder)) as client:
        assert client.stdout is not None
        assert json.loads(client.stdout.readline()) == board
        ask(server, "send", parked, "hi")
        oracle.wait_for(
            lambda: (
                client.stdout is not None
                and {one["id"]: one["end"] for one in json.loads(client.stdout.readline())["sessions"]}[parked]
            ),
            "the change is told",
        )
        interrupt(client)
        assert client.wait(BOUND) == 0
    plain = ask(server, "ps").splitlines()
    assert plain[0].split() == ["SESSION", "STATE", "TURN", "PROCESSES", "AGENT", "TITLE", "LAST", "OUTPUT"]
    assert len(plain) == 1 + len(board["sessions"])


def test_ps_watch_draws_again_and_leaves_the_terminal_as_it_was(server: Served) -> None:
    with Terminal(variables=PATH) as terminal:
        before = terminal.settings()
        terminal.line(f"quell ps --watch --state {server.folder}")
        terminal.expect("SESSION")
        session = server.session("hi", title="drawn again")
        terminal.expect("drawn again")
        idle(server, session)
        terminal.key("C-c")
        terminal.prompt()
        assert terminal.run("echo code $?").splitlines()[-1] == "code 0"
        assert terminal.settings() == before
        hidden, shown = terminal.raw.rfind(b"\x1b[?25l"), terminal.raw.rfind(b"\x1b[?25h")
        assert hidden < shown, "the cursor is there again"


def test_logs_tell_what_happened(server: Served) -> None:
    session = server.session()
    ask(server, "send", session, "hello\n$ echo from the tool")
    readable = ask(server, "logs", session).splitlines()
    for words in (
        "session   opened",
        "user      hello",
        "tool      shell",
        "output  from the tool",
        "turn 1 completed",
    ):
        assert any(words in line for line in readable), words
    events = lines(server, "logs", session)
    assert events == server.client.get("sessions", session, "events", limit=1000)["events"]
    assert ask(server, "logs", session, "-n", "3").splitlines() == readable[-3:]
    assert lines(server, "logs", session, "-n", "2") == events[-2:]
    assert lines(server, "logs", session, "-n", "9" * 30) == events
    middle = events[len(events) // 2]["seq"]
    assert lines(server, "logs", session, "--after", str(middle)) == [one for one in events if one["seq"] > middle]


def test_logs_of_all_sessions_are_the_whole_log(server: Served) -> None:
    one, other = server.session("first"), server.session("second")
    idle(server, one)
    idle(server, other)
    events = lines(server, "logs")
    seqs = [event["seq"] for event in events]
    assert seqs == sorted(set(seqs))
    assert events[0]["kind"] == "admission.reopened" or events[0]["seq"] < 20
    assert {one, other} <= {event.get("session") for event in events}
    assert f"{other} user      second" in ask(server, "logs", "-n", "40")


def test_logs_follow_over_a_kill_of_the_server_and_miss_nothing(tmp_path: Path) -> None:
    """H36: nothing is missed and nothing is seen twice, over a restart too."""
    folder = tmp_path / "runtime"
    with Served(folder) as server:
        session = server.session("first")
        idle(server, session)
        client = start("logs", "--follow", "--json", "--state", str(folder))
        assert client.stdout is not None
        seen = [json.loads(client.stdout.readline())]
        server.session("$ sleep 7901")
        oracle.wait_for(lambda: alive("7901"), "it runs")
        server.signal(signal.SIGKILL)
        server.ends()
    with client, Served(folder) as server:
        ask(server, "send", session, "last")
        while seen[-1].get("text") != "last":
            seen.append(json.loads(client.stdout.readline()))
        interrupt(client)
        assert client.wait(BOUND) == 0
        assert client.stderr is not None
        assert "the server is back" in client.stderr.read().decode()
        whole = lines(server, "logs")
        assert seen == whole[: len(seen)]
        assert "interrupted" in {one.get("end") for one in seen}
        server.signal(signal.SIGTERM)
        assert server.ends() == 0


# -- attaching


def test_attach_shows_what_happens_and_sends_what_is_typed(server: Served) -> None:
    session = server.session(title="attached")
    ask(server, "send", session, "before")
    with Terminal(variables=PATH) as terminal:
        terminal.line(f"quell attach attached --state {server.folder}")
        terminal.expect("answer    You said: before")
        terminal.expect("/help tells what can be typed")
        terminal.line("hello there")
        terminal.expect("You said: hello there")
        terminal.expect("turn 2 completed")
        terminal.line("/help")
        terminal.expect("/release")
        terminal.line("/no")
        terminal.expect("there is no /no")
        terminal.line("//slash")
        terminal.expect("You said: /slash")
        terminal.line("/detach")
        terminal.expect("detached; the session goes on")
        terminal.prompt()


def test_attach_stops_parks_releases_and_discards(server: Served) -> None:
    """H19: what waited is parked, and let go or dropped by a word."""
    session = server.session()
    with Terminal(variables=PATH) as terminal:
        terminal.line(f"quell attach {session} --state {server.folder}")
        terminal.expect("attached to")
        terminal.line("/queue")
        terminal.expect("nothing waits")
        terminal.line("$ sleep 77.7")
        oracle.wait_for(lambda: card(server, session)["processes"], "the command runs")
        terminal.line("later one")
        terminal.expect("queued as message")
        terminal.line("later two")
        terminal.expect("queued as message")
        terminal.line("/stop")
        terminal.expect("parked")
        terminal.expect("nobody is left")
        first, second = card(server, session)["queue"]
        assert first["parked"] and second["parked"]
        assert alive("77.7") == []
        terminal.line("/queue")
        terminal.expect("parked  later two")
        terminal.line("/release")
        terminal.expect("You said: later two")
        idle(server, session)
        terminal.line("$ sh -c 'trap \"\" TERM; sleep 78.8; sleep 78.8'")
        oracle.wait_for(lambda: alive("78.8"), "the command runs")
        terminal.line("never")
        terminal.expect("queued as message")
        terminal.line("/force")
        terminal.expect("nobody is left")
        assert alive("78.8") == []
        terminal.line("/discard")
        terminal.expect("discarded")
        oracle.wait_for(lambda: card(server, session)["queue"] == [], "the queue is empty")
        terminal.key("C-d")
        terminal.expect("detached")
        terminal.prompt()
        terminal.line(f"quell attach {session} --state {server.folder}")
        terminal.expect("attached to")
        terminal.key("C-c")
        terminal.expect("detached; the session goes on")
        terminal.prompt()


def test_attach_answers_approvals(server: Served) -> None:
    session = server.session(agent="careful")
    with Terminal(variables=PATH) as terminal:
        terminal.line(f"quell attach {session} --state {server.folder}")
        terminal.expect("attached to")
        terminal.line("/approve")
        terminal.expect("asks nothing")
        terminal.line("$ echo allowed-$((1+1))")
        terminal.expect("asks for leave")
        terminal.line("/approve")
        terminal.expect("shell: allowed-2")
        idle(server, session)
        terminal.line("$ echo denied")
        terminal.expect("asks for leave")
        terminal.line("/deny 1")
        terminal.expect("no open question 1")
        [question] = card(server, session)["approvals"]
        terminal.line(f"/deny {question['request']} not now")
        terminal.expect("denied: not now")
        idle(server, session)
        terminal.line("$ echo over-and-$((1+2))")
        oracle.wait_for(lambda: card(server, session)["approvals"], "it asks")
        terminal.line("/session")
        terminal.expect("allowed in this session")
        terminal.expect("shell: over-and-3")
        idle(server, session)
        terminal.line("$ echo over-and-$((1+2))")
        terminal.expect("shell: over-and-3")  # it was not asked again
        idle(server, session)
        terminal.line("$ echo $((2+2))-ever")
        oracle.wait_for(lambda: card(server, session)["approvals"], "it asks")
        terminal.line("/always")
        terminal.expect("allowed always")
        idle(server, session)
        terminal.key("C-c")
        terminal.prompt()


def test_attach_as_json_gives_the_events(server: Served) -> None:
    session = server.session()
    with start("attach", session, "--json", "--state", str(server.folder), stdin=subprocess.PIPE) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        line_of(client)
        client.stdin.write(b"hi\n")
        client.stdin.flush()
        events: list[dict[str, Any]] = []
        while not events or events[-1]["kind"] != "turn.ended":
            events.append(json.loads(client.stdout.readline()))
        client.stdin.close()
        assert client.wait(BOUND) == 0
    assert [one["seq"] for one in events] == sorted(one["seq"] for one in events)
    assert "message.done" in {one["kind"] for one in events}


# -- approvals


def test_an_approval_is_listed_in_full_and_answered(server: Served) -> None:
    session = server.session("$ echo yes >&2", agent="careful")
    other = server.session("$ echo no", agent="careful")
    oracle.wait_for(lambda: len(server.client.get("approvals")["approvals"]) == 2, "both ask")
    listed = ask(server, "approve")
    assert session in listed
    assert '"command": "echo yes >&2"' in listed
    assert told(server, "approve") == server.client.get("approvals")
    assert "allowed" in ask(server, "approve", session)
    idle(server, session)
    [request] = [one["request"] for one in card(server, other)["approvals"]]
    assert "no open question" in refused(server, "approve", other, str(request + 99))
    answered = told(server, "approve", other, str(request), "--deny", "--reason", "not today")
    assert (answered["request"], answered["allow"], answered["reason"]) == (request, False, "not today")
    idle(server, other)
    ends = [one for one in lines(server, "logs", other) if one["kind"] in ("approval.answered", "tool.refused")]
    assert all("not today" in one["reason"] for one in ends) and len(ends) == 2
    assert "asks nothing" in refused(server, "approve", other)
    assert ask(server, "approve") == "nothing waits for leave\n"


def test_a_yes_goes_as_far_as_it_is_told_and_is_taken_back(server: Served, tmp_path: Path) -> None:
    def asks(command: str, session: str = "") -> str:
        """A session that wants this, and asks for it."""
        if session:
            ask(server, "send", session, "--no-wait", f"$ {command}")
        else:
            session = server.session(f"$ {command}", agent="careful", cwd=str(tmp_path))
        oracle.wait_for(lambda: card(server, session)["approvals"], "it asks")
        return session

    session = asks("echo one")
    assert "allowed in this session" in ask(server, "approve", session, "--session")
    idle(server, session)
    assert ask(server, "send", session, "$ echo one") == "shell: one\n", "it was not asked again"
    other = asks("echo one")
    assert told(server, "approve", other, "--always")["extent"] == "always"
    idle(server, other)
    assert ask(server, "send", "--new", "--agent", "careful", "--cwd", str(tmp_path), "$ echo one") == "shell: one\n"
    listed = told(server, "approve", "--granted")
    assert listed == server.client.get("grants")
    [kept] = [one for one in listed["grants"] if one["cwd"] == str(tmp_path)]
    assert (kept["agent"], kept["tool"], kept["arguments"]["command"]) == ("careful", "shell", "echo one")
    shown = ask(server, "approve", "--granted")
    assert kept["digest"][:12] in shown and '"command": "echo one"' in shown and f"careful in {tmp_path}" in shown
    assert "nothing of this digest" in refused(server, "approve", "--revoke", "0" * 64)
    assert "asked again for careful" in ask(server, "approve", "--revoke", kept["digest"][:8])
    assert kept not in told(server, "approve", "--granted")["grants"]
    told(server, "approve", asks("echo one"), "--deny")

    alone = tmp_path / "alone"  # the same without a server
    Grants(str(alone)).add(msgspec.convert(kept, Grant))
    assert json.loads(heard("approve", "--granted", "--json", "--state", str(alone))[1]) == {"grants": [kept]}
    assert heard("approve", "--revoke", "0000", "--state", str(alone))[0] == 125
    assert "asked again" in heard("approve", "--revoke", kept["digest"].upper(), "--state", str(alone))[1]
    assert heard("approve", "--granted", "--state", str(alone)) == (0, "nothing is always allowed\n", "")


# -- stopping


def test_a_stop_ends_one_tree_with_its_escapees_and_no_other(server: Served) -> None:
    """H14, H17: from the command line to the dead process; the receipt says what the kernel says."""
    mine, other = tree(server, "7101"), tree(server, "7102")
    shown = ask(server, "stop", mine, "--reason", "proof")
    assert alive("7101") == []
    assert len(alive("7102")) >= 4, "the others live on"
    assert f"session {mine}" in shown
    assert "confirmed" in shown.splitlines()[1]
    assert any("sleep 71012" in line and "signal" in line for line in shown.splitlines())
    [slip] = told(server, "receipts", mine)["receipts"]
    assert (slip["reason"], slip["confirmed"], slip["reach"]) == ("proof", True, "session")
    assert {one["pid"] for one in slip["receipt"]["processes"] if one["end"] == "alive"} == set()
    assert told(server, "stop", other)["confirmed"]
    assert alive("7102") == []


def test_stop_all_ends_everything_and_reopen_lets_work_in_again(server: Served) -> None:
    """H21: admission is closed first."""
    for mark in ("7201", "7202", "7203"):
        tree(server, mark)
    try:
        shown = ask(server, "stop", "--all")
        assert [alive(mark) for mark in ("7201", "7202", "7203")] == [[], [], []]
        assert "confirmed" in shown
        assert "admission is closed" in shown
        assert "admission" in refused(server, "send", "--new", "hi")
        assert "admission is closed (stop all): quell reopen" in ask(server, "ps")
    finally:
        assert ask(server, "reopen") == "admission is open\n"
    assert told(server, "reopen") == server.client.get("admission")
    assert ask(server, "send", "--new", "hi") == "You said: hi\n"


def test_a_stop_works_while_a_handler_blocks_the_kernels_loop(server: Served) -> None:
    """H25: of one session, and of all."""
    mine, other = tree(server, "7301"), tree(server, "7302")
    blocker = server.session()
    before = time.monotonic()
    ask(server, "send", blocker, "block 8", "--no-wait")
    oracle.wait_for(lambda: server.client.get("health")["status"] == "blocked", "the loop is blocked")
    try:
        # Its tasks are in the loop that does not turn: that they have ended cannot be confirmed, and is not.
        shown = told(server, "stop", mine, code=1)
        assert alive("7301") == []
        assert (shown["receipt"]["survivors"], len(shown["receipt"]["processes"]) >= 4) == ([], True)
        assert len(alive("7302")) >= 4
        shown = told(server, "stop", "--all", "--force", code=1)
        assert alive("7302") == []
        assert shown["receipt"]["survivors"] == []
        assert server.client.get("health")["status"] == "blocked", "the loop was blocked all the time"
        assert time.monotonic() - before < 8
    finally:
        oracle.wait_for(lambda: server.client.get("health")["status"] == "ok", "the loop goes on", 20)
        ask(server, "reopen")
    assert card(server, other)["state"] == "closed" or card(server, other)["end"] == "stopped"


def test_a_stop_passes_by_a_server_that_is_silent(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """H25: it is asked for by the control socket then, and says so."""
    monkeypatch.setattr(stop, "ANSWER", 0.3)
    monkeypatch.setattr(stop, "PROBE", 0.2)
    one, two = tree(server, "7801"), tree(server, "7802")
    door = server.folder / "api.sock"
    os.rename(door, server.folder / "kept.sock")
    try:
        with socket.socket(socket.AF_UNIX) as mute:
            mute.bind(str(door))
            mute.listen()
            assert "leave out --reach turn" in refused(server, "stop", one, "--reach", "turn")
            assert "whole id" in refused(server, "stop", one[:5])
            code, out, err = heard("stop", one, "--state", str(server.folder))
            assert (code, alive("7801")) == (0, []), err
            assert "did not answer within 0.2 s; stopping by the control socket" in err
            assert "confirmed" in out
            assert len(alive("7802")) >= 4
        os.unlink(door)
        code, out, err = heard("stop", "--all", "--state", str(server.folder))
        assert (code, alive("7802")) == (0, []), err
        assert "admission" not in out
    finally:
        os.rename(server.folder / "kept.sock", door)
    idle(server, two)
    assert ask(server, "send", "--new", "hi") == "You said: hi\n"


def test_a_stop_of_the_turn_leaves_what_the_session_has_in_the_background(server: Served) -> None:
    session = server.session("$ sleep 7401 &\n$ sleep 7402")
    oracle.wait_for(lambda: alive("7401") and alive("7402"), "both run")
    assert told(server, "stop", session, "--reach", "turn")["confirmed"]
    assert (len(alive("7401")), alive("7402")) == (1, [])
    assert told(server, "stop", session, "--reach", "session")["confirmed"]
    assert alive("7401") == []


def test_grace_is_given_and_force_gives_none(server: Served) -> None:
    """H15: polite first, with a bound."""
    stubborn = "$ sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' {}"

    def phases(mark: str, *words: str) -> float:
        session = server.session(stubborn.format(mark))
        oracle.wait_for(lambda: alive(mark), "it runs")
        receipt = told(server, "stop", session, *words)
        assert alive(mark) == []
        return float(receipt["receipt"]["phases"]["total"])

    assert phases("mark7501", "--grace", "0.9") >= 0.9
    assert phases("mark7502", "--grace", "60", "--force") < 5


def test_receipts_are_listed_the_newest_first_and_one_is_shown_in_full(server: Served) -> None:
    session = server.session("$ sleep 7601")
    oracle.wait_for(lambda: alive("7601"), "it runs")
    ask(server, "stop", session, "--reach", "turn")
    ask(server, "stop", session)
    slips = told(server, "receipts", session)["receipts"]
    assert [one["reach"] for one in slips] == ["session", "turn"]
    assert told(server, "receipts", "-n", "1")["receipts"] == slips[:1]
    assert len([line for line in ask(server, "receipts", session).splitlines() if line.startswith("receipt ")]) == 2
    assert told(server, "receipts", str(slips[1]["seq"])) == slips[1]
    assert "sleep 7601" in ask(server, "receipts", str(slips[1]["seq"]))
    assert ask(server, "receipts", server.session()) == "no receipts\n"


# -- completion


def test_a_shell_completes_commands_options_and_sessions(server: Served) -> None:
    session = server.session(title="'; touch /tmp/owned; $(reboot)")
    script = """
    eval "$(quell completion bash)"
    try() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _quell_completion quell; echo "${COMPREPLY[@]}"; }
    try quell re; try quell stop --f; try quell stop --state $STATE $SESSION; try quell stop --state /nowhere ''
    """
    env = {**os.environ, "PATH": f"{QUELL.parent}:/usr/bin:/bin", "STATE": str(server.folder), "SESSION": session[:3]}
    ended = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=BOUND, check=True)
    assert ended.stdout.splitlines() == ["reopen receipts", "--force", session, ""]
    for shell, words, found in (
        ("zsh", "stop --reach ", "session"),
        ("fish", "plugin ", "install"),
        ("fish", f"send --state {server.folder} --agent c", "careful"),
        ("zsh", f"stop --state {server.folder} {session[:3]}", session),
        ("fish", f"stop --state {server.folder} {session[:3]}", session),
    ):
        said = completions(shell, words)
        assert found in said, words
        beside = said.partition(session)[2]
        assert found != session or "touch" in beside, "the title is beside it"
        assert not set(";$(") & set(beside.strip("'\"()\n")), "and nothing in it that a shell obeys"
    assert {"_QUELL_COMPLETE" in heard("completion", shell)[1] for shell in ("zsh", "fish")} == {True}


def completions(shell: str, words: str) -> str:
    asked = {"_QUELL_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": f"quell {words}"}
    return run(env={**os.environ, **asked, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}).stdout.decode()


def test_a_title_may_hold_slashes_as_names_of_branches_do(server: Served) -> None:
    session = server.session("$ sleep 7391", title="fix/the build")
    oracle.wait_for(lambda: alive("7391"), "it runs")
    assert "sleep 7391" in ask(server, "logs", "fix/the build")
    assert "asks nothing" in refused(server, "approve", "fix/the build")
    assert "'fix/nothing' is no session" in refused(server, "logs", "fix/nothing")
    out = ask(server, "stop", "fix/nothing", "fix/the build", code=125)  # and the other one is stopped
    assert "confirmed" in out and not alive("7391")
    assert f"to session {session}" in ask(server, "send", "fix/the build", "--no-wait", "hi")


def test_attach_allows_nothing_that_it_has_not_shown(server: Served, capfd: pytest.CaptureFixture[str]) -> None:
    """A yes that is typed for one question is none to another, which took its place meanwhile."""
    session = server.session("$ echo unseen", agent="careful")
    oracle.wait_for(lambda: card(server, session)["approvals"], "it asks")
    attached = Attached(server.client, card(server, session), as_json=False)
    for word in ("/approve", "/session", "/always"):
        attached._obey(word)
        assert "was not shown here yet" in capfd.readouterr().err
    [question] = card(server, session)["approvals"]
    attached._show({"kind": "approval.asked", "seq": question["request"], "tool": "shell", "arguments": {}})
    attached._obey("/approve")
    idle(server, session)
    assert "approval.answered" in {one["kind"] for one in lines(server, "logs", session)}
