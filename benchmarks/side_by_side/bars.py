"""The ratios that Taskyard is held to, and what was found of each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks import rig
from benchmarks.side_by_side.plan import SMALL
from benchmarks.side_by_side.results import Case, Part, Results, Round

BEST: Final = "best"
"""In place of a dialect: the fastest of those that push, take and finish."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Taskyard to a peer, both in the same part, durability and shape, with small payloads."""

    name: str
    ours: str
    peer: str
    wanted: float
    part: Part = "peak"
    durability: rig.Durability = "sync"
    shape: str = "c50"
    stretch: float | None = None
    of_p99: bool = False
    """It is to be at most that, and of the 99th percentile of latency."""


BARS: Final = (
    Bar("jobs/s to Redis lists, 1 connection", "masenko", "redis-lists", 1.0, shape="c1"),
    Bar("jobs/s to Redis lists, 50 connections", "masenko", "redis-lists", 1.1, stretch=1.3),
    Bar("jobs/s to Redis lists, 500 connections", "masenko", "redis-lists", 1.05, shape="c500"),
    Bar(
        "jobs/s to Redis streams, 50 connections, 100 deep",
        BEST,
        "redis-streams",
        2.0,
        shape="c50x100",
        stretch=3.0,
    ),
    Bar("jobs/s to beanstalkd, 50 connections", "masenko", "beanstalkd", 5.0),
    Bar("jobs/s to NATS JetStream, 50 connections", "masenko", "nats", 6.0),
    Bar("jobs/s to beanstalkd, 50 connections", "masenko", "beanstalkd", 1.0, durability="memory"),
    Bar(
        "jobs/s to beanstalkd, 50 connections, 100 deep",
        BEST,
        "beanstalkd",
        5.0,
        durability="memory",
        shape="c50x100",
    ),
    Bar(
        "p99 to that of Redis lists at the same rate, 50 connections",
        "masenko",
        "redis-lists",
        1.0,
        part="offered",
        of_p99=True,
    ),
    Bar(
        "jobs/s to Redis lists with a slow flush, 50 connections",
        "masenko",
        "redis-lists",
        1.3,
        part="slow-flush",
    ),
)


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a bar."""

    bar: Bar
    ours: str
    """The dialect that is held to it."""
    ratio: float
    least: float
    most: float
    """Of the rounds, each by itself."""
    figures: tuple[float, float]
    """Ours and the peer's, medians."""

    @property
    def verdict(self) -> str:
        if self.bar.of_p99:
            return "reached" if self.ratio <= self.bar.wanted else "**missed**"
        if self.bar.stretch is not None and self.ratio >= self.bar.stretch:
            return "reached, and the stretch"
        return "reached" if self.ratio >= self.bar.wanted else "**missed**"


def judge(results: Results, bar: Bar) -> Found | None:
    """None when one of the two was not measured."""
    dialect = best_dialect(results, bar) if bar.ours == BEST else bar.ours
    return None if dialect is None else compare(results, bar, dialect)


def compare(results: Results, bar: Bar, dialect: str) -> Found | None:
    """Any protocol by that bar."""
    ours, peer = case_of(results, bar, dialect), case_of(results, bar, bar.peer)
    if ours is None or peer is None:
        return None
    figure = figure_of(bar)
    beside = {each.number: figure(each) for each in peer.rounds}
    pairs = [(figure(each), beside.get(each.number)) for each in ours.rounds]
    ratios = [mine / its for mine, its in pairs if its]
    mine, its = ours.median(figure), peer.median(figure)
    if not its or not ratios:
        return None  # a server that did nothing is no measure
    return Found(bar, dialect, mine / its, min(ratios), max(ratios), (mine, its))


def best_dialect(results: Results, bar: Bar) -> str | None:
    cases = {
        subject.key: case
        for subject in results.subjects
        if subject.is_taskyard and subject.has_finish
        if (case := case_of(results, bar, subject.key)) is not None
    }
    return max(cases, key=lambda key: cases[key].rate, default=None)


def case_of(results: Results, bar: Bar, subject: str) -> Case | None:
    return results.find(bar.part, subject, bar.durability, bar.shape, SMALL)


def figure_of(bar: Bar) -> Callable[[Round], float]:
    return (lambda each: each.p99_us) if bar.of_p99 else (lambda each: each.jobs_per_s)
