"""How many bytes of records the journal can take, as the engine sees it.

The journal sets this in advance, so that an operation is refused before anything of it is applied.
Operations that add something are refused first; those that finish work may use the last byte of the
reserve. Knows nothing of disks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from taskyard.engine.model.job import FOREVER, Origin

if TYPE_CHECKING:
    from taskyard.engine.operations.core import Core

# More than the records of one step take, without blob, key and lists: three names and an origin
# of their full length, and the lease of its waiter.
MAX_STEP_BYTES: Final = 2560
# The same of a record that is about one job, without its origin and with nothing that follows.
MAX_RECORD_BYTES: Final = 340
# And of a release, with the lease of that job's waiter.
MAX_RELEASE_BYTES: Final = MAX_RECORD_BYTES + 900


class JournalSpace:
    """Space without end, for an engine without a journal; the journal has a subclass."""

    def __init__(self) -> None:
        self.free_bytes: i64 = FOREVER  # bytes of records that the log may hold
        self.reserved_bytes: i64 = 0  # those of them that are only for finishing work
        self.push_refusal = ""  # why nothing may be added; "": it may
        self.extend_failure = ""  # why `extend` could not do it the last time
        self.postponed_work = False  # something that was due could not be done: see engine.resume

    def try_extend(self, size: i64) -> bool:
        """Let the log hold `size` bytes, if that can be; never called on the usual path."""
        self.extend_failure = "no room"
        return False


def ensure_space(core: Core, size: i64 = 0) -> bool:
    """Whether the log can take one step more, with `size` bytes beside its names."""
    need = core.records.size() + size + MAX_STEP_BYTES
    return need <= core.journal_space.free_bytes or core.journal_space.try_extend(need)


def ensure_space_or_postpone(core: Core, size: i64 = 0) -> bool:
    """The same for what is due without a request: if there is no space, it is postponed until there
    is.
    """
    if ensure_space(core, size):
        return True
    core.journal_space.postponed_work = True
    return False


def has_postponed_work(core: Core) -> bool:
    """Whether something that is due had to be put off."""
    return core.journal_space.postponed_work


def total_record_bytes(count: i64, each: i64, origin: Origin) -> i64:
    """The size of one record for each of `count` jobs."""
    return count * (each + len(origin.encoded))
