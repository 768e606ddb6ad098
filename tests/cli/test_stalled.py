"""A reader that does not read holds quell's own line up, but not a stop."""

import contextlib
import os
import subprocess

import pytest

from tests.cli import oracle
from tests.cli.command import BOUND, QUELL, RUNGS, need


@pytest.mark.parametrize("rung", RUNGS)
def test_a_signal_ends_a_quell_whose_stderr_nobody_reads(rung: str) -> None:
    """H39: what CMD left is ended all the same, and quell waits with its line no longer than it is let."""
    need(rung)
    reader, writer = os.pipe()
    try:
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x" * 4096)
        words = [QUELL, "exec", "--contain", rung, "--", "sh", "-c", "sleep 600 & exit 3"]
        with subprocess.Popen([str(word) for word in words], stderr=writer) as running:
            oracle.wait_for(lambda: bool(oracle.below(running.pid)), "quell to start its own")
            oracle.wait_for(lambda: not oracle.below(running.pid), "everything below quell to end")
            assert running.poll() is None, "quell has something to say"
            running.terminate()
            assert running.wait(BOUND) == 3
    finally:
        os.close(reader)
        os.close(writer)


def test_a_receipt_for_which_there_is_no_reader_is_refused(tmp_path: object) -> None:
    """A FIFO that nobody reads would hold quell up before the command runs, out of reach of Ctrl+C."""
    fifo = f"{tmp_path}/fifo"
    os.mkfifo(fifo)
    ended = subprocess.run([str(QUELL), "exec", "--receipt", fifo, "--", "true"], capture_output=True, timeout=BOUND)
    assert ended.returncode == 125 and b"nobody reads from it" in ended.stderr
