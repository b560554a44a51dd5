"""Times, durations and sizes as people write and read them."""

from datetime import UTC, datetime
from typing import Final

from taskyard.cli.failure import CommandFailed
from taskyard.shared.exit_codes import USAGE

_SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))
_EXACT: Final = (
    (86_400_000_000, "d"),
    (3_600_000_000, "h"),
    (60_000_000, "m"),
    (1_000_000, "s"),
    (1_000, "ms"),
    (1, "us"),
)
_BYTES: Final = ("KiB", "MiB", "GiB", "TiB")
_DAY: Final = 86_400


def seconds_of(text: str, flag: str) -> float:
    """Of "90", "1m30s", "250ms", "2d", "1d12h"."""
    try:
        value = _seconds(text)
    except ValueError:
        value = -1.0
    if value < 0:
        raise CommandFailed(
            f"{flag} must be a time such as 250ms, 30s, 5m, 2h, 1d or 1h30m, not {text!r}.", USAGE
        )
    return value


def backoff_of(text: str) -> tuple[float, float]:
    """Of "2s" or "2s,1m": the first pause, and the longest, 0 if there is no bound."""
    base, comma, cap = text.partition(",")
    try:
        return seconds_of(base, "--backoff"), seconds_of(cap, "--backoff") if comma else 0.0
    except CommandFailed:
        raise CommandFailed(
            "--backoff must be the first pause, or that and the longest, "
            f"such as 2s or 2s,1m, not {text!r}.",
            USAGE,
        ) from None


def _seconds(text: str) -> float:
    from taskyard.shared.text import parse_duration

    days, mark, rest = text.rpartition("d")
    if mark:
        return _plain(days) * _DAY + (parse_duration(rest) / 1e6 if rest else 0.0)
    return _plain(text) if text[-1:].isdigit() else parse_duration(text) / 1e6


def _plain(text: str) -> float:
    """float() takes much more: exponents, underscores, infinity."""
    if not text.isascii() or not text.replace(".", "", 1).isdigit():
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def moment_of(text: str, flag: str) -> datetime:
    """Of a time in ISO 8601, which is local if it names no zone, or of seconds since 1970."""
    try:
        if text.isdigit():
            return datetime.fromtimestamp(int(text), UTC)
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise CommandFailed(
            f"{flag} must be a time such as 2030-01-31T12:00 or 2030-01-31T12:00Z, not {text!r}.",
            USAGE,
        ) from None


def bytes_of(text: str, flag: str) -> int:
    from taskyard.shared.text import parse_size

    try:
        return parse_size(text)
    except ValueError:
        raise CommandFailed(f"{flag} must be a size such as 64MiB, not {text!r}.", USAGE) from None


def span(seconds: float | None) -> str:
    """About how long, in at most six characters."""
    if seconds is None:
        return "-"
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f}ms" if seconds >= 0.00095 else f"{seconds * 1e6:.0f}us"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    for size, unit in _SPANS:
        if whole >= size:
            many, rest = divmod(whole, size)
            smaller = {"d": (3_600, "h"), "h": (60, "m"), "m": (1, "s")}[unit]
            part = rest // smaller[0]
            return f"{many}{unit}{part}{smaller[1]}" if part and many < 100 else f"{many}{unit}"
    return f"{whole}s"


def exact(seconds: float) -> str:
    """Format a duration as it was written: 7d, 1m30s, 250ms."""
    left = round(seconds * 1_000_000)
    parts = []
    for unit, name in _EXACT:
        many, left = divmod(left, unit)
        if many:
            parts.append(f"{many}{name}")
    return "".join(parts) or "0s"


def size(count: float) -> str:
    if count < 1024:
        return f"{count:.0f} B"
    for unit in _BYTES:
        count /= 1024
        if count < 1000 or unit == _BYTES[-1]:
            break
    return f"{count:.1f} {unit}" if count < 99.95 else f"{count:.0f} {unit}"


def amount(count: float) -> str:
    """A number in at most five characters."""
    if count < 9.95 and count != int(count):
        return f"{count:.1f}"
    if count < 99_999.5:
        return f"{count:.0f}"
    for unit in ("k", "M", "G", "T"):
        count /= 1000
        if count < 999.5 or unit == "T":
            break
    return f"{count:.1f}{unit}" if count < 99.95 else f"{count:.0f}{unit}"


def counted(count: int, noun: str) -> str:
    """Such as "no jobs", "1 job", "2,000 jobs"."""
    if not count:
        return f"no {noun}s"
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def since(text: str | None, now: datetime) -> str:
    """How long ago a time of the API was, or in how long it will be."""
    if not text:
        return "-"
    passed = (now - datetime.fromisoformat(text)).total_seconds()
    return span(passed) if passed >= 0 else f"in {span(-passed)}"


def local(text: str | None, now: datetime) -> str:
    """Format a time of the API in the zone of this machine, and how far away it is."""
    if not text:
        return "-"
    shown = datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S%z")
    away = since(text, now)
    return f"{shown} ({away})" if away.startswith("in ") else f"{shown} ({away} ago)"
