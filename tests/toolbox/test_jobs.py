"""A background command outlives call and turn, can be listed, read and ended, and is forgotten with its session."""

import asyncio
import re
from pathlib import Path

import pytest

from quell.errors import ToolError
from quell.toolbox.jobs import ENDED_KEPT, Jobs, JobsTool
from quell.toolbox.shell import Shell
from quell.toolbox.tape import HEAD, SEAM, TAIL

from .callers import BOUND, Session, alive, in_session, run, sessions, until


class Desk:
    """Both tools, as the plugin makes them."""

    def __init__(self, session: Session, jobs: Jobs | None = None) -> None:
        self.session = session
        self.jobs = jobs or Jobs()

    async def start(self, command: str) -> str:
        return await self.session.call(Shell(self.jobs), {"command": command, "background": True})

    async def list(self) -> str:
        return await self.session.call(JobsTool(self.jobs), {"action": "list"})

    async def read(self, job: str, after: int = 0) -> str:
        return await self.session.call(JobsTool(self.jobs), {"action": "read", "job": job, "after": after})

    async def end(self, job: str) -> str:
        return await self.session.call(JobsTool(self.jobs), {"action": "end", "job": job})


def test_a_job_is_started_at_once_listed_read_and_ended(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        desk = Desk(session)
        assert await desk.list() == "There is no background command."
        said = await desk.start("echo ready; setsid sleep 600 & wait")
        (process,) = session.jobs
        assert said == f"job-1 runs in the background, pid {process.pid}; see the tool `jobs`"
        assert session.shown == []
        assert re.fullmatch(rf"job-1, pid {process.pid}, running for \d+ s: echo ready; .* wait", await desk.list())
        assert await until(lambda: next(iter(desk.jobs.known.values()))["job-1"].tape.total == 6)
        first, place, text = (await desk.read("job-1")).split("\n", 2)
        assert first == await desk.list()
        assert (place, text) == ("[output after 0 up to 6]", "ready\n")
        assert (await desk.read("job-1", 6)).endswith("[output after 6 up to 6]\n")
        tree = [member.pid for member in await process.tree()]
        assert len(tree) == 2 and all(alive(pid) for pid in tree)
        ended = await desk.end("job-1")
        assert ended.startswith(f"job-1, pid {process.pid}, ended by SIGTERM: echo ready")
        assert not any(alive(pid) for pid in tree)
        assert "ready\n" in await desk.read("job-1")
        assert (await desk.end("job-1")).startswith(f"job-1, pid {process.pid}, ended by SIGTERM")

    in_session(tmp_path, body)


def test_a_job_outlives_its_call_and_its_turn_and_ends_with_its_session(tmp_path: Path) -> None:
    """H08: it has an owner all the time, which ends it."""

    async def body(session: Session) -> None:
        await Desk(session).start("sleep 600")
        await session.turn.stop()
        (process,) = session.jobs
        assert alive(process.pid)
        await session.scope.stop()
        assert not alive(process.pid)

    in_session(tmp_path, body)


def test_a_job_that_writes_for_ever_neither_stands_still_nor_fills_the_memory(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        desk = Desk(session)
        await desk.start("echo first; yes; echo never")
        (job,) = next(iter(desk.jobs.known.values())).values()
        assert await until(lambda: job.tape.total > 1 << 22)
        text = await desk.read("job-1")
        assert text.partition("]\n")[2].startswith("first\ny\n")
        assert HEAD + TAIL < len(text) < HEAD + TAIL + 300
        assert sum(len(each) for each in vars(job.tape).values() if isinstance(each, str)) <= HEAD + 2 * TAIL + SEAM
        late = await desk.read("job-1", job.tape.total - 10)
        assert re.search(r"\n\[output after \d+ up to \d+\]\n(\[…|[y\n]{10})", late)
        await desk.end("job-1")

    in_session(tmp_path, body)


def test_the_end_of_a_job_and_its_last_words_can_be_read_afterwards(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        desk = Desk(session)
        await desk.start("echo bye; exit 7")
        (process,) = session.jobs
        await process.over.wait()
        assert await desk.list() == f"job-1, pid {process.pid}, exit 7: echo bye; exit 7"
        assert (await desk.read("job-1")).endswith("[output after 0 up to 4]\nbye\n")

    in_session(tmp_path, body)


def test_a_job_whose_children_live_on_says_so(tmp_path: Path) -> None:
    """H17: what still runs is not called ended."""

    async def body(session: Session) -> None:
        desk = Desk(session)
        await desk.start("sleep 600 & exit 0")
        (process,) = session.jobs
        assert await process.wait() == 0
        assert "exit 0, what it started still runs" in await desk.list()
        await desk.end("job-1")
        assert "exit 0:" in await desk.list()

    in_session(tmp_path, body)


def test_a_session_sees_its_own_jobs_only_and_no_name_is_given_twice(tmp_path: Path) -> None:
    """H06: an old name never means a new job."""

    async def main() -> None:
        async with asyncio.timeout(BOUND), sessions(tmp_path, "one", "two") as (one, two):
            jobs = Jobs()
            assert (await Desk(one, jobs).start("sleep 600")).startswith("job-1 ")
            assert (await Desk(two, jobs).start("sleep 600")).startswith("job-2 ")
            assert "job-2" not in await Desk(one, jobs).list()
            with pytest.raises(ToolError, match=r"^jobs: there is no job-2; there is: job-1$"):
                await Desk(one, jobs).end("job-2")
            assert alive(two.jobs[0].pid)
            inner = Session(one.turn.scope("inner"), "inner", one.cwd)  # a sub-agent in the same box
            assert await Desk(inner, jobs).list() == "There is no background command."
            unnamed = Session(one.turn.scope("x"), "unnamed", one.cwd)
            assert await Desk(unnamed, jobs).list() == "There is no background command."

    run(main())


def test_whatever_is_known_of_a_session_is_forgotten_when_it_stops(tmp_path: Path) -> None:
    """H09, H03: after the session every map is as it was, and no descriptor is left."""

    async def main() -> None:
        async with asyncio.timeout(BOUND), sessions(tmp_path, "one", "two") as (one, two):
            jobs = Jobs()
            inner = Session(one.turn.scope("inner"), "inner", one.cwd)  # a sub-agent in the same box
            for session in (one, two, inner):
                await Desk(session, jobs).start("sleep 600")
                await Desk(session, jobs).start("true")
            assert len(jobs.known) == 3
            await inner.scope.stop()
            assert await until(lambda: len(jobs.known) == 2)
            await one.scope.stop()
            assert await until(lambda: len(jobs.known) == 1)
            assert "job-3" in await Desk(two, jobs).list()
            await two.scope.stop()
            assert await until(lambda: jobs.known == {})

    run(main())


def test_of_jobs_that_have_ended_the_last_are_kept(tmp_path: Path) -> None:
    """H09: a session that goes on for days does not collect them."""

    async def body(session: Session) -> None:
        desk = Desk(session)
        await desk.start("sleep 600")
        for _ in range(ENDED_KEPT + 3):
            await desk.start("true")
            await session.jobs[-1].over.wait()
        await desk.start("sleep 600")
        names = [line.partition(",")[0] for line in (await desk.list()).splitlines()]
        assert names == ["job-1", *(f"job-{n}" for n in range(5, ENDED_KEPT + 6))]

    in_session(tmp_path, body)


def test_a_cancelled_wait_for_the_end_of_a_job_ends_it_all_the_same(tmp_path: Path) -> None:
    """H02: whoever asked for the end is not who does it."""

    async def body(session: Session) -> None:
        desk = Desk(session)
        await desk.start("trap 'echo no' TERM; echo deaf; while :; do sleep 600 & wait; done")
        (process,) = session.jobs
        tape = next(iter(desk.jobs.known.values()))["job-1"].tape
        assert await until(lambda: tape.text() == "deaf\n")
        call = session.turn.task(desk.end("job-1"))
        assert await until(lambda: tape.text().startswith("deaf\nno\n"))
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        await process.over.wait()
        assert not alive(process.pid)

    in_session(tmp_path, body)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "jobs: Object missing required field `action` (its arguments: action, job, after)"),
        ({"action": "kill"}, "jobs: Invalid enum value 'kill' - at `$.action`"),
        ({"action": "read"}, "jobs: there is no job without a name; there is: none"),
        ({"action": "end", "job": "job-9"}, "jobs: there is no job-9; there is: none"),
        ({"action": "read", "job": "job-1", "after": -1}, "jobs: Expected `int` >= 0 - at `$.after`"),
        ({"action": "read", "job": 1}, "jobs: Expected `str`, got `int` - at `$.job`"),
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(tmp_path: Path, arguments: dict[str, object], sentence: str) -> None:
    async def body(session: Session) -> None:
        with pytest.raises(ToolError) as refusal:
            await session.call(JobsTool(Jobs()), arguments)
        assert str(refusal.value).startswith(sentence)

    in_session(tmp_path, body)
