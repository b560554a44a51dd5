"""Which protocols each property is tried with: combinations of those that can play its roles.

Nothing is skipped: a protocol that cannot do what a role needs makes no case. test_table.py says
which cases there must be.
"""

from collections.abc import Sequence
from functools import cache
from itertools import combinations, product
from typing import Any

import pytest
from protocols.interop.adapters import ADAPTERS
from protocols.interop.adapters.base import Adapter, Can
from support.effort import LONG

Roles = dict[str, set[Can]]
Cast = tuple[Any, ...]  # a protocol for each role, and what else differs between cases
Pair = tuple[tuple[int, Any], tuple[int, Any]]

MOST_ROLES = 3  # of which all combinations are tried, with long effort

PUSHER = {Can.PUSH}
TAKER = {Can.TAKE}
POPPER = {Can.POP}

PROPERTIES: dict[str, Roles] = {
    # Taking and finishing
    "done": {"pusher": PUSHER, "taker": TAKER},
    "shown": {"pusher": {Can.NAME}, "taker": TAKER},
    "done with a result": {"pusher": PUSHER, "taker": {Can.FINISH_WITH_RESULT}},
    "waited for": {"pusher": PUSHER, "taker": TAKER},
    "many": {"pusher": PUSHER, "taker": TAKER},
    # Popping
    "popped": {"pusher": PUSHER, "popper": POPPER},
    "popped by one who waits": {"pusher": PUSHER, "popper": {Can.WAIT_TO_POP}},
    "popped in line": {"pusher": PUSHER, "taker": {Can.WAIT}, "popper": {Can.WAIT_TO_POP}},
    "popped in order": {"first": PUSHER, "second": PUSHER, "popper": POPPER},
    "popped by priority": {"pusher": {Can.PRIORITY}, "plain": PUSHER, "popper": POPPER},
    "popped for others": {"blocker": PUSHER, "pusher": {Can.BLOCKED_BY}, "popper": POPPER},
    # Failing
    "retried": {"pusher": {Can.MAX_FAILS}, "taker": {Can.FAIL}},
    "exhausted": {"pusher": {Can.MAX_FAILS}, "taker": {Can.FAIL}},
    "retried elsewhere": {"pusher": {Can.MAX_FAILS}, "first": {Can.FAIL}, "second": {Can.FAIL}},
    "error kept": {"pusher": {Can.MAX_FAILS}, "taker": {Can.FAIL_WITH_ERROR}},
    "dead queue": {"pusher": {Can.MAX_FAILS, Can.DEAD_QUEUE}, "taker": {Can.FAIL}},
    "attempts used up by a fail": {
        "pusher": {Can.MAX_ATTEMPTS, Can.MAX_FAILS},
        "taker": {Can.FAIL},
    },
    # Leases
    "connection lost": {"pusher": PUSHER, "taker": {Can.BOUND_LEASE}},
    "no sign of life": {"pusher": PUSHER, "taker": {Can.BOUND_LEASE}},
    "connection lost and nothing held": {
        "pusher": PUSHER,
        "taker": {Can.TIMED_LEASE, Can.FINISH_ANY},
    },
    "time over": {"pusher": PUSHER, "taker": {Can.TIMED_LEASE}},
    "own ttr": {"pusher": {Can.TTR}, "taker": TAKER},
    "attempts used up by time": {"pusher": {Can.TTR, Can.MAX_ATTEMPTS}, "taker": TAKER},
    "attempts used up by a restart": {"pusher": {Can.MAX_ATTEMPTS}, "taker": {Can.BOUND_LEASE}},
    "one attempt": {"pusher": {Can.MAX_ATTEMPTS}, "taker": {Can.TIMED_LEASE}},
    "poison": {"pusher": PUSHER, "taker": {Can.TIMED_LEASE}},
    "held over a restart": {"pusher": PUSHER, "taker": TAKER},
    "ended by another": {"pusher": PUSHER, "holder": TAKER, "other": {Can.FINISH_ANY}},
    "failed by another": {
        "pusher": {Can.MAX_FAILS},
        "holder": {Can.FAIL},
        "other": {Can.FINISH_ANY},
    },
    "deleted by another": {"pusher": PUSHER, "holder": TAKER, "other": {Can.DELETE}},
    "finished unheld": {"pusher": PUSHER, "other": {Can.FINISH_ANY}},
    "finished before its time": {"pusher": {Can.DELAY}, "other": {Can.FINISH_ANY}},
    "failed before its time": {
        "pusher": {Can.DELAY, Can.MAX_FAILS},
        "other": {Can.FINISH_ANY},
        "taker": TAKER,
    },
    "second result": {"pusher": PUSHER, "taker": TAKER, "other": {Can.FINISH_ANY}},
    # Waiting in line
    "served": {"pusher": PUSHER, "taker": {Can.WAIT}},
    "line": {"pusher": PUSHER, "first": {Can.WAIT}, "second": {Can.WAIT}},
    "left the line": {"pusher": PUSHER, "first": {Can.WAIT}, "second": {Can.WAIT}},
    "gave up": {"pusher": PUSHER, "taker": {Can.WAIT}},
    "served by a delay": {"pusher": {Can.DELAY}, "taker": {Can.WAIT}},
    "served by a fail": {
        "pusher": {Can.MAX_FAILS},
        "holder": {Can.FAIL},
        "taker": {Can.WAIT},
    },
    "served by a lost lease": {
        "pusher": PUSHER,
        "holder": {Can.BOUND_LEASE},
        "taker": {Can.WAIT},
    },
    "served by the end of a ttr": {"pusher": {Can.TTR}, "holder": TAKER, "taker": {Can.WAIT}},
    # Order and time
    "arrival": {"first": PUSHER, "second": PUSHER, "taker": TAKER},
    "priority": {"pusher": {Can.PRIORITY}, "plain": PUSHER, "taker": TAKER},
    "back in its place": {"pusher": PUSHER, "later": PUSHER, "taker": {Can.TIMED_LEASE}},
    "delayed": {"pusher": {Can.DELAY}, "taker": TAKER},
    "delays in order": {"first": {Can.DELAY}, "second": {Can.DELAY}, "taker": TAKER},
    "ttl over": {"pusher": {Can.TTL}, "taker": TAKER},
    "ttl over while held": {"pusher": {Can.TTL}, "taker": TAKER},
    "ttl of a delayed job": {"pusher": {Can.TTL, Can.DELAY}, "taker": TAKER},
    "result after the ttl": {"pusher": {Can.TTL}, "taker": TAKER},
    "failed until the ttl": {"pusher": {Can.TTL, Can.MAX_FAILS}, "taker": {Can.FAIL}},
    # Jobs that wait for others
    "released": {"blocker": PUSHER, "pusher": {Can.BLOCKED_BY}, "taker": TAKER},
    "released by uid": {"blocker": PUSHER, "pusher": {Can.BLOCKED_BY}, "other": {Can.FINISH_ANY}},
    "still blocked": {
        "blocker": {Can.MAX_FAILS},
        "pusher": {Can.BLOCKED_BY},
        "taker": {Can.FAIL},
    },
    "blocker failed": {
        "blocker": {Can.MAX_FAILS},
        "pusher": {Can.BLOCKED_BY, Can.DEAD_QUEUE},
        "taker": {Can.FAIL},
    },
    "blocker deleted": {
        "blocker": PUSHER,
        "pusher": {Can.BLOCKED_BY, Can.DEAD_QUEUE},
        "other": {Can.DELETE},
    },
    "blocker expired": {
        "blocker": {Can.TTL},
        "pusher": {Can.BLOCKED_BY, Can.DEAD_QUEUE},
        "taker": TAKER,
    },
    "blockers of many dialects": {
        "first": PUSHER,
        "second": PUSHER,
        "pusher": {Can.BLOCKED_BY},
        "taker": TAKER,
    },
    "blocked in a chain": {
        "blocker": {Can.MAX_FAILS},
        "pusher": {Can.BLOCKED_BY, Can.DEAD_QUEUE},
        "taker": {Can.FAIL},
    },
    "ended while blocked": {
        "blocker": PUSHER,
        "pusher": {Can.BLOCKED_BY},
        "other": {Can.FINISH_ANY, Can.DELETE},
        "taker": TAKER,
    },
    # Identity, payloads and names
    "number": {"pusher": PUSHER, "taker": {Can.SHOW_ID}},
    "uid": {"pusher": PUSHER, "observer": {Can.LOOK, Can.FINISH_ANY}},
    "uid taken": {"pusher": PUSHER, "other": {Can.UID}},
    "uid free after delete": {"pusher": {Can.UID}, "other": {Can.DELETE}},
    "uid free after ttl": {"pusher": {Can.UID, Can.TTL}, "taker": TAKER},
    "json": {"pusher": PUSHER, "taker": TAKER},
    "any bytes": {"pusher": {Can.ANY_BYTES}, "taker": TAKER},
    "large": {"pusher": PUSHER, "taker": TAKER},
    "plain name": {"pusher": PUSHER, "taker": TAKER},
    "name that some cannot spell": {
        "pusher": {Can.ANY_NAME},
        "taker": {Can.ANY_NAME, Can.TAKE},
    },
}


def players(name: str) -> dict[str, list[type[Adapter]]]:
    """The protocols that can play each role of a property."""
    return {
        role: [adapter for adapter in ADAPTERS if adapter.can >= needed]
        for role, needed in PROPERTIES[name].items()
    }


@cache
def casts(name: str, *more: Sequence[Any]) -> list[Cast]:
    """Who plays with whom, and with what else: all pairs, or with long effort all combinations.

    Of more than three roles it is always all pairs of protocols.
    """
    roles: list[Sequence[Any]] = list(players(name).values())
    if not LONG:
        return covering([*roles, *more])
    together = list(product(*roles)) if len(roles) <= MOST_ROLES else covering(roles)
    return [cast + rest for cast in together for rest in product(*more)]


def covering(factors: Sequence[Sequence[Any]]) -> list[Cast]:
    """Few combinations, in which any two values of any two factors meet."""
    everything = {cast: pairs(cast) for cast in product(*factors)}
    chosen: list[Cast] = []
    missing: set[Pair] = set().union(*everything.values())
    while missing or not chosen:
        best = max(everything, key=lambda cast: len(missing & everything[cast]))
        chosen.append(best)
        missing -= everything[best]
    return chosen


def pairs(cast: Cast) -> set[Pair]:
    """Which values meet in which two places."""
    return set(combinations(enumerate(cast), 2))


def cases(name: str, /, **more: Sequence[Any]) -> pytest.MarkDecorator:
    """Run a test with the protocols that can play the roles of this property, with the values
    given here, and in the kinds of world that it asks for (see `spread`).
    """
    return pytest.mark.cases(name, **more)


def spread(metafunc: pytest.Metafunc, worlds: dict[str, tuple[str, ...]]) -> None:
    """Give a test its cases; `worlds` are the fixtures that come in several kinds."""
    mark = metafunc.definition.get_closest_marker("cases")
    asked = {world: kinds for world, kinds in worlds.items() if world in metafunc.fixturenames}
    if mark is None:
        for world, kinds in asked.items():
            metafunc.parametrize(world, kinds, indirect=True)
        return
    (name,) = mark.args
    more = {key: tuple(values) for key, values in mark.kwargs.items()} | asked
    chosen = casts(name, *more.values())
    assert chosen, f"no dialects can do what {name!r} needs"
    metafunc.parametrize(
        (*PROPERTIES[name], *more), chosen, ids=map(cast_id, chosen), indirect=list(asked)
    )


def cast_id(cast: Cast) -> str:
    return ">".join(str(getattr(part, "dialect", part))[:40] for part in cast)
