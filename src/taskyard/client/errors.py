"""What a program that uses a server has to reckon with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from taskyard.client.views import Pushed


class ClientError(Exception):
    """Base of all errors below."""


class Unavailable(ClientError, ConnectionError):
    """The server cannot be reached, or was lost before its answer. A retry may help."""

    sent = False
    """Whether the command was on its way already, so that it may have been carried out."""
    final = False
    """Whether the same will not work a moment later either."""
    timed_out = False
    """Whether the server is there, perhaps, but takes longer than one wants to wait."""


class Closed(Unavailable):
    """The client was closed."""

    final = True


class Untrusted(Unavailable):
    """No encrypted connection can be had: the certificate is not one to trust, for instance."""

    final = True


class Refused(ClientError):
    """The server's answer is an error. Trying the same again will not help."""

    @property
    def code(self) -> str:
        """The word that an error begins with, such as ERR or STALE."""
        return str(self).partition(" ")[0]


class JobNotFound(Refused):
    """The job does not exist, or no longer."""


class QueueNotFound(Refused):
    """The queue does not exist."""


class ScheduleNotFound(Refused):
    """The schedule does not exist."""


class Draining(Refused):
    """Nothing is pushed to this queue, or this server, for now: it is being emptied."""


class Duplicate(Refused):
    """A job with this uid, or with this key in the queue, exists already."""

    @property
    def job_id(self) -> int:
        """The id of that job; 0 if the server does not say."""
        words = str(self).split(" ", 2)
        known = len(words) > 1 and words[1].isdecimal() and len(words[1]) <= 20
        return int(words[1]) if known else 0


class UidTaken(Refused):
    """The uid is that of another push: to another queue, or by another user. Nothing was pushed."""


class StaleLease(Refused):
    """The lease is over: its time, or another client has ended the job, or this one has."""


class StaleBatch(Refused):
    """The consumer has no such batch: it is done, or was out for too long, or not the next."""


class Claimed(Refused):
    """Another client has this consumer, and keeps it as long as it is connected."""


class Denied(Refused):
    """Name, password or token are wrong, or this user may not do that."""


class QueueFull(Refused):
    """The queue has as many jobs, or bytes of them, as its settings allow."""


class NotNow(Refused):
    """The server cannot do that until an operator intervenes: its disk is full or broken."""


class Problem(Refused):
    """The JSON API's answer is an error."""

    status = 0
    kind = ""

    @property
    def code(self) -> str:
        """The last part of the problem's type, such as wrong-state."""
        return self.kind


class Incomplete(ClientError):
    """push_many came to an end before all jobs were pushed.

    `outcomes` has what is known about each job that was sent, in order: it was pushed, it was
    refused, or (None) the connection was lost before the server said. The error that ended it
    all is the `__cause__`.
    """

    def __init__(self, text: str, outcomes: Sequence[Pushed | Refused | None]) -> None:
        super().__init__(text)
        self.outcomes = list(outcomes)


_CLASSES: Final[dict[str, type[Refused]]] = {
    "DUPLICATE": Duplicate,
    "UIDTAKEN": UidTaken,
    "STALE": StaleLease,
    "STALEBATCH": StaleBatch,
    "CLAIMED": Claimed,
    "NOJOB": JobNotFound,
    "DRAINING": Draining,
    "NOAUTH": Denied,
    "NOPERM": Denied,
    "WRONGPASS": Denied,
    **dict.fromkeys(("OOM", "READONLY", "LOADING", "BUSY", "TRYAGAIN", "MASTERDOWN"), NotNow),
}
_QUEUE_FULL_PREFIX: Final = "OOM queue is full"


def refusal_from_reply(text: str) -> Refused:
    """The error that an answer of the server is, by the word that it begins with."""
    if text.startswith(_QUEUE_FULL_PREFIX):
        return QueueFull(text)
    return _CLASSES.get(text.partition(" ")[0], Refused)(text)
