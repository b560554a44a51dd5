"""The page: tables and sentences made of the results of a run, and of nothing else."""

import statistics
from collections.abc import Container, Sequence
from typing import Final

from benchmarks import readings, rig
from benchmarks.patience import MOST_STOLEN
from benchmarks.side_by_side.bars import BARS, Bar, compare, judge
from benchmarks.side_by_side.results import Case, Results
from benchmarks.side_by_side.shapes import SHAPES, shape_name

HELD: Final = 0.98
"""A server that did this share of what was offered has kept up."""

INTRODUCTION: Final = """\
Push, take and finish, in every dialect of Taskyard and on other queue servers: on one machine, in
one run, in turns, under the same load generator. What counts are the ratios; the figures
themselves follow the machine and its disk.
[What is measured, and how](../benchmarks.md#side-by-side-taskyard-and-its-peers).
This page is written by `make bench`."""

MEANING: Final = {
    "sync": "a reply comes when the job is on disk, flushed",
    "write": "a reply comes when the job was handed to the operating system",
    "memory": "a reply comes when the job is in memory",
}

PLOTS: Final = {
    ("sync", 200): ("side-by-side-sync.svg", "side-by-side-pipelined.svg"),
    ("memory", 200): ("side-by-side-memory.svg",),
}
LATENCY_PLOT: Final = "side-by-side-latency.svg"

OFFERED: Final = """\
## Latency at the same rate

{rate:,.0f} jobs a second begin on 50 connections, whatever the server{why}. {payload:,} bytes,
`sync`. Microseconds of a whole cycle, from when it was due to begin; medians of the rounds. A
server that did less than {share:.0%} of the jobs has not kept up: its times only say how long it
was measured.
"""

SLOW: Final = """\
## With a slower disk

{delay:g} ms more for each flush, 50 connections, {payload:,} bytes, `sync`. The delay is put before
`fsync` and `fdatasync` of the server's process.
"""

COSTS: Final = """\
## What a job costs

`sync`, {payload:,} bytes, 50 connections one by one and 100 deep: processor time of the server
(user and system, medians of the rounds at full load) and its system calls{counted}. Memory
is what {jobs:,} waiting jobs of {waiting:,} bytes added to the resident memory of a server, divided
by their number, at the durability in brackets and with settings as they come.
"""

ALL_TEXT: Final = """\
Times of a whole cycle, in microseconds; in a batch the clock of each job starts with the batch.
*Server* and *generator* are processor time divided by time: the cores that each had, of those that
they share."""


def page(results: Results, plots: Container[str]) -> str:
    """With those of the plots that were drawn."""
    parts = [
        "# Side by side",
        INTRODUCTION,
        about(results),
        "## Bars",
        bars_text(results),
        bars_table(results),
        dialects_text(results),
        *throughput(results, plots),
        *offered(results, plots),
        *slow_flush(results),
        *costs(results),
        "## Servers",
        servers_table(results),
        *failures(results),
        "## All figures",
        ALL_TEXT,
        all_figures(results),
    ]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def about(results: Results) -> str:
    machine = readings.describe_machine(results.machine)
    return (
        f"{machine}, {results.load_average_at_end:.1f} at the end. {results.taskyard}. "
        f"`{results.command}` took {results.took_seconds / 60:.0f} minutes; each measurement "
        f"{results.seconds:g} s on a fresh server, after {results.warmup:g} s that are not counted."
        + (f" Some of it was measured again: `{results.again}`." if results.again else "")
        + generator_share(results)
        + stolen_share(results)
        + ("" if results.complete else " **The run was interrupted: this is what it had.**")
    )


def generator_share(results: Results) -> str:
    shares = [case.median(lambda each: each.generator_cores) for case in results.measured()]
    if not shares:
        return ""
    return (
        f" The load generator took {min(shares):.2f} to {max(shares):.2f} of a core itself, "
        "as [all figures](#all-figures) show."
    )


def stolen_share(results: Results) -> str:
    rounds = [each for case in results.measured() for each in case.rounds]
    shares = [each.stolen for each in rounds if each.stolen is not None]
    if not shares:
        return ""
    return (
        f" Of the processor time that was asked for, the host gave {statistics.median(shares):.1%} "
        f"to others in the median, {max(shares):.0%} at most. {results.thrown_away:,} measurements "
        f"with more than {MOST_STOLEN:.0%} were made again."
    )


def bars_text(results: Results) -> str:
    return (
        "Ratios of the medians of this run, with 200 bytes. *Least - most* are the ratios of "
        "single rounds. *Best* is the fastest of the dialects that push, take and finish."
    )


def bars_table(results: Results) -> str:
    header = ["Taskyard", "durability", "wanted", "stretch", "found", "least - most"]
    header += ["Taskyard to the other", ""]
    return rig.markdown_table(header, [bar_row(results, bar) for bar in BARS])


def bar_row(results: Results, bar: Bar) -> list[str]:
    way = "at most" if bar.of_p99 else "at least"
    row = [bar.name, bar.durability, f"{way} {bar.wanted:g}"]
    row.append("" if bar.stretch is None else f"{bar.stretch:g}")
    found = judge(results, bar)
    if found is None:
        return [*row, "", "", "", "not measured"]
    unit = " µs" if bar.of_p99 else ""
    row[0] += f" ({'best: ' if bar.ours != found.ours else ''}{label(results, found.ours)})"
    return [
        *row,
        f"{found.ratio:.2f}",
        f"{found.least:.2f} - {found.most:.2f}",
        f"{found.figures[0]:,.0f} to {found.figures[1]:,.0f}{unit}",
        found.verdict,
    ]


def dialects_text(results: Results) -> str:
    """The same ratios for each protocol, since most bars are held to one of them."""
    dialects = [subject for subject in results.subjects if subject.is_taskyard]
    rows = []
    for bar in BARS:
        found = {each.key: compare(results, bar, each.key) for each in dialects}
        if any(found.values()):
            cells = ["" if one is None else f"{one.ratio:.2f}" for one in found.values()]
            rows.append([f"{bar.name}, {bar.durability}", *cells])
    if not rows:
        return ""
    header = ["", *(label(results, each.key) for each in dialects)]
    return (
        "The same ratios of every dialect. Some have no finish, so that a job takes two steps "
        "and not three; see [below](#servers).\n\n" + rig.markdown_table(header, rows)
    )


def label(results: Results, key: str) -> str:
    return results.subject(key).label.removeprefix("Taskyard, ")


def throughput(results: Results, plots: Container[str]) -> list[str]:
    kinds = sorted(
        {(case.durability, case.payload) for case in results.measured() if case.part == "peak"},
        key=lambda kind: (rig.DURABILITIES.index(kind[0]), kind[1]),
    )
    parts = []
    for durability, payload in kinds:
        cases = [
            case
            for case in results.measured()
            if (case.part, case.durability, case.payload) == ("peak", durability, payload)
        ]
        parts.append(f"## Jobs a second, `{durability}`, {payload:,} bytes")
        counts = sorted({len(case.rounds) for case in cases})
        rounds = " to ".join(str(count) for count in dict.fromkeys([counts[0], counts[-1]]))
        parts.append(
            f"`{durability}`: {MEANING[durability]}. Medians, and in brackets the least and the "
            f"most; rounds: {rounds}."
        )
        drawn = [plot for plot in PLOTS.get((durability, payload), ()) if plot in plots]
        parts += [f"![Jobs a second]({plot})" for plot in drawn]
        parts.append(rate_table(results, cases))
    return parts


def rate_table(results: Results, cases: Sequence[Case]) -> str:
    shapes = [shape for shape in SHAPES if any(case.shape == shape for case in cases)]
    rows = []
    for subject in results.subjects:
        mine = {case.shape: case for case in cases if case.subject == subject.key}
        if mine:
            setting = "" if subject.is_taskyard else subject.settings.get(cases[0].durability, "")
            name = subject.label + (f" ({setting})" if setting else "")
            rows.append([name, *(rate_cell(mine.get(shape)) for shape in shapes)])
    return rig.markdown_table(["", *(shape_name(shape) for shape in shapes)], rows)


def rate_cell(case: Case | None) -> str:
    if case is None:
        return ""
    return f"**{case.rate:,.0f}** ({min(case.rates):,.0f} - {max(case.rates):,.0f})"


def offered(results: Results, plots: Container[str]) -> list[str]:
    cases = [case for case in results.measured() if case.part == "offered"]
    if not cases or results.offered_rate is None:
        return []
    peaks = "half of the lower of the two peaks of Masenko and Redis lists"
    text = OFFERED.format(
        rate=results.offered_rate,
        why=f": {peaks}" if results.rate_follows_peaks else "",
        payload=cases[0].payload,
        share=HELD,
    )
    plot = f"![Latency at the same rate]({LATENCY_PLOT})" if LATENCY_PLOT in plots else ""
    header = ["", "jobs/s", "p50", "p99", "p99, least - most", "p99.9", "server µs a job", ""]
    return [text, plot, rig.markdown_table(header, [offered_row(results, case) for case in cases])]


def offered_row(results: Results, case: Case) -> list[str]:
    p99 = [each.p99_us for each in case.rounds]
    return [
        results.subject(case.subject).label,
        f"{case.rate:,.0f}",
        f"{case.median(lambda each: each.p50_us):,.0f}",
        f"{case.median(lambda each: each.p99_us):,.0f}",
        f"{min(p99):,.0f} - {max(p99):,.0f}",
        f"{case.median(lambda each: each.p999_us):,.0f}",
        f"{case.median(lambda each: each.server_us):,.1f}",
        "" if keeps_up(results, case) else "has not kept up",
    ]


def keeps_up(results: Results, case: Case) -> bool:
    return results.offered_rate is not None and case.rate >= HELD * results.offered_rate


def slow_flush(results: Results) -> list[str]:
    cases = [case for case in results.measured() if case.part == "slow-flush"]
    if not cases:
        return []
    text = SLOW.format(delay=results.flush_delay_ms, payload=cases[0].payload)
    return [text, rate_table(results, cases)]


def costs(results: Results) -> list[str]:
    peaks = [
        case for case in results.measured() if (case.part, case.durability) == ("peak", "sync")
    ]
    payload = min((case.payload for case in peaks), default=0)
    rows = [cost_row(results, each.key, payload) for each in results.subjects]
    rows = [row for row in rows if any(row[1:])]
    if not rows:
        return []
    by = {each.counted_by for each in results.syscalls}
    counted = f", counted by `{by.pop()}`" if by else f": not measured, {results.syscalls_missing}"
    jobs = max((each.jobs for each in results.resident), default=0)
    text = COSTS.format(
        payload=payload, counted=counted, jobs=jobs, waiting=results.payload_of_resident
    )
    header = ["", "µs", "µs, 100 deep", "system calls", "system calls, 100 deep", "bytes waiting"]
    return [text, rig.markdown_table(header, rows)]


def cost_row(results: Results, key: str, payload: int) -> list[str]:
    row = [results.subject(key).label]
    for shape in ("c50", "c50x100"):
        case = results.find("peak", key, "sync", shape, payload)
        row.append("" if case is None else f"{case.median(lambda each: each.server_us):,.1f}")
    for shape in ("c50", "c50x100"):
        counts = [one for one in results.syscalls if (one.subject, one.shape) == (key, shape)]
        row.append(f"{counts[0].calls / counts[0].jobs:.2f}" if counts else "")
    weighed = [one for one in results.resident if one.subject == key]
    row += [f"{one.gained / one.jobs:,.0f} ({one.durability})" for one in weighed[:1]] or [""]
    return row


def servers_table(results: Results) -> str:
    rows = []
    for subject in results.subjects:
        settings = [f"{name}: {text}" for name, text in subject.settings.items()]
        cycle = subject.cycle + ("" if subject.has_finish else "; no finish")
        name = f"`{subject.key}`"
        rows.append([name, subject.label, subject.version, cycle, "; ".join(settings)])
    for key, reason in results.missing.items():
        rows.append([key, "not measured", " ".join(reason.split()), "", ""])
    return rig.markdown_table(["`--only`", "server", "version", "a cycle", "durability"], rows)


def failures(results: Results) -> list[str]:
    if not results.failures:
        return []
    return ["## Failed", "\n".join(f"- {text}" for text in results.failures)]


def all_figures(results: Results) -> str:
    header = ["part", "durability", "bytes", "connections", "server", "rounds", "jobs/s"]
    header += ["least - most", "p50", "p99", "p99.9", "server µs a job", "server", "generator"]
    return rig.markdown_table(header, [figure_row(results, case) for case in results.measured()])


def figure_row(results: Results, case: Case) -> list[str]:
    return [
        case.part,
        case.durability,
        f"{case.payload:,}",
        case.shape,
        results.subject(case.subject).label,
        str(len(case.rounds)),
        f"{case.rate:,.0f}",
        f"{min(case.rates):,.0f} - {max(case.rates):,.0f}",
        f"{case.median(lambda each: each.p50_us):,.0f}",
        f"{case.median(lambda each: each.p99_us):,.0f}",
        f"{case.median(lambda each: each.p999_us):,.0f}",
        f"{case.median(lambda each: each.server_us):,.1f}",
        f"{case.median(lambda each: each.server_cores):.2f}",
        f"{case.median(lambda each: each.generator_cores):.2f}",
    ]
