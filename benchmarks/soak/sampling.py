"""One look at everything, twice a second: the disk, the process, the jobs and the probes."""

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import readings, rig
from benchmarks.soak.crew import Probes
from benchmarks.soak.dialect import Counts, Dialect
from benchmarks.soak.driver import Tally
from benchmarks.soak.probe import Kind, Readings

INTERVAL: Final = 0.5
PATIENCE: Final = 60.0
CHURN_QUEUE: Final = "bench0"
"""The load generator's."""
RECORD_BYTES: Final = 120
"""What a push record has beside its payload: about so many bytes for the jobs of the soak."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The journal's files: the segments, and the spare that is made in advance."""

    apparent: int
    allocated: int
    segments: int
    head: int  # position of the first byte that is there
    tail: int  # and of the first of the last segment


def look_at_disk(journal: Path) -> Disk:
    apparent = allocated = 0
    bases: list[int] = []
    for entry in os.scandir(journal):
        if not entry.name.endswith(".seg") and not entry.name.startswith("spare"):
            continue
        try:
            facts = entry.stat()
        except FileNotFoundError:
            continue  # dropped, or renamed and seen under its other name
        apparent += facts.st_size
        allocated += facts.st_blocks * 512
        if entry.name.endswith(".seg"):
            bases.append(int(entry.name.removesuffix(".seg")))
    return Disk(apparent, allocated, len(bases), min(bases, default=0), max(bases, default=0))


@dataclass(frozen=True, slots=True)
class Spread:
    """Of what a probe measured, in milliseconds."""

    p50: float
    p99: float
    most: float


def spread(seconds: Sequence[float]) -> Spread | None:
    if not seconds:
        return None
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return Spread(*(1000 * ordered[round(share * last)] for share in (0.5, 0.99, 1.0)))


@dataclass(frozen=True, slots=True)
class Sample:
    at: float  # seconds since the start
    phase: str
    disk: Disk
    live_jobs: int
    live_bytes: int  # payloads of what waits, is delayed or held, and of dead letters
    live_records: int  # the same with what their records have beside the payload
    resident: int
    server_cores: float
    cycles_per_s: float
    pushes_per_s: float
    cycle_ms: Spread | None
    loop_ms: Spread | None
    late_ms: float  # how late the probe of the loop woke at most


class Asker:
    """A connection that asks for the server's counts."""

    def __init__(self, port: int, dialect: Dialect) -> None:
        self._dialect = dialect
        self._socket = socket.create_connection((rig.HOST, port), timeout=PATIENCE)

    def counts(self) -> Counts:
        self._socket.sendall(self._dialect.count())
        unread = bytearray()
        while not (replies := self._dialect.split(unread)):
            data = self._socket.recv(1 << 18)
            if not data:
                raise rig.BenchmarkError("the server has closed the connection")
            unread += data
        return self._dialect.read_counts(replies[0])

    def close(self) -> None:
        self._socket.close()


class Sampler:
    """Looks at one life of the server."""

    def __init__(
        self, server: rig.RunningServer, journal: Path, probes: Probes, dialect: Dialect
    ) -> None:
        self._server = server
        self._journal = journal
        self._probes = probes
        self._asker = Asker(server.port, dialect)
        self._counts = self._asker.counts()
        self._cpu = readings.cpu_seconds(server.pid)
        self._when = time.monotonic()
        self.readings: dict[Kind, Readings] = {}

    def sample(self, at: float, phase: str, tally: Tally, churn_payload: int) -> Sample:
        self.readings = self._probes.read()
        counts, cpu, now = (
            self._asker.counts(),
            readings.cpu_seconds(self._server.pid),
            time.monotonic(),
        )
        passed = now - self._when
        churn = counts.queues.get(CHURN_QUEUE)
        churning = 0 if churn is None else churn.all
        jobs = tally.live_jobs + tally.dead_jobs + churning
        live = tally.live_bytes + tally.dead_bytes + churning * churn_payload
        found = Sample(
            at=at,
            phase=phase,
            disk=look_at_disk(self._journal),
            live_jobs=jobs,
            live_bytes=live,
            live_records=live + jobs * RECORD_BYTES,
            resident=readings.resident_bytes(self._server.pid),
            server_cores=(cpu - self._cpu) / passed,
            cycles_per_s=(counts.finishes - self._counts.finishes) / passed,
            pushes_per_s=(counts.pushes - self._counts.pushes) / passed,
            cycle_ms=spread(self.readings["cycle"].taken),
            loop_ms=spread(self.readings["loop"].taken),
            late_ms=1000 * max(self.readings["loop"].late, default=0.0),
        )
        self._counts, self._cpu, self._when = counts, cpu, now
        return found

    def close(self) -> None:
        self._asker.close()
