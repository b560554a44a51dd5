"""Texts that stand for durations, sizes and names: the same rules for settings and all protocols.

A duration is in the notation of Go ("1m30s", "500ms") and kept as whole microseconds; settings and
the protocols whose clients send such texts use it. A size is in bytes as people write them:
"64MiB", "1 GiB", "4096".
"""

import re
from typing import Final

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # micro sign
    "\u03bcs": 1_000,  # Greek small letter mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]+)")
# Go keeps a duration in a signed 64-bit count of nanoseconds.
_LIMIT: Final = 2**63
# More digits of a fraction than these cannot change a nanosecond.
_FRACTION_DIGITS: Final = 18
_FRACTION_SCALE: Final = 1_000_000_000_000_000_000

_UNITS: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE: Final = re.compile(r"([0-9]{1,19})(?: ?([A-Za-z]+))?")
_SIZE_LIMIT: Final = 2**63 - 1

MAX_NAME: Final = 255
NAME_RULE: Final = "must be 1 to 255 bytes of UTF-8 without spaces and control characters"
_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


# Durations


def parse_duration(text: str) -> int:
    """The microseconds of a Go duration, what is finer cut off; ValueError for anything else."""
    nanoseconds = parse_nanoseconds(text)
    microseconds = abs(nanoseconds) // 1_000
    return -microseconds if nanoseconds < 0 else microseconds


def parse_nanoseconds(text: str) -> int:
    """The nanoseconds of a Go duration; ValueError for anything else."""
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in {"-", "+"} else text
    if rest == "0":
        return 0
    if not rest:
        raise ValueError(f"{text!r} is not a duration")
    total = 0
    position = 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None:
            raise ValueError(f"{text!r} is not a duration")
        total += _nanoseconds(part, text)
        # The most negative value has no positive counterpart, so it is allowed here as in Go.
        if total > _LIMIT - (0 if negative else 1):
            raise ValueError(f"{text!r} is too long a duration")
        position = part.end()
    return -total if negative else total


def format_duration(us: int) -> str:
    """The text that Go prints for a duration of so many microseconds."""
    if us == 0:
        return "0s"
    sign = "-" if us < 0 else ""
    us = abs(us)
    if us < 1_000:
        return f"{sign}{us}µs"
    if us < 1_000_000:
        return f"{sign}{_decimal(us, 1_000)}ms"
    minutes, us = divmod(us, 60_000_000)
    seconds = _decimal(us, 1_000_000)
    if minutes == 0:
        return f"{sign}{seconds}s"
    hours, minutes = divmod(minutes, 60)
    if hours == 0:
        return f"{sign}{minutes}m{seconds}s"
    return f"{sign}{hours}h{minutes}m{seconds}s"


def _nanoseconds(part: re.Match[str], text: str) -> int:
    whole, fraction, unit = part[1], part[2] or "", part[3]
    if unit not in _NANOSECONDS or not (whole or fraction):
        raise ValueError(f"{text!r} is not a duration")
    digits = whole.lstrip("0")
    if len(digits) > len(str(_LIMIT)):
        raise ValueError(f"{text!r} is too long a duration")
    scale = _NANOSECONDS[unit]
    parts = int(fraction[:_FRACTION_DIGITS].ljust(_FRACTION_DIGITS, "0"))
    return int(digits or "0") * scale + parts * scale // _FRACTION_SCALE


def _decimal(value: int, scale: int) -> str:
    """value / scale in full, without trailing zeros; scale is a power of ten."""
    whole, fraction = divmod(value, scale)
    if fraction == 0:
        return str(whole)
    return f"{whole}.{str(scale + fraction)[1:].rstrip('0')}"


# Sizes


def parse_size(text: str) -> int:
    """The bytes of a whole number with an optional unit; ValueError for anything else."""
    match = _SIZE.fullmatch(text)
    unit = (match[2] or "").lower() if match else None
    if match is None or unit not in _UNITS:
        raise ValueError(f"{text!r} is not a size")
    size = int(match[1]) * _UNITS[unit]
    if size > _SIZE_LIMIT:
        raise ValueError(f"{text!r} is too large a size")
    return size


def format_size(size: int) -> str:
    """The shortest exact text in binary units that parse_size reads back."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        scale = _UNITS[unit.lower()]
        if size >= scale and size % scale == 0:
            return f"{size // scale}{unit}"
    return str(size)


# Names of queues and tasks


def valid_name(text: str) -> bool:
    """Whether NAME_RULE holds."""
    if text.isascii() and text.isprintable():  # as nearly all are: ten times as quick
        return 0 < len(text) <= MAX_NAME and " " not in text
    return _NAME.fullmatch(text) is not None and len(text.encode()) <= MAX_NAME
