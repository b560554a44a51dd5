"""What a dialect is to the broker: one object per connection that is told what happens."""

from __future__ import annotations

from mypy_extensions import i64

from taskyard.engine.effects import Notice, Waiter, Watched
from taskyard.engine.job import Job


class Receiver:
    """Base of every dialect's connection. `owner` is its number as a holder of leases."""

    def __init__(self, owner: i64) -> None:
        self.owner = owner
        self.stuffed = False  # the client does not read: no further command until `resume`
        self.in_line = False  # has commands that wait for its turn
        self.slowed = False  # has used up its share of commands: see pace.py
        self.commands: i64 = 0  # that were carried out

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

    def gave_up(self, waiter: Waiter) -> None:
        """A blocked fetch has ended with nothing."""
        raise NotImplementedError

    def watched(self, event: Watched) -> None:
        """Something happened to a job that this connection watches."""
        raise NotImplementedError

    def noticed(self, notice: Notice) -> None:
        """A lifecycle notice for this connection's session."""
        raise NotImplementedError
