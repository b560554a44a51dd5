"""Where the worker runtime gets its jobs from, and what it can say about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Job:
    """A job that is leased to this program."""

    ref: str  # names the lease
    queue: str
    payload: bytes
    name: str = ""
    uid: str = ""
    attempt: int = 1  # which delivery this is
    fails: int = 0  # how many of those before ended in a failure
    lease: float = 0.0  # seconds from the take to the end of the lease; 0: it is not timed


@dataclass(frozen=True, slots=True)
class Done:
    """The job has succeeded."""

    result: bytes = b""
    result_key: str = ""  # a key under which the result is to be stored, if any


@dataclass(frozen=True, slots=True)
class Again:
    """The attempt failed, and there should be another one."""

    error: bytes
    delay: float  # seconds until then
    payload: bytes  # what the job is to carry then, if its source keeps no counts of its own
    result: bytes = b""  # in case that the source allows no further attempt
    result_key: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """The job has failed for good."""

    error: bytes
    result: bytes = b""
    result_key: str = ""
    unreadable: bool = False  # not even its meaning is known: keep it for somebody to look at


@dataclass(frozen=True, slots=True)
class Returned:
    """The job was not worked on, or not to the end, and goes back to where it was."""


Verdict: TypeAlias = Done | Again | Failed | Returned


class Source(Protocol):
    """All methods but `close` may raise Unavailable, and are then called again.

    They are called from three threads: `take` from one, `finish` from another, `keep` from a third.
    """

    def take(self, count: int, wait: float) -> list[Job]:
        """Lease up to so many jobs; wait so many seconds for the first one."""

    def finish(self, verdicts: Sequence[tuple[Job, Verdict]]) -> list[Job]:
        """End these leases. Gives those that were over already, so that the job is another's."""

    def keep(self, jobs: Sequence[Job]) -> list[Job]:
        """Say that this program is alive, and extend these leases. Gives those that were over."""

    def close(self) -> None:
        """Give back what is left, where that is possible; raises nothing."""
