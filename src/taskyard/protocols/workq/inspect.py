"""Workq's inspect command: jobs, queues, and the server.

An answer is a head line, then `key value` lines, for each thing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from taskyard.access.principal import INSPECT
from taskyard.engine.model.job import FAILED, GONE, LEASED, READY, SUCCEEDED, Job
from taskyard.engine.model.queue import Queue
from taskyard.engine.operations.finish import final_failure_number
from taskyard.engine.transitions import is_synchronous_call
from taskyard.protocols.text import format_time, show_uid
from taskyard.protocols.workq import messages
from taskyard.protocols.workq.messages import BAD_ARGS, MILLISECOND, CommandError

if TYPE_CHECKING:
    from taskyard.protocols.workq.connection import WorkqConnection

# States of a job as the protocol numbers them.
_NEW = b"0"
_COMPLETED = b"1"
_FAILED = b"2"
_PENDING = b"3"
_LEASED = b"4"


def inspect(connection: WorkqConnection, fields: list[bytes]) -> None:
    if len(fields) < 2:
        raise CommandError(BAD_ARGS)
    connection.engine.check_not_read_only()  # else it would show what will never be on disk
    command = _OBJECTS.get(fields[1])
    if command is None:
        raise CommandError("Unknown command")
    count, run = command
    if len(fields) != count:
        raise CommandError(BAD_ARGS)
    run(connection, fields)


def _job(connection: WorkqConnection, fields: list[bytes]) -> None:
    job = connection.find_job(messages.parse_job_uid(fields[2]), INSPECT)
    _continue_listing(connection, JobListing([job], True))


def _jobs(connection: WorkqConnection, fields: list[bytes]) -> None:
    queue = _find_queue(connection, fields[2])
    start, limit = messages.parse_page(fields)
    if queue is None:
        connection.send_not_found()
    else:
        _continue_listing(
            connection, JobListing(connection.engine.jobs_from(queue, READY, start, limit))
        )


def _scheduled(connection: WorkqConnection, fields: list[bytes]) -> None:
    queue = _find_queue(connection, fields[2])
    start, limit = messages.parse_page(fields)
    if queue is None:
        connection.send_not_found()
    else:
        _continue_listing(connection, JobListing(scheduled_jobs(queue, start, limit)))


def _queue(connection: WorkqConnection, fields: list[bytes]) -> None:
    queue = _find_queue(connection, fields[2])
    if queue is None:
        connection.send_not_found()
    else:
        _send_parts(connection, [show_queue(queue)])


def _queues(connection: WorkqConnection, fields: list[bytes]) -> None:
    start, limit = messages.parse_page(fields)
    queues = connection.engine.state.queues
    names = connection.workq.sorted_queue_names()
    principal = connection.principal
    if not principal.is_superuser:
        names = [name for name in names if principal.may(INSPECT, name.decode())]
    _send_parts(connection, [show_queue(queues[name]) for name in names[start : start + limit]])


def _server(connection: WorkqConnection, fields: list[bytes]) -> None:
    connection.require_permission(INSPECT, "")
    workq = connection.workq
    evicted = connection.engine.state.evicted
    _send_parts(connection, [show_server(workq.stats.open_connections, evicted, workq.started)])


def _find_queue(connection: WorkqConnection, name: bytes) -> Queue | None:
    connection.require_permission(INSPECT, connection.workq.parser.parse_name(name))
    return connection.engine.queue(name)


def _send_parts(connection: WorkqConnection, parts: list[bytes]) -> None:
    connection.send(encode_reply(parts), connection.engine.records.end_position())


def _continue_listing(connection: WorkqConnection, listing: JobListing) -> None:
    """Show job after job, as far as their payloads are in memory."""
    while listing.next_index < len(listing.jobs):
        job = listing.jobs[listing.next_index]
        payload = connection.broker.cached_payload(job)
        if payload is None:
            connection.read_from_disk(
                job.payload_at,
                job.payload_size,
                _ListingReadCallback(connection, listing).on_payload_read,
            )
            return
        _append_job(connection, listing, payload)
    if listing.parts or not listing.is_one:
        connection.send(listing.encode(), connection.engine.records.end_position())
    else:
        connection.send_not_found()


def _append_job(connection: WorkqConnection, listing: JobListing, payload: bytes | None) -> bool:
    """Show a job; False if the disk cannot be read. One that is gone by now is left out."""
    job = listing.jobs[listing.next_index]
    listing.next_index += 1
    if job.state == GONE:
        return True
    if payload is not None:
        listing.parts.append(show_job(job, connection.engine.uid_of(job), payload))
        return True
    connection.reply_queue.abort()
    return False


class _ListingReadCallback:
    """Remembers for which listing a payload is being read."""

    def __init__(self, connection: WorkqConnection, listing: JobListing) -> None:
        self._connection = connection
        self._listing = listing

    def on_payload_read(self, payload: bytes | None) -> None:
        if _append_job(self._connection, self._listing, payload):
            _continue_listing(self._connection, self._listing)


# What can be inspected: the number of fields, and how.
_OBJECTS: Final[dict[bytes, tuple[int, Callable[[WorkqConnection, list[bytes]], None]]]] = {
    b"job": (3, _job),
    b"jobs": (5, _jobs),
    b"scheduled-jobs": (5, _scheduled),
    b"queue": (3, _queue),
    b"queues": (4, _queues),
    b"server": (2, _server),
}


# The form of answers


class JobListing:
    """Jobs that are shown one after the other, as their payloads are read."""

    def __init__(self, jobs: list[Job], is_one: bool = False) -> None:
        self.jobs = jobs
        self.is_one = is_one  # a certain one was requested
        self.next_index: i64 = 0  # the next one
        self.parts: list[bytes] = []

    def encode(self) -> bytes:
        return encode_reply(self.parts)


def encode_reply(parts: list[bytes]) -> bytes:
    return b"+OK %d\r\n%b" % (len(parts), b"".join(parts))


def show_job(job: Job, uid: bytes, payload: bytes) -> bytes:
    policy = job.policy
    extra = job.extras
    called = extra is not None and is_synchronous_call(
        extra
    )  # by run, which knows no ttl and no attempts
    ttl = extra.ttl_ms if extra is not None and not called else 0
    lines = [
        b"%b %d" % (show_uid(uid), 13 if job.run_at else 12),
        b"name " + job.queue.utf8,
        b"ttr %d" % (policy.ttr // MILLISECOND),
        b"ttl %d" % ttl,
        b"payload-size %d" % job.payload_size,
        b"payload " + payload,
        b"max-attempts %d" % (0 if called else policy.max_attempts),
        b"attempts %d" % job.attempts,
        b"max-fails %d" % max(0, final_failure_number(job)),
        b"fails %d" % job.fails,
        b"priority %d" % job.priority,
        b"state " + _encode_state(job),
        b"created " + format_time(job.pushed_at).encode(),
    ]
    if job.run_at:
        lines.append(b"time " + format_time(job.run_at).encode())
    lines.append(b"")
    return b"\r\n".join(lines)


def show_queue(queue: Queue) -> bytes:
    waiting = queue.delayed.size + queue.blocked.size
    return b"%b 2\r\nready-len %d\r\nscheduled-len %d\r\n" % (
        queue.utf8,
        queue.ready.size + queue.limited.size,
        waiting,
    )


def show_server(clients: i64, evicted: i64, started: i64) -> bytes:
    return b"server 3\r\nactive-clients %d\r\nevicted-jobs %d\r\nstarted %b\r\n" % (
        clients,
        evicted,
        format_time(started).encode(),
    )


def scheduled_jobs(queue: Queue, start: i64, limit: i64) -> list[Job]:
    """Those that wait for their time, in its order, then those that wait for other jobs."""
    delayed = queue.delayed
    if start >= delayed.size:
        return queue.blocked.slice(start - delayed.size, limit)
    jobs = delayed.slice(start, limit)
    if len(jobs) < limit:
        jobs.extend(queue.blocked.slice(0, limit - len(jobs)))
    return jobs


def _encode_state(job: Job) -> bytes:
    state = job.state
    if state == LEASED:
        return _LEASED
    if state == SUCCEEDED:
        return _COMPLETED
    if state == FAILED:
        return _FAILED
    return _PENDING if job.attempts or job.fails else _NEW
