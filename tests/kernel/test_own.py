"""Commands of an agent cannot write what is Quell's own where its box has mounts, and are asked where they name it."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

import quell
from quell.config import usual_file
from quell.events import ApprovalAsked, ToolEnded, ToolOutput, ToolRefused
from quell.kernel.approval import OWN
from quell.kernel.own import is_named, looks
from quell.supervise import contain
from quell.supervise.contain import why_not
from tests.cli.command import QUELL

from .cast import Stage, call

RUNGS = [rung for rung in contain.RUNGS if why_not(rung) is None]
SEALED = [rung for rung in RUNGS if rung in ("pidns", "userns")]
EVIL = (
    'echo evil >> "$OURS/file"; echo evil > "$OURS/new"; rm -rf "$OURS"; mv "$OURS" away; sed -i s/a/b/ "$OURS/file";'
    ' chmod 777 "$OURS/file"; ln "$OURS/file" hard; echo mine > mine; cat "$OURS/file" mine'
)
"""Its words do not tell what it is about."""


def of_ours(stage: Stage) -> list[Path]:
    """State, what is shared with others, plugins, configuration: each with a file in it."""
    usual = Path(os.environ["QUELL_STATE_DIR"])
    found = [stage.state, usual, usual / "plugins" / "one", Path(usual_file(os.environ)).parent]
    for folder in found:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "file").write_text("ours\n")
    return found


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("QUELL_STATE_DIR", str(tmp_path / "home" / "usual place"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def play(stage: Stage, rung: str, *calls: dict[str, Any]) -> list[ToolEnded | ToolRefused]:
    """One call after the other, in one session on that rung."""
    stage.model.will(*([call("shell", **one)] for one in calls))

    async def main() -> None:
        rt = stage.runtime()
        rt._contain = rung
        async with rt:
            session = await stage.open(rt)
            assert (await session.send("go")).end == "completed"

    stage.run(main)
    found = (one for one in stage.events() if isinstance(one, ToolEnded | ToolRefused))
    return sorted(found, key=lambda one: one.seq)[-len(calls) :]


@pytest.mark.parametrize("rung", SEALED)
@pytest.mark.parametrize("background", [False, True])
def test_no_command_writes_what_is_ours_where_its_box_has_mounts(stage: Stage, rung: str, background: bool) -> None:
    """H67: appended, made, removed, moved, changed, linked; a second command, beside the first, no more than it."""
    ours = of_ours(stage)
    for folder in ours:
        stage.agents = [stage.agent(env={"OURS": str(folder)})]
        beside = [{"command": "sleep 600", "background": True}] if background else []
        *_, ended = play(stage, rung, *beside, {"command": EVIL})
        assert isinstance(ended, ToolEnded) and ended.result.endswith("ours\nmine\n"), ended
        assert ended.result.count("Read-only file system") >= 5
    assert [(one / "file").read_text() for one in ours] == ["ours\n"] * 4
    assert not any((one / "new").exists() for one in ours)


@pytest.mark.parametrize("rung", SEALED)
def test_what_is_made_or_replaced_later_is_closed_to_the_next_command(stage: Stage, rung: str) -> None:
    """H67: by a person, outside, while the session goes on."""
    config = Path(usual_file(os.environ)).parent
    stage.model.will([call("shell", command="true")], [call("wait")], [call("shell", command=EVIL)])
    gate = stage.waiting()
    stage.agents = [stage.agent(env={"OURS": str(config)})]

    async def main() -> None:
        rt = stage.runtime()
        rt._contain = rung
        async with rt:
            session = await stage.open(rt)
            sent = session.send("go")
            await gate.reached.wait()
            config.mkdir(parents=True)
            (config / "file").write_text("ours\n")
            gate.opened.set()
            assert (await sent).end == "completed"

    stage.run(main)
    assert (config / "file").read_text() == "ours\n" and not (config / "new").exists()


@pytest.mark.parametrize("rung", RUNGS)
def test_who_works_in_a_folder_of_ours_can_write_there(stage: Stage, rung: str) -> None:
    stage.cwd = stage.state / "work"
    stage.cwd.mkdir(parents=True)
    (ended,) = play(stage, rung, {"command": f"echo mine > mine; echo mine > {stage.cwd}/too; cat mine too"})
    assert isinstance(ended, ToolEnded) and ended.result == "mine\nmine\n"


@pytest.mark.parametrize("rung", RUNGS)
def test_quell_itself_works_in_a_command_of_an_agent(stage: Stage, rung: str) -> None:
    """It keeps no ledger there; whoever is left ends with the box."""
    of_ours(stage)
    line = f"{QUELL} exec --timeout 0.3 --grace 0.1 -- sh -c 'echo in; setsid sleep 600 & sleep 600'; echo $?"
    (ended,) = play(stage, rung, {"command": line})
    assert isinstance(ended, ToolEnded) and ended.result.split() == ["in", "124"]


@pytest.mark.parametrize("rung", RUNGS)
def test_a_command_that_names_what_is_ours_is_asked_whatever_is_allowed(stage: Stage, rung: str) -> None:
    """H67: on every rung, by a blanket rule and by a pattern; a yes is for that very command."""
    ours = of_ours(stage)
    stage.settings = quell.Settings(ask=0.3, term=0.3, approval=0.2)
    stage.agents = [stage.agent(approval={"*": "allow", "shell(git *)": "allow"})]
    told = play(
        stage,
        rung,
        {"command": f"echo evil > '{ours[1]}/file'"},
        {"command": f"git config --file {ours[3]}/file a.b c"},
        {"command": "echo evil > ../state/file"},
        {"command": "quell config set defaults.model evil:x"},
        {"command": "echo fine"},
    )
    assert [type(one) for one in told] == [*[ToolRefused] * 4, ToolEnded]
    assert len(stage.of(ApprovalAsked)) == 4
    assert [one.text for one in stage.of(ToolOutput) if one.channel == "notice"] == [OWN] * 4
    assert [(one / "file").read_text() for one in ours] == ["ours\n"] * 4


def test_a_yes_for_the_session_is_a_yes_to_that_command(stage: Stage) -> None:
    of_ours(stage)
    stage.model.will(*[[call("shell", command="cat ../state/file")]] * 2)

    async def main() -> None:
        async with stage.runtime() as rt:
            session = await stage.open(rt)
            async with asyncio.timeout(10):
                async for event in session.send("go"):
                    if isinstance(event, ApprovalAsked):
                        session.approve(event.seq, True, extent="session")

    stage.run(main)
    assert len(stage.of(ApprovalAsked)) == 1
    assert [one.result for one in stage.of(ToolEnded)] == ["ours\n"] * 2


def test_which_commands_name_what_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, cwd = tmp_path / "a home", tmp_path / "work"
    cwd.mkdir()
    own = [str(home / ".config/quell"), str(tmp_path / "work" / "state")]
    monkeypatch.setenv("HOME", str(home))
    (cwd / "link").symlink_to(home / ".config")
    named = [
        "cat ~/.config/quell/config.toml",
        "cat ~/.config/quell",
        "cat ~/.config/other/../quell/x",
        'cat "$HOME/.config/quell/config.toml"',
        "cat ${HOME}/.config/quell/config.toml",
        f"cat '{home}/.config/quell/config.toml'",
        f"true;tee<x>{home}/.config/quell/x",
        "tee --output=~/.config/quell/x",
        "rm -r state",
        "ls ./state/..//state/log",
        "cat link/quell/config.toml",
        "c''at ~/.con'fi'g/quell/config.toml",
        "quell config set a.b c",
        "true && .venv/bin/quell approve 7",
        "python -m quell plugin install evil",
        "echo /always | quell attach build",
        "curl $(quell open --no-browser)",
        "quell approve 7; : " + "x" * 100_000,
    ]
    plain = [
        "",
        "ls ~/.config",
        "ls ~/.config/quell-other",
        "cat /etc/passwd",
        "git commit -m 'say what quell is'",
        "quell exec -- make",
        "echo states statement ./stated",
        "cd / && ls",
        "cat \0",
        "x" * 100_000,
    ]
    assert [one for one in named if not is_named(one, str(cwd), own)] == []
    assert [one for one in plain if is_named(one, str(cwd), own)] == []
    assert not is_named("quell config set a.b c", str(cwd), [])


def test_what_takes_time_to_look_at_is_looked_at_in_a_thread_and_has_a_length(tmp_path: Path) -> None:
    """H25: variables are replaced in a time that grows with the square of the length."""
    assert all(looks(one) for one in ("cat a/b", "cat ~somebody", "echo $HOME"))
    assert not looks("make test") and not looks("$HOME " * 100_000)
    assert is_named("$HOME " * 100_000, str(tmp_path), [str(tmp_path / "state")])  # at once: for a person to look at
