"""What a report looks at: a span of time cut into bins, and the queues that get a line each."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86_400
WEEK: Final = 7 * DAY
# From fine to coarse; a span gets the first that cuts it into few enough.
BINS: Final = (
    MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    WEEK,
    4 * WEEK,
    13 * WEEK,
)
MAX_BINS: Final = 120
SHOWN_QUEUES: Final = 12
_MONDAY: Final = 4 * DAY  # the first one of the epoch


@dataclass(frozen=True)
class Target:
    """Jobs of the queues that fit should not wait longer than this."""

    queue: str  # a name or a pattern
    seconds: float


@dataclass(frozen=True)
class Options:
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
    queues: tuple[str, ...] = ()  # those with a line of their own, the busiest first
    others: int = 0  # how many more there are

    def start_of(self, number: int) -> datetime:
        return datetime.fromtimestamp(self.first + number * self.bin, UTC)

    def starts(self) -> list[str]:
        """The bins' beginnings as plots take them: UTC, without saying so."""
        return [f"{self.start_of(number):%Y-%m-%d %H:%M}" for number in range(self.bins)]

    def labels(self) -> list[str | None]:
        """The shown queues, and None for all others if there are any."""
        return [*self.queues, *([None] if self.others else [])]

    def seconds(self) -> float:
        return (self.until - self.since).total_seconds()


def make_scope(since: datetime, until: datetime) -> Scope:
    until = max(until, since + timedelta(seconds=1))
    span = (until - since).total_seconds()
    size = next((each for each in BINS if span / each <= MAX_BINS), BINS[-1])
    offset = _MONDAY if size >= WEEK else 0
    first = (int(since.timestamp()) - offset) // size * size + offset
    last = -(-(until.timestamp() - first) // size)
    return Scope(since, until, size, first, max(1, int(last)))


def fits(pattern: str) -> str:
    """A pattern with * and ? as a regular expression that Java and Python understand."""
    parts = (
        ".*" if part == "*" else "." if part == "?" else re.escape(part)
        for part in re.split(r"([*?])", pattern)
    )
    return "(?s)^(?:" + "".join(parts) + ")$"


def any_of(patterns: Iterable[str]) -> str:
    return "|".join(fits(pattern).removeprefix("(?s)") for pattern in patterns)
