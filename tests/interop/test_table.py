"""The cases that there must be: a dialect that lost a capability would lose them in silence."""

import re
from pathlib import Path

import pytest
from interop.adapters import ADAPTERS
from interop.adapters.base import Can
from interop.cases import PROPERTIES, players

BOTH = "masenko workq"
ALL = BOTH + " glovebox"

# Property: the dialects in each of its roles.
EXPECTED: dict[str, tuple[str, ...]] = {
    "done": (ALL, ALL),
    "shown": ("masenko", ALL),
    "done with a result": (ALL, "workq"),
    "waited for": (ALL, ALL),
    "many": (ALL, ALL),
    "retried": (BOTH, BOTH),
    "exhausted": (BOTH, BOTH),
    "retried elsewhere": (BOTH, BOTH, BOTH),
    "error kept": (BOTH, "workq"),
    "dead queue": ("masenko", BOTH),
    "attempts used up by a fail": ("workq", BOTH),
    "connection lost": (ALL, "masenko"),
    "no sign of life": (ALL, "masenko"),
    "connection lost and nothing held": (ALL, "workq"),
    "time over": (ALL, "workq glovebox"),
    "own ttr": ("workq", ALL),
    "attempts used up by time": ("workq", ALL),
    "attempts used up by a restart": ("workq", "masenko"),
    "one attempt": ("workq", "workq glovebox"),
    "poison": (ALL, "workq glovebox"),
    "held over a restart": (ALL, ALL),
    "ended by another": (ALL, ALL, "workq"),
    "failed by another": (BOTH, BOTH, "workq"),
    "deleted by another": (ALL, ALL, "workq"),
    "finished unheld": (ALL, "workq"),
    "finished before its time": (BOTH, "workq"),
    "failed before its time": (BOTH, "workq", ALL),
    "second result": (ALL, ALL, "workq"),
    "served": (ALL, ALL),
    "line": (ALL, ALL, ALL),
    "left the line": (ALL, ALL, ALL),
    "gave up": (ALL, ALL),
    "served by a delay": (BOTH, ALL),
    "served by a fail": (BOTH, BOTH, ALL),
    "served by a lost lease": (ALL, "masenko", ALL),
    "served by the end of a ttr": ("workq", ALL, ALL),
    "arrival": (ALL, ALL, ALL),
    "priority": ("workq", ALL, ALL),
    "back in its place": (ALL, ALL, "workq glovebox"),
    "delayed": (BOTH, ALL),
    "delays in order": (BOTH, BOTH, ALL),
    "ttl over": ("workq", ALL),
    "ttl over while held": ("workq", ALL),
    "ttl of a delayed job": ("workq", ALL),
    "result after the ttl": ("workq", ALL),
    "failed until the ttl": ("workq", BOTH),
    "released": (ALL, "masenko", ALL),
    "released by uid": (ALL, "masenko", "workq"),
    "still blocked": (BOTH, "masenko", BOTH),
    "blocker failed": (BOTH, "masenko", BOTH),
    "blocker deleted": (ALL, "masenko", "workq"),
    "blocker expired": ("workq", "masenko", ALL),
    "blockers of many dialects": (ALL, ALL, "masenko", ALL),
    "blocked in a chain": (BOTH, "masenko", BOTH),
    "ended while blocked": (ALL, "masenko", "workq", ALL),
    "number": (ALL, "masenko glovebox"),
    "uid": (ALL, "workq"),
    "uid taken": (ALL, "workq"),
    "uid free after delete": ("workq", "workq"),
    "uid free after ttl": ("workq", ALL),
    "json": (ALL, ALL),
    "any bytes": ("workq glovebox", ALL),
    "large": (ALL, ALL),
    "plain name": (ALL, ALL),
    "name that some cannot spell": ("masenko glovebox", "masenko glovebox"),
}


def test_every_dialect_takes_part() -> None:
    assert [adapter.dialect for adapter in ADAPTERS] == ALL.split()


@pytest.mark.parametrize("name", PROPERTIES)
def test_the_cases_of_a_property_are_these(name: str) -> None:
    cast = [" ".join(adapter.dialect for adapter in role) for role in players(name).values()]
    assert tuple(cast) == EXPECTED[name]


def test_no_property_has_vanished() -> None:
    assert list(PROPERTIES) == list(EXPECTED)


def test_every_property_has_a_test_and_every_test_a_property_that_exists() -> None:
    tested = [
        name
        for module in sorted(Path(__file__).parent.glob("test_*.py"))
        for name in re.findall(r'^@cases\("([^"]+)"\)\n', module.read_text("utf-8"), re.MULTILINE)
    ]
    assert sorted(set(tested)) == sorted(PROPERTIES)


def test_every_capability_makes_a_difference() -> None:
    needed = set().union(*(role for roles in PROPERTIES.values() for role in roles.values()))
    looked_at = {
        Can.COUNT_READY,
        Can.COUNT_DELAYED,
        Can.COUNT_LEASED,
        Can.RESULT,
        Can.SHOW_FAILS,
        Can.LIST_QUEUES,
    }
    assert needed | looked_at == set(Can)
