"""What a soak has shown, as tables in Markdown and as a plot."""

import statistics
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks import rig, svgplot
from benchmarks.soak.cost import LEAST_RATIO, MOST_PAUSE_MS, SHAPES, Case, Cost
from benchmarks.soak.run import PhaseResult, Recovery, Result
from benchmarks.soak.sampling import Sample, Spread

MIB: Final = 2.0**20
SLACK_SEGMENTS: Final = 4
"""Beyond twice the live bytes: the segment in use, the spare, and one at each end in part."""
MOST_GROWTH: Final = 1.5
"""Of recovery times, from the first third of the kills to the last."""

MOST_NOISE: Final = 1.3
"""Between rounds of one case."""
FEW_JOBS: Final = 10_000
"""Fewer are brought back in no time, so that their number does not matter."""


def verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def summary(results: Sequence[Result], cost: Cost | None, segment: int) -> str:
    parts = [part for result in results for part in pattern_parts(result, segment)]
    if cost is not None:
        parts += cost_parts(cost)
    return "\n\n".join(parts)


def pattern_parts(result: Result, segment: int) -> list[str]:
    parts = [f"## {result.pattern}"]
    if result.problem:
        parts.append(f"**Failed:** {result.problem}")
    if result.phases:
        parts += [disk_table(result, segment), latency_table(result)]
    if result.recoveries:
        parts.append(recovery_text(result.first_start, result.recoveries))
    done = f"The driver pushed {result.pushed:,} jobs and finished {result.finished:,}."
    if not result.problem:
        done += (
            " In the end every acknowledged job had been handed out with its own payload, except"
            " for those that are delayed or dead letters: of these the number is right."
        )
    return [*parts, done]


def disk_table(result: Result, segment: int) -> str:
    header = ["at the end of", "journal MiB", "segments", "live MiB", "live records MiB"]
    header += ["journal / live", "journal / live records", "peak MiB"]
    header.append(f"at most twice live records + {SLACK_SEGMENTS} segments")
    rows: list[list[str]] = []
    for phase in result.phases:
        samples = [sample for sample in result.samples if phase.began <= sample.at <= phase.ended]
        if samples:
            rows.append(disk_row(phase, samples, segment))
    return rig.markdown_table(header, rows)


def disk_row(phase: PhaseResult, samples: list[Sample], segment: int) -> list[str]:
    last = samples[-1]
    total = last.disk.apparent
    over = (total - 2 * last.live_records) / segment
    judged = verdict(over <= SLACK_SEGMENTS) if phase.judged else "-"
    return [
        phase.name,
        f"{total / MIB:,.1f}",
        f"{last.disk.segments}",
        f"{last.live_bytes / MIB:,.1f}",
        f"{last.live_records / MIB:,.1f}",
        ratio(total, last.live_bytes, segment),
        ratio(total, last.live_records, segment),
        f"{max(sample.disk.apparent for sample in samples) / MIB:,.1f}",
        f"{over:+,.1f} segments: {judged}",
    ]


def ratio(total: int, live: int, segment: int) -> str:
    """Of less than a segment there is no ratio to speak of: a segment is the least there is."""
    return f"{total / live:,.2f}" if live >= segment else "-"


def latency_table(result: Result) -> str:
    header = ["phase", "cycles/s", "server cores", "resident MiB", "cycle p50 / p99 / max ms"]
    header += ["loop p50 / p99 / max ms", "probe late at most, ms"]
    rows: list[list[str]] = []
    for phase in result.phases:
        samples = [sample for sample in result.samples if phase.began <= sample.at <= phase.ended]
        if not samples:
            continue
        rows.append(
            [
                phase.name,
                f"{statistics.mean(sample.cycles_per_s for sample in samples):,.0f}",
                f"{statistics.mean(sample.server_cores for sample in samples):.2f}",
                f"{max(sample.resident for sample in samples) / MIB:,.0f}",
                three(phase.cycle_ms),
                three(phase.loop_ms),
                "-" if phase.late_ms is None else f"{phase.late_ms.most:.1f}",
            ]
        )
    return rig.markdown_table(header, rows)


def three(found: Spread | None) -> str:
    return "-" if found is None else f"{found.p50:.2f} / {found.p99:.1f} / {found.most:.1f}"


def recovery_text(first_start: float, recoveries: Sequence[Recovery]) -> str:
    seconds = [each.seconds for each in recoveries]
    text = (
        f"Killed {len(seconds)} times; back in {statistics.median(seconds):.2f} s "
        f"({min(seconds):.2f} - {max(seconds):.2f}), and {first_start:.2f} s on an empty directory."
    )
    alike = [each.seconds for each in recoveries if each.live_jobs >= least_alike(recoveries)]
    third = len(alike) // 3
    if third:
        first, last = statistics.median(alike[:third]), statistics.median(alike[-third:])
        growth = last / first
        text += (
            f" Last third of those with about as many jobs to the first: {last:.2f} s to "
            f"{first:.2f} s, {growth:.2f}; at most {MOST_GROWTH}: {verdict(growth <= MOST_GROWTH)}."
        )
    header = ["killed at s", "back in s", "journal MiB", "live jobs"]
    rows = [
        [
            f"{each.at:.0f}",
            f"{each.seconds:.2f}",
            f"{each.disk.apparent / MIB:,.0f}",
            f"{each.live_jobs:,}",
        ]
        for each in recoveries
    ]
    return f"{text}\n\n{rig.markdown_table(header, rows)}"


def least_alike(recoveries: Sequence[Recovery]) -> int:
    """Jobs at a kill that can be compared with the others: more to bring back takes longer."""
    most = max(each.live_jobs for each in recoveries)
    return most // 2 if most >= FEW_JOBS else 0


def cost_parts(cost: Cost) -> list[str]:
    header = ["connections", "side", "cycles/s", "least - most", "dropped MiB", "bytes a cycle"]
    header += ["loop p50 / p99 / max ms", "probe late at most, ms"]
    idle_late = cost.idle.get("late")
    idle = ["-", "idle", "-", "-", "-", "-", three(cost.idle.get("loop"))]
    idle.append("-" if idle_late is None else f"{idle_late.most:.1f}")
    parts = [
        "## cost of compaction",
        rig.markdown_table(header, [*map(cost_row, cost.cases), idle]),
    ]
    if not cost.was_seen:
        return [*parts, "No segment was dropped while it was measured: nothing to judge."]
    return [*parts, "\n".join(f"- {line}" for line in cost_bars(cost))]


def cost_row(case: Case) -> list[str]:
    late = case.spread("late")
    return [
        case.shape,
        case.side,
        f"{case.median:,.0f}",
        f"{min(case.cycles_per_s):,.0f} - {max(case.cycles_per_s):,.0f}",
        f"{case.dropped / MIB:,.0f}",
        f"{case.written_per_cycle:,.0f}",
        three(case.spread("loop")),
        "-" if late is None else f"{late.most:.1f}",
    ]


def cost_bars(cost: Cost) -> list[str]:
    lines: list[str] = []
    for shape in SHAPES:
        base, found = cost.find(cost.base, shape), cost.ratio(shape)
        lines.append(
            f"cycles/s with {cost.parked:,} jobs to carry, to those of `{cost.base}`, connections "
            f"{shape}: {found:.2f}; at least {LEAST_RATIO}: {ratio_verdict(found, base)}"
        )
        hard, other = cost.find("hard", shape).spread("loop"), base.spread("loop")
        if hard is not None and other is not None:
            lines.append(
                f"longest pause of the loop, connections {shape}: {hard.most:.1f} ms, of "
                f"`{cost.base}` {other.most:.1f} ms; at most {MOST_PAUSE_MS:.0f}: "
                f"{pause_verdict(hard.most, other.most)}"
            )
    return lines


def ratio_verdict(found: float, base: Case) -> str:
    """None where the same server under the same load differs more than the bar allows for."""
    noise = max(base.cycles_per_s) / max(min(base.cycles_per_s), 1.0)
    if noise > MOST_NOISE:
        return f"not judged, since rounds of `{base.side}` differ by a factor of {noise:.1f}"
    return verdict(found >= LEAST_RATIO)


def pause_verdict(hard: float, base: float) -> str:
    """None where the loop pauses for about as long with hardly anything to compact."""
    if hard > MOST_PAUSE_MS and base > MOST_PAUSE_MS and hard <= MOST_NOISE * base:
        return "not judged, since both are beyond it alike"
    return verdict(hard <= MOST_PAUSE_MS)


def chart(result: Result, title: str) -> svgplot.Chart:
    # While the server is away there is nothing to see, which is a gap in each line.
    points: list[tuple[float, Sample | None]] = [(each.at, each) for each in result.samples]
    points += [(each.at, None) for each in result.recoveries]
    points.sort(key=lambda point: point[0])
    xs = [at for at, _ in points]

    def line(
        name: str, value: Callable[[Sample], float | None], dashed: bool = False
    ) -> svgplot.Line:
        ys = [value(sample) if sample else None for _, sample in points]
        return svgplot.Line(name, xs, ys, dashed=dashed)

    disk = [
        line("journal", lambda sample: sample.disk.apparent / MIB),
        line("journal, allocated", lambda sample: sample.disk.allocated / MIB, dashed=True),
        line("live payloads", lambda sample: sample.live_bytes / MIB),
        line("twice live records", lambda sample: 2 * sample.live_records / MIB, dashed=True),
        line("resident memory", lambda sample: sample.resident / MIB),
    ]
    latency = [
        line("cycle p50", lambda sample: sample.cycle_ms.p50 if sample.cycle_ms else None),
        line("cycle p99", lambda sample: sample.cycle_ms.p99 if sample.cycle_ms else None),
        line("loop p50", lambda sample: sample.loop_ms.p50 if sample.loop_ms else None),
        line("loop max", lambda sample: sample.loop_ms.most if sample.loop_ms else None),
        line("probe late", lambda sample: sample.late_ms or None, dashed=True),
    ]
    rate = [
        line("cycles", lambda sample: sample.cycles_per_s),
        line("pushes", lambda sample: sample.pushes_per_s),
    ]
    marks = [svgplot.Mark(phase.began, phase.name) for phase in result.phases]
    marks += [svgplot.Mark(recovery.at) for recovery in result.recoveries]
    return svgplot.Chart(
        title,
        "seconds",
        [
            svgplot.Panel("Disk and memory", "MiB", disk, height=240),
            svgplot.Panel("Latency", "ms", latency, log=True, level=MOST_PAUSE_MS),
            svgplot.Panel("Throughput", "a second", rate, height=150),
            svgplot.Panel(
                "Server processor", "cores", [line("cores", lambda s: s.server_cores)], height=80
            ),
        ],
        marks,
    )
