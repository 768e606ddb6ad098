"""The rows of the table, by name, in its order."""

from collections.abc import Callable

from bench.line import Line
from bench.rows import bus, death, hopper, kernel, kill, log, many, memory, run, scope, serve, spawn, start, task, watch

ROWS: dict[str, Callable[[bool], list[Line]]] = {
    "spawn": spawn.measure,
    "scope": scope.measure,
    "task": task.measure,
    "kill": kill.measure,
    "hopper": hopper.measure,
    "death": death.measure,
    "many": many.measure,
    "memory": memory.measure,
    "watch": watch.measure,
    "start": start.measure,
    "bus": bus.measure,
    "log": log.measure,
    "kernel": kernel.measure,
    "serve": serve.measure,
    "run": run.measure,
}
