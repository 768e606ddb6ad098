"""`quell session`: every log of this user is read beside its writer, and changed by whoever owns it, or by us."""

import asyncio
import json
import os
import shlex
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import quell
from quell.cli import main
from quell.supervise.state import StateFolder, owner_of
from tests.cli.stand_in import StandIn, heard
from tests.cli.terminal import Terminal
from tests.cli.test_clients_alone import PATH
from tests.cli.test_configuration import CANARY, refused, say

FLAGS = {
    "session list --limit": "test_sessions_of_all_places_are_listed_the_newest_last",
    "session list --all": "test_sessions_of_all_places_are_listed_the_newest_last",
    "session list --json": "test_sessions_of_all_places_are_listed_the_newest_last",
    "session list --state": "test_a_state_directory_restricts_each_command_to_its_own",
    "session show --json": "test_a_session_is_shown_and_exported_as_it_was",
    "session show --state": "test_a_state_directory_restricts_each_command_to_its_own",
    "session export --form": "test_a_session_is_shown_and_exported_as_it_was",
    "session export -o": "test_a_file_is_written_whole_and_never_over_another_unasked",
    "session export --output": "test_a_file_is_written_whole_and_never_over_another_unasked",
    "session export --force": "test_a_file_is_written_whole_and_never_over_another_unasked",
    "session export --state": "test_a_state_directory_restricts_each_command_to_its_own",
    "session delete --yes": "test_sessions_are_forked_and_deleted_where_nobody_owns_them",
    "session delete --json": "test_sessions_are_forked_and_deleted_where_nobody_owns_them",
    "session delete --state": "test_a_state_directory_restricts_each_command_to_its_own",
    "session fork --at": "test_sessions_are_forked_and_deleted_where_nobody_owns_them",
    "session fork --json": "test_sessions_are_forked_and_deleted_where_nobody_owns_them",
    "session fork --state": "test_a_state_directory_restricts_each_command_to_its_own",
    "session fork --config": "test_a_session_is_forked_with_the_agents_of_the_file_that_is_named",
}


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def talk(folder: Path, *texts: str, title: str = "", agents: tuple[quell.Agent, ...] = ()) -> list[str]:
    """A session for each, in one runtime that has ended."""

    async def run() -> list[str]:
        async with quell.Runtime(state_dir=folder, agents=agents) as runtime:
            found = []
            for text in texts:
                session = await runtime.open(agents[0].name if agents else "scripted", folder.parent, title=title)
                await session.send(text)
                found.append(session.id)
            return found

    return asyncio.run(run())


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """As by a process that is alive: ours."""
    state = StateFolder(str(folder))
    try:
        yield
    finally:
        state.close()


@contextmanager
def owned_by_another(folder: Path) -> Iterator[int]:
    """Its pid."""
    take = "import sys; from quell.supervise import state; state.StateFolder(sys.argv[1]); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", take, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid


def listed(words: str = "session list --json") -> list[dict[str, Any]]:
    code, out, _ = say(words)
    assert code == 0
    found: list[dict[str, Any]] = json.loads(out)["sessions"]
    return found


def test_sessions_of_all_places_are_listed_the_newest_last(state_dir: Path) -> None:
    assert say("session list") == (0, "no sessions\n", "")
    run, server = state_dir / "runs" / "1", state_dir / "runtime"
    [first] = talk(run, f"$ echo {CANARY}")
    [second] = talk(server, "hello\x1b[31m", title="the second")
    [third] = talk(run, "@scripted hello", title="the third")
    found = listed()
    assert [one["id"] for one in found] == [first, second, third]
    assert [(one["where"], one["state"], one["agent"], one["model"]) for one in found] == [
        ("run", "closed", "scripted", "scripted"),
        ("server", "closed", "scripted", "scripted"),
        ("run", "closed", "scripted", "scripted"),
    ]
    assert (found[0]["asked"], found[1]["title"], found[0]["folder"]) == ("$ echo ***", "the second", str(run))
    code, out, said = say("session list --limit 1")
    assert (code, "the third" in out, "the second" in out) == (0, True, False)
    assert "2 more are older: --limit 3 lists all" in said
    everyone = listed("session list --json --all")
    assert [(one["parent"], one["asked"]) for one in everyone if one["id"] not in (first, second, third)] == [
        (third, "hello")
    ]
    with owned(server):
        assert [one["state"] for one in listed()] == ["closed", "idle", "closed"]
        cards = {"sessions": [{"id": second, "state": "asking"}]}
        with StandIn(server, {"GET /sessions": cards}):
            assert [one["state"] for one in listed()] == ["closed", "asking", "closed"]
    (state_dir / "runs" / "2").mkdir()
    (state_dir / "runs" / "2" / "log.sqlite").write_bytes(b"nonsense" * 100)
    code, out, said = say("session list")
    assert code == 0 and first in out and "is not a database" in said
    (state_dir / "runs" / "2" / "log.sqlite").unlink()


def test_a_session_is_shown_and_exported_as_it_was(state_dir: Path) -> None:
    [id_] = talk(state_dir / "runtime", f"$ echo {CANARY}", title="the one")
    for word in (id_, id_[:4], "the one"):
        code, out, _ = say(f"session show {shlex.quote(word)}")
        assert code == 0
        assert "opened with scripted" in out and "echo ***" in out and "turn 1 completed" in out
    events = [json.loads(line) for line in say(f"session show {id_} --json")[1].splitlines()]
    assert [one["kind"] for one in events][:2] == ["session.opened", "message.user"]
    assert say(f"session export {id_}")[1].startswith("# the one\n\n## User\n\n> $ echo \\*\\*\\*".replace("\\", ""))
    lines = say(f"session export {id_} --form jsonl")[1].splitlines()
    assert [json.loads(line) for line in lines] == events
    assert "there is no session 'nope'; there is" in refused("session show nope")
    assert "'markdown', 'jsonl'" in refused(f"session export {id_} --form pdf")


def test_a_file_is_written_whole_and_never_over_another_unasked(state_dir: Path, tmp_path: Path) -> None:
    [id_] = talk(state_dir / "runtime", "hello")
    file = tmp_path / "out" / "talk.md"
    file.parent.mkdir()
    assert say(f"session export {id_} -o {file}") == (0, "", f"quell: wrote {file}\n")
    text = file.read_text()
    file.write_text("mine")
    assert f"{file} is there already: --force writes over it" in refused(f"session export {id_} --output {file}")
    assert file.read_text() == "mine"
    assert say(f"session export {id_} -o {file} --force")[0] == 0
    assert file.read_text() == text
    assert [one.name for one in file.parent.iterdir()] == ["talk.md"]
    assert "is a folder" in refused(f"session export {id_} -o {tmp_path}")
    assert "cannot be written" in refused(f"session export {id_} -o {tmp_path}/none/x")
    assert "--force is of a file" in refused(f"session export {id_} --force")
    assert say(f"session export {id_} -o /dev/null")[0] == 0
    assert "/dev/full cannot be written: No space left on device" in refused(f"session export {id_} -o /dev/full")


def test_sessions_are_forked_and_deleted_where_nobody_owns_them(state_dir: Path) -> None:
    first, second = talk(state_dir / "runs" / "1", "hello", "$ echo there")
    code, out, _ = say(f"session fork {first}")
    forked = out.strip()
    assert code == 0 and forked not in (first, second)
    assert "hello" in say(f"session show {forked}")[1]
    events = [json.loads(line) for line in say(f"session show {first} --json")[1].splitlines()]
    at = next(one["seq"] for one in events if one["kind"] == "message.user")
    early = json.loads(say(f"session fork {first} --at {at} --json")[1])
    assert (early["origin"], early["folder"]) == (first, str(state_dir / "runs" / "1"))
    assert "You said" not in say(f"session show {early['id']}")[1]
    assert "forked at the number of one of its events, and 999999 is none" in refused(
        f"session fork {first} --at 999999"
    )
    assert "there is nobody to ask: --yes deletes without asking" in refused(f"session delete {second}")
    assert say(f"session delete {second} {second} --yes") == (0, f"deleted {second}\n", "")
    assert "was forked into" in refused(f"session delete {first} --yes", 1)
    code, out, _ = say(f"session delete {forked} {early['id']} {first} --yes --json")
    assert (code, json.loads(out)) == (0, {"deleted": [forked, early["id"], first], "faults": []})
    assert listed() == []


def test_a_person_is_asked_before_anything_is_deleted(state_dir: Path) -> None:
    [id_] = talk(state_dir / "runs" / "1", "hello", title="dear to me")
    with Terminal(variables={**PATH, "QUELL_STATE_DIR": str(state_dir)}) as terminal:
        for answer, code in (("n", 1), ("yes", 0)):
            terminal.line(f"quell session delete {id_}; echo code $?")
            assert "dear to me" in terminal.expect("for good? [y/N]")
            terminal.send(f"{answer}\n")
            terminal.expect(f"code {code}")
            assert [one["id"] for one in listed()] == ([id_] if code else [])
            if code:
                terminal.resize(24, 40)
                rows = [line for line in terminal.run("quell session list").splitlines() if line.startswith(id_)]
                assert [len(line.rstrip()) for line in rows] == [40]


def test_what_somebody_else_owns_is_changed_by_them(state_dir: Path) -> None:
    server, run = state_dir / "runtime", state_dir / "runs" / "1"
    [served], [running] = talk(server, "hello"), talk(run, "hello")
    assert owner_of(str(server)) is None
    with owned(server), owned_by_another(run) as pid:
        assert (owner_of(str(server)), owner_of(str(run))) == (os.getpid(), pid)
        assert f"session {running} is in use by process {pid}" in refused(f"session delete {running} --yes", 1)
        assert "end that one first" in refused(f"session fork {running}")
        answers = {
            f"DELETE /sessions/{served}": {"confirmed": True, "sentence": "", "receipt": {}},
            f"POST /sessions/{served}/fork": {"id": "beefbeef01"},
        }
        with StandIn(server, answers) as stand_in:
            assert say(f"session fork {served} --at 7") == (0, "beefbeef01\n", "")
            assert say(f"session delete {served} --yes") == (0, f"deleted {served}\n", "")
            assert stand_in.bodies(f"POST /sessions/{served}/fork") == [{"upto": 7}]
    assert {one["id"] for one in listed()} == {served, running}  # the log is theirs


def test_a_state_directory_restricts_each_command_to_its_own(state_dir: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    [here], [there] = talk(mine, "hello"), talk(state_dir / "runtime", "hello")
    assert [one["id"] for one in listed(f"session list --json --state {mine}")] == [here]
    assert [one["id"] for one in listed()] == [there]
    for command in ("show", "export", "fork", "delete --yes"):
        assert f"there is no session '{there}'; there is" in refused(f"session {command} {there} --state {mine}")
    assert "hello" in say(f"session show {here} --state {mine}")[1]
    assert "hello" in say(f"session export {here} --state {mine}")[1]
    forked = say(f"session fork {here} --state {mine}")[1].strip()
    assert say(f"session delete {forked} --yes --state {mine}")[0] == 0
    assert not (state_dir / "memory.sqlite").exists()


def test_a_session_is_forked_with_the_agents_of_the_file_that_is_named(state_dir: Path, tmp_path: Path) -> None:
    [id_] = talk(state_dir / "runs" / "1", "hello", agents=(quell.Agent(name="mine"),))
    assert "there is no agent 'mine'" in refused(f"session fork {id_}")
    config = tmp_path / "team.toml"
    config.write_text("[agents.mine]\n")
    assert say(f"session fork {id_} --config {config}")[0] == 0


def test_ids_are_completed_without_a_server(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = talk(state_dir / "runs" / "1", "hello", "hello")
    monkeypatch.setenv("_QUELL_COMPLETE", "complete_bash")
    for words, number in (("session show", 3), ("session delete", 3), ("session", 2)):
        monkeypatch.setenv("COMP_WORDS", f"quell {words} ")
        monkeypatch.setenv("COMP_CWORD", str(number))
        assert main(()) == 0
        assert set(capsys.readouterr().out.split()) == (
            set(ids) if number == 3 else {"list", "show", "export", "delete", "fork"}
        )


def test_a_folder_or_log_that_is_none_is_told_and_left_alone(state_dir: Path, tmp_path: Path) -> None:
    assert "there are no sessions in" in refused(f"session list --state {tmp_path}")
    assert "--state is empty" in refused("session list --state ''")
    assert not (tmp_path / "log.sqlite").exists()
    [kept] = talk(state_dir / "runtime", "hello")
    [lost] = talk(state_dir / "runs" / "1", "other")
    with sqlite3.connect(state_dir / "runs" / "1" / "log.sqlite") as log:
        log.execute("UPDATE events SET body = X'7b' WHERE kind = 'message.user'")
    log.close()
    code, out, err = say("session list")
    assert code == 0 and kept in out and lost not in out and "is damaged, and is left as it is" in err
    assert "is damaged" in refused(f"session export {lost}")
    code, _, err = say(f"session show {lost}")  # up to there
    assert code == 125 and "is damaged" in err
    (state_dir / "runs" / "1" / "log.sqlite").write_text("no log")
    said = refused(f"session show {lost}")
    assert f"there is {kept}, and the log " in said and "is not a database" in said
    (state_dir / "runs" / "1" / "log.sqlite").unlink()  # which is no log that a runtime would write


def test_a_long_log_is_listed_at_once(state_dir: Path) -> None:
    """Only what is needed of it is read: 20 sessions among 50,000 parts of answers, 17 MB in all."""
    folder = state_dir / "runtime"
    [id_] = talk(folder, "hello")
    with sqlite3.connect(folder / "log.sqlite") as log:
        (top,) = log.execute("SELECT max(seq) FROM events").fetchone()
        body = json.dumps({"kind": "message.delta", "text": "x" * 280, "request": 1})
        rows = ((top + one, 1.0, "message.delta", f"other{one % 20:02}", body.encode()) for one in range(1, 50_001))
        log.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", rows)
    log.close()
    begun = time.process_time()
    assert [one["id"] for one in listed()] == [id_]
    assert time.process_time() - begun < 0.1
    (folder / "log.sqlite").unlink()  # which is no log that a runtime would write
    assert heard("session", "list")[1] == "no sessions\n"
