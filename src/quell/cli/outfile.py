"""A file that a command writes: whole or not at all, and never over another one unasked."""

from __future__ import annotations

import os
import tempfile

from ..errors import UsageError


def write_whole(path: str, data: bytes, *, force: bool) -> None:
    """UsageError where something is there already, or it cannot be written. What is no regular file is written into."""
    if os.path.exists(path) and not os.path.isfile(path):
        if os.path.isdir(path):
            raise UsageError(f"{path} is a folder: name a file")
        _write_into(path, data)
        return
    folder = os.path.dirname(os.path.abspath(path))
    try:
        fd, fresh = tempfile.mkstemp(prefix=".quell-", dir=folder)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        if force:
            os.rename(fresh, os.path.realpath(path))
        else:
            os.link(fresh, path)  # fails where a file is, in the same step
            os.unlink(fresh)
    except FileExistsError:
        os.unlink(fresh)
        raise UsageError(f"{path} is there already: --force writes over it") from None
    except OSError as error:
        os.unlink(fresh)
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    except BaseException:
        os.unlink(fresh)
        raise


def _write_into(path: str, data: bytes) -> None:
    try:
        with open(path, "wb") as file:
            file.write(data)
    except BrokenPipeError:
        return  # whoever read it has enough
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
