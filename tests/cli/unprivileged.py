"""Run commands as a user who owns nothing here, with the interpreter and this checkout where they always are.

The interpreter, the environment of the tests or the checkout may lie in a folder that only its owner may enter (a
home with mode 0700). Nobody's files are changed for that: in a mount namespace of the command's own, each closed
folder is covered by an empty open one, in which just what is needed is bind-mounted again under its own path.
"""

import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tests.cli.command import BOUND, CHECKOUT, QUELL

UID = 4242  # any number without an account; not 65534, which user namespaces use for "unknown" and which hides faults


def _closed(folder: Path) -> bool:
    """Whether a stranger may not both enter and list the folder."""
    mode = folder.stat().st_mode
    return mode & (stat.S_IXOTH | stat.S_IROTH) != (stat.S_IXOTH | stat.S_IROTH)


def _needed() -> list[Path]:
    places = {
        Path(sys.prefix),
        Path(sys.base_prefix),
        Path(sys.executable).resolve().parents[1],
        QUELL.parent,
        CHECKOUT,
    }
    real = {place.resolve() for place in places} | places
    return sorted(place for place in real if not any(other in place.parents for other in real))


def _covers(needed: list[Path]) -> dict[Path, list[Path]]:
    """Each outermost closed folder, and what is needed from below it."""
    covers: dict[Path, list[Path]] = {}
    for place in needed:
        for folder in [*reversed(place.parents), place]:
            if _closed(folder):
                covers.setdefault(folder, []).extend(sorted(place.iterdir()) if _closed(place) else [place])
                break
    return covers


@cache
def _entry() -> str:
    """A shell script that opens the closed folders in this mount namespace, then execs its arguments."""
    lines = ["set -e", "old=$(umask)", "umask 022"]
    for cover, places in _covers(_needed()).items():
        stage = '"$stage"'
        lines += ["stage=$(mktemp -d)", f"mount -t tmpfs -o mode=755 quell-tests {stage}"]
        for number, place in enumerate(places):
            kind = f"mkdir {stage}/{number}" if place.is_dir() else f"touch {stage}/{number}"
            lines += [kind, f"mount --rbind {shlex.quote(str(place))} {stage}/{number}"]
        lines += [f"mount -t tmpfs -o mode=755 quell-tests {shlex.quote(str(cover))}"]
        for number, place in enumerate(places):
            name = shlex.quote(str(place))
            kind = f"mkdir -p {name}" if place.is_dir() else f"mkdir -p {shlex.quote(str(place.parent))}; touch {name}"
            lines += [kind, f"mount --move {stage}/{number} {name}"]
        lines += [f"umount {stage}", f"rmdir {stage}"]
    return "; ".join([*lines, "umask $old", 'exec "$@"'])


def prefix(accounts: Path | None = None) -> list[str]:
    """The words before a command that make it run as UID, without any privilege; `accounts` is its /etc/passwd."""
    if os.geteuid():
        return []
    for tool in ("unshare", "setpriv", "mount"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} (util-linux) is not installed")
    drop = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--"]
    if not _covers(_needed()) and accounts is None:
        return drop
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("the tests' interpreter is closed to other users, and no mount namespace may be had to open it")
    known = "" if accounts is None else f"mount --bind {shlex.quote(str(accounts))} /etc/passwd && "
    return ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", known + _entry(), "sh", *drop]


@dataclass
class User:
    """A stranger on this machine, with a home of its own and, where asked for, a delegated cgroup."""

    home: Path
    cgroup: Path | None = None
    accounts: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, *args: str | Path) -> list[str]:
        join = [] if self.cgroup is None else ["sh", "-c", f'echo $$ >{self.cgroup}/cgroup.procs; exec "$@"', "sh"]
        return [*join, *prefix(self.accounts), *map(str, args)]

    def run(
        self,
        *args: str | Path,
        env: Mapping[str, str] | None = None,
        timeout: float = BOUND,
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.command(*args),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=self.home,
            env={**self.environment, **(env or {})},
            timeout=timeout,
            check=False,
        )


@contextmanager
def user(*, delegated: bool = False, known: bool = False) -> Iterator[User]:
    """A stranger for one test.

    With `delegated`, it starts in a cgroup that was handed over to it; with `known`, it has an account (ssh asks).
    """
    home = Path(tempfile.mkdtemp(prefix="quell-user-"))
    if not os.geteuid():
        os.chown(home, UID, UID)
    made = User(home, _delegated() if delegated else None, _account(home) if known else None)
    made.environment = {
        "PATH": f"{QUELL.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
    }
    try:
        yield made
    finally:
        if made.cgroup is not None:
            _remove(made.cgroup)
        shutil.rmtree(home)


def _account(home: Path) -> Path | None:
    """A copy of the list of accounts with one more line; only the stranger's own mounts show it."""
    if os.geteuid():
        return None
    accounts = home / "accounts"
    accounts.write_text(Path("/etc/passwd").read_text() + f"stranger:x:{UID}:{UID}::{home}:/bin/sh\n")
    accounts.chmod(0o644)
    return accounts


def _unified() -> Path:
    """The cgroup v2 folder of this process."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    found = [Path(words[1]) for words in mounts if words[2] == "cgroup2"]
    own = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    if os.geteuid() or not found or not own:
        pytest.skip("delegating a cgroup needs root and a cgroup v2 mount")
    return found[0] / own[0].lstrip("/")


def _delegated() -> Path:
    folder = _unified() / f"quell-tests-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup may be made here: {error}")
    for name in ("", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"):
        os.chown(folder / name, UID, UID)
    return folder


def _remove(folder: Path) -> None:
    """End what is still in the cgroup (the tests have looked by now), then remove it from the inside out."""
    (folder / "cgroup.kill").write_text("1")
    for inner, _, _ in os.walk(folder, topdown=False):
        os.rmdir(inner)
