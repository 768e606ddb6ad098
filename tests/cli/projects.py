"""Plugin projects for tests: a wheel made by hand, which pip takes at once, and a source tree whose build is slow."""

import zipfile
from pathlib import Path

MODULE = "class Plugin:\n    name = '{plugin}'\n    def setup(self, ctx):\n        pass\n"
GROUP = "quell.plugins"

SLOW_BACKEND = """
import subprocess, time
from hatchling.build import *
from hatchling import build

def build_wheel(*arguments, **options):
    for words in (["sleep", "97"], ["setsid", "sleep", "98"], ["sh", "-c", "{trap}sleep 99 & wait; sleep 99"]):
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep({seconds})
    return build.build_wheel(*arguments, **options)
"""


def wheel(
    folder: Path, name: str, plugin: str = "", *, version: str = "1.0", requires: str = "", group: str = GROUP
) -> Path:
    """A wheel of a distribution that brings one plugin, or none."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    requirement = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{module}.py": MODULE.format(plugin=plugin) + f"version = '{version}'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requirement}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    if plugin:
        files[f"{info}/entry_points.txt"] = f"[{group}]\n{plugin} = {module}:Plugin\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def put(path: Path, state: Path, name: str) -> None:
    """As if that wheel had been installed."""
    with zipfile.ZipFile(path) as archive:
        archive.extractall(state / "plugins" / name)


def slow_project(folder: Path, seconds: float, *, stubborn: bool) -> Path:
    """A source tree whose build leaves processes behind, one in a session of its own, one that may ignore SIGTERM."""
    folder.mkdir()
    trap = "trap '' TERM; " if stubborn else ""
    (folder / "slow_backend.py").write_text(SLOW_BACKEND.format(seconds=seconds, trap=trap))
    (folder / "quell_slow.py").write_text(MODULE.format(plugin="slow"))
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "slow_backend"\nbackend-path = ["."]\n'
        '[project]\nname = "quell-slow"\nversion = "1.0"\n'
        f'[project.entry-points."{GROUP}"]\nslow = "quell_slow:Plugin"\n'
        '[tool.hatch.build.targets.wheel]\ninclude = ["quell_slow.py"]\n'
    )
    return folder
