"""What a dialect is to the broker: one object per connection that is told what happens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.broker.metrics import Verb
from taskyard.engine.model.effects import Notice, Waiter, Watched
from taskyard.engine.model.job import Job

NO_VERB: Final = Verb("unknown")

# What `standing` says of a client, where clients have to log in.
KNOWN: Final = 0  # it has, or need not
STRANGER: Final = 1  # it has not
BUSY: Final = 2  # it is about to, or what it has sent is not looked at yet

log = logging.getLogger("taskyard")


class Receiver:
    """Base of every dialect's connection. `owner` is its number as a holder of leases."""

    def __init__(self, owner: i64, dialect: str = "") -> None:
        self.owner = owner
        self.dialect = dialect
        self.connection: i64 = 0  # its number in the log; not the owner, which may be a secret
        self.verb = NO_VERB  # the command that is to be answered
        self.since: i64 = 0  # when a command began that takes several turns; 0: there is none
        self.joined: i64 = 0  # when it joined the line
        self.stuffed = False  # the client does not read: no further command until `resume`
        self.in_line = False  # has commands that wait for its turn
        self.slowed = False  # has used up its share of commands: see pace.py
        self.commands: i64 = 0  # that were carried out, the one that is being so included
        self.on_stranger: Callable[[], None] | None = None  # nobody knows any more who it is

    def feed(self, data: bytes) -> None:
        """Bytes have arrived."""
        raise NotImplementedError

    def take_turn(self) -> None:
        """Carry out some of the commands that have arrived."""
        raise NotImplementedError

    def resume(self) -> None:
        """There is room for replies again: commands that had to wait for that can go on."""
        raise NotImplementedError

    def holding(self) -> i64:
        """Bytes that have arrived and are kept."""
        return 0

    def waits_for_input(self) -> bool:
        """Whether what is kept can only be dealt with when more has arrived."""
        return self.half_read()

    def half_read(self) -> bool:
        """Whether a command has begun to arrive, and nothing but its rest is waited for."""
        return False

    def stalled(self) -> None:
        """That command did not come to its end in time: say so, and close."""
        raise NotImplementedError

    def standing(self) -> i64:
        """Whether the client has said who it is."""
        return KNOWN

    def dismissed(self, why: str) -> None:
        """It has not, and may stay no longer: say so, and close."""
        raise NotImplementedError

    def ended(self) -> None:
        """The client sends nothing more, and may be gone: answer what has arrived, and close."""
        raise NotImplementedError

    def lost(self) -> None:
        """The connection is gone."""
        raise NotImplementedError

    def shut_down(self) -> None:
        """The server stops: answer what has arrived, take nothing new."""
        raise NotImplementedError

    def rules_changed(self) -> None:
        """The users were read again: what waits may be allowed no longer."""

    def assigned(self, waiter: Waiter, job: Job) -> None:
        """A blocked fetch has got its job."""
        raise NotImplementedError

    def read_failed(self, waiter: Waiter) -> None:
        """A blocked fetch has ended, since the payload of its job cannot be read; the job stays."""
        raise NotImplementedError

    def gave_up(self, waiter: Waiter) -> None:
        """A blocked fetch has ended with nothing."""
        raise NotImplementedError

    def watched(self, event: Watched) -> None:
        """Something happened to a job that this connection watches."""
        raise NotImplementedError

    def noticed(self, notice: Notice) -> None:
        """A lifecycle notice for this connection's session."""
        raise NotImplementedError

    # For the log

    def address(self) -> str:
        """Where the client is."""
        return ""

    def asked(self, verb: Verb) -> tuple[str, str]:
        """What a command is called, and the queue it is about if that is known."""
        return verb.name, ""

    def request_id(self, number: i64) -> str:
        """What the log calls a command of this connection."""
        return f"{self.connection}-{number}"

    def replies_wait(self) -> bool:
        """Whether replies are held back until something is on disk."""
        return False

    def told(self) -> dict[str, object]:
        """What a line of the log says of where it comes from."""
        return {
            "connection": int(self.connection),
            "dialect": self.dialect,
            "peer": self.address(),
        }

    def fault(self, why: str) -> None:
        """The client does not keep to the protocol, and is let go for that. `why` must have
        nothing in it that the client has sent."""
        told = self.told()
        told["request"] = self.request_id(self.commands)
        told["why"] = why
        log.info("a client broke the protocol", extra={"fields": told})
