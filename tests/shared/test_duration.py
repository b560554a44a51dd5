"""Durations are read and printed as Go does it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard.shared.text import format_duration, parse_duration

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("0", 0),
        ("-0", 0),
        ("+0", 0),
        ("0s", 0),
        ("5s", 5 * SECOND),
        ("+5s", 5 * SECOND),
        ("-5s", -5 * SECOND),
        ("2.5s", 2_500_000),
        ("5.s", 5 * SECOND),
        (".5s", 500_000),
        ("-.5s", -500_000),
        ("300ms", 300_000),
        ("5us", 5),
        ("5µs", 5),
        ("5\u03bcs", 5),
        ("1h", HOUR),
        ("1m30s", MINUTE + 30 * SECOND),
        ("1h1m1s1ms1us", HOUR + MINUTE + SECOND + 1_001),
        ("1s1h", HOUR + SECOND),
        ("168h", 168 * HOUR),
        ("007s", 7 * SECOND),
        ("0.3333333333333333333h", 20 * MINUTE - 1),
        ("9223372036854775807ns", 9_223_372_036_854_775),
        ("-9223372036854775808ns", -9_223_372_036_854_775),
    ],
)
def test_parses_what_go_parses(text: str, us: int) -> None:
    assert parse_duration(text) == us


@pytest.mark.parametrize(
    ("text", "us"),
    [("100ns", 0), ("1999ns", 1), ("-1999ns", -1), ("600ns600ns", 1), ("1.0009ms", 1_000)],
)
def test_cuts_off_what_is_finer_than_a_microsecond(text: str, us: int) -> None:
    assert parse_duration(text) == us


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "+",
        "s",
        ".",
        ".s",
        "-.s",
        "3",
        "1.2.3s",
        "1d",
        "5 s",
        " 5s",
        "5s ",
        "5s\n",
        "5S",
        "--5s",
        "+-5s",
        "1sh",
        "1s2",
        "1e3s",
        "٣s",
        "infinity",
        "9223372036854775808ns",
        "-9223372036854775809ns",
        "2562048h",
        "9" * 5_000 + "s",
        "2562047h2562047h",
    ],
)
def test_refuses_everything_else(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize("digits", ["0" * 5_000, "5" + "0" * 5_000])
def test_any_number_of_digits_after_the_point_is_read(digits: str) -> None:
    assert parse_duration(f"1.{digits}s") == SECOND + (500_000 if digits[0] == "5" else 0)


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0s"),
        (1, "1µs"),
        (999, "999µs"),
        (1_100, "1.1ms"),
        (500_000, "500ms"),
        (SECOND, "1s"),
        (1_500_000, "1.5s"),
        (45 * SECOND, "45s"),
        (SECOND + 1, "1.000001s"),
        (MINUTE, "1m0s"),
        (90 * SECOND, "1m30s"),
        (4 * MINUTE + 5 * SECOND + 1_000, "4m5.001s"),
        (2 * HOUR, "2h0m0s"),
        (5 * HOUR + 6 * MINUTE + 7 * SECOND + 1_000, "5h6m7.001s"),
        (168 * HOUR, "168h0m0s"),
        (-90 * SECOND, "-1m30s"),
        (-5, "-5µs"),
    ],
)
def test_prints_what_go_prints(us: int, text: str) -> None:
    assert format_duration(us) == text


@given(st.integers(-(2**63) // 1_000 + 1, (2**63 - 1) // 1_000))
def test_reads_back_what_it_prints(us: int) -> None:
    assert parse_duration(format_duration(us)) == us
