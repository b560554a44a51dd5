"""Addresses that are often wrong wait longer, and are forgotten after a while."""

import pytest

from taskyard.access.authenticator import (
    FIRST_DELAY_US,
    FORGET_AFTER_US,
    MAX_DELAY_US,
    MAX_MISTAKES,
    GuessCounter,
    LoginThrottle,
    network_of,
)

NOW = 1_700_000_000_000_000


def test_each_wrong_answer_takes_twice_as_long_up_to_a_limit() -> None:
    place = LoginThrottle[int]().for_address("192.0.2.1", NOW)
    waits = [place.record_failure(NOW) - NOW for _ in range(100)]
    assert waits[:6] == [250_000, 500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000]
    assert set(waits[5:]) == {MAX_DELAY_US}
    assert waits[0] == FIRST_DELAY_US


def test_an_address_is_forgiven_after_some_quiet() -> None:
    places = LoginThrottle[int]()
    for _ in range(4):
        places.for_address("a", NOW).record_failure(NOW)
    assert places.for_address("a", NOW + FORGET_AFTER_US - 1).failures == 4
    assert places.for_address("a", NOW + FORGET_AFTER_US).failures == 0


def test_the_table_is_bounded_and_keeps_those_heard_of_last() -> None:
    places = LoginThrottle[int](3)
    for name in "abc":
        places.for_address(name, NOW).record_failure(NOW)
    places.for_address("a", NOW)
    places.for_address("d", NOW)
    assert len(places) == 3
    assert places.for_address("a", NOW).failures == 1
    assert places.for_address("c", NOW).failures == 1
    assert places.for_address("b", NOW).failures == 0


def test_an_address_where_somebody_waits_is_not_dropped() -> None:
    places = LoginThrottle[int](2)
    busy = [places.for_address(name, NOW) for name in "ab"]
    for place in busy:
        place.busy = True
    for name in "cdefg":
        places.for_address(name, NOW)
    assert [places.for_address(name, NOW) for name in "ab"] == busy
    assert len(places) == 3


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("unknown", "unknown"),
        ("un:known", "un:known"),
    ],
)
def test_addresses_of_one_network_count_together(address: str, network: str) -> None:
    assert network_of(address) == network


def test_so_many_guesses_are_remembered_and_the_oldest_go() -> None:
    guesses = GuessCounter(2)
    for key in (b"a", b"b", b"a", b"c"):
        for number in range(MAX_MISTAKES):
            guesses.record_guess(key, b"%d" % number, NOW)
    assert len(guesses) == 2
    assert guesses.has_many(b"a", NOW + FORGET_AFTER_US - 1)
    assert not guesses.has_many(b"b", NOW)
    assert not guesses.has_many(b"a", NOW + FORGET_AFTER_US)
    for number in range(MAX_MISTAKES):
        guesses.forget_guess(b"a", b"%d" % number)
        assert not guesses.has_many(b"a", NOW)
    assert len(guesses) == 1
