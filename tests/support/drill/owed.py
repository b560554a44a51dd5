"""What must still be there when everything was taken out, and whether lost replies can explain it.

A pop whose reply was lost may have taken any job of its queues, but only as many as it asked for.
So may a lease whose holder was never told of it, where that ends a job. All that is missing must be
explained together: each unit of such a take explains one job.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from support.drill.slip import NEVER, EndKind, JobHistory

Kind = tuple[frozenset[str], bool]
"""Queues and whether it must have been popped; of takes: whether they were pops."""


def is_owed(slip: JobHistory) -> bool:
    """Whether it must come from a queue, unless somebody has got it who was never told."""
    return (
        slip.there != NEVER
        and slip.over == NEVER
        and not slip.doubtful
        and not any(ending.kind in (EndKind.SUCCESS, EndKind.DELETE) for ending in slip.endings)
        and not slip.may_be_deleted()
        and not slip.may_be_gone(hidden=False)
        and not slip.may_be_expired()
    )


def unexplained(owed: Iterable[JobHistory], lost: Counter[Kind]) -> list[JobHistory]:
    """Those that no lost take can have ended, however they are dealt out among them."""
    wants: dict[Kind, list[JobHistory]] = {}
    for slip in owed:
        wants.setdefault(_kind(slip), []).append(slip)
    flow = _Flow()
    for take, count in lost.items():
        flow.room[_SOURCE, ("take", take)] = count
        for want in wants:
            if _serves(take, want):
                flow.room[("take", take), ("want", want)] = count
    for want, slips in wants.items():
        flow.room[("want", want), _SINK] = len(slips)
    flow.fill()
    return [slip for want in wants for slip in wants[want][: flow.room[("want", want), _SINK]]]


def _kind(slip: JobHistory) -> Kind:
    """Leases that nobody was told of can be the end only of those that may not be lost often."""
    queues = frozenset(filter(None, (slip.queue, slip.dead_queue)))
    return queues, not slip.may_be_gone(hidden=True)


def _serves(take: Kind, want: Kind) -> bool:
    return bool(take[0] & want[0]) and (take[1] or not want[1])


_Node = tuple[str, Kind]
_SOURCE: _Node = ("source", (frozenset(), False))
_SINK: _Node = ("sink", (frozenset(), False))


class _Flow:
    """As much as can go from the source to the sink; a handful of nodes."""

    def __init__(self) -> None:
        self.room: dict[tuple[_Node, _Node], int] = defaultdict(int)

    def fill(self) -> None:
        while path := self._path():
            amount = min(self.room[edge] for edge in path)
            for one, other in path:
                self.room[one, other] -= amount
                self.room[other, one] += amount

    def _path(self) -> list[tuple[_Node, _Node]]:
        reached: dict[_Node, list[tuple[_Node, _Node]]] = {_SOURCE: []}
        new = [_SOURCE]
        while new:
            node = new.pop()
            for (one, other), room in list(self.room.items()):
                if one == node and room and other not in reached:
                    reached[other] = [*reached[one], (one, other)]
                    new.append(other)
        return reached.get(_SINK, [])
