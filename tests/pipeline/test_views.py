"""The views give what plain Python makes of the same tables, in DuckDB and in Spark."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from statistics import mean, median, pstdev
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pipeline.histories import write_history
from pipeline.lake_runs import fill
from pyspark.sql import SparkSession
from support.small_lake import SmallLake

from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.snapshot import Lake, open_lake
from taskyard.pipeline.views import FUNCTIONS, VIEWS, Value, ask_duckdb, ask_spark, create_views

Row = dict[str, Any]
Forecasts = dict[str, float]  # by method
MONDAY = datetime(2026, 7, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)
TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g()\n'


def at(seconds: float) -> datetime:
    return MONDAY + timedelta(seconds=seconds)


def make_lake(path: Path, seconds: float, **tables: list[Row]) -> Lake:
    """One with these rows, whose last record is of so many seconds after midnight."""
    SmallLake(path).fill(at(seconds), **tables)
    return open_lake(path)


def attempt(
    ready: float, started: float, ended: float, outcome: str = "succeeded", **more: Any
) -> Row:
    return {
        "job_id": 1,
        "queue": "mail",
        "name": "send",
        "worker": "w1",
        "ready_at": at(ready),
        "started_at": at(started),
        "ended_at": at(ended),
        "wait_seconds": started - ready,
        "run_seconds": ended - started,
        "outcome": outcome,
        **more,
    }


def ask(lake: Lake, name: str, **parameters: Value) -> list[Row]:
    rows: list[Row] = ask_duckdb(lake, name, parameters).to_pylist()
    return rows


def of(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


# Rows that were counted by hand


def test_targets_count_who_still_waits(tmp_path: Path) -> None:
    waits = [(0, 10), (100, 160), (200, 261), (300, 460)]  # 10, 60, 61 and 160 seconds
    leased = {"state": "leased", "waited_from": at(500), "ready_at": at(400)}
    expired = {"queue": "mail", "outcome": "expired"}
    lake = make_lake(
        tmp_path,
        1000,
        attempts=[
            *(attempt(ready, started, started + 1) for ready, started in waits),
            attempt(0, 60, 61, queue="sms"),
            attempt(86_400, 86_500, 86_501, queue="sms"),
        ],
        open_jobs=[
            {"job_id": 2, "queue": "mail", **leased, "last_started_at": at(520)},
            {"job_id": 3, "queue": "mail", "state": "ready", "ready_since": at(800)},
            {"job_id": 4, "queue": "mail", "state": "ready", "ready_since": at(950)},
            {"job_id": 5, "queue": "mail", "state": "blocked"},
        ],
        jobs=[
            {"job_id": 6, **expired, "ready_at": at(700), "finished_at": at(900)},
            {"job_id": 7, **expired, "ready_at": at(700), "finished_at": at(730)},
        ],
    )
    rows = ask(lake, "targets", target="60", goal=0.5)
    (row,) = [row for row in rows if row["queue"] == "mail"]
    assert row == {
        "queue": "mail",
        "day": MONDAY.date(),
        "waits": 7,
        "within": 3,
        "attainment": pytest.approx(3 / 7),
        "met": False,
        "late": 4,  # by 1, 100, 140 and 140 seconds
        "still_waiting": 1,
        "late_p50": 120,
        "late_p95": 140,
        "late_max": 140,
    }
    others = of(rows, "queue", "day", "waits", "within", "met")[-2:]
    tuesday = MONDAY.date() + timedelta(days=1)
    assert others == [("sms", MONDAY.date(), 1, 1, True), ("sms", tuesday, 1, 0, False)]
    found = of(ask(lake, "targets", target=200), "waits", "within", "met")
    assert found == [(5, 5, True), (1, 1, True), (1, 1, True)]
    assert of(ask(lake, "targets", since="2026-07-07"), "queue", "waits") == [("sms", 1)]
    assert ask(lake, "targets", since="2026-07-08") == []
    assert ask(lake, "targets", until="2026-07-05") == []


def test_a_storm_is_far_above_the_usual_minute(tmp_path: Path) -> None:
    retries = dict.fromkeys(range(60), 1) | dict.fromkeys((30, 31, 32, 34), 20) | {40: 12}
    ends = [
        attempt(60 * m, 60 * m, 60 * m + 2, "retried", error_class="Often" if n % 3 else "Rare")
        for m, count in retries.items()
        for n in range(0, 2 * count, 2)
    ]
    calm = [attempt(60 * minute, 60 * minute, 60 * minute + 1) for minute in range(60)]
    other = [attempt(60 * m, 60 * m, 60 * m + 1, "retried", name=None) for m in range(9)]
    lake = make_lake(tmp_path, 3600, attempts=ends + calm + other)
    found = ask(lake, "retry_storms")
    assert [tuple(row.values()) for row in found] == [
        ("mail", "send", at(1800), at(2100), 80, 84, 20, 1.0, 160.0, "Often"),
        ("mail", "send", at(2400), at(2460), 12, 13, 12, 1.0, 24.0, "Often"),
    ]
    assert of(ask(lake, "retry_storms", factor=13), "retries") == [(80,)]
    assert set(of(ask(lake, "retry_storms", least=1, factor=0), "name", "retries")) == {
        (None, 9),
        ("send", 60 - 5 + 80 + 12),
    }


def test_workers_are_those_of_the_erlang_c_formula(tmp_path: Path) -> None:
    """Two erlangs: 720 runs of ten seconds in an hour. The shares are those of printed tables."""
    attempts = [attempt(5 * n + 3, 5 * n + 3, 5 * n + 13, worker=f"w{n % 2}") for n in range(719)]
    attempts.append(attempt(10, 20, 30, worker="w2"))
    minutes = [{"queue": "mail", "minute": at(60 * minute), "arrivals": 12} for minute in range(60)]
    lake = make_lake(tmp_path, 3700, attempts=attempts, queue_minutes=minutes)
    hour, rest = ask(lake, "capacity")
    assert (rest["seconds"], rest["arrivals"]) == (100, 0)
    assert rest["concurrency"] == pytest.approx(3 / 100)
    assert hour["seconds"] == 3600
    assert (hour["arrivals"], hour["starts"], hour["workers"]) == (720, 720, 3)
    assert hour["arrival_rate"] == hour["start_rate"] == pytest.approx(0.2)
    assert hour["offered"] == pytest.approx(2)
    assert hour["concurrency"] == pytest.approx((7200 - 3) / 3600)  # three seconds are beyond it
    assert hour["utilisation"] == pytest.approx((7200 - 3) / 3600 / 3)
    assert hour["waiting"] == pytest.approx(10 / 3600)
    assert hour["run_variation"] == 0
    rows = {row["workers"]: row for row in ask(lake, "staffing", target=10, goal=0.9)}
    assert list(rows) == list(range(3, 13))
    shares = {3: 0.4444, 4: 0.1739, 5: 0.0597, 6: 0.0180}
    for workers, share in shares.items():
        row = rows[workers]
        assert row["wait_share"] == pytest.approx(share, abs=5e-5)
        assert row["wait_mean"] == pytest.approx(row["wait_share"] * 10 / (workers - 2))
        assert row["within"] == pytest.approx(1 - row["wait_share"] * math.exp(-(workers - 2)))
        assert row["enough"] == (workers > 3)
    p95 = rows[3]["wait_p95"]
    assert rows[3]["wait_share"] * math.exp(-p95 / 10) == pytest.approx(0.05)
    assert rows[6]["wait_p95"] == 0


def test_hours_are_full_though_nothing_happens_at_their_ends(tmp_path: Path) -> None:
    """Something happens in two minutes of the first day, and in one of the second."""
    quiet = [{"queue": "mail", "minute": at(60 * m), "arrivals": 1, "depth": m} for m in (20, 40)]
    late = {"queue": "mail", "minute": at(86_400 + 1800), "arrivals": 5, "depth": 7}
    lake = make_lake(tmp_path, 86_400 + 5400, queue_minutes=[*quiet, late])
    columns = ("hour", "seconds", "arrivals")
    rows = of(ask(lake, "capacity"), *columns)
    assert rows[:2] == [(MONDAY, 2400, 2), (MONDAY + HOUR, 3600, 0)]
    assert rows[24:] == [(at(86_400), 3600, 5), (at(90_000), 1800, 0)]
    assert len(rows) == 26
    assert of(ask(lake, "capacity", since="2026-07-07"), *columns) == rows[24:]
    assert of(ask(lake, "capacity", until="2026-07-06"), *columns) == rows[:24]


def test_the_busiest_hour_is_a_full_one(tmp_path: Path) -> None:
    """Ten runs in the first two seconds of an hour are no rate of 18,000 an hour."""
    runs = [attempt(60 * n, 60 * n, 60 * n + 30) for n in range(60)]
    burst = [attempt(3600, 3600, 3601, job_id=2) for _ in range(10)]
    minutes = [{"queue": "mail", "minute": at(60 * n), "arrivals": 1} for n in range(61)]
    lake = make_lake(tmp_path, 3602, attempts=runs + burst, queue_minutes=minutes)
    assert {row["hour"] for row in ask(lake, "staffing")} == {MONDAY}
    assert {row["offered"] for row in ask(lake, "staffing")} == {0.5}


MESSAGES = (
    ("KeyError: 'user_17'", "KeyError: <text>"),
    ("no file \"a b.png\" at ('x', 3)", "no file <text> at <text>, <n>)"),
    ("I can't, it isn't 12.5 %", "I can't, it isn't <n>.<n> %"),
    (
        "job 6f1c2d3e-0a1b-4c5d-8e9f-001122334455 at 0x7fAB, shard deadbeef01",
        "job <uuid> at <hex>, shard <hex>",
    ),
    (TRACEBACK + "OSError: 17 refused\nsee below\n", "OSError: <n> refused"),
    (f"{TRACEBACK}KeyError: 1\n\nDuring handling of ...:\n\n{TRACEBACK}app.X: no", "app.X: no"),
    ("\n  first line  \nsecond", "first line"),
    ("Traceback of nothing", "Traceback of nothing"),
    (None, "timeout"),
    ("", "timeout"),
)


def test_an_error_is_grouped_by_its_line(tmp_path: Path) -> None:
    attempts = []
    for number, (error, message) in enumerate(MESSAGES):
        of_queue = {"queue": f"q{number}", "reason": "timeout"}
        more = {"error": error, "job_id": 7, "worker": "w2", **of_queue}
        attempts.append(attempt(0, 0, 3, "failed", **more))
        attempts.append(attempt(5, 5, 6, "retried", error=message, **of_queue))
        attempts.append(attempt(7, 7, 8, **of_queue))
    rows = {row["queue"]: row for row in ask(make_lake(tmp_path, 9, attempts=attempts), "errors")}
    assert len(rows) == len(MESSAGES)
    for number, (_, message) in enumerate(MESSAGES):
        row = rows[f"q{number}"]
        assert row["message"] == message
        assert (row["attempts"], row["final"], row["jobs"], row["workers"]) == (2, 1, 2, 2)
        assert (row["share"], row["run_seconds"], row["sample_job"]) == (0.1, 4, 7)
        assert (row["first_seen"], row["last_seen"]) == (at(3), at(6))


def test_a_lake_with_no_rows_has_views_with_none(tmp_path: Path, spark: SparkSession) -> None:
    lake = make_lake(tmp_path, 0)
    assert {name: ask(lake, name) for name in VIEWS} == {name: [] for name in VIEWS}
    for name in ("flows", "forecast", "staffing"):  # which make rows of lists and of ranges
        assert ask_spark(spark, lake, name).collect() == []


# A random history


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Blocks, moves, dead queues, retries, over some days."""
    place = tmp_path_factory.mktemp("views")
    (place / "data").mkdir()
    write_history(place / "data", Random(11), 1200)
    fill(place / "data", place / "lake")
    return open_lake(place / "lake")


def rows_of(lake: Lake, name: str) -> list[Row]:
    rows: list[Row] = lake.arrow(name).to_pylist()
    return rows


def starts_of(lake: Lake) -> list[Row]:
    leased = [
        {
            **row,
            "started_at": row["last_started_at"],
            "ended_at": None,
            "wait_seconds": seconds(row["waited_from"], row["last_started_at"]),
            "run_seconds": None,
        }
        for row in rows_of(lake, "open_jobs")
        if row["state"] == "leased"
    ]
    return rows_of(lake, "attempts") + leased


def seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start) / timedelta(seconds=1)


def hour_of(time: datetime) -> datetime:
    return time.replace(minute=0, second=0, microsecond=0)


def grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def percentile(values: list[float], percent: int) -> float | None:
    return float(np.percentile(values, percent)) if values else None


def hours_of(lake: Lake) -> dict[tuple[str, datetime], Row]:
    """What was counted in each hour that the lake has seen from its begin to its end."""
    minutes = rows_of(lake, "queue_minutes")
    assert lake.watermark.last_time is not None
    first = min(row["minute"] for row in minutes)
    last = hour_of(lake.watermark.last_time)
    found = {}
    for queue, own in grouped(minutes, lambda row: row["queue"]).items():
        hour, depth = hour_of(min(row["minute"] for row in own)), 0
        by_hour = grouped(own, lambda row: hour_of(row["minute"]))
        while hour <= last:
            inside = sorted(by_hour.get(hour, []), key=lambda row: row["minute"])
            depth = inside[-1]["depth"] if inside else depth
            counts = {name: sum(row[name] for row in inside) for name in ("arrivals", "failures")}
            ended = min(hour + HOUR, lake.watermark.last_time)
            found[queue, hour] = {
                **counts,
                "depth": depth,
                "seconds": seconds(max(hour, first), ended),
            }
            hour += HOUR
    return found


def full_hours_of(lake: Lake) -> dict[tuple[str, datetime], Row]:
    return {key: row for key, row in hours_of(lake).items() if row["seconds"] == 3600}


def assert_rows(found: list[Row], want: list[Row], *key: str) -> None:
    """The rows that are wanted, in any order; of each, the columns that are told."""

    def by_key(rows: list[Row]) -> dict[Any, Row]:
        return {tuple(row[name] for name in key): row for row in rows}

    assert len(found) == len(want) == len(by_key(found)) > 0
    want_by_key = by_key(want)
    for place, row in by_key(found).items():
        for name, value in want_by_key[place].items():
            is_close = isinstance(value, float)
            expected = pytest.approx(value, rel=1e-9, abs=1e-9) if is_close else value
            assert row[name] == expected, (place, name)


@pytest.mark.parametrize("by", ["queue,name,hour", "queue", "name, hour"])
def test_latency(lake: Lake, by: str) -> None:
    columns = [name.strip() for name in by.split(",")]

    def key(row: Row, time: str) -> tuple[Any, ...]:
        known = {"queue": row["queue"], "name": row["name"], "hour": hour_of(row[time])}
        return tuple(known[name] if name in columns else None for name in known)

    waits = [row for row in starts_of(lake) if row["wait_seconds"] is not None]
    waits_by = grouped(waits, lambda row: key(row, "started_at"))
    runs_by = grouped(rows_of(lake, "attempts"), lambda row: key(row, "ended_at"))
    want = []
    for place in waits_by.keys() | runs_by.keys():
        row = dict(zip(("queue", "name", "hour"), place, strict=True))
        for word, rows in (("wait", waits_by), ("run", runs_by)):
            values = [each[f"{word}_seconds"] for each in rows.get(place, [])]
            row |= {f"{word}s": len(values), f"{word}_max": max(values, default=None)}
            row |= {f"{word}_p{each}": percentile(values, each) for each in (50, 95, 99)}
        want.append(row)
    assert_rows(ask(lake, "latency", by=by), want, "queue", "name", "hour")


def test_targets(lake: Lake) -> None:
    now = lake.watermark.last_time
    waits = [
        (row["queue"], row["ready_at"], row["wait_seconds"])
        for row in rows_of(lake, "attempts")
        if row["wait_seconds"] is not None
    ]
    for row in rows_of(lake, "open_jobs"):
        if row["state"] == "leased" and row["waited_from"]:
            wait = seconds(row["waited_from"], row["last_started_at"])
            waits.append((row["queue"], row["waited_from"], wait))
        overdue = seconds(row["ready_since"], now)
        if row["state"] == "ready" and overdue is not None and overdue > 5:
            waits.append((row["queue"], row["ready_since"], overdue))
    for row in rows_of(lake, "jobs"):
        vain = seconds(row["ready_at"], row["finished_at"])
        if row["started_at"] is None and vain is not None and vain > 5:
            waits.append((row["queue"], row["ready_at"], vain))
    groups = grouped(
        [{"queue": queue, "day": time.date(), "s": s} for queue, time, s in waits],
        lambda row: (row["queue"], row["day"]),
    )
    want = [
        {
            "queue": queue,
            "day": day,
            "waits": len(rows),
            "attainment": sum(row["s"] <= 5 for row in rows) / len(rows),
            "late_p95": percentile([row["s"] - 5 for row in rows if row["s"] > 5], 95),
        }
        for (queue, day), rows in groups.items()
    ]
    assert_rows(ask(lake, "targets", target=5), want, "queue", "day")


def test_capacity(lake: Lake) -> None:
    now: Any = lake.watermark.last_time
    starts = starts_of(lake)
    begun = grouped(starts, lambda row: (row["queue"], hour_of(row["started_at"])))
    want = []
    for (queue, hour), row in hours_of(lake).items():
        length = row["seconds"]
        runs = [run for run in starts if run["queue"] == queue]
        inside = [
            (run, (min(run["ended_at"] or now, hour + HOUR) - max(run["started_at"], hour)))
            for run in runs
            if run["started_at"] < hour + HOUR and (run["ended_at"] or now) >= hour
        ]
        busy = sum((length for _, length in inside), timedelta()).total_seconds()
        took = [
            run["run_seconds"]
            for run in begun.get((queue, hour), [])
            if run["run_seconds"] is not None
        ]
        count = len(begun.get((queue, hour), []))
        want.append(
            {
                "queue": queue,
                "hour": hour,
                "seconds": length,
                "arrivals": row["arrivals"],
                "arrival_rate": row["arrivals"] / length,
                "starts": count,
                "run_mean": mean(took) if took else None,
                "run_variation": pstdev(took) / mean(took) if any(took) else None,
                "offered": count / length * mean(took) if took else None,
                "concurrency": busy / length,
                "workers": len({run["worker"] for run, _ in inside} - {None}),
            }
        )
    assert_rows(ask(lake, "capacity"), want, "queue", "hour")


def test_cost(lake: Lake) -> None:
    runs = rows_of(lake, "jobs")
    runs += [row for row in rows_of(lake, "open_jobs") if row["state"] != "failed"]
    total = sum(row["run_seconds"] for row in runs)
    want = []
    for (name, user), rows in grouped(runs, lambda row: (row["name"], row["user"])).items():
        spent = sum(row["run_seconds"] for row in rows)
        lost = [row["run_seconds"] for row in rows if row["outcome"] not in ("succeeded", None)]
        want.append(
            {
                "queue": None,
                "name": name,
                "user": user,
                "day": None,
                "jobs": len(rows),
                "attempts": sum(row["attempts"] for row in rows),
                "run_seconds": spent,
                "share": spent / total,
                "lost_seconds": float(sum(lost)),
            }
        )
    found = ask(lake, "cost")
    assert_rows(found, want, "name", "user")
    assert sum(row["share"] for row in found) == pytest.approx(1)


def test_flows(lake: Lake) -> None:
    steps: Counter[tuple[str, str | None, str]] = Counter()
    for row in rows_of(lake, "events"):
        if row["event"] == "move" and row["to_queue"]:
            steps["moved", row["queue"], row["to_queue"]] += 1
        if row["event"] == "fail" and row["to_queue"]:
            steps["dead", row["queue"], row["to_queue"]] += 1
    pushes = {row["job_id"]: row for row in rows_of(lake, "events") if row["event"] == "push"}
    for row in pushes.values():
        for blocker in row["blocked_by"] or []:
            steps["blocked", pushes.get(blocker, {}).get("queue"), row["queue"]] += 1
    want = [
        {"way": way, "from_queue": before, "to_queue": after, "times": times}
        for (way, before, after), times in steps.items()
    ]
    assert {row["way"] for row in want} == {"moved", "dead", "blocked"}
    assert_rows(ask(lake, "flows"), want, "way", "from_queue", "to_queue")


def test_unusual_hours(lake: Lake) -> None:
    hours = full_hours_of(lake)
    amounts: dict[str, dict[tuple[str, datetime], float]] = {
        what: {key: row[what] for key, row in hours.items()} for what in ("arrivals", "failures")
    }
    waits = [row for row in starts_of(lake) if row["wait_seconds"] is not None]
    by_hour = grouped(waits, lambda row: (row["queue"], hour_of(row["started_at"])))
    amounts["wait"] = {
        key: median(row["wait_seconds"] for row in rows)
        for key, rows in by_hour.items()
        if key in hours
    }
    want = []
    for what, values in amounts.items():
        for (queue, hour), value in values.items():
            before = [(queue, hour - timedelta(days=day)) for day in range(1, 6)]
            earlier = [values[key] for key in before if key in values]
            if len(earlier) < 2:
                continue
            usual = median(earlier)
            spread = 1.4826 * median(abs(each - usual) for each in earlier)
            floors = (0.1 * usual, 0.1) if what == "wait" else (math.sqrt(usual), 1)
            score = (value - usual) / max(spread, *floors)
            row: Row = {"queue": queue, "hour": hour, "what": what, "value": float(value)}
            want.append({**row, "usual": float(usual), "score": score, "days": len(earlier)})
    assert {row["what"] for row in want} == set(amounts)
    found = ask(lake, "unusual_hours", days=5, least_days=2, score=0)
    assert_rows(found, want, "queue", "hour", "what")
    unusual = ask(lake, "unusual_hours", days=5, least_days=2, score=2)
    assert len(unusual) == sum(abs(row["score"]) >= 2 for row in want) > 0


def test_forecast(lake: Lake) -> None:
    hours = full_hours_of(lake)
    end = max(hour for _, hour in hours) + HOUR
    want = []
    for queue in {queue for queue, _ in hours}:
        for what in ("arrivals", "depth"):
            series = {
                hour: float(row[what]) for (name, hour), row in hours.items() if name == queue
            }
            held = [end - HOUR * n for n in range(12, 0, -1)]
            tried = {
                method: [forecast(series, held[0], hour)[method] for hour in held]
                for method in ("mean", "shifted", "day before", "last")
            }
            errors = {
                method: mean(
                    abs(value - series[hour]) for value, hour in zip(values, held, strict=True)
                )
                for method, values in tried.items()
            }
            best = min(errors, key=lambda method: round(errors[method], 6))
            squares = [
                (value - series[hour]) ** 2 for value, hour in zip(tried[best], held, strict=True)
            ]
            for hour in (*held, *(end + HOUR * n for n in range(6))):
                value = forecast(series, min(end, held[0] if hour < end else end), hour)[best]
                want.append(
                    {
                        "queue": queue,
                        "what": what,
                        "part": "next" if hour >= end else "held back",
                        "hour": hour,
                        "method": best,
                        "forecast": value,
                        "high": value + 1.645 * math.sqrt(mean(squares)),
                        "actual": series.get(hour),
                        "error": errors[best],
                        "naive_error": errors["day before"],
                    }
                )
    assert_rows(ask(lake, "forecast", hold=12, horizon=6, days=5), want, "queue", "what", "hour")
    blind = ask(lake, "forecast", hold=3000, horizon=6, days=5)
    assert {(row["part"], row["method"], row["error"]) for row in blind} == {("next", "mean", None)}
    assert len(blind) == 6 * 2 * len({queue for queue, _ in hours})


def forecast(series: Mapping[datetime, float], origin: datetime, hour: datetime) -> Forecasts:
    known = {t: v for t, v in series.items() if origin - timedelta(days=5) <= t < origin}
    day = {t: v for t, v in known.items() if t >= origin - timedelta(days=1)}
    same = [value for time, value in known.items() if time.hour == hour.hour]
    last = known[origin - HOUR]
    shift = mean(day.values()) - mean(known.values())
    return {
        "mean": mean(same) if same else last,
        "shifted": max(mean(same) + shift, 0.0) if same else last,
        "day before": next((v for t, v in day.items() if t.hour == hour.hour), last),
        "last": last,
    }


PARAMETERS: Mapping[str, Mapping[str, Value]] = {
    "retry_storms": {"least": 1, "factor": 0},
    "targets": {"target": 5},
    "unusual_hours": {"score": 0, "least_days": 1, "days": 5},
    "forecast": {"days": 5},
    "latency": {"since": "2026-02-03", "until": "2026-02-04"},
    "cost": {"by": "queue,user,day"},
}


@pytest.mark.parametrize("name", VIEWS)
def test_spark_and_duckdb_give_the_same(spark: SparkSession, lake: Lake, name: str) -> None:
    """Also where the session's time zone cuts hours elsewhere."""
    parameters = PARAMETERS.get(name, {})
    want = ask_duckdb(lake, name, parameters)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        found = ask_spark(spark, lake, name, parameters).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert found.column_names == want.column_names == list(VIEWS[name].columns)
    zoned = pa.timestamp("us", "UTC")
    assert [zoned if pa.types.is_timestamp(kind) else kind for kind in found.schema.types] == [
        zoned if pa.types.is_timestamp(kind) else kind for kind in want.schema.types
    ]
    keys = [each for each in want.column_names if want.schema.field(each).type != pa.float64()]
    assert_rows(found.to_pylist(), want.to_pylist(), *keys)


# What can be wrong


def test_wrong_names_and_values_are_told_in_a_sentence(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, 0)
    with pytest.raises(LakeError, match="there is no view 'latence'; there are latency, targets,"):
        ask_duckdb(lake, "latence")
    with pytest.raises(LakeError, match="no parameter 'x' here; there are target, goal, since"):
        ask_duckdb(lake, "targets", {"x": 1})
    for name, value, message in (
        ("target", "soon", "target is a number from 0, not 'soon'"),
        ("target", -1, "target is a number from 0, not '-1'"),
        ("goal", "nan", "goal is a number from 0, not 'nan'"),
        ("since", "1 or 1=1", "since is a day, like 2026-07-31, not '1 or 1=1'"),
    ):
        with pytest.raises(LakeError, match=re.escape(message)):
            ask_duckdb(lake, "targets", {name: value})
    with pytest.raises(LakeError, match=r"by is a list of queue, name, hour, not \"queue'\""):
        ask_duckdb(lake, "latency", {"by": "queue'"})
    with pytest.raises(LakeError, match=r"days is a whole number from 0, not '1\.5'"):
        ask_duckdb(lake, "forecast", {"days": 1.5})


def test_each_view_says_what_it_has() -> None:
    for name, view in VIEWS.items():
        assert view.title, name
        assert view.about.endswith("."), name
        assert view.plot is not None
        drawn = {view.plot.x, view.plot.y, view.plot.series, view.plot.value, view.plot.facet}
        assert drawn - {""} <= set(view.columns), name
        assert set(view.plot.parameters) <= set(view.parameters), name


def test_all_views_are_there_for_sql(lake: Lake) -> None:
    with lake.connect() as connection:
        create_views(connection, {"target": 5})
        for name in VIEWS:
            connection.execute(f"select count(*) from {name}").fetchall()
        query = "select sum(waits) from targets where late > 0"
        assert connection.execute(query).fetchone() == (
            sum(row["waits"] for row in ask(lake, "targets", target=5) if row["late"]),
        )


def test_both_engines_have_the_functions_that_they_lack() -> None:
    named = {
        engine: set(re.findall(r"(?:macro|function) (\w+)\(", text))
        for engine, text in FUNCTIONS.items()
    }
    assert named["duckdb"] - named["spark"] == {"sequence", "explode"}  # which Spark has
    assert named["spark"] <= named["duckdb"]
