"""The program that tries a built package out, on what is being tested."""

import subprocess
import sys
from pathlib import Path

from taskyard.broker import metrics

SMOKE = Path(__file__).resolve().parent.parent.parent / "scripts" / "smoke.py"
STEPS = (
    "--version",
    "listens",
    "form",
    "dashboard",
    "Masenko",
    "client",
    "killed",
    "new",
    "stopped",
)


def smoke(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SMOKE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_package_that_works_passes_step_by_step() -> None:
    done = smoke("--form", metrics.form())
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(STEPS)
    for step, line in zip(STEPS, lines, strict=True):
        assert step in line


def test_another_form_than_the_wanted_one_fails() -> None:
    other = "interpreted" if metrics.form() == "compiled" else "compiled"
    done = smoke("--form", other)
    assert done.returncode == 1
    assert f"the form is {metrics.form()}, but must be {other}" in done.stderr


def test_a_wheel_that_cannot_be_installed_fails(tmp_path: Path) -> None:
    wheel = tmp_path / "taskyard-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"no archive")
    done = smoke(str(wheel))
    assert done.returncode == 1
    assert "cannot be installed" in done.stderr
