"""The benchmark beside task frameworks: its arithmetic, its table and its plot."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks import rig
from benchmarks.frameworks import __main__ as command
from benchmarks.frameworks import environment, report
from benchmarks.frameworks.measure import Measurement, Setting, measurement, number_in, portions
from benchmarks.frameworks.programs import produce, tally
from benchmarks.frameworks.report import Case
from benchmarks.frameworks.subjects import ALL, DEFAULT, OURS, Subject

ROOT = Path(__file__).resolve().parent.parent.parent
BY_NAME = {subject.name: subject for subject in ALL}


def taken(per_s: float, tasks: int = 20_000, pushed_many: float | None = None) -> Measurement:
    seconds = tasks / per_s
    return Measurement(
        tasks=tasks,
        ran=seconds / 2,
        seconds=seconds,
        worker_cpu=20e-6,
        broker_cpu=10e-6,
        pushed_each=1_000.0,
        pushed_many=pushed_many,
        push_cpu=5e-6,
    )


def case(name: str, *rates: float, tasks: int = 20_000) -> Case:
    return Case(BY_NAME[name], [taken(rate, tasks) for rate in rates])


def cells_of(table: str, row: str) -> dict[str, str]:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    found = next(cells for cells in lines[2:] if cells[0] == row)
    return dict(zip(lines[0], found, strict=True))


def test_a_rate_counts_until_the_broker_knows_that_all_is_done() -> None:
    found = measurement(
        1000,
        {"each": {"count": 100, "seconds": 0.5, "cpu": 0.1}},
        {
            "began": {"at": 10.0, "worker_cpu": 1.0, "broker_cpu": 3.0},
            "ended": {"at": 11.0, "worker_cpu": 1.4, "broker_cpu": 3.3},
            "settled": {"at": 12.0, "worker_cpu": 1.5, "broker_cpu": 3.25},
        },
    )

    assert found.per_s == 500
    assert found.runs_per_s == 1000
    assert found.worker_cpu == pytest.approx(500e-6)
    assert found.broker_cpu == pytest.approx(250e-6)
    assert found.pushed_each == 200
    assert found.pushed_many is None
    assert found.push_cpu == pytest.approx(1e-3)


def test_where_many_can_be_pushed_at_once_that_is_the_producers_cost() -> None:
    reading = {"at": 0.0, "worker_cpu": 0.0, "broker_cpu": 0.0}
    found = measurement(
        1000,
        {
            "each": {"count": 100, "seconds": 0.5, "cpu": 0.1},
            "many": {"count": 900, "seconds": 0.3, "cpu": 0.09},
        },
        {"began": reading, "ended": {**reading, "at": 1.0}, "settled": {**reading, "at": 1.0}},
    )

    assert found.pushed_many == pytest.approx(3000)
    assert found.push_cpu == pytest.approx(100e-6)


@pytest.mark.parametrize("tasks", [100, 2_000, 20_000])
def test_what_is_pushed_adds_up_with_the_warm_up(tasks: int) -> None:
    each, many = portions(tasks)

    assert each > 0
    assert many > 0
    assert each + many + 2 * produce.WARMUP == tasks


def test_the_table_has_medians_spreads_and_ratios() -> None:
    cases = [case(OURS, 30_000, 20_000, 25_000), case("huey", 5_000, 4_000, 10_000)]

    table = report.table(cases)

    ours, huey = cells_of(table, "Taskyard"), cells_of(table, "Huey")
    assert ours["tasks/s"] == "25,000"
    assert ours["least - most"] == "20,000 - 30,000"
    assert ours["Taskyard to it"] == "1.00"
    assert ours["runs/s"] == "50,000"
    assert ours["broker"] == "Taskyard, sync: on disk, flushed"
    assert huey["tasks/s"] == "5,000"
    assert huey["Taskyard to it"] == "5.00"
    assert huey["worker µs"] == "20"
    assert huey["broker µs"] == "10"
    assert huey["many"] == ""
    assert huey["broker"] == "Redis, in memory only"


def test_rows_say_where_fewer_tasks_were_run() -> None:
    fewer = BY_NAME["rq"].tasks(20_000)

    table = report.table([case(OURS, 20_000), case("rq", 500, tasks=fewer)])

    assert cells_of(table, "RQ")["tasks"] == "2,000"
    assert cells_of(table, "Taskyard")["tasks"] == "20,000"


def test_a_table_without_taskyard_has_no_ratios() -> None:
    assert cells_of(report.table([case("huey", 5_000)]), "Huey")["Taskyard to it"] == ""


@pytest.mark.parametrize(("ours", "words"), [(15_000, "3.00"), (14_000, "2.80")])
def test_the_bar_is_held_to_the_best_of_the_others(ours: float, words: str) -> None:
    cases = [case(OURS, ours), case("huey", 4_000), case("dramatiq", 5_000), case("rq", 300)]

    verdict = report.verdict(cases)

    assert f"Dramatiq: {words} " in verdict
    assert verdict.endswith("reached" if ours == 15_000 else "MISSED")


def test_taskyard_without_its_disk_is_neither_the_base_nor_another() -> None:
    cases = [case("taskyard-memory", 90_000), case(OURS, 10_000), case("huey", 5_000)]

    assert "Huey: 2.00 " in report.verdict(cases)
    assert report.verdict([case("taskyard-memory", 90_000), case("huey", 1)]).startswith("no ratio")


def test_the_plot_has_a_bar_for_each_the_longest_for_the_fastest() -> None:
    cases = [case("huey", 5_000), case(OURS, 20_000, 30_000, 25_000), case("rq", 500)]

    root = ET.fromstring(report.plot(cases))

    space = "{http://www.w3.org/2000/svg}"
    widths = [float(bar.attrib["width"]) for bar in root.findall(f"{space}rect")[1:]]
    texts = [element.text for element in root.findall(f"{space}text")]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] / widths[1] == pytest.approx(5, rel=0.01)
    assert [text for text in texts if text in ("Taskyard", "Huey", "RQ")] == [
        "Taskyard",
        "Huey",
        "RQ",
    ]
    assert "25,000" in texts


def test_the_page_names_the_machine_the_settings_and_the_plot() -> None:
    page = report.page([case(OURS, 9_000), case("celery", 900)], ["a machine"], "plot.svg")

    assert "\na machine\n" in page
    assert "(plot.svg)" in page
    assert BY_NAME["celery"].settings in page
    assert "MISSED" not in page


def test_replies_of_brokers_tell_how_much_is_left() -> None:
    counts = {"blocked": 1, "delayed": 2, "ready": 3, "leased": 4, "succeeded": 50, "failed": 5}

    assert number_in(7) == 7
    assert number_in([3, b"1-0", b"2-0", [[b"worker", b"3"]]]) == 3
    assert number_in([200, json.dumps({"counts": counts}).encode()]) == 15
    with pytest.raises(rig.BenchmarkError, match="replied"):
        number_in([404, b"{}"])


def test_without_a_choice_each_framework_is_measured() -> None:
    assert command.choose([]) == list(DEFAULT)
    assert [subject.name for subject in command.choose(["huey-1,rq"])] == ["rq", "huey-1"]
    with pytest.raises(rig.BenchmarkError, match="rabbit"):
        command.choose(["rabbit"])


@pytest.mark.parametrize("subject", ALL, ids=lambda subject: str(subject.name))
def test_every_subject_has_its_program_and_a_pinned_framework(subject: Subject) -> None:
    programs = ROOT / "benchmarks" / "frameworks" / "programs"

    assert (programs / f"{subject.program}.py").exists()
    assert subject.broker == "taskyard" or subject.framework.lower() in environment.versions()


def test_one_framework_that_fails_does_not_spoil_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(setting: Setting, subject: Subject) -> Measurement:
        if subject.name == "huey":
            raise rig.BenchmarkError("its worker ended")
        return taken(2_000)

    monkeypatch.setattr(command, "measure", measure)
    setting = Setting(1_000, "interpreted", tmp_path, environment.Environment(tmp_path))

    cases, problems = command.measure_all(setting, [BY_NAME["huey"], BY_NAME["rq"]], 2)

    assert [len(case.rounds) for case in cases] == [0, 2]
    assert problems == ["huey, round 1: its worker ended", "huey, round 2: its worker ended"]
    assert "Huey" not in report.table(cases)
    assert ">RQ<" in report.plot(cases)


def test_names_of_subjects_are_unique() -> None:
    assert len(BY_NAME) == len(ALL)


def test_the_tally_is_written_by_the_last_run(tmp_path: Path) -> None:
    file = tmp_path / "tally.json"
    program = (
        "import pathlib, sys\n"
        "from benchmarks.frameworks.programs.tally import run\n"
        "for number in range(4):\n"
        "    print(pathlib.Path(sys.argv[1]).exists())\n"
        "    run()\n"
    )
    environ = {tally.TASKS: "3", tally.FILE: str(file), tally.BROKER: str(os.getpid())}

    seen = subprocess.run(
        [sys.executable, "-c", program, str(file)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
    )

    found = json.loads(file.read_text())
    assert seen.stdout.split() == ["False", "False", "False", "True"]
    assert found["ended"]["at"] >= found["began"]["at"]
    assert found["ended"]["broker_cpu"] >= found["began"]["broker_cpu"] > 0
