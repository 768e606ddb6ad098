"""What the pages promise of sessions and settings, as a stranger would try it."""

import asyncio
from typing import Any

import pytest

import quell
from quell.errors import NoSessionError, UsageError
from quell.events import RuntimeReady
from quell.kernel.runtime import Runtime
from quell.ports import PluginContext, Whose

from .cast import AT_ONCE, Stage


def test_a_fork_can_be_forked_at_an_event_of_what_it_began_with(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        first = await rt.open("scripted", stage.cwd)
        await first.send("one")
        upto = first.history.last_seq
        await first.send("two")
        second = await first.fork()
        third = await second.fork(upto=upto)
        assert [one.text for one in third.history.messages("")] == ["one", "You said: one"]
        assert '"two"' not in await third.export() and '"one"' in await third.export()

    stage.play(main)


@pytest.mark.parametrize("name", [None, 3, []])
def test_what_is_no_name_of_a_session_is_refused(stage: Stage, name: Any) -> None:
    async def main(rt: Runtime) -> None:
        await (await rt.open("scripted", stage.cwd)).send("of another session")
        with pytest.raises((UsageError, NoSessionError)):
            await rt.resume(name)
        with pytest.raises((UsageError, NoSessionError)):
            await rt.delete(name)

    stage.play(main)


@pytest.mark.parametrize("after", [None, "1", 1.5, True])
def test_what_is_no_place_in_the_log_is_refused_and_not_waited_for(stage: Stage, after: Any) -> None:
    async def main(rt: Runtime) -> None:
        with pytest.raises(UsageError):
            rt.follow(after)

    stage.play(main)


@pytest.mark.parametrize(
    "limits",
    [quell.Limits(seconds="5"), quell.Limits(steps="5"), quell.Limits(steps=-1)],  # type: ignore[arg-type]
    ids=["seconds", "steps", "below nothing"],
)
def test_limits_that_make_no_sense_are_refused_before_anything_starts(stage: Stage, limits: quell.Limits) -> None:
    """A turn that raises in the step in which it begins would never end, nor would the runtime."""
    stage.agents = [stage.agent(limits=limits)]
    with pytest.raises(UsageError):
        stage.runtime()


@pytest.mark.parametrize("wish", [{"term": -1}, {"ask": "x"}, {"handler": "x"}, {"plugin": -1}])
def test_settings_that_make_no_sense_are_refused_before_anything_starts(stage: Stage, wish: Any) -> None:
    stage.settings = quell.Settings(**wish)
    with pytest.raises(UsageError):
        stage.runtime()


@pytest.mark.parametrize("wish", [{"tools": "shell"}, {"approval": "allow"}, {"approval": {"*": "allowed"}}])
def test_an_agent_that_makes_no_sense_is_refused_before_anything_starts(stage: Stage, wish: Any) -> None:
    stage.agents = [stage.agent(**wish)]
    with pytest.raises(UsageError):
        stage.runtime()


def test_a_memory_that_hangs_fails_the_turn_when_its_time_is_over(stage: Stage) -> None:
    class Forgetful:
        async def store(self, whose: Whose, text: str) -> None: ...

        async def recall(self, whose: Whose, query: str, limit: int) -> list[str]:
            await asyncio.get_running_loop().create_future()
            return []

    def part(ctx: PluginContext) -> None:
        ctx.memory("forgetful", Forgetful())

    stage.parts.append(part)
    stage.settings = quell.Settings(plugin=0.1)
    stage.agents = [stage.agent(memory="forgetful")]

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        async with asyncio.timeout(AT_ONCE):
            end = await session.send("go")
        assert end.end == "failed" and "forgetful" in end.reason

    stage.play(main)


def test_the_runtime_says_which_rung_it_stands_on(stage: Stage) -> None:
    async def main(_: Runtime) -> None: ...

    stage.play(main)
    assert [one.rung for one in stage.of(RuntimeReady)] != ["auto"]
