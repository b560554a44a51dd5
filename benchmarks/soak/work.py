"""The kinds of load. Each is a conversation: it yields requests and is sent their replies.

A conversation knows nothing of sockets, and can be begun anew after a crash: what is still to be
done follows from the ledger. It returns when it is done or was told to stop, with nothing held.
"""

from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from benchmarks.soak.dialect import Dialect, Taken
from benchmarks.soak.ledger import Stream

Request = tuple[bytes, int]
"""What to send, and how many replies that will bring."""
Talk = Generator[Request, list[bytes], None]

# One failure is forgiven: the second retry would come only after 16 seconds.
RETRIES: Final = 1
MONTH: Final = timedelta(days=30)
CLEAR_WAIT_MS: Final = 1500
"""Longer than the delay of the first retry, which is a second."""


@dataclass(frozen=True, slots=True)
class WorkSetting:
    """One load: its kind, and the name of its jobs' stream, which is also their queue."""

    kind: str
    stream: str
    payload: int
    jobs: int = 0
    connections: int = 1
    batch: int = 100
    dead_queue: str = ""


class Work:
    """What the kinds of load share."""

    def __init__(self, setting: WorkSetting, dialect: Dialect, streams: dict[str, Stream]) -> None:
        self.setting = setting
        self.stopping = False
        self.stream = streams.setdefault(
            setting.stream, Stream(setting.stream, setting.payload, setting.dead_queue)
        )
        self._dialect = dialect
        self._streams = streams

    def talk(self) -> Talk:
        raise NotImplementedError

    def _push(
        self, count: int, *, retries: int = 20, dead_queue: str = "", due: str = ""
    ) -> Generator[Request, list[bytes], None]:
        stream, push = self.stream, self._dialect.push
        numbers = stream.pushing(count)
        requests = [
            push(
                stream.name,
                stream.payload(number),
                retries=retries,
                dead_queue=dead_queue,
                due=due,
            )
            for number in numbers
        ]
        for reply in (yield b"".join(requests), count):
            self._dialect.check(reply)
        stream.was_pushed(numbers)

    def _take(
        self, queue: str, count: int, wait_ms: int
    ) -> Generator[Request, list[bytes], list[Taken]]:
        jobs: list[Taken] = []
        for reply in (yield self._dialect.take(queue, wait_ms) * count, count):
            job = self._dialect.read_taken(reply)
            if job is not None:
                self._streams[job.stream].handed_out(job.number, job.payload)
                jobs.append(job)
        return jobs

    def _finish(self, jobs: list[Taken]) -> Generator[Request, list[bytes], None]:
        if not jobs:
            return
        for job in jobs:
            self._streams[job.stream].finishing(job.number)
        requests = b"".join([self._dialect.finish(job.id) for job in jobs])
        for reply in (yield requests, len(jobs)):
            self._dialect.check(reply)
        for job in jobs:
            self._streams[job.stream].was_finished([job.number])


class Keep(Work):
    """Pushes until there are so many, and leaves them alone."""

    def talk(self) -> Talk:
        while not self.stopping and self.stream.live < self.setting.jobs:
            missing = self.setting.jobs - self.stream.live
            yield from self._push(min(self.setting.batch, missing))


class Delay(Work):
    """The same with jobs that are due in a month."""

    def talk(self) -> Talk:
        while not self.stopping and self.stream.live < self.setting.jobs:
            due = (datetime.now(UTC) + MONTH).isoformat()
            missing = self.setting.jobs - self.stream.live
            yield from self._push(min(self.setting.batch, missing), due=due)


class Cycle(Work):
    """Pushes, takes and finishes, with at least `jobs` waiting in between."""

    def talk(self) -> Talk:
        batch = self.setting.batch
        while not self.stopping:
            yield from self._push(batch)
            if self.stream.ready >= self.setting.jobs:
                jobs = yield from self._take(self.stream.name, batch, wait_ms=1000)
                yield from self._finish(jobs)


class Drain(Work):
    """Takes and finishes until nothing waits."""

    def talk(self) -> Talk:
        while not self.stopping and self.stream.ready > 0:
            count = min(self.setting.batch, self.stream.ready)
            # Other connections may have asked for the same ones, so some takes find nothing.
            jobs = yield from self._take(self.stream.name, count, wait_ms=1)
            yield from self._finish(jobs)


class Fail(Work):
    """Fails every job each time; in their dead queue, if they have one, they are finished."""

    def talk(self) -> Talk:
        batch, dead_queue = self.setting.batch, self.setting.dead_queue
        while not self.stopping:
            yield from self._push(batch, retries=RETRIES, dead_queue=dead_queue)
            # A take that finds nothing costs a millisecond, so the last batch paces the loop.
            while jobs := (yield from self._take(self.stream.name, batch, wait_ms=1)):
                yield from self._fail(jobs)
                if len(jobs) < batch:
                    break
            if dead_queue:
                yield from self._finish((yield from self._take(dead_queue, batch, wait_ms=1)))

    def _fail(self, jobs: list[Taken]) -> Generator[Request, list[bytes], None]:
        for job in jobs:
            self.stream.failing(job.number)
        requests = b"".join([self._dialect.fail(job.id) for job in jobs])
        for reply in (yield requests, len(jobs)):
            self._dialect.check(reply)
        for job in jobs:
            is_dead = job.fails == RETRIES and not self.setting.dead_queue
            self.stream.was_failed(job.number, for_good=is_dead)


class Clear(Work):
    """Takes and finishes whatever is there, known or not."""

    def talk(self) -> Talk:
        yield from self._clear(self.stream.name)
        if self.stream.dead_queue:
            yield from self._clear(self.stream.dead_queue)

    def _clear(self, queue: str) -> Talk:
        count = 1
        while True:
            # Each take of a batch waits by itself, so only a single one may wait for long.
            wait_ms = CLEAR_WAIT_MS if count == 1 else 1
            jobs = yield from self._take(queue, count, wait_ms)
            yield from self._finish(jobs)
            if not jobs and count == 1:
                return
            count = min(count * 2, self.setting.batch) if len(jobs) == count else 1


# A load that another protocol makes possible is one more class and one more row.
KINDS: Final[dict[str, type[Work]]] = {
    "keep": Keep,
    "delay": Delay,
    "cycle": Cycle,
    "drain": Drain,
    "fail": Fail,
    "clear": Clear,
}
