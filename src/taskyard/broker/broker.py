"""The broker: turns of the engine, group commit, and what follows from them.

A turn is the handling of whatever arrived on one connection, or of what is due. Its records are
written and synced together with those of all other turns of the same round of the event loop;
then all replies that waited for that go out, one write per connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.broker.aside import Milestone
from taskyard.broker.convoy import Convoy
from taskyard.broker.feed import Feed
from taskyard.broker.flush_place import FlushPlace
from taskyard.broker.line import Line
from taskyard.broker.metrics import Metrics
from taskyard.broker.offloop import Answer, Read, ThreadSync
from taskyard.broker.outbox import Outbox
from taskyard.broker.pace import Pacer
from taskyard.broker.receiver import Receiver
from taskyard.broker.retention import Retention
from taskyard.broker.room_watch import RoomWatch
from taskyard.broker.seams import Cancellable, Clock, Scheduler
from taskyard.broker.slow import Slow
from taskyard.broker.upkeep import Upkeep
from taskyard.engine.model.effects import Assigned, GaveUp, Notice, ReadFirst, Watched
from taskyard.engine.model.job import FOREVER, GONE, Job
from taskyard.engine.operations.facade import Engine
from taskyard.journal.cold import ColdRead, Load
from taskyard.journal.compaction import Compactor
from taskyard.journal.journal import Journal
from taskyard.journal.retention import Limits
from taskyard.journal.sync import SyncPoint

SYNC: Final = "sync"
WRITE: Final = "write"
MEMORY: Final = "memory"

_FULL: Final = 4 * 1_048_576  # bytes of records after which a commit does not wait for the round
_BEHIND: Final = 4 * _FULL  # and after which those who wait for a commit have to wait for more
_GATHERINGS: Final = 4  # rounds of the loop that a commit waits at most while more comes in
_IDLE_COMMIT: Final = 5_000  # microseconds that records nobody waits for may stay unwritten
_BACKGROUND_SYNC: Final = 1_000_000  # and unsynced, where replies do not wait for the disk
_PAGES: Final = 256  # of the index of jobs that are made until somebody hears of it


class Broker:
    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        clock: Clock,
        scheduler: Scheduler,
        durability: str = SYNC,
        inline_sync: bool = True,
        compaction: i64 = 200,
        limits: Limits | None = None,
        flushes_aside: bool = False,
    ) -> None:
        self.engine = engine
        self.journal = journal
        self.clock = clock
        self.released: i64 = FOREVER if durability == MEMORY else journal.durable
        self.failure = ""  # why nothing can be written any more
        self.commits: i64 = 0
        self.metrics = Metrics()
        self.feed = Feed(journal, scheduler)
        self._scheduler = scheduler
        self.durability = durability
        self._receivers: dict[int, Receiver] = {}  # by owner
        self.slow = Slow()
        self.line = Line(clock, scheduler, self.slow)
        self._flush_place = FlushPlace(self.line, inline_sync, flushes_aside)
        self.pacer = Pacer(clock, scheduler)
        self.held: i64 = 0  # bytes of replies that wait for the journal
        self.held_limit: i64 = FOREVER  # beyond it, whose replies wait has to wait with more
        self.on_memory: Callable[[i64], None] | None = None  # see takes_memory
        self._holding: list[Outbox] = []
        self.written = Milestone()
        self.synced = Milestone()
        self._commit_planned = False
        self._turns: i64 = 0
        self._turns_seen: i64 = 0
        self._gathered: i64 = 0  # rounds of the loop that this commit has waited for more
        self._idle_commit_planned = False
        self._syncing = False
        self._convoy = Convoy(scheduler, self._plan_if_wanted)
        self.flush_began: i64 = 0
        self.flush_ended: i64 = 0
        self.flush_free: i64 = 0  # when the one before it had ended
        self._background_sync: Cancellable | None = None
        self._alarm: Cancellable | None = None
        self._alarm_at: i64 = 0
        self._on_failure: list[Callable[[str], None]] = []
        self._on_growth: list[Callable[[], None]] = []
        self._pages_seen: i64 = 0
        engine.room = journal.room
        engine.payload_of = self.payload
        self.room = RoomWatch(self, scheduler)
        self.retention = Retention(self, limits if limits is not None else Limits(), scheduler)
        self.upkeep = Upkeep(self, Compactor(engine, journal, compaction), scheduler)

    # Connections

    def join(self, receiver: Receiver) -> None:
        self._receivers[receiver.owner] = receiver

    def leave(self, receiver: Receiver) -> None:
        if self._receivers.get(receiver.owner) is receiver:  # else another has taken its place
            del self._receivers[receiver.owner]

    def receivers(self) -> list[Receiver]:
        return list(self._receivers.values())

    def hold(self, outbox: Outbox) -> None:
        """This outbox has replies that wait for a commit."""
        if self.failure:
            outbox.abort()  # none will come
            return
        self._holding.append(outbox)
        if not self._convoy.patience or self._convoy.came(outbox, self.line.now):
            self.plan_commit()

    def plan_commit(self) -> None:
        """Somebody waits for what has been done so far."""
        if not self._commit_planned:
            self._commit_planned = True
            self.line.commit_follows = True
            self._turns_seen = self._turns
            self._gathered = 0
            self._scheduler.call_soon(self._gather)

    # Turns

    def begin(self) -> i64:
        """Start a turn: what is due happens before what is asked."""
        self._turns += 1
        line = self.line
        if line.is_fresh:
            line.is_fresh = False
        else:
            line.now = self.clock.now()
        now = line.now
        first = self.engine.state.first_timer()
        if first is not None and first.deadline <= now:
            self.engine.tick(now)
            if self.engine.effects:  # those whom it concerns may change what is asked for
                self._deliver()
        return now

    def end(self) -> None:
        """Finish a turn: tell whom it concerns, plan what comes later."""
        engine = self.engine
        if engine.effects:
            self._deliver()
        if engine.log.size() > _FULL:
            self._commit()
        elif engine.log.count and not self._commit_planned and not self._idle_commit_planned:
            # Left to ring even if all is written by then: cheaper than to cancel it each time.
            self._idle_commit_planned = True
            self._scheduler.call_at(self.clock.now() + _IDLE_COMMIT, self._commit_idle)
        if engine.room.short:
            self.room.watch()
        self._set_alarm()

    def is_behind(self) -> bool:
        """Whether more has come than the disk, or the memory, can take at the moment."""
        return self.engine.log.size() > _BEHIND or self.held > self.held_limit

    def takes_memory(self, size: i64) -> None:
        """A client holds so many bytes more than it has sent."""
        if self.on_memory is not None:
            self.on_memory(size)

    def payload(self, job: Job) -> bytes | None:
        """The job's payload, or None if it must be loaded first."""
        size = job.payload_size
        if not size:
            return b""
        payload = self.journal.read(job.payload_at, size)
        if self.journal.reads.queued:  # what follows it will be wanted soon
            self._start_reads()
        return payload

    def load(self, at: i64, size: i64, then: Callable[[bytes | None], None]) -> None:
        """Read bytes back from disk off the loop, and give them to `then` in a turn of its own.

        None means that the disk could not be read.
        """
        load = self.journal.reads.load(at, size, then)
        if load.over:
            self._scheduler.call_soon(Answer(self, load).give)
        self._start_reads()

    def _start_reads(self) -> None:
        while True:
            read = self.journal.reads.next_read()
            if read is None:
                return
            Read(self, read).start(self._scheduler)

    def read_done(self, read: ColdRead) -> None:
        loads = self.journal.reads.done(read)
        self._start_reads()
        for load in loads:
            self.answer(load)

    def answer(self, load: Load) -> None:
        self.begin()
        load.then(load.data)
        self.end()

    def payload_mark(self, job: Job) -> i64:
        """What must be durable before the job may be handed out: why it is ready, no more."""
        if job.policy.max_attempts == 1:
            return self.engine.log.mark()  # its one attempt must not be forgotten
        if self.engine.revealed > self.journal.durable:
            return self.engine.log.mark()
        end = job.payload_at + job.payload_size  # of the record as well
        return 0 if end <= self.journal.durable else self.engine.log.mark()

    # Commit

    def on_failure(self, call: Callable[[str], None]) -> None:
        self._on_failure.append(call)

    def flush(self) -> None:
        """Write and sync everything now, on this thread: for start and stop."""
        if self.failure:
            return
        try:
            self.feed.take()
            self.journal.write()
            point = self.journal.sync_point()
            point.run()
            self.journal.synced(point)
        except OSError as error:
            self.fail(error)
            return
        self._release()

    def _gather(self) -> None:
        """Commit, unless more has come in this round of the loop or waits in line: then that
        goes along.

        Each sync costs as much as some ten commands, so it pays to look once more for those that
        arrived while the last ones were handled.
        """
        more = self._turns != self._turns_seen or self.line.waits()
        if more and self._gathered < _GATHERINGS:
            self._turns_seen = self._turns
            self._gathered += 1
            self._scheduler.call_soon(self._gather)
        elif self._commit_planned:
            self._commit()

    def _commit_idle(self) -> None:
        self._idle_commit_planned = False
        if self.engine.log.count and not self._commit_planned and not self._convoy.is_open:
            self._commit()

    def _commit(self) -> None:
        self._commit_planned = False
        self.line.commit_follows = False
        if self.failure or (self._syncing and self.durability == SYNC):
            self.line.look()
            return  # what has been added meanwhile goes with the next one
        if self._convoy.is_open:
            self._convoy.end()
        self.commits += 1
        self._begin_flush()
        self.line.settle(self.flush_began)
        try:
            self.feed.take()
            self.journal.write()
            self.room.look()
            if self.durability != SYNC:
                self._plan_background_sync()
            elif self._flush_place.choose_loop(len(self._holding), self._unsynced()):
                self._sync_on_loop()
            else:
                self._sync_in_thread()
                self.written.reached(self.journal.written)
                return
        except OSError as error:
            self.fail(error)
            return
        self._flushed()
        self._release()

    def _begin_flush(self) -> None:
        self.flush_began = self.clock.now()
        # To wait for others is to wait for the disk.
        self.flush_free = self.flush_began if self._convoy.was_open else self.flush_ended

    def _flushed(self) -> None:
        self.flush_ended = self.clock.now()
        self.metrics.flushes.add(self.flush_ended - self.flush_began)

    def _unsynced(self) -> i64:
        return self.journal.written - self.journal.durable

    def _sync_on_loop(self) -> None:
        point = self.journal.sync_point()
        began: i64 = self.clock.now()
        point.run()
        self._flush_place.took(self.clock.now() - began)
        self.journal.synced(point)

    def _sync_in_thread(self) -> None:
        if self.journal.durable >= self.journal.written:
            self._release()
            return
        self._syncing = True
        point = self.journal.sync_point()
        ThreadSync(self, point).start(self._scheduler)

    def sync_done(self, point: SyncPoint, error: BaseException | None, took: i64) -> None:
        self._syncing = False
        if error is not None:
            self.fail(error)
            return
        self.journal.synced(point)
        self._flushed()
        self._flush_place.count(len(self._holding))
        if not self._flush_place.is_quick:  # else this one was an exception
            self._convoy.flushed(took, self.flush_ended)
        waited = self._holding
        self._release()
        if self._syncing:  # so much has come by it that it was committed at once
            return
        if not self.line.waits():  # else there is enough to do beside a flush
            self._convoy.answered(waited)
        if self._convoy.is_open:
            self._commit_planned = False
            self.line.commit_follows = False
        elif self._flush_place.is_crowded():  # whoever comes in the next rounds goes along
            self._plan_if_wanted()
        elif self._is_commit_wanted():
            self._commit()

    def _is_commit_wanted(self) -> bool:
        return self.engine.log.count > 0 or bool(self._holding) or self.synced.waits()

    def _plan_if_wanted(self) -> None:
        if self._is_commit_wanted():
            self.plan_commit()

    def left(self, outbox: Outbox) -> None:
        """Its client is gone."""
        self._convoy.left(outbox)

    def _plan_background_sync(self) -> None:
        if self._background_sync is None:
            when = self.clock.now() + _BACKGROUND_SYNC
            self._background_sync = self._scheduler.call_at(when, self._sync_behind)

    def _sync_behind(self) -> None:
        self._background_sync = None
        if not self._syncing and not self.failure:
            self._begin_flush()
            self._sync_in_thread()

    def _release(self) -> None:
        durability = self.durability
        if durability == SYNC:
            self.released = self.journal.durable
        elif durability == WRITE:
            self.released = self.journal.written
        self.written.reached(self.journal.written)
        self._let_go(self.released)
        self.feed.durable()
        self.synced.reached(self.journal.durable)
        self.retention.look()
        self.upkeep.committed()
        made = self.engine.state.jobs.made
        if made - self._pages_seen >= _PAGES:
            self._pages_seen = made
            for call in self._on_growth:
                call()

    def on_growth(self, call: Callable[[], None]) -> None:
        """Hear, after a commit, that many jobs have come since the last time."""
        self._on_growth.append(call)

    def _let_go(self, mark: i64) -> None:
        holding = self._holding
        self._holding = []
        for outbox in holding:
            outbox.listed = False
            outbox.release(mark)
            if outbox.waits() and not outbox.listed:
                outbox.listed = True
                self.hold(outbox)

    def fail(self, error: BaseException) -> None:
        """The promise of those who wait cannot be kept any more, and no new one can be made."""
        if self.failure:
            return
        self.failure = f"the journal cannot be written: {error}"
        self.engine.read_only = self.failure
        self.released = FOREVER  # what is said from now on promises nothing
        holding = self._holding
        self._holding = []
        for outbox in holding:
            outbox.listed = False
            outbox.abort()
        self.written.abort()
        self.synced.abort()
        for call in self._on_failure:
            call(self.failure)

    # Effects and time

    def _deliver(self) -> None:
        engine = self.engine
        while engine.effects:
            for effect in engine.take_effects():
                if isinstance(effect, Assigned):
                    receiver = self._receivers.get(effect.waiter.take.owner)
                    if receiver is not None:
                        receiver.assigned(effect.waiter, effect.job)
                elif isinstance(effect, GaveUp):
                    receiver = self._receivers.get(effect.waiter.take.owner)
                    if receiver is not None:
                        receiver.gave_up(effect.waiter)
                elif isinstance(effect, ReadFirst):
                    self._read_first(effect)
                elif isinstance(effect, Notice):
                    receiver = self._receivers.get(effect.session)
                    if receiver is not None:
                        receiver.noticed(effect)
                elif isinstance(effect, Watched):
                    receiver = self._receivers.get(effect.watcher.owner)
                    if receiver is not None:
                        receiver.watched(effect)

    def _read_first(self, asked: ReadFirst) -> None:
        def then(payload: bytes | None) -> None:
            self._was_read(asked, payload)

        self.load(asked.job.payload_at, asked.job.payload_size, then)

    def _was_read(self, asked: ReadFirst, payload: bytes | None) -> None:
        engine = self.engine
        if engine.read_only:
            return
        waiter = asked.waiter
        if payload is None and asked.job.state != GONE and waiter.waiting:
            engine.stop_waiting(waiter)
            receiver = self._receivers.get(waiter.take.owner)
            if receiver is not None:
                receiver.read_failed(waiter)
        engine.was_read(asked, payload, self.clock.now())

    def _set_alarm(self) -> None:
        engine = self.engine
        pending = engine.is_pending()
        if engine.state.first_timer() is None and not pending:
            return
        when = engine.next_deadline(self.clock.now() if pending else 0)
        if not when:
            return
        if self._alarm is not None:
            if self._alarm_at <= when:
                return
            self._alarm.cancel()
        self._alarm_at = when
        self._alarm = self._scheduler.call_at(when, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now: i64 = self.clock.now()
        self.line.now = now
        self.engine.tick(now)
        self.end()
