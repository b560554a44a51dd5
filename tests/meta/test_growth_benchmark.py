"""The benchmarks of growth and of several processes: their arithmetic, the page and the plot."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from support.stealing_host import Host

from benchmarks import processes, readings, rig
from benchmarks.growth import __main__ as command
from benchmarks.growth import crowds, others, recovery, report, setting
from benchmarks.patience import Patience


def measured(tmp_path: Path, **found: Any) -> dict[str, Any]:
    return {
        "machine": readings.machine(tmp_path),
        "form": "compiled",
        "durability": "sync",
        "payload": 200,
        "command": "python -m benchmarks.growth --dir /somewhere --rounds 2",
        "took_seconds": 90.0,
        "others_cores": 0.02,
        "stolen": [0.01, 0.02, 0.09],
        "thrown_away": 7,
        **found,
    }


def turn(cycles_per_s: float) -> dict[str, float]:
    return {
        "cycles_per_s": cycles_per_s,
        "p99_us": 2500.0,
        "server_cores": 0.9,
        "generator_cores": 0.4,
    }


def step(jobs: int) -> dict[str, Any]:
    return {
        "jobs": jobs,
        "push_per_s": 150_000.0,
        "resident_bytes": 200 * jobs,
        "cycles": {"50": turn(20_000.0), "50 x 100 deep": turn(90_000.0)},
    }


def case(side: str, *cycles_per_s: float) -> dict[str, Any]:
    return {
        "side": side,
        "shape": "50",
        "cycles_per_s": list(cycles_per_s),
        "dropped": 2**23,
        "written_per_cycle": 400.0,
        "loop_ms": {"p50": 0.1, "p99": 2.0, "most": 9.0},
    }


def pause(phase: str, longest_ms: float) -> dict[str, Any]:
    return {
        "phase": phase,
        "longest_ms": longest_ms,
        "answer_ms": longest_ms + 1,
        "p999_ms": 5.0,
        "p50_ms": 0.1,
        "asked": 3000,
        "off_processor_s": 0.2,
        "idle_ms": 1.5,
    }


@pytest.fixture
def parts(tmp_path: Path) -> report.Parts:
    many = setting.comparison("waiting", [turn(80.0), turn(90.0)], [turn(100.0), turn(100.0)])
    few = setting.comparison("queues", [turn(70.0)], [turn(100.0)])
    return {
        "waiting": measured(
            tmp_path,
            jobs=10_000_000,
            steps=[step(10_000), step(10_000_000)],
            comparisons=[many],
            start={**start(20.0), "records": 11_000_000, "start_seconds": 31.0},
            warmed={"step_seconds": 2.0, "many": [60_000.0, 90_000.0], "few": [95_000.0]},
            drain_per_s=100_000.0,
            peak_bytes=2**30,
            peak_bytes_started=3 * 2**30,
        ),
        "queues": measured(tmp_path, comparisons=[few]),
        "memory": measured(
            tmp_path,
            jobs=1_000_000,
            kinds=[memory("plain, PUSH", 180.0), memory("with uid and ttl", 500.0)],
        ),
        "recovery": measured(
            tmp_path,
            empty_seconds=0.5,
            logs=[{"log": "pushes", "starts": [start(1.6), start(2.0), start(2.5)]}],
        ),
        "compaction": measured(
            tmp_path,
            parked=50_000,
            base="off",
            cases=[case("hard", 90.0, 80.0), case("off", 100.0, 100.0), case("hardly", 120.0, 1.0)],
            ratios={"50": 0.85},
        ),
        "pauses": measured(
            tmp_path,
            jobs=1_000_000,
            pauses=[pause("push", 12.0), pause("push", 21.0), pause("push", 3.0)],
        ),
    }


def memory(kind: str, bytes_a_job: float) -> dict[str, Any]:
    return {
        "kind": kind,
        "is_plain": kind.startswith("plain"),
        "bytes_before": 50 * 2**20,
        "bytes_full": 250 * 2**20,
        "bytes_a_job": bytes_a_job,
    }


def start(recovery_seconds: float) -> dict[str, Any]:
    return {
        "jobs": 10**6,
        "records": 10**6,
        "recovery_seconds": recovery_seconds,
        "start_seconds": recovery_seconds + 0.5,
        "resident_bytes": 2 * 2**30,
    }


def found_bars(parts: report.Parts) -> dict[str, tuple[float, bool]]:
    return {bar.name: (bar.found, bar.is_reached) for bar in report.all_bars(parts)}


def a_setting(directory: Path, rounds: int = 1, turns: int = 0) -> setting.Setting:
    generator = rig.Generator(directory)
    return setting.Setting(
        "compiled", "sync", generator, directory, 1000, 200, rounds, 1.0, turns=turns
    )


@pytest.mark.parametrize(("rounds", "turns"), [(2, 0), (1, 2)])
def test_two_loads_take_turns_and_each_is_first_in_every_second_round(
    tmp_path: Path, rounds: int, turns: int
) -> None:
    order: list[str] = []

    def side(name: str) -> dict[str, float]:
        order.append(name)
        return turn(10.0 * len(order))

    sides = {"many": lambda: side("many"), "few": lambda: side("few")}
    found = setting.in_turns(a_setting(tmp_path, rounds, turns), sides)

    assert order == ["many", "few", "few", "many"]
    assert [each["cycles_per_s"] for each in found["many"]] == [10.0, 40.0]


def test_a_turn_that_the_host_disturbed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Host(monkeypatch).steals(0.5, 0.1, 0.0)
    made: list[str] = []

    def side(name: str) -> dict[str, float]:
        made.append(name)
        return turn(10.0 * len(made))

    one = replace(a_setting(tmp_path), patience=Patience(60.0, made.append))
    found = setting.in_turns(one, {"many": lambda: side("many"), "few": lambda: side("few")})

    assert made == ["many", "50% was stolen: again many", "many", "few"]
    assert [each["stolen"] for each in found["many"] + found["few"]] == [0.1, 0.0]


def test_a_comparison_is_made_round_by_round() -> None:
    found = setting.comparison("x", [turn(50.0), turn(200.0)], [turn(100.0), turn(400.0)])

    assert found["ratios"] == [0.5, 0.5]


def test_everything_shrinks_with_the_number_of_jobs(tmp_path: Path) -> None:
    one = a_setting(tmp_path)

    assert [one.part_of(share) for share in (1.0, 0.1, 0.0001)] == [1000, 100, 1]


def test_delayed_jobs_are_due_at_many_times_and_none_soon() -> None:
    pushes = list(crowds.delayed_pushes(1000, 200))
    due = [json.loads(push.removeprefix(b"PUSH "))["execute_at"] for push in pushes]

    assert len(set(due)) == 1000
    assert due != sorted(due)


def test_what_a_server_said_of_its_last_start_is_read() -> None:
    log = "journal recovered jobs=1 records=2 seconds=0.1\nx\njournal recovered jobs=9 records=8\n"

    assert recovery.recovery_facts(log) == {"jobs": "9", "records": "8"}


def test_a_log_without_a_start_is_refused() -> None:
    with pytest.raises(rig.BenchmarkError, match="does not say"):
        recovery.recovery_facts("taskyard is starting\n")


def test_each_bar_has_its_figure_and_verdict(parts: report.Parts) -> None:
    found = found_bars(parts)

    assert found == {
        "waiting": (pytest.approx(0.85), True),
        "queues": (0.7, False),
        "memory a waiting job, plain, PUSH": (180.0, True),
        "recovery of 11,000,000 records": (550_000.0, True),
        "10,000,000 jobs back": (31.0, False),
        "recovery of 1,000,000 records (pushes)": (500_000.0, True),
        "cycles/s while compacting to those without, connections 50": (pytest.approx(0.85), True),
        "longest pause with 1,000,000 jobs: push": (21.0, False),
    }


def test_fewer_jobs_are_not_held_to_the_time_of_ten_million(parts: report.Parts) -> None:
    parts["waiting"]["jobs"] = 100_000

    assert not any(name.endswith("jobs back") for name in found_bars(parts))


def test_a_page_tells_all_parts_and_no_places(parts: report.Parts) -> None:
    page = report.page(parts, "growth.svg")

    for title in ("Many waiting jobs", "Much to little", "Memory a waiting job", "Back after"):
        assert f"## {title}" in page
    assert "with uid and ttl" in page
    assert "/somewhere" not in page
    assert "(growth.svg)" in page


def test_a_page_marks_the_parts_during_which_others_used_the_machine(parts: report.Parts) -> None:
    parts["memory"]["others_cores"] = 0.73
    del parts["pauses"]["others_cores"]

    cells = {name: row[3] for name, row in command_rows(parts).items()}

    assert cells["memory"] == "**0.73**"
    assert cells["pauses"] == "not known"
    assert cells["queues"] == "0.02"


def command_rows(parts: report.Parts) -> dict[str, list[str]]:
    rows = [
        row.strip("| ").split(" | ")
        for row in report.commands(parts).splitlines()
        if row.startswith("|")
    ]
    return {row[0]: row for row in rows}


def test_a_page_says_what_the_host_took_and_what_was_made_again(parts: report.Parts) -> None:
    parts["memory"] |= {"stolen": [0.034], "thrown_away": 0}
    for name in ("stolen", "thrown_away"):
        del parts["pauses"][name]

    cells = {name: row[4:] for name, row in command_rows(parts).items()}

    assert cells["queues"] == ["2.0%, 9.0% at most", "7"]
    assert cells["memory"] == ["3.4%", "0"]
    assert cells["pauses"] == ["not known", "not known"]
    assert "took more than 10%" in report.commands(parts)


def test_interrupts_and_waiting_are_no_time_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", lambda _: 100)

    # user nice system idle iowait irq softirq steal
    assert others.busy_seconds("cpu  100 20 80 9000 500 30 40 70\ncpu0 1 1 1") == 2.0


def test_a_page_of_one_part_is_whole_too(parts: report.Parts) -> None:
    page = report.page({"memory": parts["memory"]}, "growth.svg")

    assert "## Memory a waiting job" in page
    assert "growth.svg" not in page


def test_the_plot_has_a_line_for_each_panel(parts: report.Parts) -> None:
    root = ET.fromstring(report.plot(parts))

    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 4


def test_the_page_is_made_again_from_the_files(
    parts: report.Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part, found in parts.items():
        command.file_of(tmp_path, part).write_text(json.dumps(found))
    monkeypatch.setattr(sys, "argv", ["growth", "--report", "--out", str(tmp_path)])

    assert command.main() == 0
    assert (tmp_path / "growth.md").read_text() == report.page(parts, "growth.svg")
    assert (tmp_path / "growth.svg").read_text() == report.plot(parts)


def test_without_results_there_is_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["growth", "--report", "--out", str(tmp_path)])

    assert command.main() == 1


def test_the_generators_share_is_taken_out_of_the_gain_of_two_processes() -> None:
    one = processes.Figures(10_000.0, server_cores=1.0, loop_cores=0.9, generator_cores=0.5)
    two = processes.Figures(12_000.0, server_cores=1.3, loop_cores=1.3, generator_cores=0.7)

    assert processes.gain(one, two) == pytest.approx(1.2)
    # Two cores at 108.3 µs a cycle: 18,462 a second. One core at 90 µs: 11,111.
    assert processes.gain_by_cost(one, two) == pytest.approx(18_462 / 11_111, abs=0.001)
    assert processes.gain_over_one(one, two) == pytest.approx(1.846, abs=0.001)
