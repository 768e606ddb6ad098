"""The environment that an agent's commands have: its own, and no other agent's."""

from collections.abc import Mapping
from typing import Any

import pytest

import quell
from quell.events import ToolEnded
from quell.kernel.runtime import Runtime
from quell.ports import Caller

from .cast import Stage, call


def test_the_commands_of_an_agent_have_its_variables_and_those_of_a_sub_agent_its_own(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_PROGRAM", "not for commands")
    say = 'echo "[$MINE] [$OTHER] [$OF_THE_PROGRAM] [${PATH:+path}]"'

    async def plain(_: Mapping[str, Any], caller: Caller) -> str:
        assert caller.env == {"MINE": "one", "LANG": "C"}
        process = await caller.spawn(["sh", "-c", say], stdout=quell.PIPE)
        out, _err = await process.communicate()
        return out.decode()

    stage.tool("plain", plain)
    stage.agents = [stage.agent(env={"MINE": "one", "LANG": "C"}), stage.agent("below", env={"OTHER": "two"})]
    stage.model.will(
        [call("shell", command=say), call("plain"), call("agent", agent="below", text="go")],
        [call("shell", command=say)],
    )

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert (await session.send("go")).end == "completed"

    stage.play(main)
    results = {one.result.strip() for one in stage.of(ToolEnded)}
    assert [one.result.strip() for one in stage.of(ToolEnded)].count("[one] [] [] [path]") == 2
    assert "[] [two] [] [path]" in results


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A": "\0"}, {"A": 3}, {"A\0": "x"}, ["A"]])
def test_an_environment_that_no_process_could_have_is_refused(stage: Stage, env: Any) -> None:
    stage.agents = [stage.agent(env=env)]
    with pytest.raises(quell.UsageError, match="Agent 'actor' makes no sense"):
        stage.runtime()
