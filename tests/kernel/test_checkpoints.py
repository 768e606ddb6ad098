"""Whatever raises between the wish of a model and its effect: the call has one end, and the turn another."""

from typing import Any

import pytest

import quell.kernel.loop
from quell.events import ProcessSpawned, ToolEnded, ToolRefused, ToolRequested
from quell.kernel.bus import Bus
from quell.kernel.caller import Call
from quell.kernel.isolation import Sandbox
from quell.kernel.journal import Journal
from quell.kernel.plugins import Plugins
from quell.kernel.registry import Registry
from quell.kernel.runtime import Runtime
from quell.supervise import Scope

from .cast import Stage, call

PLACES: dict[str, tuple[Any, str]] = {
    "the registry": (Registry, "tool"),
    "the owner of a tool": (Registry, "owner"),
    "the arguments": (quell.kernel.loop, "msgspec"),
    "the checkpoint itself": (quell.kernel.loop, "permission"),
    "the log": (Journal, "committed"),
    "the caller": (Call, "__init__"),
    "the scope of the call": (Scope, "scope"),
    "the sandbox": (Sandbox, "wrap"),
    "the count of successes": (Plugins, "succeeded"),
    "the count of failures": (Plugins, "failed"),
    "the bus": (Bus, "publish"),
}


@pytest.mark.parametrize("error", [RuntimeError("planted"), SystemExit(3), MemoryError()], ids=repr)
@pytest.mark.parametrize("where", PLACES)
def test_whatever_raises_on_the_way_the_call_has_its_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException
) -> None:
    """H35: nothing has run, and the runtime answers the next message."""
    stage.agents = [stage.agent("boxed", isolation="bwrap")]
    stage.model.will([call("shell", command="false" if "failures" in where else "touch effect")])
    owner, name = PLACES[where]

    def broken(*_: Any, **__: Any) -> Any:
        raise error

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "boxed")
        real = stage.model.answer

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, broken)
            print(where, await session.send("go"))
        assert (await session.send("go on")).end == "completed"
        assert not rt.host.journal.requests

    stage.play(main)
    for one in stage.events():
        if isinstance(one, (ToolRequested, ToolEnded, ToolRefused, ProcessSpawned)): print(one)
    assert len(stage.of(ToolRequested)) == len(stage.of(ToolEnded)) + len(stage.of(ToolRefused)) == 1
