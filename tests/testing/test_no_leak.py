"""A census takes nothing for a leak that goes by itself, is the same as before, or belongs to somebody else."""

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import uvloop

from quell.supervise.contain import cgroup_home
from quell.testing.counting import census, tracking

from .counting import end, run, until, words

pytestmark = pytest.mark.usefixtures("libuv", "temporary")


def test_code_that_cleans_up_leaks_nothing() -> None:
    with tracking():
        before = census()
        with tempfile.TemporaryDirectory() as folder, open(f"{folder}/file", "w"):
            subprocess.run(["sh", "-c", "sleep 0.01 & wait"], check=True)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            socket.create_connection(listener.getsockname()).close()
        with ThreadPoolExecutor() as pool:
            assert list(pool.map(abs, range(-3, 0))) == [3, 2, 1]

        async def main() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.to_thread(os.getpid))
                child = await asyncio.create_subprocess_exec("true")
                await child.wait()

        asyncio.run(main())
        uvloop.run(main())
        assert words(before.leaks()) == []


class Closes:
    """Holds a descriptor as long as it lives."""

    def __init__(self) -> None:
        self.number = os.open("/dev/null", os.O_RDONLY)
        self.self = self

    def __del__(self) -> None:
        os.close(self.number)


def test_what_the_garbage_collector_frees_is_no_leak() -> None:
    before = census()
    gc.disable()  # or it comes by chance before the census does
    try:
        Closes()
        assert words(before.leaks(census())) != []
    finally:
        gc.enable()
    assert words(before.leaks()) == []


def test_what_takes_a_moment_to_go_is_no_leak() -> None:
    before = census()
    child = subprocess.Popen(["sleep", "0.2"])
    threading.Thread(target=child.wait).start()
    assert [leak.kind for leak in before.leaks(settle=0)] == ["thread", "descendant"]
    assert words(before.leaks()) == []


def test_an_open_file_that_is_deleted_is_the_same_file(temporary: Path) -> None:
    with open(temporary / "a", "w"):
        before = census()
        (temporary / "a").unlink()
        assert words(before.leaks(settle=0)) == []


def test_the_pipe_that_libuv_keeps_for_the_process_is_no_leak() -> None:
    script = """
import asyncio, os, uvloop
from quell.testing.counting import census, tracking
for around in (True, False):
    if os.fork():
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        continue
    before = census()
    if around:
        with tracking():
            before = census()
            uvloop.run(asyncio.sleep(0))
            assert before.leaks(settle=0) == []
    else:
        uvloop.run(asyncio.sleep(0))
        assert before.leaks(settle=0) == []
        other = os.pipe()
        assert len(before.leaks(settle=0)) == 2
    os._exit(0)
"""
    run(script)


POOL = """
import multiprocessing, sys, time
from concurrent.futures import ProcessPoolExecutor
from quell.testing.counting import census, tracking
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with tracking():
        before = census()
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            assert list(pool.map(abs, [-1])) == [1]
        assert before.leaks() == [], before.leaks(settle=0)
        worker = context.Process(target=time.sleep, args=(600,))
        worker.start()
        assert {leak.kind for leak in before.leaks(settle=0)} >= {"fd", "descendant"}
        worker.kill()
        worker.join()
        worker.close()
"""


@pytest.mark.parametrize("how", ["fork", "forkserver", "spawn"])
def test_what_multiprocessing_keeps_for_the_process_is_no_leak_and_its_workers_are(how: str, tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(POOL, encoding="utf-8")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(tmp_path / "pool.py"), how]
    subprocess.run(command, check=True, timeout=60, stdin=subprocess.DEVNULL)


def test_what_another_process_puts_into_the_shared_folder_is_no_leak_of_ours(temporary: Path) -> None:
    temporary.chmod(0o1777)
    with tracking():
        before = census()
        subprocess.run(["touch", temporary / "theirs"], check=True)
        (temporary / "ours").touch()
        assert words(before.leaks(settle=0)) == [f"temp file {temporary}/ours"]


def test_in_a_folder_of_its_own_it_is(temporary: Path) -> None:
    with tracking():
        before = census()
        subprocess.run(["touch", temporary / "theirs"], check=True)
        assert words(before.leaks(settle=0)) == [f"temp file {temporary}/theirs"]


DAEMON = "echo $$ > {}/cgroup.procs; echo $$; exec sleep 600 >&- 2>&-"


def make_cgroup(cleanup: ExitStack, name: str) -> str:
    """A cgroup that another process makes."""
    path = f"{cgroup_home()}/{name}"
    subprocess.run(["mkdir", path], check=True)
    cleanup.callback(lambda: until(lambda: not removing(path)))
    return path


def test_a_cgroup_of_others_is_no_leak_of_ours(cleanup: ExitStack) -> None:
    before = census(kinds="cgroup")
    path = make_cgroup(cleanup, f"planted-{uuid.uuid4()}")
    assert words(before.leaks(settle=0)) == []
    command = ["sh", "-c", f"setsid sh -c '{DAEMON.format(path)}' &"]
    started = subprocess.run(command, check=True, capture_output=True, text=True)
    cleanup.callback(os.kill, int(started.stdout), signal.SIGKILL)
    assert words(before.leaks(settle=0)) == []


def test_a_cgroup_that_a_child_made_is_ours_if_a_descendant_is_in_it_or_our_pid_in_its_name(cleanup: ExitStack) -> None:
    before = census(kinds="cgroup")
    path = make_cgroup(cleanup, f"planted-{uuid.uuid4()}")
    child = subprocess.Popen(["sh", "-c", DAEMON.format(path)], stdout=subprocess.PIPE)
    cleanup.callback(end, child)
    assert child.stdout is not None
    with child.stdout as output:
        output.readline()
    assert words(before.leaks(settle=0)) == [f"cgroup {path}"]
    named = make_cgroup(cleanup, f"planted-{os.getpid()}-1")
    assert sorted(words(before.leaks(settle=0))) == sorted([f"cgroup {path}", f"cgroup {named}"])


def removing(path: str) -> bool:
    """Whether it is still there."""
    with suppress(OSError):
        os.rmdir(path)
    return os.path.exists(path)
