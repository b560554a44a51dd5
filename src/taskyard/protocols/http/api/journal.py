"""The API's journal: which segments there are, and their bytes, for readers elsewhere.

Only durable bytes are sent. They are read off the loop, a few answers at a time, so that many
readers leave memory and threads for other clients.
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
from taskyard.journal.serving import (
    DurableSegment,
    SegmentRead,
    durable_segment,
    durable_segments_from,
)
from taskyard.protocols.http.api.problems import (
    DISK_ERROR,
    SEGMENT_GONE,
    SEGMENT_NOT_FOUND,
    ApiProblem,
    invalid_value,
)
from taskyard.protocols.http.api.views import moment
from taskyard.protocols.http.call import ApiCall, Operation, QueryParameter
from taskyard.protocols.http.messages import Response
from taskyard.shared import api_pipeline_messages as shapes

MAX_ANSWER_BYTES: Final = 4 * 1_048_576  # of one answer
OCTETS: Final = "application/octet-stream"
_MAX_CONCURRENT_READS: Final = 2  # at a time: the threads are there for syncs as well
_MAX_POSITION: Final = 2**63 - 1
_BASE: Final = re.compile(r"[0-9]{1,19}", re.ASCII)

log = logging.getLogger("taskyard")


class JournalOperations:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._queue: deque[_SegmentAnswer] = deque()
        self._active_reads = 0

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
                    QueryParameter(
                        name="from",
                        doc="only segments from that on which has this record",
                        most=_MAX_POSITION,
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
                    QueryParameter(
                        name="from", doc="the first byte", most=_MAX_POSITION, default=0
                    ),
                    QueryParameter(
                        name="to",
                        doc="the one behind the last",
                        most=_MAX_POSITION,
                        default=_MAX_POSITION,
                    ),
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

    def _read(self, call: ApiCall) -> None:
        span = _span(call)
        start = min(call.number("from"), span.size if span is not None else 0)
        end = min(call.number("to"), span.size if span is not None else 0, start + MAX_ANSWER_BYTES)
        if span is None or end <= start:
            call.reply(Response(200, b"", OCTETS))
            return
        work = SegmentRead(call.broker.journal.directory, span, start, end)
        self._queue.append(_SegmentAnswer(self, call, work))
        self.read_next()

    def read_next(self) -> None:
        while self._queue and self._active_reads < _MAX_CONCURRENT_READS:
            self._active_reads += 1
            reading = self._queue.popleft()
            self._scheduler.run_blocking(reading.work.run, reading.done)

    def on_read_done(self) -> None:
        self._active_reads -= 1
        self.read_next()


class _SegmentAnswer:
    """An answer that waits for bytes."""

    def __init__(self, operations: JournalOperations, call: ApiCall, work: SegmentRead) -> None:
        self.work = work
        self._operations = operations
        self._call = call

    def done(self, error: BaseException | None) -> None:
        self._operations.on_read_done()  # whatever becomes of the answer
        call = self._call
        if error is not None:
            log.error("a segment of the journal could not be read: %s", error)
        call.now = call.broker.begin_turn()
        call.run_guarded(self._answer)
        call.broker.end_turn()

    def _answer(self) -> None:
        if self.work.segment_removed:
            raise _segment_gone(self._call.broker)
        if self.work.data is None:
            raise ApiProblem(
                DISK_ERROR, "The server's disk could not be read. Look at its log, then try again."
            )
        self._call.reply(Response(200, self.work.data, OCTETS))


def _show(call: ApiCall) -> None:
    journal = call.broker.journal
    identity = journal.identity
    call.send_json(
        200,
        shapes.JournalPage(
            timeline=identity.timeline.hex(),
            earlier=[
                shapes.EarlierTimelineView(timeline=past.timeline.hex(), last_seq=past.last_seq)
                for past in identity.earlier
            ],
            first_seq=journal.first_seq_of(journal.first_base),
            durable_seq=journal.durable_seq,
            segments=[
                _segment(span) for span in durable_segments_from(journal, call.number("from"))
            ],
        ),
    )


def _identify(call: ApiCall) -> None:
    fields = identity_fields(call.broker.journal.identity)
    call.send_json(200, msgspec.convert(fields, shapes.JournalIdentity))


def _segment(span: DurableSegment) -> shapes.SegmentView:
    return shapes.SegmentView(
        base=span.base,
        first_seq=span.first_seq,
        last_seq=span.last_seq,
        bytes=span.size,
        timeline=span.timeline.hex(),
        created_at=moment(span.created),
    )


def _span(call: ApiCall) -> DurableSegment | None:
    """The segment that the path names; None: nothing of it is durable yet."""
    which = call.request.params["base"]
    if not _BASE.fullmatch(which):
        raise invalid_value("base", "A segment is named by its base, a number.")
    base = int(which)
    journal = call.broker.journal
    if base < journal.first_base:
        raise _segment_gone(call.broker)
    if base > _MAX_POSITION or journal.base_of(base) != base:
        raise ApiProblem(
            SEGMENT_NOT_FOUND, f"There is no segment {base}: GET /api/v1/journal lists them."
        )
    return durable_segment(journal, base)


def _segment_gone(broker: Broker) -> ApiProblem:
    first_seq = broker.journal.first_seq_of(broker.journal.first_base)
    detail = f"The segment was dropped: the first record that there still is has number {first_seq}"
    return ApiProblem(SEGMENT_GONE, f"{detail}.", first_seq=first_seq)
