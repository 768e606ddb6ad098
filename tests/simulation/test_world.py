"""The simulated world does what the real one does: commands end by the ladder, a disk keeps what it acknowledged."""

import asyncio
import random
from collections.abc import Callable

import pytest

from quell.errors import ScopeStoppedError, StoreError
from quell.ports import Row
from quell.supervise import Ladder
from quell.testing import virtual

from .containment import NEVER, Host, Life, SimSupervisor
from .disk import Disk, SimStore


class Steady(random.Random):
    """The first of any choice, and nothing that is improbable."""

    def choice(self, seq):  # type: ignore[no-untyped-def]  # as its parent
        return seq[-1]

    def random(self) -> float:
        return 0.9


def host() -> Host:
    return Host(Steady(), lambda: 0, [])


@pytest.mark.parametrize(("manner", "end", "seconds"), [("0.3", "signal 15", 0.3), (NEVER, "signal 9", 5.0)])
def test_a_stop_ends_a_command_by_the_ladder(manner: str, end: str, seconds: float) -> None:
    machine = host()

    async def main() -> tuple[str, float]:
        async with SimSupervisor(machine) as supervisor:
            session = supervisor.scope("session", box=True)
            process = await session.scope("turn").spawn(["work", "1000", "0", manner, "token"])
            assert [life.call for life in machine.alive] == ["token"]
            loop = asyncio.get_running_loop()
            began = loop.time()
            receipt = await session.stop()
            assert receipt.confirmed and process.returncode is not None
            return receipt.processes[0].end, loop.time() - began

    how, took = virtual.run(main)
    assert how == end and took == pytest.approx(seconds, abs=0.5)
    assert machine.alive == []


def test_a_turn_is_stopped_without_the_jobs_of_its_session() -> None:
    machine = host()

    async def main() -> None:
        async with SimSupervisor(machine) as supervisor:
            session = supervisor.scope("session", box=True)
            turn = session.scope("turn")
            job = await session.spawn(["job", "1000", "0", "0", "job"])
            work = await turn.spawn(["work", "1000", "0", "0", "work"])
            assert (await turn.stop()).confirmed
            assert work.returncode == -15 and job.returncode is None
            assert [life.call for life in machine.alive] == ["job"]
            with pytest.raises(ScopeStoppedError):
                await turn.spawn(["work", "1", "0", "0", "again"])

    virtual.run(main)
    assert machine.alive == []


def test_a_command_ends_by_itself_with_its_code() -> None:
    async def main() -> int:
        async with SimSupervisor(host()) as supervisor:
            process = await supervisor.spawn(["work", "30", "3", "0", "token"])
            return await process.wait()

    assert virtual.run(main) == 3


def test_a_force_cuts_the_grace_short() -> None:
    async def main() -> float:
        async with SimSupervisor(host(), Ladder(term=60)) as supervisor:
            scope = supervisor.scope("session", box=True)
            await scope.spawn(["work", "1000", "0", NEVER, "token"])
            loop = asyncio.get_running_loop()
            began = loop.time()
            first = asyncio.ensure_future(scope.stop())
            await asyncio.sleep(1)
            await scope.stop(force=True)
            await first
            return loop.time() - began

    assert virtual.run(main) < 3


def test_a_crash_ends_every_command_and_the_ghost_can_still_be_stopped() -> None:
    lives: list[Life] = []

    async def main() -> None:
        machine = Host(Steady(), lambda: 7, lives)
        async with SimSupervisor(machine) as supervisor:
            for number in range(3):
                await supervisor.scope(f"s{number}", box=True).spawn(["work", "1000", "0", NEVER, "token"])
            machine.crash()
            await supervisor.spawn(["ghost", "1000", "0", "0", "ghost"])

    virtual.run(main)
    assert [(life.argv[0], life.ended) for life in lives] == [("work", 7)] * 3


# -- the disk


def row(seq: int, kind: str = "message.user", session: str = "a") -> Row:
    return Row(seq, 0.0, kind, session, b"{}")


def test_what_was_acknowledged_survives_a_crash_and_numbers_are_not_used_twice() -> None:
    disk = Disk(random.Random(5))

    async def main() -> None:
        told: list[int | Exception] = []
        store = SimStore(disk)
        assert await store.open(told.append) == 0
        for seq in range(1, 200):
            store.append(row(seq), seq % 3 == 0)
            await asyncio.sleep(0.0005)
        store.crash()
        *safe, error = told
        assert isinstance(error, StoreError)
        assert 0 < disk.acknowledged < 199 and disk.acknowledged == safe[-1]
        assert [one.seq for one in disk.rows] == list(range(1, disk.safe + 1))
        again = SimStore(disk)
        assert await again.open(told.append) >= 199

    virtual.run(main)
    assert disk.offences == []


def test_what_is_no_commit_waits_for_one() -> None:
    async def main() -> list[int]:
        disk = Disk(random.Random(5))
        store = SimStore(disk)
        await store.open(lambda _: None)
        store.append(row(1), False)
        await asyncio.sleep(100)
        assert disk.rows == []
        found = await store.read(session="a", kinds=("message.",))
        store.append(row(2), True)
        await store.close()
        return [one.seq for one in [*found, *disk.rows]]

    assert virtual.run(main) == [1, 1, 2]


@pytest.mark.parametrize("fault", [SimStore.fail, SimStore.crash])
def test_a_failed_disk_says_so_once_and_keeps_nobody_waiting(fault: Callable[[SimStore], None]) -> None:
    async def main() -> list[int | Exception]:
        told: list[int | Exception] = []
        store = SimStore(Disk(random.Random(5), slowness=1.0))
        await store.open(told.append)
        store.append(row(1), True)
        reader = asyncio.ensure_future(store.read())
        await asyncio.sleep(0)
        fault(store)
        await asyncio.wait([reader])
        assert reader.exception() is None or isinstance(reader.exception(), StoreError)
        store.append(row(2), True)
        store.fail()
        await store.close()
        await asyncio.sleep(10)
        return told

    assert [type(one) for one in virtual.run(main)] == [StoreError]
