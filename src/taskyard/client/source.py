"""The interface between the worker's runtime and the source of its jobs.

None of these is frozen: there are two for each job, and making a frozen one takes four times as
long (1.9 microseconds instead of 0.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, overload

import msgspec

if TYPE_CHECKING:
    from taskyard.client.causes import Cause

T = TypeVar("T")

BY_POLICY: Final = -1.0  # instead of a delay: the job's own policy says how long, and if at all


@dataclass(slots=True)
class Job:
    """A job that is leased to this program. Only `lost` and `seconds` change."""

    ref: str  # names the lease
    queue: str
    payload: bytes
    name: str = ""
    uid: str = ""
    attempt: int = 1  # which delivery this is
    fails: int = 0  # how many of those before ended in a failure
    lease: float = 0.0  # seconds from the take to the end of the lease; 0: it is not timed
    id: int = 0
    deadline: float = 0.0  # when the lease ends, by the clock of the server; 0: it is not timed
    lost: bool = field(default=False, compare=False)
    """Whether it is known that the lease is over, so that the job is another's by now."""
    inputs: tuple[bytes | None, ...] = ()  # results of jobs before it, where it needs them
    span: float = 0.0  # seconds that an extension of its lease lasts; 0: as the source has it
    seconds: float = field(default=0.0, compare=False)  # that its run took

    def __hash__(self) -> int:
        return hash(self.ref)

    def json(self) -> Any:
        """The payload, which is JSON, as what it stands for; msgspec.DecodeError if it is not."""
        return msgspec.json.decode(self.payload)

    @overload
    def decode(self, into: type[T]) -> T: ...

    @overload
    def decode(self, into: Any) -> Any: ...

    def decode(self, into: Any) -> Any:
        """The same as an object of this type; msgspec.ValidationError if it does not fit."""
        return msgspec.json.decode(self.payload, type=into)

    def lose(self) -> None:
        """Say that the lease is over."""
        self.lost = True


@dataclass(slots=True)
class Success:
    """The job has succeeded."""

    result: bytes = b""
    result_key: str = ""  # a key under which the result is to be stored, if any
    result_ttl: float = 0.0  # seconds for which the source shall keep the result with the job


@dataclass(slots=True)
class RetryLater:
    """The attempt failed, and there should be another one."""

    error: bytes
    delay: float = BY_POLICY  # seconds until then
    payload: bytes = b""  # the job's payload then, if its source keeps no counts of its own
    result: bytes = b""  # in case that the source allows no further attempt
    result_key: str = ""
    cause: Cause | None = field(default=None, compare=False)


@dataclass(slots=True)
class Failed:
    """The job has failed for good."""

    error: bytes
    result: bytes = b""
    result_key: str = ""
    unreadable: bool = False  # it cannot be parsed: keep it for a person to inspect
    cause: Cause | None = field(default=None, compare=False)


@dataclass(slots=True)
class Released:
    """The job was not run, or not to its end, and returns to its queue."""


Verdict: TypeAlias = Success | RetryLater | Failed | Released


class Source(Protocol):
    """All methods but `close` may raise Unavailable, and are then called again.

    They are called from three threads: `fetch_jobs` from one, `finish_jobs` from another,
    `extend_leases` from a third.
    """

    def fetch_jobs(self, count: int, wait: float) -> list[Job]:
        """Lease up to so many jobs; wait so many seconds for the first one."""

    def finish_jobs(self, verdicts: Sequence[tuple[Job, Verdict]]) -> list[Job]:
        """End these leases. Gives those that were over already, so that the job is another's."""

    def extend_leases(self, jobs: Sequence[Job]) -> list[Job]:
        """Say that this program is alive, and extend these leases. Gives those that were over."""

    def close(self) -> None:
        """Release what is left, where that is possible; raises nothing."""
