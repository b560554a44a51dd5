"""Workq's inspect command: jobs, queues, and the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from taskyard.access.principal import INSPECT
from taskyard.engine.model.job import GONE, READY
from taskyard.engine.model.queue import Queue
from taskyard.protocols.workq import requests
from taskyard.protocols.workq.inspect import (
    JobListing,
    encode_reply,
    scheduled_jobs,
    show_job,
    show_queue,
    show_server,
)
from taskyard.protocols.workq.requests import BAD_ARGS, CommandError

if TYPE_CHECKING:
    from taskyard.protocols.workq.connection import WorkqConnection


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
    job = connection.find_job(requests.parse_job_uid(fields[2]), INSPECT)
    _continue_listing(connection, JobListing([job], True))


def _jobs(connection: WorkqConnection, fields: list[bytes]) -> None:
    queue = _find_queue(connection, fields[2])
    start, limit = requests.parse_page(fields)
    if queue is None:
        connection.send_not_found()
    else:
        _continue_listing(
            connection, JobListing(connection.engine.jobs_from(queue, READY, start, limit))
        )


def _scheduled(connection: WorkqConnection, fields: list[bytes]) -> None:
    queue = _find_queue(connection, fields[2])
    start, limit = requests.parse_page(fields)
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
    start, limit = requests.parse_page(fields)
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
