"""How RESP commands that take time are answered: in chunks, with a job, at a job's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskyard.engine.model.job import Job

if TYPE_CHECKING:
    from taskyard.protocols.resp.connection import RespConnection


class ChunkedCommand:
    """The remaining work of a command, done in chunks so that other connections do not wait."""

    def run_chunk(self, connection: RespConnection) -> bool:
        """Do one chunk; True when it was the last, and the command is answered."""
        raise NotImplementedError


class FetchReply:
    """How a command that fetches a job is answered, once there is one."""

    def send_job(self, connection: RespConnection, job: Job, payload: bytes) -> None:
        raise NotImplementedError

    def send_no_job(self, connection: RespConnection) -> None:
        connection.send_nil(b"*-1\r\n", 0)


class ResultReply:
    """How a command that waits for a job's end is answered."""

    def on_job_ended(self, connection: RespConnection, succeeded: bool, queue: str) -> None:
        """`queue`: where it was at its end."""
        raise NotImplementedError

    def on_job_gone(self, connection: RespConnection) -> None:
        raise NotImplementedError

    def on_timeout(self, connection: RespConnection) -> None:
        """The time is over, or the connection ends; the job may have ended all the same."""
        raise NotImplementedError


class LoginReply:
    """How a command that logs in is answered."""

    def send(self, connection: RespConnection, succeeded: bool) -> None:
        raise NotImplementedError
