"""JOB.RESULT: how a job has ended, now or when it does."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.access.principal import INSPECT
from taskyard.engine.model.errors import TaskyardError
from taskyard.engine.model.job import FAILED, GONE, SUCCEEDED, Job
from taskyard.protocols.resp.answers import ResultReply
from taskyard.protocols.resp.connection import Resp, RespConnection
from taskyard.protocols.resp.errors import error_text
from taskyard.protocols.resp.values import (
    MILLISECOND,
    CommandError,
    array,
    bulk,
    number_reply,
    parse_integer,
)
from taskyard.protocols.resp.words import MAX_SPAN_MS, OptionNames, OptionReader
from taskyard.protocols.uids import parse_uid

NO_JOB: Final = "NOJOB there is no such job, or it is forgotten"
BAD_NAME: Final = "ERR a job is named by its id, a number, or by its uid, a UUID"

_RESULT_OPTIONS: Final = OptionNames("JOB.RESULT", ("WAIT",))
_UNFINISHED: Final = 0
_SUCCEEDED: Final = 1
_FAILED: Final = 2
_UNKNOWN: Final = 3


def add_result_commands(resp: Resp) -> None:
    resp.add_command(b"JOB.RESULT", _result, 2, 4)


def _result(connection: RespConnection, args: list[bytes]) -> None:
    wait = 0
    options = OptionReader(_RESULT_OPTIONS, args, 2)
    word = options.next_option()
    if word == b"WAIT":
        wait = options.next_number("WAIT", 0, MAX_SPAN_MS)
    elif word:
        raise options.unknown_option()
    job = known_job(connection, args[1])
    principal = connection.principal
    if not principal.is_superuser:
        principal.check_permission_on_any_queue(INSPECT)
        if job is None or not principal.may(INSPECT, job.queue.name):
            raise CommandError(NO_JOB)  # another error would show in which queue it is
    if job is None:
        raise CommandError(NO_JOB)
    result = _JobResultReply(job)
    how = _outcome(job)
    if how == _UNKNOWN:
        raise CommandError(NO_JOB)
    if how == _UNFINISHED:
        connection.watch_job(job, wait * MILLISECOND, result)
    else:
        result.on_job_ended(connection, how == _SUCCEEDED, job.queue.name)


def known_job(connection: RespConnection, name: bytes) -> Job | None:
    """Return the job of an id or uid, alive or in the ring of recently finished jobs."""
    engine = connection.engine
    uid = parse_uid(name)
    if uid is not None:
        job = engine.job_by_uid(uid)
        return job if job is not None else engine.recent_by_uid(uid)
    id = parse_integer(name, BAD_NAME)
    next_id: int = engine.state.next_id
    return engine.state.jobs.get(id) if 0 < id < next_id else None


def _outcome(job: Job) -> i64:
    if job.state == GONE:
        return _SUCCEEDED if job.order_key else _UNKNOWN
    if job.state == SUCCEEDED:
        return _SUCCEEDED
    extra = job.extras
    if job.state == FAILED or (extra is not None and extra.reason):
        return _FAILED  # with a reason, and still there: in the queue for those that have failed
    return _UNFINISHED


def _may_see_result(connection: RespConnection, queue: str) -> bool:
    """Whether the client may see the end of a job that is in this queue by then: the job may have
    moved since the request, and the permissions may have changed.
    """
    principal = connection.principal
    return principal.is_superuser or principal.may(INSPECT, queue)


class _JobResultReply(ResultReply):
    """How a job has ended: its id, state, whether it succeeded, its result, its last error."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._queue = ""  # where it was at its end
        self._succeeded = False
        self._connection: RespConnection | None = None

    def on_job_ended(self, connection: RespConnection, succeeded: bool, queue: str) -> None:
        self._queue = queue
        self._succeeded = succeeded
        at: i64 = 0
        size: i64 = 0
        extra = self._job.extras
        if extra is not None:
            at = extra.result_at if succeeded else extra.error_at
            size = extra.result_size if succeeded else extra.error_size
        if size and at < connection.broker.journal.first_base:
            connection.refuse(NO_JOB)  # compaction has removed what the ring still refers to
            return
        data = connection.broker.journal.read_blob(at, size)
        if data is not None:
            self._send_result(connection, data)
        else:
            self._connection = connection
            connection.read_from_disk(at, size, self._on_result_read)

    def on_job_gone(self, connection: RespConnection) -> None:
        connection.refuse(NO_JOB)

    def on_timeout(self, connection: RespConnection) -> None:
        how = _outcome(self._job)  # it may have ended at that very moment
        queue = self._job.queue.name
        if how == _UNFINISHED and _may_see_result(connection, queue):
            connection.send_nil(b"*-1\r\n")
        elif how in (_UNFINISHED, _UNKNOWN):
            self.on_job_gone(connection)
        else:
            self.on_job_ended(connection, how == _SUCCEEDED, queue)

    def _on_result_read(self, data: bytes | None) -> None:
        connection = self._connection
        assert connection is not None
        if data is not None:
            try:
                connection.check_alive()
            except TaskyardError as error:
                connection.refuse(error_text(error))
            else:
                self._send_result(connection, data)
        elif self._job.state == GONE:
            connection.refuse(NO_JOB)
        else:
            connection.discard_input()
            connection.reply_queue.abort()  # the disk cannot be read

    def _send_result(self, connection: RespConnection, data: bytes) -> None:
        if not _may_see_result(connection, self._queue):
            connection.refuse(NO_JOB)
            return
        job = self._job
        nil = connection.nil()
        said = bulk(data) if data else nil
        if self._succeeded:
            how = [bulk(b"succeeded"), number_reply(1), said, nil]
        else:
            extra = job.extras
            if not data and extra is not None:
                said = bulk(extra.reason.encode())
            how = [bulk(b"failed"), number_reply(0), nil, said]
        connection.reply(array([number_reply(job.id), *how]))
