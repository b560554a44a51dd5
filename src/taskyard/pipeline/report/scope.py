"""The scope of a report: queues, and a span of time that is cut into bins."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86_400
WEEK: Final = 7 * DAY
# From fine to coarse; a span gets the first that cuts it into few enough.
BINS: Final = (
    *(MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE),
    *(HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR),
    *(DAY, WEEK, 4 * WEEK, 13 * WEEK),
)
MAX_BINS: Final = 120
_UNITS: Final = ((WEEK, "week"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"))
_MONDAY: Final = 4 * DAY  # the first one of the epoch


class Target(NamedTuple):
    """Jobs of the queues that fit should not wait longer than this."""

    queue: str  # a name or a pattern
    seconds: float


@dataclass(frozen=True)
class ReportOptions:
    queues: tuple[str, ...] = ()  # names or patterns; none: all
    since: datetime | None = None
    until: datetime | None = None
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True)
class Scope:
    """`since` and `until` are what was asked for; the bins may begin a little earlier."""

    since: datetime
    until: datetime
    bin: int  # seconds
    first: int  # the beginning of bin 0, in seconds of the epoch
    bins: int

    def start_of(self, number: int) -> datetime:
        return datetime.fromtimestamp(self.first + number * self.bin, UTC)

    @property
    def starts(self) -> list[str]:
        """The bins' beginnings as plots take them: UTC, without saying so."""
        return [f"{self.start_of(number):%Y-%m-%d %H:%M}" for number in range(self.bins)]

    @property
    def seconds(self) -> float:
        return (self.until - self.since).total_seconds()

    @property
    def bin_text(self) -> str:
        size, unit = next(each for each in _UNITS if self.bin % each[0] == 0)
        number = self.bin // size
        return unit if number == 1 else f"{number} {unit}s"

    @property
    def a_bin(self) -> str:
        """As in: within a minute, within 15 minutes."""
        article = "" if self.bin_text[0].isdigit() else "an " if self.bin == HOUR else "a "
        return article + self.bin_text

    def hours_of_week(self) -> dict[tuple[int, int], int]:
        """How often each hour of the week is within the span; Monday is day 0."""
        first = int(self.since.timestamp()) // HOUR
        last = -(-int(self.until.timestamp()) // HOUR)
        whole, rest = divmod(last - first, 168)
        hours = [datetime.fromtimestamp((first + number) * HOUR, UTC) for number in range(168)]
        return {(at.weekday(), at.hour): whole + (number < rest) for number, at in enumerate(hours)}


def make_scope(since: datetime, until: datetime) -> Scope:
    until = max(until, since + timedelta(seconds=1))
    span = (until - since).total_seconds()
    size = next((each for each in BINS if span / each <= MAX_BINS), BINS[-1])
    offset = _MONDAY if size >= WEEK else 0
    first = (int(since.timestamp()) - offset) // size * size + offset
    last = -(-(until.timestamp() - first) // size)
    return Scope(since, until, size, first, max(1, int(last)))


def any_of(patterns: Iterable[str]) -> str:
    """Patterns with * and ? as one regular expression."""
    return "(?s)" + "|".join(f"^(?:{_expression(pattern)})$" for pattern in patterns)


def _expression(pattern: str) -> str:
    instead = {"*": ".*", "?": "."}
    return "".join(instead.get(part) or re.escape(part) for part in re.split(r"([*?])", pattern))
