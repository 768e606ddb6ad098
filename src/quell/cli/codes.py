"""How a turn ended, as an exit code: one table for every command that waits for one."""

from __future__ import annotations

COMPLETED = 0
FAILED = 1
"""The turn failed, or something outlived a stop."""
STOPPED = 3
"""By somebody else, or nobody will answer."""
LIMIT = 4
"""Of steps, tokens, time or cost."""
TIMED_OUT = 124
OURS = 125
"""A fault of quell's or of its options."""
INTERRUPTED = 130
"""Ctrl+C; any other signal is 128 and its number."""

ENDS = {"completed": COMPLETED, "failed": FAILED, "interrupted": FAILED, "stopped": STOPPED, "limit": LIMIT}
"""By the word of `turn.ended`."""
