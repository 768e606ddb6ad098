"""The table as Markdown, and the page that keeps it."""

import time

from bench.line import Line

HEAD = "| work | peer | peer's figure | ours | ratio | target | met |\n|---|---|---|---|---|---|---|"

INTRO = """\
# Benchmarks

Quell beside its peers, measured by one command, as root:

```console no-run: it takes about six minutes
$ make bench
```

Every row takes turns: ours, the peer, ours, the peer, on the same machine within a second of each other. A figure is
the median. A ratio is the median of the ratios of single rounds, with the quarter and three-quarter points behind it;
it means more than the times, which change with the machine and with whatever else runs there. The stops of hundreds of
trees, memory and idle children are measured once each. Nothing here is asserted by a test. `make bench ARGS=spawn`
measures one row, and `ARGS=--quick` takes fewer samples; both only print.
"""


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def table(lines: list[Line]) -> str:
    rows = [
        "| " + " | ".join(map(cell, (*line[:6], {True: "yes", False: "**no**", None: "–"}[line.met]))) + " |"
        for line in lines
    ]
    return "\n".join([HEAD, *rows])


def page(lines: list[Line], facts: dict[str, str]) -> str:
    about = "\n".join(f"- {name}: {fact}" for name, fact in {"date": time.strftime("%Y-%m-%d"), **facts}.items())
    reached = [line.met for line in lines if line.met is not None]
    sentence = f"{sum(reached)} of {len(reached)} targets are met."
    return f"{INTRO}\n{about}\n\n## Figures\n\n{sentence}\n\n{table(lines)}\n"
