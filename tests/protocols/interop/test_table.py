"""The cases that there must be: a protocol that lost a capability would lose them in silence."""

import math
import re
from itertools import combinations
from pathlib import Path

import pytest
from protocols.interop.adapters import ADAPTERS
from protocols.interop.adapters.base import Can
from protocols.interop.cases import MOST_ROLES, PROPERTIES, casts, pairs, players
from protocols.interop.conftest import WORLDS
from support.effort import LONG

BOTH = "masenko workq"
BOTH_AND_API = BOTH + " api"
TAKERS = BOTH + " glovebox"
ALL = TAKERS + " api redis"

# Property: the protocols in each of its roles.
EXPECTED: dict[str, tuple[str, ...]] = {
    "done": (ALL, TAKERS),
    "shown": ("masenko api", TAKERS),
    "done with a result": (ALL, "workq"),
    "waited for": (ALL, TAKERS),
    "many": (ALL, TAKERS),
    "popped": (ALL, "redis"),
    "popped by one who waits": (ALL, "redis"),
    "popped in line": (ALL, TAKERS, "redis"),
    "popped in order": (ALL, ALL, "redis"),
    "popped by priority": ("workq api", ALL, "redis"),
    "popped for others": (ALL, "masenko api", "redis"),
    "retried": (BOTH_AND_API, BOTH),
    "exhausted": (BOTH_AND_API, BOTH),
    "retried elsewhere": (BOTH_AND_API, BOTH, BOTH),
    "error kept": (BOTH_AND_API, "workq"),
    "dead queue": ("masenko api", BOTH),
    "attempts used up by a fail": ("workq api", BOTH),
    "connection lost": (ALL, "masenko"),
    "no sign of life": (ALL, "masenko"),
    "connection lost and nothing held": (ALL, "workq"),
    "time over": (ALL, "workq glovebox"),
    "own ttr": ("workq api", TAKERS),
    "attempts used up by time": ("workq api", TAKERS),
    "attempts used up by a restart": ("workq api", "masenko"),
    "one attempt": ("workq api", "workq glovebox"),
    "poison": (ALL, "workq glovebox"),
    "held over a restart": (ALL, TAKERS),
    "ended by another": (ALL, TAKERS, "workq"),
    "failed by another": (BOTH_AND_API, BOTH, "workq"),
    "deleted by another": (ALL, TAKERS, "workq api"),
    "finished unheld": (ALL, "workq"),
    "finished before its time": (BOTH_AND_API, "workq"),
    "failed before its time": (BOTH_AND_API, "workq", TAKERS),
    "second result": (ALL, TAKERS, "workq"),
    "served": (ALL, TAKERS),
    "line": (ALL, TAKERS, TAKERS),
    "left the line": (ALL, TAKERS, TAKERS),
    "gave up": (ALL, TAKERS),
    "served by a delay": (BOTH_AND_API, TAKERS),
    "served by a fail": (BOTH_AND_API, BOTH, TAKERS),
    "served by a lost lease": (ALL, "masenko", TAKERS),
    "served by the end of a ttr": ("workq api", TAKERS, TAKERS),
    "arrival": (ALL, ALL, TAKERS),
    "priority": ("workq api", ALL, TAKERS),
    "back in its place": (ALL, ALL, "workq glovebox"),
    "delayed": (BOTH_AND_API, TAKERS),
    "delays in order": (BOTH_AND_API, BOTH_AND_API, TAKERS),
    "ttl over": ("workq api", TAKERS),
    "ttl over while held": ("workq api", TAKERS),
    "ttl of a delayed job": ("workq api", TAKERS),
    "result after the ttl": ("workq api", TAKERS),
    "failed until the ttl": ("workq api", BOTH),
    "released": (ALL, "masenko api", TAKERS),
    "released by uid": (ALL, "masenko api", "workq"),
    "still blocked": (BOTH_AND_API, "masenko api", BOTH),
    "blocker failed": (BOTH_AND_API, "masenko api", BOTH),
    "blocker deleted": (ALL, "masenko api", "workq api"),
    "blocker expired": ("workq api", "masenko api", TAKERS),
    "blockers of many dialects": (ALL, ALL, "masenko api", TAKERS),
    "blocked in a chain": (BOTH_AND_API, "masenko api", BOTH),
    "ended while blocked": (ALL, "masenko api", "workq", TAKERS),
    "number": (ALL, "masenko glovebox"),
    "uid": (ALL, "workq"),
    "uid taken": (ALL, "workq api"),
    "uid free after delete": ("workq api", "workq api"),
    "uid free after ttl": ("workq api", TAKERS),
    "json": (ALL, TAKERS),
    "any bytes": ("workq glovebox api redis", TAKERS),
    "large": (ALL, TAKERS),
    "plain name": (ALL, TAKERS),
    "name that some cannot spell": ("masenko glovebox api redis", "masenko glovebox"),
}


def test_every_dialect_takes_part() -> None:
    assert [adapter.dialect for adapter in ADAPTERS] == ALL.split()
    for can, dialects in ((Can.PUSH, ALL), (Can.TAKE, TAKERS)):
        assert [adapter.dialect for adapter in ADAPTERS if can in adapter.can] == dialects.split()


@pytest.mark.parametrize("name", PROPERTIES)
def test_the_cases_of_a_property_are_these(name: str) -> None:
    cast = [" ".join(adapter.dialect for adapter in role) for role in players(name).values()]
    assert tuple(cast) == EXPECTED[name]


@pytest.mark.parametrize("worlds", [(), WORLDS["world"], WORLDS["any_world"]], ids=len)
@pytest.mark.parametrize("name", PROPERTIES)
def test_all_pairs_of_a_property_meet(name: str, worlds: tuple[str, ...]) -> None:
    """A pusher of each protocol with a taker of each, and so on for any two of its roles, and each
    of them in each kind of world.
    """
    factors = [role.split() for role in EXPECTED[name]] + ([list(worlds)] if worlds else [])
    wanted = {
        ((one, first), (other, second))
        for one, other in combinations(range(len(factors)), 2)
        for first in factors[one]
        for second in factors[other]
    }
    kinds = [worlds] if worlds else []
    chosen = [tuple(getattr(one, "dialect", one) for one in cast) for cast in casts(name, *kinds)]
    assert set().union(*(pairs(cast) for cast in chosen)) == wanted
    assert len(set(chosen)) == len(chosen)
    if LONG and len(EXPECTED[name]) <= MOST_ROLES:
        assert len(chosen) == math.prod(len(factor) for factor in factors)


def test_no_property_has_vanished() -> None:
    assert list(PROPERTIES) == list(EXPECTED)


def test_every_property_has_a_test_and_every_test_a_property_that_exists() -> None:
    tested = [
        name
        for module in sorted(Path(__file__).parent.glob("test_*.py"))
        for name in re.findall(r'^@cases\("([^"]+)"', module.read_text("utf-8"), re.MULTILINE)
    ]
    assert sorted(set(tested)) == sorted(PROPERTIES)


def test_every_capability_makes_a_difference() -> None:
    needed = set().union(*(role for roles in PROPERTIES.values() for role in roles.values()))
    looked_at = {
        Can.COUNT_READY,
        Can.COUNT_DELAYED,
        Can.COUNT_LEASED,
        Can.RESULT,
        Can.AWAIT_RESULT,
        Can.SHOW_FAILS,
        Can.LIST_QUEUES,
    }
    assert needed | looked_at == set(Can)
