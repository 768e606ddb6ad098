"""The two small files that a server leaves in its state directory: where it is, and how its last end went.

Both are for its user only, and replaced in one step; neither holds a secret.
"""

from __future__ import annotations

import json
import os
from typing import Any

SERVED = "serve.json"
STOPPED = "stopped.json"


def write(folder: str, name: str, facts: dict[str, Any]) -> None:
    """OSError where it cannot be."""
    path = os.path.join(folder, name)
    fresh = f"{path}.new"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(facts, file)
        os.rename(fresh, path)
    except OSError:
        os.unlink(fresh)
        raise


def read(folder: str, name: str) -> dict[str, Any]:
    """Nothing where there is none."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            facts = json.load(file)
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def remove(folder: str, name: str) -> None:
    try:
        os.unlink(os.path.join(folder, name))
    except OSError:
        return
