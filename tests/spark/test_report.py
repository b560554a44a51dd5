"""The report: its numbers beside the plain recomputation, and the page in a real browser."""

import json
import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark.day import write_day
from spark.histories import WORKERS, History
from spark.lakes import write_lake
from spark.oracle import Tables, compute, read_records
from spark.oracle_rows import Row
from spark.oracle_values import moment
from support.browser import Page, browser

from taskyard.engine.job import SECOND, Policy
from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.report.data import STEPS, Findings, gather
from taskyard.pipeline.report.page import page, sections
from taskyard.pipeline.report.scope import Options, Target, any_of, make_scope
from taskyard.pipeline.report.summary import cards, stands_out
from taskyard.pipeline.report.text import count, duration, embed, labels, share

PLOTS = {
    *("throughput", "depth", "wait", "run", "wait-queues", "run-queues", "wait-heat", "run-heat"),
    *("targets", "slowest", "failing", "storms", "dead", "busy", "workers", "week"),
}
MAIL = Target("mail", 30.0)
IMAGES = Target("im*", 60.0)
# No spaces: names have none.
SCRIPT = "</script><script>hit=1</script>"
IMAGE = "<img/src=x/onerror=hit=1>"


@dataclass
class Report:
    tables: Tables
    found: Findings
    file: Path

    def html(self) -> str:
        return self.file.read_text(encoding="utf-8")

    def figures(self) -> dict[str, Any]:
        (text,) = re.findall(
            r'<script type="application/json" id="plots">(.*?)</script>', self.html()
        )
        return {each["id"]: each for each in json.loads(text)}


def make_report(
    spark: SparkSession, folder: Path, tables: Tables, last: datetime | None, options: Options
) -> Report:
    write_lake(folder / "lake", tables, last)
    steps: list[None] = []
    found = gather(spark, open_lake(folder / "lake"), options, lambda: steps.append(None))
    assert len(steps) == STEPS
    file = folder / "report.html"
    file.write_text(page(found, "A report", datetime.now(UTC)), encoding="utf-8")
    return Report(tables, found, file)


@pytest.fixture(scope="module")
def day(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("day")
    write_day(folder / "data", per_hour=200)
    records = list(read_records(folder / "data"))
    options = Options(targets=(MAIL, IMAGES))
    return make_report(spark, folder, compute(records), moment(records[-1].time), options)


@pytest.fixture(scope="module")
def crowd(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A thousand queues, and names that would like to be markup."""
    folder = tmp_path_factory.mktemp("crowd")
    history = History(folder / "data", Random(1))
    for number in range(1000):
        history.push(f"queue{number}", "task", Policy())
    for queue, name in ((SCRIPT, IMAGE), ("@blue", "@series0"), ("2026-01-01", "17")):
        for _ in range(3):
            history.push(queue, name, Policy())
            history.pass_time(SECOND)
            job = history.lease(queue, WORKERS[0], 1)
            assert job is not None
            history.nack(job, WORKERS[0], f"{IMAGE}: {SCRIPT}".encode())
    history.pass_time(300 * SECOND)
    history.restart()
    history.close()
    tables = compute(read_records(history.data))
    return make_report(spark, folder, tables, None, Options())


def bin_of(found: Findings, time: datetime) -> int:
    return int(time.timestamp() - found.scope.first) // found.scope.bin


def at_rank(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]


# The numbers


def test_a_day_is_cut_into_quarters_of_an_hour(day: Report) -> None:
    assert (day.found.scope.bin, day.found.scope.bins) == (900, 96)
    assert set(day.found.scope.queues) == {row["queue"] for row in day.tables.queue_minutes}
    assert day.found.scope.others == 0


def test_throughput_is_what_the_minutes_add_up_to(day: Report) -> None:
    sums: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for row in day.tables.queue_minutes:
        key = row["queue"], bin_of(day.found, row["minute"])
        for name in ("arrivals", "starts", "finishes", "failures", "retries"):
            sums[key][name] += row[name]
    assert {key: vars(flow) for key, flow in day.found.flows.items()} == {
        key: {
            name: value[name] for name in ("arrivals", "starts", "finishes", "failures", "retries")
        }
        for key, value in sums.items()
    }
    (arrived, *_) = day.figures()["throughput"]["data"]
    assert sum(arrived["y"]) == sum(row["arrivals"] for row in day.tables.queue_minutes)


def test_depth_is_the_most_that_waited_and_lasts_through_quiet_times(day: Report) -> None:
    for queue in day.found.scope.queues:
        rows = [row for row in day.tables.queue_minutes if row["queue"] == queue]
        level, expected = 0, []
        for number in range(day.found.scope.bins):
            within = [row["depth"] for row in rows if bin_of(day.found, row["minute"]) == number]
            expected.append(max([level, *within]))
            level = within[-1] if within else level
        assert day.found.depth[queue] == expected


def test_percentiles_are_of_single_attempts(day: Report) -> None:
    rows = day.tables.attempts
    waits = [row["wait_seconds"] for row in rows]
    runs = [row["run_seconds"] for row in rows if row["queue"] == "images"]
    assert day.found.overall.wait == tuple(at_rank(waits, each) for each in (0.5, 0.95, 0.99))
    assert day.found.by_queue["images"].run == tuple(
        at_rank(runs, each) for each in (0.5, 0.95, 0.99)
    )
    number = bin_of(day.found, rows[500]["ended_at"])
    those = [
        row["wait_seconds"]
        for row in rows
        if row["queue"] == "mail" and bin_of(day.found, row["ended_at"]) == number
    ]
    both = day.found.by_both["mail", number]
    assert both.attempts == len(those)
    assert both.wait is not None
    assert both.wait[1] == at_rank(those, 0.95)


def test_names_are_ranked_by_time_and_by_failures(day: Report) -> None:
    rows = day.tables.attempts
    bad = Counter(row["name"] for row in rows if row["outcome"] in ("retried", "failed"))
    assert {row["name"]: row["failed"] for row in day.found.failing} == bad
    assert [row["failed"] for row in day.found.failing] == sorted(bad.values(), reverse=True)
    slow = {
        name: [r["run_seconds"] for r in rows if r["name"] == name]
        for name in {row["name"] for row in rows}
    }
    ranked = sorted(slow, key=lambda name: -at_rank(slow[name], 0.95))
    assert [row["name"] for row in day.found.slowest] == ranked
    assert day.found.slowest[0]["busy"] == pytest.approx(sum(slow[ranked[0]]))


def test_workers_are_busy_as_long_as_their_attempts(day: Report) -> None:
    spent: dict[str, float] = defaultdict(float)
    for row in day.tables.attempts:
        spent[row["worker"]] += row["run_seconds"]
    busy: dict[str | None, float] = defaultdict(float)
    for (worker, _), seconds in day.found.busy.items():
        busy[worker] += seconds
    assert busy == pytest.approx(spent, abs=1e-3)
    assert day.found.worker_count == len(spent)
    size = day.found.scope.bin
    assert all(seconds <= size + 1e-6 for seconds in day.found.busy.values())  # one at a time


def test_ends_reasons_and_dead_letters(day: Report) -> None:
    jobs = day.tables.jobs
    assert day.found.outcomes == Counter(row["outcome"] for row in jobs)
    failed = Counter(row["reason"] for row in jobs if row["outcome"] == "failed")
    assert {row["why"]: row["jobs"] for row in day.found.reasons} == failed
    dead = sum(row["state"] == "failed" for row in day.tables.open_jobs)
    assert sum(row["still"] for row in day.found.reasons) == dead


def test_targets_count_the_starts_that_came_in_time(day: Report) -> None:
    mail, images = day.found.attainments
    waits = [row["wait_seconds"] for row in day.tables.attempts if row["queue"] == "mail"]
    assert (mail.starts, mail.within) == (len(waits), sum(wait <= 30 for wait in waits))
    assert sum(within for _, within in mail.by_bin.values()) == mail.within
    assert images.starts == sum(row["queue"] == "images" for row in day.tables.attempts)


def test_arrivals_by_hour_of_the_week(day: Report) -> None:
    expected: Counter[tuple[int, int]] = Counter()
    for row in day.tables.queue_minutes:
        expected[row["minute"].weekday(), row["minute"].hour] += row["arrivals"]
    assert {key: value for key, value in day.found.week.items() if value} == {
        key: value for key, value in expected.items() if value
    }


def test_the_storm_and_the_stop_are_found(day: Report) -> None:
    storm = day.found.storms[0]
    assert (storm.queue, storm.error_class) == ("images", "ConnectionError")
    scope = day.found.scope
    assert 9 <= scope.start_of(storm.first).hour <= scope.start_of(storm.last).hour <= 10
    stop = next(stop for stop in day.found.stops if stop.queue == "mail")
    assert (stop.since.hour, stop.until.hour) == (14, 14)
    assert (stop.until - stop.since) > timedelta(minutes=20)
    said = " ".join(stands_out(day.found))
    assert "Retry storm in images" in said
    assert "mail stood still" in said
    assert "mail missed its wait target of 30 s" in said


def test_a_span_and_a_choice_of_queues(spark: SparkSession, day: Report) -> None:
    since = datetime(2026, 2, 2, 9, 0, 30, tzinfo=UTC)
    until = since + timedelta(hours=1)
    options = Options(("im*", "nothing"), since, until)
    found = gather(spark, open_lake(day.file.parent / "lake"), options, lambda: None)
    there = [
        row
        for row in day.tables.attempts
        if row["queue"] == "images" and since <= row["ended_at"] < until
    ]
    assert found.overall.attempts == len(there)
    assert found.scope.queues == ("images",)
    assert found.scope.bin == 60
    first = [row for row in day.tables.queue_minutes if row["queue"] == "images"]
    before = [row["depth"] for row in first if row["minute"] < since.replace(second=0)]
    assert found.depth["images"][0] >= before[-1]


def test_many_queues_are_the_busiest_and_all_others(crowd: Report) -> None:
    scope = crowd.found.scope
    assert set(scope.queues) >= {SCRIPT, "@blue", "2026-01-01"}
    assert len(scope.queues) + scope.others == 1003
    assert sum(sum(values) for values in zip(*crowd.found.depth.values(), strict=True)) >= 1000
    assert f"({count(scope.others)} other queues)" in crowd.html()


def test_a_lake_without_a_job(spark: SparkSession, tmp_path: Path) -> None:
    report = make_report(spark, tmp_path, Tables([], [], [], [], []), None, Options())
    assert report.figures().keys() == {"throughput", "depth"}
    assert [card.value for card in cards(report.found)][:2] == ["0", "–"]  # noqa: RUF001
    assert "Nothing stands out" in report.html()


# The page


def test_nothing_of_a_name_is_markup(crowd: Report) -> None:
    html = crowd.html()
    assert SCRIPT not in html
    assert IMAGE not in html
    assert "&lt;img/src=x/onerror=hit=1&gt;" in html
    assert "\\u0026lt;/script\\u0026gt;" in html  # in the figures: twice made safe


def test_every_plot_has_a_title_words_and_a_table(day: Report) -> None:
    plots = [plot for part in sections(day.found) for plot in part.plots]
    assert {plot.id for plot in plots if plot.figure} == PLOTS
    assert all(plot.title and plot.says and plot.table.rows for plot in plots)
    assert day.html().count('role="img" aria-label="') == len(PLOTS)


def drawn(tab: Page, report: Report) -> None:
    tab.open(report.file)
    # The page before may still be there for a moment, and was drawn, too.
    there = f"location.href === {json.dumps(report.file.resolve().as_uri())}"
    tab.wait_for(f"{there} && document.documentElement?.dataset.drawn")


def check_plots(tab: Page, report: Report) -> None:
    for name in report.figures():
        shapes = tab.evaluate(
            f"document.getElementById({name!r}).querySelectorAll("
            "'.scatterlayer path, .heatmaplayer image, .barlayer path').length"
        )
        assert shapes, f"{name} is empty"
    assert tab.errors == []
    assert {url.partition(":")[0] for url in tab.requests} <= {"file", "data", "blob"}


def test_the_page_in_a_browser(day: Report, crowd: Report, tmp_path: Path) -> None:
    with browser(tmp_path) as tab:
        tab.size(1280, 900)
        tab.theme("light")
        drawn(tab, day)
        check_plots(tab, day)
        ink = "document.getElementById('week')._fullLayout.font.color"
        assert tab.evaluate(ink) == "#1b2027"
        tab.theme("dark")
        tab.wait_for(f"{ink} === '#e7ebf0'")
        tab.size(390, 844, phone=True)
        tab.wait_for("document.getElementById('week')._fullLayout.width < 390")
        assert tab.evaluate("document.documentElement.scrollWidth") == 390
        drawn(tab, crowd)
        check_plots(tab, crowd)
        assert tab.evaluate("typeof hit") == "undefined"
        assert tab.evaluate("document.querySelectorAll('img').length") == 0
        ticks = tab.evaluate(
            "[...document.querySelectorAll('#slowest .ytick text')].map(t => t.textContent)"
        )
        assert {"@series0", "17", IMAGE[:15] + "…"} <= set(ticks)


# The small parts


@pytest.mark.parametrize(
    ("hours", "size"),
    [(0.01, 60), (1, 60), (24, 900), (24 * 7, 7200), (24 * 30, 21_600), (24 * 365, 7 * 86_400)],
)
def test_bins_fit_the_span(hours: float, size: int) -> None:
    since = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    scope = make_scope(since, since + timedelta(hours=hours))
    assert scope.bin == size
    assert 1 <= scope.bins <= 121
    assert scope.start_of(0) <= since
    assert scope.start_of(scope.bins) >= scope.until
    if size == 7 * 86_400:
        assert scope.start_of(0).weekday() == 0


def test_patterns_of_queues() -> None:
    fit = re.compile(any_of(["mail.*", "a?c", "x+y"]))
    assert [bool(fit.search(name)) for name in ("mail.x", "mailx", "abc", "ac", "x+y", "xxy")] == [
        *(True, False, True, False, True, False)
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((None, "–"), (0, "0 s"), (0.0002, "<1 ms"), (0.0123, "12.3 ms"), (0.5, "500 ms")),  # noqa: RUF001
        *((1, "1 s"), (59.94, "59.9 s"), (61, "1 min 1 s"), (900.2, "15 min"), (3660, "1 h 1 min")),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_in_words(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


def test_shares_never_say_none_or_all_when_that_is_not_so() -> None:
    assert [share(*each) for each in ((0, 5), (1, 10_000), (1, 3), (9999, 10_000), (5, 5))] == [
        *("0 %", "<0.1 %", "33.3 %", ">99.9 %", "100 %")
    ]


def test_names_that_look_alike_when_cut_stay_apart() -> None:
    assert len(set(labels(["x" * 50 + "1", "x" * 50 + "2", None]))) == 3
    assert labels(["a\u202eb\ud800"]) == ["a\\u202eb\\ud800"]


def test_json_in_a_page_cannot_end_its_element() -> None:
    value: Row = {"name": "</script><!--", "amp": "&"}
    assert "<" not in embed(value)
    assert json.loads(embed(value)) == value
