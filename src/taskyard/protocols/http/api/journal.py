"""The API's journal: which segments there are, and their bytes, for readers elsewhere.

Only durable bytes are given. They are read off the loop, a few answers at a time, so that however
many read, memory and threads are left for the others.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from typing import Final

import msgspec

from taskyard.access.principal import JOURNAL
from taskyard.broker.broker import Broker
from taskyard.broker.seams import Scheduler
from taskyard.journal.identity import identity_fields
from taskyard.journal.serving import SegmentRead, Span, span_of, spans_from
from taskyard.protocols.http.api.problems import (
    DISK_ERROR,
    SEGMENT_GONE,
    SEGMENT_NOT_FOUND,
    Problem,
    invalid,
)
from taskyard.protocols.http.api.views import moment
from taskyard.protocols.http.call import Call, Operation, Parameter
from taskyard.protocols.http.messages import Response
from taskyard.shared import api_pipeline_messages as shapes

MOST_BYTES: Final = 4 * 1_048_576  # of one answer
OCTETS: Final = "application/octet-stream"
_MOST_READS: Final = 2  # at a time: the threads are there for syncs as well
_MOST: Final = 2**63 - 1
_BASE: Final = re.compile(r"[0-9]{1,19}", re.ASCII)

log = logging.getLogger("taskyard")


class JournalOperations:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._line: deque[_Reading] = deque()
        self._out = 0

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET",
                pattern="/api/v1/journal",
                name="getJournal",
                summary="Where the durable records are: the segments of the journal",
                action=JOURNAL,
                run=_show,
                query=(
                    Parameter(
                        name="from",
                        doc="only segments from that on which has this record",
                        most=_MOST,
                        default=0,
                    ),
                ),
                answers={200: ("The segments, in order.", shapes.JournalPage)},
                reads_state=False,
            ),
            Operation(
                method="GET",
                pattern="/api/v1/journal/segments/{base}",
                name="getSegment",
                summary="Bytes of a segment as they are on disk, at most 4 MiB in one answer",
                action=JOURNAL,
                run=self._read,
                query=(
                    Parameter(name="from", doc="the first byte", most=_MOST, default=0),
                    Parameter(name="to", doc="the one behind the last", most=_MOST, default=_MOST),
                ),
                answers={200: ("Those of them that are durable.", bytes)},
                problems=(SEGMENT_NOT_FOUND, SEGMENT_GONE, DISK_ERROR),
                reads_state=False,
            ),
            Operation(
                method="GET",
                pattern="/api/v1/journal/identity",
                name="getJournalIdentity",
                summary="Which journal this is: what a backup needs beside the segments",
                action=JOURNAL,
                run=_identify,
                answers={200: ("What stands in identity.json.", shapes.JournalIdentity)},
            ),
        ]

    def _read(self, call: Call) -> None:
        span = _span(call)
        start = min(call.number("from"), span.size if span is not None else 0)
        end = min(call.number("to"), span.size if span is not None else 0, start + MOST_BYTES)
        if span is None or end <= start:
            call.reply(Response(200, b"", OCTETS))
            return
        work = SegmentRead(call.broker.journal.directory, span, start, end)
        self._line.append(_Reading(self, call, work))
        self.read_next()

    def read_next(self) -> None:
        while self._line and self._out < _MOST_READS:
            self._out += 1
            reading = self._line.popleft()
            self._scheduler.run_blocking(reading.work.run, reading.done)

    def has_read(self) -> None:
        self._out -= 1
        self.read_next()


class _Reading:
    """An answer that waits for bytes."""

    def __init__(self, operations: JournalOperations, call: Call, work: SegmentRead) -> None:
        self.work = work
        self._operations = operations
        self._call = call

    def done(self, error: BaseException | None) -> None:
        self._operations.has_read()  # whatever becomes of the answer
        call = self._call
        if error is not None:
            log.error("a segment of the journal could not be read: %s", error)
        call.now = call.broker.begin()
        call.guard(self._answer)
        call.broker.end()

    def _answer(self) -> None:
        if self.work.gone:
            raise _gone(self._call.broker)
        if self.work.data is None:
            raise Problem(
                DISK_ERROR, "The server's disk could not be read. Look at its log, then try again."
            )
        self._call.reply(Response(200, self.work.data, OCTETS))


def _show(call: Call) -> None:
    journal = call.broker.journal
    identity = journal.identity
    call.answer(
        200,
        shapes.JournalPage(
            timeline=identity.timeline.hex(),
            earlier=[
                shapes.EarlierTimelineView(timeline=past.timeline.hex(), last_seq=past.last_seq)
                for past in identity.earlier
            ],
            first_seq=journal.first_seq_of(journal.first),
            durable_seq=journal.durable_seq,
            segments=[_segment(span) for span in spans_from(journal, call.number("from"))],
        ),
    )


def _identify(call: Call) -> None:
    fields = identity_fields(call.broker.journal.identity)
    call.answer(200, msgspec.convert(fields, shapes.JournalIdentity))


def _segment(span: Span) -> shapes.SegmentView:
    return shapes.SegmentView(
        base=span.base,
        first_seq=span.first_seq,
        last_seq=span.last_seq,
        bytes=span.size,
        timeline=span.timeline.hex(),
        created_at=moment(span.created),
    )


def _span(call: Call) -> Span | None:
    """The segment that the path names; None: nothing of it is durable yet."""
    which = call.request.params["base"]
    if not _BASE.fullmatch(which):
        raise invalid("base", "A segment is named by its base, a number.")
    base = int(which)
    journal = call.broker.journal
    if base < journal.first:
        raise _gone(call.broker)
    if base > _MOST or journal.base_of(base) != base:
        raise Problem(
            SEGMENT_NOT_FOUND, f"There is no segment {base}: GET /api/v1/journal lists them."
        )
    return span_of(journal, base)


def _gone(broker: Broker) -> Problem:
    first_seq = broker.journal.first_seq_of(broker.journal.first)
    detail = f"The segment was dropped: the first record that there still is has number {first_seq}"
    return Problem(SEGMENT_GONE, f"{detail}.", first_seq=first_seq)
