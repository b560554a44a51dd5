"""Cron expressions in any zone: ticks that are later than what was asked for, one by one."""

from __future__ import annotations

from fuzz.inputs import Choices, text_of

from taskyard.engine.model.events import InvalidOption
from taskyard.engine.schedules.cron import read_cron

ZONES = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns", "Asia/Kathmandu"]
EXPRESSIONS = [
    b"*/5 * * * *",
    b"30 2 * * *",
    b"0 0 29 2 *",
    b"0 12 L * *",
    b"15 10 * * 5L",
    b"0 9 * * mon#1",
    b"1-5,10/2 */3 1,15 jan-mar *",
    b"@daily",
    b"0 0 31 2 *",
    b"* * * * * *",
]
SEEDS = [
    *(bytes([at % 5, 0x80, 0x3D, at]) + text for at, text in enumerate(EXPRESSIONS)),
    b"\x05\0\0\0Europe/Paris\n0 0 * * *",
    b"\x05\0\0\0../etc/passwd\n0 0 * * *",
]
WORDS = [b"*/", b" * ", b"L", b"#", b"jan", b"sun", b"@hourly", b"-", b","]
LONGEST = 80
HOUR = 3_600_000_000
DAY = 24 * HOUR


def fuzz(data: bytes) -> None:
    choices = Choices(data)
    chosen = choices.below(len(ZONES) + 1)
    moment = int.from_bytes(choices.take(3), "big") * HOUR
    zone, text = (ZONES[chosen], choices.rest()) if chosen < len(ZONES) else _named(choices)
    try:
        cron = read_cron(text_of(text), zone)
    except InvalidOption as error:
        assert error.option in ("cron", "timezone")
        return
    last = moment
    for _ in range(4):
        found = cron.next_after(last)
        if not found:
            return
        assert found > last
        assert found % 1_000_000 == 0
        assert found - last < 60 * 366 * DAY
        assert cron.next_after(found - 1) == found
        last = found


def _named(choices: Choices) -> tuple[str, bytes]:
    zone, _, text = choices.rest().partition(b"\n")
    return text_of(zone), text
