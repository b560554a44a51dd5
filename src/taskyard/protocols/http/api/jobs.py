"""The API's jobs: get, list, cancel, retry, change priority, move; leases; finished jobs."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from taskyard.access.principal import ADMIN, INSPECT
from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import Scheduler
from taskyard.engine.model.job import (
    DELAYED,
    FAILED,
    FOREVER,
    GONE,
    LEASED,
    LIMITED,
    MAX_PRIORITY,
    MIN_PRIORITY,
    STATE_NAMES,
    SUCCEEDED,
    Job,
)
from taskyard.engine.model.queue import Queue
from taskyard.engine.records.describe import describe_masked
from taskyard.engine.records.entities import BatchRecord
from taskyard.engine.records.job_changes import FailRecord, RetryRecord
from taskyard.engine.records.job_lifecycle import PushRecord, Record
from taskyard.journal.reader import ChunkPosition, JournalChunk
from taskyard.protocols.http.api.problems import (
    DISK_ERROR,
    INVALID_CURSOR,
    JOB_NOT_FOUND,
    QUEUE_NOT_FOUND,
    WRONG_STATE,
    ApiProblem,
    FinishedCursor,
    JobCursor,
    RecordCursor,
    invalid_cursor,
    read_cursor,
    write_cursor,
)
from taskyard.protocols.http.api.queues import CURSOR, LIMIT, QUEUE, SortedQueueNames
from taskyard.protocols.http.api.views import (
    ERROR_PREVIEW_BYTES,
    content_view,
    error_line_of,
    error_location,
    error_view,
    held_job_view,
    job_summary_fields,
)
from taskyard.protocols.http.call import JSON, ApiCall, Operation, QueryParameter, invalid_name
from taskyard.protocols.http.monitoring.events import origin_queues, remove_personal_fields
from taskyard.shared import api_types as messages
from taskyard.shared.text import valid_name

JOB: Final = "/api/v1/jobs/{job}"
MAX_SCANNED_QUEUES: Final = 10_000  # queues scanned for one page of leases


class JobOperations:
    def __init__(self, names: SortedQueueNames) -> None:
        self._names = names

    def operations(self) -> list[Operation]:
        return [*_single_job_operations(), *_single_job_changes(), *self._lists()]

    def _lists(self) -> list[Operation]:
        return [
            Operation(
                method="GET",
                pattern=QUEUE + "/jobs",
                name="listJobs",
                summary="The jobs of a queue in one state, in their order there",
                action=INSPECT,
                run=_list,
                query=(
                    QueryParameter(
                        name="state",
                        doc="the state they are in",
                        values=(*STATE_NAMES[:6], STATE_NAMES[LIMITED]),
                        default="ready",
                    ),
                    LIMIT,
                    CURSOR,
                ),
                answers={200: ("A page of jobs.", messages.JobPage)},
                problems=(QUEUE_NOT_FOUND, INVALID_CURSOR),
            ),
            Operation(
                method="GET",
                pattern=QUEUE + "/leases",
                name="listQueueLeases",
                summary="The leases of a queue that are in flight",
                action=INSPECT,
                run=_list_leases_of_one,
                query=(LIMIT, CURSOR),
                answers={200: ("A page of leases.", messages.LeasePage)},
                problems=(QUEUE_NOT_FOUND, INVALID_CURSOR),
            ),
            Operation(
                method="GET",
                pattern="/api/v1/leases",
                checks_queues_itself=True,
                name="listLeases",
                summary="All leases in flight that the caller may see, queue by queue",
                action=INSPECT,
                run=self._list_leases,
                query=(LIMIT, CURSOR),
                answers={200: ("A page of leases.", messages.LeasePage)},
                problems=(INVALID_CURSOR,),
            ),
            Operation(
                method="GET",
                pattern="/api/v1/finished",
                checks_queues_itself=True,
                name="listFinished",
                summary="Jobs that ended a short while ago, as the caller may see, the last first",
                action=INSPECT,
                run=_list_finished,
                query=(LIMIT, CURSOR),
                answers={200: ("A page of jobs.", messages.JobPage)},
                problems=(INVALID_CURSOR,),
            ),
        ]

    def _list_leases(self, call: ApiCall) -> None:
        limit = call.number("limit")
        place = start_cursor(call, None, LEASED)
        queues = call.engine.state.queues
        jobs: list[Job] = []
        last = place.queue
        first = call.engine.queue(place.queue.encode(errors="replace"))
        if first is not None and call.may_inspect(first):
            jobs = jobs_after(call, first, LEASED, place, limit)
        looked_at = 0
        while len(jobs) < limit and looked_at < MAX_SCANNED_QUEUES:
            names = self._names.names_after(last, 100)
            for name in names:
                looked_at += 1
                queue = queues[name]
                last = queue.name
                if queue.leased.size and call.may_inspect(queue):
                    jobs.extend(queue.leased.slice(0, limit - len(jobs)))
                if len(jobs) == limit:
                    break
            if not names:
                _answer_leases(call, jobs, None)
                return
        if len(jobs) < limit:  # many queues, few leases: the page ends here, the list does not
            following = JobCursor(last, STATE_NAMES[LEASED], MIN_PRIORITY, FOREVER, 0)
        else:
            following = cursor_after(jobs[-1])
        _answer_leases(call, jobs, following)


def _single_job_operations() -> list[Operation]:
    return [
        Operation(
            method="GET",
            pattern=JOB,
            checks_queues_itself=True,
            name="getJob",
            summary="One job, also if it ended a short while ago",
            action=INSPECT,
            run=_get,
            answers={200: ("The job.", messages.JobView)},
            problems=(JOB_NOT_FOUND, DISK_ERROR),
        ),
        Operation(
            method="DELETE",
            pattern=JOB,
            checks_queues_itself=True,
            name="cancelJob",
            summary="Remove a job, whatever its state; jobs that wait for it fail",
            action=ADMIN,
            run=_cancel,
            answers={204: ("It is gone.", None)},
            problems=(JOB_NOT_FOUND,),
        ),
    ]


def _single_job_changes() -> list[Operation]:
    summary = {200: ("The job as it is now.", messages.JobSummary)}
    return [
        Operation(
            method="PATCH",
            pattern=JOB,
            checks_queues_itself=True,
            name="changeJob",
            summary="Give a job another priority",
            action=ADMIN,
            run=_change,
            bodies={JSON: messages.Change},
            answers=summary,
            problems=(JOB_NOT_FOUND, WRONG_STATE),
        ),
        Operation(
            method="POST",
            pattern=JOB + "/retry",
            checks_queues_itself=True,
            name="retryJob",
            summary="Make a delayed job or a dead letter ready now",
            action=ADMIN,
            run=_retry,
            answers=summary,
            problems=(JOB_NOT_FOUND, WRONG_STATE),
        ),
        Operation(
            method="POST",
            pattern=JOB + "/move",
            checks_queues_itself=True,
            name="moveJob",
            summary="Put a ready or delayed job or a dead letter into another queue, ready",
            action=ADMIN,
            run=_move,
            bodies={JSON: messages.Move},
            answers=summary,
            problems=(JOB_NOT_FOUND, WRONG_STATE),
        ),
    ]


def _get(call: ApiCall) -> None:
    job = call.find_job()
    result = _result_location(job)
    places = [(job.payload_at, job.payload_size), result or (0, 0), error_location(job, FOREVER)]

    def show(found: list[bytes | None]) -> None:
        call.check_job_permission(job)
        call.send_json(
            200,
            messages.JobView(
                **job_summary_fields(call.engine, job, call.now),
                payload=content_view(found[0], job.payload_size),
                result=None if result is None else content_view(found[1], result[1]),
                error=error_view(job, found[2]),
            ),
        )

    call.read_blobs(places, show)


def _result_location(job: Job) -> tuple[int, int] | None:
    """Return none for a failed job: what Workq returns as its result is its error."""
    extra = job.extras
    succeeded = job.state == SUCCEEDED or (job.state == GONE and job.order_key)
    if extra is None or not extra.has_result or not succeeded:
        return None
    return extra.result_at, extra.result_size


def _cancel(call: ApiCall) -> None:
    call.engine.delete_job(call.live_job().id, call.origin, call.now)
    call.send_json(204)


def _change(call: ApiCall) -> None:
    body = call.body(messages.Change)
    job = call.live_job()
    call.engine.rescore(job.id, body.priority, call.origin, call.now)
    _show(call, job)


def _retry(call: ApiCall) -> None:
    job = call.live_job()
    if job.state == DELAYED:
        call.engine.wake_job(job.id, call.origin, call.now)
    elif job.state == FAILED:
        call.engine.replay_dead_letter(job.id, call.origin, call.now)
    else:
        raise ApiProblem(
            WRONG_STATE,
            f"The job is {STATE_NAMES[job.state]}: only a delayed job or a dead letter can be "
            "made ready.",
        )
    _show(call, job)


def _move(call: ApiCall) -> None:
    body = call.body(messages.Move)
    if not valid_name(body.queue):
        raise invalid_name("queue")
    job = call.live_job()
    call.require(body.queue)
    call.engine.move_job(job.id, body.queue, body.front, call.origin, call.now)
    _show(call, job)


def _show(call: ApiCall, job: Job) -> None:
    call.send_json(200, messages.JobSummary(**job_summary_fields(call.engine, job, call.now)))


# Lists


def _list(call: ApiCall) -> None:
    queue = call.queue()
    state = STATE_NAMES.index(call.text("state"))
    limit = call.number("limit")
    jobs = jobs_after(call, queue, state, start_cursor(call, queue, state), limit)
    following = write_cursor(cursor_after(jobs[-1])) if len(jobs) == limit else None
    views = [messages.JobSummary(**job_summary_fields(call.engine, job, call.now)) for job in jobs]
    call.send_json(200, messages.JobPage(jobs=views, next=following))


def _list_leases_of_one(call: ApiCall) -> None:
    queue = call.queue()
    limit = call.number("limit")
    jobs = jobs_after(call, queue, LEASED, start_cursor(call, queue, LEASED), limit)
    _answer_leases(call, jobs, cursor_after(jobs[-1]) if len(jobs) == limit else None)


def _answer_leases(call: ApiCall, jobs: list[Job], following: JobCursor | None) -> None:
    held = [
        held_job_view(call.engine, job, job.lease, call.now)
        for job in jobs
        if job.lease is not None
    ]
    cursor = write_cursor(following) if following is not None else None
    call.send_json(200, messages.LeasePage(leases=held, next=cursor))


def _list_finished(call: ApiCall) -> None:
    limit = call.number("limit")
    shown = (job for job in recently_finished(call) if call.may_inspect(job.queue))
    jobs = list(islice(shown, limit))
    following = write_cursor(FinishedCursor(jobs[-1].id)) if len(jobs) == limit else None
    views = [messages.JobSummary(**job_summary_fields(call.engine, job, call.now)) for job in jobs]
    call.send_json(200, messages.JobPage(jobs=views, next=following))


def recently_finished(call: ApiCall) -> Iterator[Job]:
    """Return the ring from its newest job back, from behind the cursor on."""
    ring = reversed(call.engine.state.finished_ring)
    cursor = call.text("cursor")
    if not cursor:
        return ring
    last = read_cursor(cursor, FinishedCursor).id
    if call.engine.state.next_id <= last or call.engine.recent(last) is None:
        return iter(())  # it has left the ring, and all that ended before it have left earlier
    for job in ring:
        if job.id == last:
            break
    return ring


def start_cursor(call: ApiCall, queue: Queue | None, state: int) -> JobCursor:
    """Where a list continues: behind the cursor, or at the beginning."""
    name = queue.name if queue is not None else ""
    cursor = call.text("cursor")
    if not cursor:
        return JobCursor(name, STATE_NAMES[state], MAX_PRIORITY, MIN_PRIORITY, 0)
    place = read_cursor(cursor, JobCursor)
    if place.state != STATE_NAMES[state] or (queue is not None and place.queue != name):
        raise invalid_cursor()
    return place


def cursor_after(job: Job) -> JobCursor:
    return JobCursor(job.queue.name, STATE_NAMES[job.state], job.priority, job.order_key, job.id)


def jobs_after(call: ApiCall, queue: Queue, state: int, place: JobCursor, limit: int) -> list[Job]:
    return call.engine.jobs_after(queue, state, place.priority, place.position, place.id, limit)


# The API's life of one job: what happened to it, and how it hangs together with others

MAX_EVENTS: Final = 1_000  # in one answer
MAX_CHUNKS: Final = 16  # each reads up to 4 MiB
MAX_NODES: Final = 100
_MAX_DROPPED_CHUNKS: Final = 3
# cached, so that the next page need not search where the last ended
_MAX_REMEMBERED_POSITIONS: Final = 100

log = logging.getLogger("taskyard")


class JobEventOperations:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: deque[_EventPageReader] = deque()
        self._is_reading = False
        self.chunk_positions: OrderedDict[tuple[int, int], ChunkPosition] = OrderedDict()

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET",
                pattern=JOB + "/events",
                checks_queues_itself=True,
                name="listJobEvents",
                summary="What happened to a job, as far as the journal still has it",
                action=INSPECT,
                run=self._list,
                query=(CURSOR,),
                answers={200: ("A page of events, which may be empty.", messages.JobEvents)},
                problems=(JOB_NOT_FOUND, INVALID_CURSOR, DISK_ERROR),
            ),
            Operation(
                method="GET",
                pattern=JOB + "/graph",
                checks_queues_itself=True,
                name="getJobGraph",
                summary="The jobs that a job waits for, and those that wait for it",
                action=INSPECT,
                run=_show_graph,
                answers={200: ("At most 100 jobs.", messages.JobGraph)},
                problems=(JOB_NOT_FOUND,),
            ),
        ]

    def _list(self, call: ApiCall) -> None:
        job = call.find_job()
        cursor = call.text("cursor")
        reading = _EventPageReader(self, call, job, _first_seq(call.broker, job))
        if cursor:
            place = read_cursor(cursor, RecordCursor)
            if place.job != job.id or place.seq > call.broker.journal.durable_seq + 1:
                raise invalid_cursor()
            reading.resume_at(place)
        self._waiting.append(reading)
        self._read_next()

    def _read_next(self) -> None:
        if self._waiting and not self._is_reading:
            self._is_reading = True
            self._waiting.popleft().read_chunk()

    def read_chunk(self, work: JournalChunk, reading: _EventPageReader) -> None:
        self._scheduler.run_blocking(work.run, reading.done)

    def on_page_done(self) -> None:
        self._is_reading = False
        self._read_next()

    def remember_position(self, job: int, seq: int, place: ChunkPosition) -> None:
        self.chunk_positions[job, seq] = place
        if len(self.chunk_positions) > _MAX_REMEMBERED_POSITIONS:
            self.chunk_positions.popitem(last=False)


class _EventPageReader:
    """A page that is being read."""

    def __init__(self, operations: JobEventOperations, call: ApiCall, job: Job, first: int) -> None:
        self._operations = operations
        self._call = call
        self._job = job
        self._first = first
        self._next = first
        self._upto = _last_seq(call.broker, job)
        self._position: ChunkPosition | None = None
        self._chunks = 0
        self._dropped_chunks = 0  # chunks whose segment was removed meanwhile
        self._events: list[dict[str, Any]] = []
        self._has_push = False
        self._work: JournalChunk | None = None

    def resume_at(self, cursor: RecordCursor) -> None:
        self._first = self._next = max(self._first, cursor.seq)
        self._has_push = cursor.whole
        self._position = self._operations.chunk_positions.get((self._job.id, self._first))

    def read_chunk(self) -> None:
        journal = self._call.broker.journal
        self._next += journal.missed_records(self._next)
        limit = MAX_EVENTS - len(self._events)
        self._chunks += 1
        self._work = JournalChunk(
            journal.directory, self._next, self._upto, limit, self._position, self._job.id
        )
        self._operations.read_chunk(self._work, self)

    def done(self, error: BaseException | None) -> None:
        work = self._work
        assert work is not None
        self._dropped_chunks += work.segment_removed
        if error is not None or work.damage or self._dropped_chunks > _MAX_DROPPED_CHUNKS:
            log.error("the journal could not be read: %s", work.damage or error)
            self._finish_page(broken=True)
            return
        self._add_records(work.records)
        self._next, self._position = work.next_seq, work.position
        full = len(self._events) >= MAX_EVENTS
        # A page may end anywhere, but not where it began.
        spent = self._chunks >= MAX_CHUNKS and self._next > self._first
        if self._next <= self._upto and not full and not spent:
            self.read_chunk()
        else:
            self._finish_page()

    def _add_records(self, records: list[Record]) -> None:
        salt = self._call.engine.salt
        for record in records:
            shown = _event_of_job(record, self._job.id, salt)
            if shown is not None:
                self._remove_personal_fields(record, shown)
                self._has_push = self._has_push or isinstance(record, PushRecord)
                self._events.append(shown)

    def _remove_personal_fields(self, record: Record, shown: dict[str, Any]) -> None:
        """Remove them, because the job may have been in a queue that the caller may not inspect."""
        may = self._call.request.principal.may
        if not all(may(INSPECT, queue.decode()) for queue in _origin_queues(record, self._job.id)):
            remove_personal_fields(shown)

    def _finish_page(self, broken: bool = False) -> None:
        self._operations.on_page_done()  # whatever becomes of the answer
        call = self._call
        call.now = call.broker.begin_turn()
        call.run_guarded(self._refuse if broken else self._answer)
        call.broker.end_turn()

    def _refuse(self) -> None:
        raise ApiProblem(
            DISK_ERROR, "The server's disk could not be read. Look at its log, then try again."
        )

    def _answer(self) -> None:
        self._call.check_job_permission(self._job)  # it may have moved meanwhile
        following: str | None = None
        if self._next <= self._upto:
            following = write_cursor(RecordCursor(self._job.id, self._next, self._has_push))
            if self._position is not None:
                self._operations.remember_position(self._job.id, self._next, self._position)
        self._call.send_json(
            200,
            messages.JobEvents(
                events=self._events,
                complete=self._has_push,
                from_seq=self._first,
                next=following,
            ),
        )


def _first_seq(broker: Broker, job: Job) -> int:
    """Return a record that is before the job's push, and not by far.

    The time when a segment was made is known roughly, so the one before it is read as well.
    """
    journal = broker.journal
    base = before = journal.first_base
    following = journal.next_base(base)
    while following and journal.created_of(following) <= job.pushed_at:
        before, base = base, following
        following = journal.next_base(base)
    return max(1, journal.first_seq_of(before))


def _last_seq(broker: Broker, job: Job) -> int:
    """The last one that there may be of it now."""
    journal = broker.journal
    if job.state != GONE or not job.finished_at:
        return journal.durable_seq
    base = (
        journal.base_of(job.payload_at)
        if job.payload_at >= journal.first_base
        else journal.first_base
    )
    later = 0
    while base:
        if journal.created_of(base) > job.finished_at:
            later += 1
            if later == 2:
                return min(journal.durable_seq, journal.first_seq_of(base) - 1)
        base = journal.next_base(base)
    return journal.durable_seq


def _event_of_job(record: Record, job: int, salt: bytes) -> dict[str, Any] | None:
    """The event, if it is one of this job."""
    if isinstance(record, BatchRecord):
        if job not in record.ids:
            return None
        found = describe_masked(salt, record)
        at = record.ids.index(job)
        attempt = record.attempts[at] if at < len(record.attempts) else 0
        for name in ("ids", "queues", "counts", "attempts"):
            found.pop(name, None)  # they are of others
        return {**found, "id": job, "attempt": attempt}
    if getattr(record, "id", 0) != job or not hasattr(record, "queue"):
        return None
    found = describe_masked(salt, record)
    if isinstance(record, (FailRecord, RetryRecord)) and record.blob_size:
        begin, end = record.blob[:ERROR_PREVIEW_BYTES], record.blob[-ERROR_PREVIEW_BYTES:]
        error = found["error"] = content_view(begin, record.blob_size)
        found["error_line"] = error_line_of(error, begin, end)
    return found


def _origin_queues(record: Record, job: int) -> list[bytes]:
    """The queue in which the job was when that happened."""
    if not isinstance(record, BatchRecord):
        return origin_queues(record)
    place = record.ids.index(job)
    for queue, count in zip(record.queues, record.counts, strict=False):
        if place < count:
            return [queue]
        place -= count
    return record.queues


# How jobs hang together


def _show_graph(call: ApiCall) -> None:
    job = call.find_job()
    graph = _JobGraph(call)
    graph.add(job, 0)
    graph.walk(job, -1)
    graph.walk(job, 1)
    nodes = [
        messages.GraphNode(
            id=node.id,
            queue=node.queue.name,
            name=node.name,
            state=STATE_NAMES[node.state],
            level=level,
        )
        for node, level in graph.nodes.values()
    ]
    call.send_json(
        200,
        messages.JobGraph(
            nodes=nodes, edges=[list(edge) for edge in sorted(graph.edges)], cut=graph.truncated
        ),
    )


class _JobGraph:
    def __init__(self, call: ApiCall) -> None:
        self._call = call
        self._state = call.engine.state
        self.nodes: dict[int, tuple[Job, int]] = {}
        self.edges: set[tuple[int, int]] = set()
        self.truncated = False

    def add(self, job: Job, level: int) -> None:
        self.nodes[job.id] = (job, level)

    def walk(self, job: Job, way: int) -> None:
        """Go from one level to the next; half of the limit is for each direction."""
        room = MAX_NODES // 2 if way < 0 else MAX_NODES
        line: deque[tuple[Job, int]] = deque([(job, 0)])
        while line:
            here, level = line.popleft()
            for id in self._neighbours(here, way):
                other = self._state.live_job(id)
                if other is None or not self._call.may_inspect(other.queue):
                    continue
                if id not in self.nodes:
                    if len(self.nodes) >= room:
                        self.truncated = True
                        continue
                    self.add(other, level + way)
                    line.append((other, level + way))
                self.edges.add((id, here.id) if way < 0 else (here.id, id))

    def _neighbours(self, job: Job, way: int) -> list[int]:
        if way > 0:
            found = list(islice(self._state.dependents.get(job.id, ()), MAX_NODES + 1))
        else:
            found = sorted(job.extras.blockers) if job.extras and job.extras.blockers else []
        if len(found) > MAX_NODES:
            self.truncated = True
        return found
