"""Sizes are whole numbers of bytes with an optional unit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard.shared.text import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("7B", 7),
        ("1KiB", 1024),
        ("64MiB", 64 * 1024**2),
        ("1 GiB", 1024**3),
        ("2TiB", 2 * 1024**4),
        ("64mib", 64 * 1024**2),
        ("5kB", 5_000),
        ("5MB", 5_000_000),
        ("5GB", 5_000_000_000),
        ("5TB", 5_000_000_000_000),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_parses_a_number_and_a_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MiB",
        "-1",
        "+1",
        "1.5GiB",
        "1  GiB",
        " 1",
        "1 ",
        "1\n",
        "1K",
        "1M",
        "1MiBs",
        "0x10",
        "1_000",
        "٣",
        "9223372036854775808",
        "8388608TiB",
        "9" * 5_000,
    ],
)
def test_refuses_everything_else(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0"), (1023, "1023"), (1024, "1KiB"), (1536, "1536"), (64 * 1024**2, "64MiB")],
)
def test_prints_the_largest_unit_that_is_exact(size: int, text: str) -> None:
    assert format_size(size) == text


@given(st.integers(0, 2**63 - 1))
def test_reads_back_what_it_prints(size: int) -> None:
    assert parse_size(format_size(size)) == size
