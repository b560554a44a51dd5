"""The bar that scripts/compile.py shows: it only grows, and is full at the end."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "compile.py"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def progress(clock: list[float]) -> Any:
    spec = importlib.util.spec_from_file_location("compile_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Progress(on_terminal=True)


def test_it_grows_with_the_time_and_is_full_when_all_units_are_compiled(
    progress: Any, clock: list[float]
) -> None:
    shares = [progress.share()]
    for line in ("unit engine 20000", "unit rest 10000", "begin engine", "begin rest"):
        progress.hear(line)
    for line in ("", "end rest", "", "end engine"):
        for _ in range(10):
            clock[0] += 2
            shares.append(progress.share())
        if line:
            progress.hear(line)
        shares.append(progress.share())
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[1] > 0.1
    assert max(shares[:-1]) < 1
    assert shares[-1] == pytest.approx(1)


def test_a_unit_that_takes_longer_than_it_should_is_never_taken_for_done(
    progress: Any, clock: list[float]
) -> None:
    for line in ("unit engine 20000", "begin engine"):
        progress.hear(line)
    clock[0] += 100_000
    assert 0.9 < progress.share() <= 1
    progress.hear("end engine")
    assert progress.share() == pytest.approx(1)
