"""What the figures were measured on."""

import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def facts() -> dict[str, str]:
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    return {
        "machine": f"{processor()}, {len(os.sched_getaffinity(0))} cores, {memory()} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": ", ".join(f"{name} {found}" for name, found in versions().items()),
        "load before": load,
    }


def processor() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def memory() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def versions() -> dict[str, str]:
    found = {}
    for name in ("quell", "psutil", "uvloop"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    for tool in ("bwrap", "unshare"):
        if shutil.which(tool):
            said = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False).stdout.split()
            found[tool] = said[-1] if said else "?"
    return found
