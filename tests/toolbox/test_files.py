"""`read`, `write` and `edit` act on files of the working directory, and on nothing else whatever it is called."""

import ctypes
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quell.errors import ToolError
from quell.ports import Tool
from quell.toolbox import files
from quell.toolbox.files import LINE_MOST, READ_MOST, TEXT_MOST, WRITE_MOST, Edit, Read, Write, plugin
from quell.toolbox.rooted import Refused, Root

from .callers import Session, in_session

Call = Callable[..., str]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The working directory, with a secret beside it and Quell's own inside."""
    folder = tmp_path / "work"
    (folder / "inner").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("canary")
    (folder / "own").mkdir()
    (folder / "own" / "config.toml").write_text("canary")
    return folder


def ask(work: Path, tool: Tool, **arguments: object) -> str:
    """What the tool says; of a refusal, the sentence."""
    said = []

    async def body(session: Session) -> None:
        session.off_limits = (str(work / "own"),)
        try:
            said.append(await session.call(tool, arguments))
        except ToolError as error:
            said.append(str(error))

    in_session(work, body)
    return said[0]


def acts(place: Root, path: str) -> list[Callable[[], str]]:
    """What may be tried with a path."""
    return [
        lambda: files.read(place, files.Wanted(path), str),
        lambda: files.write(place, files.Whole(path, "gotcha")),
        lambda: files.edit(place, files.Change(path, "canary", "gotcha")),
    ]


def root(work: Path) -> Root:
    return Root(str(work), (str(work / "own"),))


# -- where it may go


def links(work: Path) -> None:
    (work / "file-out").symlink_to(work.parent / "secret.txt")
    (work / "folder-out").symlink_to(work.parent)
    (work / "chain").symlink_to("inner/next")
    (work / "inner" / "next").symlink_to("../../secret.txt")
    (work / "own-file").symlink_to("own/config.toml")
    (work / "own-folder").symlink_to("inner/../own")
    (work / "loop").symlink_to("loop")
    (work / "hard").hardlink_to(work / "own" / "config.toml")


OUTSIDE = {
    "": "a path is empty",
    "../secret.txt": "is outside the working directory",
    "inner/../../secret.txt": "is outside the working directory",
    "..": "is outside the working directory",
    "/etc/passwd": "is outside the working directory",
    "/proc/self/environ": "is outside the working directory",
    "//etc/passwd": "is outside the working directory",
    "~": "begins with `~`",
    "~/.ssh/id_rsa": "begins with `~`",
    "~root/x": "begins with `~`",
    "a\0b": "cannot contain a NUL",
    "\ud800": "not text that can be encoded",
    "x" * 5000: "is too long",
    "y" * 300: "cannot be used: File name too long",
    "file-out": "leads out of the working directory by a symlink",
    "folder-out/secret.txt": "leads out of the working directory by a symlink",
    "chain": "leads out of the working directory by a symlink",
    "loop": "",
    "own/config.toml": "is Quell's own",
    "./inner/../own/config.toml": "is Quell's own",
    "own//./config.toml": "is Quell's own",
    "own-file": "is Quell's own",
    "own-folder/config.toml": "is Quell's own",
    "own-folder/new/deep": "is Quell's own",
}


def test_no_spelling_leads_out_or_to_what_is_quells_own(work: Path) -> None:
    links(work)
    before = {path: path.lstat().st_mtime_ns for path in work.parent.rglob("*")}
    place = root(work)
    for path, sentence in OUTSIDE.items():
        for act in acts(place, path):
            with pytest.raises(Refused) as refusal:
                act()
            assert sentence in str(refusal.value) and "canary" not in str(refusal.value), path
            assert "\n" not in str(refusal.value)
    assert {path: path.lstat().st_mtime_ns for path in work.parent.rglob("*")} == before
    assert ask(work, Read(), path="../secret.txt") == (
        "read: '../secret.txt' is outside the working directory, and only what is in it can be used"
    )


def test_what_is_off_limits_and_not_there_yet_is_made_by_nobody(work: Path) -> None:
    place = Root(str(work), (str(work / "later"), str(work / "inner" / "later.toml")))
    for path in ("later/config.toml", "later", "inner/later.toml"):
        with pytest.raises(Refused, match="Quell's own"):
            files.write(place, files.Whole(path, "evil"))
    assert not (work / "later").exists() and not (work / "inner" / "later.toml").exists()


def test_a_hard_link_to_a_file_that_is_off_limits_is_refused(work: Path) -> None:
    links(work)
    place = Root(str(work), (str(work / "own" / "config.toml"),))
    with pytest.raises(Refused, match="Quell's own"):
        files.read(place, files.Wanted("hard"), str)


def test_what_leads_about_inside_is_followed(work: Path) -> None:
    (work / "a.txt").write_text("here")
    (work / "to-inner").symlink_to("inner")
    (work / "inner" / "to-a").symlink_to("../a.txt")
    (work / "dangling").symlink_to("inner/new.txt")
    place = root(work)
    for path in ("a.txt", "./inner/../a.txt", str(work / "a.txt"), "to-inner/to-a", "inner//to-a"):
        assert files.read(place, files.Wanted(path), str) == "here"
    files.write(place, files.Whole("./~odd", "x"))
    files.write(place, files.Whole("to-inner/to-a", "there"))
    files.write(place, files.Whole("dangling", "made"))
    assert (work / "a.txt").read_text() == "there" and (work / "inner" / "to-a").is_symlink()
    assert (work / "inner" / "new.txt").read_text() == "made"


def test_a_working_directory_that_became_a_symlink_is_not_followed(work: Path) -> None:
    place = root(work)
    work.rename(work.parent / "moved")
    work.symlink_to("/etc")
    with pytest.raises(Refused, match="is a symlink to /etc by now"):
        files.read(place, files.Wanted("passwd"), str)
    with pytest.raises(Refused, match="swapped for a symlink"):
        place.open(("passwd",))


@contextmanager
def swapping(place: Path, other: Path) -> Iterator[None]:
    """A thread that swaps a folder for a symlink to another one and back, all the time."""
    link, over, here, exchange = place.parent / "link", threading.Event(), -100, 2
    link.symlink_to(other)
    rename = ctypes.CDLL(None).renameat2

    def swap() -> None:
        while not over.is_set():
            assert rename(here, bytes(place), here, bytes(link), exchange) == 0

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_folder_that_is_swapped_for_a_symlink_on_the_way_leads_nowhere(work: Path) -> None:
    """Between the look and the use."""
    outside, changing = work.parent / "outside", work / "changing"
    for folder, text in ((outside, "canary"), (changing, "mine")):
        folder.mkdir()
        (folder / "file").write_text(text)
    place, read, refused = root(work), 0, 0
    with swapping(changing, outside):
        for number in range(1500):
            try:
                assert files.read(place, files.Wanted("changing/file"), str) == "mine"
                read += 1
            except Refused:
                refused += 1
            try:
                files.write(place, files.Whole(f"changing/{number % 7}/new", "x"))
                files.write(place, files.Whole("changing/file", "mine"))
            except Refused:
                refused += 1
    assert read and refused
    assert os.listdir(outside) == ["file"] and (outside / "file").read_text() == "canary"
    assert list(work.rglob(".quell-*")) == []


def test_a_look_that_came_before_the_swap_is_not_trusted(work: Path) -> None:
    """The same without luck: resolved first, swapped then."""
    (work / "inner" / "file").write_text("mine")
    place = root(work)
    parts = place.parts("inner/file")
    (work / "inner").rename(work / "gone")
    (work / "inner").symlink_to(work / "own")
    with pytest.raises(Refused, match="swapped for a symlink"):
        place.open(parts)
    for deeper in (parts, (*parts, "new")):
        with pytest.raises(Refused, match="swapped for a symlink"):
            place.write(deeper, b"x")
    (work / "inner").unlink()
    (work / "inner").mkdir()
    (work / "inner" / "file").symlink_to(work.parent / "secret.txt")
    with pytest.raises(Refused, match="a symlink by now"):
        place.open(parts)
    with pytest.raises(Refused, match="a symlink by now"):
        place.write(parts, b"x")


def test_what_is_no_regular_file_is_refused_without_waiting(work: Path) -> None:
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(work / "socket"))
        place = root(work)
        for name, what in {"pipe": "a pipe", "socket": "a socket", "inner": "a folder", ".": "a folder"}.items():
            for act in acts(place, name):
                with pytest.raises(Refused, match=what):
                    act()
    assert stat.S_ISFIFO((work / "pipe").stat().st_mode)
    with pytest.raises(Refused, match="a device"):
        Root("/dev", ()).open(("null",))


# -- reading


def test_a_file_is_given_as_it_is_and_a_long_one_in_pages(work: Path) -> None:
    (work / "a").write_text("one\ntwo\n\nlast")
    (work / "empty").touch()
    (work / "long").write_text("".join(f"{n}\n" for n in range(1, 2502)))
    (work / "wide").write_text("x" * (LINE_MOST + 5) + "\nend\n")
    (work / "big").write_text(("y" * 999 + "\n") * 300)
    (work / "odd").write_bytes(b"caf\xe9\r\n")
    assert ask(work, Read(), path="a") == "one\ntwo\n\nlast"
    assert ask(work, Read(), path="a", start=2, lines=1) == "[lines 2 to 2 of 4; go on with start=3]\ntwo"
    place = root(work)

    def read(path: str, **where: int) -> str:
        return files.read(place, files.Wanted(path, **where), str)

    assert read("empty") == "[the file is empty]"
    assert read("long").startswith("[lines 1 to 2000 of 2501; go on with start=2001]\n1\n2\n")
    assert read("long", start=2001).startswith("[lines 2001 to 2501 of 2501]\n2001\n")
    assert read("long", start=2501) == "[lines 2501 to 2501 of 2501]\n2501"
    assert read("wide").endswith("x… [5 characters more]\nend")
    assert len(read("big")) < TEXT_MOST + 100 and "go on with start=101]" in read("big")
    assert read("odd") == "caf\ufffd\r"
    with pytest.raises(Refused, match=r"'a' has 4 lines, and none at 5"):
        read("a", start=5)
    with pytest.raises(Refused, match=r"there is no 'nowhere'"):
        read("nowhere")
    with pytest.raises(Refused, match=r"'a' is no folder"):
        read("a/b")


def test_what_is_no_text_is_described(work: Path) -> None:
    (work / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0" + bytes(100))
    (work / "data").write_bytes(b"abc\0def")
    with (work / "huge").open("wb") as file:
        file.truncate(READ_MOST + 1)
    place = root(work)
    assert files.read(place, files.Wanted("a.png"), str) == "[a PNG picture, 110 bytes: no text to show]"
    assert files.read(place, files.Wanted("data"), str) == "[binary data, 7 bytes: no text to show]"
    with pytest.raises(Refused, match="are too many; use `grep`"):
        files.read(place, files.Wanted("huge"), str)


def test_no_half_of_a_secret_is_shown_where_a_line_is_cut(work: Path) -> None:
    (work / "wide").write_text("x" * (LINE_MOST - 4) + "sesame-open" + "y" * 50)
    said = []

    async def body(session: Session) -> None:
        session.redact = lambda text: text.replace("sesame-open", "***")
        said.append(await session.call(Read(), {"path": "wide"}))

    in_session(work, body)
    assert "sesa" not in said[0] and "***" in said[0]


# -- writing


def test_a_file_is_written_whole_with_its_folders_and_keeps_its_mode(work: Path) -> None:
    assert ask(work, Write(), path="new/deep/a.txt", text="one\ntwo") == "Made new/deep/a.txt: 2 lines, 7 bytes."
    target = work / "new" / "deep" / "a.txt"
    assert target.read_text() == "one\ntwo"
    target.chmod(0o750)
    assert ask(work, Write(), path="new/deep/a.txt", text="é\r\n") == "Replaced new/deep/a.txt: 1 lines, 4 bytes."
    assert target.read_bytes() == "é\r\n".encode() and stat.S_IMODE(target.stat().st_mode) == 0o750
    assert os.listdir(target.parent) == ["a.txt"]
    assert ask(work, Write(), path="a/b", text="x" * (WRITE_MOST + 1)).endswith("is too long; 8388608 is the most")
    assert ask(work, Write(), path="a/b", text="\ud800") == "write: the text cannot be encoded as UTF-8"
    assert not (work / "a").exists()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "a").write_text("old")

    def fails(*args: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(Refused, match="'a' cannot be used: No space left on device"):
        files.write(root(work), files.Whole("a", "new"))
    monkeypatch.undo()
    assert (work / "a").read_text() == "old" and sorted(os.listdir(work)) == ["a", "inner", "own"]


def test_who_edits_needs_a_place_that_is_meant(work: Path) -> None:
    (work / "a.py").write_text("def one():\n    return 1\n\ndef two():\n    return 1\n")
    (work / "dos").write_bytes(b"a\r\nb\r\nc\r\n")
    (work / "latin").write_bytes(b"caf\xe9")
    place = root(work)

    def edit(path: str, old: str, new: str, all: bool = False) -> str:  # noqa: A002  the argument's own name
        try:
            return files.edit(place, files.Change(path, old, new, all))
        except Refused as refusal:
            return str(refusal)

    assert "`old` is 2 times in 'a.py', at lines 2, 5; give more around it" in edit("a.py", "return 1", "return 2")
    assert "; nearest is line 4: def two():" in edit("a.py", "def twoo():", "x")
    assert "its first line is at line 1, and what follows is different" in edit("a.py", "def one():\n  return 1", "x")
    assert edit("a.py", "zzz", "x") == "`old` is not in 'a.py'; read it first"
    assert edit("a.py", "one", "one") == "`old` and `new` are the same: nothing is to be changed"
    assert edit("latin", "caf", "x") == "'latin' is not UTF-8 text, and cannot be edited; use the shell"
    assert edit("a.py", "def two", "def three") == "Changed a.py at line 4."
    assert edit("a.py", "return 1", "return 2", all=True) == "Changed a.py at lines 2, 5."
    assert (work / "a.py").read_text() == "def one():\n    return 2\n\ndef three():\n    return 2\n"
    assert edit("dos", "a\nb", "a\nx\nb") == "Changed dos at line 1."
    assert (work / "dos").read_bytes() == b"a\r\nx\r\nb\r\nc\r\n"
    assert ask(work, Edit(), path="a.py", old="", new="x").startswith("edit: Expected `str` of length >= 1")


def test_what_somebody_else_changed_meanwhile_is_not_overwritten(work: Path) -> None:
    (work / "a").write_text("old text")
    place = root(work)
    fd = place.open(("a",))
    seen = os.fstat(fd)
    os.close(fd)
    (work / "a").write_text("newer text")
    with pytest.raises(Refused, match="changed by somebody else meanwhile"):
        place.write(("a",), b"mine", unless_newer=seen)
    assert (work / "a").read_text() == "newer text" and sorted(os.listdir(work)) == ["a", "inner", "own"]


def test_the_plugin_brings_the_five_tools_with_their_arguments() -> None:
    tools: dict[str, list[str]] = {}

    class Context:
        def tool(self, tool: Tool) -> None:
            tools[tool.spec.name] = list(tool.spec.parameters["properties"])

    setup: Callable[[Context], None] = plugin.setup  # type: ignore[assignment]  # as much of one as it uses
    setup(Context())
    assert tools == {
        "read": ["path", "start", "lines"],
        "write": ["path", "text"],
        "edit": ["path", "old", "new", "all"],
        "glob": ["pattern", "path", "everything"],
        "grep": ["pattern", "path", "glob", "ignore_case", "limit", "everything"],
    }
