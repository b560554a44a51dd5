"""The choice where to flush follows from what was measured."""

import os
from pathlib import Path

import pytest

from taskyard.journal import flush


@pytest.mark.parametrize(
    ("measured", "hand_over", "mode"),
    [
        (200, 22, "inline"),
        (50, 22, "inline"),
        (2_000, 22, "thread"),
        (10_000, 60, "thread"),
        (1_000, 500, "inline"),
        (1_001, 500, "thread"),  # the machine is busy, which makes no disk quick
    ],
)
def test_a_quick_flush_is_done_inline(measured: int, hand_over: int, mode: str) -> None:
    choice = flush.choose_mode(measured, hand_over)
    assert (choice.mode, choice.flush_us, choice.thread_switch_us) == (mode, measured, hand_over)


def test_measuring_leaves_nothing_behind(tmp_path: Path) -> None:
    choice = flush.choose_sync_mode(tmp_path)
    assert choice.mode in {"inline", "thread"}
    assert choice.flush_us > 0
    assert choice.thread_switch_us > 0
    assert list(tmp_path.iterdir()) == []


def test_a_slow_disk_is_not_measured_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each flush takes 20 ms by a clock that only flushes move."""
    clock = [0.0]
    flushes = []

    def fdatasync(fd: int) -> None:
        clock[0] += 0.02
        flushes.append(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    assert flush.measure_flush_us(str(tmp_path)) == 20_000
    assert len(flushes) == 3


def test_a_probe_that_a_crash_left_behind_is_used_again(tmp_path: Path) -> None:
    (tmp_path / "flush.probe").write_bytes(b"old")
    flush.measure_flush_us(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
