"""The cells that cannot be 0, each with its reason; `*` stands for all. They are run like the others.

Every line here is in the README by name. A limit that never shows is said at the end of a run.
"""

from tests.matrix.plan import Row

ALL_THREE = "any one of quell, zygote and keeper ends the box; with all three killed at once, nobody is left to do so"
SAME_UID = "sent to every process of the same uid at once, it kills quell, zygote and keeper, and spares its sender"

LIMITS: dict[tuple[str, str, str, str], str] = {
    # (descendant, trigger, rung, user)
    ("*", "kill all three", "cgroup", "*"): ALL_THREE,
    ("*", "kill all three", "subreaper", "*"): ALL_THREE,
    ("kill -9 $PPID", "kill quell and zygote", "cgroup", "*"): ALL_THREE,
    ("kill -9 $PPID", "kill quell and zygote", "subreaper", "*"): ALL_THREE,
    ("kill -9 -1", "*", "cgroup", "unprivileged"): SAME_UID,
    ("kill -9 -1", "*", "subreaper", "unprivileged"): SAME_UID,
}

Limit = tuple[str, str, str, str]


def limit(descendant: str, trigger: str, row: Row) -> Limit | None:
    """The limit that covers this cell."""
    cell = (descendant, trigger, row.rung, "root" if row.uid == 0 else "unprivileged")
    for key in LIMITS:
        if all(pattern in ("*", part) for pattern, part in zip(key, cell, strict=True)):
            return key
    return None
