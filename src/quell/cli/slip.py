"""The file that the receipt of a run goes to: opened before anything is begun, written whatever came of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .codes import OURS
from .words import complain

if TYPE_CHECKING:
    from .local import Local


class Slip:
    """Of one run; without a path there is none."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self.stop: dict[str, Any] | None = None
        """Of a stop, if there was one."""

    def write(self, run: Callable[[], int], local: Local) -> int:
        """Run it, and write. A receipt that cannot be written is shown instead, and makes it our fault."""
        if self._path is None:
            return run()
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        except OSError as error:
            local.ending.close()
            complain(f"the receipt cannot be written to {self._path}: {error.strerror}; choose another file")
            return OURS
        try:
            code = run()
            data = (self._text(local) + "\n").encode()
            try:
                os.set_blocking(fd, True)
                while data:
                    data = data[os.write(fd, data) :]
            except OSError as error:
                complain(f"the receipt could not be written to {self._path}: {error.strerror}; here it is:")
                complain(data.decode(errors="replace").rstrip("\n"))
                return OURS
            return code
        finally:
            os.close(fd)

    def _text(self, local: Local) -> str:
        if self.stop is not None:
            return json.dumps(self.stop)
        from ..supervise.receipt import of_nobody

        ended = local.receipt if local.receipt is not None else of_nobody("nothing was started")
        return local.redact(ended.to_json())
