"""`quell agent`: those that are built in and those of the file, as one list; what is added is checked before."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quell.cli import offered
from quell.cli.composing import agents_of, chosen, runtime_for
from quell.config import ASSISTANT, SCRIPTED, Agent
from quell.configfile import TAKEN, load
from quell.errors import UsageError
from quell.kernel.discovery import enabled_in
from tests.cli.test_configuration import CANARY, file, refused, say, written

__all__ = ["file"]  # the fixture

FLAGS = {
    "agent list --json": "test_all_agents_are_listed_with_the_one_that_answers_unasked",
    "agent list --config": "test_another_file_of_agents_may_be_named",
    "agent show --json": "test_an_agent_is_shown_whole_and_without_its_keys",
    "agent show --config": "test_another_file_of_agents_may_be_named",
    "agent add --model": "test_an_agent_is_added_as_the_flags_say",
    "agent add --tool": "test_an_agent_is_added_as_the_flags_say",
    "agent add --strategy": "test_an_agent_is_added_as_the_flags_say",
    "agent add --system": "test_an_agent_is_added_as_the_flags_say",
    "agent add --approve": "test_an_agent_is_added_as_the_flags_say",
    "agent add --isolation": "test_an_agent_is_added_as_the_flags_say",
    "agent add --no-network": "test_an_agent_is_added_as_the_flags_say",
    "agent add --memory": "test_an_agent_is_added_as_the_flags_say",
    "agent add --effort": "test_an_agent_is_added_as_the_flags_say",
    "agent add --from": "test_an_agent_begins_as_another_one_is",
    "agent add --replace": "test_an_agent_takes_the_place_of_another_only_if_that_is_said",
    "agent add --config": "test_another_file_of_agents_may_be_named",
    "agent remove --config": "test_another_file_of_agents_may_be_named",
}


def added(name: str = "coder") -> Agent:
    return next(one for one in load(None, os.environ).agents if one.name == name)


def listed(words: str = "agent list --json") -> dict[str, Any]:
    return {one["name"]: one for one in json.loads(say(words)[1])["agents"]}


def test_all_agents_are_listed_with_the_one_that_answers_unasked(file: Path) -> None:
    assert {name: one["default"] for name, one in listed().items()} == {"scripted": True, "assistant": False}
    assert say("config set defaults.model openai:gpt-5")[0] == 0
    assert say("agent add coder --tool shell --approve 'shell(git *)=allow' --isolation bwrap --no-network")[0] == 0
    found = listed("agent list --json")
    assert [name for name, one in found.items() if one["default"]] == ["assistant"]
    assert (found["coder"]["from"], found["scripted"]["from"]) == ("file", "built in")
    assert found["assistant"]["model"] == "openai:gpt-5"
    assert say("config set defaults.agent coder")[0] == 0
    lines = [line.split() for line in say("agent list")[1].splitlines()]
    assert lines[0] == ["NAME", "MODEL", "TOOLS", "APPROVAL", "ISOLATION", "FROM"]
    assert lines[-1] == ["coder*", "openai:gpt-5", "shell", "shell(git", "*)", "allow", "bwrap,", "offline", "file"]


def test_an_agent_is_added_as_the_flags_say(file: Path, tmp_path: Path) -> None:
    system = written(tmp_path / "system.md", "Be careful.\nBe brief.\n")
    written(file, "# mine\n[settings]\nterm = 3\n")
    assert say(
        f"agent add coder --model openai:gpt-5 --tool shell --tool read --tool shell --system @{system}"
        " --strategy react --approve 'shell(git *)=allow' --approve 'shell(git push *)=ask' --approve '*=deny'"
        " --isolation bwrap --no-network --memory sqlite --effort high"
    ) == (0, f"added coder in {file}\n", "")
    assert added() == Agent(
        name="coder",
        model="openai:gpt-5",
        tools=("shell", "read"),
        strategy="react",
        system="Be careful.\nBe brief.\n",
        approval={"shell(git *)": "allow", "shell(git push *)": "ask", "*": "deny"},
        isolation="bwrap",
        network=False,
        memory="sqlite",
        effort="high",
    )
    assert file.read_text().startswith("# mine\n[settings]\nterm = 3\n")
    assert say("agent add plain")[0] == 0
    assert added("plain") == Agent(name="plain")


def test_what_cannot_be_is_refused_and_nothing_is_written(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, sentence in {
        "x --model opnai:gpt-5": "there is no model 'opnai'; did you mean openai?",
        "x --tool shel": "there is no tool 'shel'; did you mean shell?",
        "x --strategy raect": "there is no strategy 'raect'; did you mean react?",
        "x --memory sqlit": "there is no memory 'sqlit'; did you mean sqlite?",
        "x --isolation vm": "agents.x.isolation takes none or bwrap",
        "x --effort much": "agents.x.effort takes nothing (as ''), low, medium or high",
        "x --no-network": "--no-network is of a sandbox: add --isolation bwrap",
        "x --approve shell": "--approve 'shell' makes no sense: it ends with =allow, =ask or =deny",
        "x --approve 'shell(=allow'": "--approve 'shell(=allow' makes no sense: it is *, tool, tool(pattern)",
        "x --system @/none": "--system: /none cannot be read: No such file or directory",
        "x --from assistent": "there is no agent 'assistent'; did you mean assistant?",
        "'a.b'": "'a.b' is no name of an agent: letters, digits, `_` and `-`",
        "../x": "'../x' is no name of an agent",
    }.items():
        assert sentence in refused(f"agent add {words}"), words
    assert not file.exists()
    monkeypatch.setattr(offered, "_others", lambda: True)
    monkeypatch.setenv("PATH", "/nowhere")
    code, _, said = say("agent add x --model other:one --isolation bwrap")
    assert code == 0
    assert "there is no model 'other'" in said and "a plugin must bring it" in said
    assert "needs bubblewrap" in said


def test_an_agent_begins_as_another_one_is(file: Path) -> None:
    written(
        file, "[agents.one]\ntools = ['shell']\n[agents.one.limits]\nsteps = 3\n[agents.one.approval]\nshell='deny'\n"
    )
    assert say("agent add two --from one --approve '*=ask' --model openai:x")[0] == 0
    two = added("two")
    assert (two.tools, two.limits.steps, two.model) == (("shell",), 3, "openai:x")
    assert two.approval == {"shell": "deny", "*": "ask"}
    assert say("agent add careful --from assistant --isolation bwrap")[0] == 0
    careful = added("careful")
    assert (careful.system, careful.memory, careful.tools) == (ASSISTANT.system, "sqlite", ASSISTANT.tools)


def test_an_agent_takes_the_place_of_another_only_if_that_is_said(file: Path) -> None:
    assert say("agent add coder --tool shell --memory sqlite")[0] == 0
    assert "there is an agent 'coder' already: --replace" in refused("agent add coder --tool read")
    assert say("agent add coder --tool read --replace") == (0, f"replaced coder in {file}\n", "")
    assert (added().tools, added().memory) == (("read",), "")
    assert "there is an agent 'scripted' already" in refused("agent add scripted --tool read")
    assert say("agent add scripted --tool shell --replace")[0] == 0
    assert (added("scripted").tools, added("scripted").approval) == (("shell",), SCRIPTED.approval)


def test_an_agent_is_removed_and_a_built_in_one_is_not(file: Path) -> None:
    assert "scripted is built in and cannot be removed" in refused("agent remove scripted")
    assert say("agent add coder")[0] == 0
    assert say("config set defaults.agent coder")[0] == 0
    assert "there is no agent 'codre'" in refused("agent remove codre")
    code, out, said = say("agent remove coder")
    assert (code, out) == (0, f"removed coder from {file}\n")
    assert "defaults.agent names coder still" in said
    assert say("config set agents.scripted.limits.steps 3")[0] == 0
    assert "scripted is as it was built in" in say("agent remove scripted")[1]
    assert set(listed()) == {"scripted", "assistant"}


def test_an_agent_is_shown_whole_and_without_its_keys(file: Path) -> None:
    written(
        file,
        f"[agents.coder]\nsystem = 'one\\u0007 {CANARY}'\n[agents.coder.env]\nAPI_KEY = '{CANARY}'\n".replace(
            "'one", '"one'
        ).replace(f"{CANARY}'\n[", f'{CANARY}"\n['),
    )
    file.chmod(0o600)
    found = json.loads(say("agent show coder --json")[1])
    assert set(found) == {*Agent.__struct_fields__} - {"approval"}
    assert found["env"] == {"API_KEY": {"value": "***", "from": "file"}}
    assert found["limits"]["steps"] == {"value": 50, "from": "default"}
    text = say("agent show coder")[1]
    assert "agents.coder.strategy" in text and "\a" not in text and "\\x07 ***" in text
    assert "there is no agent 'codr'; did you mean coder?" in refused("agent show codr")
    assert json.dumps(ASSISTANT.tools) in say("agent show assistant")[1]  # however long it is


def test_another_file_of_agents_may_be_named(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "team.toml"
    assert say(f"agent add coder --config {other}")[0] == 0
    assert "coder" in listed(f"agent list --json --config {other}")
    assert say(f"agent show coder --config {other}")[0] == 0
    assert say(f"agent remove coder --config {other}")[0] == 0
    assert not file.exists()


def test_flags_go_before_variables_before_the_file_before_the_defaults(tmp_path: Path) -> None:
    path = written(
        tmp_path / "c.toml", "[defaults]\nagent = 'mine'\nmodel = 'a:1'\n[agents.mine]\n[agents.own]\nmodel='b:2'\n"
    )

    def who(agent: str | None = None, model: str | None = None, **environ: str) -> tuple[str, str]:
        found = chosen(load(str(path), environ), agent, model)
        return found.name, found.model

    assert who() == ("mine", "a:1")
    assert who(QUELL_MODEL="c:3") == ("mine", "c:3")
    assert who(QUELL_AGENT="own", QUELL_MODEL="c:3") == ("own", "b:2")
    assert who("assistant", QUELL_AGENT="own") == ("assistant", "a:1")
    assert who("own", "d:4", QUELL_AGENT="mine", QUELL_MODEL="c:3") == ("own", "d:4")
    with pytest.raises(UsageError, match="there is no agent 'onw'; did you mean own"):
        who("onw")
    nothing = load(None, {"HOME": str(tmp_path)})
    assert chosen(nothing) == SCRIPTED
    assert chosen(nothing, None, "scripted:x.json").name == "scripted"
    assert (
        chosen(nothing, None, "openai:gpt-5")
        == agents_of(load(None, {"HOME": str(tmp_path), "QUELL_MODEL": "openai:gpt-5"}))["assistant"]
    )
    with pytest.raises(UsageError, match="the agent assistant has no model: name one with --model"):
        chosen(nothing, "assistant")
    offline = load(None, {"HOME": str(tmp_path), "QUELL_AGENT": "scripted"})
    assert chosen(offline, None, "openai:gpt-5").name == "assistant"  # never with a free hand by accident


def test_the_names_that_are_offered_are_those_that_are_there(tmp_path: Path, file: Path) -> None:
    """And the configuration reaches the runtime: its agents, what is off limits, what is concealed."""
    written(
        file,
        "[settings]\nterm = 3\n[models.local]\n[agents.coder]\nmemory = 'sqlite'\n"
        f"[agents.coder.env]\nAPI_KEY = '{CANARY}'\n",
    )
    runtime = runtime_for(load(None, os.environ), folder=str(tmp_path / "state"), home=str(tmp_path / "home"))

    async def look() -> None:
        async with runtime:
            registry = runtime.host.registry
            assert [name for name in offered.TOOLS if not registry.has("tool", name)] == []
            assert [name for name in offered.PROVIDERS if not registry.has("model", name)] == []
            assert [name for name in offered.MEMORIES if not registry.has("memory", name)] == []
            assert [name for name in offered.STRATEGIES if not registry.has("strategy", name)] == []
            assert registry.has("model", "local")
            session = await runtime.open("coder", tmp_path)
            assert session.agent.memory == "sqlite"
            assert runtime.host.agents["assistant"].tools == ASSISTANT.tools

    asyncio.run(look())
    assert runtime.settings.term == 3.0
    assert runtime.redact(f"x {CANARY}") == "x ***"
    assert str(file.resolve()) in runtime._off_limits
    assert runtime.home == str(tmp_path / "home")


def test_models_of_the_file_may_stand_in_for_those_that_come_with_quell(tmp_path: Path, file: Path) -> None:
    """`[models.openai]` is another address for `openai:…`; nothing that is not a model can be lost by it."""
    bundled = {one.name for one in enabled_in(tmp_path) if one.bundled}
    assert bundled - {"openai", "anthropic"} == TAKEN
    written(file, "[models.openai]\nbase_url = 'http://127.0.0.1:1/v1'\n")
    runtime = runtime_for(load(None, os.environ), folder=str(tmp_path / "state"), home=str(tmp_path / "home"))

    async def look() -> None:
        async with runtime:
            assert [one for one in runtime.plugins.loaded if one == "openai"] == ["openai"]
            assert runtime.host.registry.has("model", "openai")

    asyncio.run(look())


def test_one_that_is_built_in_and_begins_as_another_keeps_nothing_of_its_own(file: Path) -> None:
    """Above all no leave: `scripted` may use the shell, and who is put into its place may not."""
    say("agent add careful --tool shell --tool jobs --tool agent --memory sqlite")
    careful = added("careful")
    pairs = ("scripted", careful), ("assistant", careful), ("scripted", ASSISTANT), ("assistant", SCRIPTED)
    for name, origin in pairs:
        assert say(f"agent add {name} --replace --from {origin.name}")[0] == 0
        assert added(name) == msgspec.structs.replace(origin, name=name)
        say(f"agent remove {name}")
