"""`glob` and `grep` find what is in the working directory, show nothing else, and can be ended whatever they are at."""

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from quell.errors import ToolError
from quell.ports import Tool
from quell.toolbox import search
from quell.toolbox.patterns import Ignored, compiled, split
from quell.toolbox.search import Glob, Grep, excerpt

from .callers import Session, alive, in_session, until


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    for path, text in {
        "a.py": "import os\nprint('Hello')\n",
        "b.txt": "hello there\n",
        "src/c.py": "# hello\r\n",
        "src/deep/d.py": "x" * 5000 + "hello" + "y" * 5000,
        "src/deep/e.md": "bye",
        "own/config.toml": "hello canary",
        "node_modules/m.py": "hello",
        ".git/HEAD": "hello",
        "build/out.py": "hello",
        "build/kept.py": "hello kept",
        "odd\nname.py": "hello",
        "data.bin": "hello\0",
        ".gitignore": "/build/*\n!kept.py\n*.md\n# hello\n[\n",
        "../outside.py": "hello canary",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, newline="")
    (folder / "out").symlink_to(tmp_path)
    (folder / "to-own").symlink_to("own")
    (folder / "own-file.py").symlink_to("own/config.toml")
    (folder / "inside.py").symlink_to("a.py")
    os.mkfifo(folder / "pipe.py")
    return folder


def ask(work: Path, *calls: tuple[Tool, dict[str, Any]]) -> list[str]:
    """What the tools say; of a refusal, the sentence."""
    said = []

    async def body(session: Session) -> None:
        session.off_limits = (str(work / "own"),)
        for tool, arguments in calls:
            try:
                said.append(await session.call(tool, arguments))
            except ToolError as error:
                said.append(str(error))

    in_session(work, body)
    return said


def test_names_are_found_and_nothing_that_is_elsewhere_or_quells_own(work: Path) -> None:
    patterns = {
        "*.py": "a.py inside.py odd?name.py pipe.py",
        "**/*.py": "a.py build/kept.py inside.py odd?name.py pipe.py src/c.py src/deep/d.py",
        "src/*": "src/c.py src/deep/",
        "src/**": "src/c.py src/deep/ src/deep/d.py",
        "{a,b}.{py,txt}": "a.py b.txt",
        "[ab].*": "a.py b.txt",
        "[!a-z]*": ".gitignore",
        "node_modules/*": "node_modules/m.py",
        "build/*": "build/kept.py",
        "**/config.toml": "Nothing matches.",
        "config.toml": "Nothing matches; `**/config.toml` looks in all folders.",
        "o*": "odd?name.py",
    }
    for pattern, said in zip(patterns, ask(work, *((Glob(), {"pattern": one}) for one in patterns)), strict=True):
        expected = patterns[pattern]
        assert said == (expected if expected.startswith("Nothing") else "\n".join(expected.split())), pattern


def test_paths_that_lead_out_are_refused(work: Path) -> None:
    calls: list[tuple[Tool, dict[str, Any]]] = []
    for path in ("..", "/etc", "out", "~", "own", "to-own", "./src/../own", "", "a\0b", "own-file.py", "nowhere"):
        calls += [(Glob(), {"pattern": "**", "path": path}), (Grep(), {"pattern": "canary|root|toml", "path": path})]
    calls += [(Glob(), {"pattern": one}) for one in ("../*", "/etc/*", "out/*", "src/../../*", "own/*", "to-own/*")]
    for (_, arguments), said in zip(calls, ask(work, *calls), strict=True):
        assert any(
            words in said
            for words in (
                "outside the working",
                "by a symlink",
                "with `~`",
                "Quell's own",
                "empty",
                "NUL",
                "there is no",
            )
        ), (arguments, said)


def test_lines_are_found_with_their_places(work: Path) -> None:
    everywhere, exact, some, one, few, all_of_it = ask(
        work,
        (Grep(), {"pattern": "hello", "ignore_case": True}),
        (Grep(), {"pattern": "^Hello|'Hello"}),
        (Grep(), {"pattern": "hello", "glob": "*.txt"}),
        (Grep(), {"pattern": "he.lo", "path": "b.txt"}),
        (Grep(), {"pattern": ".", "limit": 1}),
        (Grep(), {"pattern": "hello", "everything": True, "glob": "**/*.py"}),
    )
    assert [line.partition(": ")[0] for line in everywhere.splitlines()] == [
        *(".gitignore:4", "a.py:2", "b.txt:1", "build/kept.py:1", "odd?name.py:1", "src/c.py:1", "src/deep/d.py:1")
    ]
    assert "src/c.py:1: # hello\n" in everywhere
    long = everywhere.splitlines()[-1]
    assert "xxhelloyy" in long and len(long) < 350 and long.count("…") == 2
    assert exact == "a.py:2: print('Hello')"
    assert some == one == "b.txt:1: hello there"
    assert few.startswith(".gitignore:1: /build/*\n[there are more than these 1 lines")
    assert "node_modules/m.py:1: hello" in all_of_it and "build/out.py" in all_of_it and "canary" not in all_of_it


def test_patterns_that_make_no_sense_are_refused_with_a_sentence(work: Path) -> None:
    said = ask(
        work,
        (Grep(), {"pattern": "("}),
        (Grep(), {"pattern": "x" * 20_000}),
        (Grep(), {"pattern": "(" * 5000 + ")" * 5000}),
        (Glob(), {"pattern": "{a,b}" * 20}),
        (Glob(), {"pattern": "src/"}),
        (Grep(), {"pattern": "x", "limit": 0}),
        (Glob(), {"pattern": "[z-a]"}),
    )
    for words, one in zip(
        (
            "no regular expression: missing )",
            "length <= 10000",
            "the pattern is",
            "its braces",
            "a slash",
            ">= 1",
            "sense",
        ),
        said,
        strict=True,
    ):
        assert words in one and len(one) < 300


def test_a_search_that_takes_for_ever_is_ended_in_time_and_the_loop_turns(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H26, H25: a catastrophic pattern holds up nobody, and is gone with its call."""
    monkeypatch.setattr(search, "SECONDS", 0.6)
    (work / "bad.txt").write_text("hello\n" + "a" * 60 + "!\n")
    beats = 0

    async def body(session: Session) -> None:
        nonlocal beats
        call = session.turn.task(session.call(Grep(), {"pattern": "(a+)+$|^hello$", "path": "bad.txt"}))
        while not call.done():
            await asyncio.sleep(0.01)
            beats += 1
        assert (await call).startswith("bad.txt:1: hello\n[not done after 0.6 s, and ended: there may be more")
        with pytest.raises(ToolError, match=r"^grep: not done after 0\.6 s, and ended; narrow it"):
            await session.call(Grep(), {"pattern": "(a+)+$", "path": "bad.txt"})
        assert not any(alive(process.pid) for process in session.spawned)
        stopped = session.turn.task(session.call(Grep(), {"pattern": "(a+)+$", "path": "bad.txt"}))
        assert await until(lambda: len(session.spawned) == 3)
        began = time.monotonic()
        stopped.cancel()
        await asyncio.wait([stopped])
        assert time.monotonic() - began < 0.5 and not alive(session.spawned[2].pid)

    in_session(work, body)
    assert beats > 20


def test_a_folder_that_is_swapped_while_it_is_searched_leads_nowhere(work: Path) -> None:
    changing, link, over = work / "changing", work / "link", threading.Event()
    changing.mkdir()
    link.symlink_to(work / "own")

    def swap() -> None:
        while not over.is_set():
            for one, other in (
                (changing, work / "aside"),
                (link, changing),
                (changing, link),
                (work / "aside", changing),
            ):
                os.rename(one, other)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        calls: list[tuple[Tool, dict[str, Any]]] = [(Grep(), {"pattern": "canary"}), (Glob(), {"pattern": "**/*.toml"})]
        said = ask(work, *calls * 4)
    finally:
        over.set()
        thread.join()
    assert {one.partition("\n")[0] for one in said} == {"No line matches.", "Nothing matches."}


def test_no_half_of_a_secret_is_shown_where_a_line_is_cut() -> None:
    def redact(text: str) -> str:
        return text.replace("sesame-open", "***")

    for shift in range(400):
        shown = excerpt("a" * shift + "sesame-open" + "b" * 90, "match" + "c" * 500, redact)
        assert "match" in shown and "sesame" not in shown and "open" not in shown
        shown = excerpt("a" * 500, "match" + "c" * shift + "sesame-open" + "d" * 500, redact)
        assert "match" in shown and "sesame" not in shown and "***"[: "***" in shown] in shown


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py", ".py"], ["a/b.py", "a.pyc"]),
        ("**/x", ["x", "a/x", "a/b/x"], ["ax", "a/bx"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "ab"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb"]),
        ("?.[ch]", ["a.c", "b.h"], ["ab.c", "a.o", "/.c"]),
        ("x[!a]", ["xb"], ["xa", "x/"]),
        ("[]]", ["]"], ["["]),
        ("a[", ["a["], ["a"]),
        ("{a,b/{c,d}}", ["a", "b/c", "b/d"], ["b"]),
        ("./a", ["a"], ["./b"]),
        ("\\*", ["*"], ["a"]),
        ("a.b", ["a.b"], ["axb"]),
    ],
)
def test_a_pattern_fits_whole_paths(pattern: str, yes: list[str], no: list[str]) -> None:
    fits = compiled(pattern).fullmatch
    assert [one for one in yes if fits(one) is None] == [] and [one for one in no if fits(one) is not None] == []


def test_the_plain_beginning_of_a_pattern_is_a_folder() -> None:
    assert [split(one) for one in ("a/b/*.c", "*.c", "/etc/*", "a", "../x*", "a*/b/c")] == [
        *(("a/b", "*.c"), ("", "*.c"), ("/etc", "*"), ("", "a"), ("..", "x*"), ("", "a*/b/c"))
    ]


def test_a_gitignore_is_read_as_git_does() -> None:
    ignored = Ignored().below("", "*.log\n!keep.log\n/top\nfolder/\na/b\n\n# c\n").below("sub", "/only\nkeep.log\n")
    left_out = {"x.log", "d/x.log", "top", "a/b", "sub/only", "sub/keep.log", "sub/d/keep.log"}
    kept = {"keep.log", "d/keep.log", "d/top", "folder", "d/a/b", "only", "sub/d/only", "c"}
    assert {path for path in left_out | kept if ignored.has(path, False)} == left_out
    assert ignored.has("folder", True) and ignored.has("d/folder", True)
