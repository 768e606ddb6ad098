"""Which plugins there are, without loading any: in the environment, and in folders of their own below the state folder.

The environment always wins: a plugin's folder comes last on the path, so nothing that it dragged in shadows anything.
Light enough for the command line; slow enough (it reads many small files) that a runtime calls it in a thread.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import sys

from ..errors import PluginRefusedError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from typing import Any

    from ..ports import Plugin

GROUP = "quell.plugins"
OURS = "quell"  # the distribution whose plugins are bundled
FOLDER = "plugins"  # below the state folder
DISABLED = "disabled.json"  # in FOLDER: a list of names

NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
"""No dot: `x.<plugin>.<name>` is read by its dots."""
NAME_RULE = "a small letter, then small letters, digits, `_` and `-`, up to 40 in all"


class Found:
    """A plugin that could be loaded. `fault` says why it cannot."""

    def __init__(
        self,
        name: str,
        *,
        version: str = "",
        distribution: str = "",
        folder: str = "",
        entry: importlib.metadata.EntryPoint | None = None,
        fault: str = "",
    ) -> None:
        self.name = name
        self.version = version
        self.distribution = distribution
        self.folder = folder
        """Where it was installed by `quell plugin install`; empty for what is in the environment."""
        self.fault = fault
        self._entry = entry

    @property
    def bundled(self) -> bool:
        return not self.folder and self.distribution == OURS

    @property
    def source(self) -> str:
        return "bundled" if self.bundled else "installed" if self.folder else "environment"

    def load(self) -> Plugin:
        """Import it: slow, for a thread. What the module raises is raised here."""
        if self._entry is None:
            raise PluginRefusedError(self.fault)
        if self.folder and self.folder not in sys.path:
            sys.path.append(self.folder)
        thing: Any = self._entry.load()
        plugin: Plugin = thing() if isinstance(thing, type) else thing
        return plugin


def find(disabled: Collection[str] = (), folder: str | os.PathLike[str] | None = None) -> list[Found]:
    """All that are not disabled: bundled ones first, then the environment's, then those in folders below `folder`."""
    shelf = None if folder is None else os.path.abspath(folder)
    found = [one for dist in environment(shelf) for one in plugins_of(dist)]
    found.sort(key=lambda one: (not one.bundled, one.name))
    for path in folders(shelf):
        found += in_folder(path)
    return [one for one in found if one.name not in disabled]


def enabled_in(state_dir: str | os.PathLike[str]) -> list[Found]:
    """What a runtime with this state folder loads. UsageError when the note of what is disabled cannot be read."""
    folder = os.path.join(state_dir, FOLDER)
    return find(disabled_in(folder), folder)


def in_folder(path: str) -> list[Found]:
    """The plugins of one folder; one that cannot be read is told as such, and hides no other."""
    name = os.path.basename(path)
    try:
        found = [one for dist in importlib.metadata.distributions(path=[path]) for one in plugins_of(dist, path)]
    except Exception as error:  # noqa: BLE001  a boundary: whatever a broken folder makes the standard library raise
        return [Found(name, folder=path, fault=f"{path} cannot be read: {type(error).__name__}: {error}")]
    fault = f"{path} brings no plugin (no entry point of the group {GROUP})"
    return sorted(found, key=lambda one: one.name) or [Found(name, folder=path, fault=fault)]


def plugins_of(dist: importlib.metadata.Distribution, folder: str = "") -> list[Found]:
    if not _brings_some(dist):
        return []
    version, name = dist.version, plain_name(dist)
    return [
        Found(entry.name, version=version, distribution=name, folder=folder, entry=entry)
        for entry in dist.entry_points
        if entry.group == GROUP
    ]


def _brings_some(dist: importlib.metadata.Distribution) -> bool:
    """Told by one small file: to read the whole metadata of every package took most of a start."""
    return GROUP in (dist.read_text("entry_points.txt") or "")


def is_bundled(name: str, folder: str | os.PathLike[str] | None = None) -> bool:
    """Whether Quell itself brings it: asked of the installed distribution, not of what happens to be loaded (H52)."""
    shelf = None if folder is None else os.path.abspath(folder)
    ours = (dist for dist in environment(shelf) if plain_name(dist) == OURS)
    return any(one.name == name for dist in ours for one in plugins_of(dist))


def environment(shelf: str | None) -> Iterator[importlib.metadata.Distribution]:
    """The distributions on the path that bring plugins, without the folders that a running plugin has put there.

    Of several with one name the first counts, as for imports, whether it brings any or not.
    """
    path = [entry for entry in sys.path if shelf is None or not _is_below(entry, shelf)]
    seen = set()
    for dist in importlib.metadata.distributions(path=path):
        if _brings_some(dist) and (name := plain_name(dist)) not in seen:
            seen.add(name)
            yield next(iter(importlib.metadata.distributions(name=name, path=path)), dist) if name else dist


def plain_name(dist: importlib.metadata.Distribution) -> str:
    """As package indexes compare names; empty when its metadata is broken."""
    name = dist.metadata["Name"] if dist.metadata else None
    return re.sub(r"[-_.]+", "-", name or "").lower()


def folders(shelf: str | None) -> Iterable[str]:
    """Each holds one installed plugin with what it needs; hidden ones are on their way in or out."""
    if shelf is None:
        return []
    try:
        names = sorted(os.listdir(shelf))
    except (FileNotFoundError, NotADirectoryError):
        return []
    paths = [os.path.join(shelf, name) for name in names if not name.startswith(".")]
    return [path for path in paths if os.path.isdir(path)]


def disabled_in(folder: str | os.PathLike[str]) -> set[str]:
    """The names that `quell plugin disable` has noted; UsageError when the note cannot be read."""
    path = os.path.join(folder, DISABLED)
    try:
        with open(path, encoding="utf-8") as file:
            names = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}; mend it or delete it") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{path} must hold a list of names; mend it or delete it")
    return set(names)


def _is_below(path: str, shelf: str) -> bool:
    return os.path.abspath(path).startswith(shelf + os.sep)
