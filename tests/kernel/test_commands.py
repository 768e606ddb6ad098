"""The commands of a session that run now, and the raw rows of the log."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from quell.events import ProcessSpawned, decode
from quell.kernel.runtime import Runtime
from quell.ports import Caller
from tests.supervise.loops import until

from .cast import Stage, call, idle


def test_a_session_tells_its_commands_in_foreground_and_background_until_they_have_ended(stage: Stage) -> None:
    """H09: the map cleans itself."""
    gate = stage.waiting("hold")

    async def both(_: Mapping[str, Any], caller: Caller) -> str:
        await caller.spawn(["sleep", "300"], background=True)
        await caller.spawn(["sh", "-c", "sleep 300 & sleep 301; :"])
        await gate()
        return "done"

    stage.tool("both", both)
    stage.model.will([call("both")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert session.processes() == []
        sent = session.send("go")
        await gate.reached.wait()
        back, front = session.processes()
        assert (back.argv, back.background, back.turn) == (["sleep", "300"], True, 1)
        assert (front.background, front.turn, front.pid) == (False, 1, front.process.pid)
        await rt.host.journal.flushed()
        assert [one.at for one in stage.of(ProcessSpawned)] == [back.since, front.since]
        assert abs(back.since - time.time()) < 60
        assert session.jobs() == (back.process,)

        async with asyncio.timeout(10):
            while len(await front.process.tree()) < 3:
                pass
        gate.opened.set()
        await sent
        assert session.processes() == [back]  # the call's own went with it
        await session.stop()
        assert session.processes() == []
        stage.model.will([call("shell", command="true")] * 3)
        await session.send("three that end by themselves")
        assert await until(lambda: not session.commands)
        await idle(session)

    stage.play(main)


def test_the_journal_gives_raw_rows_by_place_session_and_kind(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        one, two = await stage.open(rt), await stage.open(rt)
        await one.send("hello")
        await two.send("hello")
        journal = rt.host.journal
        rows = await journal.rows(0, journal.last, one.id)
        assert {row.session for row in rows} == {one.id}
        assert [decode(row.body).seq for row in rows] == [row.seq for row in rows] == sorted(row.seq for row in rows)
        some = await journal.rows(rows[0].seq, rows[-2].seq, one.id)
        assert some == rows[1:-1]
        assert [row.kind for row in await journal.rows(0, None, None, ("session.",))] == ["session.opened"] * 2
        assert await journal.rows(0, None, None, limit=2) == (await journal.rows(0, None, None))[:2]

    stage.play(main)
