"""Commands of a RESP connection that continue when bytes have been read from disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mypy_extensions import i64

from taskyard.access.principal import Denied
from taskyard.engine.model.effects import FetchRequest
from taskyard.engine.model.errors import TaskyardError
from taskyard.engine.model.job import Job
from taskyard.protocols.resp.errors import error_text
from taskyard.protocols.resp.values import CommandError

if TYPE_CHECKING:
    from taskyard.protocols.resp.answers import FetchReply
    from taskyard.protocols.resp.connection import RespConnection


class CommandReadCallback:
    """Continues a command with bytes from disk, outside its own turn."""

    def __init__(self, connection: RespConnection, then: Callable[[bytes], None]) -> None:
        self._connection = connection
        self._then = then

    def on_read(self, data: bytes | None) -> None:
        connection = self._connection
        if data is None:
            connection.discard_input()  # nothing of it could be answered
            connection.reply_queue.abort()
            return
        connection.now = connection.broker.clock.now()  # records are in the order of time
        try:
            connection.check_alive()
            self._then(data)
        except CommandError as refusal:
            connection.chunked_command = None
            connection.refuse(str(refusal))
        except Denied as denial:
            connection.chunked_command = None
            connection.send_permission_denied(str(denial))
        except TaskyardError as error:
            connection.chunked_command = None
            connection.refuse(error_text(error))


class PopAfterRead:
    """Continues a pop when the payload has been read from disk."""

    def __init__(
        self,
        connection: RespConnection,
        request: FetchRequest,
        wait: i64,
        reply: FetchReply,
        job: Job,
    ) -> None:
        self._connection = connection
        self._request = request
        self._wait = wait
        self._reply = reply
        self._job = job

    def on_payload_read(self, payload: bytes) -> None:
        connection = self._connection
        engine = connection.engine
        connection.check_fetch_permission(self._request)  # the rules may have changed meanwhile
        if (
            engine.next_job(self._request, connection.now) is not self._job
        ):  # another client was quicker
            connection.fetch_and_reply(self._request, self._wait, self._reply)
            return
        engine.fetch(self._request, connection.now)
        connection.send_job(self._job, payload)
