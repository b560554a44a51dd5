"""The course of one connection, whatever it speaks: command after command, replies in order.

A command that has to wait (for a job, for a payload from disk, for the client to read) holds up
those behind it on this connection, and nobody else. What the commands are is up to the dialect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.access.gate import Asker, Gate, has_room
from taskyard.access.principal import PUSH, TAKE, Denied, Principal
from taskyard.broker.broker import Broker
from taskyard.broker.line import TURN
from taskyard.broker.metrics import Traffic
from taskyard.broker.outbox import Outbox
from taskyard.broker.pace import Share
from taskyard.broker.receiver import BUSY, KNOWN, STRANGER, Receiver
from taskyard.broker.seams import Transport
from taskyard.engine.model.effects import FEW_QUEUES, Notice, Take, Waiter, Watched, Watcher
from taskyard.engine.model.job import Job, Origin

INPUT_LIMIT: Final = 262_144  # bytes of commands kept while one has to wait
UNKNOWN_LIMIT: Final = 16_384  # bytes of anything that is kept for who has to log in first


class Conversation(Receiver):
    def __init__(
        self,
        broker: Broker,
        transport: Transport,
        origin: Origin,
        output_limit: i64,
        traffic: Traffic,
        principal: Principal,
    ) -> None:
        super().__init__(broker.engine.new_owner(), traffic.dialect)
        self.principal = principal
        self.unknown = False  # who has to log in first, and has nothing large to say until then
        principal.connections += 1
        self.broker = broker
        self.engine = broker.engine
        self.origin = origin
        self.outbox = Outbox(broker, transport, self, output_limit)
        self.now: i64 = broker.clock.now()  # of this turn
        self.verb = traffic.unknown  # the command that is to be answered
        self.closed = False
        self.ending = False  # nothing more will come: close when all is answered
        self.waiter: Waiter | None = None  # the fetch that has to wait
        self.watcher: Watcher | None = None  # the command that waits for a job's end
        self.loading = False  # a payload is being read back from disk
        self._stopping = False  # since the server stops
        self._transport = transport
        self._reading = True
        self._share: Share | None = None  # if there is a rate to keep to

    # For the dialect to fill in

    def next_command(self) -> bool:
        """Carry out one command that has arrived in whole; False if there is none."""
        raise NotImplementedError

    def unread(self) -> i64:
        """Bytes of commands that have arrived and were not carried out."""
        raise NotImplementedError

    def begun(self) -> i64:
        """Whether, and about how much, of a command has arrived that only lacks its rest."""
        raise NotImplementedError

    def complain(self, text: str) -> None:
        """Say what is wrong with what has arrived, if the protocol has a form for that."""
        raise NotImplementedError

    def forget_input(self) -> None:
        """Drop what has arrived and was not carried out."""
        raise NotImplementedError

    def bound_input(self, unknown: bool) -> None:
        """From now on, what comes is bounded as for those who have to log in first, or is not."""
        raise NotImplementedError

    def empty_handed(self) -> None:
        """Answer a fetch that has waited for nothing."""
        raise NotImplementedError

    def deliver(self, job: Job, payload: bytes) -> None:
        """Answer a fetch with its job."""
        raise NotImplementedError

    def wait_is_over(self) -> None:
        """A command that had to wait is about to be answered."""

    def heard(self, event: Watched) -> bool:
        """Answer a command that waits for a job's end; False if it has to wait on."""
        raise NotImplementedError

    def unheard(self) -> None:
        """Answer it although the job has not ended."""
        raise NotImplementedError

    def denied(self, text: str) -> None:
        """Answer a command that is no longer allowed."""
        raise NotImplementedError

    def logged_in(self, principal: Principal | None) -> None:
        """Answer a command that said who the client is; None: that was wrong."""
        raise NotImplementedError

    def check_watching(self, job: Job) -> None:
        """Go on only if the client may still wait for this job's end."""

    def waits_on(self) -> bool:
        """Whether such a command is worth waiting for although the client sends nothing more."""
        return False

    def is_working(self) -> bool:
        """Whether a command is being carried out in portions."""
        return False

    # For the log

    def address(self) -> str:
        return self.origin.holder.rpartition("#")[0]

    def replies_wait(self) -> bool:
        return self.outbox.waits()

    # From the connection

    def resume(self) -> None:
        self.run()

    def half_read(self) -> bool:
        return (
            self.begun() > 0
            and self.waiter is None
            and self.watcher is None
            and not (self.loading or self.closed or self.in_line or self.slowed)
        )

    def stalled(self) -> None:
        self.now = self.broker.begin()
        self.complain("the rest of a command did not come in time")
        self.quit()
        self.broker.end()

    def turn_away(self, why: str) -> None:
        """What has come is of another protocol: say so, and close."""
        self.now = self.broker.begin()
        self.fault(why)
        self.complain(why)
        self.quit(lingers=True)
        self.broker.end()

    def standing(self) -> i64:
        if not self.unknown:
            return KNOWN
        return BUSY if self.loading else STRANGER

    def dismissed(self, why: str) -> None:
        if self.closed:
            self.outbox.abort()  # its last replies were not read in all this time
            return
        self.now = self.broker.begin()
        self.denied(why)
        self.quit()
        self.broker.end()

    def take_turn(self) -> None:
        self.now = self.broker.begin()
        self._run_commands()
        self._end_turn()
        self.broker.end()

    def lost(self) -> None:
        self.closed = True
        self.principal.connections -= 1
        self.broker.leave(self)
        if not self._stopping:
            self.let_go()
        self.outbox.forget_receiver()

    def ended(self) -> None:
        self._end()

    def shut_down(self) -> None:
        self._stopping = True
        self._end()

    def _end(self) -> None:
        """Answer what has arrived without waiting for jobs to come, and close."""
        self.ending = True
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            self.engine.stop_waiting(waiter)
            self.empty_handed()
        watcher = self.watcher
        if watcher is not None and (self._stopping or not self.waits_on()):
            self.watcher = None
            self.engine.stop_watching(watcher)
            self.unheard()
        self.run()

    def rules_changed(self) -> None:
        """What waits for a job, or for its end, must be allowed to when that comes."""
        self.look_at_principal()
        try:
            if self.waiter is not None:
                self.check_take(self.waiter.take)
            elif self.watcher is not None:
                job = self.engine.state.live(self.watcher.job_id)
                if job is not None:
                    self.check_watching(job)
        except Denied as denial:
            self.now = self.broker.begin()
            self._stop_waiting_for_any()
            self.wait_is_over()
            self.denied(str(denial))
            self._run_or_join()
            self.broker.end()

    def check_take(self, take: Take) -> None:
        """Go on only if the client may take on these terms."""
        for queue in take.queues:
            self.require(TAKE, queue.decode())
        if take.move_to:
            self.require(PUSH, take.move_to)

    # From the broker

    def assigned(self, waiter: Waiter, job: Job) -> None:
        self.waiter = None
        self.wait_is_over()
        payload = waiter.payload
        if payload is None:
            self.hand_out(job)
        else:
            self.deliver(job, payload)
        self._run_on()

    def read_failed(self, waiter: Waiter) -> None:
        self.waiter = None
        self.forget_input()  # nothing of it could be answered
        self.outbox.abort()

    def gave_up(self, waiter: Waiter) -> None:
        self.waiter = None
        self.wait_is_over()
        self.empty_handed()
        self._run_on()

    def watched(self, event: Watched) -> None:
        if event.watcher is not self.watcher:
            return  # nobody waits for that any more
        self.now = self.broker.clock.now()
        if self.heard(event):
            self.watcher = None
            self._run_on()

    def noticed(self, notice: Notice) -> None:
        raise NotImplementedError

    # Commands

    def run(self) -> None:
        """Carry out commands that have come, until one has to wait or the turn is over."""
        if self.broker.line.waits():
            self._come()
            self._end_turn()
            return
        self.now = self.broker.begin()
        self._run_or_join()
        self.broker.end()

    def _run_on(self) -> None:
        """The same, inside of a turn that has already begun."""
        self.now = self.broker.clock.now()
        self._run_or_join()

    def _run_or_join(self) -> None:
        if self.broker.line.is_long(self.now, self):
            self._come()
        elif not self.in_line:
            self._run_commands()
        self._end_turn()

    def _come(self) -> None:
        size = self.unread()
        if not self.in_line and (size or self.ending):
            self.broker.line.come(self, size)

    def _end_turn(self) -> None:
        limit: i64 = UNKNOWN_LIMIT if self.unknown else INPUT_LIMIT
        self._keep_reading(self.unread() <= limit and not self.slowed)
        self.outbox.flush()

    def _run_commands(self) -> None:
        turn: i64 = TURN
        if self.broker.pacer.rate:
            turn = self._allowed()
        left = turn
        while not self._busy():
            if not left:
                self._go_on_later(turn)
                break
            left -= 1
            self.commands += 1
            if not self.next_command():
                left += 1
                self.commands -= 1
                if self.ending and not self.closed:
                    self.quit()
                break
        if self._share is not None:
            self._share.spend(turn - left)

    def _allowed(self) -> i64:
        """Commands of this turn, where there is a rate to keep to."""
        if self._stopping:
            return TURN
        share = self._share
        if share is None:
            share = Share()
            self._share = share
        return min(i64(TURN), share.left(self.broker.pacer.rate, self.now))

    def _go_on_later(self, turn: i64) -> None:
        if not (self.unread() or self.ending):
            return
        if turn == TURN:
            self.broker.line.join(self)
        else:
            self.broker.pacer.wait(self)

    def _busy(self) -> bool:
        """Whether the next command has to wait."""
        return (
            self.waiter is not None
            or self.watcher is not None
            or self.loading
            or self.closed
            or self.stuffed
            or self.in_line
            or not self.outbox.has_room()
        )

    def require(self, action: str, queue: str) -> None:
        """Go on only if the client may do this to that queue."""
        principal = self.principal
        if not principal.free:
            principal.check(action, queue)

    def log_in(self, gate: Gate, address: str, name: str, secret: str) -> None:
        """Find out who the client is, and go on with `logged_in`."""
        principal = gate.recall(address, name, secret)
        if principal is not None:
            self._greet(gate, principal)
            return
        self.loading = True
        asker = Asker(self.connection, self.request_id(self.commands))
        gate.log_in(address, name, secret, _LogIn(self, gate).done, asker)

    def recognised(self, gate: Gate, principal: Principal | None) -> None:
        self.loading = False
        if not self.closed:
            self.now = self.broker.begin()
            self.wait_is_over()
            self._greet(gate, principal)
            self._run_or_join()
            self.broker.end()

    def _greet(self, gate: Gate, principal: Principal | None) -> None:
        if principal is None or principal is self.principal or has_room(gate, principal):
            self.logged_in(principal)
        else:
            self.denied(f"user {principal.name} has too many connections")

    def change_principal(self, principal: Principal) -> None:
        """From now on this is who asks."""
        self.principal.connections -= 1
        self.principal = principal
        principal.connections += 1
        self.look_at_principal()

    def look_at_principal(self) -> None:
        """Bound what comes by who asks; to be called whenever that changes."""
        unknown = self.principal.is_unknown()
        if unknown != self.unknown:
            self.unknown = unknown
            self.bound_input(unknown)
            if unknown and self.on_stranger is not None:
                self.on_stranger()

    def fetch(self, take: Take, timeout: i64) -> None:
        """Answer with a job, at once or when there is one, or empty-handed after the timeout."""
        job = self.engine.fetch(take, self.now)
        if job is not None:
            self.hand_out(job)
        elif self.ending:
            self.empty_handed()
        else:
            self.waiter = self.engine.wait(take, self.now + timeout)
            if len(take.queues) > FEW_QUEUES:
                self.broker.takes_memory(take.size())

    def hand_out(self, job: Job) -> None:
        payload = self.broker.payload(job)
        if payload is not None:
            self.deliver(job, payload)
            return
        self.load(job.payload_at, job.payload_size, _Delivery(self, job).go_on)

    def load(self, at: i64, size: i64, then: Callable[[bytes | None], None]) -> None:
        """Read bytes back from disk, and go on with `then` when they have come, or cannot."""
        self.loading = True
        if not self.since:
            self.since = self.broker.line.now
        self.broker.load(at, size, _Loading(self, then).done)

    def loaded(self, data: bytes | None, then: Callable[[bytes | None], None]) -> None:
        self.loading = False
        if self.broker.failure:  # what was done before the read may never be on disk
            self.outbox.abort()
        elif not self.closed:
            self.wait_is_over()
            then(data)
            if not self.loading and not self.is_working():
                self.end_late()
            self._run_on()

    def end_late(self) -> None:
        """A command that could not be answered at once is so now, or has begun to wait."""
        since = self.since
        self.since = 0
        slow = self.broker.slow
        now = self.broker.clock.now()  # a turn may have begun long ago
        if not since or self.waiter is not None or self.watcher is not None or self.replies_wait():
            return
        if now - since > slow.limit:
            slow.note(self, self.verb, self.commands, 1, since, 0, 0, now)

    def send(self, reply: bytes, mark: i64) -> None:
        """Answer the command; each one has one reply."""
        self.verb.replies += 1
        self.outbox.send(reply, mark)

    def quit(self, lingers: bool = False) -> None:
        """Close once all replies are out; `lingers`: although more is coming."""
        self.closed = True
        if not self._stopping:  # else its jobs go back when the server starts again
            self.let_go()
        self.outbox.close(lingers)

    def let_go(self) -> None:
        """Whatever this connection holds or waits for is no longer its."""
        self.forget_input()
        self._stop_waiting_for_any()
        self.engine.disconnect(self.owner, self.origin, self.broker.begin())
        self.broker.end()

    def _stop_waiting_for_any(self) -> None:
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            self.engine.stop_waiting(waiter)
        watcher = self.watcher
        if watcher is not None:
            self.watcher = None
            self.engine.stop_watching(watcher)

    def _keep_reading(self, wanted: bool) -> None:
        if wanted == self._reading or self.closed:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


class _LogIn:
    """Remembers who has said at which gate who it is."""

    def __init__(self, conversation: Conversation, gate: Gate) -> None:
        self._conversation = conversation
        self._gate = gate

    def done(self, principal: Principal | None) -> None:
        self._conversation.recognised(self._gate, principal)


class _Loading:
    """Remembers who goes on when bytes have been read back."""

    def __init__(self, conversation: Conversation, then: Callable[[bytes | None], None]) -> None:
        self._conversation = conversation
        self._then = then

    def done(self, data: bytes | None) -> None:
        self._conversation.loaded(data, self._then)


class _Delivery:
    """Remembers for which job a payload is being loaded."""

    def __init__(self, conversation: Conversation, job: Job) -> None:
        self._conversation = conversation
        self._job = job

    def go_on(self, payload: bytes | None) -> None:
        if payload is None:
            self._conversation.outbox.abort()
        else:
            self._conversation.deliver(self._job, payload)
