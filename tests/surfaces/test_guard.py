"""What the guard lets in and what it keeps out, header by header, driven as plain ASGI."""

import logging
from collections.abc import Sequence

import pytest
from starlette.types import Message, Receive, Scope, Send

from quell.surfaces.http import exchange
from quell.surfaces.http.exchange import POLICY
from quell.surfaces.http.guard import Guard
from quell.surfaces.http.keys import Keys

from .knock import BEARER, HOST, HOSTS, JSON, ORIGIN, TOKEN, Answer, Header, cookie, head, http, speak, websocket

LIMIT = 1000
KEYS = Keys(TOKEN)
COOKIE = cookie(KEYS)
FROM_PAGE = ("origin", ORIGIN)
LONG = [b"x" * 400] * 4
STREAMED = ("transfer-encoding", "chunked")


class Behind:
    """What the guard stands before: notes who reached it, reads the body, and answers."""

    def __init__(self, *, reads: bool = True, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.reads = reads
        self.headers = list(headers)
        self.reached = 0
        self.read = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.reached += 1
        if scope["type"] == "websocket":
            assert (await receive())["type"] == "websocket.connect"
            await send({"type": "websocket.accept"})
            while (message := await receive())["type"] == "websocket.receive":
                self.read += message.get("bytes") or message["text"].encode()
                await send({"type": "websocket.send", "text": "heard"})
                if message.get("text") == "bye":
                    await send({"type": "websocket.close", "code": 1000})
            return
        while self.reads:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError("the body did not come whole")
            self.read += message["body"]
            if not message["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        await send({"type": "http.response.body", "body": b"in"})


def guarded(behind: Behind | None = None, keys: Keys | None = KEYS) -> Guard:
    return Guard(behind or Behind(), keys, HOSTS, LIMIT)


def ask(method: str = "GET", target: str = "/api/v1/state", *headers: Header, host: str | None = HOST) -> Answer:
    return http(guarded(), method, target, *headers, host=host)


# -- Host


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_each_of_its_own_hosts_is_answered(host: str) -> None:
    assert ask("GET", "/", BEARER, host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example", "evil.example:7717", "127.0.0.1", "localhost", "127.0.0.1:80", "127.0.0.1:7718",
        "127.0.0.1:7717.", "127.0.0.1.:7717", "localhost.:7717", "LOCALHOST:7717", "Localhost:7717", "127.0.0.1:07717",
        "127.1:7717", "127.0.0.2:7717", "0.0.0.0:7717", "2130706433:7717", "0x7f.1:7717", "[::1]", "::1:7717",
        "[0:0:0:0:0:0:0:1]:7717", "[::ffff:127.0.0.1]:7717", "[::1%lo]:7717", "user@127.0.0.1:7717",
        "127.0.0.1:7717@evil.example", "127.0.0.1:7717, evil.example", "127.0.0.1:7717 ", "127.0.0.1:7717/",
        "127.0.0.1:7717#", "http://127.0.0.1:7717", "localhost.evil.example:7717", "127.0.0.1.nip.io:7717", "\xff",
    ],
)  # fmt: skip
def test_any_other_host_is_refused_even_with_the_token(host: str) -> None:
    assert ask("GET", "/", BEARER, host=host).status == 403
    assert websocket(guarded(), "/ws", BEARER, FROM_PAGE, host=host).status == 403


def test_no_host_is_refused() -> None:
    assert ask("GET", "/", BEARER, host=None).status == 403


@pytest.mark.parametrize(
    "name", ["host", "origin", "authorization", "sec-fetch-site", "content-type", "content-length"]
)
def test_a_header_that_decides_and_is_there_twice_is_refused(name: str) -> None:
    good = {
        "host": HOST,
        "origin": ORIGIN,
        "authorization": BEARER[1],
        "content-type": JSON[1],
        "sec-fetch-site": "same-origin",
        "content-length": "2",
    }
    headers = [*good.items(), (name, good[name])]
    assert http(guarded(), "POST", "/", *good.items(), body=[b"{}"], host=None).status == 200
    for again in (headers, [*good.items(), (name.title(), "other")], [(name, "other"), *good.items()]):
        answer = http(guarded(behind := Behind()), "POST", "/", *again, body=[b"{}"], host=None)
        assert (answer.status, behind.reached) == (400, 0)


# -- Origin


FOREIGN = [
    "null", "", "*", "http://evil.example", "https://127.0.0.1:7717", "http://127.0.0.1", "http://127.0.0.1:7718",
    "http://localhost:7717", "http://127.0.0.1:7717/", "http://127.0.0.1:7717.evil.example", "HTTP://127.0.0.1:7717",
    "http://127.0.0.1:7717 http://evil.example", "http://evil@127.0.0.1:7717", "file://", "ws://127.0.0.1:7717",
    "chrome-extension://abcdefgh", "127.0.0.1:7717", "http://[::1]:7717", "\xff",
]  # fmt: skip


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_any_origin_but_the_very_one_that_was_asked_is_refused(origin: str, method: str) -> None:
    for who in (BEARER, COOKIE):
        assert ask(method, "/", who, JSON, ("origin", origin)).status == 403


@pytest.mark.parametrize("origin", FOREIGN)
def test_a_websocket_of_any_other_origin_is_refused(origin: str) -> None:
    for who in (BEARER, COOKIE):
        assert websocket(guarded(), "/ws", who, ("origin", origin)).status == 403


def test_every_websocket_says_where_it_comes_from() -> None:
    for who in (BEARER, COOKIE):
        assert websocket(guarded(), "/ws", who).status == 403
        assert websocket(guarded(), "/ws", who, FROM_PAGE, says=["bye"]).status == 101


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY", "BREW", "get"])
def test_a_browser_that_changes_something_says_where_it_comes_from(method: str) -> None:
    assert ask(method, "/", COOKIE, JSON).status == 403
    assert ask(method, "/", BEARER, JSON, ("sec-fetch-mode", "cors")).status == 403
    assert ask(method, "/", BEARER, JSON, (COOKIE[0], f"{KEYS.cookie_name}=stale")).status == 403
    assert ask(method, "/", COOKIE, JSON, FROM_PAGE).status == 200


def test_a_program_with_the_token_needs_no_origin() -> None:
    assert ask("POST", "/", BEARER, JSON).status == 200
    assert ask("POST", "/", BEARER, JSON, ("cookie", "theme=dark")).status == 200


def test_a_browser_may_read_without_an_origin() -> None:
    """A same-origin GET has none."""
    assert ask("GET", "/", COOKIE, ("sec-fetch-site", "same-origin")).status == 200
    assert ask("GET", "/", COOKIE, ("sec-fetch-site", "none")).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "SAME-ORIGIN", "none, same-origin", "what"])
def test_what_another_site_leads_to_is_refused_though_it_has_the_cookie(site: str) -> None:
    """Every port of one machine is the same site: another server's page is sent our strict cookie."""
    assert ask("GET", "/api/v1/state", COOKIE, ("sec-fetch-site", site)).status == 403
    assert ask("POST", "/", COOKIE, JSON, FROM_PAGE, ("sec-fetch-site", site)).status == 403
    assert websocket(guarded(), "/ws", COOKIE, FROM_PAGE, ("sec-fetch-site", site)).status == 403


def test_who_follows_a_link_of_another_site_to_the_page_may_go_on_by_hand() -> None:
    answer = ask("GET", "/", ("sec-fetch-site", "cross-site"), ("accept", "text/html,*/*;q=0.8"))
    assert answer.status == 403 and b'<a href="/">' in answer.body


# -- the token


@pytest.mark.parametrize(
    "given",
    [
        "", "Bearer", "Bearer ", f"Bearer  {TOKEN}", f"Bearer {TOKEN} ", f"Bearer {TOKEN}0", f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}", f"Basic {TOKEN}", TOKEN, f"Token {TOKEN}", f'Bearer "{TOKEN}"', f"Bearer\t{TOKEN}",
        f"Bearer {KEYS.cookie}", f"Bearer {TOKEN}, Bearer {TOKEN}", "Bearer \xff\xfe", "Bearer " + "x" * 100_000,
    ],
)  # fmt: skip
def test_a_wrong_token_is_refused_even_beside_a_right_cookie(given: str) -> None:
    wrong = ("authorization", given)
    answer = ask("GET", "/api/v1/state", wrong)
    assert (answer.status, answer.all("www-authenticate")) == (401, ["Bearer"])
    assert ask("GET", "/api/v1/state", wrong, COOKIE).status == 401
    assert websocket(guarded(), "/ws", wrong, COOKIE, FROM_PAGE).status == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_right_token_comes_in(scheme: str) -> None:
    assert ask("GET", "/api/v1/state", ("authorization", f"{scheme} {TOKEN}")).status == 200


def named(value: str) -> Header:
    return ("cookie", f"{KEYS.cookie_name}={value}")


@pytest.mark.parametrize(
    "cookies",
    [
        (), (named(""),), (named(TOKEN),), (named(f'"{KEYS.cookie}"'),), (named(f"{KEYS.cookie}x"),),
        (named(KEYS.cookie[:-1]),), (named(f" {KEYS.cookie}"),), (named(KEYS.cookie.upper()),), (named("\xff"),),
        (("cookie", ""),), (("cookie", ";;;=;"),), (("cookie", KEYS.cookie),), (("cookie", f"={KEYS.cookie}"),),
        (("cookie", f"x{KEYS.cookie_name}={KEYS.cookie}"),), (("cookie", f"{KEYS.cookie_name.upper()}={KEYS.cookie}"),),
        (("cookie", f"{KEYS.cookie_name} ={KEYS.cookie}"),), (("cookie", f"a={KEYS.cookie_name}={KEYS.cookie}"),),
        (("cookie", f"{KEYS.cookie_name}={KEYS.cookie},"),), (("cookie", f"{KEYS.cookie_name}%3d{KEYS.cookie}"),),
    ],
)  # fmt: skip
def test_a_wrong_cookie_is_refused(cookies: tuple[Header, ...]) -> None:
    assert ask("GET", "/api/v1/state", *cookies).status == 401
    assert websocket(guarded(), "/ws", *cookies, FROM_PAGE).status == 401


def test_a_cookie_that_another_port_added_does_not_lock_the_right_one_out() -> None:
    bad, good = f"{KEYS.cookie_name}=bad", f"{KEYS.cookie_name}={KEYS.cookie}"
    for both in (f"{bad}; {good}", f"{good}; {bad}", f"theme=dark;{bad};\t{good} ;x"):
        assert ask("GET", "/api/v1/state", ("cookie", both)).status == 200
    assert ask("GET", "/api/v1/state", ("cookie", bad), ("cookie", good)).status == 200


def test_a_token_in_the_address_is_no_token() -> None:
    for query in (f"token={TOKEN}", f"access_token={TOKEN}", f"code={TOKEN}"):
        assert ask("GET", f"/api/v1/state?{query}").status == 401


def test_a_browser_that_was_not_let_in_is_told_how() -> None:
    answer = ask("GET", "/", ("accept", "text/html,application/xhtml+xml"), ("sec-fetch-site", "none"))
    assert answer.status == 401 and b"quell open" in answer.body
    assert answer.all("content-type") == ["text/html; charset=utf-8"]
    for other in (ask("GET", "/"), ask("GET", "/api/v1/state", ("accept", "text/html")), ask("POST", "/", JSON)):
        assert other.status == 401 and other.all("content-type") == ["application/json"]


# -- launch codes


def launch(target: str, *headers: Header, keys: Keys, method: str = "GET", host: str = HOST) -> Answer:
    return http(Guard(Behind(), keys, HOSTS, LIMIT), method, target, *headers, host=host)


def test_a_code_buys_the_cookie_once() -> None:
    keys = Keys(TOKEN)
    target = f"/launch?code={keys.new_code()}"
    answer = launch(target, keys=keys)
    assert answer.status == 200 and b'content="0;url=/"' in answer.body
    assert answer.all("set-cookie") == [f"{keys.cookie_name}={keys.cookie}; HttpOnly; SameSite=Strict; Path=/"]
    assert answer.all("cache-control") == ["no-store"]
    again = launch(target, keys=keys)
    assert again.status == 403 and b"quell open" in again.body and again.all("set-cookie") == []
    name, _, value = answer.all("set-cookie")[0].partition(";")[0].partition("=")
    assert ask("GET", "/", ("cookie", f"{name}={value}")).status == 200


def test_the_link_may_be_followed_from_anywhere_but_only_into_a_window() -> None:
    keys = Keys(TOKEN)
    target = f"/launch?code={keys.new_code()}"
    from_afar = ("sec-fetch-site", "cross-site")
    for dest in ("image", "iframe", "empty", "script"):
        assert launch(target, from_afar, ("sec-fetch-dest", dest), keys=keys).status == 403
    assert launch(target, from_afar, keys=keys).status == 403
    assert launch(target, ("origin", "http://evil.example"), keys=keys).status == 403
    assert launch(target, ("origin", "null"), ("sec-fetch-dest", "document"), keys=keys).status == 403
    assert launch(target, host="evil.example:7717", keys=keys).status == 403
    assert launch(target, from_afar, ("sec-fetch-dest", "document"), keys=keys).status == 200


@pytest.mark.parametrize("method", ["HEAD", "POST", "OPTIONS", "DELETE", "TRACE", "get"])
def test_only_a_get_uses_a_code_up(method: str) -> None:
    keys = Keys(TOKEN)
    target = f"/launch?code={keys.new_code()}"
    refused = launch(target, JSON, method=method, keys=keys)
    assert (refused.status, refused.all("allow"), refused.all("set-cookie")) == (405, ["GET"], [])
    assert launch(target, keys=keys).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/launch/", "//launch", "/./launch", "/x/../launch", "/Launch", "/launch%3f", "/%6caunch", "/launch%2f",
        "/launch%00", "/launch;x", "/launch%20", "/launches", "/api/v1/launch", "/%2e/launch", "launch", "*", "",
        "http://127.0.0.1:7717/launch",
    ],
)  # fmt: skip
def test_every_other_spelling_of_the_path_needs_a_token(path: str) -> None:
    keys = Keys(TOKEN)
    code = keys.new_code()
    assert launch(f"{path}?code={code}", keys=keys).status == 401
    assert keys.use_code(code)


@pytest.mark.parametrize(
    "query", ["", "code=", "code", "CODE={}", "x=1&code={}", "code={}&code={}", "code={}&", "code=%20{}", "code=\xff"]
)
def test_a_query_that_is_not_just_the_code_uses_none_up(query: str) -> None:
    keys = Keys(TOKEN)
    code = keys.new_code()
    assert launch(f"/launch?{query.format(code, code)}", keys=keys).status == 403
    assert keys.use_code(code)


def test_a_code_opens_no_websocket_and_no_unix_socket_has_launches() -> None:
    keys = Keys(TOKEN)
    code = keys.new_code()
    assert websocket(Guard(Behind(), keys, HOSTS), f"/launch?code={code}", FROM_PAGE).status == 401
    assert http(guarded(behind := Behind(), None), "GET", f"/launch?code={code}").all("set-cookie") == []
    assert behind.reached == 1
    assert keys.use_code(code)


def test_whoever_logs_a_launch_has_no_code_to_write_down() -> None:
    keys = Keys(TOKEN)
    code = keys.new_code()
    for kind, host in (("http", HOST), ("http", "evil.example"), ("websocket", HOST)):
        scope = head(kind, "GET", f"/launch?code={code}", [], host)
        speak(Guard(Behind(), keys, HOSTS), scope, [{"type": f"{kind}.connect"}])
        assert code not in str(scope)


# -- content


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON", "application/json; charset=utf-8",
                                  "application/json;charset=UTF-8", "application/json;"])  # fmt: skip
def test_json_is_let_in(kind: str) -> None:
    assert http(guarded(), "POST", "/", BEARER, ("content-type", kind), body=[b"{}"]).status == 200


@pytest.mark.parametrize(
    "kind",
    [
        "", "text/plain", "text/plain; charset=utf-8", "text/plain;application/json",
        "application/x-www-form-urlencoded", "multipart/form-data; boundary=application/json", "application/json;foo",
        "application/json; charset=utf-16",
        "application/json, text/plain", "text/plain, application/json", "application/jsonp", "application/json+x",
        "application/ld+json", "text/json", "json", "application /json", "application/json; charset=utf-8; x=y", "\xff",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_anything_but_json_is_refused(kind: str, method: str) -> None:
    for who in ((BEARER,), (COOKIE, FROM_PAGE)):
        answer = http(guarded(behind := Behind()), method, "/", *who, ("content-type", kind), body=[b"{}"])
        assert (answer.status, behind.reached) == (415, 0)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_without_a_body_it_is_still_named_json(method: str) -> None:
    assert ask(method, "/", BEARER).status == 415
    assert ask(method, "/", BEARER, JSON).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "QUERY", "post"])
def test_nothing_else_has_a_body(method: str) -> None:
    """What the app does not read it could not be cut off from."""
    assert ask(method, "/", BEARER).status == 200
    assert ask(method, "/", BEARER, ("content-length", "0")).status == 200
    for sized in (("content-length", "2"), ("content-length", "5000"), STREAMED):
        answer = http(guarded(behind := Behind()), method, "/", BEARER, JSON, sized, body=[b"{}"])
        assert (answer.status, behind.reached, answer.all("connection")) == (400, 0, ["close"])


# -- size


@pytest.mark.parametrize("length", ["1001", "0001001", "9" * 15, "9" * 16, "9" * 10_000])
def test_a_body_that_says_it_is_too_long_is_refused_before_anybody_reads_it(length: str) -> None:
    said = ("content-length", length)
    answer = http(guarded(behind := Behind()), "POST", "/", BEARER, JSON, said, body=[b"x"])
    assert (answer.status, behind.reached, answer.all("connection")) == (413, 0, ["close"])


def test_a_length_of_many_zeros_is_no_error_of_ours() -> None:
    """Python refuses to make a number of that many digits."""
    assert ask("POST", "/", BEARER, JSON, ("content-length", "0" * 10_000)).status == 200


@pytest.mark.parametrize("length", ["", "-1", "+5", "5.0", "0x10", "1e3", "5, 5", "²", "1_0", " 5"])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    assert ask("POST", "/", BEARER, JSON, ("content-length", length)).status == 400


def test_a_body_with_two_lengths_is_refused() -> None:
    answer = http(guarded(), "POST", "/", BEARER, JSON, ("content-length", "2"), STREAMED, body=[b"{}"])
    assert (answer.status, answer.all("connection")) == (400, ["close"])


def test_a_body_of_just_the_limit_is_let_in() -> None:
    said = ("content-length", str(LIMIT))
    answer = http(guarded(behind := Behind()), "POST", "/", BEARER, JSON, said, body=[b"x" * 400, b"x" * 600])
    assert (answer.status, len(behind.read), answer.all("connection")) == (200, LIMIT, [])


def test_a_streamed_body_is_cut_off_at_the_limit_whatever_the_app_makes_of_it() -> None:
    """It raises then; what it raises or sends reaches nobody."""
    answer = http(guarded(behind := Behind()), "POST", "/", BEARER, JSON, STREAMED, body=LONG)
    assert (answer.status, answer.all("connection"), answer.whole) == (413, ["close"], True)
    assert (behind.reached, len(behind.read)) == (1, 800)
    assert answer.left == 0  # the rest was read and dropped, so that the client sees the answer


def test_one_part_that_is_too_long_is_not_waited_behind() -> None:
    answer = http(guarded(behind := Behind()), "POST", "/", BEARER, JSON, STREAMED, body=[b"x" * (LIMIT + 1)])
    assert (answer.status, answer.all("connection"), behind.read) == (413, ["close"], b"")


def test_an_app_that_answers_a_cut_off_request_is_not_heard() -> None:
    class Stubborn(Behind):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            while (await receive())["type"] == "http.request":
                pass
            assert (await receive())["type"] == "http.disconnect"
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"in"})

    answer = http(guarded(Stubborn()), "POST", "/", BEARER, JSON, STREAMED, body=LONG)
    assert answer.status == 413 and answer.body.count(b"{") == 1


def test_an_answer_that_has_begun_ends_as_the_app_says_but_gets_no_more_of_the_body() -> None:
    class Early(Behind):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while (message := await receive())["type"] == "http.request":
                self.read += message["body"]
            await send({"type": "http.response.body", "body": b"in"})

    answer = http(guarded(behind := Early()), "POST", "/", BEARER, JSON, STREAMED, body=LONG)
    assert (answer.status, answer.body, len(behind.read)) == (200, b"in", 800)
    assert answer.all("connection") == ["close"]


def test_an_error_of_the_app_is_not_swallowed() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        http(Guard(broken, KEYS, HOSTS), "GET", "/", BEARER)


def test_an_answer_before_the_end_of_the_body_closes_the_connection() -> None:
    """What is left of the body must not be taken for the next request."""
    answer = http(guarded(Behind(reads=False)), "POST", "/", BEARER, JSON, STREAMED, body=[b"{", b"}"])
    assert (answer.status, answer.all("connection"), answer.left) == (200, ["close"], 0)
    for refused in ((), (BEARER,), (BEARER, ("origin", "null"))):
        answer = http(guarded(), "POST", "/", *refused, STREAMED, body=LONG)
        assert (answer.all("connection"), answer.left, answer.whole) == (["close"], 0, True)
    assert ask("GET", "/").all("connection") == []


def test_a_body_that_never_comes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "DRAIN_SECONDS", 0.02)
    answer = http(guarded(), "POST", "/", JSON, ("content-length", "9"), endless=True)
    assert (answer.status, answer.whole) == (401, True)


def test_a_body_without_end_is_dropped_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "DRAIN_BYTES", 1000)
    answer = http(guarded(), "POST", "/", JSON, STREAMED, body=[b"x" * 400] * 10, endless=True)
    assert (answer.status, answer.whole, answer.left) == (401, True, 7)


def test_who_waits_to_be_told_to_send_the_body_is_not_told_to() -> None:
    answer = http(guarded(), "POST", "/", JSON, ("content-length", "9"), ("expect", "100-continue"), body=[b"x"])
    assert (answer.status, answer.left) == (401, 1)


# -- WebSocket


def test_a_websocket_message_that_is_too_long_closes_it() -> None:
    for long in ("x" * (LIMIT + 1), "é" * (LIMIT // 2 + 1), b"x" * (LIMIT + 1)):
        answer = websocket(guarded(behind := Behind()), "/ws", BEARER, FROM_PAGE, says=["hello", long, "more"])
        assert (answer.status, answer.closed, behind.read) == (101, 1009, b"hello")


@pytest.mark.parametrize("sized", [("content-length", "5"), ("content-length", "5000"), STREAMED])
def test_a_websocket_has_no_body(sized: Header) -> None:
    assert websocket(guarded(), "/ws", BEARER, FROM_PAGE, sized).status == 400


def test_a_websocket_is_refused_before_it_is_accepted() -> None:
    answer = websocket(guarded(behind := Behind()), "/ws", FROM_PAGE)
    assert (answer.status, answer.closed, behind.reached) == (401, 0, 0)
    assert b"no_token" in answer.body
    bare = websocket(guarded(), "/ws", FROM_PAGE, bare=True)
    assert (bare.status, bare.closed) == (403, 1008)


def test_a_websocket_that_is_gone_before_its_refusal_is_let_go() -> None:
    scope = head("websocket", "GET", "/ws", [], HOST)
    assert speak(guarded(), scope, [{"type": "websocket.disconnect", "code": 1006}]).status == 0


# -- the Unix socket


def test_on_the_unix_socket_who_connects_is_let_in() -> None:
    assert http(guarded(keys=None), "GET", "/", host="whatever").status == 200
    assert http(guarded(keys=None), "POST", "/", JSON, host=None).status == 200
    assert websocket(guarded(keys=None), "/ws", host=None, says=["bye"]).status == 101


def test_on_the_unix_socket_content_and_size_are_kept_to() -> None:
    assert http(guarded(keys=None), "POST", "/", ("content-type", "text/plain"), body=[b"{}"]).status == 415
    assert http(guarded(keys=None), "POST", "/", JSON, ("content-length", "1001")).status == 413
    assert http(guarded(keys=None), "POST", "/", JSON, STREAMED, body=LONG).status == 413


def test_a_browser_has_no_business_at_the_unix_socket() -> None:
    """Somebody put a relay before it, which makes every page the owner."""
    assert http(guarded(keys=None), "POST", "/", JSON, FROM_PAGE).status == 403
    assert http(guarded(keys=None), "GET", "/", ("sec-fetch-site", "cross-site")).status == 403
    assert websocket(guarded(keys=None), "/ws", FROM_PAGE).status == 403


# -- every answer


FIXED = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def answers() -> list[Answer]:
    set_already = [(name.title().encode(), b"loose") for name in FIXED]
    keys = Keys(TOKEN)
    return [
        ask("GET", "/", BEARER),
        http(guarded(Behind(headers=set_already)), "GET", "/", BEARER),
        http(guarded(keys=None), "GET", "/"),
        ask("GET", "/"),
        ask("GET", "/", ("accept", "text/html")),
        ask("GET", "/", host="evil.example"),
        ask("POST", "/", BEARER),
        http(guarded(), "POST", "/", BEARER, JSON, STREAMED, body=LONG),
        launch(f"/launch?code={keys.new_code()}", keys=keys),
        launch("/launch?code=wrong", keys=keys),
        websocket(guarded(), "/ws"),
    ]


def test_every_answer_has_the_headers_of_every_answer_once() -> None:
    for answer in answers():
        assert {name: answer.all(name) for name in FIXED} == {name: [value] for name, value in FIXED.items()}
        assert answer.all("cache-control") == ["no-store"]
        names = [name for name, _ in answer.headers]
        assert len(names) == len(set(names)), "a header is there twice"


def test_the_policy_allows_no_inline_script_and_no_frame() -> None:
    assert "unsafe" not in POLICY and "http" not in POLICY and "*" not in POLICY
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert (rules["default-src"], rules["script-src"]) == ("'none'", "'self'")
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"


def test_how_long_an_answer_is_kept_is_the_apps_to_say() -> None:
    kept = http(guarded(Behind(headers=[(b"Cache-Control", b"no-cache")])), "GET", "/", BEARER)
    assert kept.all("cache-control") == ["no-cache"]


def test_the_apps_own_refusal_of_a_websocket_has_them_too() -> None:
    async def denies(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.http.response.start", "status": 404, "headers": []})
        await send({"type": "websocket.http.response.body", "body": b"no"})

    answer = websocket(Guard(denies, KEYS, HOSTS), "/ws", BEARER, FROM_PAGE)
    assert answer.status == 404 and answer.all("x-content-type-options") == ["nosniff"]


def test_no_refusal_and_no_log_holds_what_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    keys = Keys(TOKEN)
    canaries = [keys.token, keys.cookie, (code := keys.new_code()), "canary"]
    sent = [("authorization", f"Basic {TOKEN}"), cookie(keys), ("x-canary", "canary"), ("referer", f"http://x/{code}")]
    tries: list[tuple[str, str, tuple[Header, ...], str]] = [
        ("GET", f"/canary?code={code}", (), HOST),
        ("GET", f"/launch?code={code}x", (), HOST),
        ("POST", f"/launch?code={code}", (), HOST),
        ("GET", f"/launch/{code}", (), HOST),
        ("POST", "/canary", (FROM_PAGE, ("content-type", "canary")), HOST),
        ("POST", "/canary", (("origin", "http://canary"),), HOST),
        ("POST", "/canary", (), "canary"),
        ("CANARY", "/canary", (FROM_PAGE, JSON, ("content-length", "canary")), HOST),
    ]
    for method, target, headers, host in tries:
        for who in (sent, sent[1:]):
            answer = http(Guard(Behind(), keys, HOSTS), method, target, *who, *headers, host=host)
            assert not [each for each in canaries if each in answer.text]
            refused = websocket(Guard(Behind(), keys, HOSTS), target, *sent, *headers, host=host)
            assert refused.status >= 400
            assert not [each for each in canaries if each in refused.text]
    assert not [each for each in canaries if each in caplog.text]


# -- scopes


def test_the_servers_own_messages_go_through_and_unknown_ones_nowhere() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    speak(Guard(app, KEYS, HOSTS), {"type": "lifespan"}, [])
    for kind in ("webtransport", "HTTP", "", "http.x"):
        with pytest.raises(RuntimeError, match="knows no scope"):
            speak(Guard(app, KEYS, HOSTS), {"type": kind}, [])
    assert seen == ["lifespan"]


def test_header_names_in_capitals_are_the_same_headers() -> None:
    app = guarded()
    assert http(app, "GET", "/", ("Host", HOST), ("Authorization", BEARER[1]), host=None).status == 200
    assert http(app, "GET", "/", ("ORIGIN", "null"), BEARER).status == 403


def test_a_body_is_handed_on_part_by_part_and_never_kept() -> None:
    sizes: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        more = True
        while more:
            message: Message = await receive()
            sizes.append(len(message["body"]))
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    http(Guard(app, KEYS, HOSTS, LIMIT), "POST", "/", BEARER, JSON, STREAMED, body=[b"x" * 100] * 7)
    assert sizes == [100] * 7
