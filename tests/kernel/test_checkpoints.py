"""Whatever raises between the wish of a model and its effect: the call has one end, the turn another; it goes on."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

import quell.kernel.loop
from quell.events import ProcessSpawned, ToolEnded, ToolRefused, ToolRequested
from quell.kernel.caller import Call
from quell.kernel.isolation import Sandbox
from quell.kernel.registry import Registry
from quell.kernel.runtime import Runtime
from quell.ports import Ask, Chunk

from .cast import Stage, call

PLACES: dict[str, tuple[Any, str]] = {
    "the arguments": (quell.kernel.loop, "msgspec"),
    "the registry": (Registry, "tool"),
    "the question": (quell.kernel.loop, "permission"),
    "the caller": (Call, "__init__"),
    "the sandbox": (Sandbox, "wrap"),
    "the fence before a process": (Call, "_pass_fence"),
}


@pytest.mark.parametrize("error", [RuntimeError("planted"), SystemExit(3)], ids=repr)
@pytest.mark.parametrize("where", PLACES)
def test_whatever_raises_on_the_way_the_call_has_its_end(stage: Stage, where: str, error: BaseException) -> None:
    """H35: nothing has run. What raises while a person is asked has a test of its own."""
    stage.agents = [stage.agent("careless", isolation="bwrap" if where == "the sandbox" else "none")]

    def broken(*_: Any, **__: Any) -> Any:
        raise error

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "careless")
        with pytest.MonkeyPatch.context() as patch:

            async def answer(_: Ask) -> AsyncIterator[Chunk]:
                """What is looked up before it answers is no part of the call."""
                owner, name = PLACES[where]
                coder = SimpleNamespace(json=SimpleNamespace(encode=broken, decode=broken))
                patch.setattr(owner, name, coder if name == "msgspec" else broken)
                yield call("shell", command="touch effect")

            stage.model.will(answer)
            assert (await session.send("go")).end == "completed"
        assert (await session.send("go on")).end == "completed"
        assert not rt.host.journal.requests and "shell" in rt.plugins.loaded

    stage.play(main)
    ends = [one.error for one in stage.of(ToolEnded)] + [one.reason for one in stage.of(ToolRefused)]
    assert len(stage.of(ToolRequested)) == len(ends) == 1
    assert "planted" in ends[0] or "SystemExit" in ends[0]
    assert not stage.of(ProcessSpawned) and not stage.outside("effect").exists()
