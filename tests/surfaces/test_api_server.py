"""What the server says of itself, and what may never be among it."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import quell
from quell.kernel.runtime import Runtime
from tests.kernel.cast import Stage
from tests.supervise.loops import until

from .house import URL, House, apart, housed


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def play(stage: Stage, main: Callable[[House], Awaitable[None]]) -> None:
    async def whole(rt: Runtime) -> None:
        async with housed(rt, stage.folder) as house:
            await main(house)

    stage.play(whole)


def test_agents_plugins_health_and_metrics_say_what_there_is(stage: Stage) -> None:
    async def main(house: House) -> None:
        agents = {one["name"]: one for one in (await house.get("/agents"))["agents"]}
        assert set(agents) == {"actor", "assistant", "scripted"} and "shell" in agents["scripted"]["tools"]
        plugins = {one["name"]: one for one in (await house.get("/plugins"))["plugins"]}
        assert "tool shell" in plugins["shell"]["provides"] and plugins["troupe"]["errors"] == 0
        health = await house.get("/health")
        assert health["status"] == "ok" and health["admitting"] and health["version"] == "1.2.3" and health["seq"] > 0
        assert health["rung"] in ("pidns", "userns", "cgroup", "subreaper")
        answer = await house.call("GET", "/metrics")
        assert answer.headers["content-type"].startswith("text/plain") and "quell_sessions{" in answer.text

    play(stage, main)


def test_settings_are_changed_and_act_on_the_next_use(stage: Stage) -> None:
    async def main(house: House) -> None:
        config = await house.ok("PATCH", "/config", {"settings": {"term": 1.5}})
        assert config["settings"]["term"] == 1.5 and config == await house.get("/config")
        assert house.rt.settings.term == 1.5

    play(stage, main)


def test_no_secret_is_shown_with_the_configuration(stage: Stage) -> None:
    """What an agent's commands are given stays with them."""
    canary = "canary-5f0c"
    stage.agents.append(
        quell.Agent(
            name="rich",
            model="actor",
            tools=(),
            env={"SERVICE_TOKEN": canary, "db_password": canary, "AWS_ACCESS_KEY_ID": canary, "EDITOR": "vi"},
        )
    )

    async def main(house: House) -> None:
        answer = await house.call("GET", "/config")
        assert canary not in answer.text
        [agent] = [one for one in answer.json()["agents"] if one["name"] == "rich"]
        assert agent["env"] == {
            "SERVICE_TOKEN": "***",
            "db_password": "***",
            "AWS_ACCESS_KEY_ID": "***",
            "EDITOR": "***",
        }
        assert canary not in (await house.call("GET", "/agents")).text

    play(stage, main)


def test_a_known_secret_is_shown_nowhere_that_is_not_from_the_log(stage: Stage) -> None:
    """In what runs, in receipts, in sentences about mistakes."""
    canary = "canary-7b1d9e"
    stage.agents.append(quell.Agent(name="poor", model="actor", tools=(), system=f"the word is {canary}"))

    async def main(house: House) -> None:
        house.rt.conceal(canary)
        id_ = (await house.post("/sessions", {"cwd": str(stage.cwd), "text": f"$ sleep 84; : {canary}"}))["id"]
        session = house.rt.host.live[id_]
        assert await until(lambda: bool(session.processes()))
        said = [
            await house.call("GET", "/config"),
            await house.call("GET", "/processes"),
            await house.call("GET", f"/sessions/{id_}/processes"),
            await house.call("POST", "/sessions", {"agent": canary}),
            await house.call("GET", f"/sessions/{canary}"),
            await house.call("PATCH", "/config", {"settings": {canary: 1}}),
            await house.call("POST", f"/sessions/{id_}/stop", {}),
            await house.call("GET", "/receipts"),
            await house.call("GET", f"/sessions/{id_}/export"),
            await house.call("GET", "/state"),
        ]
        for answer in said:
            assert canary not in answer.text, answer.text
        assert ": ***" in said[1].text and ": ***" in said[6].text, "it was there, and was masked"

    play(stage, main)


def test_markdown_is_rendered_in_order_and_safe(stage: Stage) -> None:
    async def main(house: House) -> None:
        told = await house.post("/markdown", {"texts": ["**a**", "<script>x</script>", ""]})
        assert told["html"][0].strip() == "<p><strong>a</strong></p>" and "<script" not in told["html"][1]
        assert len(told["html"]) == 3

    play(stage, main)


def test_a_launch_opens_the_page_once_and_down_is_passed_on(stage: Stage) -> None:
    async def main(house: House) -> None:
        answer = await house.call("POST", "/launches", {})
        assert answer.status_code == 201
        url, _, code = answer.json()["url"].partition("/launch?code=")
        assert url == URL and house.parts.keys is not None
        assert house.parts.keys.use_code(code) and not house.parts.keys.use_code(code)
        answer = await house.call("POST", "/down", {"force": True})
        assert answer.status_code == 202 and house.downs == [True]
        await house.post("/down")
        assert house.downs == [True, False]

    play(stage, main)


def test_the_page_is_served_from_memory_and_nothing_else_is(stage: Stage) -> None:
    web = stage.folder / "web"
    (web / "deep").mkdir(parents=True)
    (web / "index.html").write_text("<!doctype html>")
    (web / "deep" / "a.js").write_text("export {}")
    (web / "secret.txt").write_text("no page file")

    async def whole(rt: Runtime) -> None:
        async with housed(rt, web) as house:
            page = await house.client.get(URL + "/")
            assert page.text == "<!doctype html>" and page.headers["content-type"].startswith("text/html")
            script = await house.client.get(URL + "/static/deep/a.js")
            assert script.headers["content-type"].startswith("text/javascript")
            again = await house.client.get(URL + "/", headers={"If-None-Match": page.headers["etag"]})
            assert again.status_code == 304 and again.content == b""
            for path in ("/static/secret.txt", "/static/%2e%2e/state/log.sqlite", "/static/", "/static/deep"):
                assert (await house.client.get(URL + path)).status_code == 404, path

    stage.play(whole)


def test_reading_needs_no_kernel_and_orders_say_that_it_is_busy(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """H25: lists, cards and health are answered while the kernel's loop is blocked."""
    monkeypatch.setattr("quell.surfaces.http.parts.LIMIT", 0.2)
    monkeypatch.setattr("quell.surfaces.http.bridge.Bridge.ask.__defaults__", (0.2,))
    blocks, answered = threading.Event(), threading.Event()

    async def main(rt: Runtime) -> None:
        async with apart(rt, stage.folder) as (house, begin):

            async def opened() -> str:
                return str((await house.post("/sessions", {"cwd": str(stage.cwd)}))["id"])

            id_ = await begin(opened())

            async def look() -> float:
                assert await until(blocks.is_set)
                began = time.monotonic()
                for path in ("/state", "/sessions", f"/sessions/{id_}", "/approvals", "/admission", "/receipts"):
                    await house.get(path)
                for path in ("/agents", "/config", "/metrics", "/openapi.json", f"/sessions/{id_}/queue"):
                    assert (await house.call("GET", path)).status_code == 200
                await house.post("/markdown", {"texts": ["x"]})
                seconds = time.monotonic() - began
                began = time.monotonic()
                assert (await house.get("/health"))["status"] == "blocked"
                assert time.monotonic() - began < 0.7
                assert await house.fault("GET", f"/sessions/{id_}/events") == (503, "busy")
                assert await house.fault("GET", "/plugins") == (503, "busy")
                answered.set()
                return seconds

            def block() -> None:
                blocks.set()
                assert answered.wait(15)

            looked = begin(look())
            rt.host.loop.call_soon(block)
            assert await looked < 2.0
            assert (await begin(house.get("/health")))["status"] == "ok"

    stage.play(main)
