"""How RESP commands that take time are answered: in portions, with a job, at a job's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskyard.engine.model.job import Job

if TYPE_CHECKING:
    from taskyard.protocols.resp.connection import RespConnection


class Work:
    """What a command has still to do, a portion at a time, so that nobody else has to wait."""

    def step(self, connection: RespConnection) -> bool:
        """Do a portion; True when that was the last, and the command is answered."""
        raise NotImplementedError


class Answer:
    """How a command that takes a job is answered, once there is one."""

    def give(self, connection: RespConnection, job: Job, payload: bytes) -> None:
        raise NotImplementedError

    def nothing(self, connection: RespConnection) -> None:
        connection.send_nothing(b"*-1\r\n", 0)


class Watch:
    """How a command that waits for a job's end is answered."""

    def ended(self, connection: RespConnection, succeeded: bool, queue: str) -> None:
        """`queue`: where it was at its end."""
        raise NotImplementedError

    def gone(self, connection: RespConnection) -> None:
        raise NotImplementedError

    def too_late(self, connection: RespConnection) -> None:
        """The time is over, or the connection ends; the job may have ended all the same."""
        raise NotImplementedError


class Login:
    """How a command that says who the client is is answered."""

    def answer(self, connection: RespConnection, right: bool) -> None:
        raise NotImplementedError
