"""The form of Workq's inspect: a head line, then `key value` lines, for each thing."""

from __future__ import annotations

from mypy_extensions import i64

from taskyard.engine.model.job import FAILED, LEASED, SUCCEEDED, Job
from taskyard.engine.model.queue import Queue
from taskyard.engine.operations.finish import final_failure_number
from taskyard.engine.transitions import is_synchronous_call
from taskyard.protocols.times import format_time
from taskyard.protocols.uids import show_uid
from taskyard.protocols.workq.requests import MILLISECOND

# States of a job as the protocol numbers them.
_NEW = b"0"
_COMPLETED = b"1"
_FAILED = b"2"
_PENDING = b"3"
_LEASED = b"4"


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
