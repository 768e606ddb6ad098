"""`python -m quell.testing.llm`: a model server to try clients with, until Ctrl+C."""

from __future__ import annotations

import argparse
import sys
import threading

from .replies import Reply
from .server import ModelServer


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m quell.testing.llm",
        description="Serve a model that repeats what it is told and makes a call of `shell` of each line `$ cmd`.",
    )
    parser.add_argument("--port", type=int, default=0, help="the port on 127.0.0.1 (any)")
    parser.add_argument("--key", default="", help="the key that clients have to show (none)")
    parser.add_argument("--slow", type=float, default=0.0, metavar="SECONDS", help="the pause before each word (0)")
    wishes = parser.parse_args(arguments)
    with ModelServer(port=wishes.port, key=wishes.key) as server:
        server.otherwise(Reply().slow(wishes.slow))
        print(server.url, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print(file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
