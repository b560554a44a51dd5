"""Workq's inspect: what there is, job by job, queue by queue, and of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from taskyard.access.principal import INSPECT
from taskyard.engine.model.job import GONE, READY
from taskyard.engine.model.queue import Queue
from taskyard.protocols.workq import requests
from taskyard.protocols.workq.inspect import (
    Listing,
    reply,
    scheduled,
    show_job,
    show_queue,
    show_server,
)
from taskyard.protocols.workq.requests import BAD_ARGS, Refused

if TYPE_CHECKING:
    from taskyard.protocols.workq.connection import WorkqConnection


def inspect(connection: WorkqConnection, fields: list[bytes]) -> None:
    if len(fields) < 2:
        raise Refused(BAD_ARGS)
    connection.engine.check_alive()  # else it would show what will never be on disk
    command = _OBJECTS.get(fields[1])
    if command is None:
        raise Refused("Unknown command")
    count, run = command
    if len(fields) != count:
        raise Refused(BAD_ARGS)
    run(connection, fields)


def _job(connection: WorkqConnection, fields: list[bytes]) -> None:
    job = connection.job_for(requests.job_uid(fields[2]), INSPECT)
    _show_more(connection, Listing([job], True))


def _jobs(connection: WorkqConnection, fields: list[bytes]) -> None:
    queue = _queue_named(connection, fields[2])
    start, limit = requests.page(fields)
    if queue is None:
        connection.find_nothing()
    else:
        _show_more(connection, Listing(connection.engine.jobs_from(queue, READY, start, limit)))


def _scheduled(connection: WorkqConnection, fields: list[bytes]) -> None:
    queue = _queue_named(connection, fields[2])
    start, limit = requests.page(fields)
    if queue is None:
        connection.find_nothing()
    else:
        _show_more(connection, Listing(scheduled(queue, start, limit)))


def _queue(connection: WorkqConnection, fields: list[bytes]) -> None:
    queue = _queue_named(connection, fields[2])
    if queue is None:
        connection.find_nothing()
    else:
        _show(connection, [show_queue(queue)])


def _queues(connection: WorkqConnection, fields: list[bytes]) -> None:
    start, limit = requests.page(fields)
    queues = connection.engine.state.queues
    names = connection.workq.names()
    principal = connection.principal
    if not principal.free:
        names = [name for name in names if principal.may(INSPECT, name.decode())]
    _show(connection, [show_queue(queues[name]) for name in names[start : start + limit]])


def _server(connection: WorkqConnection, fields: list[bytes]) -> None:
    connection.require(INSPECT, "")
    workq = connection.workq
    evicted = connection.engine.state.evicted
    _show(connection, [show_server(workq.traffic.clients, evicted, workq.started)])


def _queue_named(connection: WorkqConnection, name: bytes) -> Queue | None:
    connection.require(INSPECT, connection.workq.requests.name(name))
    return connection.engine.queue(name)


def _show(connection: WorkqConnection, parts: list[bytes]) -> None:
    connection.send(reply(parts), connection.engine.log.mark())


def _show_more(connection: WorkqConnection, listing: Listing) -> None:
    """Show job after job, as far as their payloads are in memory."""
    while listing.at < len(listing.jobs):
        job = listing.jobs[listing.at]
        payload = connection.broker.payload(job)
        if payload is None:
            connection.load(job.payload_at, job.payload_size, _Listed(connection, listing).give)
            return
        _show_next(connection, listing, payload)
    if listing.parts or not listing.is_one:
        connection.send(listing.reply(), connection.engine.log.mark())
    else:
        connection.find_nothing()


def _show_next(connection: WorkqConnection, listing: Listing, payload: bytes | None) -> bool:
    """Show a job; False if the disk cannot be read. One that is gone by now is left out."""
    job = listing.jobs[listing.at]
    listing.at += 1
    if job.state == GONE:
        return True
    if payload is not None:
        listing.parts.append(show_job(job, connection.engine.uid_of(job), payload))
        return True
    connection.outbox.abort()
    return False


class _Listed:
    """Remembers for which listing a payload is being read."""

    def __init__(self, connection: WorkqConnection, listing: Listing) -> None:
        self._connection = connection
        self._listing = listing

    def give(self, payload: bytes | None) -> None:
        if _show_next(self._connection, self._listing, payload):
            _show_more(self._connection, self._listing)


# What can be inspected: the number of fields, and how.
_OBJECTS: Final[dict[bytes, tuple[int, Callable[[WorkqConnection, list[bytes]], None]]]] = {
    b"job": (3, _job),
    b"jobs": (5, _jobs),
    b"scheduled-jobs": (5, _scheduled),
    b"queue": (3, _queue),
    b"queues": (4, _queues),
    b"server": (2, _server),
}
