"""The folder of installed plugins: whatever changes in it changes in one step, and a kill at any moment harms nothing.

What is on its way in or out has a hidden name, is loaded by nobody, and is swept away by the next command.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import tempfile
from contextlib import contextmanager

from ..errors import UsageError
from ..kernel.discovery import DISABLED, FOLDER, disabled_in
from ..supervise.ledger import state_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK = ".lock"
STAGING, GONE, NOTE = ".staging-", ".gone-", ".note-"
_AT_FDCWD, _EXCHANGE = -100, 2


class Shelf:
    def __init__(self) -> None:
        self.path = os.path.join(state_dir(), FOLDER)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """For whoever changes it. UsageError when another does. The lock dies with its holder, and no child has it."""
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            fd = os.open(os.path.join(self.path, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            what = "choose another with QUELL_STATE_DIR"
            raise UsageError(f"the folder {self.path} cannot be used: {error.strerror}; {what}") from None
        try:
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(
                    "another `quell plugin` changes the plugins now; try again when it has ended"
                ) from None
            self._sweep()
            yield
        finally:
            os.close(fd)

    def tidy(self) -> None:
        """Sweep, unless somebody is at work or there is nothing yet."""
        if os.path.isdir(self.path):
            try:
                with self.locked():
                    return
            except UsageError:
                return

    def _sweep(self) -> None:
        for name in os.listdir(self.path):
            path = os.path.join(self.path, name)
            if name.startswith((STAGING, GONE)):
                shutil.rmtree(path, ignore_errors=True)
            elif name.startswith(NOTE):
                os.unlink(path)

    def stage(self) -> str:
        """A folder of one's own in which a plugin is made ready."""
        return tempfile.mkdtemp(prefix=STAGING, dir=self.path)

    def publish(self, folder: str, name: str) -> None:
        """Put a finished folder in its place, or in place of the one that is there, which is in the old one's then."""
        place = os.path.join(self.path, name)
        if not os.path.lexists(place):
            os.rename(folder, place)
        elif not _exchange(folder, place):
            os.rename(place, tempfile.mkdtemp(prefix=GONE, dir=self.path))
            os.rename(folder, place)

    def take_away(self, folder: str) -> None:
        """Gone in one step; the rest is deleting."""
        gone = tempfile.mkdtemp(prefix=GONE, dir=self.path)
        os.rename(folder, gone)
        shutil.rmtree(gone, ignore_errors=True)

    def disabled(self) -> set[str]:
        return disabled_in(self.path)

    def note_disabled(self, names: set[str]) -> None:
        fd, path = tempfile.mkstemp(prefix=NOTE, dir=self.path)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                json.dump(sorted(names), file)
                file.flush()
                os.fsync(file.fileno())
            os.rename(path, os.path.join(self.path, DISABLED))
        except BaseException:
            os.unlink(path)
            raise


def _exchange(one: str, other: str) -> bool:
    """Swap two folders in one step; False where the system cannot."""
    swap = getattr(ctypes.CDLL(None), "renameat2", None)
    return swap is not None and swap(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0
