"""The API's life of one job: what happened to it, and how it hangs together with others.

What happened is read back from the journal, off the loop and in portions, for one client at a time.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from itertools import islice
from typing import Any, Final

from taskyard.access.principal import INSPECT
from taskyard.broker.broker import Broker
from taskyard.broker.seams import Scheduler
from taskyard.engine.model.job import GONE, STATE_NAMES, Job
from taskyard.engine.records.describe import told
from taskyard.engine.records.job_changes import Fail, Retry
from taskyard.engine.records.job_lifecycle import Push, Record
from taskyard.engine.records.side_records import Batch
from taskyard.journal.portion import Place, Portion
from taskyard.protocols.http.api.cursor import RecordPlace, foreign, read_cursor, write_cursor
from taskyard.protocols.http.api.problems import DISK_ERROR, INVALID_CURSOR, JOB_NOT_FOUND, Problem
from taskyard.protocols.http.api.queues import CURSOR
from taskyard.protocols.http.api.views import GLANCE, content_of, line_of
from taskyard.protocols.http.call import Call, Operation
from taskyard.protocols.http.monitoring.event_filter import happened_in, leave_out_personal
from taskyard.shared import search_messages as messages

JOB: Final = "/api/v1/jobs/{job}"
MOST_EVENTS: Final = 1_000  # in one answer
MOST_PORTIONS: Final = 16  # each reads up to 4 MiB
MOST_NODES: Final = 100
_MOST_PASSED: Final = 3
_PLACES: Final = 100  # remembered, so that the next page need not look for where the last ended

log = logging.getLogger("taskyard")


class JobEventOperations:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._line: deque[_Reading] = deque()
        self._busy = False
        self.places: OrderedDict[tuple[int, int], Place] = OrderedDict()

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET",
                pattern=JOB + "/events",
                anywhere=True,
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
                anywhere=True,
                name="getJobGraph",
                summary="The jobs that a job waits for, and those that wait for it",
                action=INSPECT,
                run=_show_graph,
                answers={200: ("At most 100 jobs.", messages.JobGraph)},
                problems=(JOB_NOT_FOUND,),
            ),
        ]

    def _list(self, call: Call) -> None:
        job = call.job_or_remains()
        cursor = call.text("cursor")
        reading = _Reading(self, call, job, _first_seq(call.broker, job))
        if cursor:
            place = read_cursor(cursor, RecordPlace)
            if place.job != job.id or place.seq > call.broker.journal.durable_seq + 1:
                raise foreign()
            reading.begin_at(place)
        self._line.append(reading)
        self._read_next()

    def _read_next(self) -> None:
        if self._line and not self._busy:
            self._busy = True
            self._line.popleft().go_on()

    def read(self, work: Portion, reading: _Reading) -> None:
        self._scheduler.run_blocking(work.run, reading.done)

    def ended(self) -> None:
        self._busy = False
        self._read_next()

    def remember(self, job: int, seq: int, place: Place) -> None:
        self.places[job, seq] = place
        if len(self.places) > _PLACES:
            self.places.popitem(last=False)


class _Reading:
    """A page on its way."""

    def __init__(self, operations: JobEventOperations, call: Call, job: Job, first: int) -> None:
        self._operations = operations
        self._call = call
        self._job = job
        self._first = first
        self._next = first
        self._upto = _last_seq(call.broker, job)
        self._place: Place | None = None
        self._portions = 0
        self._passed = 0  # portions whose segment was dropped meanwhile
        self._events: list[dict[str, Any]] = []
        self._has_push = False
        self._work: Portion | None = None

    def begin_at(self, place: RecordPlace) -> None:
        self._first = self._next = max(self._first, place.seq)
        self._has_push = place.whole
        self._place = self._operations.places.get((self._job.id, self._first))

    def go_on(self) -> None:
        journal = self._call.broker.journal
        self._next += journal.missed(self._next)
        limit = MOST_EVENTS - len(self._events)
        self._portions += 1
        self._work = Portion(
            journal.directory, self._next, self._upto, limit, self._place, self._job.id
        )
        self._operations.read(self._work, self)

    def done(self, error: BaseException | None) -> None:
        work = self._work
        assert work is not None
        self._passed += work.passed
        if error is not None or work.damage or self._passed > _MOST_PASSED:
            log.error("the journal could not be read: %s", work.damage or error)
            self._end(broken=True)
            return
        self._take(work.records)
        self._next, self._place = work.next_seq, work.place
        full = len(self._events) >= MOST_EVENTS
        # A page ends somewhere, but not before it has come further than where it began.
        spent = self._portions >= MOST_PORTIONS and self._next > self._first
        if self._next <= self._upto and not full and not spent:
            self.go_on()
        else:
            self._end()

    def _take(self, records: list[Record]) -> None:
        salt = self._call.engine.salt
        for record in records:
            shown = _shown(record, self._job.id, salt)
            if shown is not None:
                self._leave_out(record, shown)
                self._has_push = self._has_push or isinstance(record, Push)
                self._events.append(shown)

    def _leave_out(self, record: Record, shown: dict[str, Any]) -> None:
        """The job may have come from a queue that the caller may not inspect."""
        may = self._call.request.principal.may
        if not all(may(INSPECT, queue.decode()) for queue in _queues_of(record, self._job.id)):
            leave_out_personal(shown)

    def _end(self, broken: bool = False) -> None:
        self._operations.ended()  # whatever becomes of the answer
        call = self._call
        call.now = call.broker.begin()
        call.guard(self._refuse if broken else self._answer)
        call.broker.end()

    def _refuse(self) -> None:
        raise Problem(
            DISK_ERROR, "The server's disk could not be read. Look at its log, then try again."
        )

    def _answer(self) -> None:
        self._call.check_job(self._job)  # it may have moved meanwhile
        following: str | None = None
        if self._next <= self._upto:
            following = write_cursor(RecordPlace(self._job.id, self._next, self._has_push))
            if self._place is not None:
                self._operations.remember(self._job.id, self._next, self._place)
        self._call.answer(
            200,
            messages.JobEvents(
                events=self._events,
                complete=self._has_push,
                from_seq=self._first,
                next=following,
            ),
        )


def _first_seq(broker: Broker, job: Job) -> int:
    """A record that is before its push, and not by far.

    When a segment was made is known about, so the one before it is looked at as well.
    """
    journal = broker.journal
    base = before = journal.first
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
    base = journal.base_of(job.payload_at) if job.payload_at >= journal.first else journal.first
    later = 0
    while base:
        if journal.created_of(base) > job.finished_at:
            later += 1
            if later == 2:
                return min(journal.durable_seq, journal.first_seq_of(base) - 1)
        base = journal.next_base(base)
    return journal.durable_seq


def _shown(record: Record, job: int, salt: bytes) -> dict[str, Any] | None:
    """The event, if it is one of this job."""
    if isinstance(record, Batch):
        if job not in record.ids:
            return None
        found = told(salt, record)
        at = record.ids.index(job)
        attempt = record.attempts[at] if at < len(record.attempts) else 0
        for name in ("ids", "queues", "counts", "attempts"):
            found.pop(name, None)  # they are of others
        return {**found, "id": job, "attempt": attempt}
    if getattr(record, "id", 0) != job or not hasattr(record, "queue"):
        return None
    found = told(salt, record)
    if isinstance(record, (Fail, Retry)) and record.blob_size:
        begin, end = record.blob[:GLANCE], record.blob[-GLANCE:]
        error = found["error"] = content_of(begin, record.blob_size)
        found["error_line"] = line_of(error, begin, end)
    return found


def _queues_of(record: Record, job: int) -> list[bytes]:
    """The queue in which the job was when that happened."""
    if not isinstance(record, Batch):
        return happened_in(record)
    place = record.ids.index(job)
    for queue, count in zip(record.queues, record.counts, strict=False):
        if place < count:
            return [queue]
        place -= count
    return record.queues


# How jobs hang together


def _show_graph(call: Call) -> None:
    job = call.job_or_remains()
    graph = _Graph(call)
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
    call.answer(
        200,
        messages.JobGraph(
            nodes=nodes, edges=[list(edge) for edge in sorted(graph.edges)], cut=graph.cut
        ),
    )


class _Graph:
    def __init__(self, call: Call) -> None:
        self._call = call
        self._state = call.engine.state
        self.nodes: dict[int, tuple[Job, int]] = {}
        self.edges: set[tuple[int, int]] = set()
        self.cut = False

    def add(self, job: Job, level: int) -> None:
        self.nodes[job.id] = (job, level)

    def walk(self, job: Job, way: int) -> None:
        """From one level to the next; half of the room is for each way."""
        room = MOST_NODES // 2 if way < 0 else MOST_NODES
        line: deque[tuple[Job, int]] = deque([(job, 0)])
        while line:
            here, level = line.popleft()
            for id in self._next_to(here, way):
                other = self._state.live(id)
                if other is None or not self._call.shows(other.queue):
                    continue
                if id not in self.nodes:
                    if len(self.nodes) >= room:
                        self.cut = True
                        continue
                    self.add(other, level + way)
                    line.append((other, level + way))
                self.edges.add((id, here.id) if way < 0 else (here.id, id))

    def _next_to(self, job: Job, way: int) -> list[int]:
        if way > 0:
            found = list(islice(self._state.dependents.get(job.id, ()), MOST_NODES + 1))
        else:
            found = sorted(job.extra.blockers) if job.extra and job.extra.blockers else []
        if len(found) > MOST_NODES:
            self.cut = True
        return found
