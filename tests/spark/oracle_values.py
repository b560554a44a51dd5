"""Single values of the lake's tables, as the oracle has them: times, errors, percentiles."""

import re
from datetime import UTC, datetime, timedelta

from taskyard.engine import records as r

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_NOISE = (
    (re.compile(r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<uuid>"),
    (re.compile(r"\b0x[0-9a-fA-F]+"), "<hex>"),
    (re.compile(r"\b[0-9a-fA-F]{8,}\b"), "<hex>"),
    (re.compile(r"[0-9]+"), "<n>"),
)
_MESSAGE = 200


def percentile(values: list[float], percent: int) -> float | None:
    """Between the two nearest values, as NumPy and Spark's `percentile` have it."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def error_of(record: r.Record) -> str | None:
    return record.blob.decode(errors="replace") or None


def class_of(error: str | None) -> str:
    line = line_of(error or "")
    head = line.partition(":")[0]
    for word in (head, *line.split()):
        if _IDENTIFIER.fullmatch(word):
            return word
    return "unknown"


def message_of(text: str) -> str:
    line = line_of(text)
    for pattern, instead in _NOISE:
        line = pattern.sub(instead, line)
    return line[:_MESSAGE]


def line_of(text: str) -> str:
    """Of a traceback, whose other lines are indented or begin others, the last one."""
    lines = text.strip().split("\n")
    return (lines[-1] if lines[0].startswith("Traceback (") else lines[0]).strip()


def text_of(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def moment(time: int | None) -> datetime | None:
    return None if time is None else _EPOCH + timedelta(microseconds=time)


def seconds(duration: int) -> float:
    return duration / 1_000_000


def between(start: int | None, end: int | None) -> float | None:
    return None if start is None or end is None else seconds(end - start)
