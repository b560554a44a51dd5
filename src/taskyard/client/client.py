"""The blocking client: push jobs, fetch them, finish them, read their results."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from taskyard.client import api, batching, commands
from taskyard.client.address import Address
from taskyard.client.api import ApiCalls, Pages
from taskyard.client.backoff import Backoff
from taskyard.client.client_admin import Administration
from taskyard.client.commands import Call, mark_lost_jobs, read_or_error
from taskyard.client.connection import copy_event
from taskyard.client.errors import Closed, NotNow, Refused, StaleLease, Unavailable
from taskyard.client.feeding import PushStream, iterate_payloads
from taskyard.client.keeper import LeaseKeeper
from taskyard.client.pool import ConnectionPool
from taskyard.client.pushing import (
    JobRef,
    NewJob,
    OnePushOptions,
    PushOptions,
    Seconds,
    new_job,
    to_seconds,
)
from taskyard.client.retrying import CallRetry, RetryBudget, not_now_error
from taskyard.client.settings import (
    DEFAULT_PATIENCE_S,
    DEFAULT_TIMEOUT_S,
    first_given,
    resolve_address,
)
from taskyard.client.source import Job
from taskyard.client.views import Outcome, Pushed
from taskyard.client.wire import Reply

T = TypeVar("T")


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
        self.holder = batching.new_holder()  # of what it claims
        hello = [batching.claim(consumer, self.holder) for consumer in claims]
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
        return self._run_call(batching.lease(consumer, number, limit, queues, ttr))

    def read_batch(self, consumer: str, number: int, start: int, count: int) -> list[Job]:
        """The jobs at places `start` to `start + count - 1` of a batch that is held, from 0 on,
        without those that were ended or given back one by one.
        """
        reading = batching.BatchReader(consumer, number, start, count)
        while (call := reading.next_call()) is not None:
            self._run_call(call)
        return reading.jobs

    def ack_batch(self, consumer: str, upto: int, holder: str | None = None) -> None:
        """The jobs of the batch have succeeded, and those of the batches before it. `holder`: on
        behalf of another client, which has claimed the consumer and is called so.
        """
        self._run_call(batching.ack_batch(consumer, upto, holder))

    def drop_consumer(self, consumer: str) -> None:
        """Drop a consumer; its jobs return to the queues, uncounted."""
        self._run_call(batching.drop(consumer))

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
