"""A process that forks, takes a new session and exits every 5 ms: gone, how often, how fast."""

from functools import partial

from bench.ending import Ours, Peer, rungs
from bench.line import Line, compared, lines
from bench.safety import safely
from bench.sampling import Contender, take_turns


def measure(quick: bool) -> list[Line]:
    return lines(safely(hoppers, 10 if quick else 100))


def hoppers(rounds: int) -> list[Line]:
    ours = {rung: Ours(rung) for rung in rungs()}
    contenders: dict[str, Contender] = {"`cgroup.kill`": partial(Peer().end, "hopper", 1)}
    contenders |= {rung: partial(one.end, "hopper", 1) for rung, one in ours.items()}
    samples = take_turns("hopper", contenders, rounds, warm=0)
    found = []
    for rung, one in ours.items():
        one.close()
        line = compared(f"forks, setsid, exits every 5 ms; {rung}", samples, rung, "`cgroup.kill`")
        gone = f"{line.ours}, gone {one.clean} of {one.stops}"
        found.append(line._replace(ours=gone, target=f"gone, {rounds} of {rounds}", met=one.clean == one.stops))
    return found
