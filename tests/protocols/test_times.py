"""Times as clients write and read them."""

import pytest

from taskyard.protocols.text import format_moment, format_time, parse_time


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (1, "1970-01-01T00:00:00.000001Z"),
        (1_700_000_000_250_000, "2023-11-14T22:13:20.250000Z"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
        (253_402_300_800_000_000, None),
        (2**63 - 1, None),
        (0, None),
    ],
)
def test_a_moment_is_written_to_the_microsecond(us: int, text: str | None) -> None:
    assert format_moment(us) == text
    if text is not None:
        assert parse_time(text) == us


def test_a_time_is_written_to_the_second() -> None:
    assert format_time(1_700_000_000_999_999) == "2023-11-14T22:13:20Z"
