"""The API's journal: its segments and their bytes, the readers of it, and consumers of batches."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import msgspec

from taskyard.access.principal import ADMIN, INSPECT, JOURNAL
from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import Scheduler
from taskyard.engine.model.events import InvalidOption
from taskyard.engine.model.job import SECOND
from taskyard.engine.model.state import BatchConsumer, NamedReader
from taskyard.journal.identity import identity_fields
from taskyard.journal.reader import (
    DurableSegment,
    SegmentRead,
    durable_segment,
    durable_segments_from,
)
from taskyard.protocols.http.api.problems import (
    CONSUMER_NOT_FOUND,
    DISK_ERROR,
    INVALID_CURSOR,
    READER_NOT_FOUND,
    SEGMENT_GONE,
    SEGMENT_NOT_FOUND,
    WRONG_POSITION,
    ApiProblem,
    consumer_not_found,
    invalid_value,
    page_of_names,
)
from taskyard.protocols.http.api.queues import CURSOR, LIMIT
from taskyard.protocols.http.api.views import moment
from taskyard.protocols.http.call import JSON, ApiCall, Operation, QueryParameter, invalid_name
from taskyard.protocols.http.wire import Response
from taskyard.protocols.text import format_moment
from taskyard.shared import api_types as shapes
from taskyard.shared.text import valid_name

MAX_ANSWER_BYTES: Final = 4 * 1_048_576  # of one answer
OCTETS: Final = "application/octet-stream"
_MAX_CONCURRENT_READS: Final = 2  # at a time: the threads are there for syncs as well
_MAX_POSITION: Final = 2**63 - 1
_BASE: Final = re.compile(r"[0-9]{1,19}", re.ASCII)

log = logging.getLogger("taskyard")

READER: Final = "/api/v1/readers/{reader}"

CONSUMER: Final = "/api/v1/consumers/{consumer}"
_BACKLOG_PAUSE_US: Final = 5_000  # microseconds, while the disk is behind


# Segments, and their bytes, for readers elsewhere. Only durable bytes are sent. They are read off
# the loop, a few answers at a time, so that many readers leave memory and threads for other
# clients.


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


# Readers of the journal: list, register, commit, drop


class ReaderOperations:
    def operations(self) -> list[Operation]:
        one = {200: ("The reader.", shapes.ReaderView)}
        return [
            Operation(
                method="GET",
                pattern="/api/v1/readers",
                name="listReaders",
                summary="The readers of the journal, in order of their names",
                action=JOURNAL,
                run=_list,
                query=(LIMIT, CURSOR),
                answers={200: ("A page.", shapes.ReaderPage)},
                problems=(INVALID_CURSOR,),
            ),
            Operation(
                method="PUT",
                pattern=READER,
                name="putReader",
                summary="Register a reader, or say that it is back; it never goes backwards",
                action=JOURNAL,
                run=_register,
                bodies={JSON: shapes.Registration},
                answers={201: ("It is new.", shapes.ReaderView), **one},
                problems=(WRONG_POSITION,),
            ),
            Operation(
                method="POST",
                pattern=READER + "/commit",
                name="commitReader",
                summary="Say that a reader has all records before this one, for good",
                action=JOURNAL,
                run=_commit,
                bodies={JSON: shapes.Commit},
                answers=one,
                problems=(READER_NOT_FOUND, WRONG_POSITION),
            ),
            Operation(
                method="DELETE",
                pattern=READER,
                name="deleteReader",
                summary="Drop a reader that will not come back: nothing is kept for it",
                action=JOURNAL,
                run=_drop,
                answers={204: ("It is gone.", None)},
                problems=(READER_NOT_FOUND,),
            ),
        ]


def _reader_name(call: ApiCall) -> str:
    name = call.request.params["reader"]
    if not valid_name(name):
        raise invalid_name("reader")
    return name


def _list(call: ApiCall) -> None:
    readers = call.engine.state.readers
    names, following = page_of_names(sorted(readers), call.number("limit"), call.text("cursor"))
    shown = [_view(call, readers[name]) for name in names]
    call.send_json(200, shapes.ReaderPage(readers=shown, next=following))


def _register(call: ApiCall) -> None:
    name = _reader_name(call)
    body = call.body(shapes.Registration)
    journal = call.broker.journal
    first = journal.first_seq_of(journal.first_base)
    next_seq = first if body.next_seq is None else body.next_seq
    known = call.engine.reader(name) is not None
    reader = _check_position(
        lambda: call.engine.register_reader(
            name, next_seq, round(body.lease * SECOND), call.origin, call.now
        )
    )
    if known:
        call.send_json(200, _view(call, reader))
    else:
        location = [("Location", f"/api/v1/readers/{quote(name, safe='')}")]
        call.send_json(201, _view(call, reader), location)


def _commit(call: ApiCall) -> None:
    name = _reader_name(call)
    body = call.body(shapes.Commit)
    reader = _check_position(
        lambda: call.engine.commit_reader(
            name, body.next_seq, round(body.lease * SECOND), call.origin, call.now
        )
    )
    call.send_json(200, _view(call, reader))


def _check_position(step: Callable[[], NamedReader]) -> NamedReader:
    """Check a position against the end of the journal."""
    try:
        return step()
    except InvalidOption as error:
        if error.option != "next_seq":
            raise
        detail = f"The value of next_seq is refused: {error.reason}."
        raise ApiProblem(WRONG_POSITION, detail, field="next_seq") from None


def _drop(call: ApiCall) -> None:
    call.engine.drop_reader(_reader_name(call), call.origin, call.now)
    call.send_json(204)


def _view(call: ApiCall, reader: NamedReader) -> shapes.ReaderView:
    journal = call.broker.journal
    return shapes.ReaderView(
        name=reader.name,
        next_seq=reader.next_seq,
        lease_until=moment(reader.lease_until),
        behind=max(0, journal.durable_seq + 1 - reader.next_seq),
        missed=journal.missed_records(reader.next_seq),
    )


# Consumers: list, get, drop. A consumer belongs to the queues that its last batch is from: clients
# that may not see all of them do not see the consumer.


class ConsumerOperations:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET",
                pattern="/api/v1/consumers",
                name="listConsumers",
                summary="The consumers whose queues the caller may see, in order of their names",
                action=INSPECT,
                checks_queues_itself=True,
                run=_consumers_list,
                query=(LIMIT, CURSOR),
                answers={200: ("A page.", shapes.ConsumerPage)},
                problems=(INVALID_CURSOR,),
            ),
            Operation(
                method="GET",
                pattern=CONSUMER,
                name="getConsumer",
                summary="One consumer and the batch that it has",
                action=INSPECT,
                checks_queues_itself=True,
                run=lambda call: call.send_json(200, _consumers_view(_named_consumer(call))),
                answers={200: ("The consumer.", shapes.ConsumerView)},
                problems=(CONSUMER_NOT_FOUND,),
            ),
            Operation(
                method="DELETE",
                pattern=CONSUMER,
                name="deleteConsumer",
                summary="Drop a consumer; the jobs that it holds go back to their queues",
                action=ADMIN,
                checks_queues_itself=True,
                run=self._drop,
                answers={204: ("It is gone.", None)},
                problems=(CONSUMER_NOT_FOUND,),
            ),
        ]

    def _drop(self, call: ApiCall) -> None:
        _ConsumerDrop(call, self._scheduler, _named_consumer(call)).run_chunk()


class _ConsumerDrop:
    """Returns the jobs to their queues in chunks."""

    def __init__(self, call: ApiCall, scheduler: Scheduler, consumer: BatchConsumer) -> None:
        self._call = call
        self._scheduler = scheduler
        self._consumer = consumer

    def run_chunk(self) -> None:
        call = self._call
        name = self._consumer.name
        if call.engine.consumer(name) is not self._consumer:
            call.send_json(204)  # another client was quicker, and may use the name again by now
        elif call.engine.drop_consumer(name, call.origin, call.now):
            call.send_json(204)
        elif call.broker.is_backlogged():
            self._scheduler.call_at(
                call.broker.clock.now() + _BACKLOG_PAUSE_US, self._continue_next_turn
            )
        else:
            self._scheduler.call_soon(self._continue_next_turn)

    def _continue_next_turn(self) -> None:
        call = self._call
        call.now = call.broker.begin_turn()
        call.run_guarded(self.run_chunk)
        call.broker.end_turn()


def _named_consumer(call: ApiCall) -> BatchConsumer:
    """The one that the path names; it must be there for the caller."""
    name = call.request.params["consumer"]
    consumer = call.engine.consumer(name)
    principal = call.request.principal
    action = call.operation.action
    if consumer is None:
        raise consumer_not_found(name)
    queues = [queue.decode() for queue in consumer.queues]
    if not all(principal.may(INSPECT, queue) or principal.may(action, queue) for queue in queues):
        raise consumer_not_found(name)  # a refusal would show that it exists
    for queue in queues:
        call.require(queue)
    return consumer


def _consumers_list(call: ApiCall) -> None:
    may = call.request.principal.may
    consumers = call.engine.state.consumers
    seen = [
        name
        for name, consumer in consumers.items()
        if all(may(INSPECT, queue.decode()) for queue in consumer.queues)
    ]
    names, following = page_of_names(sorted(seen), call.number("limit"), call.text("cursor"))
    shown = [_consumers_view(consumers[name]) for name in names]
    call.send_json(200, shapes.ConsumerPage(consumers=shown, next=following))


def _consumers_view(consumer: BatchConsumer) -> shapes.ConsumerView:
    return shapes.ConsumerView(
        name=consumer.name,
        batch=consumer.number,
        open=consumer.open,
        jobs=len(consumer.ids),
        queues=[queue.decode() for queue in consumer.queues],
        deadline=format_moment(consumer.deadline),
        expired=consumer.expired,
        user=consumer.user or None,
    )
