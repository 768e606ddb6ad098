"""In a terminal, a command under quell shows what it shows without: the same letters, statuses and modes."""

import functools

import pytest

from tests.cli import oracle
from tests.cli.command import QUELL, RUNGS, need
from tests.cli.scenarios import SCENARIOS, jobs, keys, pipelines, screens, terminals
from tests.cli.terminal import Terminal

assert {jobs, keys, pipelines, screens, terminals}  # importing them fills SCENARIOS


def play(name: str, prefix: str) -> object:
    """One scenario in a terminal of its own; whatever it gives, nothing is left when the shell has gone."""
    with Terminal(prefix, variables={"PATH": f"{QUELL.parent}:/usr/local/bin:/usr/bin:/bin"}) as t:
        facts = SCENARIOS[name](t)
        if not t.closed:
            if not prefix:  # a shell's command may end before its children do; a quell's may not
                oracle.wait_for(t.idle, "the end of all")
            assert t.left() == [], "something outlived its command"
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


def test_a_wrapper_that_changes_what_is_shown_is_seen() -> None:
    """H56: the comparison is seen to fail: `setsid` takes the command out of the session and loses its signal."""
    name = "what_the_shell_says_of_a_command_that_a_signal_ended"
    assert play(name, "setsid --fork --wait") != without_quell(name)


def test_what_left_the_session_is_still_counted() -> None:
    """H56: the oracle is seen to fail: a process that no session and no parent shows holds the FIFO all the same."""
    with Terminal() as t:
        t.run("(setsid sleep 2 >/dev/null 2>&1 </dev/null &)")
        assert oracle.wait_for(t.idle, "the shell alone")
        t.hang_up()
        assert not t.gone(0.3)
        assert t.gone()
