"""In a terminal, a command under quell shows what it shows without: the same letters, statuses and modes."""

import functools

import pytest

from tests.cli.command import QUELL, RUNGS, need
from tests.cli.scenarios import SCENARIOS, jobs, keys, pipelines, screens, terminals
from tests.cli.terminal import Terminal

assert {jobs, keys, pipelines, screens, terminals}  # importing them fills SCENARIOS


def play(name: str, prefix: str) -> object:
    """One scenario in a terminal of its own; whatever it gives, nothing is left when the shell has gone."""
    with Terminal(prefix, variables={"PATH": f"{QUELL.parent}:/usr/local/bin:/usr/bin:/bin"}) as t:
        facts = SCENARIOS[name](t)
        if not t.closed:
            assert t.idle(), "something outlived its command"
            t.hang_up()
        assert t.gone(), "something outlived the terminal"
        return facts


@functools.cache
def without_quell(name: str) -> object:
    return play(name, "")


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_terminal_shows_the_same_with_quell_as_without(name: str, rung: str) -> None:
    need(rung)
    assert play(name, f"quell exec --contain {rung} --") == without_quell(name)
