"""Bars say how far something is, and nothing where nobody looks."""

from types import SimpleNamespace

import pytest

from taskyard.cli import progress as module
from taskyard.cli.progress import ProgressBar, bar
from taskyard.cli.units import amount, counted, exact, seconds_of, size, span


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "▕    ▏"), (0.5, "▕██  ▏"), (0.53, "▕██▏ ▏"), (1.0, "▕████▏")],
)
def test_a_bar(share: float, text: str) -> None:
    assert bar(share, 4) == text


def test_what_is_known_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: 5.0)
    monkeypatch.setattr(module, "time", clock)
    progress, unknown = ProgressBar("purging mail", 200), ProgressBar("waiting")
    clock.monotonic = lambda: 5.25
    progress.done = 50
    assert "purging mail ▕██████                  ▏  25% 50 of 200, " in progress._text(0)
    assert " s left" in progress._text(0)
    assert unknown._text(0).startswith("⠋ waiting (0 s)")
    unknown.step()
    assert unknown._text(1).startswith("⠙ waiting 1 (0 s)")


def test_nothing_is_drawn_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("working", 3) as progress:
        progress.step()
        assert progress._thread is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0000004, "0us"),
        (0.0121, "12ms"),
        (0.25, "0.2s"),
        (9.99, "10s"),
        (59.6, "1m"),
        (61, "1m1s"),
        (3_600, "1h"),
        (90_061, "1d1h"),
        (864_000_00, "1000d"),
    ],
)
def test_spans(seconds: float | None, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (9.94, "9.9"),
        (9.97, "10"),
        (12345, "12345"),
        (99_999, "99999"),
        (123_456, "123k"),
        (1_234_567, "1.2M"),
    ],
)
def test_amounts(number: float, text: str) -> None:
    assert amount(number) == text


def test_sizes_and_counts() -> None:
    assert [size(n) for n in (0, 1023, 1024, 1 << 20, 1_048_000)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.0 MiB",
        "1.0 MiB",
    ]
    assert (counted(1, "job"), counted(2_000, "job")) == ("1 job", "2,000 jobs")
    assert counted(0, "job") == "no jobs"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (0.0005, "500us"),
        (1.5, "1s500ms"),
        (90, "1m30s"),
        (3661, "1h1m1s"),
        (604_800, "7d"),
        (129_600, "1d12h"),
    ],
)
def test_what_was_set_is_shown_to_the_full(seconds: float, text: str) -> None:
    assert exact(seconds) == text
    assert seconds_of(text, "--ttr") == seconds
