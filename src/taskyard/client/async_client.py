"""The asynchronous client: what Client does, for programs with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from taskyard.client import api, batching, commands
from taskyard.client.address import Address
from taskyard.client.api import ApiCalls, Pages
from taskyard.client.async_admin import AsyncAdministration
from taskyard.client.async_keeper import AsyncLeaseKeeper
from taskyard.client.backoff import Backoff
from taskyard.client.commands import Call, mark_lost_jobs, read_or_error
from taskyard.client.errors import (
    Closed,
    Incomplete,
    NotNow,
    Refused,
    StaleLease,
    Unavailable,
)
from taskyard.client.feeding import PushStream, iterate_payloads
from taskyard.client.links import AsyncConnectionPool
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

T = TypeVar("T")

_CHUNK_PAYLOADS: Final = 4096  # payloads of an asynchronous iterable that are pushed in one go


class AsyncClient(AsyncAdministration):
    """A server, for as many tasks as you like. All methods are those of Client.

    The commands of all tasks go over one connection without waiting for each other; what waits
    for a job or a result has a connection of its own. A fetch that is cancelled gives back what
    it was about to get.
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
    ) -> None:
        """As for Client. `connections`: how many of those that wait to keep for later;
        `on_lost` is called in the event loop.
        """
        self._address = resolve_address(url)
        self._tls = self._address.create_tls_context()
        self._timeout = first_given(timeout, self._address.timeout, DEFAULT_TIMEOUT_S)
        self._patience = first_given(patience, self._address.patience, DEFAULT_PATIENCE_S)
        self._backoff = backoff or Backoff()
        self._connections = connections
        self._heartbeats = heartbeats
        self._on_lost = on_lost
        self._closed = False
        self._pool: AsyncConnectionPool | None = None
        self._lease_keeper: AsyncLeaseKeeper | None = None
        super().__init__(ApiCalls(self._address.prefix))

    @property
    def address(self) -> Address:
        """Where the server is."""
        return self._address

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all connections and heartbeats; calls of other tasks raise Closed.

        Jobs that were not ended stay leased until the time of their lease is over.
        """
        self._closed = True
        if self._lease_keeper is not None:
            await self._lease_keeper.close()
        if self._pool is not None:
            await self._pool.close()

    async def ping(self) -> None:
        """Make sure that the server is there and lets this client in."""
        await self._run_call(commands.ping())

    # Pushing

    async def push(
        self, queue: str, payload: Any = b"", **options: Unpack[OnePushOptions]
    ) -> Pushed:
        """Put a job into a queue; when this returns, the job is safe.

        Bytes are sent as they are, everything else as JSON. The options are those of NewJob.
        """
        return await self._run_call(commands.push(new_job(queue, payload, **options)))

    async def push_many(
        self,
        queue: str,
        payloads: Iterable[Any] | AsyncIterable[Any],
        **options: Unpack[PushOptions],
    ) -> list[Pushed]:
        """Push any number of jobs, which share their options, at full speed.

        They are pushed one by one, not together: when the server refuses one of them, or stays
        away, Incomplete tells what became of each. `payloads` is read as the jobs are sent; what
        is asynchronous is read in portions.
        """
        shared = new_job(queue, **options)
        if not isinstance(payloads, AsyncIterable):
            return await self._push_payloads(shared, iterate_payloads(payloads))
        pushed: list[Pushed] = []
        async for portion in _chunked(payloads):
            try:
                pushed += await self._push_payloads(shared, portion)
            except Incomplete as error:
                error.outcomes[:0] = pushed
                raise
        return pushed

    async def push_all(self, jobs: Iterable[NewJob]) -> list[Pushed]:
        """Push up to 1,000 jobs, of any queues, together: all of them, or none.

        In `blocked_by` of a job, -1 stands for the job before it, -2 for the one before that.
        """
        wanted = list(jobs)
        return await self._run_call(commands.push_all(wanted)) if wanted else []

    # Taking

    async def fetch(
        self,
        *queues: str,
        count: int = 1,
        wait: Seconds = 0.0,
        ttr: Seconds | None = None,
        random: bool = False,
    ) -> list[Job]:
        """Lease up to `count` jobs (at most 1,000), the first queue's first; [] if there are none.

        `wait`: how long to wait for the first. `ttr`: how long the leases last; the jobs' own
        counts if that is shorter, the server's default if neither says. `random`: fetch from a
        queue picked at random among those that have some, instead of in their order.
        """
        jobs = await self._run_call(commands.fetch(queues, count, wait, ttr, random))
        if jobs and self._heartbeats:
            self._get_lease_keeper().add(jobs, None if ttr is None else to_seconds(ttr))
        return jobs

    async def ack(self, job: Job, result: Any = None) -> None:
        """The job has succeeded; bytes are kept as they are, another result as JSON."""
        await self._end_lease(job, lambda until: commands.ack(job, result, until))

    async def ack_many(self, jobs: Iterable[Job]) -> list[Job]:
        """The same for several, in one go; returns those whose lease was over."""
        ended = list(jobs)
        keeper = self._get_lease_keeper()
        calls = [commands.ack(job, None, keeper.start_finish(job)) for job in ended]
        try:
            outcomes = await self._run_calls(calls)
        except BaseException:
            for job in ended:
                keeper.abort_finish(job)
            raise
        for job in ended:
            keeper.finish(job)
        return mark_lost_jobs(ended, outcomes)

    async def nack(self, job: Job, error: Any = "", delay: Seconds | None = None) -> str:
        """The attempt has failed; says what the job is now: delayed, ready or failed.

        `delay`: how long until the next attempt, instead of the job's own back-off. (If a
        connection was lost meanwhile the answer may be "unknown".)
        """
        return await self._end_lease(job, lambda until: commands.nack(job, error, delay, until))

    async def fail(self, job: Job, error: Any = "") -> None:
        """The job has failed for good, and is not tried again; `error` is its result."""
        await self._end_lease(job, lambda until: commands.fail(job, error, until))

    async def give_back(self, job: Job) -> None:
        """The job was not worked on: it is ready again, in its old place."""
        await self._end_lease(job, lambda until: commands.give_back(job, until))

    async def extend(self, job: Job, seconds: Seconds) -> float:
        """Let the lease end so long from now; gives that time, in seconds since 1970.

        Only needed without heartbeats, or to choose how long it outlasts this process.
        """
        call = commands.extend(job.ref, seconds)
        keeper = self._get_lease_keeper()
        keeper.set_duration(job, to_seconds(seconds))
        try:
            deadline = await self._run_call(call)
        except StaleLease:
            keeper.finish(job)
            job.lose()
            raise
        keeper.on_duration_set(job, to_seconds(seconds), deadline)
        return deadline

    async def progress(self, job: Job, fraction: float, message: str = "") -> None:
        """Report how much of the job is done, from 0 to 1."""
        await self._run_call(commands.progress(job, fraction, message))

    # Batches

    async def lease_batch(
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
        return await self._run_call(batching.lease(consumer, number, limit, queues, ttr))

    async def read_batch(self, consumer: str, number: int, start: int, count: int) -> list[Job]:
        """The jobs at places `start` to `start + count - 1` of a batch that is held, from 0 on,
        without those that were ended or given back one by one.
        """
        reading = batching.BatchReader(consumer, number, start, count)
        while (call := reading.next_call()) is not None:
            await self._run_call(call)
        return reading.jobs

    async def ack_batch(self, consumer: str, upto: int, holder: str | None = None) -> None:
        """The jobs of the batch have succeeded, and those of the batches before it. `holder`: on
        behalf of a client that has claimed the consumer and is called so.
        """
        await self._run_call(batching.ack_batch(consumer, upto, holder))

    async def drop_consumer(self, consumer: str) -> None:
        """Drop a consumer; its jobs return to the queues, uncounted."""
        await self._run_call(batching.drop(consumer))

    # Results

    async def result(self, job: JobRef, wait: Seconds = 0.0) -> Outcome | None:
        """How a job has ended; None if it has not, after waiting for so long.

        JobNotFound if there is no such job, or the server has forgotten it: results are kept for
        the job's `ttl`, or for what its queue's settings say.
        """
        return await self._run_call(commands.result(job, wait))

    # The JSON API

    async def call_api(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the JSON API, with a path such as /api/v1/queues?limit=10; gives the answer decoded.

        `body`: bytes of JSON, or something to make JSON of.
        """
        return await self._run_call(api.call(method, path, body))

    # How it is done

    def _get_pool(self) -> AsyncConnectionPool:
        """Those of this event loop."""
        if self._closed:
            raise Closed(f"{self._address}: the client was closed")
        if self._pool is None or self._pool.loop is not asyncio.get_running_loop():
            self._pool = AsyncConnectionPool(
                self._address, self._timeout, self._connections, self._tls
            )
            self._lease_keeper = AsyncLeaseKeeper(self._extend_leases, self._on_lost)
        return self._pool

    def _get_lease_keeper(self) -> AsyncLeaseKeeper:
        self._get_pool()
        assert self._lease_keeper is not None
        return self._lease_keeper

    async def _run_call(self, call: Call[T]) -> T:
        tries = CallRetry(call, self._patience, self._backoff)
        while True:
            try:
                reply = await self._get_pool().exchange(tries.call)
            except Unavailable as error:
                pause = tries.pause_after_loss(error)
            else:
                put_off = tries.pause_after_reply(reply)
                if put_off is None:
                    return tries.read_reply(reply)
                pause = put_off
            await asyncio.sleep(pause)

    async def _run_calls(self, calls: Sequence[Call[T]]) -> list[T | Refused]:
        """Several commands that may be repeated, sent together; errors are returned."""
        patience = RetryBudget(self._patience, self._backoff)
        again = False
        while True:
            try:
                replies = await self._get_pool().exchange_all([call.words for call in calls])
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
            await asyncio.sleep(pause)

    async def _push_payloads(self, new: NewJob, payloads: Iterable[Any]) -> list[Pushed]:
        feed = PushStream(new, payloads)
        patience = RetryBudget(self._patience, self._backoff)
        while not await self._push_until_failure(feed, patience):
            pass
        return feed.result()

    async def _push_until_failure(self, feed: PushStream, patience: RetryBudget) -> bool:
        """Push on; false if what is left is to be tried again."""
        before = feed.answered_count
        try:
            async with self._get_pool().borrow_connection() as link:
                await link.stream(feed, self._timeout)
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
        await asyncio.sleep(pause)
        feed.resend_unanswered()
        return False

    async def _end_lease(self, job: Job, call: Callable[[float], Call[T]]) -> T:
        keeper = self._get_lease_keeper()
        until = keeper.start_finish(job)
        try:
            outcome = await self._run_call(call(until))
        except StaleLease:
            keeper.finish(job)
            job.lose()
            raise
        except BaseException:
            keeper.abort_finish(job)
            raise
        keeper.finish(job)
        return outcome

    async def _extend_leases(self, leases: Sequence[tuple[str, float]]) -> list[float | Refused]:
        """Try once; the lease keeper calls it again."""
        calls = [commands.extend(ref, seconds) for ref, seconds in leases]
        replies = await self._get_pool().exchange_all([call.words for call in calls])
        for reply in replies:
            if isinstance(reply, NotNow):
                raise not_now_error(reply)
        return [
            read_or_error(call, reply, False) for call, reply in zip(calls, replies, strict=True)
        ]

    async def _iterate_pages(self, pages: Pages[T]) -> AsyncIterator[T]:
        while (call := pages.next_call()) is not None:
            for item in pages.read_page(await self._run_call(call)):
                yield item


async def _chunked(payloads: AsyncIterable[Any]) -> AsyncIterator[list[Any]]:
    portion: list[Any] = []
    async for payload in payloads:
        portion.append(payload)
        if len(portion) == _CHUNK_PAYLOADS:
            yield portion
            portion = []
    if portion:
        yield portion
