"""The cases that there must be: a dialect that lost a capability would lose them in silence."""

import re
from pathlib import Path

import pytest
from interop.adapters import ADAPTERS
from interop.adapters.base import Can
from interop.cases import PROPERTIES, players

BOTH = "masenko workq"

# Property: the dialects in each of its roles.
EXPECTED: dict[str, tuple[str, ...]] = {
    "done": (BOTH, BOTH),
    "shown": ("masenko", BOTH),
    "done with a result": (BOTH, "workq"),
    "waited for": (BOTH, BOTH),
    "many": (BOTH, BOTH),
    "retried": (BOTH, BOTH),
    "exhausted": (BOTH, BOTH),
    "retried elsewhere": (BOTH, BOTH, BOTH),
    "error kept": (BOTH, "workq"),
    "dead queue": ("masenko", BOTH),
    "attempts used up by a fail": ("workq", BOTH),
    "connection lost": (BOTH, "masenko"),
    "no sign of life": (BOTH, "masenko"),
    "connection lost and nothing held": (BOTH, "workq"),
    "time over": (BOTH, "workq"),
    "own ttr": ("workq", BOTH),
    "attempts used up by time": ("workq", BOTH),
    "attempts used up by a restart": ("workq", "masenko"),
    "one attempt": ("workq", "workq"),
    "poison": (BOTH, "workq"),
    "held over a restart": (BOTH, BOTH),
    "ended by another": (BOTH, BOTH, "workq"),
    "failed by another": (BOTH, BOTH, "workq"),
    "deleted by another": (BOTH, BOTH, "workq"),
    "finished unheld": (BOTH, "workq"),
    "finished before its time": (BOTH, "workq"),
    "failed before its time": (BOTH, "workq", BOTH),
    "second result": (BOTH, BOTH, "workq"),
    "served": (BOTH, BOTH),
    "line": (BOTH, BOTH, BOTH),
    "left the line": (BOTH, BOTH, BOTH),
    "gave up": (BOTH, BOTH),
    "served by a delay": (BOTH, BOTH),
    "served by a fail": (BOTH, BOTH, BOTH),
    "served by a lost lease": (BOTH, "masenko", BOTH),
    "served by the end of a ttr": ("workq", BOTH, BOTH),
    "arrival": (BOTH, BOTH, BOTH),
    "priority": ("workq", BOTH, BOTH),
    "back in its place": (BOTH, BOTH, "workq"),
    "delayed": (BOTH, BOTH),
    "delays in order": (BOTH, BOTH, BOTH),
    "ttl over": ("workq", BOTH),
    "ttl over while held": ("workq", BOTH),
    "ttl of a delayed job": ("workq", BOTH),
    "result after the ttl": ("workq", BOTH),
    "failed until the ttl": ("workq", BOTH),
    "released": (BOTH, "masenko", BOTH),
    "released by uid": (BOTH, "masenko", "workq"),
    "still blocked": (BOTH, "masenko", BOTH),
    "blocker failed": (BOTH, "masenko", BOTH),
    "blocker deleted": (BOTH, "masenko", "workq"),
    "blocker expired": ("workq", "masenko", BOTH),
    "blockers of many dialects": (BOTH, BOTH, "masenko", BOTH),
    "blocked in a chain": (BOTH, "masenko", BOTH),
    "ended while blocked": (BOTH, "masenko", "workq", BOTH),
    "number": (BOTH, "masenko"),
    "uid": (BOTH, "workq"),
    "uid taken": (BOTH, "workq"),
    "uid free after delete": ("workq", "workq"),
    "uid free after ttl": ("workq", BOTH),
    "json": (BOTH, BOTH),
    "any bytes": ("workq", BOTH),
    "large": (BOTH, BOTH),
    "plain name": (BOTH, BOTH),
    "name that some cannot spell": ("masenko", "masenko"),
}


def test_every_dialect_takes_part() -> None:
    assert [adapter.dialect for adapter in ADAPTERS] == BOTH.split()


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
