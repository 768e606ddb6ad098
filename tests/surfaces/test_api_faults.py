"""Whatever is wrong with a request has a status, a code and a sentence; nothing of it is begun, nothing is a 500."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from quell.errors import (
    AdmissionClosedError,
    NoSessionError,
    QuellError,
    ScopeStoppedError,
    StoreError,
    UsageError,
)
from quell.kernel.runtime import Runtime
from quell.surfaces.http.faults import BusyError, RefusedError, answer_of
from quell.surfaces.http.routes import ROUTES
from tests.kernel.cast import Held, Stage

from .house import PREFIX, House, housed

DEEP = 100_000


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def play(stage: Stage, main: Callable[[House], Awaitable[None]]) -> None:
    async def whole(rt: Runtime) -> None:
        async with housed(rt, stage.folder) as house:
            await main(house)

    stage.play(whole)


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "more than JSON": b'{"text": "a"} {"text": "b"}',
    "not an object": b'["text"]',
    "null": b"null",
    "an unknown field": b'{"text": "a", "more": 1}',
    "a name twice": b'{"text": "a", "text": "b"}',
    "a number for a text": b'{"text": 1}',
    "NaN": b'{"text": NaN}',
    "a huge number": b'{"text": 1' + b"0" * 5000 + b"}",
    "half a character": rb'{"text": "\ud800"}',
    "half a character, and more": rb'{"text": "\ud800 and more"}',
    "not UTF-8": b'{"text": "\xff"}',
    "UTF-16": '{"text": "a"}'.encode("utf-16"),
    "a mark before it": b'\xef\xbb\xbf{"text": "a"}',
    "deep lists": b'{"text": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "an unknown field that is deep": b'{"more": ' + b"[" * DEEP,
    "empty text": b'{"text": ""}',
    "a text that is too long": b'{"text": "' + b"a" * 500_001 + b'"}',
    "a comma too many": b'{"text": "a",}',
    "a comment": b'{"text": "a" /* b */}',
}


def test_a_body_that_does_not_fit_is_a_400_and_nothing_is_begun(stage: Stage) -> None:
    async def main(house: House) -> None:
        id_ = (await house.post("/sessions", {"cwd": str(stage.cwd)}))["id"]
        before = house.rt.host.journal.last
        for name, body in BODIES.items():
            assert await house.fault("POST", f"/sessions/{id_}/messages", body) == (400, "bad_request"), name
        assert house.rt.host.journal.last == before

    play(stage, main)


def test_numbers_are_held_to_their_bounds(stage: Stage) -> None:
    async def main(house: House) -> None:
        id_ = (await house.post("/sessions", {"cwd": str(stage.cwd)}))["id"]
        for grace in (b"-1", b"3601", b"1e400", b"NaN", b"Infinity", b'"1"', b"true"):
            body = b'{"grace": ' + grace + b"}"
            assert await house.fault("POST", f"/sessions/{id_}/stop", body) == (400, "bad_request"), grace
        for upto in (b"0", b"-1", b"1.5", b"9007199254740992", b"1" * 400):
            body = b'{"upto": ' + upto + b"}"
            assert await house.fault("POST", f"/sessions/{id_}/fork", body) == (400, "bad_request"), upto
        for setting in (b'{"term": -1}', b'{"nothing": 1}', b'{"term": 1e9}', b'{"term": "1"}'):
            body = b'{"settings": ' + setting + b"}"
            assert await house.fault("PATCH", "/config", body) == (400, "bad_request"), setting

    play(stage, main)


QUERIES = (
    *("after=-1", "after=x", "after=1.5", "after=9007199254740992", "limit=0", "limit=1001", "after=1&after=2"),
    *("more=1", "limit=", "limit=%00", f"after={'9' * 5000}", "after=true", "after=%D9%A1"),
)


def test_a_query_that_does_not_fit_is_a_400(stage: Stage) -> None:
    async def main(house: House) -> None:
        id_ = (await house.post("/sessions", {"cwd": str(stage.cwd)}))["id"]
        for query in QUERIES:
            assert await house.fault("GET", f"/sessions/{id_}/events?{query}") == (400, "bad_request"), query

    play(stage, main)


ODD = [
    "%00",
    "%ff%fe",
    "...",
    "%2e%2e%2f",
    "a" * 5000,
    "%0d%0aX: 1",
    "'; --",
    "😀",
    "%25",
    "null",
    "{id}",
    "*",
    "\\",
    "~",
]


def test_names_of_nobody_are_a_404_everywhere(stage: Stage) -> None:
    async def main(house: House) -> None:
        await house.post("/sessions", {"cwd": str(stage.cwd), "title": "a title"})
        bodies: dict[str, Any] = {"amend": {"title": "x"}, "say": {"text": "x"}, "answer": {"allow": True}}
        for route in [one for one in ROUTES if "{id}" in one.path]:
            for word in ODD:
                path = route.path.replace("{id}", quote(word, safe="%")).replace("{number}", "1")
                body = None if route.takes is None else bodies.get(route.name, {})
                status, code = await house.fault(route.method, path, body)
                assert (status, code) in {(404, "no_session"), (404, "no_route")}, (route.path, word)
        for number in ("0", "-1", "x", "1.0", "%D9%A1", "9" * 5000, "9007199254740992"):
            assert await house.fault("GET", f"/receipts/{number}") == (404, "no_such_number")
        assert await house.fault("GET", "/receipts/1") == (404, "no_receipt")
        assert await house.fault("GET", "/receipts?session=nobody") == (404, "no_session")

    play(stage, main)


def test_unknown_paths_are_a_404_and_wrong_methods_a_405_with_all_that_there_are(stage: Stage) -> None:
    async def main(house: House) -> None:
        for path in ("/nothing", "/sessions/", "//sessions", "/sessions/a/b/c", "/SESSIONS"):
            assert await house.fault("GET", path) == (404, "no_route"), path
        for method, path, allowed in (
            ("PUT", "/sessions", {"GET", "POST"}),
            ("POST", "/sessions/x", {"GET", "PATCH", "DELETE"}),
            ("DELETE", "/stop", {"POST"}),
            ("OPTIONS", "/config", {"GET", "PATCH"}),
            ("POST", "/events", {"GET"}),
            ("QUERY", "/state", {"GET"}),
        ):
            answer = await house.call(method, path)
            assert answer.status_code == 405 and answer.json()["code"] == "no_method"
            assert set(answer.headers["allow"].split(", ")) == allowed
        head = await house.call("HEAD", "/state")
        assert head.status_code == 405

    play(stage, main)


def test_what_makes_no_sense_to_the_kernel_is_said_in_its_own_words(stage: Stage) -> None:
    async def main(house: House) -> None:
        for body, words in (
            ({"agent": "nobody"}, "there is no agent 'nobody'"),
            ({"cwd": "/no/such/folder"}, "is not a folder"),
            ({"cwd": "\0"}, "is not a folder"),
            ({"cwd": "/" + "x" * 5000}, "is not a folder"),
            ({"cwd": str(stage.folder / "state" / "log.sqlite")}, "is not a folder"),
        ):
            answer = await house.call("POST", "/sessions", body)
            assert answer.status_code == 400 and words in answer.json()["message"], answer.text
        assert (await house.get("/sessions"))["sessions"] == []

    play(stage, main)


def test_a_log_that_cannot_be_written_is_a_503_and_shows_in_health(stage: Stage) -> None:
    """What cannot be recorded is not acknowledged."""
    stores: list[Held] = []

    def store(path: str) -> Held:
        stores.append(Held(path))
        return stores[-1]

    stage.store = store

    async def main(house: House) -> None:
        id_ = (await house.post("/sessions", {"cwd": str(stage.cwd)}))["id"]
        stores[0].break_down(StoreError("the disk is full"))
        assert await house.fault("POST", f"/sessions/{id_}/messages", {"text": "x"}) == (503, "broken")
        assert await house.fault("POST", "/sessions", {"cwd": str(stage.cwd)}) == (503, "broken")
        health = await house.get("/health")
        assert (health["status"], health["admitting"]) == ("broken", False)
        assert (await house.get(f"/sessions/{id_}"))["id"] == id_, "what was there is still shown"

    play(stage, main)


def test_every_error_of_ours_has_its_status_and_no_other_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    for error, status in (
        (UsageError("x"), 400),
        (NoSessionError("x"), 404),
        (AdmissionClosedError("x"), 409),
        (ScopeStoppedError("x"), 503),
        (StoreError("x"), 503),
        (BusyError("x"), 503),
        (RefusedError(418, "teapot", "x"), 418),
        *((kind("x"), None) for kind in QuellError.__subclasses__() if kind.__init__ is QuellError.__init__),
    ):
        answer = answer_of(error, "a test")
        assert status is None or answer.status_code == status
        assert answer.status_code != 500
    assert answer_of(UsageError("x"), "a test", usage=409).status_code == 409
    assert not caplog.records
    with caplog.at_level(logging.ERROR, "quell"):
        answer = answer_of(RuntimeError("the secret detail"), "GET /state")
    assert answer.status_code == 500 and b"secret" not in answer.body and b'"internal"' in answer.body
    assert [(one.name, one.exc_info is not None) for one in caplog.records] == [("quell", True)]


def test_an_error_that_nobody_foresaw_is_a_500_without_detail_and_one_line_in_the_log(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(house: House) -> None:
        def broken() -> None:
            raise RuntimeError("the secret detail")

        monkeypatch.setattr(house.board, "snapshot", broken)
        answer = await house.call("GET", "/state")
        assert answer.status_code == 500 and "secret" not in answer.text

    play(stage, main)
    assert len([one for one in caplog.records if one.levelno >= logging.ERROR]) == 1
    caplog.clear()


def test_a_body_that_did_not_come_whole_begins_nothing_and_is_no_error(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(house: House) -> None:
        sent: list[dict[str, Any]] = []
        scope = {
            "type": "http",
            "method": "POST",
            "path": f"{PREFIX}/stop",
            "raw_path": f"{PREFIX}/stop".encode(),
            "query_string": b"",
            "headers": [],
            "http_version": "1.1",
        }
        said = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

        async def receive() -> Any:
            return next(said)

        async def send(message: Any) -> None:
            sent.append(message)

        await house.app(scope, receive, send)
        assert sent[0]["status"] == 400
        assert house.board.admission().open

    play(stage, main)
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []
