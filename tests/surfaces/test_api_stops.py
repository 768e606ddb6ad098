"""Stops, receipts and approvals over HTTP: what is answered is what was seen, and it is in the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from quell.events import ApprovalAnswered, ApprovalAsked, StopReceipt
from quell.kernel.grants import FILE
from quell.kernel.runtime import Runtime
from tests.kernel.cast import Stage, call, live
from tests.supervise.conftest import alive
from tests.supervise.loops import until

from .house import House, housed


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def play(stage: Stage, main: Callable[[House], Awaitable[None]]) -> None:
    async def whole(rt: Runtime) -> None:
        async with housed(rt, stage.folder) as house:
            await main(house)

    stage.play(whole)


async def busy(house: House, stage: Stage) -> tuple[str, int]:
    """A session with a command that runs, and its pid."""
    card = await house.post("/sessions", {"cwd": str(stage.cwd), "text": "$ setsid sleep 82 & sleep 83"})
    session = house.rt.host.live[card["id"]]
    assert await until(lambda: bool(session.processes()))
    return session.id, session.processes()[0].pid


def test_a_stop_ends_one_session_and_the_others_live_on(stage: Stage) -> None:
    """H14: from the request to the dead processes."""

    async def main(house: House) -> None:
        (one, pid), (other, left) = await busy(house, stage), await busy(house, stage)
        told = await house.post(f"/sessions/{one}/stop", {"reason": "enough", "grace": 1})
        assert told["confirmed"] and told["sentence"] == "confirmed: nobody is left"
        assert told["receipt"]["reason"] == "enough" and told["receipt"]["survivors"] == []
        assert not alive(pid) and alive(left)
        assert (await house.get(f"/sessions/{one}"))["state"] == "idle"
        assert (await house.get(f"/sessions/{other}"))["state"] == "running"
        [slip] = (await house.get("/receipts", params={"session": one}))["receipts"]
        assert (slip["session"], slip["reach"], slip["reason"], slip["confirmed"]) == (one, "session", "enough", True)
        assert await house.get(f"/receipts/{slip['seq']}") == slip
        assert (await house.get("/receipts", params={"limit": 1}))["receipts"] == [slip]
        await house.post(f"/sessions/{other}/stop", {"force": True})
        assert not alive(left)

    play(stage, main)


def test_stop_all_ends_everything_and_closes_admission_until_it_is_reopened(stage: Stage) -> None:
    """H14, H21: from the request to the dead processes; nothing starts until somebody says so."""

    async def main(house: House) -> None:
        pids = [(await busy(house, stage))[1] for _ in range(3)]
        told = await house.post("/stop")
        assert told["confirmed"] and {one["pid"] for one in told["receipt"]["processes"]} >= set(pids)
        assert not any(alive(pid) for pid in pids)
        assert (await house.get("/admission")) == {
            "open": False,
            "reason": "stop all",
            "since": house.board.admission().since,
        }
        assert await house.fault("POST", "/sessions", {"cwd": str(stage.cwd)}) == (409, "admission_closed")
        [slip] = [one for one in (await house.get("/receipts"))["receipts"] if one["reach"] == "all"]
        assert slip["session"] == "" and slip["confirmed"]
        assert (await house.post("/admission/reopen"))["open"] is True
        assert (await house.post("/stop", {"force": True}))["confirmed"], "a stop of nobody is one too"

    play(stage, main)


def test_a_receipt_that_the_board_has_forgotten_is_read_from_the_log(stage: Stage) -> None:
    async def main(house: House) -> None:
        id_, _ = await busy(house, stage)
        await house.post(f"/sessions/{id_}/stop", {"reason": "by hand"})
        [slip] = (await house.get("/receipts"))["receipts"]
        house.board.__init__()  # type: ignore[misc]  # nothing is on it any more
        assert await house.get(f"/receipts/{slip['seq']}") == slip
        assert await house.fault("GET", f"/receipts/{slip['seq'] - 1}") == (404, "no_receipt")

    play(stage, main)
    assert len(stage.of(StopReceipt)) == 1


def test_an_approval_is_answered_once_and_for_what_was_looked_at(stage: Stage) -> None:
    stage.approval = {"*": "ask"}

    async def main(house: House) -> None:
        id_ = (await house.post("/sessions", {"cwd": str(stage.cwd), "agent": "actor"}))["id"]
        other = (await house.post("/sessions", {"cwd": str(stage.cwd), "agent": "actor"}))["id"]
        stage.model.will([call("note", name="seen")])
        await house.post(f"/sessions/{id_}/messages", {"text": "go"})
        asked = await live(house.rt, ApprovalAsked)
        await house.card(id_, "asking")
        [question] = (await house.get("/approvals"))["approvals"]
        assert (question["request"], question["tool"], question["arguments"]) == (asked.seq, "note", {"name": "seen"})
        path = f"/sessions/{id_}/approvals/{asked.seq}"
        assert await house.fault("POST", path, {"allow": True, "digest": "of something else"}) == (409, "conflict")
        assert await house.fault("POST", f"/sessions/{other}/approvals/{asked.seq}", {"allow": True}) == (
            404,
            "no_approval",
        )
        assert await house.fault("POST", f"/sessions/{id_}/approvals/{asked.seq + 1}", {"allow": True}) == (
            404,
            "no_approval",
        )
        assert not stage.outside("seen").exists()
        told = await house.post(path, {"allow": True, "digest": question["digest"], "reason": "fine"})
        assert told["allow"] is True
        assert await house.fault("POST", path, {"allow": False}) == (404, "no_approval")
        await house.card(id_, "idle")
        assert stage.outside("seen").exists()
        assert (await house.get("/approvals"))["approvals"] == []

    play(stage, main)
    assert [(one.allow, one.reason) for one in stage.of(ApprovalAnswered)] == [(True, "fine")]


def test_a_yes_goes_as_far_as_it_says_and_what_is_always_allowed_is_listed_and_revoked(stage: Stage) -> None:
    stage.approval = {"*": "ask"}

    async def main(house: House) -> None:
        id_ = (await house.post("/sessions", {"cwd": str(stage.cwd), "agent": "actor"}))["id"]

        async def go(name: str, **answer: Any) -> Any:
            """Answer what is asked; None if nothing was."""
            stage.model.will([call("note", name=name)])
            await house.post(f"/sessions/{id_}/messages", {"text": "go"})
            while (card := await house.get(f"/sessions/{id_}"))["state"] != "idle":
                for one in card["approvals"]:
                    path = f"/sessions/{id_}/approvals/{one['request']}"
                    assert await house.fault("POST", path, {"allow": True, "extent": "ever"}) == (400, "bad_request")
                    assert await house.fault("POST", path, {"allow": False, "extent": "always"}) == (400, "bad_request")
                    told = await house.post(path, {"allow": True, **answer})
                    await house.card(id_, "idle")
                    return told["extent"]
                await asyncio.sleep(0.005)
            return None

        assert await go("a") == "once"
        assert await go("a", extent="session") == "session"
        assert await go("a") is None
        assert (await house.get("/grants"))["grants"] == []
        assert await go("b", extent="always") == "always"
        assert await go("b") is None
        [kept] = (await house.get("/grants"))["grants"]
        assert (kept["agent"], kept["cwd"], kept["tool"], kept["arguments"]) == (
            "actor",
            str(stage.cwd),
            "note",
            {"name": "b"},
        )
        for word in ("0" * 64, "zz", "%2e%2e", kept["digest"] + "0", "%00"):
            assert await house.fault("DELETE", f"/grants/{word}") == (404, "no_grant")
        assert await house.fault("DELETE", f"/grants/{kept['digest'][:3]}") == (409, "conflict")
        assert await house.ok("DELETE", f"/grants/{kept['digest'][:8]}") == kept
        assert (await house.get("/grants"))["grants"] == []
        (stage.state / FILE).unlink()
        (stage.state / FILE).mkdir()
        assert await go("b", extent="always") == "once", "it could not be kept, and the answer says so"

    play(stage, main)
    assert [one.extent for one in stage.of(ApprovalAnswered)] == ["once", "session", "always", "always"]


def test_of_many_who_stop_the_same_all_get_the_receipt(stage: Stage) -> None:
    async def main(house: House) -> None:
        id_, pid = await busy(house, stage)
        scope = house.scope.scope("askers")
        asked = [scope.task(house.post(f"/sessions/{id_}/stop"), name="asker") for _ in range(10)]
        told = [await one for one in asked]
        assert all(one["confirmed"] for one in told) and not alive(pid)

    play(stage, main)
