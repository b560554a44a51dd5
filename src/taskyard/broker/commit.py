"""The broker: turns of the engine, group commit, and what follows from both.

A turn handles what has arrived on one connection, or the timers that are due. The records of all
turns of one round of the event loop are written and synced together; then every reply that waited
for them is released, with one write per connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.broker.feed import EventFeed
from taskyard.broker.interfaces import Cancellable, Clock, Scheduler
from taskyard.broker.metrics import Metrics, SlowCommandLog
from taskyard.broker.offloop import BackgroundRead, CachedRead, ThreadSync
from taskyard.broker.replies import DurabilityWaiters, ReplyQueue
from taskyard.broker.turns import ClientConnection, RateLimiter, TurnQueue
from taskyard.broker.upkeep import CompactionScheduler, DiskSpaceMonitor, JournalRetention
from taskyard.engine.model.events import (
    JobAssigned,
    JobEvent,
    LifecycleNotice,
    PayloadNeeded,
    WaitTimedOut,
)
from taskyard.engine.model.job import FOREVER, GONE, Job
from taskyard.engine.operations.facade import Engine
from taskyard.journal.cache import DiskRead, ReadRequest
from taskyard.journal.compaction import Compactor
from taskyard.journal.flush import SyncPoint
from taskyard.journal.retention import RetentionLimits
from taskyard.journal.writer import Journal

# Delays a commit briefly so that clients answered by the previous one can join it

_MIN_FLUSH_TO_DELAY_US: Final = 1_000  # microseconds of a flush, beyond which it pays to wait
# Of four parts of a flush, how many are waited for at most. Two crowds wait for two flushes, one
# waits for one and until all are back: if that takes as long as a flush, it brings nothing.
_MAX_DELAY_QUARTERS: Final = 3
_MAX_DELAY_US: Final = 10_000  # microseconds: how soon clients are back does not depend on the disk
# flushes without a delay, once most clients did not return in time
_FLUSHES_WITHOUT_DELAY: Final = 32


class CommitDelay:
    def __init__(self, scheduler: Scheduler, start_commit: Callable[[], None]) -> None:
        self.max_delay_us: i64 = 0  # most microseconds of a delay; 0: the disk is quick
        self.is_active = False  # a commit is being delayed
        self.was_active = False  # or was, since the last flush
        self._scheduler = scheduler
        # clients that are back have waited long enough, or no other will return
        self._start_commit = start_commit
        self._last_flush_us: i64 = 0  # by the last flush
        self._flush_ended_at: i64 = 0  # when it was over
        self._missing: i64 = 0  # how many are not back
        self._expected: i64 = 0  # of how many
        self._skip_flushes: i64 = 0  # flushes without a delay
        self._timer_handle: Cancellable | None = None

    def on_flush_done(self, duration_us: i64, now: i64) -> None:
        """Record that a flush has ended after `duration_us`; its replies are about to be released.

        One slow flush is an exception: the disk counts as slow only after two in a row.
        """
        shorter = min(duration_us, self._last_flush_us)
        self._last_flush_us = duration_us
        self._flush_ended_at = now
        self.max_delay_us = 0
        if shorter > _MIN_FLUSH_TO_DELAY_US:
            self.max_delay_us = min(shorter * _MAX_DELAY_QUARTERS // 4, i64(_MAX_DELAY_US))
        self.was_active = False

    def on_replies_sent(self, queues: list[ReplyQueue]) -> None:
        """Start to wait for the clients whose replies were released."""
        if not self.max_delay_us:
            return
        if self._skip_flushes > 0:
            self._skip_flushes -= 1
            return
        awaited: i64 = 0
        for outbox in queues:
            if not outbox.awaits_commit and not outbox.is_detached():
                outbox.replied_at = self._flush_ended_at
                if outbox.returns_quickly:
                    awaited += 1
        self._missing = awaited
        self._expected = awaited
        if awaited:
            self.is_active = True
            self.was_active = True
            self._timer_handle = self._scheduler.call_after_us(self.max_delay_us, self._on_timeout)

    def on_client_back(self, replies: ReplyQueue, now: i64) -> bool:
        """Record that this client has a reply for the next commit. Return whether that commit may
        start.
        """
        since = replies.replied_at
        if since:
            self._stop_expecting(replies)
            replies.returns_quickly = now - since <= self.max_delay_us
        return not self.is_active or self._missing <= 0

    def on_client_gone(self, replies: ReplyQueue) -> None:
        """Stop waiting for this client: its connection is closed."""
        if replies.replied_at:
            self._stop_expecting(replies)
            if self.is_active and self._missing <= 0:
                self.cancel()
                self._start_commit()

    def _stop_expecting(self, replies: ReplyQueue) -> None:
        if replies.returns_quickly and replies.replied_at == self._flush_ended_at:
            self._missing -= 1
        replies.replied_at = 0

    def cancel(self) -> None:
        """Stop the delay: the next flush starts."""
        self.is_active = False
        if self._timer_handle is not None:
            self._timer_handle.cancel()
            self._timer_handle = None

    def _on_timeout(self) -> None:
        if self._missing * 2 > self._expected:
            self._skip_flushes = _FLUSHES_WITHOUT_DELAY
        self.cancel()
        self._start_commit()


# Decides where a flush runs: on the event loop, or in the flush thread

# clients with waiting replies, beyond which there is always one to serve
_MANY_WAITERS: Final = 200
# bytes whose flush is not as quick as it was measured with a few
_LARGE_FLUSH_BYTES: Final = 262_144
# Microseconds after which a flush was slow, and how many after it are left to the thread: a disk
# that is busy with others may take a hundred times as long, several times in a row. More than a
# millisecond is nothing special: with 50 clients on the same cores one in 30 to 2,000 takes that.
_SLOW_FLUSH_US: Final = 2_000
_FLUSHES_TO_DISTRUST: Final = 20


class SyncPlacement:
    def __init__(self, turn_queue: TurnQueue, is_disk_fast: bool, has_thread: bool) -> None:
        self._turn_queue = turn_queue
        # the disk, as measured at the start; or the user wants it so
        self.is_disk_fast = is_disk_fast
        self._has_thread = has_thread  # one of its own, and the user leaves the choice to us
        self._recent_waiters: i64 = 0  # how many waited, in the last few commits
        self._distrust_flushes: i64 = 0  # flushes for which the disk is not trusted to be quick

    def should_sync_inline(self, waiting: i64, size: i64) -> bool:
        """Whether to flush on the loop, for a commit of `size` bytes that `waiting` clients wait
        for.
        """
        if not self.is_disk_fast or not self._has_thread:
            return self.is_disk_fast
        self.record_waiters(waiting)
        if self._distrust_flushes > 0:
            self._distrust_flushes -= 1
            return False
        return (
            not self.has_many_waiters()
            and size <= _LARGE_FLUSH_BYTES
            and not self._turn_queue.has_waiting()
        )

    def has_many_waiters(self) -> bool:
        return self._recent_waiters > _MANY_WAITERS

    def record_waiters(self, waiting: i64) -> None:
        """Record how many clients wait. One commit alone does not tell: the first replies of many
        clients bring the next commands of a few.
        """
        self._recent_waiters = max(waiting, self._recent_waiters - 1)

    def record_duration(self, duration_us: i64) -> None:
        """Record how long a flush on the loop took. One in the thread ends when the loop notices,
        which says nothing about the disk.
        """
        if duration_us > _SLOW_FLUSH_US:
            self._distrust_flushes = _FLUSHES_TO_DISTRUST


SYNC: Final = "sync"
WRITE: Final = "write"
MEMORY: Final = "memory"

# bytes of records after which a commit does not wait for the round
_FULL_BUFFER_BYTES: Final = 4 * 1_048_576
# and beyond which connections with pending replies must wait
_BACKLOG_BYTES: Final = 4 * _FULL_BUFFER_BYTES
_MAX_COLLECT_ROUNDS: Final = 4  # most rounds of the loop that a commit waits for more commands
# microseconds that records without a waiting reply may stay unwritten
_IDLE_COMMIT_US: Final = 5_000
_BACKGROUND_SYNC_US: Final = 1_000_000  # and unsynced, where replies do not wait for the disk
_PAGES_PER_GROWTH_CALL: Final = 256  # pages of the job index between two calls of on_growth


class Broker:
    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        clock: Clock,
        scheduler: Scheduler,
        durability: str = SYNC,
        inline_sync: bool = True,
        compaction_percent: i64 = 200,
        limits: RetentionLimits | None = None,
        has_flush_thread: bool = False,
    ) -> None:
        self.engine = engine
        self.journal = journal
        self.clock = clock
        self.reply_position: i64 = FOREVER if durability == MEMORY else journal.durable
        self.failure = ""  # why the journal cannot be written
        self.commits: i64 = 0
        self.metrics = Metrics()
        self.feed = EventFeed(journal, scheduler)
        self._scheduler = scheduler
        self.durability = durability
        self._connections: dict[int, ClientConnection] = {}  # by owner
        self.slow_commands = SlowCommandLog()
        self.turn_queue = TurnQueue(clock, scheduler, self.slow_commands)
        self._sync_placement = SyncPlacement(self.turn_queue, inline_sync, has_flush_thread)
        self.rate_limiter = RateLimiter(clock, scheduler)
        self.pending_reply_bytes: i64 = 0  # bytes of replies that wait for a commit
        # beyond it, connections with pending replies must wait
        self.pending_reply_limit: i64 = FOREVER
        self.on_memory_used: Callable[[i64], None] | None = None  # see report_memory_use
        self._awaiting_commit: list[ReplyQueue] = []
        self.written_waiters = DurabilityWaiters()
        self.synced_waiters = DurabilityWaiters()
        self._commit_scheduled = False
        self._turn_count: i64 = 0
        self._turns_at_last_collect: i64 = 0
        # rounds of the loop that this commit has waited for more commands
        self._collect_rounds: i64 = 0
        self._idle_commit_scheduled = False
        self._syncing = False
        self._commit_delay = CommitDelay(scheduler, self._schedule_commit_if_needed)
        self.flush_started_at: i64 = 0
        self.flush_ended_at: i64 = 0
        self.disk_free_at: i64 = 0  # when the one before it had ended
        self._background_sync_timer: Cancellable | None = None
        self._timer_handle: Cancellable | None = None
        self._timer_due_at: i64 = 0
        self._on_failure: list[Callable[[str], None]] = []
        self._on_growth: list[Callable[[], None]] = []
        self._reported_pages: i64 = 0
        engine.journal_space = journal.space
        engine.read_payload_if_cached = self.cached_payload
        self.disk_space = DiskSpaceMonitor(self, scheduler)
        self.retention = JournalRetention(
            self, limits if limits is not None else RetentionLimits(), scheduler
        )
        self.compaction_scheduler = CompactionScheduler(
            self, Compactor(engine, journal, compaction_percent), scheduler
        )

    # Connections

    def register(self, connection: ClientConnection) -> None:
        self._connections[connection.owner] = connection

    def unregister(self, connection: ClientConnection) -> None:
        if (
            self._connections.get(connection.owner) is connection
        ):  # else another connection has taken over its owner number
            del self._connections[connection.owner]

    def connections(self) -> list[ClientConnection]:
        return list(self._connections.values())

    def await_commit(self, replies: ReplyQueue) -> None:
        """Release this connection's replies after the next commit."""
        if self.failure:
            replies.abort()  # there will be none
            return
        self._awaiting_commit.append(replies)
        if not self._commit_delay.max_delay_us or self._commit_delay.on_client_back(
            replies, self.turn_queue.now
        ):
            self.schedule_commit()

    def schedule_commit(self) -> None:
        """Schedule a commit: a client waits for what has been done so far."""
        if not self._commit_scheduled:
            self._commit_scheduled = True
            self.turn_queue.commit_scheduled = True
            self._turns_at_last_collect = self._turn_count
            self._collect_rounds = 0
            self._scheduler.call_soon(self._collect_group)

    # Turns

    def begin_turn(self) -> i64:
        """Start a turn. Timers that are due run before the command."""
        self._turn_count += 1
        line = self.turn_queue
        if line.clock_is_current:
            line.clock_is_current = False
        else:
            line.now = self.clock.now()
        now = line.now
        first = self.engine.state.first_timer()
        if first is not None and first.deadline <= now:
            self.engine.tick(now)
            if self.engine.effects:  # the connections that get them may change what is requested
                self._deliver_effects()
        return now

    def end_turn(self) -> None:
        """Finish a turn: deliver the effects, schedule the commit and the timers."""
        engine = self.engine
        if engine.effects:
            self._deliver_effects()
        if engine.records.size() > _FULL_BUFFER_BYTES:
            self._commit()
        elif (
            engine.records.count and not self._commit_scheduled and not self._idle_commit_scheduled
        ):
            # The timer fires even if all is written by then: cheaper than to cancel it each time.
            self._idle_commit_scheduled = True
            self._scheduler.call_at(self.clock.now() + _IDLE_COMMIT_US, self._commit_idle)
        if engine.journal_space.postponed_work:
            self.disk_space.retry_later()
        self._schedule_timers()

    def is_backlogged(self) -> bool:
        """Whether more has arrived than the disk, or the memory, can take at the moment."""
        return (
            self.engine.records.size() > _BACKLOG_BYTES
            or self.pending_reply_bytes > self.pending_reply_limit
        )

    def report_memory_use(self, size: i64) -> None:
        """Count bytes that a client holds beyond what it has sent."""
        if self.on_memory_used is not None:
            self.on_memory_used(size)

    def cached_payload(self, job: Job) -> bytes | None:
        """Return the job's payload, or None if it must be read from disk first."""
        size = job.payload_size
        if not size:
            return b""
        payload = self.journal.read_blob(job.payload_at, size)
        if self.journal.disk_reads.queued:  # what follows it will be needed soon
            self._start_reads()
        return payload

    def read_from_disk(self, at: i64, size: i64, then: Callable[[bytes | None], None]) -> None:
        """Read bytes from disk off the loop, and pass them to `then` in a turn of its own.

        `then` gets None if the disk could not be read.
        """
        load = self.journal.disk_reads.request_read(at, size, then)
        if load.is_done:
            self._scheduler.call_soon(CachedRead(self, load).complete)
        self._start_reads()

    def _start_reads(self) -> None:
        while True:
            read = self.journal.disk_reads.next_read()
            if read is None:
                return
            BackgroundRead(self, read).start(self._scheduler)

    def on_read_done(self, read: DiskRead) -> None:
        loads = self.journal.disk_reads.on_read_done(read)
        self._start_reads()
        for load in loads:
            self.complete_read(load)

    def complete_read(self, load: ReadRequest) -> None:
        self.begin_turn()
        load.on_done(load.data)
        self.end_turn()

    def delivery_position(self, job: Job) -> i64:
        """Return the position that must be durable before the job may be delivered."""
        if job.policy.max_attempts == 1:
            return self.engine.records.end_position()  # its one attempt must not be forgotten
        if self.engine.visible_position > self.journal.durable:
            return self.engine.records.end_position()
        end = job.payload_at + job.payload_size  # of the record as well
        return 0 if end <= self.journal.durable else self.engine.records.end_position()

    # Commit

    def on_failure(self, call: Callable[[str], None]) -> None:
        self._on_failure.append(call)

    def flush_journal(self) -> None:
        """Write and sync everything now, on this thread: for start and stop."""
        if self.failure:
            return
        try:
            self.feed.capture()
            self.journal.write()
            point = self.journal.sync_point()
            point.run()
            self.journal.on_synced(point)
        except OSError as error:
            self.fail(error)
            return
        self._publish_durable()

    def _collect_group(self) -> None:
        """Commit, unless more commands have arrived in this round of the loop or wait for their
        turn: then they join this commit.

        A sync costs as much as about ten commands, so one more round pays off.
        """
        more = self._turn_count != self._turns_at_last_collect or self.turn_queue.has_waiting()
        if more and self._collect_rounds < _MAX_COLLECT_ROUNDS:
            self._turns_at_last_collect = self._turn_count
            self._collect_rounds += 1
            self._scheduler.call_soon(self._collect_group)
        elif self._commit_scheduled:
            self._commit()

    def _commit_idle(self) -> None:
        self._idle_commit_scheduled = False
        if (
            self.engine.records.count
            and not self._commit_scheduled
            and not self._commit_delay.is_active
        ):
            self._commit()

    def _commit(self) -> None:
        self._commit_scheduled = False
        self.turn_queue.commit_scheduled = False
        if self.failure or (self._syncing and self.durability == SYNC):
            self.turn_queue.finish_timing_if_idle()
            return  # what was added meanwhile joins the next one
        if self._commit_delay.is_active:
            self._commit_delay.cancel()
        self.commits += 1
        self._start_flush_timing()
        self.turn_queue.finish_timing(self.flush_started_at)
        try:
            self.feed.capture()
            self.journal.write()
            self.disk_space.check()
            if self.durability != SYNC:
                self._schedule_background_sync()
            elif self._sync_placement.should_sync_inline(
                len(self._awaiting_commit), self._unsynced_bytes()
            ):
                self._sync_inline()
            else:
                self._sync_in_thread()
                self.written_waiters.release_up_to(self.journal.written)
                return
        except OSError as error:
            self.fail(error)
            return
        self._record_flush()
        self._publish_durable()

    def _start_flush_timing(self) -> None:
        self.flush_started_at = self.clock.now()
        # To wait for others is to wait for the disk.
        self.disk_free_at = (
            self.flush_started_at if self._commit_delay.was_active else self.flush_ended_at
        )

    def _record_flush(self) -> None:
        self.flush_ended_at = self.clock.now()
        self.metrics.flush_durations.add(self.flush_ended_at - self.flush_started_at)

    def _unsynced_bytes(self) -> i64:
        return self.journal.written - self.journal.durable

    def _sync_inline(self) -> None:
        point = self.journal.sync_point()
        began: i64 = self.clock.now()
        point.run()
        self._sync_placement.record_duration(self.clock.now() - began)
        self.journal.on_synced(point)

    def _sync_in_thread(self) -> None:
        if self.journal.durable >= self.journal.written:
            self._publish_durable()
            return
        self._syncing = True
        point = self.journal.sync_point()
        ThreadSync(self, point).start(self._scheduler)

    def on_sync_done(self, point: SyncPoint, error: BaseException | None, duration_us: i64) -> None:
        self._syncing = False
        if error is not None:
            self.fail(error)
            return
        self.journal.on_synced(point)
        self._record_flush()
        self._sync_placement.record_waiters(len(self._awaiting_commit))
        if not self._sync_placement.is_disk_fast:  # else this one was an exception
            self._commit_delay.on_flush_done(duration_us, self.flush_ended_at)
        waited = self._awaiting_commit
        self._publish_durable()
        if self._syncing:  # so much has arrived that it was committed already
            return
        if not self.turn_queue.has_waiting():  # else there is enough to do beside a flush
            self._commit_delay.on_replies_sent(waited)
        if self._commit_delay.is_active:
            self._commit_scheduled = False
            self.turn_queue.commit_scheduled = False
        elif self._sync_placement.has_many_waiters():  # clients of the next rounds join it
            self._schedule_commit_if_needed()
        elif self._needs_commit():
            self._commit()

    def _needs_commit(self) -> bool:
        return (
            self.engine.records.count > 0
            or bool(self._awaiting_commit)
            or self.synced_waiters.has_waiting()
        )

    def _schedule_commit_if_needed(self) -> None:
        if self._needs_commit():
            self.schedule_commit()

    def on_client_gone(self, replies: ReplyQueue) -> None:
        """Stop expecting this client to return."""
        self._commit_delay.on_client_gone(replies)

    def _schedule_background_sync(self) -> None:
        if self._background_sync_timer is None:
            when = self.clock.now() + _BACKGROUND_SYNC_US
            self._background_sync_timer = self._scheduler.call_at(when, self._sync_in_background)

    def _sync_in_background(self) -> None:
        self._background_sync_timer = None
        if not self._syncing and not self.failure:
            self._start_flush_timing()
            self._sync_in_thread()

    def _publish_durable(self) -> None:
        durability = self.durability
        if durability == SYNC:
            self.reply_position = self.journal.durable
        elif durability == WRITE:
            self.reply_position = self.journal.written
        self.written_waiters.release_up_to(self.journal.written)
        self._release_replies(self.reply_position)
        self.feed.on_durable()
        self.synced_waiters.release_up_to(self.journal.durable)
        self.retention.apply()
        self.compaction_scheduler.on_commit()
        made = self.engine.state.jobs.pages_created
        if made - self._reported_pages >= _PAGES_PER_GROWTH_CALL:
            self._reported_pages = made
            for call in self._on_growth:
                call()

    def on_growth(self, call: Callable[[], None]) -> None:
        """Call back after a commit whenever many jobs have been added."""
        self._on_growth.append(call)

    def _release_replies(self, position: i64) -> None:
        holding = self._awaiting_commit
        self._awaiting_commit = []
        for outbox in holding:
            outbox.awaits_commit = False
            outbox.release_up_to(position)
            if outbox.has_waiting() and not outbox.awaits_commit:
                outbox.awaits_commit = True
                self.await_commit(outbox)

    def fail(self, error: BaseException) -> None:
        """Stop accepting changes: the journal cannot be written. Abort the connections whose
        replies wait for it.
        """
        if self.failure:
            return
        self.failure = f"the journal cannot be written: {error}"
        self.engine.read_only_reason = self.failure
        self.reply_position = FOREVER  # replies from now on promise nothing
        holding = self._awaiting_commit
        self._awaiting_commit = []
        for outbox in holding:
            outbox.awaits_commit = False
            outbox.abort()
        self.written_waiters.abort()
        self.synced_waiters.abort()
        for call in self._on_failure:
            call(self.failure)

    # Effects and time

    def _deliver_effects(self) -> None:
        engine = self.engine
        while engine.effects:
            for effect in engine.drain_effects():
                if isinstance(effect, JobAssigned):
                    receiver = self._connections.get(effect.waiter.request.owner)
                    if receiver is not None:
                        receiver.on_job_assigned(effect.waiter, effect.job)
                elif isinstance(effect, WaitTimedOut):
                    receiver = self._connections.get(effect.waiter.request.owner)
                    if receiver is not None:
                        receiver.on_wait_timeout(effect.waiter)
                elif isinstance(effect, PayloadNeeded):
                    self._read_payload_first(effect)
                elif isinstance(effect, LifecycleNotice):
                    receiver = self._connections.get(effect.session)
                    if receiver is not None:
                        receiver.on_notice(effect)
                elif isinstance(effect, JobEvent):
                    receiver = self._connections.get(effect.watcher.owner)
                    if receiver is not None:
                        receiver.on_job_event(effect)

    def _read_payload_first(self, request: PayloadNeeded) -> None:
        def then(payload: bytes | None) -> None:
            self._on_payload_read(request, payload)

        self.read_from_disk(request.job.payload_at, request.job.payload_size, then)

    def _on_payload_read(self, request: PayloadNeeded, payload: bytes | None) -> None:
        engine = self.engine
        if engine.read_only_reason:
            return
        waiter = request.waiter
        if payload is None and request.job.state != GONE and waiter.waiting:
            engine.stop_waiting(waiter)
            receiver = self._connections.get(waiter.request.owner)
            if receiver is not None:
                receiver.on_payload_unreadable(waiter)
        engine.on_payload_read(request, payload, self.clock.now())

    def _schedule_timers(self) -> None:
        engine = self.engine
        pending = engine.has_pending_work()
        if engine.state.first_timer() is None and not pending:
            return
        when = engine.next_deadline(self.clock.now() if pending else 0)
        if not when:
            return
        if self._timer_handle is not None:
            if self._timer_due_at <= when:
                return
            self._timer_handle.cancel()
        self._timer_due_at = when
        self._timer_handle = self._scheduler.call_at(when, self._run_due_timers)

    def _run_due_timers(self) -> None:
        self._timer_handle = None
        now: i64 = self.clock.now()
        self.turn_queue.now = now
        self.engine.tick(now)
        self.end_turn()
