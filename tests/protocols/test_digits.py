"""Numbers in decimal are what Python makes of them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from taskyard.protocols.text import decimal, digit_count, number_at, put_decimal

I64 = st.integers(-(2**63), 2**63 - 1)


@given(I64)
@example(0)
@example(999)
@example(1_000)
@example(999_999)
@example(1_000_000)
@example(999_999_999)
@example(1_000_000_000)
@example(-1)
def test_a_number_in_decimal(number: int) -> None:
    assert decimal(number) == str(number).encode()
    out = BytesWriter()
    put_decimal(out, number)
    assert out.getvalue() == str(number).encode()
    if number >= 0:
        assert digit_count(number) == len(str(number))


@given(
    st.binary(max_size=3),
    st.integers(0, 10**18 - 1),
    st.binary(max_size=3).filter(lambda behind: not behind[:1].isdigit()),
)
def test_a_number_is_read_wherever_it_stands(before: bytes, number: int, behind: bytes) -> None:
    digits = str(number).encode()
    end = len(before) + len(digits)
    assert number_at(before + digits + behind, len(before)) == (number, end)


@pytest.mark.parametrize("text", [b"", b"-1", b"+1", b"a", b"1" * 19, b"\xff", b"/", b":", b"01"])
def test_what_is_no_number_is_not_read(text: bytes) -> None:
    assert number_at(text, 0)[0] == -1
