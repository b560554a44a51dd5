"""Readers of the journal: named, each with a position and a lease of its own.

What a reader has not committed yet is kept for it, within the operator's limits, while its lease
lasts: see journal/retention.py. That a lease lapses is not an event; its reader stays, with its
position, and may return.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.errors import InvalidOption, ReaderNotFound
from taskyard.engine.model.job import SECOND, Origin
from taskyard.engine.model.state import NamedReader
from taskyard.engine.operations.checks import check_adding, check_writable
from taskyard.engine.operations.core import Core
from taskyard.engine.records.side_apply import apply_reader, apply_reader_gone
from taskyard.engine.records.side_records import ReaderGone, ReaderSet
from taskyard.shared.names import NAME_RULE, valid_name

MIN_LEASE: Final = SECOND
MAX_LEASE: Final = 366 * 86_400 * SECOND


def register_reader(
    core: Core, name: str, next_seq: i64, lease: i64, origin: Origin, now: i64
) -> NamedReader:
    """Register a reader that wants all from record `next_seq` on, or renew one that returns.

    One that returns is where it was, unless it says that it is further.
    """
    if not valid_name(name):
        raise InvalidOption("reader", NAME_RULE)
    _check_reader(core, next_seq, lease)
    known = core.state.readers.get(name)
    if known is None:
        check_adding(core, 0)
    else:
        check_writable(core)
        next_seq = max(next_seq, known.next_seq)
    return _emit_reader(core, name, next_seq, now + lease, origin, now)


def commit_reader(
    core: Core, name: str, next_seq: i64, lease: i64, origin: Origin, now: i64
) -> NamedReader:
    """The reader has all before `next_seq`, for good; its lease begins anew."""
    check_writable(core)
    known = core.state.readers.get(name)
    if known is None:
        raise ReaderNotFound(name)
    _check_reader(core, next_seq, lease)
    if next_seq < known.next_seq:
        raise InvalidOption("next_seq", f"{name} is at {known.next_seq} already")
    return _emit_reader(core, name, next_seq, now + lease, origin, now)


def drop_reader(core: Core, name: str, origin: Origin, now: i64) -> None:
    """Remove a reader for good."""
    check_writable(core)
    if name not in core.state.readers:
        raise ReaderNotFound(name)
    record = ReaderGone(now, origin, name)
    core.records.append(record)
    apply_reader_gone(core.state, record)


def _emit_reader(
    core: Core, name: str, next_seq: i64, lease_until: i64, origin: Origin, now: i64
) -> NamedReader:
    record = ReaderSet(now, origin, name, next_seq, lease_until)
    core.records.append(record)
    apply_reader(core.state, record)
    return core.state.readers[name]


def _check_reader(core: Core, next_seq: i64, lease: i64) -> None:
    if not 1 <= next_seq <= core.records.next_seq:
        raise InvalidOption("next_seq", "must be from 1 to the number of the next record")
    if not MIN_LEASE <= lease <= MAX_LEASE:
        raise InvalidOption("lease", "must be 1 second to 366 days")
