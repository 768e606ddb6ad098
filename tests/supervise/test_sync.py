"""Scripts without asyncio get the same supervisor, and Ctrl+C ends what they run."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import quell

from .conftest import alive, gone, number_in


def test_a_script_runs_commands(tmp_path: Path) -> None:
    with quell.supervise() as s:
        done = s.run(["sh", "-c", "cat; echo err >&2; exit 3"], input=b"in", capture=True)
        assert (done.returncode, done.stdout, done.stderr) == (3, b"in", b"err\n")
        assert s.run(["sh", "-c", "pwd > here"], cwd=tmp_path).returncode == 0
        assert (tmp_path / "here").read_text().strip() == str(tmp_path)
        with pytest.raises(quell.SpawnError, match="sh ended with 3"):
            s.run(["sh", "-c", "exit 3"], check=True)
        with pytest.raises(quell.SpawnError, match="command not found"):
            s.run(["no-such-command"])
    assert s.receipt is not None and s.receipt.confirmed


def test_a_timeout_ends_the_tree() -> None:
    """H10, H12."""
    with quell.supervise(ladder=quell.Ladder(term=0.2)) as s:
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=r"sh did not end within 0.2 s; it was ended"):
            s.run(["sh", "-c", "trap '' TERM; setsid sleep 60 & sleep 60"], timeout=0.2)
        assert time.monotonic() - began < 10


def test_what_was_put_into_the_background_ends_with_the_block(tmp_path: Path) -> None:
    """H11."""
    with quell.supervise(ladder=quell.Ladder(term=0.2)) as s:
        s.run(["sh", "-c", "setsid sh -c 'echo $$ > pid; sleep 60' >/dev/null 2>&1 &"], cwd=tmp_path)
        # In a PID namespace the pid is another one: ask the tree instead.
        number_in(tmp_path / "pid")
        process = s.spawn(["sleep", "60"])
        [member] = process.tree()
        assert member.pid == process.pid and alive(process.pid)
    assert s.receipt is not None and s.receipt.confirmed and len(s.receipt.processes) >= 2 and gone(process.pid)


def test_a_process_is_waited_for_signalled_and_stopped() -> None:
    with quell.supervise() as s:
        process = s.spawn(["sleep", "60"])
        process.signal(signal.SIGTERM)
        assert process.wait() == -15 == process.returncode
        other = s.spawn(["sleep", "60"])
        assert other.stop(force=True).confirmed and other.returncode == -9
        assert s.spawn(["echo", "hi"], stdout=quell.PIPE).communicate() == (b"hi\n", b"")
        receipt = s.stop(reason="enough")
        assert receipt.confirmed and receipt.reason == "enough"
        with pytest.raises(quell.ScopeStoppedError):
            s.run(["true"])
    with pytest.raises(RuntimeError, match="use it inside its `with` block"):
        s.run(["true"])


def test_several_threads_may_call_it() -> None:
    with quell.supervise() as s:
        results: list[bytes] = []

        def call(number: int) -> None:
            results.append(s.run(["echo", str(number)], capture=True).stdout)

        threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == [b"%d\n" % number for number in range(8)]


def test_a_refused_start_leaves_nothing(tmp_path: Path) -> None:
    with quell.supervise(state_dir=tmp_path):
        with pytest.raises(quell.StateInUseError):
            quell.supervise(state_dir=tmp_path).__enter__()


SCRIPT = """
import quell, sys
with quell.supervise() as s:
    try:
        s.run(["sh", "-c", "sleep 600 & echo $$ > inner; sleep 600"], cwd=sys.argv[1])
    except KeyboardInterrupt:
        print("interrupted", len(s._supervisor.processes), flush=True)
        raise SystemExit(7)
"""


def test_ctrl_c_ends_what_runs(tmp_path: Path) -> None:
    """H22."""
    script = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=subprocess.PIPE)
    number_in(tmp_path / "inner")
    os.kill(script.pid, signal.SIGINT)
    out, _ = script.communicate(timeout=30)
    assert out == b"interrupted 0\n" and script.returncode == 7


def test_the_package_can_be_called_and_imported_from() -> None:
    import quell.supervise as package
    from quell.supervise import Zygote

    assert package.Zygote is Zygote and callable(package) and package.__name__ == "quell.supervise"
