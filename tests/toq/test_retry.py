"""The pauses before retries."""

from __future__ import annotations

import pytest

from taskyard.toq import Countdown


def test_a_countdown_grows_up_to_its_bound() -> None:
    countdown = Countdown(first=1, factor=3, most=20, jitter=0)
    assert [countdown.delay(retry) for retry in (1, 2, 3, 4, 5000)] == [1, 3, 9, 20, 20]


def test_jitter_spreads_the_pauses_within_its_share() -> None:
    countdown = Countdown(first=10, factor=1, most=100, jitter=0.5)
    delays = [countdown.delay(1) for _ in range(200)]
    assert all(5 <= delay <= 15 for delay in delays)
    assert min(delays) < 8 < 12 < max(delays)


def test_jitter_does_not_exceed_the_bound() -> None:
    countdown = Countdown(first=10, most=10, jitter=1)
    assert max(countdown.delay(5) for _ in range(100)) <= 10


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": -1.0},
        {"first": 2.0, "most": 1.0},
        {"most": float("inf")},
        {"first": float("nan")},
        {"factor": 0.5},
        {"jitter": 1.5},
    ],
)
def test_a_countdown_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a countdown needs"):
        Countdown(**wrong)
