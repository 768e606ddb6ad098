"""The document says what the router does, and the router does what the document says."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.routing import Route, WebSocketRoute

from quell.kernel.runtime import Runtime
from quell.surfaces.http.app import build
from quell.surfaces.http.openapi import document
from quell.surfaces.http.routes import ROUTES
from quell.surfaces.http.shapes import Fault
from tests.kernel.cast import Stage

from .house import House

METHODS = ("get", "post", "put", "patch", "delete")


@pytest.fixture
def doc() -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(document("1")), type=dict[str, Any])


def operations(doc: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): one
        for path, methods in doc["paths"].items()
        for method, one in methods.items()
        if method in METHODS
    }


def test_the_live_router_and_the_document_have_the_same_operations(tmp_path: Path, doc: dict[str, Any]) -> None:
    """Both ways: a route cannot be hidden, nor be promised."""
    stage = Stage(tmp_path)
    (tmp_path / "index.html").write_text("x")
    routed: set[tuple[str, str]] = set()
    others: list[str] = []

    async def main(rt: Runtime) -> None:
        house = House(rt, asyncio.get_running_loop(), tmp_path)
        for route in build(house.parts).routes:
            if isinstance(route, Route) and route.path.startswith("/api/"):
                routed.update((method, route.path) for method in route.methods or ())
            else:
                assert isinstance(route, Route | WebSocketRoute)
                others.append(route.path)
        await house.client.aclose()
        house.bridge.close()

    stage.play(main)
    assert routed == set(operations(doc))
    assert sorted(others) == ["/", "/api/v1/ws", "/static/index.html"]


def test_every_reference_leads_somewhere_and_every_schema_is_used(doc: dict[str, Any]) -> None:
    text = msgspec.json.encode(doc).decode()
    used = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert used == set(doc["components"]["schemas"])


def test_every_operation_has_a_name_of_its_own_a_sentence_and_all_its_faults(doc: dict[str, Any]) -> None:
    every = operations(doc)
    names = [one["operationId"] for one in every.values()]
    assert len(names) == len(set(names))
    for (method, path), one in every.items():
        assert one["summary"].endswith("."), path
        statuses = {int(status) for status in one["responses"]}
        assert statuses >= {400, 401, 403, 413, 415}, path
        assert len([status for status in statuses if status < 300]) == 1
        if "{" in path:
            assert 404 in statuses, path
        if method != "GET" and not path.endswith(("/markdown", "/launches", "/down")):
            assert 503 in statuses, path
        in_path = [each["name"] for each in one.get("parameters", []) if each["in"] == "path"]
        assert in_path == re.findall(r"{(\w+)}", path)


def test_bodies_are_closed_and_faults_are_one_shape(doc: dict[str, Any]) -> None:
    schemas = doc["components"]["schemas"]
    for (_, path), one in operations(doc).items():
        if "requestBody" in one:
            [(media, body)] = one["requestBody"]["content"].items()
            name = body["schema"]["$ref"].rpartition("/")[2]
            assert media == "application/json" and schemas[name]["additionalProperties"] is False, path
            assert one["requestBody"]["required"] == bool(schemas[name]["required"])
        for status, answer in one["responses"].items():
            if int(status) >= 300:
                assert answer["content"]["application/json"]["schema"]["$ref"].endswith(f"/{Fault.__name__}")
    assert set(schemas["Fault"]["required"]) == {"code", "message"}


def test_what_every_route_takes_and_gives_is_one_of_the_shapes() -> None:
    for route in ROUTES:
        assert (route.takes is not None) == (route.method in ("POST", "PATCH", "PUT")), route.path
        assert route.gives is not None or route.media != ("application/json",), route.path
