"""Strategies end to end: native calls, and calls that are written as text for models that know no others."""

from typing import Any

import pytest

import quell
from quell.events import MessageDelta, ToolRequested, TurnEnded
from quell.kernel.runtime import Runtime
from quell.kernel.strategies import parse
from quell.ports import Step, Text, Thinker
from tests.supervise.loops import until

from .cast import Stage, call


def test_react_works_end_to_end_with_the_scripted_model(stage: Stage) -> None:
    stage.agents = [quell.Agent(name="texter", strategy="react", approval={"*": "allow"})]

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "texter")
        sent = session.send("$ echo one\n$ echo two")
        end = await sent
        assert (end.end, end.steps) == ("completed", 3)
        assert "one" in sent.text and "two" in sent.text and "Action" not in sent.text
        assert (await session.send("plain words")).end == "completed"

    stage.play(main)
    assert [one.arguments["command"] for one in stage.of(ToolRequested)] == ["echo one", "echo two"]
    assert not stage.of(MessageDelta)


def test_a_model_of_text_is_told_its_tools_and_what_they_did_in_text(stage: Stage) -> None:
    stage.agents = [stage.agent(strategy="react", system="Be brief.")]
    stage.model.will([Text('I note.\nAction: note\nInput: {"name": "a"}\n')], [Text("Answer: noted it")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await sent
        assert sent.text == "noted it"

    stage.play(main)
    first, second = stage.model.asks
    assert first.tools == second.tools == []
    assert first.messages[0].text.startswith("Be brief.") and "- note: does note" in first.messages[0].text
    assert [(one.role, one.calls, one.results) for one in second.messages[1:]] == [
        ("user", [], []),
        ("assistant", [], []),
        ("user", [], []),
    ]
    assert second.messages[3].text == "Observation: noted"
    assert second.messages[2].text.count("Action: note") == 1


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("just words", Step("just words")),
        ("Answer: yes", Step("yes")),
        ("hm\nAnswer: yes\nand more", Step("yes\nand more")),
        ("", Step("")),
    ],
)
def test_a_text_without_an_action_is_the_answer(text: str, step: Step) -> None:
    assert parse(text, "c") == step


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('Action: note\nInput: {"name": "a"}', {"name": "a"}),
        ('Action: note\nInput: {"name": "a"}\nObservation: made up', {"name": "a"}),
        ("Action: note", {}),
        ("Action: note\nInput: [1]", {"input": [1]}),
        ("Action: note\nInput: words", {"input": "words"}),
        ("Action: note\nInput:", {"input": ""}),
        ('Answer: no\nAction: note\nInput: {"name": "a"}', {"name": "a"}),
    ],
)
def test_an_action_is_a_call_with_whatever_input_it_has(text: str, arguments: dict[str, Any]) -> None:
    (found,) = parse(text, "c").calls
    assert (found.tool, found.arguments) == ("note", arguments)


def test_every_call_of_a_turn_has_a_name_of_its_own(stage: Stage) -> None:
    stage.agents = [stage.agent(strategy="react")]
    stage.model.will(*[[Text('Action: note\nInput: {"name": "a"}')]] * 4, [Text("Answer: so")])

    async def main(rt: Runtime) -> None:
        await (await stage.open(rt)).send("go")

    stage.play(main)
    names = [one.call for one in stage.of(ToolRequested)]
    assert len(set(names)) == len(names) == 4


def test_a_strategy_of_a_plugin_decides_without_any_model(stage: Stage) -> None:
    class Planned:
        def __init__(self) -> None:
            self.steps = [Step(calls=[call("note", name="a")]), Step("all done")]

        async def next(self, thinker: Thinker) -> Step:
            return self.steps.pop(0)

    stage.parts.append(lambda ctx: ctx.strategy("planned", Planned()))
    stage.agents = [stage.agent(strategy="planned")]

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        assert (await sent).end == "completed" and sent.text == "all done"
        await session.send("next")

    stage.play(main)
    assert stage.outside("a").exists() and not stage.model.asks
    assert [one.end for one in stage.of(TurnEnded)] == ["completed", "failed"]


@pytest.mark.parametrize("step", [None, Step(None), Step(calls=None), Step(calls=[None]), "text"], ids=repr)  # type: ignore[arg-type, list-item]
def test_a_strategy_that_decides_nonsense_fails_its_turn_and_the_log_stays_readable(stage: Stage, step: Any) -> None:
    """H35."""

    class Nonsense:
        async def next(self, thinker: Thinker) -> Any:
            return step

    stage.parts.append(lambda ctx: ctx.strategy("nonsense", Nonsense()))
    stage.agents = [stage.agent(strategy="nonsense"), stage.agent("sane")]

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("go")
        assert (await (await stage.open(rt, "sane")).send("go")).end == "completed"
        assert await until(lambda: not rt.host.journal.requests)

    stage.play(main)
    assert len(stage.of(TurnEnded)) == 2
