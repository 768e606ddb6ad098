"""Work of a tool in a process of its call: it can be ended at any moment, and has its time (H26).

The process runs one of our modules that imports the standard library only. It is asked once, and answers by lines.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import BoxLostError, SpawnError, ToolError
from ..ports import Caller
from ..supervise import NULL, PIPE, allow
from .jobs import ending

LINE_MOST = 8 << 20  # bytes of one line of an answer
BOOT = "import sys, importlib; sys.path.append(sys.argv[1]); importlib.import_module('toolbox.' + sys.argv[2]).main()"


@dataclass
class Said:
    """What it answered."""

    found: list[Any] = field(default_factory=list)
    last: Mapping[str, Any] = field(default_factory=dict)
    """What it said of the whole, in the end."""
    in_time: bool = True


async def ask(tool: str, module: str, request: Mapping[str, Any], caller: Caller, seconds: float) -> Said:
    """ToolError where it was refused, or its process failed."""
    said = Said()
    try:
        async with asyncio.timeout(seconds):
            process = await caller.spawn(
                [sys.executable, "-I", "-S", "-c", BOOT, os.path.dirname(os.path.dirname(__file__)), module],
                shown=(sys.prefix, sys.base_prefix, os.path.dirname(__file__)),
                cwd=caller.cwd,
                env=allow(),
                stdin=PIPE,
                stdout=PIPE,
                stderr=NULL,
                limit=LINE_MOST,
            )
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(request).encode())
            process.stdin.close()
            while line := await process.stdout.readline():
                take(said, json.loads(line))
            code = await process.wait()
    except TimeoutError:
        said.in_time = False  # and the process ends with the call
        return said
    except (SpawnError, BoxLostError) as error:
        raise ToolError(f"{tool}: {error}") from None
    except ValueError as error:
        raise ToolError(f"{tool}: its process said what makes no sense: {error}") from None
    if code != 0:
        raise ToolError(f"{tool}: its process failed: {ending(code)}")
    if "refused" in said.last:
        raise ToolError(f"{tool}: {said.last['refused']}")
    return said


def take(said: Said, line: Any) -> None:
    if isinstance(line, dict):
        said.last = line
    else:
        said.found.append(line)
