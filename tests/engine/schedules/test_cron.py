"""When a cron expression is due next: by a walk through each minute, and where clocks shift."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from engine.harness import property_settings
from hypothesis import example, given
from hypothesis import strategies as st

from taskyard.engine.model.events import InvalidOption
from taskyard.engine.model.job import SECOND
from taskyard.engine.schedules.cron import read_cron

MINUTE = timedelta(minutes=1)


def ticks(expression: str, zone: str, after: str, count: int) -> list[str]:
    """The next ticks after a local time, as the clock there shows them."""
    cron = read_cron(expression, zone)
    place = ZoneInfo(zone)
    moment = round(datetime.fromisoformat(after).replace(tzinfo=place).timestamp()) * SECOND
    found = []
    for _ in range(count):
        moment = cron.next_after(moment)
        assert moment
        local = datetime.fromtimestamp(moment // SECOND, place)
        found.append(local.isoformat(" ", "minutes"))
    return found


def days(expression: str, after: str, count: int) -> list[str]:
    return [tick[:10] for tick in ticks(expression, "UTC", after, count)]


# Days


def test_a_leap_day_comes_every_four_years_but_not_in_2100() -> None:
    assert days("0 0 29 2 *", "2092-01-01", 3) == ["2092-02-29", "2096-02-29", "2104-02-29"]


def test_the_31st_leaves_out_shorter_months() -> None:
    assert days("0 0 31 * *", "2026-01-31", 3) == ["2026-03-31", "2026-05-31", "2026-07-31"]


def test_the_last_day_of_each_month() -> None:
    assert days("0 0 L * *", "2028-01-01", 3) == ["2028-01-31", "2028-02-29", "2028-03-31"]


def test_either_the_day_of_the_month_or_that_of_the_week() -> None:
    """As cron has it, where neither field begins with a star."""
    assert days("0 0 13 * FRI", "2026-11-09", 3) == ["2026-11-13", "2026-11-20", "2026-11-27"]
    assert days("0 0 13 * MON", "2026-11-09", 2) == ["2026-11-13", "2026-11-16"]


def test_the_second_friday() -> None:
    assert days("0 0 * * FRI#2", "2026-11-01", 2) == ["2026-11-13", "2026-12-11"]


def test_short_forms() -> None:
    assert ticks("@hourly", "UTC", "2026-01-01", 1) == ["2026-01-01 01:00+00:00"]
    assert ticks(" @Daily ", "UTC", "2026-01-01", 1) == ["2026-01-02 00:00+00:00"]
    assert ticks("@weekly", "UTC", "2026-01-01", 1) == ["2026-01-04 00:00+00:00"]
    assert ticks("@monthly", "UTC", "2026-01-01", 1) == ["2026-02-01 00:00+00:00"]
    assert ticks("@yearly", "UTC", "2026-01-01", 1) == ["2027-01-01 00:00+00:00"]


def test_a_tick_is_later_than_the_time_it_is_asked_for() -> None:
    cron = read_cron("* * * * *", "UTC")
    assert cron.next_after(0) == 60 * SECOND
    assert cron.next_after(60 * SECOND - 1) == 60 * SECOND
    assert cron.next_after(60 * SECOND) == 120 * SECOND


# Clocks that shift


def test_a_time_that_the_clock_skips_comes_at_the_shift() -> None:
    assert ticks("30 2 * * *", "Europe/Berlin", "2026-03-28 12:00", 2) == [
        "2026-03-29 03:00+02:00",
        "2026-03-30 02:30+02:00",
    ]
    assert ticks("30 2 * * *", "America/New_York", "2026-03-07 12:00", 2) == [
        "2026-03-08 03:00-04:00",
        "2026-03-09 02:30-04:00",
    ]
    assert ticks("15 2 * * *", "Australia/Lord_Howe", "2026-10-03 12:00", 2) == [
        "2026-10-04 02:30+11:00",
        "2026-10-05 02:15+11:00",
    ]


def test_two_times_that_the_clock_skips_are_one_tick() -> None:
    assert ticks("0,30 2,3 * * *", "Europe/Berlin", "2026-03-28 12:00", 3) == [
        "2026-03-29 03:00+02:00",
        "2026-03-29 03:30+02:00",
        "2026-03-30 02:00+02:00",
    ]


def test_a_time_that_the_clock_shows_twice_comes_once() -> None:
    assert ticks("30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", 2) == [
        "2026-10-25 02:30+02:00",
        "2026-10-26 02:30+01:00",
    ]
    assert ticks("30 1 * * *", "America/New_York", "2026-10-31 12:00", 2) == [
        "2026-11-01 01:30-04:00",
        "2026-11-02 01:30-05:00",
    ]
    assert ticks("45 1 * * *", "Australia/Lord_Howe", "2026-04-04 12:00", 2) == [
        "2026-04-05 01:45+11:00",
        "2026-04-06 01:45+10:30",
    ]


def test_who_asks_in_the_second_of_two_equal_hours_gets_a_later_tick() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    second = datetime(2026, 10, 25, 2, 10, tzinfo=berlin, fold=1)
    moment = round(second.timestamp()) * SECOND
    found = read_cron("30 2 * * *", "Europe/Berlin").next_after(moment)
    assert datetime.fromtimestamp(int(found) // SECOND, berlin).day == 26


def test_what_repeats_goes_on_through_a_shift() -> None:
    assert ticks("*/30 * * * *", "Europe/Berlin", "2026-03-29 01:00", 3) == [
        "2026-03-29 01:30+01:00",
        "2026-03-29 03:00+02:00",
        "2026-03-29 03:30+02:00",
    ]
    assert ticks("*/30 * * * *", "Europe/Berlin", "2026-10-25 01:30", 5) == [
        "2026-10-25 02:00+02:00",
        "2026-10-25 02:30+02:00",
        "2026-10-25 02:00+01:00",
        "2026-10-25 02:30+01:00",
        "2026-10-25 03:00+01:00",
    ]


def test_a_shift_of_half_an_hour_loses_nothing_after_it() -> None:
    assert ticks("*/20 3 * * *", "Australia/Lord_Howe", "2026-10-04 00:00", 2) == [
        "2026-10-04 03:00+11:00",
        "2026-10-04 03:20+11:00",
    ]
    assert ticks("*/20 1,2 * * *", "Australia/Lord_Howe", "2026-04-05 01:00", 5) == [
        "2026-04-05 01:20+11:00",
        "2026-04-05 01:40+11:00",
        "2026-04-05 01:40+10:30",
        "2026-04-05 02:00+10:30",
        "2026-04-05 02:20+10:30",
    ]


def test_a_day_that_a_zone_has_left_out_comes_with_the_next() -> None:
    """Samoa went from the 29th to the 31st of December 2011."""
    assert ticks("0 12 30 12 *", "Pacific/Apia", "2011-12-28", 1) == ["2011-12-31 00:00+14:00"]


# All of it, minute by minute


@dataclass(frozen=True)
class Wanted:
    """An expression, and what its fields mean."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    stars: tuple[bool, bool, bool, bool, bool]

    def expression(self) -> str:
        fields = (self.minutes, self.hours, self.days, self.months, self.weekdays)
        texts = [",".join(str(number) for number in sorted(field)) for field in fields]
        return " ".join("*" if star else text for star, text in zip(self.stars, texts, strict=True))

    def is_named(self) -> bool:
        return not self.stars[0] and not self.stars[1]

    def means(self, local: datetime) -> bool:
        minute, hour, day, month, weekday = self.stars
        if not (month or local.month in self.months):
            return False
        in_month = day or local.day in self.days
        in_week = weekday or local.isoweekday() % 7 in self.weekdays
        if not (in_month and in_week if day or weekday else in_month or in_week):
            return False
        return (hour or local.hour in self.hours) and (minute or local.minute in self.minutes)

    def first(self, zone: ZoneInfo, after: datetime, minutes: int) -> datetime | None:
        """The first tick of so many minutes, found by looking at each of them."""
        moment = after.replace(second=0, microsecond=0)
        before = moment.astimezone(zone).replace(tzinfo=None)
        for _ in range(minutes):
            moment += MINUTE
            local = moment.astimezone(zone)
            shown = local.replace(tzinfo=None)
            if self._is_tick(local, shown, before):
                return moment
            before = shown
        return None

    def _is_tick(self, local: datetime, shown: datetime, before: datetime) -> bool:
        if not self.is_named():
            return self.means(shown)
        if self.means(shown) and not local.fold:
            return True
        skipped = before + MINUTE
        while skipped < shown:
            if self.means(skipped):
                return True
            skipped += MINUTE
        return False


def some(least: int, most: int, count: int) -> st.SearchStrategy[frozenset[int]]:
    return st.frozensets(st.integers(least, most), min_size=1, max_size=count)


wanted = st.builds(
    Wanted,
    some(0, 59, 6),
    some(0, 5, 4) | some(0, 23, 4),
    some(1, 31, 20),
    some(1, 12, 9),
    some(0, 6, 4),
    st.tuples(*[st.booleans()] * 5),
)
SHIFTS = [
    ("Europe/Berlin", "2026-03-28T20:00:00"),
    ("Europe/Berlin", "2026-10-24T20:00:00"),
    ("America/New_York", "2026-03-08T03:00:00"),
    ("America/New_York", "2026-11-01T02:00:00"),
    ("Australia/Lord_Howe", "2026-04-04T10:00:00"),
    ("Australia/Lord_Howe", "2026-10-03T10:00:00"),
    ("America/St_Johns", "2010-11-07T00:00:00"),  # from 00:01 back to the day before
    ("America/Asuncion", "2023-10-01T01:00:00"),  # it skips the first hour of a day
    ("Asia/Kolkata", "2026-05-31T17:00:00"),
    ("UTC", "2028-02-28T20:00:00"),
]
WINDOW = 36 * 60


@property_settings
@given(
    wanted=wanted,
    shift=st.sampled_from(SHIFTS),
    late=st.timedeltas(timedelta(), timedelta(hours=9)),
)
@example(
    wanted=Wanted(
        frozenset({0}),
        frozenset({2}),
        frozenset({1}),
        frozenset({1}),
        frozenset({0}),
        (False, False, True, True, True),
    ),
    shift=SHIFTS[0],
    late=timedelta(),
)
def test_no_tick_is_lost_and_none_is_made_up(
    wanted: Wanted, shift: tuple[str, str], late: timedelta
) -> None:
    zone, start = shift
    after = datetime.fromisoformat(start).replace(tzinfo=UTC) + late
    place = ZoneInfo(zone)
    moment = round(after.timestamp()) * SECOND
    found = int(read_cron(wanted.expression(), zone).next_after(moment)) if _ever(wanted) else 0
    expected = wanted.first(place, after, WINDOW)
    end = (after.replace(second=0, microsecond=0) + WINDOW * MINUTE).timestamp() * SECOND
    if expected is None:
        assert not found or found > end
    else:
        assert found == round(expected.timestamp()) * SECOND


def _ever(wanted: Wanted) -> bool:
    """Expressions for days that no month has are refused."""
    try:
        read_cron(wanted.expression(), "UTC")
    except InvalidOption:
        return False
    return True


# What is refused


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "5-1 * * * *",
        "a * * * *",
        "0 0 30 2 *",
        "0 0 31 2,4,6 *",
        "@reboot",
        "@every 5m",
        "\u0665 * * * *",
        "1," * 200 + "1 * * * *",
    ],
)
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        read_cron(expression, "UTC")
    assert refused.value.option == "cron"


def test_an_expression_may_never_come() -> None:
    """The last weekday of a month is no Sunday."""
    assert read_cron("0 0 LW * */7", "UTC").next_after(0) == 0


@pytest.mark.parametrize(
    "zone", ["", "Europe", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "Europe/Berlin\0"]
)
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        read_cron("* * * * *", zone)
    assert refused.value.option == "timezone"


def test_there_is_no_tick_after_the_last_date() -> None:
    cron = read_cron("0 0 1 1 *", "Europe/Berlin")
    assert cron.next_after(253_402_214_400 * SECOND) == 0
    assert cron.next_after(2**63 - 1) == 0
