"""The blocking client: push jobs, fetch them, finish them, read their results."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from taskyard.client import api, commands
from taskyard.client.api import ApiCalls, Pages
from taskyard.client.commands import (
    Call,
    Command,
    JobRef,
    NewJob,
    OnePushOptions,
    PushOptions,
    Reply,
    ScheduleOptions,
    Seconds,
    mark_lost_jobs,
    new_job,
    read_or_error,
    to_seconds,
)
from taskyard.client.connection import Connection, copy_event
from taskyard.client.errors import Closed, NotNow, Refused, StaleLease, Unavailable
from taskyard.client.feeding import PushStream, iterate_payloads
from taskyard.client.leases import LeaseKeeper
from taskyard.client.retry import Backoff, CallRetry, RetryBudget, not_now_error
from taskyard.client.source import Job
from taskyard.client.url import (
    DEFAULT_PATIENCE_S,
    DEFAULT_TIMEOUT_S,
    Address,
    first_given,
    resolve_address,
)
from taskyard.client.views import (
    ConsumerInfo,
    DeadGroups,
    DeadLetter,
    HeldJob,
    JobInfo,
    Outcome,
    Pushed,
    QueueInfo,
    ReaderInfo,
    Replayed,
    ScheduleInfo,
    ServerInfo,
    SettingsOptions,
)

T = TypeVar("T")


# What a blocking client can see and do beside pushing and taking: the JSON API, typed


class Administration(ABC):
    """Part of Client. The lists are read as one walks through them."""

    def __init__(self, api: ApiCalls) -> None:
        self._api = api

    @abstractmethod
    def _run_call(self, call: Call[T]) -> T: ...

    @abstractmethod
    def _iterate_pages(self, pages: Pages[T]) -> Iterator[T]: ...

    # Jobs

    def inspect(self, job: JobRef) -> JobInfo:
        """All that is known about a job, with payload, result and last error; JobNotFound."""
        return self._run_call(self._api.inspect(job))

    def jobs(self, queue: str, state: str = "ready", limit: int | None = None) -> Iterator[JobInfo]:
        """The jobs of a queue that are in one state: blocked, delayed, ready, limited, leased,
        succeeded or failed.
        """
        return self._iterate_pages(self._api.jobs(queue, state, limit))

    def finished(self, limit: int | None = None) -> Iterator[JobInfo]:
        """Jobs that ended a short while ago, the last one first."""
        return self._iterate_pages(self._api.finished(limit))

    def leases(self, queue: str | None = None, limit: int | None = None) -> Iterator[HeldJob]:
        """The leases of a queue, or of all."""
        return self._iterate_pages(self._api.leases(queue, limit))

    def cancel(self, job: JobRef) -> None:
        """Remove a job, in whatever state it is, and end its lease. Jobs that wait for it fail."""
        self._run_call(self._api.cancel(job))

    def retry(self, job: JobRef) -> JobInfo:
        """Make a delayed job ready now, or replay a dead letter."""
        return self._run_call(self._api.retry(job))

    def move(self, job: JobRef, queue: str, *, front: bool = False) -> JobInfo:
        """Put a job into another queue, at its end or its front, where it is ready."""
        return self._run_call(self._api.move(job, queue, front))

    def set_priority(self, job: JobRef, priority: int) -> JobInfo:
        """Put a ready job behind those that have this priority already."""
        return self._run_call(self._api.set_priority(job, priority))

    # Queues

    def queues(self) -> list[QueueInfo]:
        """All queues that one may see, by name."""
        return list(self._iterate_pages(self._api.queues()))

    def queue(self, name: str) -> QueueInfo:
        """A queue: its jobs by state, settings, counters; QueueNotFound."""
        return self._run_call(self._api.queue(name))

    def configure(
        self, name: str, *, replace: bool = False, **settings: Unpack[SettingsOptions]
    ) -> QueueInfo:
        """Change settings of a queue, such as retries=3; see QueueSettings.

        With `replace` the queue is made if there is none, and settings that are not named get
        their defaults.
        """
        return self._run_call(self._api.configure(name, settings, replace))

    def pause(self, name: str) -> QueueInfo:
        """Deliver no more jobs of a queue."""
        return self._run_call(self._api.pause(name))

    def resume(self, name: str) -> QueueInfo:
        """Hand them out again."""
        return self._run_call(self._api.resume(name))

    def purge(self, name: str, *states: str) -> int:
        """Remove the jobs of a queue that are in these states, else those that wait (blocked,
        delayed, ready, limited); says how many.
        """
        wanted = states or ("blocked", "delayed", "ready", "limited")
        return self._run_call(self._api.purge(name, wanted))["removed"]

    def delete(self, name: str, *, purge: bool = False) -> int:
        """Delete a queue, with `purge` also if it has jobs; returns how many those were."""
        return self._run_call(self._api.delete(name, purge))["removed"]

    # Dead letters

    def dead(
        self, queue: str, reason: str | None = None, limit: int | None = None
    ) -> Iterator[DeadLetter]:
        """The jobs of a queue that have failed for good, the oldest first."""
        return self._iterate_pages(self._api.dead(queue, reason, limit))

    def dead_groups(self, queue: str) -> DeadGroups:
        """The same by reason: how many, the last error, some ids."""
        return self._run_call(self._api.dead_groups(queue))

    def replay(
        self, queue: str, ids: Iterable[int] | None = None, reason: str | None = None
    ) -> Replayed:
        """Replay dead letters: those with these ids, else all, or all of a reason."""
        return self._run_call(self._api.replay(queue, ids, reason))

    def purge_dead(
        self, queue: str, ids: Iterable[int] | None = None, reason: str | None = None
    ) -> int:
        """Remove dead letters: those with these ids, else all, or all of a reason; says how
        many. Ids that are not among them are passed over.
        """
        return self._run_call(self._api.purge_dead(queue, ids, reason)).removed

    # Schedules

    def schedules(self) -> list[ScheduleInfo]:
        """All schedules that one may see, by name."""
        return list(self._iterate_pages(self._api.schedules()))

    def schedule(self, name: str) -> ScheduleInfo:
        """One of them."""
        return self._run_call(self._api.schedule(name))

    def set_schedule(
        self, name: str, queue: str, **options: Unpack[ScheduleOptions]
    ) -> ScheduleInfo:
        """Have a job pushed to a queue again and again; replaces a schedule of the same name."""
        return self._run_call(self._api.set_schedule(name, queue, options))

    def pause_schedule(self, name: str) -> ScheduleInfo:
        """Let it push nothing for now."""
        return self._run_call(self._api.pause_schedule(name, True))

    def resume_schedule(self, name: str) -> ScheduleInfo:
        """Let it push again."""
        return self._run_call(self._api.pause_schedule(name, False))

    def run_schedule(self, name: str) -> Pushed:
        """Push one job of it now."""
        return self._run_call(self._api.run_schedule(name))

    def delete_schedule(self, name: str) -> None:
        """Forget it; jobs that it has pushed stay."""
        self._run_call(self._api.delete_schedule(name))

    # The pipeline

    def consumers(self) -> list[ConsumerInfo]:
        """All consumers of batches that one may see, by name."""
        return list(self._iterate_pages(self._api.consumers()))

    def readers(self) -> list[ReaderInfo]:
        """All readers of the journal, by name."""
        return list(self._iterate_pages(self._api.readers()))

    # The server

    def server(self) -> ServerInfo:
        """Version, uptime, durability, journal and so on."""
        return self._run_call(self._api.server())


# The connections of a client: threads use them at the same time, each its own


class ConnectionPool:
    """Connections are opened when they are needed, and kept for later calls."""

    def __init__(
        self,
        address: Address,
        timeout: float,
        max_connections: int,
        setup_commands: Sequence[Command] = (),
    ) -> None:
        """`max_connections`: at the same time. Commands that wait for something have further ones,
        so that no other call waits for them. `setup_commands`: what each begins with.
        """
        if max_connections < 1:
            raise ValueError("a client needs at least one connection")
        self._address = address
        self._timeout = timeout
        self._tls = address.create_tls_context()
        self._setup_commands = setup_commands
        self._max_connections = max_connections
        self._changed = threading.Condition()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._busy_count = 0  # of those that are busy and no extra ones
        self._closed = False
        _pools.add(self)

    @contextlib.contextmanager
    def connection(self, extra: bool = False) -> Iterator[Connection]:
        """One for this thread alone; `extra` if it will wait for something."""
        found = self._borrow_connection(extra)
        try:
            yield found
        finally:
            self._return_connection(found, extra)

    def close(self) -> None:
        """Ends what others are doing with Closed."""
        with self._changed:
            self._closed = True
            connections = [*self._idle, *self._busy]
            self._idle.clear()
            self._changed.notify_all()
        for connection in connections:
            connection.close()

    def reset_after_fork(self) -> None:
        """Start anew in the child: the threads that hold the lock and connections do not exist
        here.
        """
        self._changed = threading.Condition()
        self._busy.clear()
        self._busy_count = 0

    def _borrow_connection(self, extra: bool) -> Connection:
        with self._changed:
            while not (extra or self._closed or self._busy_count < self._max_connections):
                self._changed.wait()
            if self._closed:
                raise Closed(f"{self._address}: the client was closed")
            found = self._idle.pop() if self._idle else None
            if found is None:
                found = Connection(
                    self._address,
                    timeout=self._timeout,
                    tls=self._tls,
                    setup_commands=self._setup_commands,
                )
            self._busy.add(found)
            self._busy_count += not extra
            return found

    def _return_connection(self, connection: Connection, extra: bool) -> None:
        with self._changed:
            if connection not in self._busy:  # of before a fork
                return
            self._busy.remove(connection)
            self._busy_count -= not extra
            keep = not self._closed and len(self._idle) < self._max_connections
            if keep:
                self._idle.append(connection)
            self._changed.notify()
        if not keep:
            connection.close()


_pools: Final[weakref.WeakSet[ConnectionPool]] = weakref.WeakSet()


def _reset_pools_after_fork() -> None:
    for pool in list(_pools):
        pool.reset_after_fork()


os.register_at_fork(after_in_child=_reset_pools_after_fork)


class Client(Administration):
    """A server, for as many threads as you like.

    It connects when it is first used and again when it has to. While the server is away, calls
    wait and try again for up to `patience` seconds, then they raise Unavailable. No push is done
    twice, however often it had to be sent.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout: float | None = None,
        patience: float | None = None,
        connections: int = 8,
        heartbeats: bool = True,
        on_lost: Callable[[Job], object] | None = None,
        backoff: Backoff | None = None,
        claims: Sequence[str] = (),
    ) -> None:
        """Connects to nothing yet; ValueError if the URL cannot be used.

        `url`: taskyard://[[user]:[password or token]@]host[:port], or taskyards:// for TLS; else
        the variable TASKYARD_URL, else localhost. `timeout`: seconds that one answer may take (10).
        `patience`: seconds for which a server that is away is waited for (30). `connections`: how
        many there may be, beside those that wait for a job or a result. `heartbeats`: whether the
        leases of fetched jobs are extended until the jobs are ended. `on_lost`: called, in a thread
        of the client, with a job whose lease turned out to be over. `backoff`: the pauses
        between tries. `claims`: consumers of batches that are to be this client's alone while it
        is connected. Calls raise Claimed as long as they are another one's.
        """
        self._address = resolve_address(url)
        self._timeout = first_given(timeout, self._address.timeout, DEFAULT_TIMEOUT_S)
        self._patience = first_given(patience, self._address.patience, DEFAULT_PATIENCE_S)
        self._backoff = backoff or Backoff()
        self.holder = commands.new_holder()  # of what it claims
        hello = [commands.claim(consumer, self.holder) for consumer in claims]
        self._pool = ConnectionPool(self._address, self._timeout, connections, hello)
        self._closed = threading.Event()
        self._heartbeats = heartbeats
        self._lease_keeper = LeaseKeeper(self._extend_leases, on_lost)
        super().__init__(ApiCalls(self._address.prefix))
        _clients.add(self)

    @property
    def address(self) -> Address:
        """Where the server is."""
        return self._address

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all connections and heartbeats; calls in other threads raise Closed.

        Jobs that were not ended stay leased until the time of their lease is over: give them back
        before, if others shall have them at once.
        """
        self._closed.set()
        self._lease_keeper.close()
        self._pool.close()

    def ping(self) -> None:
        """Make sure that the server is there and lets this client in."""
        self._run_call(commands.ping())

    # Pushing

    def push(self, queue: str, payload: Any = b"", **options: Unpack[OnePushOptions]) -> Pushed:
        """Put a job into a queue; when this returns, the job is safe.

        Bytes are sent as they are, everything else as JSON. The options are those of NewJob.
        """
        return self._run_call(commands.push(new_job(queue, payload, **options)))

    def push_many(
        self, queue: str, payloads: Iterable[Any], **options: Unpack[PushOptions]
    ) -> list[Pushed]:
        """Push any number of jobs, which share their options, at full speed.

        They are pushed one by one, not together: when the server refuses one of them, or stays
        away, Incomplete tells what became of each. `payloads` is read as the jobs are sent, so
        that it may be a generator of millions. An error that it raises is raised here, when what
        was sent before is safe.
        """
        feed = PushStream(new_job(queue, **options), iterate_payloads(payloads))
        patience = RetryBudget(self._patience, self._backoff)
        while not self._push_until_failure(feed, patience):
            pass
        return feed.result()

    def push_all(self, jobs: Iterable[NewJob]) -> list[Pushed]:
        """Push up to 1,000 jobs, of any queues, together: all of them, or none.

        In `blocked_by` of a job, -1 stands for the job before it, -2 for the one before that.
        """
        wanted = list(jobs)
        return self._run_call(commands.push_all(wanted)) if wanted else []

    # Taking

    def fetch(
        self,
        *queues: str,
        count: int = 1,
        wait: Seconds = 0.0,
        ttr: Seconds | None = None,
        random: bool = False,
    ) -> list[Job]:
        """Lease up to `count` jobs (at most 1,000), the first queue's first; [] if there are none.

        `wait`: how long to wait for the first. `ttr`: how long the leases last; the jobs' own
        counts if that is shorter, the server's default if neither says. `random`: look for work
        in a queue picked at random among those that have some, instead of in their order.
        """
        jobs = self._run_call(commands.fetch(queues, count, wait, ttr, random))
        if jobs and self._heartbeats:
            self._lease_keeper.add(jobs, None if ttr is None else to_seconds(ttr))
        return jobs

    def ack(self, job: Job, result: Any = None) -> None:
        """The job has succeeded; bytes are kept as they are, another result as JSON."""
        self._end_lease(job, lambda until: commands.ack(job, result, until))

    def ack_many(self, jobs: Iterable[Job]) -> list[Job]:
        """The same for several, in one go; returns those whose lease was over."""
        ended = list(jobs)
        calls = [commands.ack(job, None, self._lease_keeper.start_finish(job)) for job in ended]
        try:
            outcomes = self._run_calls(calls)
        except BaseException:
            for job in ended:
                self._lease_keeper.abort_finish(job)
            raise
        for job in ended:
            self._lease_keeper.finish(job)
        return mark_lost_jobs(ended, outcomes)

    def nack(self, job: Job, error: Any = "", delay: Seconds | None = None) -> str:
        """The attempt has failed; says what the job is now: delayed, ready or failed.

        `delay`: how long until the next attempt, instead of the job's own back-off. (If a
        connection was lost meanwhile the answer may be "unknown".)
        """
        return self._end_lease(job, lambda until: commands.nack(job, error, delay, until))

    def fail(self, job: Job, error: Any = "") -> None:
        """The job has failed for good, and is not tried again; `error` is its result."""
        self._end_lease(job, lambda until: commands.fail(job, error, until))

    def give_back(self, job: Job) -> None:
        """The job was not worked on: it is ready again, in its old place."""
        self._end_lease(job, lambda until: commands.give_back(job, until))

    def extend(self, job: Job, seconds: Seconds) -> float:
        """Let the lease end so long from now; gives that time, in seconds since 1970.

        Only needed without heartbeats, or to choose how long it outlasts this process.
        """
        call = commands.extend(job.ref, seconds)
        self._lease_keeper.set_duration(job, to_seconds(seconds))
        try:
            deadline = self._run_call(call)
        except StaleLease:
            self._lease_keeper.finish(job)
            job.lose()
            raise
        self._lease_keeper.on_duration_set(job, to_seconds(seconds), deadline)
        return deadline

    def progress(self, job: Job, fraction: float, message: str = "") -> None:
        """Report how much of the job is done, from 0 to 1."""
        self._run_call(commands.progress(job, fraction, message))

    # Batches

    def lease_batch(
        self,
        consumer: str,
        number: int,
        limit: int,
        queues: Sequence[str],
        ttr: Seconds | None = None,
    ) -> tuple[int, int]:
        """Lease up to `limit` jobs (at most 1,000,000) as batch `number` of a consumer, or get the
        batch that it holds already; gives its number and how many jobs it has.

        The next number says that the batch before is done. If there are no jobs, that number and 0
        are given. `ttr`: how long the batch may be out; else for ever. StaleBatch if it was out
        for longer, or the number is neither this one nor the next.
        """
        return self._run_call(commands.lease(consumer, number, limit, queues, ttr))

    def read_batch(self, consumer: str, number: int, start: int, count: int) -> list[Job]:
        """The jobs at places `start` to `start + count - 1` of a batch that is held, from 0 on,
        without those that were ended or given back one by one.
        """
        reading = commands.BatchReader(consumer, number, start, count)
        while (call := reading.next_call()) is not None:
            self._run_call(call)
        return reading.jobs

    def ack_batch(self, consumer: str, upto: int, holder: str | None = None) -> None:
        """The jobs of the batch have succeeded, and those of the batches before it. `holder`: on
        behalf of another client, which has claimed the consumer and is called so.
        """
        self._run_call(commands.ack_batch(consumer, upto, holder))

    def drop_consumer(self, consumer: str) -> None:
        """Drop a consumer; its jobs return to the queues, uncounted."""
        self._run_call(commands.drop(consumer))

    # Results

    def result(self, job: JobRef, wait: Seconds = 0.0) -> Outcome | None:
        """How a job has ended; None if it has not, after waiting for so long.

        JobNotFound if there is no such job, or the server has forgotten it: results are kept for
        the job's `ttl`, or for what its queue's settings say.
        """
        return self._run_call(commands.result(job, wait))

    # The JSON API

    def call_api(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the JSON API, with a path such as /api/v1/queues?limit=10; gives the answer decoded.

        `body`: bytes of JSON, or something to make JSON of.
        """
        return self._run_call(api.call(method, path, body))

    # How it is done

    def _run_call(self, call: Call[T]) -> T:
        tries = CallRetry(call, self._patience, self._backoff)
        while True:
            try:
                reply = self._exchange(tries.call)
            except Unavailable as error:
                pause = tries.pause_after_loss(error)
            else:
                put_off = tries.pause_after_reply(reply)
                if put_off is None:
                    return tries.read_reply(reply)
                pause = put_off
            self._pause(pause)

    def _exchange(self, call: Call[T]) -> Reply:
        with self._pool.connection(extra=call.own_connection or call.wait > 0) as connection:
            return connection.pipeline([call.words], wait=call.wait)[0]

    def _run_calls(self, calls: Sequence[Call[T]]) -> list[T | Refused]:
        """Several commands that may be repeated, sent together; errors are returned."""
        patience = RetryBudget(self._patience, self._backoff)
        again = False
        while True:
            try:
                with self._pool.connection() as connection:
                    replies = connection.pipeline([call.words for call in calls])
            except Unavailable as error:
                again = again or error.sent
                pause = patience.next_pause(error)
            else:
                passing = next((one for one in replies if isinstance(one, NotNow)), None)
                if passing is None:
                    pairs = zip(calls, replies, strict=True)
                    return [read_or_error(call, reply, again) for call, reply in pairs]
                again = True
                pause = patience.next_pause(not_now_error(passing))
            self._pause(pause)

    def _reset_after_fork(self) -> None:
        """Start anew in the child of a fork: a sleeping thread held a lock, and does not exist
        here.
        """
        self._closed = copy_event(self._closed)

    def _pause(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise Closed(f"{self._address}: the client was closed")

    def _push_until_failure(self, feed: PushStream, patience: RetryBudget) -> bool:
        """Push on; false if what is left is to be tried again."""
        before = feed.answered_count
        try:
            with self._pool.connection(extra=True) as connection:
                connection.stream(feed)
            error = feed.transient_error()
            if error is None:
                return True
        except Unavailable as lost:
            error = lost
        except Refused as refused:  # of the login
            raise feed.incomplete_error(refused) from refused
        if feed.answered_count > before:
            patience.reset()
        try:
            pause = patience.next_pause(error)
        except Unavailable as given_up:
            raise feed.incomplete_error(given_up) from given_up
        self._pause(pause)
        feed.resend_unanswered()
        return False

    def _end_lease(self, job: Job, call: Callable[[float], Call[T]]) -> T:
        until = self._lease_keeper.start_finish(job)
        try:
            outcome = self._run_call(call(until))
        except StaleLease:
            self._lease_keeper.finish(job)
            job.lose()
            raise
        except BaseException:
            self._lease_keeper.abort_finish(job)
            raise
        self._lease_keeper.finish(job)
        return outcome

    def _extend_leases(self, leases: Sequence[tuple[str, float]]) -> list[float | Refused]:
        """Try once; the lease keeper calls it again."""
        calls = [commands.extend(ref, seconds) for ref, seconds in leases]
        with self._pool.connection(extra=True) as connection:
            replies = connection.pipeline([call.words for call in calls])
        for reply in replies:
            if isinstance(reply, NotNow):
                raise not_now_error(reply)
        return [
            read_or_error(call, reply, False) for call, reply in zip(calls, replies, strict=True)
        ]

    def _iterate_pages(self, pages: Pages[T]) -> Iterator[T]:
        while (call := pages.next_call()) is not None:
            yield from pages.read_page(self._run_call(call))


_clients: Final[weakref.WeakSet[Client]] = weakref.WeakSet()


def _reset_clients_after_fork() -> None:
    for client in list(_clients):
        client._reset_after_fork()


os.register_at_fork(after_in_child=_reset_clients_after_fork)
