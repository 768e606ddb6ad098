"""Cgroups of the test's own: one per cell, given to the cell's user, and removed with whatever is below it."""

import os
from pathlib import Path

from tests.matrix.proc import until

_DELEGATED = (".", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads")


def own_cgroup() -> Path | None:
    """The folder of the cgroup (v2) that this process is in; None where there is none to see."""
    mounts = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    roots = [Path(words[4]) for words in mounts if words[words.index("-") + 1] == "cgroup2"]
    paths = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    if not roots or not paths:
        return None
    folder = roots[0] / paths[0].lstrip("/")
    return folder if folder.is_dir() else None


def available() -> bool:
    """Whether cgroups can be made here, of the kind that ends its members at once."""
    folder = own_cgroup()
    if folder is None or not os.access(folder, os.W_OK) or not os.access(folder / "cgroup.procs", os.W_OK):
        return False
    probe = make(f"quell-matrix-probe-{os.getpid()}", os.getuid())
    try:
        return (probe / "cgroup.kill").exists()
    finally:
        remove(probe)


def make(name: str, uid: int) -> Path:
    """A cgroup below our own, delegated to the uid as a service manager does it."""
    parent = own_cgroup()
    assert parent is not None
    folder = parent / name
    folder.mkdir()
    for file in _DELEGATED:
        if (folder / file).exists():
            os.chown(folder / file, uid, -1)
    return folder


def below(folder: Path) -> list[str]:
    """The cgroups that somebody made below it."""
    return [path for path, _, _ in os.walk(folder)][1:]


def remove(folder: Path) -> bool:
    """Remove it and those below it, once the last dead member has left; False if it would not go."""

    def removed() -> bool:
        for path, _, _ in os.walk(folder, topdown=False):
            try:
                os.rmdir(path)
            except OSError:
                return False
        return True

    return until(removed)
