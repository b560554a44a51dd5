"""The report: its numbers beside the plain recomputation, and the page as a text and in a browser.

The lakes are filled without Spark, and the report needs none.
"""

import json
import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pipeline.day import write_day
from pipeline.histories import MINUTE, WORKERS, History
from pipeline.lake_runs import fill
from pipeline.oracle import Tables, compute, read_records
from support.browser import Page, browser
from support.html_tree import Element, read_html

from taskyard.engine.model.job import SECOND, Policy
from taskyard.pipeline.lake.snapshot import Lake, open_lake
from taskyard.pipeline.lake.storage import Storage
from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.report import STEPS, write_report
from taskyard.pipeline.report.data import ReportData, gather_report_data
from taskyard.pipeline.report.scope import ReportOptions, Target, any_of, make_scope
from taskyard.pipeline.report.text import count, duration, labels, share
from taskyard.pipeline.report.views import NAMES, POINTS, ROWS, Panel, make_panels, panels_of
from taskyard.pipeline.views import VIEWS, Plot, View, ViewColumn

PLOTS = {
    *("throughput", "depth", "wait", "run", "wait-queues", "run-queues", "wait-heat", "run-heat"),
    *("targets", "slowest", "failing", "storms", "dead", "busy", "workers", "week"),
}
SECTIONS = {"queues", "flow", "latency", "goals", "names", "failures", "work", "calendar", "views"}
MAIL = Target("mail", 30.0)
IMAGES = Target("im*", 60.0)
FLOWS = ("arrivals", "starts", "finishes", "failures", "retries")
# No spaces: names have none.
SCRIPT = "</script><script>hit=1</script>"
IMAGE = "<img/src=x/onerror=hit=1>"
TURNED = "a\u202eb"


@dataclass
class Report:
    folder: Path
    options: ReportOptions

    @cached_property
    def tables(self) -> Tables:
        return compute(read_records(self.folder / "data"))

    @cached_property
    def lake(self) -> Lake:
        return open_lake(self.folder / "lake")

    @cached_property
    def found(self) -> ReportData:
        return gather_report_data(self.lake, self.options, lambda: None)

    @property
    def file(self) -> Path:
        return self.folder / "report.html"

    @cached_property
    def html(self) -> str:
        return self.file.read_text(encoding="utf-8")

    @cached_property
    def page(self) -> Element:
        return read_html(self.html)

    @cached_property
    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.page.one("script", id="plots").text)
        return found

    def says(self, plot: str) -> str:
        return self.page.one("p", id=f"{plot}-says").text

    def bin_of(self, time: datetime) -> int:
        return int(time.timestamp() - self.found.scope.first) // self.found.scope.bin


def make_report(folder: Path, **scope: Any) -> Report:
    write_report(open_lake(folder / "lake"), folder / "report.html", **scope)
    return Report(folder, ReportOptions(**scope))


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("day")
    write_day(folder / "data")
    fill(folder / "data", folder / "lake")
    return make_report(folder, targets=(MAIL, IMAGES))


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Report:
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
    fill(folder / "data", folder / "lake")
    return make_report(folder)


def at_rank(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]


# The numbers


def test_a_day_is_cut_into_quarters_of_an_hour(day: Report) -> None:
    assert (day.found.scope.bin, day.found.scope.bins) == (900, 96)
    assert set(day.found.labels) == {row["queue"] for row in day.tables.queue_minutes}


def test_throughput_is_what_the_minutes_add_up_to(day: Report) -> None:
    sums: dict[int, Counter[str]] = defaultdict(Counter)
    for row in day.tables.queue_minutes:
        for name in FLOWS:
            sums[day.bin_of(row["minute"])][name] += row[name]
    for number, flow in enumerate(day.found.flows):
        assert {name: flow[name] for name in FLOWS} == {name: sums[number][name] for name in FLOWS}
    arrived = [sums[number]["arrivals"] for number in range(day.found.scope.bins)]
    assert day.figures["throughput"]["data"][0]["y"] == arrived
    assert f"{count(sum(arrived))} jobs arrived" in day.says("throughput")


def test_depth_is_the_most_that_waited_and_lasts_through_quiet_times(day: Report) -> None:
    for queue in day.found.labels:
        rows = [row for row in day.tables.queue_minutes if row["queue"] == queue]
        rows.sort(key=lambda row: row["minute"])
        level, expected = 0, []
        for number in range(day.found.scope.bins):
            within = [row["depth"] for row in rows if day.bin_of(row["minute"]) == number]
            expected.append(max([level, *within]))
            level = within[-1] if within else level
        assert day.found.depth[queue] == expected


def test_percentiles_are_of_single_attempts(day: Report) -> None:
    rows = day.tables.attempts
    waits = [row["wait_seconds"] for row in rows]
    runs = [row["run_seconds"] for row in rows if row["queue"] == "images"]
    images = next(row for row in day.found.queues if row["label"] == "images")
    number = day.bin_of(rows[500]["ended_at"])
    those = [
        row["wait_seconds"]
        for row in rows
        if row["queue"] == "mail" and day.bin_of(row["ended_at"]) == number
    ]
    for name, rank in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert day.found.overall[f"wait_{name}"] == at_rank(waits, rank)
        assert images[f"run_{name}"] == at_rank(runs, rank)
        assert day.found.by_both["mail", number][f"wait_{name}"] == at_rank(those, rank)


def test_names_are_ranked_by_time_and_by_failures(day: Report) -> None:
    rows = day.tables.attempts
    bad = Counter(row["name"] for row in rows if row["outcome"] in ("retried", "failed"))
    failing, slowest = day.found.rows["failing"], day.found.rows["slowest"]
    assert {row["name"]: row["failed"] for row in failing} == bad
    assert [row["failed"] for row in failing] == sorted(bad.values(), reverse=True)
    slow = {
        name: [r["run_seconds"] for r in rows if r["name"] == name]
        for name in {row["name"] for row in rows}
    }
    ranked = sorted(slow, key=lambda name: -at_rank(slow[name], 0.95))
    assert [row["name"] for row in slowest] == ranked
    assert slowest[0]["busy"] == pytest.approx(sum(slow[ranked[0]]))


def test_workers_are_busy_as_long_as_their_attempts(day: Report) -> None:
    spent: dict[str, float] = defaultdict(float)
    for row in day.tables.attempts:
        spent[row["worker"]] += row["run_seconds"]
    size = day.found.scope.bin
    busy = {worker: sum(values) * size for worker, values in day.found.busy.items()}
    assert busy == pytest.approx(spent, abs=1e-3)
    assert day.found.rows["worker_count"] == [{"workers": len(spent)}]
    assert max(map(max, day.found.busy.values())) <= 1 + 1e-9  # each has one job at a time


def test_ends_reasons_and_dead_letters(day: Report) -> None:
    jobs = day.tables.jobs
    assert day.found.outcomes == Counter(row["outcome"] for row in jobs)
    failed = Counter(row["reason"] for row in jobs if row["outcome"] == "failed")
    assert {row["why"]: row["jobs"] for row in day.found.rows["reasons"]} == failed
    dead = sum(row["state"] == "failed" for row in day.tables.open_jobs)
    assert sum(row["still"] for row in day.found.rows["reasons"]) == dead


def test_targets_count_the_starts_that_came_in_time(day: Report) -> None:
    mail, images = day.found.targets
    waits = [row["wait_seconds"] for row in day.tables.attempts if row["queue"] == "mail"]
    assert (mail["starts"], mail["within"]) == (len(waits), sum(wait <= 30 for wait in waits))
    assert sum(each["within"] for each in mail["by_bin"] if each) == mail["within"]
    assert images["starts"] == sum(row["queue"] == "images" for row in day.tables.attempts)


def test_arrivals_by_hour_of_the_week(day: Report) -> None:
    expected: Counter[int] = Counter()
    for row in day.tables.queue_minutes:
        expected[row["minute"].hour] += row["arrivals"]
    monday, *others = day.found.week
    assert monday == [expected[hour] for hour in range(24)]
    assert others == [[None] * 24] * 6  # these hours never were


def test_the_storm_and_the_stop_are_found(day: Report) -> None:
    storm = day.found.rows["storms"][0]
    assert (storm["queue"], storm["error_class"]) == ("images", "ConnectionError")
    scope = day.found.scope
    assert 9 <= scope.start_of(storm["first"]).hour <= scope.start_of(storm["last"]).hour <= 10
    stop = next(stop for stop in day.found.stops if stop["queue"] == "mail")
    assert (stop["since"].hour, stop["until"].hour) == (14, 14)
    assert (stop["until"] - stop["since"]) > timedelta(minutes=20)
    said = [item.text for item in day.page.one("section", class_="out").all("li")]
    for begin in (
        "mail stood still in 2026-02-02 14:",
        "Retry storm in images: ",
        "mail missed its wait target of 30 s",
    ):
        assert any(item.startswith(begin) for item in said), begin


def test_a_span_and_a_choice_of_queues(day: Report) -> None:
    since = datetime(2026, 2, 2, 9, 0, 30, tzinfo=UTC)
    until = since + timedelta(hours=1)
    options = ReportOptions(("im*", "nothing"), since, until)
    found = gather_report_data(day.lake, options, lambda: None)
    waits = [
        row["wait_seconds"]
        for row in day.tables.attempts
        if row["queue"] == "images" and since <= row["ended_at"] < until
    ]
    assert found.overall["wait_p95"] == at_rank(waits, 0.95)
    assert found.labels == ["images"]
    assert found.scope.bin == 60
    first = [row for row in day.tables.queue_minutes if row["queue"] == "images"]
    before = max(
        (row["minute"], row["depth"]) for row in first if row["minute"] < since.replace(second=0)
    )
    assert found.depth["images"][0] >= before[1]
    for panel in make_panels(day.lake, options, found.scope, lambda: None):
        if "Queue" in panel.heads:
            place = panel.heads.index("Queue")
            assert {row[place] for row in panel.rows} <= {"images"}, panel.id


def test_many_queues_are_the_busiest_and_all_others(crowd: Report) -> None:
    assert set(crowd.found.labels) >= {SCRIPT, "@blue", "2026-01-01", None}
    assert len(crowd.found.labels) == 13
    assert crowd.found.queue_count == 1003
    assert max(crowd.found.depth_of_all) >= 1000
    assert crowd.found.queues[-1]["name"] == "(991 other queues)"
    assert crowd.page.one(id="queues").parent is not None
    assert "(991 other queues)" in crowd.page.text


def test_the_open_minute_is_plotted_as_far_as_it_goes(tmp_path: Path) -> None:
    history = History(tmp_path / "data", Random(1))
    for pushes in (2, 3):  # in the minute before, and in the last one
        history.now += MINUTE
        for _ in range(pushes):
            history.push("mail", "send", Policy())
        job = history.lease("mail", WORKERS[0], 7)
        assert job is not None
        history.ack(job, WORKERS[0])
    history.close()
    fill(tmp_path / "data", tmp_path / "lake")
    report = make_report(tmp_path)
    assert report.found.outcomes == {"succeeded": 2}
    assert report.found.total["arrivals"] == 5
    assert [(row["arrivals"], row["finishes"]) for row in report.found.flows] == [(2, 1), (3, 1)]
    assert report.found.depth_of_all == [1, 3]
    for name in ("throughput", "depth"):
        assert "The last point is not over" in report.says(name)
        assert report.figures[name]["open"] is True


def test_a_lake_without_a_job(tmp_path: Path) -> None:
    Store(Storage(tmp_path / "lake")).apply({}, batch=1)  # which had no record
    report = make_report(tmp_path)
    assert report.figures.keys() == {"throughput", "depth"}
    cards = [card.text for card in report.page.one("ul", class_="cards").all("strong")]
    assert cards == ["0", "–", "–", "–", "–", "0"]  # noqa: RUF001
    assert report.page.one("section", class_="out fine").text.startswith("Nothing stands out")
    assert "The lake has no record yet." in report.page.one("header").text


# The page


def test_the_page_says_which_moment_it_shows(day: Report) -> None:
    mark = day.lake.watermark
    assert mark.last_time is not None
    header = day.page.one("header").text
    assert f"before number {count(mark.next_seq)}, up to {mark.last_time:%F %T} UTC" in header


def test_every_plot_has_a_title_words_and_a_table(day: Report) -> None:
    plots = day.page.all("div", role="img")
    assert {plot.attributes["id"] for plot in plots} == day.figures.keys()
    assert {name for name in day.figures if not name.startswith("view-")} == PLOTS
    for plot in plots:
        title, says = (plot.attributes["aria-labelledby"] or "").split()
        assert day.page.one("h3", id=title).text
        assert day.page.one("p", id=says).text
        table = plot.around("figure").one("table")
        heads = [head.text for head in table.one("thead").all("th", scope="col")]
        assert all(heads)
        assert table.rows()
        assert {len(row) for row in table.rows()} == {len(heads)}
    links = [link.attributes["href"] for link in day.page.one("nav").all("a")]
    assert links == [f"#{head.attributes['id']}" for head in day.page.all("h2") if head.attributes]
    assert {link[1:] for link in links if link} == SECTIONS


def test_every_view_is_a_panel(day: Report) -> None:
    for name, view in VIEWS.items():
        (title, *_) = [
            head
            for head in day.page.all("h3")
            if re.fullmatch(rf"view-{name}(-\d+)?-title", head.attributes["id"] or "")
        ]
        assert title.text.startswith(view.title)
        assert view.about in title.around("figure").text


def test_nothing_of_a_name_is_markup(crowd: Report) -> None:
    assert SCRIPT not in crowd.html
    assert IMAGE not in crowd.html
    assert "&lt;img/src=x/onerror=hit=1&gt;" in crowd.html
    assert "\\u0026lt;/script\\u0026gt;" in crowd.html  # in the figures: twice made safe
    assert len(crowd.page.all("script")) == 3
    assert crowd.page.all("img") == []


def test_the_page_is_for_its_owner_and_there_whole_or_as_it_was(tmp_path: Path) -> None:
    Store(Storage(tmp_path / "lake")).apply({}, batch=1)  # which had no record
    lake, page = open_lake(tmp_path / "lake"), tmp_path / "report.html"
    page.write_text("the page before")
    page.chmod(0o644)
    steps: list[None] = []

    def fail() -> None:
        steps.append(None)
        if len(steps) == STEPS:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_report(lake, page, step=fail)
    assert page.read_text() == "the page before"
    write_report(lake, page, step=lambda: steps.append(None))
    assert len(steps) == 2 * STEPS
    assert page.read_text().startswith("<!doctype html>")
    assert page.stat().st_mode & 0o777 == 0o600
    page.unlink()
    page.mkdir()
    with pytest.raises(IsADirectoryError):
        write_report(lake, page)
    assert {each.name for each in tmp_path.iterdir()} == {"lake", "report.html"}


def drawn(tab: Page, report: Report) -> None:
    tab.open(report.file)
    # The page before may still be there for a moment, and was drawn, too.
    there = f"location.href === {json.dumps(report.file.resolve().as_uri())}"
    tab.wait_for(f"{there} && document.documentElement?.dataset.drawn")


def check_plots(tab: Page, report: Report) -> None:
    for name in report.figures:
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
        words = "document.getElementById('throughput').querySelector('.annotation').textContent"
        assert tab.evaluate(words) == "not over yet"
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


# The panels of views


def view_of(plot: Plot, **units: str) -> View:
    columns = {name: ViewColumn(name, unit, "") for name, unit in units.items()}
    return View("some", "Some rows", "All about them.", {}, columns, plot, (), "")


def hours(number: int) -> list[datetime]:
    return [datetime(2026, 2, 2, tzinfo=UTC) + timedelta(hours=each) for each in range(number)]


def panel_of(view: View, rows: list[dict[str, Any]]) -> tuple[Panel, Any]:
    (panel,) = panels_of(view, pa.Table.from_pylist(rows))
    return panel, panel.figure


def test_a_view_that_is_a_table() -> None:
    view = view_of(Plot("table"), text="", at="", wait="s", share="share", jobs="jobs", of="")
    row = {"text": TURNED, "at": hours(1)[0], "wait": 90.0, "share": 0.5, "jobs": 12_345, "of": []}
    panel, figure = panel_of(view, [row, dict.fromkeys(row)])
    assert figure is None
    assert panel.caption == "All about them."
    assert panel.heads == ["Text", "At", "Wait", "Share", "Jobs (jobs)", "Of"]
    assert panel.rows[0] == [
        "a\\u202eb",
        "2026-02-02 00:00",
        "1 min 30 s",
        "50 %",
        count(12_345),
        "",
    ]
    assert set(panel.rows[1]) == {"–"}  # noqa: RUF001


def test_of_many_rows_of_a_view_the_first_are_there() -> None:
    view = view_of(Plot("line", "number", "value"), number="", value="jobs")
    rows = [{"number": number, "value": number % 7} for number in range(POINTS + 1)]
    panel, figure = panel_of(view, rows)
    assert len(panel.rows) == ROWS
    assert len(figure["data"][0]["x"]) == POINTS
    assert f"The table has the first {ROWS} of {count(POINTS + 1)} rows." in panel.caption
    assert f"Drawn are the first {count(POINTS)} of {count(POINTS + 1)} points." in panel.caption


def test_a_view_without_rows() -> None:
    view = view_of(Plot("line", "number", "value", facet="queue"), queue="", number="", value="s")
    nothing = pa.table({name: pa.array([], pa.float64()) for name in view.columns})
    (panel,) = panels_of(view, nothing)
    assert (panel.rows, panel.figure, panel.caption) == (
        [],
        None,
        "All about them. There are no rows.",
    )


def test_lines_of_a_view() -> None:
    view = view_of(Plot("line", "hour", "wait", "queue"), queue="", hour="", wait="s")
    rows = [
        {"queue": queue, "hour": hour, "wait": number + 0.5}
        for number, queue in enumerate([None, IMAGE, *"abcdefgh"])
        for hour in hours(3)
    ]
    rows[-1]["wait"] = math.nan
    panel, figure = panel_of(view, rows)
    assert panel.caption.endswith("Drawn are the 6 highest of 10 by queue.")
    assert [trace["name"] for trace in figure["data"]] == ["c", "d", "e", "f", "g", "h"]
    assert figure["data"][-1]["y"] == [9.5, 9.5, None]
    assert figure["data"][0]["x"] == ["2026-02-02 00:00", "2026-02-02 01:00", "2026-02-02 02:00"]
    _, figure = panel_of(view, rows[:6])
    assert [trace["name"] for trace in figure["data"]] == [
        "(no name)",
        "&lt;img/src=x/onerror=hit=1&gt;",
    ]
    _, figure = panel_of(view, rows[:3] * 2)  # more than one value for a place
    assert figure["data"][0]["mode"] == "markers"


def test_bars_of_a_view() -> None:
    view = view_of(Plot("bar", "name", "jobs", "way"), name="", way="", jobs="jobs")
    rows = [
        {"name": f"{number:02}", "way": way, "jobs": number}
        for number in range(NAMES + 5)
        for way in ("in", "out")[: 1 + number % 2]
    ]
    panel, figure = panel_of(view, rows)
    assert figure["names"][:3] == ["23", "21", "19"]  # there are two ways of these
    assert len(figure["names"]) == NAMES
    assert figure["data"][1]["x"][:3] == [23.0, 21.0, 19.0]
    assert panel.caption.endswith("Drawn are the 20 highest of 25 by name.")
    view = view_of(Plot("bar", "day", "jobs"), day="", jobs="jobs")
    _, figure = panel_of(view, [{"day": date(2026, 2, 2), "jobs": 3}, {"day": None, "jobs": 1}])
    assert [(each["x"], each["y"]) for each in figure["data"]] == [(["2026-02-02 00:00"], [3.0])]


def test_a_heat_map_of_a_view_for_each_value_of_a_column() -> None:
    plot = Plot("heat", "hour", "queue", value="busy", facet="what")
    view = view_of(plot, queue="", hour="", what="", busy="share")
    first, second = hours(2)
    rows = [
        {"queue": IMAGE, "hour": second, "what": "run", "busy": 0.5},
        {"queue": "a", "hour": first, "what": "run", "busy": 1.0},
        {"queue": "a", "hour": first, "what": "wait", "busy": 2.0},
    ]
    run, wait = panels_of(view, pa.Table.from_pylist(rows))
    assert [each.title for each in (run, wait)] == ["Some rows: run", "Some rows: wait"]
    assert len({run.id, wait.id}) == 2
    assert run.figure is not None
    (trace,) = run.figure["data"]
    assert trace["x"] == ["2026-02-02 00:00", "2026-02-02 01:00"]
    assert dict(zip(trace["y"], trace["z"], strict=True)) == {
        "&lt;img/src=x/onerror=hit=1&gt;": [None, 0.5],
        "a": [1.0, None],
    }
    assert [len(each.rows) for each in (run, wait)] == [2, 1]


# The small parts


@pytest.mark.parametrize(
    ("hours", "size", "words"),
    [
        (0.01, 60, "a minute"),
        (1, 60, "a minute"),
        (24, 900, "15 minutes"),
        (24 * 4, 3600, "an hour"),
        (24 * 7, 7200, "2 hours"),
        (24 * 30, 21_600, "6 hours"),
        (24 * 365, 7 * 86_400, "a week"),
    ],
)
def test_bins_fit_the_span(hours: float, size: int, words: str) -> None:
    since = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    scope = make_scope(since, since + timedelta(hours=hours))
    assert (scope.bin, scope.a_bin) == (size, words)
    assert 1 <= scope.bins <= 121
    assert scope.start_of(0) <= since
    assert scope.start_of(scope.bins) >= scope.until
    if size == 7 * 86_400:
        assert scope.start_of(0).weekday() == 0


def test_patterns_of_queues() -> None:
    names = pa.array(["mail.x", "mailx", "abc", "ac", "x+y", "xxy", "a\nc", "b\nabc"])
    expected = [True, False, True, False, True, False, True, False]
    for patterns in (["mail.*", "a?c", "x+y"], ["nothing", "x+y", "a?c", "mail.*"]):
        fit = any_of(patterns)
        assert [bool(re.search(fit, name)) for name in names.to_pylist()] == expected
        assert pc.match_substring_regex(names, fit).to_pylist() == expected  # as DuckDB does it


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
    assert labels([f"{TURNED}\ud800"]) == ["a\\u202eb\\ud800"]
