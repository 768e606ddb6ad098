"""A function in a process of its call: started by the caller's own `spawn`, so fenced, recorded, sandboxed and ended
like any command (H26). However that process ends, the call has one end.
"""

from __future__ import annotations

import asyncio
import codecs
import inspect
import marshal
import os
import secrets
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import BoxLostError, SpawnError, ToolError
from ..supervise import PIPE, allow
from .runner import RESULT, TOLD

if TYPE_CHECKING:
    from ..ports import Caller
    from ..supervise import Process

    Stopped = asyncio.Task[Any]

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "runner.py")
LIVE_LIMIT = 1 << 18  # characters that it prints and that are shown: each of them goes into the log
RESULT_LIMIT = 16 << 20  # bytes of a result
PACE = 0.05  # seconds between two pieces that are shown
EXIT_LIMIT = 2.0  # seconds for the process to end by itself once it gave its result: threads of its own, `atexit`
SETTLE, LOOKS = 0.1, 10  # seconds, and how often, for its last words to arrive, while nobody else holds its pipes
_CHUNK = 1 << 16
_WORDS = 2000  # bytes of what stood where the result should be


class FunctionFailed(Exception):
    """What a function raised, under the name that it has there."""


@dataclass(frozen=True)
class Named:
    """Where another process finds a function."""

    module: str
    """Empty for a script that was started by its path."""
    file: str
    qualname: str
    main: bool


def named(function: Callable[..., Any]) -> Named | str:
    """Or why no other process could find it."""
    if not inspect.isfunction(function):
        return "it is no plain function"
    name, qualname = function.__module__, function.__qualname__
    found: Any = sys.modules.get(name or "")
    module = found
    for word in qualname.split("."):
        found = getattr(found, word, None)
    if found is not function:
        return "it is not to be found by its name in its module"
    file = getattr(module, "__file__", None) or ""
    spec = getattr(module, "__spec__", None)
    if not sys.executable:
        return "there is no Python to be started"
    if name != "__main__":
        return Named(name, file, qualname, False) if spec is not None else "its module cannot be imported"
    if spec is None and not os.path.isfile(file):
        return "it is of no file: typed in, or given by -c"
    if not os.path.isfile(file) or not os.path.samefile(_source(function), file):
        return "it is not in the file of the script"
    return Named(spec.name if spec is not None else "", os.path.abspath(file), qualname, True)


def _source(function: Callable[..., Any]) -> str:
    """Its file, or one that is not the script's."""
    file = inspect.unwrap(function).__code__.co_filename
    return file if os.path.exists(file) else PROGRAM


async def run_apart(which: Named, name: str, plain: Mapping[str, Any], raw: Mapping[str, Any], caller: Caller) -> str:
    """Call it in a process: `plain` as it is, `raw` made from JSON there by the annotations.

    ToolError is for the model. FunctionFailed is the tool's failure.
    """
    token = secrets.token_hex(16)
    request = _request(which, name, plain, raw, token)
    process = await _start(name, caller, _needed(which))
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    gone = caller.scope.task(process.wait(), name=f"end of {name}")
    shown = caller.scope.task(_show(process.stdout, caller.output, gone), name=f"output of {name}")
    heard = caller.scope.task(_hear(process.stderr, token.encode(), name), name=f"result of {name}")
    for task in (gone, shown, heard):
        task.add_done_callback(_read)
    process.stdin.write(request)
    process.stdin.close()
    await asyncio.wait((gone, heard), return_when=asyncio.FIRST_COMPLETED)
    if heard.done() and heard.exception() is None:
        await asyncio.wait((gone,), timeout=EXIT_LIMIT)
    await _last_words(process, (heard, shown))
    if not heard.done() or heard.cancelled():
        raise ToolError(f"{name}: {_fate(process)} before it gave a result")
    kind, words = heard.result()
    if not kind:
        raise ToolError(f"{name}: {_fate(process)} before it gave a result{_said(words)}")
    return _result(kind, words.decode("utf-8", "replace"))


def _request(which: Named, name: str, plain: Mapping[str, Any], raw: Mapping[str, Any], token: str) -> bytes:
    work = {
        "token": token, "name": name, "path": _path(), "module": which.module, "file": which.file, "main": which.main,
        "qualname": which.qualname, "plain": dict(plain), "typed": dict(raw),
    }  # fmt: skip
    try:
        return marshal.dumps(work)
    except ValueError as error:
        raise ToolError(f"{name}: the arguments have no JSON form: {error}") from None


def _path() -> list[str]:
    """Ours, without what would mean another folder there: no module is taken from the folder of the agent."""
    return [os.path.abspath(one) for one in sys.path]


def _needed(which: Named) -> list[str]:
    """What a sandbox must not hide from it."""
    folders = [sys.prefix, sys.base_prefix, os.path.dirname(PROGRAM), *_path()]
    return [*folders, os.path.dirname(which.file)] if which.file else folders


async def _start(name: str, caller: Caller, needed: list[str]) -> Process:
    flags = ["-E", "-P", *(["-O"] * sys.flags.optimize), *(["-B"] if sys.dont_write_bytecode else [])]
    try:
        return await caller.spawn(
            [sys.executable, *flags, PROGRAM],
            shown=needed,
            cwd=caller.cwd,
            env={**allow(), **caller.env},
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            output_cap=RESULT_LIMIT + _CHUNK,
        )
    except (SpawnError, BoxLostError) as error:
        raise ToolError(f"{name}: {error}") from None


async def _show(reader: asyncio.StreamReader, show: Callable[[str], None], gone: Stopped) -> None:
    """To its end, whatever is shown of it, so that no function stands still for want of a reader."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    left = LIVE_LIMIT
    while data := await reader.read(_CHUNK):
        text = decoder.decode(data)
        if left and text:
            show(text if len(text) < left else f"{text[:left]}\n[quell: what follows is not shown]\n")
            left -= min(left, len(text))
            if left:
                await asyncio.wait((gone,), timeout=PACE)


async def _hear(reader: asyncio.StreamReader, token: bytes, name: str) -> tuple[str, bytes]:
    """What kind of answer came, and its words. Without one, what stood there: an interpreter that does not start."""
    got = b""
    while (at := got.find(token)) < 0 or b"\n" not in got[at:]:
        if not (data := await reader.read(_CHUNK)):
            return "", got
        got = (got if at >= 0 else got[-_WORDS:]) + data
    head, _, words = got[at:].partition(b"\n")
    _, kind, size = head.decode("utf-8", "replace").split(" ")
    left = int(size) - len(words)
    if int(size) > RESULT_LIMIT:
        raise ToolError(f"{name}: its result of {size} bytes is too long; let it write a file, and say where that is")
    try:
        return kind, words + await reader.readexactly(left)
    except asyncio.IncompleteReadError:
        return "", b""


async def _last_words(process: Process, tasks: tuple[Stopped, ...]) -> None:
    """Until they have come. Whoever else holds the pipes does so for as long as it likes: nobody waits for that."""
    for _ in range(LOOKS):
        _, missing = await asyncio.wait(tasks, timeout=SETTLE)
        if not missing or await process.tree():
            return


def _result(kind: str, words: str) -> str:
    if kind == RESULT:
        return words
    if kind == TOLD:
        raise ToolError(words)
    if kind in ("SystemExit", "KeyboardInterrupt", "StopIteration"):
        raise RuntimeError(f"{kind}: {words}")  # as it is said of a function in a thread
    failed: type[FunctionFailed] = type(kind, (FunctionFailed,), {})
    raise failed(words)


def _fate(process: Process) -> str:
    code = process.returncode
    if code is None:
        return "its process was lost"
    if code >= 0:
        return f"its process ended (exit {code})"
    try:
        return f"its process was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"its process was ended by signal {-code}"


def _said(words: bytes) -> str:
    text = " ".join(words.decode("utf-8", "replace").split())
    return f": {text[-300:]}" if text else ""


def _read(task: asyncio.Task[Any]) -> None:
    """Whoever waits for it may have been cancelled: its error is not lost on asyncio's log."""
    if not task.cancelled():
        task.exception()
