"""What is always allowed: several may say so at once, each change acts on the next look, and nothing unclear allows."""

import logging
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import quell
from quell.kernel.grants import FILE, LARGEST, Grant, GrantError, Grants, bound, digest

WRITER = """
import sys
from quell.kernel.grants import Grants
from tests.kernel.test_grants import grant
grants = Grants(sys.argv[1])
sys.stdin.readline()
for number in range(25):
    grants.add(grant(f"{sys.argv[2]}-{number}", text="x" * (number * 400)))
    assert grants.holds(grant(f"{sys.argv[2]}-{number}", text="x" * (number * 400)).digest)
"""


def grant(name: str, **more: Any) -> Grant:
    arguments = {"name": name, **more}
    return Grant(bound("a", "/cwd", digest("note", arguments)), "a", "/cwd", "note", arguments, 1.0)


@pytest.fixture
def grants(tmp_path: Path) -> Grants:
    return Grants(str(tmp_path / "home"))


def test_what_is_bound_is_agent_folder_tool_and_every_argument() -> None:
    plain = digest("note", {"a": 1, "b": [1, {"c": 2, "d": 3}]})
    assert plain == digest("note", {"b": [1, {"d": 3, "c": 2}], "a": 1})
    others = [("x", "/cwd", plain), ("a", "/cwd/x", plain), ("a", "/cwd", digest("not", {"a": 1}))]
    others += [("a", "/cwd", digest("note", {"a": one})) for one in (1, "1", None, True, [1], 1.5)]
    others += [("a", "/cwd", digest("note", {"a": 1, "b": [1, {"c": 2, "d": 3}]}, "bwrap"))]
    assert len({bound(*one) for one in (*others, ("a", "/cwd", plain))}) == len(others) + 1


def test_a_grant_is_there_for_every_runtime_at_once_until_it_is_revoked(tmp_path: Path, grants: Grants) -> None:
    other = Grants(str(tmp_path / "home"))
    one, two = grant("one"), grant("two")
    assert grants.known() and not grants.holds(one.digest) and grants.all() == []
    grants.add(one)
    assert not other.known() and other.holds(one.digest) and other.known()
    other.add(two)
    assert grants.all() == [one, two]
    mode = os.stat(grants.path)
    assert stat.S_IMODE(mode.st_mode) == 0o600 and stat.S_IMODE(os.stat(tmp_path / "home").st_mode) == 0o700
    assert other.revoke(one.digest[:8], 2.0) == one
    assert not grants.holds(one.digest) and grants.holds(two.digest)
    grants.add(one)
    assert other.holds(one.digest), "the last word counts"
    Path(grants.path).unlink()
    assert not grants.holds(one.digest) and other.all() == []


def test_what_is_revoked_is_named_clearly(grants: Grants) -> None:
    for name in ("one", "two"):
        grants.add(grant(name))
    for word in ("", "abc", "xyz1", "A" * 64, grant("one").digest + "0", "0" * 64, "....", "%"):
        with pytest.raises(quell.UsageError, match="always allowed"):
            grants.revoke(word, 2.0)
    both = [msgspec.structs.replace(grant("one"), digest="abcd" + digit * 60, agent="***") for digit in "01"]
    for one in both:
        grants.add(one)
    with pytest.raises(quell.UsageError, match="several"):
        grants.revoke("abcd", 2.0)
    assert len(grants.all()) == 4


def test_eight_processes_that_add_at_once_lose_nothing(tmp_path: Path, grants: Grants) -> None:
    """H50: of what a person said yes to."""
    home = tmp_path / "home"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(home), str(number)], stdin=subprocess.PIPE)
        for number in range(8)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"\n")
        writer.stdin.close()
    assert [writer.wait(60) for writer in writers] == [0] * 8
    assert {one.arguments["name"] for one in grants.all()} == {f"{who}-{n}" for who in range(8) for n in range(25)}


@pytest.mark.parametrize(
    "line",
    [
        *(b"{", b"null", b"[]", b"\xff\xfe", b"{}", b'"x"', b"[" * 100_000),
        msgspec.json.encode(grant("other"))[:-9],
        msgspec.json.encode(grant("other")).replace(b'"name":"other"', b'"name":"othes"'),
        msgspec.json.encode(grant("other")).replace(b'"tool":"note"', b'"tool":"nota"'),
        msgspec.json.encode(grant("other")).replace(b'"cwd":"/cwd"', b'"cwd":"/"'),
        msgspec.json.encode(grant("other")).replace(b'"agent":"a"', b'"agent":"b"'),
        msgspec.json.encode(grant("other")).replace(b'"at":1.0', b'"at":"1"'),
        msgspec.json.encode(msgspec.to_builtins(grant("other")) | {"more": 1}),
    ],
    ids=range(14),
)
def test_a_broken_line_allows_nothing_spoils_no_other_and_is_told_of_once(
    grants: Grants, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    grants.add(grant("one"))
    with open(grants.path, "ab") as file:
        file.write(line)  # without its end: the next line is one of its own all the same
    with caplog.at_level(logging.WARNING, "quell"):
        assert grants.all() == [grant("one")]
        for name in ("two", "three"):
            grants.add(grant(name))
            assert grants.holds(grant(name).digest)
        assert [one.arguments["name"] for one in grants.all()] == ["one", "two", "three"]
        assert not grants.holds(grant("other").digest)
    assert [record.message for record in caplog.records if "cannot be read, and allows nothing" in record.message] != []
    assert len(caplog.records) == 1


@pytest.mark.parametrize("fault", ["folder", "others", "pipe", "large"])
def test_a_file_that_cannot_be_trusted_allows_nothing_and_takes_nothing(
    grants: Grants, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = grant("one")
    grants.add(one)
    path = Path(grants.path)
    if fault == "others":
        path.chmod(0o666)
    elif fault == "large":
        os.truncate(path, LARGEST + 1)
    else:
        path.unlink()
        path.mkdir() if fault == "folder" else os.mkfifo(path)
    with caplog.at_level(logging.WARNING, "quell"):
        assert not grants.holds(one.digest) and grants.all() == []
    assert "nothing is always allowed" in caplog.text
    if fault != "large":
        with pytest.raises(GrantError, match=FILE):
            grants.add(one)


def test_what_cannot_be_written_is_an_error_and_changes_nothing(
    grants: Grants, monkeypatch: pytest.MonkeyPatch
) -> None:
    grants.add(grant("one"))
    with pytest.raises(GrantError, match="too long"):
        grants.add(grant("long", text="x" * (1 << 20)))
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, data[:20]))  # a disk that is full
        with pytest.raises(GrantError, match="part"):
            grants.add(grant("two"))
        with pytest.raises(GrantError, match="part"):
            grants.revoke(grant("one").digest, 2.0)
    assert [one.arguments["name"] for one in grants.all()] == ["one"]
    assert grants.revoke(grant("one").digest, 3.0) == grant("one")
    assert grants.all() == []
