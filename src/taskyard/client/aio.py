"""The asynchronous client: what Client does, for programs with an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack, cast

import hiredis

from taskyard.client import api, commands
from taskyard.client.api import ApiCalls, Pages
from taskyard.client.async_keeper import AsyncLeaseKeeper
from taskyard.client.commands import (
    INCOMPLETE,
    Call,
    Command,
    JobRef,
    NewJob,
    OnePushOptions,
    PushOptions,
    Reply,
    ScheduleOptions,
    Seconds,
    create_reader,
    enable_keepalive,
    encode_commands,
    login_commands,
    mark_lost_jobs,
    new_job,
    read_or_error,
    to_seconds,
    unavailable_error,
)
from taskyard.client.errors import (
    ClientError,
    Closed,
    Incomplete,
    NotNow,
    Refused,
    StaleLease,
    Unavailable,
)
from taskyard.client.feeding import PushStream, iterate_payloads
from taskyard.client.retry import Backoff, CallRetry, RetryBudget, not_now_error
from taskyard.client.source import Job
from taskyard.client.streaming import CommandStream
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


# What an asynchronous client can see and do beside pushing and taking: the JSON API, typed


class AsyncAdministration(ABC):
    """Part of AsyncClient. The lists are read as one walks through them."""

    def __init__(self, api: ApiCalls) -> None:
        self._api = api

    @abstractmethod
    async def _run_call(self, call: Call[T]) -> T: ...

    @abstractmethod
    def _iterate_pages(self, pages: Pages[T]) -> AsyncIterator[T]: ...

    # Jobs

    async def inspect(self, job: JobRef) -> JobInfo:
        """All that is known about a job, with payload, result and last error; JobNotFound."""
        return await self._run_call(self._api.inspect(job))

    def jobs(
        self, queue: str, state: str = "ready", limit: int | None = None
    ) -> AsyncIterator[JobInfo]:
        """The jobs of a queue that are in one state: blocked, delayed, ready, limited, leased,
        succeeded or failed.
        """
        return self._iterate_pages(self._api.jobs(queue, state, limit))

    def finished(self, limit: int | None = None) -> AsyncIterator[JobInfo]:
        """Jobs that ended a short while ago, the last one first."""
        return self._iterate_pages(self._api.finished(limit))

    def leases(self, queue: str | None = None, limit: int | None = None) -> AsyncIterator[HeldJob]:
        """The leases of a queue, or of all."""
        return self._iterate_pages(self._api.leases(queue, limit))

    async def cancel(self, job: JobRef) -> None:
        """Remove a job, in whatever state it is, and end its lease. Jobs that wait for it fail."""
        await self._run_call(self._api.cancel(job))

    async def retry(self, job: JobRef) -> JobInfo:
        """Make a delayed job ready now, or replay a dead letter."""
        return await self._run_call(self._api.retry(job))

    async def move(self, job: JobRef, queue: str, *, front: bool = False) -> JobInfo:
        """Put a job into another queue, at its end or its front, where it is ready."""
        return await self._run_call(self._api.move(job, queue, front))

    async def set_priority(self, job: JobRef, priority: int) -> JobInfo:
        """Put a ready job behind those that have this priority already."""
        return await self._run_call(self._api.set_priority(job, priority))

    # Queues

    async def queues(self) -> list[QueueInfo]:
        """All queues that one may see, by name."""
        return [one async for one in self._iterate_pages(self._api.queues())]

    async def queue(self, name: str) -> QueueInfo:
        """A queue: its jobs by state, settings, counters; QueueNotFound."""
        return await self._run_call(self._api.queue(name))

    async def configure(
        self, name: str, *, replace: bool = False, **settings: Unpack[SettingsOptions]
    ) -> QueueInfo:
        """Change settings of a queue, such as retries=3; see QueueSettings.

        With `replace` the queue is made if there is none, and settings that are not named get
        their defaults.
        """
        return await self._run_call(self._api.configure(name, settings, replace))

    async def pause(self, name: str) -> QueueInfo:
        """Deliver no more jobs of a queue."""
        return await self._run_call(self._api.pause(name))

    async def resume(self, name: str) -> QueueInfo:
        """Hand them out again."""
        return await self._run_call(self._api.resume(name))

    async def purge(self, name: str, *states: str) -> int:
        """Remove the jobs of a queue that are in these states, else those that wait (blocked,
        delayed, ready, limited); says how many.
        """
        wanted = states or ("blocked", "delayed", "ready", "limited")
        return (await self._run_call(self._api.purge(name, wanted)))["removed"]

    async def delete(self, name: str, *, purge: bool = False) -> int:
        """Delete a queue, with `purge` also if it has jobs; returns how many those were."""
        return (await self._run_call(self._api.delete(name, purge)))["removed"]

    # Dead letters

    def dead(
        self, queue: str, reason: str | None = None, limit: int | None = None
    ) -> AsyncIterator[DeadLetter]:
        """The jobs of a queue that have failed for good, the oldest first."""
        return self._iterate_pages(self._api.dead(queue, reason, limit))

    async def dead_groups(self, queue: str) -> DeadGroups:
        """The same by reason: how many, the last error, some ids."""
        return await self._run_call(self._api.dead_groups(queue))

    async def replay(
        self, queue: str, ids: Iterable[int] | None = None, reason: str | None = None
    ) -> Replayed:
        """Replay dead letters: those with these ids, else all, or all of a reason."""
        return await self._run_call(self._api.replay(queue, ids, reason))

    async def purge_dead(
        self, queue: str, ids: Iterable[int] | None = None, reason: str | None = None
    ) -> int:
        """Remove dead letters: those with these ids, else all, or all of a reason; says how
        many. Ids that are not among them are passed over.
        """
        return (await self._run_call(self._api.purge_dead(queue, ids, reason))).removed

    # Schedules

    async def schedules(self) -> list[ScheduleInfo]:
        """All schedules that one may see, by name."""
        return [one async for one in self._iterate_pages(self._api.schedules())]

    async def schedule(self, name: str) -> ScheduleInfo:
        """One of them."""
        return await self._run_call(self._api.schedule(name))

    async def set_schedule(
        self, name: str, queue: str, **options: Unpack[ScheduleOptions]
    ) -> ScheduleInfo:
        """Have a job pushed to a queue again and again; replaces a schedule of the same name."""
        return await self._run_call(self._api.set_schedule(name, queue, options))

    async def pause_schedule(self, name: str) -> ScheduleInfo:
        """Let it push nothing for now."""
        return await self._run_call(self._api.pause_schedule(name, True))

    async def resume_schedule(self, name: str) -> ScheduleInfo:
        """Let it push again."""
        return await self._run_call(self._api.pause_schedule(name, False))

    async def run_schedule(self, name: str) -> Pushed:
        """Push one job of it now."""
        return await self._run_call(self._api.run_schedule(name))

    async def delete_schedule(self, name: str) -> None:
        """Forget it; jobs that it has pushed stay."""
        await self._run_call(self._api.delete_schedule(name))

    # The pipeline

    async def consumers(self) -> list[ConsumerInfo]:
        """All consumers of batches that one may see, by name."""
        return [one async for one in self._iterate_pages(self._api.consumers())]

    async def readers(self) -> list[ReaderInfo]:
        """All readers of the journal, by name."""
        return [one async for one in self._iterate_pages(self._api.readers())]

    # The server

    async def server(self) -> ServerInfo:
        """Version, uptime, durability, journal and so on."""
        return await self._run_call(self._api.server())


# One connection of an asynchronous client: commands of many tasks, each answered in its turn

_FLUSH_BYTES: Final = 1 << 16  # bytes that are sent at once, before the next turn of the loop


class AsyncConnection(asyncio.Protocol):
    """Made by `connect`. Commands of one turn of the loop are sent together. Time limits are always
    seconds.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = create_reader()
        self._pending_replies: deque[asyncio.Future[Reply]] = deque()
        self._command_stream: CommandStream | None = None
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._progressed = asyncio.Event()  # replies arrived, or it can write again, or it is lost
        self._can_write = True
        self._disconnected = asyncio.Event()  # the transport has nothing more to do
        self.connection_error: Unavailable | None = None
        self._stream_error: ClientError | None = None  # a reply that the stream cannot handle

    @classmethod
    async def connect(
        cls, address: Address, seconds: float, tls: ssl.SSLContext | None
    ) -> AsyncConnection:
        """Unavailable, or Refused by the login."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                _, link = await loop.create_connection(
                    lambda: cls(address),
                    address.host,
                    address.port,
                    ssl=tls,
                    server_hostname=address.host if tls is not None else None,
                )
        except OSError as error:  # a TimeoutError is one
            raise unavailable_error(address, error, sent=False) from error
        try:
            await link._set_up(seconds)
        except BaseException:
            link.close()
            raise
        return link

    async def _set_up(self, seconds: float) -> None:
        commands = login_commands(self._address)
        for reply in await self.exchange(commands, seconds) if commands else []:
            if isinstance(reply, Refused):
                raise reply

    # Commands

    async def exchange(self, commands: Sequence[Command], seconds: float) -> list[Reply]:
        """Return the replies, errors among them; Unavailable. After a timeout the connection is of
        no use.
        """
        futures = self.send_commands(commands)
        try:
            async with asyncio.timeout(seconds):
                return [await future for future in futures]
        except TimeoutError as error:
            raise self.close_after_timeout(error) from error

    def close_after_timeout(self, error: TimeoutError) -> Unavailable:
        """Close, because nothing that arrives now is waited for any more."""
        late = unavailable_error(self._address, error, sent=True)
        self.close(late)
        return late

    def send_commands(self, commands: Sequence[Command]) -> list[asyncio.Future[Reply]]:
        if self.connection_error is not None:
            error = unavailable_error(
                self._address, ConnectionError(str(self.connection_error)), sent=False
            )
            raise error from self.connection_error
        futures = [self._loop.create_future() for _ in commands]
        self._pending_replies += futures
        self._write(encode_commands(commands))
        return futures

    async def stream(self, feed: CommandStream, seconds: float) -> None:
        """Send the commands of the stream, and pass it the replies, until it is done.

        For a connection that nothing else uses.
        """
        self._command_stream = feed
        try:
            while not feed.done:
                if self.connection_error is not None:
                    raise self._stream_error or self.connection_error
                data = feed.next_commands() if self._can_write else b""
                if data:
                    self._write(data)
                    self._flush()
                    await asyncio.sleep(0)
                elif not feed.done:
                    await self._wait_for_progress(seconds)
            if self._stream_error is not None:
                raise self._stream_error
        except BaseException:
            self.close()
            raise
        finally:
            self._command_stream = None

    async def _wait_for_progress(self, seconds: float) -> None:
        self._progressed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._progressed.wait()
        except TimeoutError as error:
            raise unavailable_error(self._address, error, sent=True) from error

    def send_eof(self) -> bool:
        """Have the server answer what waits, and then close; false if that cannot be said."""
        transport = self._transport
        if transport is None or not transport.can_write_eof():
            return False
        self._flush()
        transport.write_eof()
        return True

    def close(self, reason: Unavailable | None = None) -> None:
        """Close; every waiter for a reply gets the reason."""
        transport = self._transport
        self._fail_pending(
            reason
            or unavailable_error(
                self._address, ConnectionError("it was closed"), sent=True, closed=True
            )
        )
        if transport is not None:
            transport.abort()

    async def wait_closed(self) -> None:
        """After `close`: until the event loop can be closed too."""
        await self._disconnected.wait()

    # Writing

    def _write(self, data: bytes) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes >= _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._unsent and self._transport is not None:
            data = b"".join(self._unsent)
            self._unsent.clear()
            self._unsent_bytes = 0
            self._transport.write(data)

    # Events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it
        enable_keepalive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            self._dispatch_replies()
        except hiredis.ProtocolError as error:
            self.close(unavailable_error(self._address, error, sent=True))
        except ClientError as error:
            self._stream_error = error
            self.close(unavailable_error(self._address, error, sent=True))

    def _dispatch_replies(self) -> None:
        gets = self._reader.gets
        if self._command_stream is not None:
            replies: list[Reply] = []
            while (reply := gets()) is not INCOMPLETE:
                replies.append(reply)
            self._command_stream.on_replies(replies)
            self._progressed.set()
            return
        asked = self._pending_replies
        while asked and (reply := gets()) is not INCOMPLETE:
            future = asked.popleft()
            if not future.done():  # the caller may have been cancelled
                future.set_result(reply)

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        self._progressed.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._disconnected.set()
        reason = error or ConnectionError("it closed the connection")
        self._fail_pending(unavailable_error(self._address, reason, sent=True))

    def _fail_pending(self, reason: Unavailable) -> None:
        if self.connection_error is None:
            self.connection_error = reason
        self._transport = None
        self._unsent.clear()
        self._progressed.set()
        while self._pending_replies:
            future = self._pending_replies.popleft()
            if not future.done():
                future.set_exception(self.connection_error)
                future.exception()  # it need not be waited for


# The connections of an asynchronous client, in one event loop

_RELEASE_TIMEOUT_S: Final = 2.0  # seconds
_CLOSE_TIMEOUT_S: Final = 1.0


class AsyncConnectionPool:
    def __init__(
        self, address: Address, timeout: float, max_idle: int, tls: ssl.SSLContext | None
    ) -> None:
        """`most`: how many to keep of those that wait."""
        self.loop = asyncio.get_running_loop()
        self._address = address
        self._timeout = timeout
        self._max_idle = max_idle
        self._tls = tls
        self._open_lock = asyncio.Lock()
        self._shared_connection: AsyncConnection | None = None
        self._open_error: ClientError | None = None  # of the last try to open that one
        self._idle: list[AsyncConnection] = []
        self._busy: set[AsyncConnection] = set()
        self._release_tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def exchange(self, call: Call[Any]) -> Reply:
        """The reply to one command, which may be an error; Unavailable."""
        if call.wait or call.own_connection:
            async with self.borrow_connection() as link:
                return await self._exchange_on(link, call)
        return await self._exchange_on(await self._get_shared_connection(), call)

    async def _exchange_on(self, link: AsyncConnection, call: Call[Any]) -> Reply:
        [future] = link.send_commands([call.words])
        try:
            async with asyncio.timeout(self._timeout + call.wait):
                return await (asyncio.shield(future) if call.leases_jobs else future)
        except TimeoutError as error:
            raise link.close_after_timeout(error) from error
        except asyncio.CancelledError:
            if call.leases_jobs and (link is self._shared_connection or link.send_eof()):
                self._busy.discard(link)  # it ends by itself
                self._spawn_release(self._release_cancelled_fetch(link, call, future))
            raise

    async def exchange_all(self, words: Sequence[Command]) -> list[Reply]:
        return await (await self._get_shared_connection()).exchange(words, self._timeout)

    @contextlib.asynccontextmanager
    async def borrow_connection(self) -> AsyncIterator[AsyncConnection]:
        """Borrow a connection for this task alone. It is kept for others, unless something went
        wrong.
        """
        link = self._pop_idle()
        if link is None:
            link = await self._connect()
        self._busy.add(link)
        good = False
        try:
            yield link
            good = True
        finally:
            if link in self._busy:
                self._busy.remove(link)
                if (
                    good
                    and link.connection_error is None
                    and len(self._idle) < self._max_idle
                    and not self._closed
                ):
                    self._idle.append(link)
                else:
                    link.close()

    async def close(self) -> None:
        self._closed = True
        if self._release_tasks:
            await asyncio.wait(self._release_tasks)
        links = [
            *self._idle,
            *self._busy,
            *([self._shared_connection] if self._shared_connection else []),
        ]
        for link in links:
            link.close()
        self._idle.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                for link in links:
                    await link.wait_closed()

    def _pop_idle(self) -> AsyncConnection | None:
        while self._idle:
            link = self._idle.pop()
            if link.connection_error is None:
                return link
        return None

    async def _get_shared_connection(self) -> AsyncConnection:
        main = self._shared_connection
        if main is not None and main.connection_error is None and not self._closed:
            return main
        others = self._open_lock.locked()
        async with self._open_lock:
            if (
                self._shared_connection is None
                or self._shared_connection.connection_error is not None
            ):
                if others and self._open_error is not None:
                    raise self._open_error  # for all that waited for it
                self._shared_connection = await self._open_shared_connection()
            return self._shared_connection

    async def _open_shared_connection(self) -> AsyncConnection:
        self._open_error = None
        try:
            return await self._connect()
        except ClientError as error:
            self._open_error = error
            raise

    async def _connect(self) -> AsyncConnection:
        self._check_open()
        link = await AsyncConnection.connect(self._address, self._timeout, self._tls)
        try:
            self._check_open()  # still
        except Closed:
            link.close()
            raise
        return link

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"{self._address}: the client was closed")

    def _spawn_release(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._release_tasks.add(task)
        task.add_done_callback(self._release_tasks.discard)

    async def _release_cancelled_fetch(
        self, link: AsyncConnection, call: Call[Any], future: asyncio.Future[Reply]
    ) -> None:
        """Release the jobs of a fetch that was cancelled: they may be leased already."""
        await self._release_jobs(call, future)
        if link is not self._shared_connection:
            link.close()
            await link.wait_closed()

    async def _release_jobs(self, call: Call[Any], future: asyncio.Future[Reply]) -> None:
        with contextlib.suppress(ClientError, TimeoutError):
            async with asyncio.timeout(_RELEASE_TIMEOUT_S):
                jobs = call.read_reply(await future, False)
                # The last one first, so that they have their old order then.
                words = [commands.give_back(job, 0.0).words for job in reversed(jobs)]
                if words:
                    await self.exchange_all(words)


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
        return await self._run_call(commands.lease(consumer, number, limit, queues, ttr))

    async def read_batch(self, consumer: str, number: int, start: int, count: int) -> list[Job]:
        """The jobs at places `start` to `start + count - 1` of a batch that is held, from 0 on,
        without those that were ended or given back one by one.
        """
        reading = commands.BatchReader(consumer, number, start, count)
        while (call := reading.next_call()) is not None:
            await self._run_call(call)
        return reading.jobs

    async def ack_batch(self, consumer: str, upto: int, holder: str | None = None) -> None:
        """The jobs of the batch have succeeded, and those of the batches before it. `holder`: on
        behalf of a client that has claimed the consumer and is called so.
        """
        await self._run_call(commands.ack_batch(consumer, upto, holder))

    async def drop_consumer(self, consumer: str) -> None:
        """Drop a consumer; its jobs return to the queues, uncounted."""
        await self._run_call(commands.drop(consumer))

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
