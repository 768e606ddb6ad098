"""The one door of the HTTP API: no request and no WebSocket reaches what is behind it that may not come in.

It looks at heads only, and says nothing of what was sent: no refusal holds a secret.
"""

from __future__ import annotations

from typing import NoReturn

from starlette.types import ASGIApp, Receive, Scope, Send

from .exchange import Exchange, Reply, Talk, too_long
from .keys import Keys

BODY_LIMIT = 1 << 20
LAUNCH = "/launch"
"""The only path without a token: it takes a launch code instead, and is answered here."""

_SAFE = frozenset({"GET", "HEAD"})
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_NEAR = frozenset({None, b"same-origin", b"none"})

_PAGE = '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n{}<title>Quell</title>\n<p>{}</p>\n'
_LAUNCHED = _PAGE.format('<meta http-equiv="refresh" content="0;url=/">\n', 'Opening <a href="/">Quell</a>.')
_NOT_LAUNCHED = _PAGE.format(
    "",
    "This link was used before, or is too old. Run <code>quell open</code> for a new one, "
    'or go on to <a href="/">Quell</a> if this browser was let in already.',
)
_NOT_LET_IN = _PAGE.format("", "This browser was not let in yet. Run <code>quell open</code> where the server runs.")
_FROM_ELSEWHERE = _PAGE.format("", 'Another site sent you here. If you meant to come, go on to <a href="/">Quell</a>.')


class Guard:
    """`hosts` are the exact "host:port" that this server answers to. Without keys it stands before a Unix socket:
    who may connect is settled there, and only browsers, other content and long bodies are kept out."""

    def __init__(self, app: ASGIApp, keys: Keys | None, hosts: frozenset[str], body_limit: int = BODY_LIMIT) -> None:
        self._app = app
        self._keys = keys
        self._hosts = frozenset(host.encode() for host in hosts)
        self._limit = body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":  # the server's own: nobody can send one
            await self._app(scope, receive, send)
            return
        if scope["type"] not in {"http", "websocket"}:
            raise RuntimeError(f"the guard knows no scope of the type {scope['type']!r}")
        head = _Head(scope)
        if head.path == LAUNCH:
            scope["query_string"] = b""  # whoever logs the request from here on has no code to write down
        exchange = self._exchange(head, receive, send)
        try:
            self._check(head)
        except Reply as reply:
            await exchange.reply(reply)
            return
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception:
            if not exchange.over:  # else the app was cut off, and what it raises says nothing
                raise

    def _exchange(self, head: _Head, receive: Receive, send: Send) -> Exchange | Talk:
        if head.websocket:
            return Talk(receive, send, self._limit, responds=head.responds)
        return Exchange(receive, send, self._limit, body=head.has_body, patient=head.has(b"expect"))

    def _check(self, head: _Head) -> None:
        """In this order, so that who may not come in learns nothing but that."""
        if self._keys is not None and head.one(b"host") not in self._hosts:
            raise Reply(403, "bad_host", "this server does not answer to that host; use the address that it printed")
        self._check_origin(head)
        if self._keys is not None:
            if head.launches:
                self._launch(head, self._keys)
            self._check_token(head, self._keys)
        self._check_body(head)

    def _check_origin(self, head: _Head) -> None:
        origin = head.one(b"origin")
        # The very one that was asked: another name of this machine may be somebody else's server.
        if origin is not None and (self._keys is None or origin != b"http://" + (head.one(b"host") or b"")):
            raise Reply(403, "bad_origin", "pages of another origin may not call this server")
        # The same site is not enough: every other port of this machine is that, and is sent our cookie.
        if head.one(b"sec-fetch-site") not in _NEAR and not head.opens_launch:
            page = _FROM_ELSEWHERE if head.wants_page else ""
            raise Reply(403, "bad_origin", "pages of another site may not call this server", page=page)
        if origin is None and self._keys is not None and head.must_have_origin(self._keys.cookie_name):
            raise Reply(403, "no_origin", "a browser, and every WebSocket, must say where it comes from: send Origin")

    def _check_token(self, head: _Head, keys: Keys) -> None:
        given = head.one(b"authorization")
        if given is not None:
            scheme, _, bearer = given.decode("latin-1").partition(" ")
            good = scheme.lower() == "bearer" and keys.accepts(bearer)
        else:
            good = any(keys.accepts_cookie(each) for each in head.cookies(keys.cookie_name))
        if not good:
            page = _NOT_LET_IN if head.wants_page and given is None else ""
            sentence = "send the token as `Authorization: Bearer …`, or open the page with `quell open`"
            raise Reply(401, "no_token", sentence, page=page, headers=[(b"www-authenticate", b"Bearer")])

    def _check_body(self, head: _Head) -> None:
        length = head.one(b"content-length")
        if length is not None and (head.has(b"transfer-encoding") or not length.isdigit()):
            raise Reply(400, "bad_request", "the length of the body is not clear")
        if head.has_body and head.method not in _WITH_BODY:  # nobody would read it, nor see how long it is
            raise Reply(400, "bad_request", "only POST, PUT and PATCH have a body")
        if head.method in _WITH_BODY and not _is_json(head.one(b"content-type")):
            raise Reply(415, "bad_type", "send JSON, with `Content-Type: application/json`")
        digits = (length or b"").lstrip(b"0") or b"0"  # more than Python makes a number of may be sent
        if len(digits) > 15 or int(digits) > self._limit:
            raise too_long(self._limit)

    def _launch(self, head: _Head, keys: Keys) -> NoReturn:
        if head.method != "GET":  # a HEAD would use the code up and show nothing for it
            raise Reply(405, "no_method", "a launch is a GET", headers=[(b"allow", b"GET")])
        if not head.query.startswith(b"code=") or not keys.use_code(head.query[5:].decode("latin-1")):
            raise Reply(403, "bad_code", "", page=_NOT_LAUNCHED)
        cookie = f"{keys.cookie_name}={keys.cookie}; HttpOnly; SameSite=Strict; Path=/"
        # A page and no redirect: one that began on another site would not be sent a strict cookie.
        raise Reply(200, "", "", page=_LAUNCHED, headers=[(b"set-cookie", cookie.encode())])


class _Head:
    """What a request, or a WebSocket's handshake, says before its body."""

    def __init__(self, scope: Scope) -> None:
        self._headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            self._headers.setdefault(name.lower(), []).append(value)
        self.websocket = scope["type"] == "websocket"
        self.method: str = "GET" if self.websocket else scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.responds = "websocket.http.response" in (scope.get("extensions") or {})
        # As it was written, not as it decodes: one spelling of one path needs no token.
        self.launches = self.path == LAUNCH and scope.get("raw_path") in {None, LAUNCH.encode()} and not self.websocket
        lengths = self._headers.get(b"content-length", [])
        self.has_body = self.has(b"transfer-encoding") or any(value.strip(b"0") for value in lengths)

    def has(self, name: bytes) -> bool:
        return name in self._headers

    def one(self, name: bytes) -> bytes | None:
        """Of these headers, two would mean that somebody on the way goes by the other one."""
        values = self._headers.get(name, [])
        if len(values) > 1:
            raise Reply(400, "bad_request", f"the header {name.decode()} is there twice")
        return values[0] if values else None

    @property
    def wants_page(self) -> bool:
        accepts = b",".join(self._headers.get(b"accept", [])).lower()
        return not self.websocket and self.method in _SAFE and self.path == "/" and b"text/html" in accepts

    @property
    def opens_launch(self) -> bool:
        """The link may be followed from anywhere, but only into a window."""
        return self.launches and self.one(b"sec-fetch-dest") == b"document"

    def must_have_origin(self, cookie_name: str) -> bool:
        browser = any(name.startswith(b"sec-fetch-") for name in self._headers) or bool(self.cookies(cookie_name))
        return self.websocket or (self.method not in _SAFE and browser)

    def cookies(self, name: str) -> list[str]:
        """Each of that name: a page on another port can add one, which must not lock out the right one."""
        pairs = b";".join(self._headers.get(b"cookie", [])).decode("latin-1").split(";")
        return [value for key, _, value in (pair.strip(" \t").partition("=") for pair in pairs) if key == name]


def _is_json(kind: bytes | None) -> bool:
    """Exactly: what a browser sends to other origins without asking first is text or a form, however it is written."""
    essence, _, parameter = (kind or b"").lower().partition(b";")
    return essence.strip() == b"application/json" and parameter.strip() in {b"", b"charset=utf-8"}
