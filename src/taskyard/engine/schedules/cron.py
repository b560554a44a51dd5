"""When a schedule is due next: a pure function of its expression, its time zone and a time.

The syntax, and which days an expression means, are cronsim's, as in Debian's cron. The walk through
the hours is our own, since every tick has to be right where a zone shifts its clocks, also by less
than an hour:

- An expression whose minute and hour both begin with something else than `*` names times of the
  day. One that the clock skips is due at the moment of the shift; one that the clock shows twice is
  due the first time only.
- Any other repeats with the clock as it runs: a skipped time is not due, and one that is shown
  twice is due twice.

Zones are read from disk when they are first named, and kept.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from mypy_extensions import i64

from taskyard.engine.model.events import InvalidOption
from taskyard.engine.model.job import SECOND

MAX_EXPRESSION_CHARS: Final = 255  # characters
_MAX_YEARS_AHEAD: Final = 50  # if there is no tick within these, there is none
_DAY_S: Final = 86_400
_MAX_UTC_OFFSET_S: Final = 15 * 3600  # no zone is further from UTC than this
_CACHED: Final = 1024  # expressions, and days of a zone: schedules share them
_EPOCH: Final = date(1970, 1, 1)

_SHORT_FORMS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_zones: dict[str, Zone] = {}
_crons: dict[tuple[str, str], Cron] = {}


def load_zone(name: str) -> Zone:
    """Return the time zone of that name, read from disk the first time."""
    known = _zones.get(name)
    if known is not None:
        return known
    try:
        zone = Zone(ZoneInfo(name))
    except (KeyError, ValueError, OSError):  # the last is raised for a directory of zones
        raise InvalidOption(
            "timezone", f"there is no time zone {name!r}; one is Europe/Berlin"
        ) from None
    _zones[name] = zone
    return zone


def read_cron(expression: str, zone: str) -> Cron:
    """Parse the expression; refused if it is none."""
    key = (expression, zone)
    known = _crons.get(key)
    if known is None:
        known = Cron(expression, load_zone(zone))
        if len(_crons) >= _CACHED:
            _crons.clear()
        _crons[key] = known
    return known


class Day:
    """One day by the calendar of a zone. Moments are in seconds since the Unix epoch.

    It is one stretch of time with one distance from UTC, or two such where the clocks shift.
    """

    __slots__ = ("midnight", "new", "old", "shift")

    def __init__(self, midnight: i64, old: i64, new: i64, shift: i64) -> None:
        self.midnight = midnight  # as it would be in UTC
        self.old = old  # seconds from UTC at its beginning
        self.new = new  # and at its end
        self.shift = shift  # the moment from which on it is the new one, if it is another


class Zone:
    """A time zone, and how its clocks go on the days that were computed."""

    def __init__(self, info: tzinfo) -> None:
        self._info = info
        self._days: dict[int, Day] = {}

    def date_at(self, moment: i64) -> date:
        return datetime.fromtimestamp(int(moment), self._info).date()

    def day(self, day: date) -> Day:
        number: int = (day - _EPOCH).days
        known = self._days.get(number)
        if known is None:
            known = self._compute_day(number * _DAY_S)
            if len(self._days) >= _CACHED:
                self._days.clear()
            self._days[number] = known
        return known

    def _compute_day(self, midnight: i64) -> Day:
        before = midnight - _MAX_UTC_OFFSET_S
        after = midnight + _DAY_S + _MAX_UTC_OFFSET_S
        old = self._offset(before)
        new = self._offset(after)
        if old == new:
            return Day(midnight, old, new, 0)
        while after - before > 1:
            middle = (before + after) // 2
            if self._offset(middle) == new:
                after = middle
            else:
                before = middle
        return Day(midnight, old, new, after)

    def _offset(self, moment: i64) -> i64:
        """How far the zone is from UTC then, in seconds."""
        offset = datetime.fromtimestamp(int(moment), self._info).utcoffset()
        return offset // timedelta(seconds=1) if offset is not None else 0


class Cron:
    """One expression in one time zone."""

    def __init__(self, expression: str, zone: Zone) -> None:
        parsed = _parse_expression(expression)
        minute, hour = parsed.parts[1], parsed.parts[2]
        self._parsed = parsed
        self._months = parsed.months
        self._hours = sorted(parsed.hours)
        self._minutes = sorted(parsed.minutes)
        self._names_times_of_day = not minute.startswith("*") and not hour.startswith("*")
        self._zone = zone
        # Only days from now on are needed, and the remainder is large.
        parsed.seconds = parsed.minutes = parsed.hours = set()

    def next_after(self, after: i64) -> i64:
        """The first tick later than that time, in microseconds; 0: none in 50 years."""
        moment: i64 = after // SECOND
        try:
            # The clock may go back over midnight, so what is left of the day before counts too.
            day = self._zone.date_at(moment) - timedelta(days=1)
            last = day.year + _MAX_YEARS_AHEAD
            while day.year <= last:
                if day.month not in self._months:
                    day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                    continue
                if self._parsed.match_day(day):
                    found = self._first_tick_of_day(self._zone.day(day), moment)
                    if found:
                        return found * SECOND
                day += timedelta(days=1)
        except (OverflowError, ValueError, OSError):  # beyond what a date can say
            return 0
        return 0

    def _first_tick_of_day(self, day: Day, after: i64) -> i64:
        """The first tick of this day later than `after`; 0: none."""
        midnight = day.midnight
        if day.old == day.new:
            return self._first_tick_between(midnight - day.old, after, 0, _DAY_S)
        shift = day.shift
        left = shift + day.old - midnight  # what the clock shows just before the shift
        right = shift + day.new - midnight  # and at it
        found = self._first_tick_between(midnight - day.old, after, 0, min(left, i64(_DAY_S)))
        if found:
            return found
        if self._names_times_of_day:
            if shift > after and 0 <= self._first_minute(max(left, i64(0))) * 60 < min(
                right, i64(_DAY_S)
            ):
                return shift
            right = max(left, right)
        return self._first_tick_between(midnight - day.new, after, max(right, i64(0)), _DAY_S)

    def _first_tick_between(self, midnight: i64, after: i64, start: i64, end: i64) -> i64:
        """The first tick later than `after` from `start` to before `end`, as the clock shows them,
        in seconds of the day that begins at `midnight`; 0: none."""
        if after >= midnight + start:
            start = after - midnight + 1
        if start >= end:
            return 0
        found = self._first_minute(start) * 60
        return midnight + found if 0 <= found < end else 0

    def _first_minute(self, start: i64) -> i64:
        """The first minute of the day from that second of it on; below 0: none."""
        at = (start + 59) // 60
        hour = at // 60
        hours = self._hours
        index = bisect_left(hours, hour)
        if index < len(hours) and hours[index] == hour:
            place = bisect_left(self._minutes, at % 60)
            if place < len(self._minutes):
                return hour * 60 + self._minutes[place]
            index += 1
        return hours[index] * 60 + self._minutes[0] if index < len(hours) else -1


def _parse_expression(expression: str) -> CronSim:
    if len(expression) > MAX_EXPRESSION_CHARS or not expression.isascii():
        raise InvalidOption("cron", f"must be at most {MAX_EXPRESSION_CHARS} characters of ASCII")
    long_form = _SHORT_FORMS.get(expression.strip().lower(), expression)
    if long_form.strip().startswith("@"):
        raise InvalidOption("cron", f"must be five fields or one of {', '.join(_SHORT_FORMS)}")
    if len(long_form.split()) != 5:
        raise InvalidOption(
            "cron", "must have five fields: minute, hour, day of month, month, day of week"
        )
    try:
        return CronSim(long_form, datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, AssertionError, ValueError) as error:
        raise InvalidOption("cron", f"cannot be read: {error}") from None
