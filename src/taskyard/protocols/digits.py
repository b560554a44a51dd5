"""Numbers in decimal: to bytes and back, without a text in between."""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

_THOUSAND: Final = 1000
_MILLION: Final = 1_000_000
_BILLION: Final = 1_000_000_000
_ZERO: Final = 48
_NINE: Final = 57
_MAX_DIGITS: Final = 18  # digits of any number that fits 64 bits whatever they are

_HEADS: Final[list[bytes]] = [b"%d" % number for number in range(_THOUSAND)]
_TAILS: Final[list[bytes]] = [b"%03d" % number for number in range(_THOUSAND)]


def decimal(number: i64) -> bytes:
    """The digits of a number; three at a time, since `str` makes a text and formats it first."""
    if number < 0 or number >= _BILLION:
        return str(number).encode()
    if number < _THOUSAND:
        return _HEADS[number]
    if number < _MILLION:
        return _HEADS[number // _THOUSAND] + _TAILS[number % _THOUSAND]
    thousands = number // _THOUSAND
    head = _HEADS[thousands // _THOUSAND]
    return b"".join([head, _TAILS[thousands % _THOUSAND], _TAILS[number % _THOUSAND]])


def put_decimal(out: BytesWriter, number: i64) -> None:
    """Write the digits of a number."""
    if number < 0 or number >= _BILLION:
        out.write(decimal(number))
        return
    if number < _THOUSAND:
        out.write(_HEADS[number])
        return
    thousands = number // _THOUSAND
    if thousands < _THOUSAND:
        out.write(_HEADS[thousands])
    else:
        out.write(_HEADS[thousands // _THOUSAND])
        out.write(_TAILS[thousands % _THOUSAND])
    out.write(_TAILS[number % _THOUSAND])


def digit_count(number: i64) -> i64:
    """How many digits a number has that is not negative."""
    count: i64 = 1
    while number >= _THOUSAND:
        number //= _THOUSAND
        count += 3
    if number >= 100:
        return count + 2
    return count + 1 if number >= 10 else count


def number_at(text: bytes, start: i64) -> tuple[i64, i64]:
    """Return the number whose digits begin there, and where they end; -1 if there are none, many,
    or a 0 too much.
    """
    at = start
    end: i64 = len(text)
    number: i64 = 0
    while at < end:
        digit: i64 = text[at]
        if digit < _ZERO or digit > _NINE:
            break
        if at - start == _MAX_DIGITS:
            return -1, at
        number = number * 10 + (digit - _ZERO)
        at += 1
    if at == start or (at - start > 1 and text[start] == _ZERO):
        return -1, at
    return number, at
