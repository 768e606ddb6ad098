"""`quell ps`, `quell stop` and `quell session delete` reach `quell run` and `quell chat` in every other terminal."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli import oracle
from tests.cli.command import BOUND, Running, quell, start
from tests.cli.serving import Served
from tests.cli.terminal import Terminal
from tests.cli.test_clients import ESCAPEES
from tests.cli.test_clients import alive as marked
from tests.cli.test_clients_alone import PATH

STOPPED = 3


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, state_dir: Path, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("QUELL_TERM", "0.5")


def alive(mark: str) -> list[int]:
    """As there, without the `quell run` itself, which was told the mark."""
    return [pid for pid in marked(mark) if not any(word.endswith("quell") for word in oracle.argv(pid))]


@contextmanager
def running(mark: str, *words: str) -> Iterator[Running]:
    """A `quell run` whose tool runs a tree with escapees; in the block all of it runs."""
    with start("run", *words, ESCAPEES.format(mark=mark)) as run:
        oracle.wait_for(lambda: all(alive(f"{mark}{number}") for number in range(1, 5)), f"the tree {mark} runs")
        yield run


def listed() -> dict[str, dict[str, object]]:
    ended = quell("ps", "--json")
    return {one["title"]: one for one in json.loads(ended.stdout)["terminals"]} if ended.returncode == 0 else {}


def test_stop_all_ends_what_runs_in_other_terminals(state_dir: Path) -> None:
    """H14: from the command to the dead process, with a server and without one; H21: the server lets nothing in."""
    with running("7601") as one, running("7602") as other:
        ended = quell("stop", "--all")
        assert [alive("7601"), alive("7602")] == [[], []]
        assert ended.returncode == 0, ended
        for run in (one, other):
            assert f"all sessions in process {run.pid}\nconfirmed: " in ended.stdout.decode()
            assert run.wait(BOUND) == STOPPED
            assert run.stderr is not None and b"stopped: stop all; confirmed" in run.stderr.read()
    assert b"no server runs" in quell("stop", "--all").stderr  # nor anything else

    with Served(state_dir / "runtime") as server, running("7603") as one:
        server.session("$ sleep 7604")
        oracle.wait_for(lambda: alive("7604"), "it runs on the server")
        ended = quell("stop", "--all", "--json", "--reason", "enough", "--force")
        assert [alive("7603"), alive("7604")] == [[], []]
        told = [json.loads(line) for line in ended.stdout.splitlines()]
        assert [(one["confirmed"], one["receipt"]["reason"]) for one in told] == [(True, "enough")] * 2, told
        assert [each.get("pid") for each in told] == [None, one.pid]
        assert one.wait(BOUND) == STOPPED
        assert not server.client.get("admission")["open"]


def test_a_named_state_directory_keeps_stop_all_and_ps_to_that_server(tmp_path: Path) -> None:
    with Served(tmp_path / "mine") as server, running("7611") as run:
        assert quell("stop", "--all", "--state", server.folder).returncode == 0
        assert "terminals" not in json.loads(quell("ps", "--json", "--state", server.folder).stdout)
        assert len(alive("7611")) >= 4 and run.poll() is None


def test_runs_are_listed_and_one_is_stopped_by_its_name(state_dir: Path) -> None:
    """H14, H36: what is listed is what runs, and nothing that has ended."""
    assert quell("run", "hello", "--title", "over").returncode == 0
    with running("7621", "--title", "mine") as run, running("7622", "--title", "other") as other:
        found = listed()
        assert {title: (one["state"], one["pid"]) for title, one in found.items()} == {
            "mine": ("running", run.pid),
            "other": ("running", other.pid),
        }
        assert "another terminal, in process" in quell("ps").stdout.decode()
        shown = json.loads(quell("session", "list", "--json").stdout)["sessions"]
        assert {one["title"]: one["state"] for one in shown} == {
            "over": "closed",
            "mine": "running",
            "other": "running",
        }
        assert b"Ctrl+C there" in quell("stop", "mine", "--reach", "turn").stderr and len(alive("7621")) >= 4

        ended = quell("stop", str(found["mine"]["id"])[:6])
        assert alive("7621") == [] and len(alive("7622")) >= 4
        assert ended.returncode == 0 and f"in process {run.pid}\nconfirmed" in ended.stdout.decode(), ended
        assert run.wait(BOUND) == STOPPED
        assert list(listed()) == ["other"]

        with Served(state_dir / "runtime") as server:
            server.session(title="other")
            refused = quell("stop", "other")
            assert refused.returncode == 125 and b"name one by its id" in refused.stderr and len(alive("7622")) >= 4
            assert [one["title"] for one in json.loads(quell("ps", "--json").stdout)["sessions"]] == ["other"]


def test_a_session_that_runs_in_another_terminal_is_stopped_and_deleted() -> None:
    """H27"""
    with running("7631", "--title", "mine") as run:
        ended = quell("session", "delete", "mine", "--yes")
        assert alive("7631") == []
        assert ended.returncode == 0 and ended.stdout.startswith(b"deleted "), ended
        run.wait(BOUND)
    assert json.loads(quell("session", "list", "--json").stdout)["sessions"] == []


def test_one_of_before_is_not_deleted_by_ending_who_uses_its_log_now() -> None:
    assert quell("run", "hello", "--title", "over").returncode == 0
    with running("7641") as run:
        refused = quell("session", "delete", "over", "--yes")
        assert refused.returncode == 1 and f"in use by process {run.pid}".encode() in refused.stderr, refused
        assert len(alive("7641")) >= 4


def test_a_chat_that_is_stopped_from_outside_says_so_and_waits_for_its_person() -> None:
    """H14, H27: the next message is answered at once."""
    with Terminal(variables={**PATH, "QUELL_STATE_DIR": os.environ["QUELL_STATE_DIR"]}) as terminal:
        terminal.line("quell chat --title talk")
        terminal.expect("Ctrl+D leaves")
        terminal.line("$ sleep 7651")
        oracle.wait_for(lambda: alive("7651"), "it runs")
        assert quell("stop", "--all").returncode == 0
        assert alive("7651") == []
        terminal.expect("stopped: stop all; confirmed")
        terminal.line("hello again")
        terminal.expect("You said: hello again")
        assert listed()["talk"]["state"] == "idle"
        terminal.key("C-d")
        terminal.prompt()


def test_a_name_that_is_empty_stops_nobody(state_dir: Path) -> None:
    """It is a variable of a script that is not set, and neither all sessions nor the one that has no title."""
    with start("run", "$ sleep 7671") as run:
        oracle.wait_for(lambda: alive("7671"), "it runs")
        for names in ([""], ["nobody", ""]):
            ended = quell("stop", *names)
            assert (ended.returncode, b"ID is empty" in ended.stderr) == (125, True), ended
        assert run.poll() is None and alive("7671")
