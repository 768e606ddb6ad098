"""A receipt says what was observed, in words and in JSON, both ways."""

from typing import Any

import pytest

from quell.supervise import Receipt


def receipt(confirmed: bool, survivors: list[int]) -> Receipt:
    processes: list[dict[str, Any]] = [
        {"pid": 7, "inner": 2, "argv": ["sh", "-c", "ü"], "end": "signal 9", "at": 0.5},
        {"pid": 8, "inner": None, "argv": None, "end": "alive" if survivors else "gone", "at": 0.6},
    ]
    return Receipt(
        reason="stop",
        confirmed=confirmed,
        rung="pidns",
        command=["sh"],
        exit={"code": 0},
        processes=processes,
        survivors=survivors,
        signalled=2,
        phases={"ask": 0.1, "kill": 0.2, "total": 0.3},
        started="2026-01-01T00:00:00Z",
    )


def test_a_receipt_comes_back_from_json_as_it_was() -> None:
    original = receipt(True, [])
    copy = Receipt.from_json(original.to_json())
    assert copy == original and copy.verdict == "confirmed" and copy.processes[0].argv == ["sh", "-c", "ü"]


def test_what_is_no_receipt_is_refused() -> None:
    for text in ("{}", "[]", '{"version": 99}'):
        with pytest.raises(ValueError, match="not a receipt"):
            Receipt.from_json(text)


def test_survivors_are_named_with_their_argv() -> None:
    """H17: an unconfirmed stop names the pids."""
    sentence = receipt(False, [7, 8]).sentence()
    assert sentence == "unconfirmed: 2 processes would not end: 7 (sh -c ü), 8 (?)"
    assert receipt(False, [7]).sentence().startswith("unconfirmed: 1 process would")
