"""Sizes in bytes as people write them: "64MiB", "1 GiB", "4096"."""

import re
from typing import Final

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
_LIMIT: Final = 2**63 - 1


def parse_size(text: str) -> int:
    """The bytes of a whole number with an optional unit; ValueError for anything else."""
    match = _SIZE.fullmatch(text)
    unit = (match[2] or "").lower() if match else None
    if match is None or unit not in _UNITS:
        raise ValueError(f"{text!r} is not a size")
    size = int(match[1]) * _UNITS[unit]
    if size > _LIMIT:
        raise ValueError(f"{text!r} is too large a size")
    return size


def format_size(size: int) -> str:
    """The shortest exact text in binary units that parse_size reads back."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        scale = _UNITS[unit.lower()]
        if size >= scale and size % scale == 0:
            return f"{size // scale}{unit}"
    return str(size)
