"""Which points and pairs are tried, in which order, until when: lines that no cancel has met yet come first."""

from __future__ import annotations

import dataclasses
import random
import time
from typing import TYPE_CHECKING

from . import reproduce
from .coverage import Coverage, Moment
from .trial import Scenario, Terms, Trial

if TYPE_CHECKING:
    Plan = tuple[Moment, ...]
    Stacks = tuple[tuple[str, ...], ...]

TRIES = 2
"""How often a step that does not come is waited for: the number of steps varies from run to run."""
REPEATS = 5
"""How often a finding is looked for when it is asked for by its numbers: real processes move steps by one or two."""
AT_REST = (("at rest",),)


class Search:
    """`run` fills `coverage`."""

    def __init__(self, scenario: Scenario, terms: Terms, name: str, budget: float, seed: int, least: int = 0) -> None:
        self.coverage = Coverage(name)
        self._scenario = scenario
        self._terms = terms
        self._budget = budget
        self._least = least
        self._start = time.monotonic()
        self._random = random.Random(seed)
        self._faulty: set[Stacks] = set()
        self._pairs: dict[Plan, Stacks] = {}

    def run(self, pairs: bool) -> None:
        asked = reproduce.asked(self.coverage.name)
        if asked == ():
            self.coverage.notes.append(f"left out: {reproduce.AT} names another scenario")
            return
        warm = self._without_cancel(checked=False)  # what a process makes once, it makes here
        if asked is not None:
            self._again(asked)
        else:
            self._cover_points(warm, self._without_cancel(checked=True))
            if pairs:
                self._cover_pairs()
            if self._late():
                self.coverage.notes.append(f"the budget of {self._budget:g} s is used up; {reproduce.BUDGET}=… sets it")
        self.coverage.seconds = time.monotonic() - self._start

    # -- points and pairs

    def _cover_points(self, *dry: Trial) -> None:
        """Every step that a run without a cancel had; then more, until the next step does not come."""
        coverage = self.coverage
        longest = max((trial.target for trial in dry), key=lambda target: target.undisturbed)
        rests = any(trial.target.rested for trial in dry)
        endless = any(trial.target.cut for trial in dry)
        if rests:
            coverage.notes.append(
                f"it waits for ever: its last point is after {self._terms.patience:g} s without a step"
            )
        if endless:
            coverage.notes.append(f"it still went on after {self._terms.longest:g} s: later steps are not known")
        steps = longest.undisturbed
        plans: dict[Plan, Stacks] = {(at,): (stack,) for at, stack in longest.trail.items() if at.step <= steps}
        if rests:
            plans[Moment(steps + 1),] = AT_REST
        coverage.points_found = len(plans)
        coverage.points_covered = self._cover(plans)
        beyond = Moment(steps + 1 + rests)
        while not endless and not self._late() and self._try((beyond,)).reached:
            beyond = Moment(beyond.step + 1)
            coverage.points_found += 1
            coverage.points_covered += 1

    def _cover_pairs(self) -> None:
        self.coverage.pairs_found = len(self._pairs)
        self.coverage.pairs_covered = self._cover(self._pairs)

    def _cover(self, plans: dict[Plan, Stacks]) -> int:
        """Try them; how many came about."""
        covered = 0
        for number, plan in enumerate(self._widest_first(plans)):
            if number >= self._least and self._late():
                break
            if plans[plan] in self._faulty:
                self.coverage.left_out += 1
            elif self._try(plan).reached:
                covered += 1
            else:
                self.coverage.not_reached += 1
        return covered

    def _widest_first(self, plans: dict[Plan, Stacks]) -> list[Plan]:
        """One for each place that the target can stand at, then the others in no order."""
        first = list({stacks: plan for plan, stacks in reversed(plans.items())}.values())
        chosen = set(first)
        others = [plan for plan in plans if plan not in chosen]
        self._random.shuffle(others)
        return [*sorted(first), *others]

    def _late(self) -> bool:
        return time.monotonic() - self._start > self._budget

    # -- runs

    def _without_cancel(self, checked: bool) -> Trial:
        trial = self._trial(())
        if trial.error is not None and not trial.target.points:
            raise trial.error
        if trial.target.rested:
            self._terms.rested = max(self._terms.rested or 0, trial.target.undisturbed)
        if checked:
            self._keep(trial)
        return trial

    def _again(self, asked: Plan) -> None:
        """What a finding's command asks for."""
        reached = False
        for _ in range(REPEATS):
            trial = self._trial(asked)
            reached |= trial.reached
            self._keep(trial)
            if trial.finding is not None:
                break
        if len(asked) == 1:
            self.coverage.points_found, self.coverage.points_covered = 1, int(reached)
        else:
            self.coverage.pairs_found, self.coverage.pairs_covered = 1, int(reached)

    def _try(self, plan: Plan) -> Trial:
        """A run in which the planned steps came, or the last of those in which they did not."""
        trial = self._trial(plan)
        for _ in range(TRIES - 1):
            if trial.reached or trial.finding is not None:
                break
            trial = self._trial(plan)
        self._keep(trial)
        return trial

    def _trial(self, plan: Plan) -> Trial:
        trial = Trial(self._scenario, self._terms, plan)
        trial.play()
        self.coverage.lines.update(point.line for point in trial.target.points)
        return trial

    def _keep(self, trial: Trial) -> None:
        """A finding, once for each place; and the pairs that a faultless run shows."""
        target = trial.target
        stacks = tuple(point.stack for point in target.points)
        if trial.finding is not None and stacks not in self._faulty:
            self._faulty.add(stacks)
            command = reproduce.command(self.coverage.name, tuple(point.moment for point in target.points))
            self.coverage.findings.append(dataclasses.replace(trial.finding, command=command))
        elif trial.finding is None and trial.reached and len(trial.plan) == 1:
            (first,), at = trial.plan, target.points[0].stack
            self._pairs |= {(first, second): (at, then) for second, then in target.trail.items() if second > first}
