"""One leak of every kind, and of every way to make it. The stack that a plant is given cleans it up."""

import _thread
import asyncio
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import uvloop

from quell.supervise.contain import cgroup_home

from .counting import end, line, until

Planted = tuple[str, str, str]
"""Kind and words of the leak that is to be found, and the beginning of the line that made it."""


def plant_task(cleanup: ExitStack) -> Planted:
    loop = asyncio.new_event_loop()
    cleanup.callback(loop.close)

    async def waits() -> None:
        await asyncio.sleep(600)

    task, made = loop.create_task(waits(), name="planted"), line()
    loop.run_until_complete(asyncio.sleep(0))
    cleanup.callback(lambda: task.cancel() and loop.run_until_complete(asyncio.wait([task])))
    first = waits.__code__.co_firstlineno
    return "task", f"'planted' waiting at {__file__}:{first + 1} in plant_task.<locals>.waits", made


def plant_thread(cleanup: ExitStack) -> Planted:
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="planted")
    made = line(+1)
    thread.start()
    cleanup.callback(thread.join)
    cleanup.callback(over.set)
    return "thread", f"'planted' ({thread.ident}) at ", made


def plant_bare_thread(cleanup: ExitStack) -> Planted:
    over, ended = threading.Event(), threading.Event()

    def work() -> None:
        over.wait()
        ended.set()

    ident, made = _thread.start_new_thread(work, ()), line()
    cleanup.callback(ended.wait)
    cleanup.callback(over.set)
    until(lambda: ident in sys._current_frames())
    return "thread", f"without a name ({ident}) at {__file__}:", made


def plant_descriptor(cleanup: ExitStack) -> Planted:
    number, made = os.open("/dev/null", os.O_RDONLY), line()
    cleanup.callback(os.close, number)
    os.close(os.open("/dev/null", os.O_RDONLY))  # the same file under the next number
    return "fd", f"{number} of /dev/null", made


def plant_file(cleanup: ExitStack) -> Planted:
    file, made = open(__file__, "rb"), line()  # noqa: SIM115  # it is the leak
    cleanup.callback(file.close)
    return "fd", f"{file.fileno()} of {__file__}", made


def plant_nameless_file(cleanup: ExitStack) -> Planted:
    file, made = tempfile.TemporaryFile(), line()  # noqa: SIM115  # it is the leak
    cleanup.callback(file.close)
    return "fd", f"{file.fileno()} of {tempfile.gettempdir()}/", made


def plant_database(cleanup: ExitStack) -> Planted:
    folder = tempfile.mkdtemp()
    cleanup.callback(shutil.rmtree, folder)
    database, made = sqlite3.connect(f"{folder}/planted.db"), line()
    database.execute("create table planted (x)")
    cleanup.callback(database.close)
    return "fd", f" of {folder}/planted.db", made


def plant_pipe(cleanup: ExitStack) -> Planted:
    (reading, writing), made = os.pipe(), line()
    cleanup.callback(os.close, writing)
    cleanup.callback(os.close, reading)
    return "fd", f"{writing} of pipe:[", made


def plant_copy(cleanup: ExitStack) -> Planted:
    number, made = os.dup(0), line()
    cleanup.callback(os.close, number)
    return "fd", f"{number} of ", made


def plant_event(cleanup: ExitStack) -> Planted:
    number, made = os.eventfd(0), line()
    cleanup.callback(os.close, number)
    return "fd", f"{number} of anon_inode:[eventfd]", made


def plant_loop(cleanup: ExitStack) -> Planted:
    loop, made = asyncio.new_event_loop(), line()
    cleanup.callback(loop.close)
    return "fd", " of anon_inode:[eventpoll]", made


def plant_terminal(cleanup: ExitStack) -> Planted:
    (ours, theirs), made = os.openpty(), line()
    cleanup.callback(os.close, theirs)
    cleanup.callback(os.close, ours)
    return "fd", f"{ours} of {os.readlink(f'/proc/self/fd/{ours}')}", made


def plant_listener(cleanup: ExitStack) -> Planted:
    listener, made = socket.create_server(("127.0.0.1", 0)), line()
    cleanup.callback(listener.close)
    where = f"AF_INET SOCK_STREAM, listening on 127.0.0.1:{listener.getsockname()[1]}"
    return "socket", f"{listener.fileno()} of socket:[{os.fstat(listener.fileno()).st_ino}], {where}", made


def plant_connection(cleanup: ExitStack) -> Planted:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as near:
            (far, _), made = listener.accept(), line()
            here, there = near.getsockname(), listener.getsockname()
            cleanup.callback(far.close)
            return "socket", f", AF_INET SOCK_STREAM, 127.0.0.1:{there[1]} to 127.0.0.1:{here[1]}", made


def plant_detached_socket(cleanup: ExitStack) -> Planted:
    ours, theirs = socket.socketpair()
    theirs.close()
    number, made = ours.detach(), line()
    cleanup.callback(os.close, number)
    return "socket", f"{number} of socket:[", made


def plant_child(cleanup: ExitStack) -> Planted:
    child, made = subprocess.Popen(["sleep", "600"]), line()
    cleanup.callback(end, child)
    until(lambda: Path(f"/proc/{child.pid}/cmdline").read_bytes() == b"sleep\x00600\x00")
    return "descendant", f"{child.pid} 'sleep 600'", made


def plant_grandchild(cleanup: ExitStack) -> Planted:
    script = "sleep 601 & echo $!; wait"
    child, made = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True), line()
    assert child.stdout is not None
    pid = int(child.stdout.readline())
    cleanup.callback(child.stdout.close)
    cleanup.callback(end, child)
    cleanup.callback(os.kill, pid, signal.SIGKILL)
    until(lambda: b"601" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return "descendant", f"{pid} 'sleep 601'", made


def plant_zombie(cleanup: ExitStack) -> Planted:
    child, made = os.posix_spawnp("true", ["true"], os.environ), line()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    cleanup.callback(os.waitpid, child, 0)
    return "descendant", f"{child} ended, never reaped", made


def plant_fork(cleanup: ExitStack) -> Planted:
    child, made = os.fork(), line()
    if not child:
        os._exit(0)
    cleanup.callback(os.waitpid, child, 0)
    return "descendant", f"{child} ", made


def plant_child_of_uvloop(cleanup: ExitStack) -> Planted:
    loop = uvloop.new_event_loop()
    cleanup.callback(loop.close)

    async def spawn() -> tuple[asyncio.subprocess.Process, str]:
        return await asyncio.create_subprocess_exec("sleep", "602"), line()

    child, made = loop.run_until_complete(spawn())
    cleanup.callback(lambda: loop.run_until_complete(child.wait()))
    cleanup.callback(child.kill)
    return "descendant", f"{child.pid} 'sleep 602'", made


def plant_temporary_file(cleanup: ExitStack) -> Planted:
    (number, path), made = tempfile.mkstemp(), line()
    os.close(number)
    cleanup.callback(os.unlink, path)
    return "temp", f"file {path}", made


def plant_temporary_folder(cleanup: ExitStack) -> Planted:
    path, made = tempfile.mkdtemp(), line()
    cleanup.callback(os.rmdir, path)
    return "temp", f"directory {path}", made


def plant_temporary_socket(cleanup: ExitStack) -> Planted:
    path = f"{tempfile.gettempdir()}/s"
    with socket.socket(socket.AF_UNIX) as listener:
        made = line(+1)
        listener.bind(path)
    cleanup.callback(os.unlink, path)
    return "temp", f"socket {path}", made


def plant_cgroup(cleanup: ExitStack) -> Planted:
    path = f"{cgroup_home()}/planted-{os.getpid()}"
    made = line(+1)
    os.mkdir(path)
    cleanup.callback(os.rmdir, path)
    return "cgroup", path, made


def plant_old_cgroup(cleanup: ExitStack) -> Planted:
    path = f"/sys/fs/cgroup/pids/planted-{os.getpid()}"
    made = line(+1)
    os.mkdir(path)
    cleanup.callback(os.rmdir, path)
    return "cgroup", path, made


def plant_namespace(cleanup: ExitStack) -> Planted:
    member, made = subprocess.Popen(["unshare", "--uts", "sleep", "603"]), line()
    cleanup.callback(end, member)
    until(lambda: Path(f"/proc/{member.pid}/cmdline").read_bytes() == b"sleep\x00603\x00")
    name = os.readlink(f"/proc/{member.pid}/ns/uts")
    assert name != os.readlink("/proc/self/ns/uts")
    return "namespace", f"{name} of process {member.pid} 'sleep 603'", made


PLANTS = [plant for name, plant in list(globals().items()) if name.startswith("plant_")]
