"""JOB.RESULT: how a job has ended, now or when it does."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.access.principal import INSPECT
from taskyard.engine.model.errors import TaskyardError
from taskyard.engine.model.job import FAILED, GONE, SUCCEEDED, Job
from taskyard.protocols.resp.answers import Watch
from taskyard.protocols.resp.connection import Resp, RespConnection
from taskyard.protocols.resp.errors import error_text
from taskyard.protocols.resp.values import (
    MILLISECOND,
    Refused,
    array,
    bulk,
    integer,
    number_reply,
)
from taskyard.protocols.resp.words import MAX_SPAN_MS, Spoken, Words
from taskyard.protocols.uids import parse_uid

NO_JOB: Final = "NOJOB there is no such job, or it is forgotten"
BAD_NAME: Final = "ERR a job is named by its id, a number, or by its uid, a UUID"

_RESULT: Final = Spoken("JOB.RESULT", ("WAIT",))
_OPEN: Final = 0
_DONE: Final = 1
_BROKEN: Final = 2
_UNKNOWN: Final = 3


def add_commands(resp: Resp) -> None:
    resp.add(b"JOB.RESULT", _result, 2, 4)


def _result(connection: RespConnection, args: list[bytes]) -> None:
    wait = 0
    words = Words(_RESULT, args, 2)
    word = words.next()
    if word == b"WAIT":
        wait = words.number("WAIT", 0, MAX_SPAN_MS)
    elif word:
        raise words.unknown()
    job = known_job(connection, args[1])
    principal = connection.principal
    if not principal.free:
        principal.check_somewhere(INSPECT)
        if job is None or not principal.may(INSPECT, job.queue.name):
            raise Refused(NO_JOB)  # a refusal of its own would tell in which queue it is
    if job is None:
        raise Refused(NO_JOB)
    result = _Result(job)
    how = _outcome(job)
    if how == _UNKNOWN:
        raise Refused(NO_JOB)
    if how == _OPEN:
        connection.watch(job, wait * MILLISECOND, result)
    else:
        result.ended(connection, how == _DONE, job.queue.name)


def known_job(connection: RespConnection, name: bytes) -> Job | None:
    """The job of an id or uid, alive or in the ring of those that ended a short while ago."""
    engine = connection.engine
    uid = parse_uid(name)
    if uid is not None:
        job = engine.job_by_uid(uid)
        return job if job is not None else engine.recent_by_uid(uid)
    id = integer(name, BAD_NAME)
    next_id: int = engine.state.next_id
    return engine.state.jobs.get(id) if 0 < id < next_id else None


def _outcome(job: Job) -> i64:
    if job.state == GONE:
        return _DONE if job.position else _UNKNOWN
    if job.state == SUCCEEDED:
        return _DONE
    extra = job.extra
    if job.state == FAILED or (extra is not None and extra.reason):
        return _BROKEN  # with a reason, and still there: in the queue for those that have failed
    return _OPEN


def _is_shown(connection: RespConnection, queue: str) -> bool:
    """Whether the client may see the end of a job that is in this queue by then: the job may have
    moved since it was asked for, and the rules may have changed."""
    principal = connection.principal
    return principal.free or principal.may(INSPECT, queue)


class _Result(Watch):
    """How a job has ended: its id, state, whether it succeeded, its result, its last error."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._queue = ""  # where it was at its end
        self._succeeded = False
        self._connection: RespConnection | None = None

    def ended(self, connection: RespConnection, succeeded: bool, queue: str) -> None:
        self._queue = queue
        self._succeeded = succeeded
        at: i64 = 0
        size: i64 = 0
        extra = self._job.extra
        if extra is not None:
            at = extra.result_at if succeeded else extra.error_at
            size = extra.result_size if succeeded else extra.error_size
        if size and at < connection.broker.journal.first:
            connection.refuse(NO_JOB)  # compaction has taken what the ring still knows of
            return
        data = connection.broker.journal.read(at, size)
        if data is not None:
            self._give(connection, data)
        else:
            self._connection = connection
            connection.load(at, size, self._loaded)

    def gone(self, connection: RespConnection) -> None:
        connection.refuse(NO_JOB)

    def too_late(self, connection: RespConnection) -> None:
        how = _outcome(self._job)  # it may have ended at that very moment
        queue = self._job.queue.name
        if how == _OPEN and _is_shown(connection, queue):
            connection.send_nothing(b"*-1\r\n")
        elif how in (_OPEN, _UNKNOWN):
            self.gone(connection)
        else:
            self.ended(connection, how == _DONE, queue)

    def _loaded(self, data: bytes | None) -> None:
        connection = self._connection
        assert connection is not None
        if data is not None:
            try:
                connection.check_alive()
            except TaskyardError as error:
                connection.refuse(error_text(error))
            else:
                self._give(connection, data)
        elif self._job.state == GONE:
            connection.refuse(NO_JOB)
        else:
            connection.forget_input()
            connection.outbox.abort()  # the disk cannot be read

    def _give(self, connection: RespConnection, data: bytes) -> None:
        if not _is_shown(connection, self._queue):
            connection.refuse(NO_JOB)
            return
        job = self._job
        nil = connection.nil()
        said = bulk(data) if data else nil
        if self._succeeded:
            how = [bulk(b"succeeded"), number_reply(1), said, nil]
        else:
            extra = job.extra
            if not data and extra is not None:
                said = bulk(extra.reason.encode())
            how = [bulk(b"failed"), number_reply(0), nil, said]
        connection.reply(array([number_reply(job.id), *how]))
