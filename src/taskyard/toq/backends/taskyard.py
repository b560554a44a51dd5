"""toq on Taskyard: a task is a job with a lease, and its retries are the job's fails."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import Final

from taskyard.client.commands import read_job
from taskyard.client.connection import Command, Connection, Reply, Word
from taskyard.client.errors import Refused, Unavailable
from taskyard.client.source import Failed, Job, Released, RetryLater, Success, Verdict
from taskyard.client.url import Address
from taskyard.toq.backends import RESULT_KEY
from taskyard.toq.messages import RESULT_FAILED, Countdown, Result, Task

log: Final = logging.getLogger("taskyard.toq")

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f-\x9f]+")
_MAX_NAME_BYTES: Final = 255  # bytes
_MAX_FAILS: Final = 2**31 - 1
_MAX_FETCH: Final = 1000  # that the server leases at once
_TRANSIENT_CODES: Final = (
    "OOM",
    "READONLY",
)  # a server that cannot do it until an operator intervenes


class TaskyardBackend:
    """What a producer does."""

    def __init__(self, url: str, patience: float) -> None:
        self._connection = Connection(Address.parse(url), patience=patience)

    def push(self, queue: str, tasks: Sequence[Task], countdown: Countdown) -> None:
        commands = [_push_command(queue, task, countdown) for task in tasks]
        # The server knows a uid again: a task that has one is not pushed twice.
        repeat = all(_is_uuid(task.id) for task in tasks)
        for reply in self._connection.pipeline(commands, repeat=repeat):
            if isinstance(reply, Refused) and reply.code != "DUPLICATE":
                raise reply

    def result(self, task_id: str) -> bytes | None:
        reply = self._connection.call("GET", RESULT_KEY + task_id, repeat=True)
        return reply if isinstance(reply, bytes) else None

    def close(self) -> None:
        self._connection.close()


def _push_command(queue: str, task: Task, countdown: Countdown) -> Command:
    words: list[Word] = ["JOB.PUSH", queue, task.to_json()]
    if _is_name(task.key):
        words += ["NAME", task.key]
    if _is_uuid(task.id):
        words += ["UID", task.id.lower()]
    if task.retry and task.tried < task.max_retries:
        words += ["FAILS", _allowed_fails(task)]
        # For clients that fail it over another protocol: our own consumers say when.
        words += ["BACKOFF", _milliseconds(countdown.first), _milliseconds(countdown.most)]
    else:
        words += ["FAILS", 1]
    return words


class TaskyardSource:
    """What a consumer does. Leases are taken on one connection, and all else said on another."""

    def __init__(
        self,
        url: str,
        queues: Sequence[str],
        lease: float,
        result_ttl: float,
        on_failure: Callable[[bool], None] | None = None,
    ) -> None:
        """`on_failure` is told of each failure that the server knows of: whether it is final."""
        address = Address.parse(url)
        self._on_failure = on_failure
        self._queues = list(queues)
        self._lease_ms = _milliseconds(lease)
        self._result_ttl = max(1, round(result_ttl))
        self._fetch_connection = Connection(address)
        self._finish_connection = Connection(address)

    def fetch_jobs(self, count: int, wait: float) -> list[Job]:
        words: list[Word] = ["JOB.TAKE", len(self._queues), *self._queues]
        words += [
            "COUNT",
            min(count, _MAX_FETCH),
            "WAIT",
            _milliseconds(wait),
            "TTR",
            self._lease_ms,
        ]
        [reply] = self._fetch_connection.pipeline([words], wait=wait)
        _raise_if_unavailable([reply])
        if isinstance(reply, Refused):
            raise reply
        assert isinstance(reply, list)
        now = time.time()
        return [read_job(one, now) for one in reply]

    def finish_jobs(self, verdicts: Sequence[tuple[Job, Verdict]]) -> list[Job]:
        stale, stored = self._store_failures(verdicts)
        verdicts = [one for one in verdicts if one[0] not in stale]
        commands: list[Command] = []
        ends: list[int] = []  # of each lease: which of the commands says so
        for job, verdict in verdicts:
            if isinstance(verdict, Success):
                commands += self._store_result(
                    verdict
                )  # first, so that a crash between loses nothing
            ends.append(len(commands))
            commands.append(_finish_command(job, verdict))
        replies = self._finish_connection.pipeline(commands)
        _raise_if_unavailable(replies)
        second: list[Command] = []
        start = 0
        for (job, verdict), end in zip(verdicts, ends, strict=True):
            before, reply = stored.get(job.ref, []) + replies[start:end], replies[end]
            start = end + 1
            if isinstance(reply, Refused) and reply.code == "STALE":
                stale.append(job)
                continue
            if self._on_failure is not None and isinstance(verdict, RetryLater | Failed):
                self._on_failure(reply == b"failed" or isinstance(verdict, Failed))
            if isinstance(verdict, RetryLater) and reply == b"failed":
                # Whoever pushed the job has allowed fewer retries than its task says.
                second += self._store_result(verdict)
            else:
                second += self._fail_refused(job, verdict, [*before, reply])
        if second:
            self._finish_connection.pipeline(second)
        return stale

    def _store_failures(
        self, verdicts: Sequence[tuple[Job, Verdict]]
    ) -> tuple[list[Job], dict[str, list[Reply]]]:
        """Store the results of failures, but none of a lease that is over: the job is another's,
        who may have succeeded. Gives the jobs of those, and what was answered for the rest.
        """
        failed = [(job, one) for job, one in verdicts if isinstance(one, Failed) and one.result_key]
        extended = self._finish_connection.pipeline(
            [("JOB.EXTEND", job.ref, self._lease_ms) for job, _ in failed]
        )
        _raise_if_unavailable(extended)
        held = [
            one
            for one, reply in zip(failed, extended, strict=True)
            if not (isinstance(reply, Refused) and reply.code == "STALE")
        ]
        replies = self._finish_connection.pipeline(
            [self._store_result(verdict)[0] for _, verdict in held]
        )
        _raise_if_unavailable(replies)
        stored = {job.ref: [reply] for (job, _), reply in zip(held, replies, strict=True)}
        return [job for job, _ in failed if job.ref not in stored], stored

    def extend_leases(self, jobs: Sequence[Job]) -> list[Job]:
        if not jobs:
            return []
        commands: list[Command] = [("JOB.EXTEND", job.ref, self._lease_ms) for job in jobs]
        replies = self._finish_connection.pipeline(commands)
        _raise_if_unavailable(replies)
        return [job for job, reply in zip(jobs, replies, strict=True) if isinstance(reply, Refused)]

    def close(self) -> None:
        self._fetch_connection.close()
        self._finish_connection.close()

    def _store_result(self, verdict: Verdict) -> list[Command]:
        if isinstance(verdict, Released) or not verdict.result_key:
            return []
        return [("SETEX", verdict.result_key, self._result_ttl, verdict.result)]

    def _fail_refused(self, job: Job, verdict: Verdict, replies: list[Reply]) -> list[Command]:
        """Fail jobs whose end was refused, because of a large result for instance; they would else
        be run again for ever, and clients that wait for the result would get none.
        """
        errors = [
            reply for reply in replies if isinstance(reply, Refused) and reply.code != "DUPLICATE"
        ]
        if not errors:
            return []
        log.error("job %s of %s: the server refused its end: %s", job.ref, job.queue, errors[0])
        message = f"the server refused what came of it: {errors[0]}"
        commands: list[Command] = []
        if not isinstance(verdict, Released) and verdict.result_key:
            task_id = verdict.result_key.removeprefix(RESULT_KEY)
            result = Result(task_id=task_id, state=RESULT_FAILED, message=message)
            commands += self._store_result(Failed(b"", result.to_json(), verdict.result_key))
        if errors[-1] is replies[-1]:
            commands.append(("JOB.FAIL", job.ref, message, "FINAL"))
        return commands


def _raise_if_unavailable(replies: Sequence[Reply]) -> None:
    """Unavailable if the server cannot do such things now, so that they are tried again."""
    for reply in replies:
        if isinstance(reply, Refused) and reply.code in _TRANSIENT_CODES:
            raise Unavailable(f"the server cannot do it now: {reply}") from reply


def _finish_command(job: Job, verdict: Verdict) -> Command:
    match verdict:
        case Success():
            return ("JOB.DONE", job.ref, verdict.result)
        case RetryLater():
            return ("JOB.FAIL", job.ref, verdict.error, "IN", _milliseconds(verdict.delay))
        case Failed():
            return ("JOB.FAIL", job.ref, verdict.error, "FINAL")
        case Released():
            return ("JOB.RETURN", job.ref)


def _allowed_fails(task: Task) -> int:
    """How many fails a task may have from now on; the last of them is final."""
    return min(max(task.max_retries - task.tried, 0) + 1, _MAX_FAILS)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and len(text.encode()) <= _MAX_NAME_BYTES
