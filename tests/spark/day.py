"""A day of a shop's queues on the real engine: quiet nights, a retry storm, an outage, slow names.

Workers take jobs as they can, so that what waits, runs and fails hangs together as it does in life.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from spark.histories import HOUR, MINUTE, History

from taskyard.engine.job import CLIENT, MASENKO, SECOND, Job, Origin, Policy

MIDNIGHT = 1_769_990_400 * SECOND  # of a Monday, UTC

TRIED = Policy(
    ttr=10 * MINUTE, max_fails=5, backoff=2, backoff_base=30 * SECOND, backoff_cap=4 * MINUTE
)
TWICE = Policy(ttr=10 * MINUTE, max_fails=2, backoff=2, backoff_base=60 * SECOND)
BURIED = Policy(ttr=5 * MINUTE, max_fails=2, dead_queue="payments.dead")


@dataclass(frozen=True)
class Kind:
    name: str
    queue: str
    share: float  # of all arrivals
    seconds: float  # how long one takes, about
    failing: float = 0.01
    policy: Policy = TRIED
    errors: tuple[bytes, ...] = (b"TimeoutError: no answer in 30 s",)


KINDS = (
    Kind("mail.welcome", "mail", 0.22, 0.8),
    Kind("mail.receipt", "mail", 0.28, 0.6, errors=(b"smtplib.SMTPServerDisconnected: 421",)),
    Kind("thumbnail", "images", 0.24, 2.5, 0.02, errors=(b"OSError: image 4711 is truncated",)),
    Kind("video.preview", "images", 0.03, 95.0, 0.05, TWICE, (b"MemoryError: 2048 MiB",)),
    Kind("charge", "payments", 0.16, 1.5, 0.04, BURIED, (b"CardDeclined: 51", b"CardDeclined: 5")),
    Kind("report.monthly", "reports", 0.02, 240.0, 0.02, TWICE),
    Kind("search.index", "search", 0.05, 4.0),
)
WORKERS = {"mail": 2, "images": 4, "payments": 2, "reports": 2, "search": 1}


@dataclass
class Day:
    history: History
    random: Random
    per_hour: int  # arrivals in the busiest hour
    hours: int = 24
    storm: tuple[float, float] = (9.5, 10.2)  # the hours in which the image store is away
    outage: tuple[float, float] = (14.1, 14.7)  # and in which nobody works on mail
    _due: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _number: int = 0
    _idle: dict[str, list[Origin]] = field(default_factory=dict)

    def run(self) -> None:
        start = self.history.now
        end = start + self.hours * HOUR
        for queue, count in WORKERS.items():
            self._idle[queue] = [
                Origin(CLIENT, "worker", f"{queue}-worker-{number}@host{number % 2 + 1}")
                for number in range(1, count + 1)
            ]
        self._at(start + 1, self._arrive)
        for hour in range(0, self.hours * 60, 1):
            self._at(start + hour * MINUTE, self._hand_out)
        while self._due and self._due[0][0] < end:
            when, _, do = heapq.heappop(self._due)
            self.history.pass_time(max(0, when - self.history.now))
            do()
            self._hand_out()
        self.history.pass_time(max(0, end - self.history.now))

    def _at(self, when: int, do: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._due, (when, self._number, do))

    def _hour(self) -> float:
        return (self.history.now - MIDNIGHT) % (24 * HOUR) / HOUR

    def _during(self, hours: tuple[float, float]) -> bool:
        return hours[0] <= self._hour() < hours[1]

    def _arrive(self) -> None:
        kind = self.random.choices(KINDS, [kind.share for kind in KINDS])[0]
        self.history.push(kind.queue, kind.name, kind.policy)
        busy = 0.12 + 0.88 * max(0.0, math.sin((self._hour() - 6) / 16 * math.pi)) ** 1.5
        gap = self.random.expovariate(self.per_hour * busy / 3600)
        self._at(self.history.now + round(gap * SECOND), self._arrive)

    def _hand_out(self) -> None:
        for queue, idle in self._idle.items():
            if queue == "mail" and self._during(self.outage):
                continue
            while idle:
                job = self.history.lease(queue, idle[-1], 1)
                if job is None:
                    break
                self._work(job, idle.pop(), idle)

    def _work(self, job: Job, worker: Origin, idle: list[Origin]) -> None:
        kind = next(kind for kind in KINDS if kind.name == job.name)
        stormy = kind.queue == "images" and self._during(self.storm)
        seconds = 0.3 if stormy else self.random.lognormvariate(math.log(kind.seconds), 0.5)
        fails = self.random.random() < (0.9 if stormy else kind.failing)
        error = b"ConnectionError: image store 10.0.0.7 refused"
        error = error if stormy else self.random.choice(kind.errors)

        def end() -> None:
            idle.append(worker)
            if job.lease is None:
                return
            if fails:
                self.history.nack(job, worker, error)
            else:
                self.history.ack(job, worker)

        self._at(self.history.now + round(seconds * SECOND), end)


def write_day(data: Path, seed: int = 1, per_hour: int = 1500, hours: int = 24) -> None:
    random = Random(seed)
    history = History(data, random, MIDNIGHT)
    pusher = Origin(MASENKO, "shop", "10.0.0.1:4000")
    history.push("search", "<b>markup</b>&<script>alert(1)</script>", TRIED)
    history.engine.pop(b"search", False, pusher, history.now)
    Day(history, random, per_hour, hours).run()
    history.close()
