"""What `quell serve` writes to `serve.log` in its state directory: records of all loggers, rotated, for its user only.

Nothing is written before the directory is ours: until then records wait. No request is recorded: paths hold codes.
"""

from __future__ import annotations

import io
import logging
import logging.handlers
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..kernel.redaction import Redaction

NAME = "serve.log"
SIZE, KEPT = 5_000_000, 3
_WAITING = 10_000  # records
_FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _File(logging.handlers.RotatingFileHandler):
    def _open(self) -> io.TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", errors="backslashreplace", opener=_private)

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk: what cannot be written is lost, and the server goes on."""


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class LogFile:
    """From when it is made until `close`, everything that any logger says."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, NAME)
        self._file: _File | None = None
        self._waiting = logging.handlers.MemoryHandler(_WAITING, flushLevel=logging.CRITICAL + 1, flushOnClose=False)
        self._root = logging.getLogger()
        self._before = (self._root.level, threading.excepthook)
        self._root.addHandler(self._waiting)
        self._root.setLevel(logging.WARNING)
        logging.getLogger("quell").setLevel(logging.INFO)
        logging.captureWarnings(True)
        threading.excepthook = _say_of_thread

    def write(self, redaction: Redaction) -> None:
        """The directory is ours: what waits is written, and what comes at once. OSError if that cannot be."""
        self._file = _File(self.path, maxBytes=SIZE, backupCount=KEPT)
        self._file.addFilter(redaction)
        self._file.setFormatter(logging.Formatter(_FORM))
        self._waiting.setTarget(self._file)
        self._waiting.flush()
        self._root.addHandler(self._file)
        self._root.removeHandler(self._waiting)

    def take_stderr(self) -> None:
        """What the interpreter itself says goes there too, when there is nobody to read it."""
        if self._file is not None and self._file.stream is not None:
            os.dup2(self._file.stream.fileno(), 2)

    def close(self) -> None:
        self._root.removeHandler(self._waiting)
        self._waiting.close()
        if self._file is not None:
            self._root.removeHandler(self._file)
            try:
                self._file.close()
            except OSError:  # a full disk
                pass
        self._root.setLevel(self._before[0])
        threading.excepthook = self._before[1]
        logging.captureWarnings(False)


def _say_of_thread(lost: threading.ExceptHookArgs) -> None:
    name = lost.thread.name if lost.thread is not None else "a thread"
    trace = (lost.exc_type, lost.exc_value, lost.exc_traceback) if lost.exc_value is not None else None
    logging.getLogger("quell").error("%s has failed", name, exc_info=trace)
