"""No flag is accepted and ignored: each flag of the live parser has a test of its effect, named here (H53)."""

import ast
from pathlib import Path

import pytest

from quell.cli import COMMANDS, HELP
from quell.cli.app import FUNCTIONS, build

ALONE = "test_without_a_server_each_says_so_and_what_to_do"
EFFECTS = {
    "serve --port": "test_a_port_that_is_taken_is_said",
    "serve --state": "test_several_serve_at_once_on_directories_of_their_own_however_deep",
    "serve --config": "test_a_file_of_settings_and_agents_is_read",
    "serve --no-browser": "test_the_browser_is_opened_where_there_is_one_and_somebody_to_see_it",
    "serve --detach": "test_detached_it_serves_on_alone_until_down",
    "serve --dangerously-listen": "test_another_address_is_served_with_a_warning_and_is_in_the_list_of_hosts",
    "serve --contain": "test_a_rung_may_be_named_and_is_what_commands_run_on",
    "open --no-browser": "test_open_shows_the_link_to_the_browser_unless_it_is_told_not_to",
    "open --json": "test_open_gives_a_new_link_each_time",
    "open --state": ALONE,
    "down --force": "test_down_waits_and_force_cuts_it_short",
    "down --json": "test_detached_it_serves_on_alone_until_down",
    "down --state": "test_down_without_a_server_says_so",
    "ps --watch": "test_ps_watch_draws_again_and_leaves_the_terminal_as_it_was",
    "ps --json": "test_ps_as_json_is_the_answer_of_the_api",
    "ps --state": ALONE,
    "logs -f": "test_a_follower_goes_on_from_its_cursor_over_restarts_and_cuts",
    "logs --follow": "test_logs_follow_over_a_kill_of_the_server_and_miss_nothing",
    "logs -n": "test_logs_tell_what_happened",
    "logs --after": "test_logs_tell_what_happened",
    "logs --json": "test_logs_tell_what_happened",
    "logs --state": ALONE,
    "send --no-wait": "test_send_without_waiting_says_what_its_message_is",
    "send --new": "test_send_opens_a_session_as_it_is_told_to",
    "send --agent": "test_send_opens_a_session_as_it_is_told_to",
    "send --cwd": "test_send_opens_a_session_as_it_is_told_to",
    "send --title": "test_send_opens_a_session_as_it_is_told_to",
    "send --json": "test_send_as_json_gives_the_events_of_its_turn",
    "send --state": ALONE,
    "attach --json": "test_attach_as_json_gives_the_events",
    "attach --state": ALONE,
    "stop --all": "test_stop_all_ends_everything_and_reopen_lets_work_in_again",
    "stop --reach": "test_a_stop_of_the_turn_leaves_what_the_session_has_in_the_background",
    "stop --force": "test_grace_is_given_and_force_gives_none",
    "stop --grace": "test_grace_is_given_and_force_gives_none",
    "stop --reason": "test_a_stop_ends_one_tree_with_its_escapees_and_no_other",
    "stop --json": "test_several_sessions_are_stopped_at_once_and_one_fault_hides_no_other",
    "stop --state": ALONE,
    "reopen --json": "test_stop_all_ends_everything_and_reopen_lets_work_in_again",
    "reopen --state": ALONE,
    "approve --deny": "test_an_approval_is_listed_in_full_and_answered",
    "approve --reason": "test_an_approval_is_listed_in_full_and_answered",
    "approve --json": "test_an_approval_is_listed_in_full_and_answered",
    "approve --state": ALONE,
    "receipts -n": "test_receipts_are_listed_the_newest_first_and_one_is_shown_in_full",
    "receipts --json": "test_receipts_are_listed_the_newest_first_and_one_is_shown_in_full",
    "receipts --state": ALONE,
}


def flags() -> set[str]:
    """Every flag of every command, as the parser has it."""
    return {
        f"{name} {word}"
        for name, command in build(FUNCTIONS).commands.items()
        for one in command.params
        for word in (*one.opts, *one.secondary_opts)
        if word.startswith("-")
    }


def known_tests() -> dict[str, str]:
    """Each test of the command line, with the text of its file: what a test types may be in a function beside it."""
    found: dict[str, str] = {}
    for path in Path(__file__).parent.glob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        found |= {node.name: text for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    return found


def test_every_flag_has_a_test_of_its_effect() -> None:
    """H53"""
    assert flags() == set(EFFECTS)
    known = known_tests()
    assert {name for name in EFFECTS.values() if name not in known} == set()
    for flag, name in EFFECTS.items():
        command, word = flag.split()
        assert word in known[name], flag
        assert command in known[name], flag


def test_a_flag_without_a_test_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """H56: the table is seen to fail."""
    monkeypatch.delitem(EFFECTS, "stop --force")
    with pytest.raises(AssertionError, match="stop --force"):
        test_every_flag_has_a_test_of_its_effect()


def test_the_help_the_dispatch_and_the_app_know_the_same_commands() -> None:
    listed = [line.split()[0] for line in HELP.splitlines() if line.startswith("  ") and line.strip()[0].isalpha()]
    listed = [word for word in listed if word != "quell"]
    assert sorted(listed) == sorted(COMMANDS)
    assert set(COMMANDS) == set(FUNCTIONS) | {"exec", "plugin", "doctor"}
    assert set(build(()).commands) == set(COMMANDS)
    for name, command in build(FUNCTIONS).commands.items():
        assert name not in FUNCTIONS or command.help, name
