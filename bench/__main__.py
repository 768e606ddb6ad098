"""`python -m bench [--quick] [ROW…]`: all rows go to docs/benchmarks.md; some, or a quick run, are only printed."""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from bench.line import Line
from bench.machine import facts
from bench.page import page, table
from bench.rows import ROWS
from bench.safety import BrokenRowError

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Quell beside its peers.")
    parser.add_argument("row", nargs="*", choices=[[], *ROWS], help="; ".join(ROWS), metavar="ROW")
    parser.add_argument("--quick", action="store_true", help="fewer samples; the page is not written")
    asked = parser.parse_args()
    if os.geteuid() != 0:
        print("bench: the rows run in PID namespaces and cgroups of their own, which needs root", file=sys.stderr)
        return 1
    about = facts()
    lines: list[Line] = []
    broken = []
    with tempfile.TemporaryDirectory(prefix="quell-bench-") as state:
        os.environ["QUELL_STATE_DIR"] = state
        for name in asked.row or ROWS:
            began = time.monotonic()
            try:
                lines += ROWS[name](asked.quick)
            except BrokenRowError as error:
                broken.append(name)
                print(f"\nbench: {name} broke:\n{error}", file=sys.stderr)
            print(f"\r\x1b[K{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    if asked.row or asked.quick or broken:
        print(table(lines))
    else:
        PAGE.write_text(page(lines, about), encoding="utf-8")
        print(f"{table(lines)}\n\nwritten to {PAGE.relative_to(Path.cwd())}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
