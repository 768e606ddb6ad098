"""The HTTP API as one ASGI app: the table of routes, the streams and the page. The guard is put before it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route as Path_
from starlette.routing import WebSocketRoute

from .asking import read
from .faults import answer_of, astray, fault
from .openapi import document
from .orders import Orders
from .parts import Parts, ServerInfo
from .routes import PREFIX, ROUTES, Route
from .streams import Hub, sse, websocket

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["Parts", "ServerInfo", "build"]


def build(parts: Parts) -> Starlette:
    orders = Orders(parts)
    paths: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method] = route
    routes: list[Any] = [
        only(Path_(PREFIX + path, endpoint(by_method, orders), methods=list(by_method)))
        for path, by_method in paths.items()
    ]
    hub = Hub(parts.feed, parts.board, orders.rows)
    routes += [
        only(Path_(f"{PREFIX}/openapi.json", described(parts.info.version), methods=["GET"])),
        only(Path_(f"{PREFIX}/events", sse(hub), methods=["GET"])),
        WebSocketRoute(f"{PREFIX}/ws", websocket(hub)),
        *(only(Path_(path, file, methods=["GET"])) for path, file in page(parts.web).items()),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: astray})
    app.router.redirect_slashes = False
    return app


def only(route: Path_) -> Path_:
    """What it was made for, and not HEAD besides."""
    if route.methods is not None:
        route.methods.discard("HEAD")
    return route


def endpoint(by_method: dict[str, Route], orders: Orders) -> Callable[[Request], Any]:
    """All methods of one path, so that a wrong one is told all that there are."""

    async def answer(request: Request) -> Response:
        route = by_method[request.method]
        try:
            asked = await read(request, route.takes, route.query)
            result = await route.handler(orders, asked)
        except ClientDisconnect:  # nobody reads this; what was asked for did not come whole
            return fault(400, "bad_request", "the body did not come whole")
        except Exception as error:  # noqa: BLE001  a boundary: every error has its answer
            redact = orders.bridge.redact
            return answer_of(error, f"{route.method} {route.path}", usage=route.usage, redact=redact)
        if isinstance(result, Response):
            return result
        return Response(msgspec.json.encode(result), route.status, media_type="application/json")

    return answer


def described(version: str) -> Callable[[Request], Any]:
    body = msgspec.json.encode(document(version))

    async def answer(request: Request) -> Response:
        return Response(body, media_type="application/json")

    return answer


def page(web: Path) -> dict[str, Callable[[Request], Any]]:
    """The files of the page, read once: there is no way to any other."""
    if not (web / "index.html").is_file():
        return {}
    found = {f"/static/{one.relative_to(web).as_posix()}": one for one in sorted(web.rglob("*")) if is_page(one)}
    return {path: file(one) for path, one in found.items()} | {"/": file(web / "index.html")}


def is_page(path: Path) -> bool:
    return path.is_file() and path.suffix in TYPES


TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}


def file(path: Path) -> Callable[[Request], Any]:
    body = path.read_bytes()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"Content-Type": TYPES[path.suffix], "ETag": tag, "Cache-Control": "no-cache"}

    async def answer(request: Request) -> Response:
        known = request.headers.get("if-none-match") == tag
        return Response(b"" if known else body, 304 if known else 200, headers)

    return answer
