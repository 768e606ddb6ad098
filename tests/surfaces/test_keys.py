"""The token is this user's alone, what is handed in is compared in constant time, and a code is good once."""

import errno
import hmac
import os
import stat
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from quell.errors import UsageError
from quell.surfaces.http.keys import CODE_LIFE, OPEN_CODES, Keys

TOKEN = "5a" * 32


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


T = TypeVar("T")


def at_once(count: int, work: Callable[[], T]) -> list[T]:
    """What `count` threads get that call it in the same moment."""
    gate = threading.Barrier(count)
    got: list[T] = []

    def one() -> None:
        gate.wait(10)
        got.append(work())

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return got


# -- the token


def test_a_token_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    first = Keys.of(str(tmp_path / "state"))
    file = tmp_path / "state" / "token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(bytes.fromhex(first.token)) == 32  # 256 bits
    assert Keys.of(str(tmp_path / "state")).token == first.token
    assert os.listdir(tmp_path / "state") == ["token"]


def test_two_directories_have_two_tokens(tmp_path: Path) -> None:
    assert Keys.of(str(tmp_path / "a")).token != Keys.of(str(tmp_path / "b")).token


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_the_umask_has_no_say_in_who_reads_the_token(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        Keys.of(str(tmp_path))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


def test_starts_in_the_same_moment_agree_on_one_token(tmp_path: Path) -> None:
    for round_ in range(5):
        folder = tmp_path / str(round_)
        assert len({keys.token for keys in at_once(8, partial(Keys.of, str(folder)))}) == 1
        assert os.listdir(folder) == ["token"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o777])
def test_a_token_that_others_may_use_is_refused_with_a_sentence(tmp_path: Path, mode: int) -> None:
    token = Keys.of(str(tmp_path)).token
    (tmp_path / "token").chmod(mode)
    with pytest.raises(UsageError, match=r"others may read the token file .*delete it") as refused:
        Keys.of(str(tmp_path))
    assert token not in str(refused.value)


def test_a_token_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Keys.of(str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UsageError, match="belongs to another user"):
        Keys.of(str(tmp_path))


@pytest.mark.parametrize("text", ["", "\n", TOKEN[:-1], TOKEN + "0", TOKEN.upper(), "g" * 64, "é" * 64, f"{TOKEN}\nx"])
def test_a_file_that_holds_no_token_is_refused_and_left_as_it_is(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="holds no token") as refused:
        Keys.of(str(tmp_path))
    assert file.read_text(encoding="utf-8") == text
    assert TOKEN[:-1] not in str(refused.value)


def test_a_link_a_folder_and_a_pipe_are_no_token_file(tmp_path: Path) -> None:
    Keys.of(str(tmp_path / "real"))
    for name in ("link", "dangling", "folder", "pipe"):
        (tmp_path / name).mkdir()
    (tmp_path / "link" / "token").symlink_to(tmp_path / "real" / "token")
    (tmp_path / "dangling" / "token").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder" / "token").mkdir(0o700)
    os.mkfifo(tmp_path / "pipe" / "token", 0o600)
    for name in ("link", "dangling", "folder", "pipe"):
        with pytest.raises(UsageError, match="the token file"):
            Keys.of(str(tmp_path / name))
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("call", ["fsync", "link", "write"])
def test_a_full_disk_leaves_a_sentence_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(UsageError, match=r"token cannot be used: No space left on device"):
            Keys.of(str(tmp_path))
    assert os.listdir(tmp_path) == []


# -- comparing


WRONG = [
    "", " ", TOKEN[:-1], TOKEN + "0", TOKEN.upper(), f" {TOKEN}", f"{TOKEN}\n", f"{TOKEN}\0", "\udcff", "é" * 64,
    "5b" * 32,
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_only_the_token_is_the_token(wrong: str) -> None:
    keys = Keys(TOKEN)
    assert keys.accepts(TOKEN)
    assert not keys.accepts(wrong)
    assert not keys.accepts_cookie(wrong)
    assert not keys.use_code(wrong)


def test_cookie_and_token_do_not_stand_for_each_other() -> None:
    keys = Keys(TOKEN)
    assert keys.accepts_cookie(keys.cookie)
    assert not keys.accepts_cookie(TOKEN)
    assert not keys.accepts(keys.cookie)
    assert TOKEN[:16] not in keys.cookie + keys.cookie_name


def test_the_cookie_outlives_a_restart_and_has_a_name_of_its_server() -> None:
    keys, again, other = Keys(TOKEN), Keys(TOKEN), Keys("6b" * 32)
    assert (keys.cookie, keys.cookie_name) == (again.cookie, again.cookie_name)
    assert other.cookie_name != keys.cookie_name
    assert not other.accepts_cookie(keys.cookie)
    prefix, digits = keys.cookie_name.split("-")
    assert prefix == "quell" and len(bytes.fromhex(digits)) == 4


def test_everything_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A code is compared with all that are open, also if the first one is it."""
    seen: list[bytes] = []
    real = hmac.compare_digest

    def spy(given: bytes, kept: bytes) -> bool:
        seen.append(kept)
        return real(given, kept)

    keys = Keys(TOKEN)
    codes = [keys.new_code() for _ in range(5)]
    monkeypatch.setattr(hmac, "compare_digest", spy)
    keys.accepts("x")
    keys.accepts_cookie("x")
    assert seen == [TOKEN.encode(), keys.cookie.encode()]
    for code in ("x", codes[0]):
        seen.clear()
        keys.use_code(code)
        assert seen == [each.encode() for each in codes]


def test_no_key_is_in_what_is_printed_of_them() -> None:
    keys = Keys(TOKEN)
    said = f"{keys!r} {keys}"
    assert keys.token not in said and keys.cookie not in said


# -- codes


def test_a_code_is_good_once() -> None:
    keys = Keys(TOKEN)
    code, other = keys.new_code(), keys.new_code()
    assert len(code) >= 43  # 256 bits
    assert not keys.use_code(code[:-1])
    assert [keys.use_code(code), keys.use_code(code)] == [True, False]
    assert keys.use_code(other)


def test_of_many_who_use_a_code_in_the_same_moment_one_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is held up while it compares."""
    real = hmac.compare_digest

    def slow(given: bytes, kept: bytes) -> bool:
        time.sleep(0.001)
        return real(given, kept)

    monkeypatch.setattr(hmac, "compare_digest", slow)
    keys = Keys(TOKEN)
    for _ in range(5):
        code = keys.new_code()
        assert sorted(at_once(8, partial(keys.use_code, code))) == [False] * 7 + [True]


def test_a_code_is_too_old_after_ten_minutes() -> None:
    clock = Clock()
    keys = Keys(TOKEN, clock)
    early, late = keys.new_code(), keys.new_code()
    clock.now += CODE_LIFE - 0.001
    assert keys.use_code(early)
    clock.now += 0.001
    assert not keys.use_code(late)


def test_only_so_many_codes_are_open_and_the_oldest_goes() -> None:
    keys = Keys(TOKEN)
    codes = [keys.new_code() for _ in range(OPEN_CODES + 3)]
    assert [keys.use_code(code) for code in codes] == [False] * 3 + [True] * OPEN_CODES


def test_codes_that_are_too_old_do_not_take_the_place_of_new_ones() -> None:
    clock = Clock()
    keys = Keys(TOKEN, clock)
    for _ in range(OPEN_CODES):
        keys.new_code()
    clock.now += CODE_LIFE
    codes = [keys.new_code() for _ in range(OPEN_CODES)]
    assert all(keys.use_code(code) for code in codes)
