"""The summary of the server in a live sample: made once for all listeners."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from taskyard import __version__
from taskyard.broker import build
from taskyard.broker.broker import Broker
from taskyard.broker.seams import Scheduler
from taskyard.engine.structures.measures import Histogram
from taskyard.protocols.http.api.lake import LakeStatus, no_lake_status
from taskyard.protocols.http.api.server import Connections, Durability, resident_bytes
from taskyard.protocols.http.api.views import moment, seconds
from taskyard.protocols.http.monitoring import live_messages as messages
from taskyard.protocols.http.monitoring.quantiles import quantiles
from taskyard.protocols.http.monitoring.watch import SECOND, StatsSample

DiskSpace = Callable[[], tuple[int, int]]  # bytes of the disk that are free, and all of them

_DISK_SPACE_INTERVAL_US: Final = 10 * SECOND
_LAG_SAMPLES: Final = 60  # samples


def unknown_disk_space() -> tuple[int, int]:
    return (0, 0)


def disk_space_of(path: str) -> tuple[int, int]:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarySources:
    """Where the summary gets what other parts of the server know."""

    durability: Durability = "sync"
    connections: Connections = dict
    lake: LakeStatus = no_lake_status
    space: DiskSpace = unknown_disk_space


class ServerSummary:
    def __init__(self, broker: Broker, scheduler: Scheduler, sources: SummarySources) -> None:
        self._broker = broker
        self._scheduler = scheduler
        self._sources = sources
        self._started = broker.clock.now()
        self._space: tuple[int, int] | None = None
        self._space_read_at = 0  # for it
        self._reading_space = False
        self._lags: deque[list[int]] = deque(maxlen=_LAG_SAMPLES)

    def clear_lags(self) -> None:
        """There was no listener for a while."""
        self._lags.clear()

    def hidden_view(self, sample: StatsSample) -> messages.LiveHead:
        """The summary for clients that may see some queues only."""
        return messages.LiveHead(
            at=moment(sample.at),
            server=None,
            totals=None,
            rates=None,
            wait=None,
            run=None,
            dialects=None,
            journal=None,
            disk=None,
            loop_lag_p99=None,
            memory=None,
            lake=None,
        )

    def view(self, sample: StatsSample, before: StatsSample | None) -> messages.LiveHead:
        self._refresh_space(sample.at)
        lag = self._lag(sample)
        waits: messages.Spread | None = None
        runs: messages.Spread | None = None
        if before is not None:
            times, then = sample.tally.times, before.tally.times
            waits = spread(times.waits, then.waits.buckets)
            runs = spread(times.runs, then.runs.buckets)
        return messages.LiveHead(
            at=moment(sample.at),
            server=self._server(sample.at),
            totals=self._totals(sample),
            rates=rates_of(sample, before) if before is not None else None,
            wait=waits,
            run=runs,
            dialects=self._protocols(sample, before),
            journal=self._journal(sample, before),
            disk=self._disk(),
            loop_lag_p99=lag,
            memory=resident_bytes(),
            lake=self._sources.lake(),
        )

    def _server(self, now: int) -> messages.LiveServer:
        engine = self._broker.engine
        refusing = engine.read_only_reason or engine.journal_space.push_refusal
        if engine.draining and not refusing:
            refusing = "the server is being drained"
        return messages.LiveServer(
            version=__version__,
            form=build.form(),
            started_at=moment(self._started),
            uptime=seconds(now - self._started),
            durability=self._sources.durability,
            accepting=not refusing,
            refusing=refusing or None,
            draining=engine.draining,
            epoch=engine.state.epoch,
            timeline=self._broker.journal.timeline.hex(),
        )

    def _totals(self, sample: StatsSample) -> messages.LiveTotals:
        tally = sample.tally
        return messages.LiveTotals(
            ready=tally.ready,
            delayed=tally.delayed,
            leased=tally.leased,
            blocked=tally.blocked,
            succeeded=tally.done,
            dead=tally.dead,
            limited=tally.limited,
            jobs=self._broker.engine.state.entity_counts()[0],
            queues=tally.queues,
            pushed=tally.pushed,
            leased_total=tally.leases,
            finished=tally.finished,
            failed=tally.failed,
            retried=tally.retried,
            released=tally.released,
            expired=tally.expired,
            removed=tally.removed,
        )

    def _protocols(
        self, sample: StatsSample, before: StatsSample | None
    ) -> list[messages.LiveProtocol]:
        rates = request_rates(sample, before) if before is not None else {}
        return [
            messages.LiveProtocol(
                dialect=protocol, clients=clients, requests_rate=rates.get(protocol)
            )
            for protocol, clients in self._sources.connections().items()
        ]

    def _journal(self, sample: StatsSample, before: StatsSample | None) -> messages.LiveJournal:
        broker = self._broker
        journal = broker.journal
        commits: float | None = None
        written: float | None = None
        flushes: messages.Spread | None = None
        if before is not None:
            elapsed = seconds(sample.at - before.at)
            commits = rate(sample.commits, before.commits, elapsed)
            written = rate(sample.written, before.written, elapsed)
            flushes = spread(broker.metrics.flush_durations, before.flushes, sample.flushes)
        return messages.LiveJournal(
            bytes=journal.end - journal.first_base,
            live_bytes=broker.engine.state.compacted_size(),
            used_bytes=journal.end - journal.replay_start,
            segments=journal.segments,
            durable_seq=journal.durable_seq,
            commits_rate=commits,
            bytes_rate=written,
            flush=flushes,
            readers=len(broker.engine.state.readers),
        )

    def _lag(self, sample: StatsSample) -> float | None:
        """Over the last samples, since the loop's lag is measured once a second."""
        first = self._lags[0] if self._lags else None
        self._lags.append(sample.lag)
        if first is None:
            return None
        found = quantiles(self._broker.metrics.loop_lag, first, sample.lag, (0.99,))
        return found[0] if found else None

    def _disk(self) -> messages.LiveDisk | None:
        if not self._space or not self._space[1]:
            return None
        return messages.LiveDisk(free=self._space[0], total=self._space[1])

    def _refresh_space(self, now: int) -> None:
        """Beside the loop: a disk that hangs does not answer this either."""
        if not self._reading_space and (
            not self._space_read_at or now - self._space_read_at >= _DISK_SPACE_INTERVAL_US
        ):
            self._reading_space = True
            self._space_read_at = now
            self._scheduler.run_blocking(self._read_space, self._on_space_read)

    def _read_space(self) -> None:
        try:
            self._space = self._sources.space()
        except OSError:
            self._space = None

    def _on_space_read(self, error: BaseException | None) -> None:
        self._reading_space = False


def rate(now: int, before: int, elapsed: float) -> float:
    return round(max(0, now - before) / elapsed, 3) if elapsed > 0 else 0.0


def rates_of(sample: StatsSample, before: StatsSample) -> messages.LiveRates:
    now, then = sample.tally, before.tally
    elapsed = seconds(sample.at - before.at)
    return messages.LiveRates(
        pushed=rate(now.pushed, then.pushed, elapsed),
        started=rate(now.leases, then.leases, elapsed),
        finished=rate(now.finished, then.finished, elapsed),
        failed=rate(now.failed + now.retried, then.failed + then.retried, elapsed),
    )


def request_rates(sample: StatsSample, before: StatsSample) -> dict[str, float]:
    elapsed = seconds(sample.at - before.at)
    return {
        protocol: rate(count, before.requests.get(protocol, 0), elapsed)
        for protocol, count in sample.requests.items()
    }


def spread(
    shape: Histogram, before: Sequence[int] | None, now: Sequence[int] | None = None
) -> messages.Spread | None:
    found = quantiles(shape, before, shape.buckets if now is None else now)
    if found is None:
        return None
    return messages.Spread(p50=found[0], p95=found[1], p99=found[2])
