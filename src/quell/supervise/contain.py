"""Containment is a ladder of rungs: which this machine gives, and why not a better one.

pidns      a PID namespace of its own, the keeper its init: the default for root
userns     the same by way of a user namespace, without privilege: by name only, because of what it loses
cgroup     a cgroup v2 folder that this user may write: atomic, transparent
subreaper  descent, by the kernel's child subreaper: everywhere on Linux
"""

from __future__ import annotations

import os
import sys

from ..errors import ContainmentError, UsageError

RUNGS = ("pidns", "userns", "cgroup", "subreaper")
_CAP_SYS_ADMIN = 1 << 21


def order(name: str) -> list[str]:
    """The rungs to try for `--contain NAME`, best first."""
    if name == "auto":
        given = [rung for rung in ("pidns", "cgroup", "subreaper") if why_not(rung) is None]
        if not given:
            raise ContainmentError(f"nothing can be contained here: {why_not('subreaper')}")
        return given
    if name not in RUNGS:
        raise UsageError(f"there is no rung '{name}': choose one of auto, {', '.join(RUNGS)}")
    why = why_not(name)
    if why is not None:
        raise ContainmentError(
            f"this machine does not give the rung '{name}': {why}; quell doctor shows which it gives"
        )
    return [name]


def why_not(name: str) -> str | None:
    """What a quick look says against a rung; the keeper finds out the rest when it makes the box."""
    if sys.platform != "linux":
        return "Quell runs on Linux only, for now"
    if not os.path.exists("/proc/self/stat"):
        return "/proc is not mounted; mount it (mount -t proc proc /proc)"
    if name == "pidns" and not _capabilities() & _CAP_SYS_ADMIN:
        return "a PID namespace needs CAP_SYS_ADMIN; run as root, or use userns, cgroup or subreaper"
    if name == "userns" and _number("/proc/sys/user/max_user_namespaces", 1) == 0:
        return "user namespaces are turned off (sysctl user.max_user_namespaces is 0)"
    if name == "userns" and _number("/proc/sys/kernel/unprivileged_userns_clone", 1) == 0 and os.geteuid() != 0:
        return "user namespaces are for root only (sysctl kernel.unprivileged_userns_clone is 0)"
    if name == "cgroup":
        return _cgroup()[1]
    return None


def cgroup_home() -> str:
    """The folder of the cgroup v2 that this process is in."""
    home, why = _cgroup()
    if home is None:
        raise ContainmentError(f"this machine does not give the rung 'cgroup': {why}")
    return home


def _cgroup() -> tuple[str | None, str | None]:
    mount = _cgroup_mount()
    if mount is None:
        return None, "no cgroup v2 is mounted"
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        own = next((line[3:].rstrip("\n") for line in file if line.startswith("0::")), None)
    if own is None or own.startswith("/.."):
        return None, "this process is in no cgroup v2 that it can see"
    home = mount + own.rstrip("/")
    if not (os.access(home, os.W_OK) and os.access(f"{home}/cgroup.procs", os.W_OK)):
        return None, (
            f"the cgroup {own} is not writable for this user;"
            " start from a delegated one (systemd-run --user --scope -p Delegate=yes)"
        )
    return home, None


def _cgroup_mount() -> str | None:
    """The first cgroup v2 whose root is mounted whole."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            if right.startswith("cgroup2 ") and left.split()[3] == "/":
                return left.split()[4].replace("\\040", " ")
    return None


def _capabilities() -> int:
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        return next((int(line.split()[1], 16) for line in file if line.startswith("CapEff:")), 0)


def _number(path: str, default: int) -> int:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return default
