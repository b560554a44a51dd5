"""Measurements that are made again while the host of the machine gives it to others."""

import argparse

import pytest
from support.stealing_host import Host

from benchmarks import patience, readings, rig
from benchmarks.patience import BREATH, Patience


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


class Series:
    """Each measurement finds the next number, and takes a second."""

    def __init__(self, host: Host) -> None:
        self.last = 0
        self._host = host

    def take(self) -> int:
        self.last += 1
        self._host.pass_by(1.0)
        return self.last


@pytest.mark.parametrize(
    ("seconds", "shares", "kept", "thrown_away"),
    [
        (60.0, [0.0], 1, 0),
        (60.0, [0.1], 1, 0),
        (60.0, [0.5, 0.2, 0.05], 3, 2),
        (0.0, [0.5], 1, 0),
        (2 * (BREATH + 1), [0.5, 0.2, 0.3], 2, 2),
    ],
    ids=["quiet", "just quiet", "disturbed at first", "no patience", "the least disturbed"],
)
def test_the_first_undisturbed_or_the_least_disturbed_is_kept(
    host: Host, seconds: float, shares: list[float], kept: int, thrown_away: int
) -> None:
    host.steals(*shares)
    told: list[str] = []
    patient = Patience(seconds, told.append)

    assert patient.measure("it", Series(host).take) == (kept, min(shares))

    assert (patient.thrown_away, patient.kept) == (thrown_away, [min(shares)])
    assert told == [f"{share:.0%} was stolen: again it" for share in shares[:thrown_away]]
    assert host.shares == []


def test_all_measurements_share_the_patience(host: Host) -> None:
    host.steals(0.5, 0.0, 0.5)
    patient = Patience(BREATH, lambda text: None)
    series = Series(host)

    assert patient.measure("one", series.take) == (2, 0.0)
    assert patient.measure("two", series.take) == (3, 0.5)


def test_what_it_takes_to_measure_again_is_done_before(host: Host) -> None:
    host.steals(0.5, 0.3, 0.05)
    prepared: list[int] = []
    series = Series(host)

    kept, _ = Patience(60.0, lambda text: None).measure(
        "it", series.take, lambda: prepared.append(series.last)
    )

    assert kept == 3
    assert prepared == [1, 2]


def test_the_option_is_in_minutes_and_not_below_nothing() -> None:
    parser = argparse.ArgumentParser()
    patience.add_argument(parser)

    assert patience.seconds_of(parser.parse_args([])) == 900.0
    assert patience.seconds_of(parser.parse_args(["--patience", "0.5"])) == 30.0
    with pytest.raises(rig.BenchmarkError, match="must not be less than 0, not -1"):
        patience.seconds_of(parser.parse_args(["--patience", "-1"]))


def test_what_the_host_takes_is_a_share_of_what_was_asked_for() -> None:
    before, after = readings.Processors(1_000, 50), readings.Processors(1_200, 80)

    assert after.stolen_since(before) == 0.15
    assert before.stolen_since(before) == 0.0
    now = readings.processors()
    assert 0 <= now.stolen <= now.wanted
