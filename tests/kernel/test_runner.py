"""A function that may block runs in a process of its call; however that ends, or is ended, the call has one end."""

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quell.errors import ToolError
from quell.events import PluginError, ProcessSpawned, ToolEnded, ToolOutput
from quell.kernel import running
from quell.kernel.functions import tool_from
from quell.kernel.runtime import Runtime
from quell.testing import cancel_everywhere
from tests.toolbox.callers import Session, alive, in_session, sessions, until

from . import errands, typed_errands
from .cast import AT_ONCE, Stage, call, live


async def run(session: Session, function: Callable[..., Any], **arguments: Any) -> str:
    return await session.call(tool_from(function, "process"), arguments)


def test_it_has_a_process_with_the_least_of_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H26: and imports nothing from the folder of the agent."""
    monkeypatch.setenv("SOME_TOKEN", "a secret of ours")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    for name in ("tests", "json", "marshal", "ntpath"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken from the folder of the agent')")

    async def body(session: Session) -> None:
        session.env = {"OF_THE_AGENT": "1"}
        seen = json.loads(await run(session, errands.look, who="you", often=2, more=[1, 2.5]))
        assert (seen["who"], seen["more"], seen["cwd"], seen["input"]) == ("youyou", [1, 2.5], str(tmp_path), "")
        assert seen["pid"] != os.getpid() and [one.returncode for one in session.spawned] == [0]
        assert "OF_THE_AGENT" in seen["environ"] and not {"SOME_TOKEN", "PYTHONPATH"} & set(seen["environ"])
        assert seen["heavy"] == [] and seen["files"] == [0, 1, 2, 3]
        assert "".join(session.shown) == "looking for you\nünd eine Warnung\n"
        assert await run(session, errands.word) == "ein Wört ?"
        assert await run(session, errands.gives_nothing) == "null"
        assert await run(session, errands.gives_much) == "é" * (1 << 20)

    in_session(tmp_path, body)


def test_arguments_arrive_as_what_they_are_and_results_are_json(tmp_path: Path) -> None:
    wanted: dict[str, Any] = {
        "at": "2024-05-06T07:08:09Z",
        "spots": [{"x": 1}],
        "color": "red",
        "place": {"city": "Lyon"},
        "tags": ["b", "a"],
    }

    async def body(session: Session) -> None:
        said = await run(session, typed_errands.describe, **wanted)
        assert said == "2024 Spot 3.5 <Color.RED: 'red'> ['a', 'b'] Place Lyon FR"
        assert await run(session, errands.numbered, names={"1": "one"}) == "{2: 'one'}"
        given = json.loads(await run(session, typed_errands.gives, day="2024-05-06"))
        assert given["day"] == "2024-05-06" and given["spot"] == {"x": 1, "y": 2.5} and given["number"] is None
        with pytest.raises(ToolError, match=r"the argument `spots\[0\]\.x` does not fit"):
            await run(session, typed_errands.describe, **(wanted | {"spots": [{"x": "1"}]}))
        with pytest.raises(ToolError, match=r"^there is no such thing; try another$"):
            await run(session, typed_errands.tells)

    in_session(tmp_path, body)


FATES = [
    (errands.fails, "ValueError", "^no good$"),
    (errands.leaves, "RuntimeError", "^SystemExit: 3$"),
    (errands.leaves_at_once, "ToolError", r"^leaves_at_once: its process ended \(exit 4\) before it gave a result$"),
    (errands.is_killed, "ToolError", "^is_killed: its process was ended by SIGKILL before it gave a result$"),
    (errands.crashes, "ToolError", "^crashes: its process was ended by SIGSEGV before"),
    (errands.gives_a_thing, "TypeError", "^gives_a_thing gave object, which has no JSON form"),
    (errands.gives_too_much, "ToolError", "^gives_too_much: its result of 17825792 bytes is too long"),
    (errands.dies_and_leaves_somebody, "ToolError", "^dies_and_leaves_somebody: its process was ended by SIGKILL"),
]


def test_however_it_ends_the_call_has_one_clear_end(tmp_path: Path) -> None:
    """H26, H35, H41."""

    async def body(session: Session) -> None:
        for function, kind, words in FATES:
            with pytest.raises(Exception, match=words) as raised:
                await run(session, function)
            assert type(raised.value).__name__ == kind
        assert "last words\n" in session.shown and 'raise ValueError("no good")' in "".join(session.shown)

    in_session(tmp_path, body)


def test_what_it_prints_forks_or_leaves_behind_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H26: and nothing of it is left after the call."""
    monkeypatch.setattr(running, "EXIT_LIMIT", 0.2)

    async def body(session: Session) -> None:
        begun = time.monotonic()
        assert await run(session, errands.floods) == "done"
        shown = "".join(session.shown)
        assert len(shown) < 300_000 and shown.endswith("[quell: what follows is not shown]\n")
        assert await run(session, errands.leaves_somebody) == "left"
        assert await run(session, errands.comes_back_twice) == "parent"
        assert await run(session, errands.lingers) == "given"
        assert time.monotonic() - begun < AT_ONCE * 2
        assert await until(lambda: all(one.over.known for one in session.spawned))

    in_session(tmp_path, body)


@pytest.mark.parametrize("how", ["asleep", "stubborn", "counting"])
def test_a_stop_ends_what_blocks_and_the_receipt_is_confirmed(stage: Stage, how: str) -> None:
    """H26: asleep, asleep without an ear for SIGTERM, and busy in C."""
    stage.parts += [lambda ctx: ctx.tool(errands.blocks), lambda ctx: ctx.tool(errands.counts)]
    stage.agents = [stage.agent(tools=("blocks", "counts"))]
    stage.model.will([call("counts") if how == "counting" else call("blocks", stubborn=how == "stubborn")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        assert (await live(rt, ToolOutput)).text == ("counting\n" if how == "counting" else "asleep\n")
        (running,) = session.processes()
        begun = time.monotonic()
        receipt = await session.stop(reach="turn")
        assert receipt.confirmed and running.pid in [one.pid for one in receipt.processes], receipt
        assert time.monotonic() - begun < AT_ONCE and not alive(running.pid)
        assert (await sent).end == "stopped"

    stage.play(main)
    (spawned,) = stage.of(ProcessSpawned)
    assert spawned.argv[0] == sys.executable and spawned.argv[-1].endswith("runner.py") and not spawned.isolation
    (ended,) = stage.of(ToolEnded)
    assert ended.error.startswith("stopped")


def test_what_it_raises_counts_against_its_plugin_and_what_it_tells_the_model_does_not(stage: Stage) -> None:
    for function in (errands.fails, typed_errands.tells, errands.is_killed):
        stage.parts.append(lambda ctx, one=function: ctx.tool(one))  # type: ignore[misc]  # mypy cannot infer it
    stage.agents = [stage.agent(tools=("fails", "tells", "is_killed"))]
    stage.model.will([call("fails")], [call("tells")], [call("is_killed")])

    async def main(rt: Runtime) -> None:
        await (await stage.open(rt)).send("go")

    stage.play(main)
    assert [one.error.partition(":")[0] for one in stage.of(ToolEnded)] == [
        "ValueError",
        "there is no such thing; try another",
        "is_killed",
    ]
    assert [one.error for one in stage.of(PluginError)] == ["ValueError: no good"]


SCRIPT = """
    import asyncio, os
    import msgspec
    import quell
    from quell.models.scripted import Scripted

    class Pair(msgspec.Struct):
        left: int
        right: int

    def add(pair: Pair) -> dict:
        '''Add.'''
        return {"sum": pair.left + pair.right, "pid": os.getpid(), "name": __name__}

    class Sums:
        name = "sums"

        def setup(self, ctx):
            ctx.tool(add, where="process")
            ctx.model("rehearsed", lambda: Scripted(
                [[{"call": "add", "arguments": {"pair": {"left": 1, "right": 2}}}], [{"say": "done"}]]))

    async def main():
        agent = quell.Agent(name="sums", model="rehearsed", tools=("add",), approval={"add": "allow"})
        async with quell.Runtime(plugins=[Sums()], agents=[agent]) as runtime:
            session = await runtime.open(agent="sums")
            events = [event async for event in session.send("add")]
        print(os.getpid(), [one.error or one.result for one in events if one.kind == "tool.ended"][0])

    asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["path", "module"])
def test_a_function_of_the_script_itself_is_found_there_and_the_script_is_not_run_again(
    how: str, tmp_path: Path
) -> None:
    """H26: though it does not ask whether it is `__main__`."""
    (tmp_path / "sums.py").write_text(textwrap.dedent(SCRIPT))
    words = ["sums.py"] if how == "path" else ["-m", "sums"]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, timeout=60, check=False)
    pid, _, result = done.stdout.decode().partition(" ")
    assert done.returncode == 0 and done.stderr == b"", done
    said = json.loads(result)
    assert (said["sum"], said["name"]) == (3, "__mp_main__") and str(said["pid"]) != pid


def test_it_is_cancelled_anywhere(tmp_path: Path) -> None:
    """H01, H02, H08: once and twice, at any step."""

    async def target() -> None:
        async with sessions(tmp_path, "one") as (session,):
            assert await run(session, errands.word) == "ein Wört ?"

    coverage = cancel_everywhere(target, budget=1.0, least=6)
    assert coverage.points_covered > 3 and coverage.pairs_covered > 1
