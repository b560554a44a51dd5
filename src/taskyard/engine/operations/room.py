"""How many bytes of records the journal can take, as the engine sees it.

Whoever keeps the journal says so here in advance, so that an operation is refused before anything
of it is applied. What adds something is refused first; what finishes work goes on until the last
byte that is kept for it. Knows nothing of disks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from taskyard.engine.model.job import FOREVER, Origin

if TYPE_CHECKING:
    from taskyard.engine.operations.core import Core

# More than the records of one step take, without blob, key and lists: three names and an origin
# of their full length, and the lease of who waited for it.
STEP_ROOM: Final = 2560
# The same of a record that is about one job, without its origin and with nothing that follows.
RECORD_ROOM: Final = 340
# And of a release, with the lease of who waited for that job.
RELEASE_ROOM: Final = RECORD_ROOM + 900


class Room:
    """Room without end, for who has no journal; the journal has one of its own."""

    def __init__(self) -> None:
        self.free: i64 = FOREVER  # bytes of records that the log may hold
        self.kept: i64 = 0  # those of them that are only for finishing work
        self.refusing = ""  # why nothing may be added; "": it may
        self.reason = ""  # why `extend` could not do it the last time
        self.short = False  # something that was due could not be done: see engine.resume

    def extend(self, size: i64) -> bool:
        """Let the log hold `size` bytes, if that can be; never called on the usual path."""
        self.reason = "no room"
        return False


def fits(core: Core, size: i64 = 0) -> bool:
    """Whether the log can take one step more, with `size` bytes beside its names."""
    need = core.log.size() + size + STEP_ROOM
    return need <= core.room.free or core.room.extend(need)


def fits_due(core: Core, size: i64 = 0) -> bool:
    """The same for what is due and nobody asked for: if not, it is done once there is room."""
    if fits(core, size):
        return True
    core.room.short = True
    return False


def is_short(core: Core) -> bool:
    """Whether something that is due had to be put off."""
    return core.room.short


def many(count: i64, each: i64, origin: Origin) -> i64:
    """The size of one record for each of `count` jobs."""
    return count * (each + len(origin.encoded))
