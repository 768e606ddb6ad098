"""Schemathesis against a real server: nothing that the document allows or forbids leads to a 5xx, or to what it omits.

Left out are `GET events`, which has no end, and `POST down`, which would be the last: both have tests of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.configuration
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import quell
from quell.surfaces.http.board import Board
from quell.surfaces.http.faults import RefusedError
from quell.surfaces.http.front import Front
from quell.surfaces.http.keys import Keys
from quell.surfaces.http.openapi import document
from quell.surfaces.http.shapes import Launch
from quell.surfaces.http.sockets import hosts_of, listen_tcp

TOKEN = "0" * 64
LEFT_OUT = {("GET", "/api/v1/events"), ("POST", "/api/v1/down")}


def refused(ctx: Any, response: Any, case: Any) -> bool | None:
    """What does not fit is refused; to schemathesis a body that is too long is not refused by a 413."""
    return None if response.status_code == 413 else negative_data_rejection(ctx, response, case)


CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    refused,
]
AGENT = quell.Agent(name="scripted", tools=("shell",), approval={"*": "ask"})
"""It starts nothing, whatever it is told, unless somebody says yes to `$ true`."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """A server in a thread of its own, on a port of its own; its address."""
    address: Future[str] = Future()
    over = threading.Event()

    async def main() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        async with quell.Runtime(state_dir=folder, agents=[AGENT]) as rt:
            tcp = listen_tcp("127.0.0.1", 0)
            port = tcp.getsockname()[1]
            url = f"http://127.0.0.1:{port}"
            hosts = hosts_of("127.0.0.1", port)
            front = Front(rt, tcp=tcp, unix=None, keys=Keys(TOKEN), hosts=hosts, url=url, down=lambda _: None)
            await front.start()
            address.set_result(url)
            waiting = threading.Thread(target=lambda: (over.wait(), loop.call_soon_threadsafe(done.set)))
            waiting.start()
            await done.wait()
            waiting.join()
            front.finish("the test is over")
            await rt.close(force=True)
            await front.stop()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            if not address.done():
                address.set_exception(error)
            raise

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield address.result(20)
    finally:
        over.set()
        thread.join(20)
        assert not thread.is_alive()


def fuzz(folder: Path, examples: int, derandomize: bool, only: str = "") -> int:
    """Every operation of the document, with data that fits and data that does not. How many requests were made."""
    hypothesis.configuration.set_hypothesis_home_dir(folder / "hypothesis")
    settings = hypothesis.settings(
        max_examples=examples,
        derandomize=derandomize,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    schema = schemathesis.openapi.from_dict(document("1"))
    count = itertools.count()
    with served(folder / "state") as url, requests.Session() as http:
        http.trust_env = False
        http.headers["Authorization"] = f"Bearer {TOKEN}"
        api = f"{url}/api/v1"

        for result in schema.get_all_operations():
            operation: Any = result.ok()  # type: ignore[union-attr]  # a document that is no schema fails here
            if (operation.method.upper(), operation.path) not in LEFT_OUT and operation.path.endswith(only):
                for mode in schemathesis.GenerationMode:
                    probe(operation, mode, settings, Facts(http, api, str(folder)), count)
        state = http.get(f"{api}/state").json()
        assert state["sessions"], "the server is as it was"
        assert http.get(f"{api}/health").json()["status"] == "ok"
    return next(count)


class Facts:
    """What there is on the server, for requests that shall find something."""

    def __init__(self, http: requests.Session, api: str, cwd: str) -> None:
        self.http = http
        self.api = api
        self.cwd = cwd
        self.session = ""

    def renew(self) -> None:
        """A session with a question, a message that is parked, and a receipt."""
        self.http.post(f"{self.api}/admission/reopen", json={})
        if not self.session or self.http.get(f"{self.api}/sessions/{self.session}").status_code != 200:
            self.session = str(self.http.post(f"{self.api}/sessions", json={"cwd": self.cwd}).json()["id"])
            for text in ("$ true", "parked"):
                self.http.post(f"{self.api}/sessions/{self.session}/messages", json={"text": text})
            self.http.post(f"{self.api}/sessions/{self.session}/stop", json={})
            self.http.post(f"{self.api}/sessions/{self.session}/messages", json={"text": "$ true"})

    def number(self, path: str) -> int:
        """Of a question, or of a receipt."""
        if path.endswith("/approvals/{number}"):
            asked = self.http.get(f"{self.api}/approvals").json()["approvals"]
            return int(next((one["request"] for one in asked if one["session"] == self.session), 1))
        return int(self.http.get(f"{self.api}/receipts").json()["receipts"][0]["seq"])

    def digest(self) -> str:
        """Of what is always allowed, if anything is by now."""
        kept = self.http.get(f"{self.api}/grants").json()["grants"]
        return str(kept[-1]["digest"]) if kept else "0" * 64


def probe(operation: Any, mode: Any, settings: hypothesis.settings, facts: Facts, count: Iterator[int]) -> None:
    cases: st.SearchStrategy[Any] = operation.as_strategy(generation_mode=mode)

    @settings
    @given(case=cases, real=st.sampled_from([True, True, False]))
    def probed(case: Any, real: bool) -> None:
        next(count)
        facts.renew()
        found: dict[str, Callable[[], Any]] = {
            "id": lambda: facts.session,
            "number": lambda: facts.number(operation.path),
            "digest": facts.digest,
        }
        names = list(case.path_parameters or {}) if real else []
        for name in names:
            case.path_parameters[name] = found[name]()
        # What was wrong may have been the name, which is right now.
        checks = [one for one in CHECKS if not (names and one is refused)]
        case.call_and_validate(base_url=facts.api.removesuffix("/api/v1"), session=facts.http, checks=checks)

    run: Any = probed
    try:
        run()
    except hypothesis.errors.Unsatisfiable:
        assert mode is schemathesis.GenerationMode.NEGATIVE, operation.path  # there is nothing to get wrong


def test_no_request_leads_to_a_5xx_or_to_what_is_not_documented(tmp_path: Path) -> None:
    assert fuzz(tmp_path, 5, derandomize=True) > 300


@pytest.mark.parametrize(
    "planted",
    [RuntimeError("an error that nobody foresaw"), RefusedError(418, "teapot", "not in the document"), Launch(url="")],
    ids=["a 500", "a status that is not documented", "a body of another shape"],
)
def test_what_is_not_documented_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: Any) -> None:
    """The check can fail."""

    def snapshot(_: Board) -> Any:
        if isinstance(planted, Exception):
            raise planted
        return planted

    monkeypatch.setattr(Board, "snapshot", snapshot)
    with pytest.raises(FailureGroup):
        fuzz(tmp_path, 1, derandomize=True, only="/state")


@pytest.mark.soak
def test_no_request_of_very_many_does_either(tmp_path: Path) -> None:
    assert fuzz(tmp_path, 100, derandomize=False) > 5000
