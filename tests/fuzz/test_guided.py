"""A short run of every target under the fuzzer, and a defect that it has to find.

Bounded in inputs, with a fixed seed: it takes as long as it takes, and does the same each time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fuzz import catalog, one
from support.effort import LONG, effort

ROOT = Path(__file__).parents[2]
RUNS = effort(500, 8)
ENOUGH = 500_000  # inputs, of about 30,000 to 170,000 that the planted defect takes, and seconds
LUCKY = 4  # a seed that finds it early


def run_fuzz(found: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Only the interpreted form tells the fuzzer which branches it takes."""
    environ = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}",
        "TASKYARD_FORM": "interpreted",
    }
    command = [sys.executable, "-m", "fuzz.run", "--found", str(found), *arguments]
    return subprocess.run(
        command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_no_target_fails_in_a_short_run(tmp_path: Path) -> None:
    corpus = [] if LONG else ["--seeds-only"]  # test_corpus.py has run it
    ended = run_fuzz(tmp_path, "--runs", str(RUNS), "--seed", "1", "--jobs", "1", *corpus)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-2000:]
    told = {line.split()[0]: line for line in ended.stdout.splitlines() if " executions " in line}
    assert sorted(told) == catalog.names()
    for line in told.values():
        executions, edges = line.split()[1], line.split()[3]
        assert int(executions.replace(",", "")) >= RUNS
        assert int(edges.replace(",", "")) > 0, f"nothing is instrumented: {line}"


def test_a_planted_defect_is_found_and_reproduces(tmp_path: Path) -> None:
    target = ("--target", catalog.PLANTED)
    ended = run_fuzz(tmp_path, "--runs", str(ENOUGH), "--seed", str(LUCKY), *target)
    assert ended.returncode == 1
    assert "Defect: it was found" in ended.stdout
    (crash,) = tmp_path.glob("planted-crash-*")
    assert crash.read_bytes().startswith(b"\x13yd")
    assert f"make fuzz TARGET=planted INPUT={crash}" in ended.stdout
    again = run_fuzz(tmp_path, *target, "--input", str(crash))
    assert again.returncode != 0
    assert "Defect: it was found" in again.stderr


def test_without_the_fuzzer_one_is_told_so(tmp_path: Path) -> None:
    """Not skipped: what was not run must not look as if it had been."""
    program = (
        "import sys; sys.modules['atheris'] = None\n"
        "from fuzz import run; sys.exit(run.main(['--target', 'lines', '--runs', '1']))"
    )
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert one.MISSING in ended.stderr
