"""The benchmark of the data pipeline: its arithmetic, its page and its plot."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import duckdb
import pytest

from benchmarks import readings, rig
from benchmarks.pipeline import __main__ as command
from benchmarks.pipeline import duck, report
from benchmarks.pipeline.journals import write_journal
from taskyard.pipeline.journal import open_journal

ROOT = Path(__file__).resolve().parent.parent.parent


def measured(tmp_path: Path, **found: Any) -> dict[str, Any]:
    return {
        "machine": readings.machine(tmp_path),
        "versions": {"pyspark": "4.3.0"},
        "form": "compiled",
        "cores": 2,
        "command": "python -m benchmarks.pipeline --dir /somewhere --rounds 2",
        "took_seconds": 90.0,
        **found,
    }


def run(events: int, seconds: float, *batches: tuple[int, float]) -> dict[str, Any]:
    cpu = 1.5 * seconds
    return {"events": events, "seconds": seconds, "cpu_seconds": cpu, "batches": list(batches)}


def turn(rate: float, without: float, with_lake: float) -> dict[str, Any]:
    same = {"jobs_per_second": rate, "cycle_p50_us": 900.0, "cycle_p99_us": 8000.0}
    return {
        "rate": rate,
        "without": {**same, "cpu_us": without, "records_read": 0, "lake_cores": 0.0},
        "with": {**same, "cpu_us": with_lake, "records_read": 120_000, "lake_cores": 0.5},
        "ratio": with_lake / without,
    }


@pytest.fixture
def parts(tmp_path: Path) -> report.Parts:
    ten = run(10_000_000, 50.0, (3_000_000, 20.0), (3_000_000, 35.0), (4_000_000, 50.0))
    rounds = [{"start_seconds": 5.0, "runs": [ten, run(1_000_000, 4.0, (1_000_000, 4.0))]}]
    return {
        "tables": measured(tmp_path, rounds=rounds),
        "rebuild": measured(
            tmp_path,
            events=10_000_000,
            rounds=[{"ours": 12.0, "duckdb": 30.0, "ratio": 0.4, "duckdb_cpu": 60.0}],
            compared={"jobs": 3_000_000, "attempts": 3_100_000},
        ),
        "queues": measured(
            tmp_path,
            jobs=500_000,
            batch=100_000,
            payload=200,
            rounds=[{"sink_per_second": 80_000.0, "source_per_second": 40_000.0}],
        ),
        "broker": measured(
            tmp_path, seconds=20.0, rounds=[turn(2000.0, 100.0, 105.0), turn(2000.0, 100.0, 115.0)]
        ),
    }


def by_name(parts: report.Parts) -> dict[str, report.Bar]:
    return {bar.name: bar for bar in report.all_bars(parts)}


def test_each_bar_has_the_median_of_its_rounds_and_says_whether_it_is_reached(
    parts: report.Parts,
) -> None:
    bars = by_name(parts)

    assert bars["10 M events into tables"].found == 200_000
    assert bars["10 M events into tables, with the start of Spark"].found == pytest.approx(
        181_818, 1
    )
    assert bars["cost of an event, 10 M to 1 M"].found == pytest.approx(5.0 / 4.0)
    share = bars["processor time of an event into tables, to DuckDB's from `events`"]
    assert share.found == pytest.approx(1.25)
    broker = bars["server's processor time a job with the lake, at 2,000 jobs/s"]
    assert broker.found == pytest.approx(1.10)
    missed = {name for name, bar in bars.items() if not bar.is_reached}
    assert missed == {"queue source", "cost of an event, 10 M to 1 M", share.name}


def test_the_page_has_every_part_that_was_measured_and_no_other(parts: report.Parts) -> None:
    del parts["queues"]

    page = report.page(parts, "pipeline.svg")

    assert "| warm rebuild to DuckDB's | at most 4.00 times its time | 0.40 |" in page
    assert "3,000,000 jobs, 3,100,000 attempts" in page
    assert "![Events a second](pipeline.svg)" in page
    assert "| 2,000 | with | 2,000 | 110.0 | 105.0 - 115.0 | 0.9 | 8.0 | 0.50 | 120,000 |" in page
    assert "| broker | `python -m benchmarks.pipeline --rounds 2` | 1.5 |" in page
    assert "Sink" not in page


def test_the_plot_has_the_rate_of_each_batch(parts: report.Parts) -> None:
    batches = parts["tables"]["rounds"][0]["runs"][0]["batches"]

    xs, ys = report.rates(batches)

    assert xs == [3_000_000, 6_000_000, 10_000_000]
    assert ys == [150_000, 200_000, pytest.approx(266_666.7)]
    drawn = ET.fromstring(report.plot(parts))
    lines = [each for each in drawn.iter() if each.tag.endswith("polyline")]
    assert [len(line.attrib["points"].split()) for line in lines] == [3]  # one batch is no line


def test_rounds_of_another_time_are_added(parts: report.Parts) -> None:
    both = command.together(parts["queues"], {**parts["queues"], "command": "again"})

    assert len(both["rounds"]) == 2
    assert both["took_seconds"] == 180.0
    assert both["command"].endswith("--rounds 2; again")


def test_a_page_is_made_of_the_files_of_the_parts(tmp_path: Path, parts: report.Parts) -> None:
    command.file_of(tmp_path, "queues").write_text(json.dumps(parts["queues"]))
    arguments = ["--page", "--out", str(tmp_path)]

    made = subprocess.run(
        [sys.executable, "-m", "benchmarks.pipeline", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [*sys.path, str(ROOT)]))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (made.returncode, made.stderr) == (0, "")
    assert "| sink | at least 50,000 jobs/s | 80,000 |" in made.stdout
    assert "## Sink and queue source" in (tmp_path / "pipeline.md").read_text()


def test_without_any_results_there_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(rig.BenchmarkError, match="no results"):
        command.write_page(tmp_path, tmp_path)


def test_a_journal_is_written_with_about_as_many_records_as_are_wanted(tmp_path: Path) -> None:
    last = write_journal(tmp_path / "data", 5_000)

    assert 5_000 <= last < 6_000
    assert open_journal(str(tmp_path / "data")).contents().durable_seq == last


def write_tables(directory: Path, sums: dict[str, tuple[str, ...]], amount: int) -> None:
    for name, columns in sums.items():
        place = directory / name / "date=2030-01-01"
        place.mkdir(parents=True)
        values = ", ".join(f"{amount} as {column}" for column in columns)
        duckdb.execute(f"copy (select {values}) to '{place / 'a.parquet'}' (format parquet)")


def test_tables_that_differ_from_duckdbs_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums: dict[str, tuple[str, ...]] = {"jobs": ("job_id", "seq")}
    monkeypatch.setattr(duck, "SUMS", sums)
    for directory, amount in (("ours", 7), ("same", 7), ("other", 8)):
        write_tables(tmp_path / directory, sums, amount)
    ours = {"jobs": [str(tmp_path / "ours" / "jobs" / "date=2030-01-01" / "a.parquet")]}

    assert duck.compare(ours, tmp_path / "same") == {"jobs": 1}
    with pytest.raises(AssertionError, match=r"jobs\.job_id: 7, 8"):
        duck.compare(ours, tmp_path / "other")
