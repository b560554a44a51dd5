"""What to know first: a few figures, and what stands out, in sentences."""

from dataclasses import dataclass
from typing import Final

from taskyard.pipeline.report import text
from taskyard.pipeline.report.data import Findings
from taskyard.pipeline.report.figure import Table
from taskyard.pipeline.report.time import a_bin, depth_of_all, label_text

_OTHER_ENDS: Final = ("deleted", "purged", "expired", "withdrawn")


@dataclass(frozen=True)
class Card:
    title: str
    value: str
    more: str
    bad: bool = False


def cards(found: Findings) -> list[Card]:
    done = found.outcomes.get("succeeded", 0)
    failed = found.outcomes.get("failed", 0)
    others = sum(found.outcomes.get(name, 0) for name in _OTHER_ENDS)
    closed = sum(found.outcomes.values())
    made = [
        Card(
            "Jobs ended",
            text.count(closed),
            f"{text.count(done)} succeeded, {text.count(others)} removed or expired",
        ),
        Card(
            "Failure rate",
            text.share(failed, done + failed),
            f"{text.count(failed)} failed for good, {text.count(found.all_queues['retries'])} "
            "retries",
            bad=failed > 0.05 * (done + failed),
        ),
        _latency_card("Wait, p95", found.overall.wait),
        _latency_card("Run, p95", found.overall.run),
        _worst_card(found),
    ]
    if found.options.until is None:
        made.append(_now_card(found))
    return made


def _latency_card(title: str, times: tuple[float, float, float] | None) -> Card:
    if times is None:
        return Card(title, text.NONE, "no attempt ended")
    return Card(
        title,
        text.duration(times[1]),
        f"p50 {text.duration(times[0])}, p99 {text.duration(times[2])}",
    )


def _worst_card(found: Findings) -> Card:
    if found.worst is None:
        return Card("Longest waits", text.NONE, "no job was started")
    return Card(
        "Longest waits",
        text.short(found.worst["queue"]),
        f"p95 {text.duration(found.worst['p95'])} over {text.count(found.worst['starts'])} starts",
    )


def _now_card(found: Findings) -> Card:
    states = found.open_states
    waiting = sum(states.get(name, 0) for name in ("blocked", "delayed", "ready"))
    return Card(
        "Waiting at the end",
        text.count(waiting),
        f"{text.count(states.get('leased', 0))} being worked on, "
        f"{text.count(states.get('failed', 0))} dead letters",
    )


def stands_out(found: Findings) -> list[str]:
    """The sentences an operator would want to be called for, the worst first."""
    scope = found.scope
    said = [
        f"{text.short(stop.queue)} stood still in {text.span(stop.since, stop.until)}: no job of "
        f"it ended while up to {text.count(stop.depth)} waited."
        for stop in found.stops[:3]
    ]
    for storm in found.storms[:2]:
        when = text.span(scope.start_of(storm.first), scope.start_of(storm.last + 1))
        error = f", mostly {text.short(storm.error_class)}" if storm.error_class else ""
        said.append(
            f"Retry storm in {text.short(storm.queue)}: {text.count(storm.retries)} retries "
            f"in {when}{error}."
        )
    said += [
        f"{text.short(each.target.queue)} missed its wait target of "
        f"{text.duration(each.target.seconds)} for {text.count(each.starts - each.within)} of "
        f"{text.count(each.starts)} starts."
        for each in found.attainments
        if each.starts and each.within < 0.95 * each.starts
    ]
    said += [
        f"{text.short(row['name'])} fails in {text.share(row['failed'], row['attempts'])} of its "
        "attempts."
        for row in found.failing[:3]
        if row["attempts"] >= 10 and row["failed"] > 0.2 * row["attempts"]
    ]
    growing = _growing(found)
    if growing:
        said.append(growing)
    return said


def _growing(found: Findings) -> str:
    """A backlog that is at its highest at the end is not going away by itself."""
    depths = depth_of_all(found)
    last = depths[-1]
    if last < 100 or last < 0.9 * max(depths) or last < 2 * depths[len(depths) // 2]:
        return ""
    return f"The backlog is growing: {text.count(last)} jobs wait at the end."


def queue_table(found: Findings) -> Table:
    rows: list[tuple[str, ...]] = []
    for row in found.queues:
        times = found.by_queue.get(row["queue"])
        wait = times.wait if times else None
        run = times.run if times else None
        rows.append(
            (
                text.short(row["queue"]),
                text.count(row["arrivals"]),
                text.count(row["finishes"]),
                text.count(row["failures"]),
                text.share(row["failures"], row["finishes"] + row["failures"]),
                text.count(row["retries"]),
                text.duration(wait[0] if wait else None),
                text.duration(wait[1] if wait else None),
                text.duration(run[1] if run else None),
                text.count(row["peak"]),
                text.count(row["waiting"]),
            )
        )
    if found.scope.others:
        rows.append(_others_row(found))
    return Table(
        (
            "Queue",
            "Arrived",
            "Finished",
            "Failed",
            "Failure rate",
            "Retries",
            "Wait p50",
            "Wait p95",
            "Run p95",
            "Peak depth",
            "Waiting now",
        ),
        rows,
    )


def _others_row(found: Findings) -> tuple[str, ...]:
    sums = {
        name: found.all_queues[name] - sum(row[name] for row in found.queues)
        for name in ("arrivals", "finishes", "failures", "retries")
    }
    times = found.by_queue.get(None)
    wait = times.wait if times else None
    run = times.run if times else None
    return (
        label_text(found.scope, None),
        text.count(sums["arrivals"]),
        text.count(sums["finishes"]),
        text.count(sums["failures"]),
        text.share(sums["failures"], sums["finishes"] + sums["failures"]),
        text.count(sums["retries"]),
        text.duration(wait[0] if wait else None),
        text.duration(wait[1] if wait else None),
        text.duration(run[1] if run else None),
        text.NONE,
        text.NONE,
    )


def about(found: Findings) -> str:
    """What the page covers."""
    scope = found.scope
    count = len(scope.queues) + scope.others
    queues = f"{text.count(count)} queue{'s' if count != 1 else ''}"
    only = f" of {', '.join(text.short(name) for name in found.options.queues)}"
    return (
        f"{text.span(scope.since, scope.until)} UTC, {queues}"
        f"{only if found.options.queues else ''}; one point is {a_bin(scope)}"
    )
