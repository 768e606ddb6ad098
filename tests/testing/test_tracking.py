"""Tracking tells the line that made a thing, leaves others' patches and factories alone, and puts back its own."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
import uvloop

from quell.testing.counting import census, tracking

from .counting import SHORT, line

pytestmark = [
    pytest.mark.usefixtures("libuv", "temporary"),
    pytest.mark.leak_census(kinds=()),
]  # a census is what they are about

PATCHED = (
    (os, "pipe"),
    (socket.socket, "detach"),
    (threading.Thread, "start"),
    (subprocess.Popen, "__init__"),
    (asyncio.Runner, "close"),
    (uvloop.Loop, "call_exception_handler"),
)


def test_tracking_puts_back_what_it_wraps() -> None:
    before = [vars(holder).get(name) for holder, name in PATCHED]
    depth = sys.get_coroutine_origin_tracking_depth()
    with tracking(), tracking():
        assert [vars(holder).get(name) for holder, name in PATCHED] != before
    assert [vars(holder).get(name) for holder, name in PATCHED] == before
    assert sys.get_coroutine_origin_tracking_depth() == depth


def test_what_is_lost_inside_the_inner_tracking_is_not_told_by_the_outer_one() -> None:
    async def leaves_one() -> None:
        asyncio.create_task(asyncio.sleep(600))  # noqa: RUF006  # nobody keeps it: that is the leak

    with tracking(settle=SHORT):
        outer = census(kinds="task")
        with tracking(settle=0):
            inner = census(kinds="task")
            asyncio.run(leaves_one())
            assert len(inner.leaks(settle=0)) == len(outer.leaks(settle=0)) == 1
        assert outer.leaks(settle=0) == []
        asyncio.run(leaves_one())
        assert len(outer.leaks(settle=0)) == 1


def test_a_folder_for_temporary_files_that_is_to_be_found_anew_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    with tracking():
        before = census(kinds="temp")
        monkeypatch.setattr(tempfile, "tempdir", None)
        path = tempfile.mkdtemp()
        assert before.leaks(settle=0) == []  # it looks where it looked before
        os.rmdir(path)


@pytest.mark.parametrize("event", ["open", "os.mkdir", "socket.__new__", "socket.bind", "os.rename"])
def test_events_of_others_by_the_same_name_do_no_harm(event: str) -> None:
    with tracking():
        sys.audit(event)
        sys.audit(event, None, None, None, None, None)
        sys.audit(event, "\0", "\0", "\0")


def test_what_others_put_over_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with tracking():
        wrapped = os.pipe
        monkeypatch.setattr(os, "pipe", lambda: wrapped())
        theirs = os.pipe
    assert os.pipe is theirs
    for number in os.pipe():
        os.close(number)


def test_tracking_leaves_the_task_factory_alone() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(factory)
        await asyncio.create_task(asyncio.sleep(0))
        assert loop.get_task_factory() is factory

    made = []

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> "asyncio.Task[Any]":
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    with tracking():
        asyncio.run(main())
    assert len(made) >= 1


def test_what_a_library_made_is_told_with_the_line_that_called_it(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages" / "planted_library"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("def connect():\n    return open('/dev/null')\n", encoding="utf-8")
    space: dict[str, Any] = {}
    exec(compile((folder / "__init__.py").read_text(encoding="utf-8"), str(folder / "__init__.py"), "exec"), space)
    with tracking():
        before = census()
        file, caller = space["connect"](), line()
        (leak,) = before.leaks(settle=0)
        file.close()
    assert leak.made == f"{folder}/__init__.py:2 in connect"
    assert leak.caller is not None and leak.caller.startswith(caller)
    assert str(leak).endswith(f", made at {leak.made}, called from {leak.caller}")


def test_without_tracking_a_leak_has_no_line() -> None:
    before = census()
    with open("/dev/null"):
        (leak,) = before.leaks(settle=0)
    assert leak.made is None
    assert str(leak) == f"fd {leak.what}"
