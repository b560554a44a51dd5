"""What a dialect is to the broker: one object per connection that is told what happens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.broker.metrics import CommandStats
from taskyard.engine.model.effects import JobEvent, LifecycleNotice, Waiter
from taskyard.engine.model.job import Job

NO_COMMAND: Final = CommandStats("unknown")

# What `standing` says of a client, where clients have to log in.
AUTHENTICATED: Final = 0  # it has, or need not
UNAUTHENTICATED: Final = 1  # it has not
AUTHENTICATING: Final = 2  # it is about to, or what it has sent is not looked at yet

log = logging.getLogger("taskyard")


class ClientConnection:
    """Base of every dialect's connection. `owner` is its number as a holder of leases."""

    def __init__(self, owner: i64, protocol_name: str = "") -> None:
        self.owner = owner
        self.protocol_name = protocol_name
        self.connection_number: i64 = (
            0  # its number in the log; not the owner, which may be a secret
        )
        self.current_command = NO_COMMAND  # the command that is to be answered
        self.command_started_at: i64 = (
            0  # when a command began that takes several turns; 0: there is none
        )
        self.queued_at: i64 = 0  # when it joined the line
        self.output_blocked = False  # the client does not read: no further command until `resume`
        self.queued_for_turn = False  # has commands that wait for its turn
        self.rate_limited = False  # has used up its share of commands: see pace.py
        self.command_count: i64 = 0  # that were carried out, the one that is being so included
        self.on_login_lost: Callable[[], None] | None = None  # nobody knows any more who it is

    def feed(self, data: bytes) -> None:
        """Bytes have arrived."""
        raise NotImplementedError

    def take_turn(self) -> None:
        """Carry out some of the commands that have arrived."""
        raise NotImplementedError

    def resume(self) -> None:
        """There is room for replies again: commands that had to wait for that can go on."""
        raise NotImplementedError

    def buffered_bytes(self) -> i64:
        """Bytes that have arrived and are kept."""
        return 0

    def needs_more_input(self) -> bool:
        """Whether what is kept can only be dealt with when more has arrived."""
        return self.has_partial_command()

    def has_partial_command(self) -> bool:
        """Whether a command has begun to arrive, and nothing but its rest is waited for."""
        return False

    def on_read_timeout(self) -> None:
        """That command did not come to its end in time: say so, and close."""
        raise NotImplementedError

    def login_state(self) -> i64:
        """Whether the client has said who it is."""
        return AUTHENTICATED

    def close_unauthenticated(self, reason: str) -> None:
        """It has not, and may stay no longer: say so, and close."""
        raise NotImplementedError

    def on_eof(self) -> None:
        """The client sends nothing more, and may be gone: answer what has arrived, and close."""
        raise NotImplementedError

    def on_disconnect(self) -> None:
        """The connection is gone."""
        raise NotImplementedError

    def shut_down(self) -> None:
        """The server stops: answer what has arrived, take nothing new."""
        raise NotImplementedError

    def on_permissions_changed(self) -> None:
        """The users were read again: what waits may be allowed no longer."""

    def on_job_assigned(self, waiter: Waiter, job: Job) -> None:
        """A blocked fetch has got its job."""
        raise NotImplementedError

    def on_payload_unreadable(self, waiter: Waiter) -> None:
        """A blocked fetch has ended, since the payload of its job cannot be read; the job stays."""
        raise NotImplementedError

    def on_wait_timeout(self, waiter: Waiter) -> None:
        """A blocked fetch has ended with nothing."""
        raise NotImplementedError

    def on_job_event(self, event: JobEvent) -> None:
        """Something happened to a job that this connection watches."""
        raise NotImplementedError

    def on_notice(self, notice: LifecycleNotice) -> None:
        """A lifecycle notice for this connection's session."""
        raise NotImplementedError

    # For the log

    def address(self) -> str:
        """Where the client is."""
        return ""

    def describe_command(self, command: CommandStats) -> tuple[str, str]:
        """What a command is called, and the queue it is about if that is known."""
        return command.name, ""

    def request_id(self, number: i64) -> str:
        """What the log calls a command of this connection."""
        return f"{self.connection_number}-{number}"

    def has_pending_replies(self) -> bool:
        """Whether replies are held back until something is on disk."""
        return False

    def log_fields(self) -> dict[str, object]:
        """What a line of the log says of where it comes from."""
        return {
            "connection": int(self.connection_number),
            "dialect": self.protocol_name,
            "peer": self.address(),
        }

    def log_protocol_error(self, reason: str) -> None:
        """The client does not keep to the protocol, and is let go for that. `why` must have
        nothing in it that the client has sent."""
        told = self.log_fields()
        told["request"] = self.request_id(self.command_count)
        told["why"] = reason
        log.info("a client broke the protocol", extra={"fields": told})
