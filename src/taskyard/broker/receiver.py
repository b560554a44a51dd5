"""A client's connection as the broker sees it: one object that is notified of what happens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.broker.metrics import CommandStats
from taskyard.engine.model.effects import JobEvent, LifecycleNotice, Waiter
from taskyard.engine.model.job import Job

NO_COMMAND: Final = CommandStats("unknown")

# What `login_state` returns for a client, where clients have to log in.
AUTHENTICATED: Final = 0  # it has, or need not
UNAUTHENTICATED: Final = 1  # it has not
AUTHENTICATING: Final = 2  # it is about to, or its input is not processed yet

log = logging.getLogger("taskyard")


class ClientConnection:
    """Base of every protocol's connection. `owner` is its number as a holder of leases."""

    def __init__(self, owner: i64, protocol_name: str = "") -> None:
        self.owner = owner
        self.protocol_name = protocol_name
        # its number in the log; not the owner, which may be a secret
        self.connection_number: i64 = 0
        self.current_command = NO_COMMAND  # the command that is to be answered
        # when a command began that takes several turns; 0: there is none
        self.command_started_at: i64 = 0
        self.queued_at: i64 = 0  # when it was queued
        self.output_blocked = False  # the client does not read: no further command until `resume`
        self.queued_for_turn = False  # has commands that wait for its turn
        self.rate_limited = False  # has used up its share of commands: see pace.py
        self.command_count: i64 = 0  # executed commands, the current one included
        self.on_login_lost: Callable[[], None] | None = None  # called when its login is revoked

    def feed(self, data: bytes) -> None:
        """Bytes have arrived."""
        raise NotImplementedError

    def take_turn(self) -> None:
        """Execute some of the commands that have arrived."""
        raise NotImplementedError

    def resume(self) -> None:
        """Continue with commands that had to wait until replies could be sent."""
        raise NotImplementedError

    def buffered_bytes(self) -> i64:
        """Bytes of input that are kept."""
        return 0

    def needs_more_input(self) -> bool:
        """Whether the input that is kept can be used only when more has arrived."""
        return self.has_partial_command()

    def has_partial_command(self) -> bool:
        """Whether part of a command has arrived, and its remainder is all that is waited for."""
        return False

    def on_read_timeout(self) -> None:
        """The remainder of a command did not arrive in time: send an error, and close."""
        raise NotImplementedError

    def login_state(self) -> i64:
        """Return AUTHENTICATED, UNAUTHENTICATED or AUTHENTICATING."""
        return AUTHENTICATED

    def close_unauthenticated(self, reason: str) -> None:
        """Send the reason to a client that has not authenticated, and close."""
        raise NotImplementedError

    def on_eof(self) -> None:
        """The client sends nothing more: answer what has arrived, and close."""
        raise NotImplementedError

    def on_disconnect(self) -> None:
        """The connection is closed."""
        raise NotImplementedError

    def shut_down(self) -> None:
        """The server stops: answer what has arrived, accept nothing new."""
        raise NotImplementedError

    def on_permissions_changed(self) -> None:
        """The users were reloaded: commands that wait may no longer be permitted."""

    def on_job_assigned(self, waiter: Waiter, job: Job) -> None:
        """A blocked fetch has a job."""
        raise NotImplementedError

    def on_payload_unreadable(self, waiter: Waiter) -> None:
        """A blocked fetch has ended, since the payload of its job cannot be read; the job stays."""
        raise NotImplementedError

    def on_wait_timeout(self, waiter: Waiter) -> None:
        """A blocked fetch has timed out."""
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
        """Return a command's name, and its queue if that is known."""
        return command.name, ""

    def request_id(self, number: i64) -> str:
        """What the log calls a command of this connection."""
        return f"{self.connection_number}-{number}"

    def has_pending_replies(self) -> bool:
        """Whether replies wait for a commit."""
        return False

    def log_fields(self) -> dict[str, object]:
        """Return the fields that identify this connection in the log."""
        return {
            "connection": int(self.connection_number),
            "dialect": self.protocol_name,
            "peer": self.address(),
        }

    def log_protocol_error(self, reason: str) -> None:
        """Log that the client violates the protocol. `reason` must not contain anything that the
        client has sent.
        """
        told = self.log_fields()
        told["request"] = self.request_id(self.command_count)
        told["reason"] = reason
        log.info("protocol error", extra={"fields": told})
