"""Runs by seed, one or many, and their results."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from random import Random

from simulation.crowd import MakeClientSet
from simulation.draws import Plan, draw_plan, short_plan
from simulation.people import ClientMix, choose_clients
from simulation.run import Outcome, Run

Change = Callable[[Run], None]
"""Something that is done to a run before it begins: a planted bug."""


def simulate(
    plan: Plan, make_crowd: MakeClientSet = choose_clients, change: Change | None = None
) -> Outcome:
    """Whatever goes wrong is in the outcome."""
    run = Run(plan, make_crowd)
    if change is not None:
        change(run)
    try:
        return run.run()
    except Exception as error:
        outcome = run.outcome
        outcome.failure = outcome.failure or f"{type(error).__name__}: {error}"
        return outcome


def simulate_seed(seed: int) -> Outcome:
    return simulate(draw_plan(seed))


def simulate_point(point: tuple[str, int, bool]) -> Outcome:
    """The short plan, with a power cut there; its seed is the number of the operation."""
    sync_mode, number, done = point
    plan = short_plan(sync_mode)
    plan.cut = (number, done)
    outcome = simulate(plan, ClientMix)
    outcome.seed = number
    return outcome


def simulate_points(processes: int = 0) -> Iterator[Outcome]:
    """Every point of the short plan, with both modes of syncing."""
    points = [
        (sync_mode, number, done)
        for sync_mode in ("inline", "thread")
        for number, done in every_point(points_of(short_plan(sync_mode)), 1)
    ]
    with ProcessPoolExecutor(processes or os.cpu_count() or 1) as pool:
        yield from pool.map(simulate_point, points, chunksize=4)


def simulate_many(seeds: Iterable[int], processes: int = 0) -> Iterator[Outcome]:
    processes = processes or os.cpu_count() or 1
    if processes == 1:
        yield from map(simulate_seed, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(simulate_seed, seeds, chunksize=1)


def points_of(plan: Plan, make_crowd: MakeClientSet = ClientMix) -> int:
    """Return how many operations of the disk a run has before the faults stop."""
    run = Run(plan, make_crowd)
    run.run()
    return run.operations_of_work


def every_point(points: int, share: int, seed: int = 0) -> list[tuple[int, bool]]:
    """Before and after each operation, or one of so many of these, others for another seed."""
    chance = Random(seed)
    every = [(number, done) for number in range(1, points + 1) for done in (False, True)]
    return [
        point
        for start in range(0, len(every), share)
        for point in [chance.choice(every[start : start + share])]
    ]


@dataclass(slots=True)
class Total:
    """The sum of many runs."""

    seeds: int = 0
    failed: list[int] = field(default_factory=list)
    seconds: float = 0.0
    operations: int = 0
    connections: int = 0
    crashes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    jobs: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        if outcome.failure:
            self.failed.append(outcome.seed)
        self.seconds += outcome.seconds
        self.operations += outcome.operations
        self.connections += outcome.connections
        self.crashes.update(outcome.crashes)
        self.faults.update(outcome.faults)
        self.jobs.update(outcome.jobs)

    def lines(self) -> list[str]:
        return [
            f"seeds        {self.seeds}, {len(self.failed)} failed",
            f"simulated    {self.seconds:.0f} s, {self.connections} connections",
            f"disk         {self.operations} operations",
            f"crashes      {self.crashes.total()}: {_counts(self.crashes)}",
            f"faults       {self.faults.total()}: {_counts(self.faults)}",
            f"jobs         {_counts(self.jobs)}",
        ]


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items()))
