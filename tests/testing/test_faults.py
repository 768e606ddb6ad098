"""The n-th call of each kind fails in planted code, is counted, and everything is put back afterwards."""

import _socket
import builtins
import errno
import gc
import io
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from os import pipe as pipe_by_another_name
from pathlib import Path

import pytest

from quell.errors import UsageError
from quell.supervise import Zygote, zygote
from quell.supervise.keeper import linux
from quell.testing import Faults
from quell.testing.faults import KINDS

HERE = f"{__file__}:"
HOLDERS = (os, io, builtins, socket, socket.socket, _socket, subprocess, linux, sys.modules[__name__])
NOWHERE = 1 << 30
"""A number that no call has: such faults only count."""

pytestmark = pytest.mark.leak_census(kinds=())  # its tracking wraps the calls that are to fail


def close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


def plant_subprocess(folder: Path) -> None:
    subprocess.run(["true"], check=True, stdin=subprocess.DEVNULL)


def plant_posix_spawn(folder: Path) -> None:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def plant_pipe(folder: Path) -> None:
    close(*os.pipe())


def plant_pipe_by_another_name(folder: Path) -> None:
    close(*pipe_by_another_name())


def plant_socketpair(folder: Path) -> None:
    for end in socket.socketpair():
        end.close()


def plant_terminal(folder: Path) -> None:
    close(*os.openpty())


def plant_open(folder: Path) -> None:
    close(os.open(folder, os.O_RDONLY))


def plant_file(folder: Path) -> None:
    with open("/dev/null", encoding="utf-8") as file:
        file.read()


def plant_pidfd(folder: Path) -> None:
    close(os.pidfd_open(os.getpid()))


def plant_listing(folder: Path) -> None:
    os.listdir(folder)


def plant_write(folder: Path) -> None:
    fd = os.memfd_create("planted")
    try:
        os.write(fd, b"x")
    finally:
        os.close(fd)


def plant_text(folder: Path) -> None:
    with open(folder / "text", "wb", buffering=0) as file:
        file.write(b"x")


def plant_send(folder: Path) -> None:
    one, other = socket.socketpair()
    with one, other:
        one.send(b"x")


def plant_fsync(folder: Path) -> None:
    fd = os.open(folder / "synced", os.O_WRONLY | os.O_CREAT)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


PLANTED: list[tuple[str, Callable[[Path], None], int]] = [
    ("spawn", plant_subprocess, errno.EAGAIN),
    ("spawn", plant_posix_spawn, errno.EAGAIN),
    ("pipe", plant_pipe, errno.EMFILE),
    ("pipe", plant_pipe_by_another_name, errno.EMFILE),
    ("pipe", plant_socketpair, errno.EMFILE),
    ("pipe", plant_terminal, errno.EMFILE),
    ("fd", plant_open, errno.EMFILE),
    ("fd", plant_file, errno.EMFILE),
    ("fd", plant_pidfd, errno.EMFILE),
    ("fd", plant_listing, errno.EMFILE),
    ("write", plant_write, errno.ENOSPC),
    ("write", plant_text, errno.ENOSPC),
    ("write", plant_send, errno.ENOBUFS),
    ("fsync", plant_fsync, errno.EIO),
]


@pytest.mark.parametrize(("kind", "plant", "code"), PLANTED)
def test_the_nth_call_is_refused_with_the_kernels_error_and_the_others_are_made(
    kind: str, plant: Callable[[Path], None], code: int, tmp_path: Path
) -> None:
    with Faults(kind, 2) as faults:
        plant(tmp_path)
        assert (faults.calls, faults.fired) == (1, None)
        with pytest.raises(OSError) as refused:
            plant(tmp_path)
        plant(tmp_path)
    plant(tmp_path)
    assert refused.value.errno == code and refused.value.strerror == os.strerror(code)
    assert faults.calls == len(faults.seen) == 3
    assert faults.fired == faults.seen[1] and HERE in faults.fired and faults.fired.endswith(plant.__qualname__)


def test_the_line_of_the_refused_call_is_named() -> None:
    with Faults("pipe") as faults, pytest.raises(OSError):
        os.pipe()  # this line
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith("# this line"))
    assert faults.fired == f"os.pipe at {HERE}{line} in test_the_line_of_the_refused_call_is_named"


def test_a_refused_call_is_not_made(tmp_path: Path) -> None:
    with Faults("fd", 2) as faults:
        close(os.open(tmp_path / "first", os.O_WRONLY | os.O_CREAT))
        with pytest.raises(OSError, match="second"):  # and it names the file, as the kernel's would
            os.open(tmp_path / "second", os.O_WRONLY | os.O_CREAT)
    assert faults.calls == 2 and os.listdir(tmp_path) == ["first"]


def test_a_number_beyond_the_calls_refuses_nothing() -> None:
    with Faults("pipe", 4) as faults:
        for _ in range(3):
            plant_pipe(Path())
    assert faults.calls == 3 and faults.fired is None


def test_only_calls_in_the_context_count() -> None:
    plant_pipe(Path())
    with Faults("pipe", NOWHERE) as faults:
        plant_pipe(Path())
    plant_pipe(Path())
    assert faults.calls == 1


def test_every_call_from_the_nth_on_can_be_refused() -> None:
    with Faults("pipe", 2, every=True) as faults:
        plant_pipe(Path())
        for _ in range(3):
            with pytest.raises(OSError):
                os.pipe()
    assert faults.calls == 4 and faults.fired == faults.seen[1]


def test_the_error_can_be_chosen() -> None:
    with Faults("write", error=errno.EPIPE), pytest.raises(BrokenPipeError):
        os.write(1, b"")


def test_a_write_through_a_file_counts_when_it_reaches_the_kernel(tmp_path: Path) -> None:
    with Faults("write", NOWHERE) as faults:
        with open(tmp_path / "text", "w", encoding="utf-8") as text:
            text.write("a")
            text.write("b")
            assert faults.calls == 0
        assert faults.calls == 1
        with open(tmp_path / "raw", "wb", buffering=0) as raw:
            raw.write(b"a")
            raw.write(b"b")
        with open(tmp_path / "text", "a+", encoding="utf-8", newline="") as again:
            again.write("c\n")
            again.seek(0)
            assert again.read() == "abc\n" and again.mode == "a+"
    assert faults.calls == 4 and (tmp_path / "raw").read_bytes() == b"ab"


def test_only_what_is_below_a_cgroup_counts_as_cgroup(tmp_path: Path) -> None:
    planted = "/sys/fs/cgroup/quell-planted"
    with Faults("cgroup", every=True) as faults:
        os.mkdir(tmp_path / "folder")
        (tmp_path / "file").write_text("x", encoding="utf-8")
        assert faults.calls == 0
        with pytest.raises(PermissionError):
            os.mkdir(planted)
        with pytest.raises(PermissionError, match=r"cgroup\.procs"):
            Path(f"{planted}/cgroup.procs").write_text("0", encoding="ascii")
        with pytest.raises(OSError, match="busy"):
            os.rmdir(planted)
        assert faults.calls == 3
    assert not os.path.exists(planted)


def test_namespace_calls_of_the_keepers_say_what_they_would_say() -> None:
    with Faults("namespace") as faults, pytest.raises(PermissionError, match="unshare: Operation not permitted"):
        linux.unshare(0)
    assert faults.fired is not None and "in unshare" in faults.fired


def test_namespace_calls_of_python_are_refused_where_it_has_them() -> None:
    if sys.version_info >= (3, 12):
        with Faults("namespace"), pytest.raises(PermissionError):
            os.unshare(0)


def names() -> list[dict[str, object]]:
    return [dict(vars(holder)) for holder in HOLDERS]


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_put_back_exactly_also_after_an_exception(kind: str) -> None:
    before, boot = names(), zygote.BOOT
    with pytest.raises(ZeroDivisionError), Faults(kind, NOWHERE), Faults(kind, NOWHERE):
        _ = 1 / 0
    with Faults(kind, NOWHERE):
        assert names() != before and boot != zygote.BOOT
    assert names() == before and zygote.BOOT is boot


def test_faults_of_several_kinds_compose(tmp_path: Path) -> None:
    with Faults("fd", 3) as fds, Faults("write", 2) as writes, Faults("fsync") as syncs:
        plant_text(tmp_path)
        with pytest.raises(OSError, match="No space left"):
            plant_text(tmp_path)
        with pytest.raises(OSError, match="Too many open files"):
            plant_text(tmp_path)
        with pytest.raises(OSError, match="Input/output error"):
            plant_fsync(tmp_path)
    assert [fds.calls, writes.calls, syncs.calls] == [4, 2, 1]
    assert fds.fired and writes.fired and syncs.fired


def test_each_tries_every_number_until_none_is_refused() -> None:
    def three() -> None:
        for _ in range(3):
            plant_pipe(Path())

    tried = []
    for faults in Faults.each("pipe"):
        with faults:
            try:
                three()
            except OSError:
                tried.append(faults.n)
    assert tried == [1, 2, 3] and (faults.n, faults.calls, faults.fired) == (4, 3, None)


def test_calls_of_several_threads_are_counted_once_each() -> None:
    refused = []

    def many() -> None:
        for _ in range(50):
            try:
                plant_pipe(Path())
            except OSError:
                refused.append(1)

    with Faults("pipe", 77) as faults:
        threads = [threading.Thread(target=many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert faults.calls == 200 and len(refused) == 1


def test_a_pause_is_not_counted() -> None:
    with Faults("pipe") as faults:
        with faults.paused():
            plant_pipe(Path())
        assert faults.calls == 0
        with pytest.raises(OSError):
            os.pipe()


def test_a_socket_that_was_made_meanwhile_lives_on() -> None:
    with Faults("write", NOWHERE) as faults:
        one, other = _socket.socketpair()
        one.send(b"x")
        assert faults.calls == 1
    assert one.send(b"y") == 1 and other.recv(2) == b"xy" and faults.calls == 1
    one.close()
    other.close()


def test_what_makes_no_sense_is_refused() -> None:
    for wrong in ({"kind": "pipes"}, {"kind": "pipe", "n": 0}, {"kind": "pipe", "within": "here"}):
        with pytest.raises(UsageError):
            Faults(**wrong)
    with Faults("pipe", NOWHERE) as faults, pytest.raises(UsageError, match="in use"), faults:
        pass


# -- zygotes and keepers


def spawns(within: str) -> list[str]:
    with Faults("spawn", NOWHERE, within=within) as faults, Zygote("subreaper", pool=0) as started:
        assert started.box().spawn(["true"]).wait(10) == {"code": 0}
    return [text.replace("(python)", "(quell-guard)") for text in faults.seen]


def test_owner_and_keepers_share_one_count_and_each_is_named() -> None:
    everywhere, here, there = spawns("all"), spawns("owner"), spawns("keepers")
    assert everywhere == [*here, *there] and len(here) == 1
    assert [text.rpartition(" ")[2] for text in there] == ["(quell-guard)", "(quell-zygote)", "(quell-keeper)"]


def test_a_fault_in_a_keeper_fires_there_and_nowhere_else() -> None:
    with Faults("spawn", 3, within="keepers") as faults, Zygote("subreaper", pool=0) as started:
        box = started.box()
        with pytest.raises(Exception, match="Resource temporarily unavailable"):
            box.spawn(["true"])
        assert box.spawn(["true"]).wait(10) == {"code": 0}
    assert faults.fired is not None and faults.fired.endswith("(quell-keeper)")


def test_a_zygote_outlives_the_faults_unharmed() -> None:
    with Faults("spawn", 4, every=True) as faults:
        started = Zygote("subreaper", pool=0)
        box = started.box()
        with pytest.raises(Exception, match="Resource temporarily unavailable"):
            box.spawn(["true"])
    with started:
        assert box.spawn(["true"]).wait(10) == {"code": 0}
    assert faults.calls == 4


def test_nothing_of_the_faults_is_left() -> None:
    """H03: no file, no descriptor, and no object that a later collection would complain about."""
    with Faults("write", NOWHERE) as faults:
        log = faults._log
        plant_send(Path())
    assert log is not None and not os.path.exists(log)
    gc.collect()
