"""`quell plugin install`: pip or uv in a box, into a folder beside the plugins, which takes its place in one step.

Until that step nothing has changed: Ctrl+C or `kill -9` at any moment leaves the plugins and the environment alone.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
import zipfile

from .. import __version__
from ..errors import UsageError
from ..kernel.discovery import GROUP, NAME, NAME_RULE, OURS, find, plain_name, plugins_of
from ..supervise.keeper.light import signal
from .words import complain, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .shelf import Shelf

FAILED, INTERRUPTED = 1, 128
_UNWANTED = ("PIP_USER", "PIP_PREFIX", "PIP_ROOT", "PIP_TARGET")  # they say where to install, which is ours to say


def install(shelf: Shelf, what: str, extra: Sequence[str], tool: str, verbose: bool) -> int:
    """All signals are held back. The exit code."""
    tool, command = _command(tool)
    with shelf.locked():
        staging = shelf.stage()
        try:
            return _install(shelf, staging, tool, command, what, extra, verbose)
        except OSError as error:
            complain(f"{what} could not be installed: {error.strerror or error}; nothing was changed")
            return FAILED
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _install(
    shelf: Shelf, staging: str, tool: str, command: list[str], what: str, extra: Sequence[str], verbose: bool
) -> int:
    target, temporary, wheels = (os.path.join(staging, name) for name in ("target", "tmp", "wheels"))
    for folder in (target, temporary, wheels):
        os.mkdir(folder)
    constraints = _stand_in(wheels)
    argv = [*command, "--target", target, "--find-links", wheels, "--constraint", constraints, *extra, what]
    env = {name: value for name, value in os.environ.items() if name not in _UNWANTED} | {"TMPDIR": temporary}
    live = verbose or os.isatty(2)
    with open(os.path.join(staging, "output"), "wb+") as output:
        from .boxed import Boxed

        boxed = Boxed(argv, env, 2 if live else output.fileno())
        heard = boxed.run()
        if heard:
            why = "interrupted" if heard == signal.SIGINT else f"ended by signal {heard}"
            if boxed.receipt is not None and not boxed.receipt.confirmed:
                why = f"{why}, {boxed.receipt.sentence()}"
            complain(f"{why}; nothing was installed")
            return INTERRUPTED + heard
        if boxed.error is not None:
            raise UsageError(f"{what} could not be installed: {boxed.error}; nothing was changed")
        if boxed.code:
            output.seek(0)
            _pass_on(output.read())
            complain(f"{tool} could not install {what} (exit {boxed.code}); nothing was changed")
            return FAILED
    _drop_quell(target)
    name, said = _check(shelf, target, what)
    shelf.publish(target, name)
    return show(said)


def _command(tool: str) -> tuple[str, list[str]]:
    """Which tool, and the beginning of its argv. uv where it is on PATH, unless one is asked for."""
    uv = shutil.which("uv") if tool != "pip" else None
    if uv is not None:
        return "uv", [uv, "pip", "install", "--python", sys.executable]
    if tool == "uv":
        raise UsageError("there is no uv on PATH; install it, or use --with pip")
    if importlib.util.find_spec("pip") is None:
        raise UsageError(f"there is neither uv on PATH nor pip in {sys.prefix}; install one of them")
    return "pip", [sys.executable, "-P", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]


def _stand_in(folder: str) -> str:
    """A wheel of this very Quell without anything in it, for plugins that require Quell; and the constraint to take it.

    So no index is asked for Quell, no second Quell is installed, and a plugin for another version is refused.
    """
    version = f"{__version__}+here"  # above the index's of the same version
    info = f"{OURS}-{version}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {OURS}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: quell\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(os.path.join(folder, f"{OURS}-{version}-py3-none-any.whl"), "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)
    path = os.path.join(folder, "constraints.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{OURS}=={__version__}\n")
    return path


def _drop_quell(target: str) -> None:
    """A plugin's folder holds no Quell: the one that runs is the only one."""
    for name in os.listdir(target):
        if name == OURS or (name.startswith(f"{OURS}-") and name.endswith(".dist-info")):
            shutil.rmtree(os.path.join(target, name))
    script = os.path.join(target, "bin", OURS)
    if os.path.lexists(script):
        os.unlink(script)


def _check(shelf: Shelf, target: str, what: str) -> tuple[str, str]:
    """The name of its folder, and what to say. UsageError when it is no plugin, or one whose name is taken."""
    dists = list(importlib.metadata.distributions(path=[target]))
    asked_for = [dist for dist in dists if dist.read_text("REQUESTED") is not None] or dists
    bringing = [dist for dist in asked_for if plugins_of(dist)]
    if len(bringing) != 1:
        raise UsageError(f"{what} is no plugin: it has no entry point of the group {GROUP}; nothing was changed")
    [dist] = bringing
    name, found = plain_name(dist), plugins_of(dist)
    others = {one.name: one for one in find((), shelf.path) if not (one.folder and one.distribution == name)}
    for one in found:
        if NAME.fullmatch(one.name) is None:
            raise UsageError(f"{name} names a plugin {one.name!r}, but a name is {NAME_RULE}; nothing was changed")
        if one.name in others:
            whose = others[one.name].distribution
            raise UsageError(f"{name} brings the plugin {one.name}, which {whose} brings already; nothing was changed")
    names = ", ".join(one.name for one in found)
    return name, f"installed {name} {dist.version}, which brings {names}; it is loaded at the next start\n"


def _pass_on(output: bytes) -> None:
    try:
        while output:
            output = output[os.write(2, output) :]
    except OSError:
        return
