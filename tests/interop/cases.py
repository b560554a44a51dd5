"""Which dialects each property is tried with: all combinations of those that can play its roles.

Nothing is skipped: a dialect that cannot do what a role needs makes no case. test_table.py says
which cases there must be.
"""

from itertools import product

import pytest
from interop.adapters import ADAPTERS
from interop.adapters.base import Adapter, Can

Roles = dict[str, set[Can]]

ANY: set[Can] = set()

PROPERTIES: dict[str, Roles] = {
    # Taking and finishing
    "done": {"pusher": ANY, "taker": ANY},
    "shown": {"pusher": {Can.NAME}, "taker": ANY},
    "done with a result": {"pusher": ANY, "taker": {Can.FINISH_WITH_RESULT}},
    "waited for": {"pusher": ANY, "taker": ANY},
    "many": {"pusher": ANY, "taker": ANY},
    # Failing
    "retried": {"pusher": {Can.MAX_FAILS}, "taker": {Can.FAIL}},
    "exhausted": {"pusher": {Can.MAX_FAILS}, "taker": {Can.FAIL}},
    "retried elsewhere": {"pusher": {Can.MAX_FAILS}, "first": {Can.FAIL}, "second": {Can.FAIL}},
    "error kept": {"pusher": {Can.MAX_FAILS}, "taker": {Can.FAIL_WITH_ERROR}},
    "dead queue": {"pusher": {Can.MAX_FAILS, Can.DEAD_QUEUE}, "taker": {Can.FAIL}},
    "attempts used up by a fail": {"pusher": {Can.MAX_ATTEMPTS}, "taker": {Can.FAIL}},
    # Leases
    "connection lost": {"pusher": ANY, "taker": {Can.BOUND_LEASE}},
    "no sign of life": {"pusher": ANY, "taker": {Can.BOUND_LEASE}},
    "connection lost and nothing held": {
        "pusher": ANY,
        "taker": {Can.TIMED_LEASE, Can.FINISH_ANY},
    },
    "time over": {"pusher": ANY, "taker": {Can.TIMED_LEASE}},
    "own ttr": {"pusher": {Can.TTR}, "taker": ANY},
    "attempts used up by time": {"pusher": {Can.TTR, Can.MAX_ATTEMPTS}, "taker": ANY},
    "attempts used up by a restart": {"pusher": {Can.MAX_ATTEMPTS}, "taker": {Can.BOUND_LEASE}},
    "one attempt": {"pusher": {Can.MAX_ATTEMPTS}, "taker": {Can.TIMED_LEASE}},
    "poison": {"pusher": ANY, "taker": {Can.TIMED_LEASE}},
    "held over a restart": {"pusher": ANY, "taker": ANY},
    "ended by another": {"pusher": ANY, "holder": ANY, "other": {Can.FINISH_ANY}},
    "failed by another": {
        "pusher": {Can.MAX_FAILS},
        "holder": {Can.FAIL},
        "other": {Can.FINISH_ANY},
    },
    "deleted by another": {"pusher": ANY, "holder": ANY, "other": {Can.DELETE}},
    "finished unheld": {"pusher": ANY, "other": {Can.FINISH_ANY}},
    "finished before its time": {"pusher": {Can.DELAY}, "other": {Can.FINISH_ANY}},
    "failed before its time": {
        "pusher": {Can.DELAY, Can.MAX_FAILS},
        "other": {Can.FINISH_ANY},
        "taker": ANY,
    },
    "second result": {"pusher": ANY, "taker": ANY, "other": {Can.FINISH_ANY}},
    # Waiting in line
    "served": {"pusher": ANY, "taker": {Can.WAIT}},
    "line": {"pusher": ANY, "first": {Can.WAIT}, "second": {Can.WAIT}},
    "left the line": {"pusher": ANY, "first": {Can.WAIT}, "second": {Can.WAIT}},
    "gave up": {"pusher": ANY, "taker": {Can.WAIT}},
    "served by a delay": {"pusher": {Can.DELAY}, "taker": {Can.WAIT}},
    "served by a fail": {
        "pusher": {Can.MAX_FAILS},
        "holder": {Can.FAIL},
        "taker": {Can.WAIT},
    },
    "served by a lost lease": {
        "pusher": ANY,
        "holder": {Can.BOUND_LEASE},
        "taker": {Can.WAIT},
    },
    "served by the end of a ttr": {"pusher": {Can.TTR}, "holder": ANY, "taker": {Can.WAIT}},
    # Order and time
    "arrival": {"first": ANY, "second": ANY, "taker": ANY},
    "priority": {"pusher": {Can.PRIORITY}, "plain": ANY, "taker": ANY},
    "back in its place": {"pusher": ANY, "later": ANY, "taker": {Can.TIMED_LEASE}},
    "delayed": {"pusher": {Can.DELAY}, "taker": ANY},
    "delays in order": {"first": {Can.DELAY}, "second": {Can.DELAY}, "taker": ANY},
    "ttl over": {"pusher": {Can.TTL}, "taker": ANY},
    "ttl over while held": {"pusher": {Can.TTL}, "taker": ANY},
    "ttl of a delayed job": {"pusher": {Can.TTL, Can.DELAY}, "taker": ANY},
    "result after the ttl": {"pusher": {Can.TTL}, "taker": ANY},
    "failed until the ttl": {"pusher": {Can.TTL}, "taker": {Can.FAIL}},
    # Jobs that wait for others
    "released": {"blocker": ANY, "pusher": {Can.BLOCKED_BY}, "taker": ANY},
    "released by uid": {"blocker": ANY, "pusher": {Can.BLOCKED_BY}, "other": {Can.FINISH_ANY}},
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
        "blocker": ANY,
        "pusher": {Can.BLOCKED_BY, Can.DEAD_QUEUE},
        "other": {Can.DELETE},
    },
    "blocker expired": {
        "blocker": {Can.TTL},
        "pusher": {Can.BLOCKED_BY, Can.DEAD_QUEUE},
        "taker": ANY,
    },
    "blockers of many dialects": {
        "first": ANY,
        "second": ANY,
        "pusher": {Can.BLOCKED_BY},
        "taker": ANY,
    },
    "blocked in a chain": {
        "blocker": {Can.MAX_FAILS},
        "pusher": {Can.BLOCKED_BY, Can.DEAD_QUEUE},
        "taker": {Can.FAIL},
    },
    "ended while blocked": {
        "blocker": ANY,
        "pusher": {Can.BLOCKED_BY},
        "other": {Can.FINISH_ANY, Can.DELETE},
        "taker": ANY,
    },
    # Identity, payloads and names
    "number": {"pusher": ANY, "taker": {Can.SHOW_ID}},
    "uid": {"pusher": ANY, "observer": {Can.LOOK, Can.FINISH_ANY}},
    "uid taken": {"pusher": ANY, "other": {Can.UID}},
    "uid free after delete": {"pusher": {Can.UID}, "other": {Can.DELETE}},
    "uid free after ttl": {"pusher": {Can.UID, Can.TTL}, "taker": ANY},
    "json": {"pusher": ANY, "taker": ANY},
    "any bytes": {"pusher": {Can.ANY_BYTES}, "taker": ANY},
    "large": {"pusher": ANY, "taker": ANY},
    "plain name": {"pusher": ANY, "taker": ANY},
    "name that some cannot spell": {"pusher": {Can.ANY_NAME}, "taker": {Can.ANY_NAME}},
}


def players(name: str) -> dict[str, list[type[Adapter]]]:
    """The dialects that can play each role of a property."""
    return {
        role: [adapter for adapter in ADAPTERS if adapter.can >= needed]
        for role, needed in PROPERTIES[name].items()
    }


def cases(name: str) -> pytest.MarkDecorator:
    """Run a test with every combination of dialects that can play the roles of this property."""
    roles = players(name)
    casts = list(product(*roles.values()))
    assert casts, f"no dialects can do what {name!r} needs"
    ids = [">".join(adapter.dialect for adapter in cast) for cast in casts]
    return pytest.mark.parametrize(tuple(roles), casts, ids=ids)
