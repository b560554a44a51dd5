"""Where in a journal a lake goes on, and whether that is the journal it was made of."""

from datetime import UTC, datetime
from typing import Any, Final

from taskyard.journal.errors import JournalCorrupt, JournalPassed, LeftBehind
from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.snapshot import Watermark
from taskyard.pipeline.ranges import JournalView, TimelineChanged, plan, read

LOOKED_AT: Final = 100  # records before the next one, of which most are events


def start_of(view: JournalView, mark: Watermark | None) -> int:
    """The first record of the next batch; LakeError if it cannot be had."""
    if mark is None or not mark.next_seq:
        return int(view.first_seq)
    try:
        view.check_timeline(mark.timeline, mark.next_seq)
    except TimelineChanged as error:
        raise LakeError(_changed(mark, error.last_common)) from error
    if mark.next_seq < view.first_seq:
        missing = view.first_seq - mark.next_seq
        raise LakeError(
            f"the journal begins at record {view.first_seq} by now, the lake has all before "
            f"{mark.next_seq}: {missing:,} record{'s are' if missing > 1 else ' is'} missing; "
            "what is there can be read into another lake, with --lake DIR, and this one can still "
            "be asked"
        )
    return mark.next_seq


def check_same(view: JournalView, mark: Watermark | None) -> None:
    """A backup that was put back has the old timeline, and later other records than the lake.

    The view must have the last records before the next one.
    """
    if mark is None or mark.last_time is None or view.durable_seq < mark.next_seq - 1:
        return  # files of a running server may say less than it has said itself
    first = max(view.first_seq, mark.next_seq - LOOKED_AT)
    found = _last_time(view, first, mark.next_seq - 1)
    if found is not None and found != mark.last_time:
        raise LakeError(
            f"the record before {mark.next_seq} is of {found.isoformat()} in the journal and of "
            f"{mark.last_time.isoformat()} in the lake: it was restored from a backup, or is "
            "another one; read it into another lake, with --lake DIR"
        )


def _changed(mark: Watermark, last_common: int) -> str:
    if not last_common:
        return (
            f"the lake has records up to {mark.next_seq - 1} of another journal than this one; "
            "read this one into another lake, with --lake DIR"
        )
    return (
        f"the journal was repaired or restored, and records {last_common + 1} to "
        f"{mark.next_seq - 1} of the lake are not in it any more; read it into another lake, with "
        "--lake DIR"
    )


def _last_time(view: JournalView, first: int, last: int) -> datetime | None:
    """Of the last event among these records; None: that cannot be told."""
    if first > last:
        return None
    found: Any = None
    try:
        for some in plan(view, first, last, 1):
            for batch in read(some, ("seq", "time")):
                if batch.num_rows:
                    found = batch.column("time")[-1].as_py()
    except (JournalCorrupt, JournalPassed, LeftBehind):
        return None  # the lake does not need it any more
    return None if found is None else found.astimezone(UTC)
