"""The harness itself: an oracle that has never seen a survivor proves nothing."""

import os

import pytest

from tests.matrix.descendants import DESCENDANTS, NOTHING
from tests.matrix.plan import USER, Job, Row, run
from tests.matrix.test_unconfirmed import possible_holds

USERS = [0, USER] if os.getuid() == 0 else [os.getuid()]


@pytest.mark.parametrize("uid", USERS)
def test_the_oracle_sees_every_descendant_that_outlives_a_bare_command(uid: int) -> None:
    """H56: without quell, each descendant survives the death of its command, and the oracle says so."""
    jobs = [Job("escape", descendant, "kill quell") for descendant in DESCENDANTS if descendant != NOTHING]
    results = run(Row("bare", uid), jobs)
    unseen = [job.descendant for job, result in zip(jobs, results, strict=True) if not result.get("leaked")]
    assert not unseen, [results[number] for number, job in enumerate(jobs) if job.descendant in unseen]


def test_the_oracle_sees_the_end_of_a_bare_command_that_leaves_nothing() -> None:
    """H56: and it does not see survivors where there are none."""
    [result] = run(Row("bare", USERS[0]), [Job("escape", NOTHING, "CMD ends")])
    assert result["leaked"] is False, result
    assert result["problems"] == [], result


def test_a_decoy_that_is_ended_is_seen() -> None:
    """H56: a bare command that kills all it may reach kills the decoys beside it, and the harness says so."""
    [result] = run(Row("bare", USERS[-1]), [Job("others", "kill -9 -1", "kill quell")])
    for decoy in ("before", "after", "apart", "older child"):
        assert any(f"the decoy {decoy!r} was ended" in problem for problem in result["problems"]), result


@pytest.mark.parametrize("hold", [hold for hold in possible_holds() if hold.startswith("a process")])
def test_what_is_held_fast_does_not_act_on_sigkill_until_it_is_let_go(hold: str) -> None:
    """H56: so that `unconfirmed` is true where the tests ask for it."""
    [result] = run(Row("bare", USERS[-1]), [Job("stuck", "plain", hold)])
    assert "broken" not in result, result["broken"]
    assert result["problems"] == []
