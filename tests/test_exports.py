"""The public API is flat, explicit, and loaded when it is used; a name comes or goes on purpose."""

import importlib
import subprocess
import sys

import pytest

PUBLIC = {
    "quell": (
        "NULL PIPE PTY STDOUT AdmissionClosedError Agent BoxLostError BusClosedError ContainmentError Event FencedError"
        " Ladder Limits Member NoSessionError NoSupervisorError NotAnsweredError OwnershipError PluginRefusedError"
        " Process QuellError Receipt Runtime Scope ScopeStoppedError Session Settings SpawnError StateInUseError"
        " StoreError Supervisor ToolError UsageError __version__ allow ask_stop supervise"
    ),
    "quell.testing": (
        "Calls Census Coverage Fails Faults Leak LeakFound LogBroken Malformed ModelRequest ModelServer Reply Says"
        " Thinks cancel_everywhere census check_log tracking"
    ),
}


@pytest.mark.parametrize("module", PUBLIC)
def test_what_is_exported_is_what_is_meant_to_be(module: str) -> None:
    found = importlib.import_module(module)
    assert sorted(found.__all__) == sorted(PUBLIC[module].split())
    assert [name for name in found.__all__ if getattr(found, name, None) is None] == []
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = found.nothing


@pytest.mark.parametrize("module", ["quell", "quell.supervise", "quell.testing"])
def test_every_name_is_there_in_a_fresh_interpreter_and_twice(module: str) -> None:
    """A module of the same name as what it holds would take its place at the second look."""
    program = (
        f"import {module} as m\nfor _ in range(2):\n for name in m.__all__:\n  value = getattr(m, name)\n"
        "  assert name == 'supervise' or type(value) is not type(m), name"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_importing_quell_loads_no_asyncio() -> None:
    program = "import quell, quell.supervise, quell.testing, sys; assert 'asyncio' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
