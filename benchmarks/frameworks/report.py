"""The rounds of every subject as a table, a page and a plot."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks import rig, svgplot
from benchmarks.frameworks.measure import Measurement
from benchmarks.frameworks.subjects import OURS, Subject

BAR: Final = 3.0
"""How many times as fast as the best of the others Taskyard's worker is to be."""

DURABILITY: Final = {
    ("taskyard", "sync"): "Taskyard, sync: on disk, flushed",
    ("taskyard", "write"): "Taskyard, write: handed to the system",
    ("taskyard", "memory"): "Taskyard, memory",
    ("redis", "sync"): "Redis, appendfsync always",
    ("redis", "write"): "Redis, appendfsync everysec",
    ("redis", "memory"): "Redis, in memory only",
}

INTRODUCTION: Final = """\
No-op tasks a second of one worker process: `taskyard work` beside frameworks on Redis.
[What is measured, and how](../benchmarks.md#frameworks-tasks-beside-other-frameworks). Taskyard
flushes what it says to disk; Redis keeps it in memory, as it does unless told otherwise, except in
the rows that say *always*. The bar is held to the row *Taskyard*."""


@dataclass(frozen=True, slots=True)
class Case:
    """All the rounds of one subject."""

    subject: Subject
    rounds: list[Measurement] = field(default_factory=list)

    def median(self, of: Callable[[Measurement], float]) -> float:
        return statistics.median(of(taken) for taken in self.rounds)

    @property
    def per_s(self) -> float:
        return self.median(lambda taken: taken.per_s)

    @property
    def rates(self) -> list[float]:
        return [taken.per_s for taken in self.rounds]

    @property
    def pushed_many(self) -> float | None:
        found = [taken.pushed_many for taken in self.rounds if taken.pushed_many is not None]
        return statistics.median(found) if found else None

    @property
    def row(self) -> str:
        _, _, variant = self.subject.name.partition("-")
        return self.subject.framework + (f" ({variant})" if variant else "")

    @property
    def broker(self) -> str:
        return self.subject.broker

    @property
    def durability(self) -> str:
        return self.subject.durability


def ours(cases: Sequence[Case]) -> Case | None:
    return next((case for case in cases if case.subject.name == OURS and case.rounds), None)


def best_other(cases: Sequence[Case]) -> Case | None:
    """The fastest framework on Redis, however Redis keeps its data."""
    others = [case for case in cases if case.subject.broker == "redis" and case.rounds]
    return max(others, key=lambda case: case.per_s, default=None)


def ratio(cases: Sequence[Case], case: Case) -> float | None:
    """How many times as fast as this one Taskyard is."""
    base = ours(cases)
    return base.per_s / case.per_s if base is not None else None


def verdict(cases: Sequence[Case]) -> str:
    base, other = ours(cases), best_other(cases)
    if base is None or other is None:
        return "no ratio: it takes Taskyard and one of the others"
    found = base.per_s / other.per_s
    reached = "reached" if found >= BAR else "MISSED"
    return (
        f"Taskyard to the best of the others, {other.row}: {found:.2f} "
        f"(bar: at least {BAR:g}): {reached}"
    )


def table(cases: Sequence[Case]) -> str:
    header = ["framework", "broker", "tasks", "tasks/s", "least - most", "Taskyard to it", "runs/s"]
    header += ["worker µs", "broker µs", "pushes/s one by one", "many", "producer µs"]
    return rig.markdown_table(header, [cells(cases, case) for case in cases if case.rounds])


def cells(cases: Sequence[Case], case: Case) -> list[str]:
    times, many = ratio(cases, case), case.pushed_many
    return [
        case.row,
        DURABILITY[case.broker, case.durability],
        f"{case.rounds[0].tasks:,}",
        f"{case.per_s:,.0f}",
        f"{min(case.rates):,.0f} - {max(case.rates):,.0f}",
        "" if times is None else f"{times:.2f}",
        f"{case.median(lambda taken: taken.runs_per_s):,.0f}",
        f"{case.median(lambda taken: taken.worker_cpu) * 1e6:,.0f}",
        f"{case.median(lambda taken: taken.broker_cpu) * 1e6:,.0f}",
        f"{case.median(lambda taken: taken.pushed_each):,.0f}",
        "" if many is None else f"{many:,.0f}",
        f"{case.median(lambda taken: taken.push_cpu) * 1e6:,.0f}",
    ]


def settings_table(cases: Sequence[Case]) -> str:
    rows = [[case.subject.name, case.row, case.subject.settings] for case in cases if case.rounds]
    return rig.markdown_table(["`--only`", "framework", "worker"], rows)


def page(cases: Sequence[Case], about: Sequence[str], plot: str) -> str:
    """A page of its own, with everything that a reader needs to judge the figures."""
    parts = [
        "# Tasks a second beside other frameworks",
        INTRODUCTION,
        "\n".join(about),
        verdict(cases),
        f"![Tasks a second]({plot})",
        table(cases),
        "## Settings",
        settings_table(cases),
    ]
    return "\n\n".join(parts) + "\n"


LABELS: Final = 190
BAR_HEIGHT: Final = 20
STEP: Final = 30
AXIS: Final = 60


def plot(cases: Sequence[Case]) -> str:
    """Bars, the fastest at the top, with the spread of the rounds as a line across the end."""
    shown = sorted((case for case in cases if case.rounds), key=lambda case: -case.per_s)
    height, right = AXIS + STEP * len(shown) + 40, svgplot.WIDTH - 90
    most = max((max(case.rates) for case in shown), default=1.0)
    axis = svgplot.linear_axis(0.0, most, LABELS, right, 8)
    size = f'width="{svgplot.WIDTH}" height="{height}"'
    view = f'viewBox="0 0 {svgplot.WIDTH} {height}"'
    font = f'font-family="system-ui, sans-serif" font-size="12" fill="{svgplot.INK}"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} {font}>',
        f'<rect {size} fill="{svgplot.PAPER}"/>',
        svgplot.text(14, 26, "No-op tasks a second, one worker process", size=15, weight="bold"),
    ]
    bottom = height - 34
    for tick in axis.ticks:
        x = axis.place(tick)
        out.append(svgplot.rule(x, AXIS - 12, x, bottom, svgplot.GRID))
        out.append(svgplot.text(x, bottom + 18, svgplot.number(tick), anchor="middle"))
    for index, case in enumerate(shown):
        out += draw_bar(case, axis, AXIS + STEP * index)
    return "\n".join([*out, "</svg>"]) + "\n"


def draw_bar(case: Case, axis: svgplot.Axis, top: float) -> list[str]:
    end, middle = axis.place(case.per_s), top + BAR_HEIGHT / 2
    least, most = axis.place(min(case.rates)), axis.place(max(case.rates))
    colour = svgplot.COLOURS[0] if case.broker == "taskyard" else svgplot.COLOURS[1]
    box = f'x="{LABELS}" y="{top:.1f}" width="{end - LABELS:.1f}" height="{BAR_HEIGHT}"'
    return [
        svgplot.text(LABELS - 8, middle + 4, case.row, anchor="end"),
        f'<rect {box} fill="{colour}"/>',
        svgplot.rule(least, middle, most, middle, svgplot.INK, width=2),
        svgplot.text(most + 8, middle + 4, f"{case.per_s:,.0f}"),
    ]
