"""What the operator may choose of a journal."""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from taskyard.journal.spare import PREALLOCATE_ZERO


@mypyc_attr(acyclic=True)
class JournalSettings:
    __slots__ = ("durability", "payload_memory", "preallocate", "prepare_ahead", "segment_size")

    def __init__(
        self,
        segment_size: i64 = 64 * 1_048_576,
        payload_memory: i64 = 256 * 1_048_576,
        durability: str = "sync",
        prepare_ahead: bool = False,
        preallocate: str = PREALLOCATE_ZERO,
    ) -> None:
        self.segment_size = segment_size
        self.payload_memory = payload_memory
        self.durability = durability  # what replies wait for: the broker's business
        self.prepare_ahead = prepare_ahead  # make the next segment in advance
        self.preallocate = preallocate  # how the space of a segment is reserved
