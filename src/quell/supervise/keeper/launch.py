"""Starting one command: by `posix_spawn`, or by fork and exec where only that can do what is asked.

The child gets the three streams and the descriptors that its asker meant for it, default signals (but for those
that the asker inherited as ignored) and an empty signal mask; nothing else of the keeper.
"""

from __future__ import annotations

import errno
import os

from .light import signal

_ALL_SIGNALS = sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP})
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    Action = tuple[Any, ...]


def candidates(name: str, env: Mapping[bytes, bytes]) -> Iterator[str]:
    """The files that `name` may mean, in the order in which a shell tries them."""
    if "/" in name:
        yield name
    if "/" in name or not name:
        return
    for folder in os.fsdecode(env.get(b"PATH", _DEFAULT_PATH.encode())).split(":"):
        file = f"{folder or '.'}/{name}"
        if os.path.exists(file):  # a vain attempt to spawn costs a process
            yield file


def launch(spec: Mapping[str, Any], fds: list[int], inherited_env: Mapping[bytes, bytes]) -> int:
    """Start what `spec` says and return its pid; OSError says why not, as a shell would see it."""
    argv = [os.fsencode(part) for part in spec["argv"]]
    env = inherited_env if spec.get("env") is None else spec["env"]
    umask = os.umask(spec["umask"]) if spec.get("umask") is not None else None
    try:
        if spec.get("cwd") is not None:
            _enter(spec["cwd"])
        start = _fork_exec if spec.get("rlimits") or spec.get("nice") else _spawn
        return _first_that_starts(start, argv, env, spec, fds)
    finally:
        if umask is not None:
            os.umask(umask)


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:  # not as it is: "no such file" would be taken for the command's
        raise OSError(errno.EINVAL, f"its working directory {folder} cannot be entered: {error.strerror}") from None


def _first_that_starts(start: Any, argv: list[bytes], env: Mapping[bytes, bytes], spec: Any, fds: list[int]) -> int:
    failure = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in candidates(os.fsdecode(argv[0]), env):
        try:
            return int(start(path, argv, env, spec, fds))
        except OSError as error:
            if error.errno == errno.ENOEXEC and _is_text(path):  # a script without `#!`: shells run it with sh
                return int(start("/bin/sh", [b"sh", os.fsencode(path), *argv[1:]], env, spec, fds))
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                continue
            failure = error
            if error.errno != errno.EACCES:
                break
    raise OSError(failure.errno, os.strerror(failure.errno or 0))


def _is_text(path: str) -> bool:
    """As shells decide it: no NUL in the first line."""
    try:
        with open(path, "rb") as file:
            return b"\0" not in file.read(128).partition(b"\n")[0]
    except OSError:
        return False


def _stream_actions(spec: Mapping[str, Any], fds: list[int]) -> list[Action]:
    actions: list[Action] = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(fds[:3])]
    if spec.get("tty"):  # the first terminal that a session leader opens becomes its controlling terminal
        actions.insert(0, (os.POSIX_SPAWN_OPEN, 0, os.ttyname(fds[0]), os.O_RDWR, 0))
    return actions + [(os.POSIX_SPAWN_CLOSE, fd) for fd in spec.get("closed", ())]


def _spawn(path: str, argv: list[bytes], env: Mapping[bytes, bytes], spec: Mapping[str, Any], fds: list[int]) -> int:
    ignored = set(spec.get("ignored", ()))
    if spec.get("dry"):
        return os.getpid()
    return os.posix_spawn(
        path,
        argv,
        env,
        file_actions=_stream_actions(spec, fds),
        setsigmask=spec.get("mask", []),
        setsigdef=[number for number in _ALL_SIGNALS if number not in ignored],
        setsid=bool(spec.get("tty") or spec.get("session")),
    )


def _fork_exec(
    path: str, argv: list[bytes], env: Mapping[bytes, bytes], spec: Mapping[str, Any], fds: list[int]
) -> int:
    read, write = os.pipe()
    try:
        pid = os.fork()
        if pid == 0:
            _become(path, argv, env, spec, fds, write)
    except OSError:
        os.close(read)
        raise
    finally:
        os.close(write)
    with os.fdopen(read, "rb") as report:
        failed = report.read()
    if failed:
        os.waitpid(pid, 0)
        raise OSError(int(failed), os.strerror(int(failed)))
    return pid


def _become(
    path: str, argv: list[bytes], env: Mapping[bytes, bytes], spec: Mapping[str, Any], fds: list[int], report: int
) -> None:
    """In the forked child: take on every attribute, then the program. Never returns."""
    try:
        if spec.get("tty") or spec.get("session"):
            os.setsid()
        if spec.get("tty"):
            os.close(os.open(os.ttyname(fds[0]), os.O_RDWR))
        for target, fd in enumerate(fds[:3]):
            os.dup2(fd, target)
        for fd in spec.get("closed", ()):
            os.close(fd)
        import resource

        for name, soft, hard in spec.get("rlimits", ()):
            resource.setrlimit(getattr(resource, name), (soft, hard))
        if spec.get("nice"):
            os.nice(spec["nice"])
        ignored = set(spec.get("ignored", ()))
        for number in _ALL_SIGNALS:
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, spec.get("mask", []))
        os.execve(path, argv, env)
    except OSError as error:
        os.write(report, str(error.errno or errno.EINVAL).encode())
    except BaseException:  # noqa: BLE001  a boundary: the parent must hear of it, and this copy must not go on
        os.write(report, str(int(errno.EINVAL)).encode())
    finally:
        os._exit(127)
