"""The side-by-side benchmark: its runs, its ratios and bars, its page and its plots."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from support.side_by_side import plan_of, subjects
from support.stealing_host import Host

from benchmarks import readings, rig
from benchmarks.side_by_side import bars, command, costs, measure, plots, report, slow_flush
from benchmarks.side_by_side.plan import (
    FULL,
    SMALL,
    Block,
    cases_of,
)
from benchmarks.side_by_side.results import (
    Case,
    Part,
    Resident,
    Results,
    Round,
    Syscalls,
    load,
)
from benchmarks.side_by_side.shapes import SHAPES
from benchmarks.side_by_side.subjects import KEYS

ROOT = Path(__file__).resolve().parent.parent.parent


def a_round(number: int, jobs_per_s: float, p99: float = 2_000.0) -> Round:
    return Round(number, jobs_per_s, p99 / 2, p99, p99 * 2, 31.5, 0.75, 0.5)


def case(
    key: str,
    *rates: float,
    part: Part = "peak",
    durability: rig.Durability = "sync",
    shape: str = "c50",
    p99: float = 2_000.0,
) -> Case:
    rounds = [a_round(number, rate, p99) for number, rate in enumerate(rates)]
    return Case(part, key, durability, shape, SMALL, rounds)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    known = subjects("masenko", "lists", "jobs-batch", "redis-lists", "redis-streams", "beanstalkd")
    return Results(
        machine=readings.machine(tmp_path),
        taskyard="Taskyard 9.9, compiled",
        command="make bench",
        seconds=1.5,
        warmup=0.5,
        subjects=[subject.facts() for subject in known],
        missing={"nats, sync": "not to be had"},
        cases=[
            case("masenko", 12_000, 15_000, 9_000),
            case("redis-lists", 10_000, 10_000, 20_000),
            case("masenko", 80_000, shape="c50x100"),
            case("jobs-batch", 300_000, shape="c50x100"),
            case("lists", 900_000, shape="c50x100"),
            case("redis-streams", 100_000, shape="c50x100"),
            case("masenko", 5_000, part="offered", p99=900.0),
            case("redis-lists", 4_000, part="offered", p99=600.0),
            case("beanstalkd", part="offered"),
        ],
        offered_rate=5_000.0,
        syscalls=[Syscalls("masenko", "sync", "c50", 2_000, 9_000, "perf")],
        resident=[Resident("masenko", "write", 200_000, 50_000_000)],
        took_seconds=120.0,
        complete=True,
    )


def bar_of(results: Results, name: str) -> bars.Found | None:
    [bar] = [bar for bar in bars.BARS if bar.name == name]
    return bars.judge(results, bar)


def test_a_bar_is_the_ratio_of_medians_with_the_spread_of_the_rounds(results: Results) -> None:
    found = bar_of(results, "jobs/s to Redis lists, 50 connections")

    assert found is not None
    assert found.ratio == pytest.approx(1.2)
    assert [found.least, found.most] == pytest.approx([0.45, 1.5])
    assert found.verdict == "reached"  # 1.1, but not the stretch of 1.3


def test_the_best_dialect_is_one_that_finishes_its_jobs(results: Results) -> None:
    found = bar_of(results, "jobs/s to Redis streams, 50 connections, 100 deep")

    assert found is not None
    assert found.ratio == pytest.approx(3.0)
    assert (found.ours, found.verdict) == ("jobs-batch", "reached, and the stretch")


def test_of_latency_less_is_better(results: Results) -> None:
    found = bar_of(results, "p99 to that of Redis lists at the same rate, 50 connections")

    assert found is not None
    assert found.ratio == pytest.approx(1.5)
    assert found.verdict == "**missed**"


def test_a_bar_without_a_peer_or_beside_one_that_did_nothing_is_not_measured(
    results: Results,
) -> None:
    assert bar_of(results, "jobs/s to NATS JetStream, 50 connections") is None

    results.cases.append(case("redis-lists", 0.0, shape="c500"))
    results.cases.append(case("masenko", 100.0, shape="c500"))
    assert bar_of(results, "jobs/s to Redis lists, 500 connections") is None


def test_the_rate_that_is_offered_is_half_of_the_lower_peak(results: Results) -> None:
    assert measure.half_the_lower_peak(results, SMALL) == 5_000

    results.cases = [each for each in results.cases if each.subject != "redis-lists"]
    assert measure.half_the_lower_peak(results, SMALL) is None


def test_the_page_has_what_was_measured(results: Results) -> None:
    drawn = plots.plots(results)

    page = report.page(results, drawn)

    assert "| jobs/s to Redis lists, 50 connections (Masenko) | sync | at least 1.1 | 1.3 |" in page
    assert "| 1.20 | 0.45 - 1.50 | 12,000 to 10,000 | reached |" in page
    assert "100 deep (best: RESP in batches) | sync | at least 2 | 3 | 3.00 |" in page
    assert "| Taskyard, Masenko | **12,000** (9,000 - 15,000) | **80,000** (80" in page
    assert "| Redis lists (set to sync) | **10,000** (10,000 - 20,000) |  |" in page
    assert "5,000 jobs a second begin on 50 connections, whatever the server: half" in page
    assert (
        "| Redis lists | 4,000 | 300 | 600 | 600 - 600 | 1,200 | 31.5 | has not kept up |" in page
    )
    assert "| Taskyard, Masenko | 31.5 | 31.5 | 4.50 |  | 250 (write) |" in page
    assert "| nats, sync | not measured | not to be had |" in page
    assert "With a slower disk" not in page
    assert "the host gave" not in page
    assert "interrupted" not in page


def test_an_interrupted_run_says_so_and_a_failure_is_named(results: Results) -> None:
    results.complete = False
    results.failures = ["sync c50 200 B nats: no reply for 30 seconds"]

    page = report.page(results, ())

    assert "**The run was interrupted: this is what it had.**" in page
    assert "## Failed\n\n- sync c50 200 B nats: no reply" in page
    assert ".svg" not in page


def test_the_page_shows_every_plot_that_is_drawn(results: Results) -> None:
    results.cases.append(case("masenko", 30_000, durability="memory"))

    drawn = plots.plots(results)
    page = report.page(results, drawn)

    assert len(drawn) == 4
    assert all(f"]({name})" in page for name in drawn)


def test_plots_have_a_bar_for_each_server_and_dots_for_percentiles(results: Results) -> None:
    drawn = plots.plots(results)

    pipelined = ET.fromstring(drawn["side-by-side-pipelined.svg"])
    names = [each.text for each in pipelined.iter() if each.tag.endswith("text")]
    shown = [name for name in names if name in {subject.label for subject in results.subjects}]
    assert shown == [
        "Taskyard, lists (toq)",
        "Taskyard, RESP in batches",
        "Redis streams",
        "Taskyard, Masenko",
    ]
    latency = ET.fromstring(drawn["side-by-side-latency.svg"])
    dots = [each for each in latency.iter() if each.tag.endswith("circle")]
    assert len(dots) == 3 + 2 * 3  # those of the key as well


def test_results_come_back_as_they_were_saved(tmp_path: Path, results: Results) -> None:
    path = tmp_path / "deep" / "results.json"

    results.save(path)

    assert load(path) == results
    assert [each.name for each in path.parent.iterdir()] == ["results.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"cases": []}'])
def test_a_file_with_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)

    with pytest.raises(rig.BenchmarkError, match=r"results\.json"):
        load(path)


def test_a_page_is_made_of_a_file_without_measuring(tmp_path: Path, results: Results) -> None:
    path = tmp_path / "results.json"
    results.save(path)
    published = {each.name: each.read_bytes() for each in command.PUBLISHED.iterdir()}

    made = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--report", str(path), "--out", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [*sys.path, str(ROOT)]))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (made.returncode, made.stderr) == (0, "")
    assert (tmp_path / "side-by-side.md").read_text().startswith("# Side by side\n")
    assert (tmp_path / "side-by-side-sync.svg").exists()
    assert {each.name: each.read_bytes() for each in command.PUBLISHED.iterdir()} == published


def test_a_part_is_measured_again_and_the_page_says_so(results: Results) -> None:
    kept = [case for case in results.cases if case.part != "offered"]
    assert len(kept) < len(results.cases)

    results.forget(["offered"], [case for case in results.cases if case.part == "offered"])
    results.again = command.command_line(["--only", "offered", "--publish"])

    assert results.cases == kept
    assert results.syscalls
    assert results.resident
    assert 'measured again: `make bench ARGS="--only offered"`.' in report.page(results, ())


def test_what_a_part_has_beside_the_cases_measured_again_is_kept(results: Results) -> None:
    plan = plan_of("--only", "masenko,redis-lists,sync,c50,peak", "--payload", str(SMALL))
    known = subjects("masenko", "redis-lists")
    again = [case for block in plan.blocks for case in cases_of(block, known)]

    results.forget(plan.parts, again)

    left = [(case.part, case.subject, case.shape) for case in results.cases]
    assert ("peak", "masenko", "c50") not in left
    assert ("peak", "redis-lists", "c50") not in left
    assert ("peak", "masenko", "c50x100") in left
    assert ("offered", "masenko", "c50") in left
    assert len(left) == 7


def test_the_command_on_the_page_has_no_place_of_this_machine() -> None:
    assert command.command_line([]) == "make bench"
    words = ["--dir", "/mnt/fast", "--quick", "--out=/tmp/here"]
    assert command.command_line(words) == 'make bench ARGS="--quick"'


class Instead(measure.Runner):
    """Measures nothing: the second server fails, and after a while someone interrupts."""

    def _measure(self, block: Block, case: Case, number: int, rate: float | None) -> Round:
        if case.subject == "workq":
            raise rig.BenchmarkError("it does\nnot answer")
        if number == 2:
            raise KeyboardInterrupt
        return a_round(number, 1_000.0)


def test_a_failure_does_not_end_a_run_and_an_interrupted_one_keeps_what_it_has(
    tmp_path: Path, results: Results
) -> None:
    words = ["--only", "masenko,workq,sync,c50,peak", "--payload", "200", "--rounds", "3"]
    plan = plan_of(*words, "--patience", "0")
    results.cases, results.complete = [], False
    path = tmp_path / "results.json"
    runner = Instead(plan, subjects("masenko", "workq"), results, path, tmp_path / "loadgen")

    with pytest.raises(KeyboardInterrupt):
        runner.run()

    kept = load(path)
    assert [len(each.rounds) for each in kept.cases] == [2, 0]
    assert kept.failures == ["sync c50 200 B workq: it does not answer"] * 2
    assert not kept.complete
    assert not [each for each in kept.measured() if each.subject == "workq"]


class Disturbed(measure.Runner):
    """Each measurement is faster than the one before."""

    def _measure(self, block: Block, case: Case, number: int, rate: float | None) -> Round:
        return a_round(number, 1_000.0 * (self.patience.thrown_away + 1))


@pytest.mark.parametrize(
    ("minutes", "kept", "thrown_away"),
    [("1", (3_000.0, 0.05), 2), ("0", (1_000.0, 0.5), 0)],
    ids=["patient", "no patience"],
)
def test_what_was_disturbed_is_measured_again_while_there_is_patience(
    tmp_path: Path,
    results: Results,
    monkeypatch: pytest.MonkeyPatch,
    minutes: str,
    kept: tuple[float, float],
    thrown_away: int,
) -> None:
    Host(monkeypatch).steals(0.5, 0.2, 0.05)
    words = ["--only", "masenko,sync,c50,peak", "--payload", "200", "--rounds", "1"]
    plan = plan_of(*words, "--patience", minutes)
    results.cases = []

    path = tmp_path / "results.json"
    Disturbed(plan, subjects("masenko"), results, path, tmp_path / "loadgen").run()

    saved = load(path)
    [[found]] = [each.rounds for each in saved.cases]
    assert (found.jobs_per_s, found.stolen) == kept
    assert saved.thrown_away == thrown_away


def test_the_page_says_what_the_host_took_where_that_was_read(results: Results) -> None:
    results.thrown_away = 7
    [first, *others] = results.cases
    shares = (0.01, 0.02, 0.09)
    rounds = [replace(each, stolen=share) for each, share in zip(first.rounds, shares, strict=True)]
    results.cases = [replace(first, rounds=rounds), *others]

    page = report.page(results, ())

    assert "the host gave 2.0% to others in the median, 9% at most. 7 measurements with" in page


def test_system_calls_are_read_from_perf_and_from_strace() -> None:
    perf = "# started on a day\n\n123456,,raw_syscalls:sys_enter,1500000,100.00,,\n"
    strace = (
        "% time     seconds  usecs/call     calls    errors syscall\n"
        "------ ----------- ----------- --------- --------- ------------\n"
        " 60.00    0.000600           3       200        10 read\n"
        " 40.00    0.000400           4       100           write\n"
        "------ ----------- ----------- --------- --------- ------------\n"
        "100.00    0.001000           3       300        10 total\n"
    )

    assert costs.calls_of_perf(perf) == 123_456
    assert costs.calls_of_strace(strace) == 300
    with pytest.raises(rig.BenchmarkError, match="has not counted"):
        costs.calls_of_perf("<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n")
    with pytest.raises(rig.BenchmarkError, match="has not counted"):
        costs.calls_of_strace("strace: attach: ptrace(PTRACE_SEIZE): Operation not permitted\n")


def test_a_slow_flush_slows_fsync_and_fdatasync_of_what_is_started_meanwhile(
    tmp_path: Path,
) -> None:
    library = slow_flush.compile_library(tmp_path)
    program = (
        "import os, sys, time\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "for flush in (os.fsync, os.fdatasync):\n"
        "    began = time.monotonic()\n"
        "    flush(fd)\n"
        "    print(time.monotonic() - began)\n"
    )
    before = dict(os.environ)

    with slow_flush.flushes_delayed(library, 50.0):
        run = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "file")],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )

    assert all(float(taken) >= 0.05 for taken in run.stdout.split())
    assert len(run.stdout.split()) == 2
    assert dict(os.environ) == before


def test_all_shapes_that_bars_speak_of_are_measured() -> None:
    for bar in bars.BARS:
        wanted = (bar.part, bar.durability, SMALL)
        blocks = [
            block for block in FULL if (block.part, block.durability, block.payload) == wanted
        ]
        assert any(bar.shape in block.shapes for block in blocks), bar.name
        assert bar.shape in SHAPES
        assert bar.peer in KEYS
        assert bar.ours in (*KEYS, bars.BEST)
