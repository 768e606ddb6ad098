"""The OpenAPI 3.1 document, made from the table of routes: what it does not say does not happen."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from .routes import ALWAYS, PREFIX, ROUTES, Route
from .shapes import Fault

REF = "#/components/schemas/{name}"
SAYINGS = {
    200: "Done.",
    201: "Made.",
    202: "Taken on.",
    400: "The request does not fit: the sentence says where.",
    401: "No token, or a wrong one.",
    403: "Not from there: a Host or an Origin that is not ours.",
    404: "There is nothing by that name.",
    409: "The state of things is in the way: the sentence says what to do.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    503: "The runtime is busy, stops, or cannot write its log.",
}
ABOUT = (
    "Quell's HTTP API. Every answer that is not 2xx is a Fault. Events come by GET /api/v1/events as Server-Sent Events"
    " and by WebSocket at /api/v1/ws with the same messages."
)
STREAM: dict[str, Any] = {
    "operationId": "follow",
    "summary": "Everything that happens, as Server-Sent Events: `snapshot`, `events`, `cards`, `cut`, `bye`.",
    "parameters": [
        {
            "name": "session",
            "in": "query",
            "description": "Only of these sessions.",
            "schema": {"type": "array", "items": {"type": "string"}},
        },
        {"name": "after", "in": "query", "schema": {"type": "integer", "minimum": 0, "maximum": (1 << 53) - 1}},
        {"name": "board", "in": "query", "schema": {"type": "boolean", "default": False}},
        {"name": "events", "in": "query", "schema": {"type": "boolean", "default": True}},
        {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string", "pattern": "^[0-9]{1,15}$"}},
    ],
}
"""The one operation that has no end, and is no row of the table."""


def document(version: str) -> dict[str, Any]:
    shapes = {one for route in ROUTES for one in (route.takes, route.gives) if one is not None} | {Fault}
    queries = [route.query for route in ROUTES if route.query is not None]
    _, components = msgspec.json.schema_components([*sorted(shapes, key=lambda one: one.__name__)], ref_template=REF)
    _, asked = msgspec.json.schema_components(queries, ref_template=REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = operation(route, asked)
    stream = {"200": {"description": SAYINGS[200], "content": {"text/event-stream": {"schema": {"type": "string"}}}}}
    paths[f"{PREFIX}/events"] = {"get": STREAM | {"responses": stream | faults(ALWAYS)}}
    own = {"200": {"description": SAYINGS[200], "content": {"application/json": {"schema": {"type": "object"}}}}}
    about = {"operationId": "openapi", "summary": "This document.", "responses": own | faults(ALWAYS)}
    paths[f"{PREFIX}/openapi.json"] = {"get": about}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Quell", "version": version, "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def operation(route: Route, queries: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"operationId": route.name, "summary": route.summary}
    if parameters := [*in_path(route.path), *in_query(route, queries)]:
        said["parameters"] = parameters
    if route.takes is not None:
        required = bool(msgspec.structs.fields(route.takes)) and any(
            field.required for field in msgspec.structs.fields(route.takes)
        )
        schema = {"$ref": REF.format(name=route.takes.__name__)}
        said["requestBody"] = {"required": required, "content": {"application/json": {"schema": schema}}}
    gives = {"$ref": REF.format(name=route.gives.__name__)} if route.gives is not None else {"type": "string"}
    content = {media: {"schema": gives} for media in route.media}
    answer: dict[str, Any] = {"description": SAYINGS[route.status], "content": content}
    said["responses"] = {str(route.status): answer} | faults((*ALWAYS, *route.faults))
    return said


def faults(statuses: tuple[int, ...]) -> dict[str, Any]:
    body = {"application/json": {"schema": {"$ref": REF.format(name="Fault")}}}
    return {str(status): {"description": SAYINGS[status], "content": body} for status in sorted(statuses)}


def in_path(path: str) -> list[dict[str, Any]]:
    shapes: dict[str, tuple[dict[str, Any], str]] = {
        "id": (
            {"type": "string", "minLength": 1},
            "A session: its id, a prefix of at least four characters, or its title.",
        ),
        "number": ({"type": "integer", "minimum": 1, "maximum": (1 << 53) - 1}, "The number of an event."),
        "digest": ({"type": "string", "pattern": "^[0-9a-f]{4,64}$"}, "A digest, or the beginning of it."),
    }
    return [
        {"name": name, "in": "path", "required": True, "schema": shapes[name][0], "description": shapes[name][1]}
        for name in re.findall(r"{(\w+)}", path)
    ]


def in_query(route: Route, queries: dict[str, Any]) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    properties: dict[str, Any] = queries[route.query.__name__]["properties"]
    return [{"name": name, "in": "query", "schema": schema} for name, schema in properties.items()]
