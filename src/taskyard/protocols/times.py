"""Times as clients write them: RFC 3339, from and to microseconds since the epoch."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_RFC_3339: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_10000: Final = 253_402_300_800_000_000
_MICROSECOND: Final = timedelta(microseconds=1)


def parse_time(moment: str) -> int:
    """Parse a time with a zone; a time before the epoch is the epoch."""
    if not _RFC_3339.fullmatch(moment):
        raise ValueError(f"not a time with a zone: {moment}")
    return max(0, (datetime.fromisoformat(moment.upper()) - _EPOCH) // _MICROSECOND)


def format_moment(us: int) -> str | None:
    """In UTC, down to the microsecond; None: none, or beyond what a year of four digits can say."""
    if not 0 < us < _YEAR_10000:
        return None
    moment = _EPOCH + timedelta(microseconds=us)
    return moment.isoformat(timespec="microseconds")[:-6] + "Z"  # without its +00:00


def format_time(us: int) -> str:
    """In UTC, down to the whole second."""
    return (_EPOCH + timedelta(seconds=us // 1_000_000)).strftime("%Y-%m-%dT%H:%M:%SZ")
