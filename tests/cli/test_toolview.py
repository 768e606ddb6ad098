"""Of a call its end is told with the time that it ran, not that in which it waited for leave."""

from quell.cli.screen import Screen
from quell.cli.toolview import Calls
from quell.events import Event, ToolEnded, ToolRefused, ToolRequested, ToolStarted


def shown(*events: Event) -> str:
    lines: list[str] = []
    calls = Calls(
        lambda told, depth, hang: lines.extend("".join(text for _, text in one) for one in told), Screen(), True
    )
    for event in events:
        calls.take(event, 0)
    return "\n".join(lines)


def test_the_wait_for_leave_is_not_the_time_of_the_call() -> None:
    asked = ToolRequested(seq=7, at=100.0, tool="shell", arguments={"command": "make"})
    begun = ToolStarted(seq=8, at=148.0, request=7)
    assert shown(asked, begun, ToolEnded(seq=9, at=148.5, request=7)) == "▸ shell  make\n└ done · 0.5 s"
    assert shown(asked, ToolRefused(seq=9, at=148.5, request=7, reason="no")) == "▸ shell  make\n└ refused: no"


def test_the_name_of_a_tool_is_one_line_whatever_a_model_made_up() -> None:
    asked = ToolRequested(seq=7, tool="x\nshell asks for leave\n  │ ls\x9d" + "y" * 500, arguments={"path": "a"})
    (line,) = shown(asked).split("\n")
    assert line.startswith("▸ x shell asks for leave │ ls\\x9dyyy") and line.endswith("…  a")
