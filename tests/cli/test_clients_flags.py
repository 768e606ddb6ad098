"""No flag is accepted and ignored: each flag of the live parser has a test of its effect, named here (H53)."""

import ast
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quell.cli import COMMANDS, HELP, doctor, main, plugin
from quell.cli.app import FUNCTIONS, build

ALONE = "test_without_a_server_each_says_so_and_what_to_do"
EFFECTS = {
    "run --agent": "test_an_agent_and_a_model_that_are_named_answer",
    "run --model": "test_an_agent_and_a_model_that_are_named_answer",
    "run --strategy": "test_a_strategy_limits_a_title_and_pictures_reach_the_turn",
    "run --cwd": "test_it_works_offline_at_once_with_the_answer_on_stdout_and_all_else_on_stderr",
    "run --yes": "test_without_a_terminal_it_is_refused_at_once_with_what_to_do",
    "run --resume": "test_a_session_is_resumed_where_it_is",
    "run --max-steps": "test_a_strategy_limits_a_title_and_pictures_reach_the_turn",
    "run --timeout": "test_the_exit_code_says_how_it_ended_and_the_receipt_what_is_left",
    "run --receipt": "test_the_exit_code_says_how_it_ended_and_the_receipt_what_is_left",
    "run --json": "test_json_is_every_event_of_the_turn_and_of_its_sub_agents_and_nothing_else",
    "run --image": "test_a_strategy_limits_a_title_and_pictures_reach_the_turn",
    "run --state": "test_a_session_is_resumed_where_it_is",
    "run --config": "test_an_agent_and_a_model_that_are_named_answer",
    "run --title": "test_a_strategy_limits_a_title_and_pictures_reach_the_turn",
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
    "approve --session": "test_a_yes_goes_as_far_as_it_is_told_and_is_taken_back",
    "approve --always": "test_a_yes_goes_as_far_as_it_is_told_and_is_taken_back",
    "approve --granted": "test_a_yes_goes_as_far_as_it_is_told_and_is_taken_back",
    "approve --revoke": "test_a_yes_goes_as_far_as_it_is_told_and_is_taken_back",
    "approve --json": "test_an_approval_is_listed_in_full_and_answered",
    "approve --state": ALONE,
    "receipts -n": "test_receipts_are_listed_the_newest_first_and_one_is_shown_in_full",
    "receipts --json": "test_receipts_are_listed_the_newest_first_and_one_is_shown_in_full",
    "receipts --state": ALONE,
    "plugin list --json": "test_what_the_page_lists_is_what_the_json_lists",
    "plugin install --with": "test_the_tool_can_be_chosen",
    "plugin install --verbose": "test_what_pip_says_is_shown_when_it_fails_and_with_verbose",
    "doctor --json": "test_the_json_has_what_the_page_has",
}


def flags() -> set[str]:
    """Every flag of every command, as the parsers have it; those of `quell exec` are beside its tests."""
    by_hand = {f"plugin {command} {one}" for command, known in plugin.FLAGS.items() for one in known}
    by_hand |= {f"doctor {one}" for one in doctor.FLAGS}
    return by_hand | {
        f"{name} {word}"
        for name, command in commands(build(FUNCTIONS))
        for one in command.params
        for word in (*one.opts, *one.secondary_opts)
        if word.startswith("-")
    }


def commands(above: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Each with its whole name, those of a command's own after it."""
    for name, command in above.commands.items():
        yield f"{before}{name}", command
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")


def effects() -> dict[str, str]:
    """This table, and those (`FLAGS`) that stand beside the tests they name."""
    found = dict(EFFECTS)
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body if path.name != Path(__file__).name else ():
            if isinstance(node, ast.Assign) and [getattr(one, "id", "") for one in node.targets] == ["FLAGS"]:
                found |= ast.literal_eval(node.value)
    return found


def known_tests() -> dict[str, str]:
    """Each test of the command line: its own text, and of what it names, such as a fixture or a table beside it."""
    paths = sorted(Path(__file__).parent.glob("*.py"))
    shared = {name: part for path in paths if not path.name.startswith("test_") for name, part in parts(path).items()}
    found: dict[str, str] = {}
    for path in paths:
        mine = parts(path)
        around = {name: part for name, part in (shared | mine).items() if name not in ("FLAGS", "EFFECTS")}
        found |= {name: reached(name, around) for name in mine if name.startswith("test_")}
    return found


def parts(path: Path) -> dict[str, str]:
    """What a file defines, by its name."""
    text = path.read_text(encoding="utf-8")
    return {name: ast.get_source_segment(text, node) or "" for node in ast.parse(text).body for name in named(node)}


def named(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [one.id for one in targets if isinstance(one, ast.Name)]


def reached(name: str, around: dict[str, str]) -> str:
    """The text of a part, with that of every part that is named in it, and so on."""
    seen, ahead = {name}, [name]
    while ahead:
        words = set(re.findall(r"\w+", around[ahead.pop()]))
        fresh = [one for one in around if one in words and one not in seen]
        seen.update(fresh)
        ahead += fresh
    return "\n".join(around[one] for one in sorted(seen))


def test_every_flag_has_a_test_of_its_effect() -> None:
    """H53"""
    table, known = effects(), known_tests()
    assert flags() == set(table)
    assert {name for name in table.values() if name not in known} == set()
    for flag, name in table.items():
        *command, word = flag.split()
        assert re.search(rf"(?<![\w-]){word}(?![\w-])", known[name]), flag
        assert all(re.search(rf"(?<![\w-]){one}(?![\w-])", known[name]) for one in command), flag


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
    for name, command in commands(build(FUNCTIONS)):
        if name.split()[0] in FUNCTIONS:
            assert f"quell {name}" in command.help.partition("\b\n")[2], f"{name}: an example"


@pytest.mark.parametrize("columns", [44, 80])
def test_help_fits_the_terminal_and_has_examples(
    columns: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is to be typed is never broken, so that it can be copied."""
    monkeypatch.setenv("COLUMNS", str(columns))
    for name in [*(name for name, _ in commands(build(FUNCTIONS))), "exec", "plugin", "doctor"]:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])  # some hold signals back to the end of their process
        assert main([*name.split(), "--help"]) == 0
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        shown, said = capfd.readouterr()
        assert said == "", name
        lines = shown.splitlines()
        typed = [line for line in lines if line.startswith("  ") and "quell " in line]
        assert typed, f"{name}: an example"
        by_hand = name in ("exec", "plugin", "doctor")
        long = [line for line in lines if len(line) > (80 if by_hand else columns) and line not in typed]
        assert long == [], f"{name}: {long}"
        assert "\x1b" not in shown
