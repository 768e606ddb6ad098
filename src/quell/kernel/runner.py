"""The program in which a tool's function runs (H26): the standard library, and what the tool's own module imports.

On stdin comes what to call. What the function prints is the output of the process; what it gives, or raises, goes
where stderr led at the start, behind a token that nobody else knows.
"""

from __future__ import annotations

import marshal  # from us to us: `json` would take a third of the time that a call takes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    Work = dict[str, Any]

ME = "_quell_runner"
"""The name of this module while it runs: a runtime that finds it loaded does not start."""

RESULT, TOLD = "=", "!"
"""What an answer is: a result, or words for the model; any other is the name of what was raised."""


def main() -> None:
    answers = os.dup(2)  # what the function starts does not inherit it
    os.dup2(1, 2)
    work: Work = marshal.loads(_everything(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.modules[ME] = sys.modules["__main__"]
    sys.path[:] = work["path"]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)  # type: ignore[union-attr]  # files
    me = os.getpid()
    try:
        kind, text = RESULT, text_of(work["name"], call(work))
    except BaseException as error:  # noqa: BLE001  a boundary: whatever it raises is told to whoever called
        kind, text = failure(error)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if os.getpid() != me:
        os._exit(0)  # a copy that the function has forked, and that came back here
    body = text.encode("utf-8", "replace")
    _write(answers, f"{work['token']} {kind} {len(body)}\n".encode() + body)


def _everything(fd: int) -> bytes:
    pieces = []
    while piece := os.read(fd, 1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def _write(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


# -- the function


def call(work: Work) -> object:
    module = as_main(work) if work["main"] else imported(work["module"], work["file"])
    function: Any = module
    for word in work["qualname"].split("."):
        function = getattr(function, word)
    return function(**work["plain"], **(typed(function, work["typed"]) if work["typed"] else {}))


def imported(name: str, file: str) -> ModuleType:
    """By its name; one that is on no path was loaded from its file, and is here too."""
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if not file or not f"{name}.".startswith(f"{error.name}."):
            raise
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_main(work: Work) -> ModuleType:
    """The script that was started, under the name that `multiprocessing` gives it too.

    One that starts a runtime without asking for `__main__` ends there: what it has defined by then is enough.
    """
    name, file = work["module"], work["file"]
    module = type(sys)("__mp_main__")
    module.__file__ = file
    sys.argv = [file]
    if name:  # python -m
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        module.__spec__, module.__package__ = spec, spec.parent
        code = spec.loader.get_code(name)  # type: ignore[attr-defined]  # it was started by that
    else:
        with open(file, "rb") as opened:
            code = compile(opened.read(), file, "exec", dont_inherit=True)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    try:
        exec(code, module.__dict__)
    except BaseException as error:
        if not (isinstance(error, SystemExit) or is_ours(error)) or not hasattr(module, work["qualname"].split(".")[0]):
            raise
    return module


def typed(function: Callable[..., Any], raw: dict[str, Any]) -> dict[str, Any]:
    """Made from JSON by the annotations: only what needs it pays for it."""
    from typing import get_type_hints

    import msgspec

    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__

    def stand_in() -> None: ...

    stand_in.__annotations__ = {name: function.__annotations__[name] for name in raw}
    types = get_type_hints(stand_in, function.__globals__, include_extras=True)
    return {name: msgspec.convert(value, types[name], str_keys=True) for name, value in raw.items()}


# -- what came of it


def text_of(name: str, result: object) -> str:
    """As the model is given it: text, or JSON."""
    if isinstance(result, str):
        return result
    import json

    try:
        return json.dumps(result, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError):
        import msgspec
    try:
        return msgspec.json.encode(result).decode()
    except TypeError as error:
        raise TypeError(f"{name} gave {type(result).__name__}, which has no JSON form: {error}") from None


def failure(error: BaseException) -> tuple[str, str]:
    """Its kind and words; the traceback is for whoever watches."""
    told = is_ours(error)
    if not told:
        import traceback

        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        traceback.print_exception(type(error), error, trace)
    try:
        words = str(error)
    except Exception:  # noqa: BLE001  an error that cannot even be told is still told of
        words = ""
    name = type(error).__name__
    return (TOLD, words or name) if told else (name if name.isidentifier() else "Exception", words)


def is_ours(error: BaseException) -> bool:
    """Whether it is an error of Quell, a ToolError say: found by name, so that nothing of Quell is loaded for it."""
    return any(one.__module__ == "quell.errors" and one.__name__ == "QuellError" for one in type(error).__mro__)


if __name__ == "__main__":
    main()
