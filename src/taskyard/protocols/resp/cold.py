"""Commands of a RESP connection that go on when bytes have been read back from disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mypy_extensions import i64

from taskyard.access.principal import Denied
from taskyard.engine.model.effects import Take
from taskyard.engine.model.errors import TaskyardError
from taskyard.engine.model.job import Job
from taskyard.protocols.resp.errors import error_text
from taskyard.protocols.resp.values import Refused

if TYPE_CHECKING:
    from taskyard.protocols.resp.answers import Answer
    from taskyard.protocols.resp.connection import RespConnection


class ReadBack:
    """How a command goes on with bytes from disk, which happens outside of its own turn."""

    def __init__(self, connection: RespConnection, then: Callable[[bytes], None]) -> None:
        self._connection = connection
        self._then = then

    def go_on(self, data: bytes | None) -> None:
        connection = self._connection
        if data is None:
            connection.forget_input()  # nothing of it could be answered
            connection.outbox.abort()
            return
        connection.now = connection.broker.clock.now()  # records are in the order of time
        try:
            connection.check_alive()
            self._then(data)
        except Refused as refusal:
            connection.work = None
            connection.refuse(str(refusal))
        except Denied as denial:
            connection.work = None
            connection.denied(str(denial))
        except TaskyardError as error:
            connection.work = None
            connection.refuse(error_text(error))


class ColdPop:
    """A pop that goes on when the payload has been read back from disk."""

    def __init__(
        self, connection: RespConnection, take: Take, wait: i64, answer: Answer, job: Job
    ) -> None:
        self._connection = connection
        self._take = take
        self._wait = wait
        self._answer = answer
        self._job = job

    def go_on(self, payload: bytes) -> None:
        connection = self._connection
        engine = connection.engine
        connection.check_take(self._take)  # the rules may have changed meanwhile
        if engine.next_job(self._take, connection.now) is not self._job:  # somebody was quicker
            connection.take(self._take, self._wait, self._answer)
            return
        engine.fetch(self._take, connection.now)
        connection.deliver(self._job, payload)
