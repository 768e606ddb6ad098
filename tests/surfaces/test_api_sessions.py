"""Sessions over HTTP, from the first to the last: opened, spoken to, renamed, forked, restarted, exported, deleted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from quell.events import MessageUser, QueueDiscarded, decode
from quell.kernel.runtime import Runtime
from quell.ports import Ask, Chunk, Text
from tests.kernel.cast import Stage, call
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


async def opened(house: House, stage: Stage, **wishes: str) -> str:
    card = await house.post("/sessions", {"cwd": str(stage.cwd)} | wishes)
    return str(card["id"])


def test_a_session_is_opened_with_its_first_message_and_found_by_id_prefix_and_title(stage: Stage) -> None:
    async def main(house: House) -> None:
        answer = await house.call("POST", "/sessions", {"cwd": str(stage.cwd), "title": "Äpfel", "text": "hello"})
        assert answer.status_code == 201
        card = answer.json()
        id_ = card["id"]
        assert (card["title"], card["agent"], card["cwd"], card["asked"]) == (
            "Äpfel",
            "scripted",
            str(stage.cwd),
            "hello",
        )
        for word in (id_, id_[:4], "%C3%84pfel"):
            assert (await house.get(f"/sessions/{word}"))["id"] == id_
        assert (await house.card(id_, "idle"))["last"] == "You said: hello"
        assert [one["id"] for one in (await house.get("/sessions"))["sessions"]] == [id_]
        assert [one["id"] for one in (await house.get("/state"))["sessions"]] == [id_]

    play(stage, main)


def test_a_message_is_on_disk_before_it_is_acknowledged(stage: Stage) -> None:
    gate = stage.waiting()

    async def main(house: House) -> None:
        id_ = await opened(house, stage, agent="actor")
        stage.model.will([call("wait")])
        first = await house.call("POST", f"/sessions/{id_}/messages", {"text": "one"})
        assert first.status_code == 202
        assert first.json()["queued"] is False
        assert [one.text for one in stage.of(MessageUser)] == ["one"], "read from the file itself"
        await gate.reached.wait()
        second = await house.post(f"/sessions/{id_}/messages", {"text": "two"})
        assert second["queued"] is True
        [waiting] = (await house.get(f"/sessions/{id_}/queue"))["queue"]
        assert (waiting["message"], waiting["text"], waiting["parked"]) == (second["message"], "two", False)
        gate.opened.set()
        await house.card(id_, "idle")

    play(stage, main)


def test_what_a_stop_parked_is_released_or_discarded_one_by_one(stage: Stage) -> None:
    """H19: neither fired nor lost."""
    gate = stage.waiting()

    async def main(house: House) -> None:
        id_ = await opened(house, stage, agent="actor")
        stage.model.will([call("wait")])
        await house.post(f"/sessions/{id_}/messages", {"text": "one"})
        await gate.reached.wait()
        numbers = [
            (await house.post(f"/sessions/{id_}/messages", {"text": word}))["message"] for word in ("two", "three")
        ]
        told = await house.post(f"/sessions/{id_}/stop", {"reach": "turn"})
        assert told["confirmed"] and told["receipt"]["verdict"] == "confirmed"
        assert [one["parked"] for one in (await house.get(f"/sessions/{id_}/queue"))["queue"]] == [True, True]
        assert await house.fault("POST", f"/sessions/{id_}/queue/release", {"messages": [1]}) == (409, "conflict")
        assert await house.post(f"/sessions/{id_}/queue/discard", {"messages": numbers[:1]}) == {
            "messages": numbers[:1]
        }
        assert await house.post(f"/sessions/{id_}/queue/release") == {"messages": numbers[1:]}
        await house.card(id_, "idle")
        assert (await house.get(f"/sessions/{id_}"))["asked"] == "three"
        assert (await house.get(f"/sessions/{id_}/queue"))["queue"] == []

    play(stage, main)
    assert [one.messages for one in stage.of(QueueDiscarded)] != []


def test_a_session_is_renamed_forked_and_deleted_in_the_right_order(stage: Stage) -> None:
    async def main(house: House) -> None:
        id_ = await opened(house, stage, text="hello")
        await house.card(id_, "idle")
        assert (await house.ok("PATCH", f"/sessions/{id_}", {"title": "new"}))["title"] == "new"
        answer = await house.call("POST", f"/sessions/{id_}/fork", {})
        assert answer.status_code == 201
        fork = answer.json()
        assert fork["origin"] == id_ and fork["id"] != id_
        assert await house.fault("POST", f"/sessions/{id_}/fork", {"upto": 2}) == (400, "bad_request")
        assert await house.fault("DELETE", f"/sessions/{id_}") == (409, "conflict")
        assert (await house.ok("DELETE", f"/sessions/{fork['id']}"))["confirmed"]
        assert (await house.ok("DELETE", f"/sessions/{id_}"))["confirmed"]
        assert await house.fault("GET", f"/sessions/{id_}") == (404, "no_session")
        assert (await house.get("/sessions"))["sessions"] == []

    play(stage, main)


def test_who_answers_is_chosen_at_the_start_and_between_turns(stage: Stage) -> None:
    gate = stage.waiting()
    stage.model.will([call("wait")])
    stage.agents = [stage.agent(), stage.agent("modelless", model="")]

    async def main(house: House) -> None:
        assert await house.fault("POST", "/sessions", {"agent": "modelless"}) == (400, "bad_request")
        id_ = await opened(house, stage, agent="modelless", model="actor:tiny")
        card = await house.get(f"/sessions/{id_}")
        assert (card["agent"], card["model"]) == ("modelless", "actor:tiny")
        for body in ({}, {"model": ""}, {"model": "nobody:x"}, {"agent": "nobody", "title": "not taken"}):
            assert await house.fault("PATCH", f"/sessions/{id_}", body) == (400, "bad_request"), body
        card = await house.ok("PATCH", f"/sessions/{id_}", {"agent": "actor", "model": "actor:large", "title": "new"})
        assert (card["agent"], card["model"], card["title"]) == ("actor", "actor:large", "new")
        await house.post(f"/sessions/{id_}/messages", {"text": "go"})
        await gate.reached.wait()
        assert await house.fault("PATCH", f"/sessions/{id_}", {"model": "actor"}) == (409, "conflict")
        gate.opened.set()
        await house.card(id_, "idle")
        assert (await house.get(f"/sessions/{id_}"))["model"] == "actor:large"

    play(stage, main)


def test_pictures_come_with_a_message(stage: Stage) -> None:
    picture = {"media": "image/gif", "data": "R0lGODlh"}

    async def main(house: House) -> None:
        id_ = await opened(house, stage, agent="actor")
        for wrong in ([{"media": "image/png", "data": "R0lGODlh"}], [{"media": "image/gif"}], ["R0lGODlh"]):
            fault = await house.fault("POST", f"/sessions/{id_}/messages", {"text": "look", "images": wrong})
            assert fault == (400, "bad_request")
        await house.post(f"/sessions/{id_}/messages", {"text": "look", "images": [picture]})
        await house.card(id_, "idle")
        assert [(one.media, one.data) for one in stage.model.asks[0].messages[-1].images] == [("image/gif", "R0lGODlh")]

    play(stage, main)


@pytest.mark.parametrize("what", ["delete", "restart"])
def test_a_live_session_is_stopped_first(stage: Stage, what: str) -> None:
    """H27: nothing of the old one is left."""

    async def main(house: House) -> None:
        id_ = await opened(house, stage, text="$ setsid sleep 80 & sleep 81")
        session = house.rt.host.live[id_]
        assert await until(lambda: bool(session.processes()))
        [command] = (await house.get(f"/sessions/{id_}/processes"))["processes"]
        assert command["argv"][-1] == "setsid sleep 80 & sleep 81" and command["session"] == id_
        assert command["pid"] in [one["pid"] for one in command["members"]]
        assert (await house.get("/processes"))["processes"][0]["pid"] == command["pid"]
        if what == "delete":
            told = await house.ok("DELETE", f"/sessions/{id_}")
        else:
            told = await house.post(f"/sessions/{id_}/restart")
            assert told["session"]["id"] == id_ and told["session"]["state"] == "idle"
        assert told["confirmed"] and {one["pid"] for one in told["receipt"]["processes"]} >= {command["pid"]}
        assert not alive(command["pid"])
        assert (await house.get("/processes"))["processes"] == []
        if what == "restart":
            await house.post(f"/sessions/{id_}/messages", {"text": "still there?"})
            assert (await house.card(id_, "idle"))["last"] == "You said: still there?"

    play(stage, main)


def test_a_session_of_an_earlier_server_is_resumed_by_whatever_needs_it(stage: Stage) -> None:
    found: list[str] = []

    async def first(house: House) -> None:
        found.append(await opened(house, stage, text="hello"))
        await house.card(found[0], "idle")

    async def second(house: House) -> None:
        [id_] = found
        assert (await house.get(f"/sessions/{id_}"))["state"] in ("idle", "closed")
        assert (await house.post(f"/sessions/{id_}/stop"))["confirmed"], "there is nobody in it"
        await house.post(f"/sessions/{id_}/messages", {"text": "again"})
        assert (await house.card(id_, "idle"))["last"] == "You said: again"

    play(stage, first)
    play(stage, second)


def test_its_events_come_in_pages_and_its_history_without_parts_of_ended_streams(stage: Stage) -> None:
    async def main(house: House) -> None:
        id_ = await opened(house, stage, text="one two three")
        await house.card(id_, "idle")
        fork = (await house.post(f"/sessions/{id_}/fork"))["id"]
        await house.post(f"/sessions/{fork}/messages", {"text": "four"})
        await house.card(fork, "idle")
        every, after = [], 0
        while page := (await house.get(f"/sessions/{id_}/events", params={"after": after, "limit": 3}))["events"]:
            assert len(page) <= 3 and all(one["session"] == id_ for one in page)
            every += page
            after = page[-1]["seq"]
        kinds = [one["kind"] for one in every]
        assert kinds[0] == "session.opened" and "message.delta" in kinds
        history = (await house.get(f"/sessions/{fork}/history"))["events"]
        assert [one["text"] for one in history if one["kind"] == "message.user"] == ["one two three", "four"]
        assert not [one for one in history if one["kind"].endswith(".delta")]
        assert [one["seq"] for one in history] == sorted(one["seq"] for one in history)

    play(stage, main)


def test_of_a_stream_that_is_under_way_the_parts_are_shown(stage: Stage) -> None:
    gate = stage.waiting()

    async def main(house: House) -> None:
        async def slow(_: Ask) -> AsyncIterator[Chunk]:
            yield Text("half an ")
            await gate()
            yield Text("answer")

        id_ = await opened(house, stage, agent="actor")
        stage.model.will(slow)
        await house.post(f"/sessions/{id_}/messages", {"text": "go"})
        await gate.reached.wait()

        async def parts() -> list[str]:
            history = (await house.get(f"/sessions/{id_}/history"))["events"]
            return [one["text"] for one in history if one["kind"] == "message.delta"]

        for _ in range(200):  # deltas reach the disk a moment later
            if await parts():
                break
            await asyncio.sleep(0.01)
        assert await parts() == ["half an "]
        gate.opened.set()
        await house.card(id_, "idle")
        assert await parts() == []

    play(stage, main)


TITLES = ["", 'a "quoted"; name', "../../etc/passwd", "строка\r\nX-Evil: 1", "x" * 400]


def test_an_export_is_a_file_with_a_name_that_is_safe_everywhere(stage: Stage) -> None:
    async def main(house: House) -> None:
        for title in TITLES:
            id_ = await opened(house, stage, title=title, text="hello")
            await house.card(id_, "idle")
            for form, ending in (("jsonl", "jsonl"), ("markdown", "md")):
                answer = await house.call("GET", f"/sessions/{id_}/export", params={"form": form})
                words = answer.headers["content-disposition"].removeprefix('attachment; filename="').removesuffix('"')
                assert words.startswith(f"quell-{id_}") and words.endswith(f".{ending}") and len(words) < 80
                assert set(words) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")
                assert "x-evil" not in answer.headers
            lines = (await house.call("GET", f"/sessions/{id_}/export")).text.splitlines()
            assert [decode(line).kind for line in lines][:2] == ["session.opened", "message.user"]
            assert json.loads(lines[1])["text"] == "hello"
            page = await house.call("GET", f"/sessions/{id_}/export", params={"form": "markdown"})
            assert "You said: hello" in page.text

    play(stage, main)


def test_nothing_new_is_let_in_while_admission_is_closed(stage: Stage) -> None:
    async def main(house: House) -> None:
        id_ = await opened(house, stage)
        told = await house.post("/admission/close", {"reason": "a pause"})
        assert told["open"] is False and told["reason"] == "a pause"
        assert (await house.get("/admission"))["open"] is False
        assert await house.fault("POST", "/sessions", {"cwd": str(stage.cwd)}) == (409, "admission_closed")
        assert await house.fault("POST", f"/sessions/{id_}/messages", {"text": "no"}) == (409, "admission_closed")
        assert (await house.post("/admission/reopen"))["open"] is True
        await house.post(f"/sessions/{id_}/messages", {"text": "yes"})
        await house.card(id_, "idle")

    play(stage, main)
