"""The parts that were measured as a table of bars, a page and a plot."""

import re
import statistics
from collections.abc import Callable, Sequence
from typing import Any, Final

from benchmarks import readings, rig, svgplot
from benchmarks.patience import MOST_STOLEN
from benchmarks.pipeline.report import Bar

Part = dict[str, Any]
Parts = dict[str, Part]
MILLION: Final = 1_000_000

LEAST_RATIO: Final = 0.8
MOST_BYTES_A_JOB: Final = 250
LEAST_RECORDS_PER_S: Final = 500_000
DEEPEST: Final = 10 * MILLION
MOST_START_SECONDS: Final = 30
LEAST_COMPACTING: Final = 0.85
MOST_PAUSE_MS: Final = 20
MOST_OTHERS: Final = 0.1
CROWDS: Final = ("waiting", "delayed", "queues", "connections")

INTRODUCTION: Final = """\
What becomes of Taskyard when there is much of everything: waiting and delayed jobs, queues,
connections, a long journal. One *cycle* is push + take + finish over Masenko.
[What is measured, and how](../benchmarks.md#growth-much-of-everything)."""

WAITING: Final = """\
## Many waiting jobs

{jobs:,} jobs of {payload} bytes, pushed in steps; the cycles of the plot are measured after each.
Then the server is killed and comes back, with all payloads on disk only. It and another where few
jobs wait are given work until their memory stands still: {warm_seconds:.0f} s for the many, with
{warm_least:,.0f} to {warm_most:,.0f} cycles/s. Then they are compared. In the end it is drained,
{drain:,.0f} jobs a second, and every job came once and in order. It never had more than
{peak:.2f} GiB in memory.

"""

CROWD: Final = """\
## Much to little

Two servers in turns; medians of the rounds. The load generator runs on the same cores. Where the
load is spread over more queues than there are connections, each connection goes on to another
queue after each batch, so that none of its `FETCH` is the same as the one before.

"""

MEMORY: Final = """\
## Memory a waiting job

Growth of the resident memory over {jobs:,} jobs of {payload} bytes, with `--payload-memory 1MiB`,
so that payloads are on disk only.

"""

RECOVERY: Final = """\
## Back after kill -9

Records a second are those of reading and applying the journal, as the server says; *start* is from
the start of the process until it accepts connections, which takes {empty:.2f} s on an empty
directory. The journal is in the page cache, as it is after a crash of the process alone.

"""

COMPACTION: Final = """\
## What compaction costs

`hard` has {parked:,} jobs of 1 KiB that nobody takes, and they must be written forward out of
each old segment of 8 MiB; `off` has them too, and does not compact; `hardly` has none. In turns,
flushed in a thread. The loop's longest answer is that of a probe without priority, so it has
all that the machine did meanwhile.

"""

OTHERS: Final = """\
*Others' cores* is what the rest of the machine took while the part was measured. Where it is in
bold, the figures of that part are not to be relied on. *The host's share* is what the host of a
virtual machine gave to others of the processor time that was asked for: in the median of the
measurements and at most, or of the whole part. In the parts that have a most, measurements of which
it took more than {most_stolen:.0%} were *made again*.

"""

PAUSES: Final = """\
## Pauses of the loop

With {jobs:,} jobs, flushed in a thread. A probe sends `PING` every millisecond; the pause is its
longest answer in all rounds, less what the server's main thread waited for a processor meanwhile,
and less what the host of a virtual machine took away from that thread while it ran, or until it
woke up: the time in which it neither ran nor waited, if from the question to the answer it did not
sleep but where it asks for events; one tick of the kernel's clock of that time is left to it.
It has the time that `PING` stood in line behind the commands of others, so that no turn of the
loop was longer. *Of an idle server*: the same of one that had nothing to do, which is the share of
the machine. *Longest answer* is the longest as it was.

"""


def all_bars(parts: Parts) -> list[Bar]:
    found = [
        Bar(each["name"], "", LEAST_RATIO, False, each["ratios"], 2)
        for part in CROWDS
        for each in parts.get(part, {}).get("comparisons", ())
    ]
    for part, bars_of in _BARS.items():
        if part in parts:
            found += bars_of(parts[part])
    return found


def _memory_bars(part: Part) -> list[Bar]:
    return [
        Bar(
            f"memory a waiting job, {each['kind']}",
            "bytes",
            MOST_BYTES_A_JOB,
            True,
            [each["bytes_a_job"]],
        )
        for each in part["kinds"]
        if each["is_plain"]
    ]


def _waiting_bars(part: Part) -> list[Bar]:
    start = part["start"]
    name = f"recovery of {start['records']:,} records"
    bars = [Bar(name, "records/s", LEAST_RECORDS_PER_S, False, [records_per_s(start)])]
    if part["jobs"] >= DEEPEST:
        seconds = [start["start_seconds"]]
        name = f"{part['jobs']:,} jobs back"
        bars.append(Bar(name, "s", MOST_START_SECONDS, True, seconds, 1))
    return bars


def _recovery_bars(part: Part) -> list[Bar]:
    return [
        Bar(
            f"recovery of {log['starts'][0]['records']:,} records ({log['log']})",
            "records/s",
            LEAST_RECORDS_PER_S,
            False,
            [records_per_s(start) for start in log["starts"]],
        )
        for log in part["logs"]
    ]


def records_per_s(start: Part) -> float:
    return float(start["records"] / start["recovery_seconds"])


def _compaction_bars(part: Part) -> list[Bar]:
    return [
        Bar(
            f"cycles/s while compacting to those without, connections {shape}",
            "",
            LEAST_COMPACTING,
            False,
            compaction_ratios(part, shape),
            2,
        )
        for shape in part["ratios"]
    ]


def compaction_ratios(part: Part, shape: str) -> list[float]:
    sides = {case["side"]: case for case in part["cases"] if case["shape"] == shape}
    hard, base = sides["hard"]["cycles_per_s"], sides[part["base"]]["cycles_per_s"]
    return [one / other for one, other in zip(hard, base, strict=True)]


def _pause_bars(part: Part) -> list[Bar]:
    """Of the longest of all rounds: one pause that is too long is one too many."""
    return [
        Bar(
            f"longest pause with {part['jobs']:,} jobs: {pause['phase']}",
            "ms",
            MOST_PAUSE_MS,
            True,
            [pause["longest_ms"]],
            1,
        )
        for pause in longest_pauses(part["pauses"])
    ]


def longest_pauses(pauses: Sequence[Part]) -> list[Part]:
    """One for each phase: the round with the longest one."""
    found: dict[str, Part] = {}
    for pause in pauses:
        known = found.get(pause["phase"])
        if known is None or pause["longest_ms"] > known["longest_ms"]:
            found[pause["phase"]] = pause
    return list(found.values())


_BARS: Final[dict[str, Callable[[Part], list[Bar]]]] = {
    "memory": _memory_bars,
    "waiting": _waiting_bars,
    "recovery": _recovery_bars,
    "compaction": _compaction_bars,
    "pauses": _pause_bars,
}


def bars(parts: Parts) -> str:
    header = ["", "bar", "found", "least - most", "rounds", ""]
    return rig.markdown_table(header, [bar.cells() for bar in all_bars(parts)])


def page(parts: Parts, plot_name: str) -> str:
    """A page of its own, with everything that a reader needs to judge the figures."""
    found = ["# Growth", INTRODUCTION, about(parts), bars(parts)]
    if "waiting" in parts:
        found += [waiting_section(parts["waiting"]), f"![Cycles, pushes, memory]({plot_name})"]
    crowds = [each for part in CROWDS for each in parts.get(part, {}).get("comparisons", ())]
    if crowds:
        found.append(crowd_section(crowds))
    for part, describe in _SECTIONS.items():
        if part in parts:
            found.append(describe(parts[part]))
    found += ["## Commands", commands(parts)]
    return "\n\n".join(found) + "\n"


def about(parts: Parts) -> str:
    """Of the part that was measured last; the machine is the same for all, or it is no page."""
    last = list(parts.values())[-1]
    return (
        f"{readings.describe_machine(last['machine'])}.\n"
        f"Taskyard {last['form']}, durability {last['durability']}, payloads of "
        f"{last['payload']} bytes; medians of rounds."
    )


def commands(parts: Parts) -> str:
    rows = [
        [
            name,
            f"`{_without_places(part['command'])}`",
            f"{part['took_seconds'] / 60:.1f}",
            _others(part),
            _host(part),
            str(part.get("thrown_away", "not known")),
        ]
        for name, part in parts.items()
    ]
    text = OTHERS.format(most_stolen=MOST_STOLEN)
    header = ["part", "command", "minutes", "others' cores", "the host's share", "made again"]
    return text + rig.markdown_table(header, rows)


def _others(part: Part) -> str:
    """Marked where they took so much that the figures should not be relied on."""
    cores: float | None = part.get("others_cores")
    if cores is None:
        return "not known"
    return f"**{cores:.2f}**" if cores > MOST_OTHERS else f"{cores:.2f}"


def _host(part: Part) -> str:
    shares: Sequence[float] = part.get("stolen", ())
    if not shares:
        return "not known"
    most = f", {max(shares):.1%} at most" if len(shares) > 1 else ""
    return f"{statistics.median(shares):.1%}{most}"


def _without_places(command: str) -> str:
    """Where somebody has put the files says nothing to others."""
    return re.sub(r" --(dir|out)[ =]\S+", "", command)


def waiting_section(part: Part) -> str:
    shapes = list(part["steps"][0]["cycles"])
    rows = [
        [
            f"{step['jobs']:,}",
            f"{step['push_per_s']:,.0f}",
            f"{step['resident_bytes'] / 2**20:,.0f}",
            *(f"{step['cycles'][shape]['cycles_per_s']:,.0f}" for shape in shapes),
        ]
        for step in part["steps"]
    ]
    header = ["waiting", "pushes/s", "resident MiB", *(f"cycles/s, {shape}" for shape in shapes)]
    warmed = part["warmed"]
    rates = warmed["many"]
    text = WAITING.format(
        warm_seconds=len(rates) * warmed["step_seconds"],
        warm_least=min(rates),
        warm_most=max(rates),
        jobs=part["jobs"],
        payload=part["payload"],
        drain=part["drain_per_s"],
        peak=max(part["peak_bytes"], part["peak_bytes_started"]) / 2**30,
    )
    return text + rig.markdown_table(header, rows)


def crowd_section(comparisons: Sequence[Part]) -> str:
    rows = [
        [each["name"], *_side_cells(each["many"]), *_side_cells(each["few"])]
        for each in comparisons
    ]
    header = ["", "much: cycles/s", "p99 ms", "server / generator cores"]
    header += ["little: cycles/s", "p99 ms", "server / generator cores"]
    return CROWD + rig.markdown_table(header, rows)


def _side_cells(rounds: Sequence[Part]) -> list[str]:
    def median(name: str) -> float:
        return float(statistics.median(each[name] for each in rounds))

    return [
        f"{median('cycles_per_s'):,.0f}",
        f"{median('p99_us') / 1000:.1f}",
        f"{median('server_cores'):.2f} / {median('generator_cores'):.2f}",
    ]


def memory_section(part: Part) -> str:
    rows = [
        [
            each["kind"],
            f"{each['bytes_before'] / 2**20:,.0f}",
            f"{each['bytes_full'] / 2**20:,.0f}",
            f"{each['bytes_a_job']:,.0f}",
        ]
        for each in part["kinds"]
    ]
    header = ["jobs", "MiB before", "MiB full", "bytes a job"]
    return MEMORY.format_map(part) + rig.markdown_table(header, rows)


def recovery_section(part: Part) -> str:
    rows = [_log_cells(log["log"], log["starts"]) for log in part["logs"]]
    header = ["journal of", "records", "jobs", "start, s", "least - most", "records/s"]
    return RECOVERY.format(empty=part["empty_seconds"]) + rig.markdown_table(header, rows)


def _log_cells(log: str, starts: Sequence[Part]) -> list[str]:
    seconds = [start["start_seconds"] for start in starts]
    return [
        log,
        f"{starts[0]['records']:,}",
        f"{starts[0]['jobs']:,}",
        f"{statistics.median(seconds):.2f}",
        f"{min(seconds):.2f} - {max(seconds):.2f}",
        f"{statistics.median(records_per_s(start) for start in starts):,.0f}",
    ]


def compaction_section(part: Part) -> str:
    rows = [
        [
            case["shape"],
            case["side"],
            f"{statistics.median(case['cycles_per_s']):,.0f}",
            f"{case['dropped'] / 2**20:,.0f}",
            f"{case['written_per_cycle']:,.0f}",
            f"{case['loop_ms']['most']:.1f}" if case.get("loop_ms") else "",
        ]
        for case in part["cases"]
    ]
    header = ["connections", "side", "cycles/s", "MiB dropped", "bytes written a cycle"]
    header.append("loop's longest answer ms")
    return COMPACTION.format_map(part) + rig.markdown_table(header, rows)


def pauses_section(part: Part) -> str:
    rows = [
        [
            pause["phase"],
            f"{pause['longest_ms']:.1f}",
            f"{pause['idle_ms']:.1f}",
            f"{pause['answer_ms']:.1f}",
            f"{pause['p999_ms']:.1f}",
            f"{pause['p50_ms']:.2f}",
            f"{pause['asked']:,}",
        ]
        for pause in longest_pauses(part["pauses"])
    ]
    header = ["phase", "longest pause ms", "of an idle server", "longest answer ms"]
    header += ["p99.9 ms", "median ms", "asked"]
    return PAUSES.format_map(part) + rig.markdown_table(header, rows)


_SECTIONS: Final[dict[str, Callable[[Part], str]]] = {
    "memory": memory_section,
    "recovery": recovery_section,
    "compaction": compaction_section,
    "pauses": pauses_section,
}


def plot(parts: Parts) -> str:
    """Cycles, pushes and memory against the jobs that wait."""
    steps = parts.get("waiting", {"steps": []})["steps"]
    xs = [step["jobs"] / MILLION for step in steps]
    shapes = list(steps[0]["cycles"]) if steps else []
    panels = [
        svgplot.Panel(
            f"Cycles, connections {shape}",
            "a second",
            [_line("cycles", xs, [step["cycles"][shape]["cycles_per_s"] for step in steps])],
            height=150,
        )
        for shape in shapes
    ]
    panels += [
        svgplot.Panel(
            "Pushes",
            "a second",
            [_line("pushes", xs, [step["push_per_s"] for step in steps])],
            height=150,
        ),
        svgplot.Panel(
            "Resident memory",
            "MiB",
            [_line("resident", xs, [step["resident_bytes"] / 2**20 for step in steps])],
            height=150,
        ),
    ]
    return svgplot.Chart("Many waiting jobs", "million jobs waiting", panels).svg()


def _line(name: str, xs: Sequence[float], ys: Sequence[float]) -> svgplot.Line:
    return svgplot.Line(name, xs, ys)
