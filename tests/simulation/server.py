"""The server on a simulated machine: what server/app.py puts together, on another disk and loop."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from simulation.loop import Loop, Scheduler
from simulation.machine import Machine
from simulation.network import Link

from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import AnchoredClock
from taskyard.engine.model.state import State
from taskyard.engine.operations.facade import Engine
from taskyard.journal.opening import open_journal
from taskyard.journal.retention import RetentionLimits
from taskyard.protocols.masenko.connection import Masenko
from taskyard.protocols.resp.protocol import make_resp
from taskyard.protocols.workq.connection import Workq
from taskyard.server.app import (
    CLIENT_CLOSE_SECONDS,
    HttpApplication,
    engine_settings,
    journal_settings,
)
from taskyard.server.net.connection import (
    Connection,
    ConnectionRegistry,
    ProtocolFactory,
    StallDetector,
)
from taskyard.server.net.memory_limit import MemoryLimiter
from taskyard.server.settings.schema import Settings
from taskyard.shared.process import Usage

LISTENERS = {
    "masenko": "masenko",
    "workq": "workq",
    "resp": "resp",
    "glovebox": "http",
    "api": "http",
}


def no_time() -> float:
    return 0.0


def no_usage() -> Usage:
    """What a real process has of memory and the like is not the same each time."""
    return Usage(0.0, None, 1024, None, None)


class Server:
    """Start by making one, in a round of the machine; it raises what keeps it from starting."""

    def __init__(self, machine: Machine, loop: Loop, settings: Settings, chance: Random) -> None:
        self.machine = machine
        self.loop = loop
        self.settings = settings
        self.disk = machine.disk
        self._chance = chance
        self.connections = ConnectionRegistry()
        self._stopping_since = -1
        self.stopped = False
        self._recover()
        self._listen()

    def _recover(self) -> None:
        settings, machine = self.settings, self.machine
        state = State(engine_settings(settings))
        self.journal, self.report = open_journal(
            self.disk,
            journal_settings(settings),
            state,
            machine.wall(),
            self._chance.randbytes,
        )
        self.clock = AnchoredClock(int(state.time), machine.wall_ns, machine.monotonic_ns)
        self.loop.clock = self.clock.now
        self.scheduler = Scheduler(machine, self.loop)
        self.engine = Engine(state, self.journal.records, self.journal.salt, self._chance)
        self.engine.boot("simulated", self.clock.now())
        self.broker = Broker(
            self.engine,
            self.journal,
            self.clock,
            self.scheduler,
            settings.durability,
            settings.durability == "sync" and settings.sync_mode == "inline",
            settings.compaction or 0,
            RetentionLimits(settings.retain_bytes, settings.retain_age),
        )
        self.broker.flush_journal()
        if self.broker.failure:
            raise OSError(self.broker.failure)
        self.broker.begin_turn()
        self.broker.end_turn()

    def _listen(self) -> None:
        settings, broker, scheduler = self.settings, self.broker, self.scheduler
        broker.rate_limiter.commands_per_second = settings.max_commands_per_second or 0
        self._flow = MemoryLimiter(
            self.connections, broker, scheduler, settings.memory_limit, no_time
        )
        self._stalls = StallDetector(self.connections, broker, scheduler, settings.stall_timeout)
        self._stalls.start()
        self.web = HttpApplication(
            settings, broker, scheduler, draw_session_id=self._draw, process_usage=no_usage
        )
        masenko = Masenko(
            broker,
            scheduler,
            settings.heartbeat,
            settings.payload_limit,
            settings.output_limit,
            settings.max_losses,
        )
        workq = Workq(
            broker, settings.output_limit, settings.workq_lease_ttr, settings.workq_max_losses
        )
        resp = make_resp(
            broker,
            settings.resp_queue,
            settings.payload_limit,
            settings.output_limit,
            settings.max_losses,
            None,
            settings.resp_transaction_limit,
            self.web.api,
            settings.http_body_limit,
        )
        self._dialects: dict[str, ProtocolFactory] = {
            "masenko": masenko,
            "workq": workq,
            "resp": resp,
            "http": self.web.http,
        }

    def _draw(self) -> int:
        return 1 << 62 | self._chance.getrandbits(62)

    def accept(self, dialect: str, link: Link) -> None:
        listener = self._dialects[LISTENERS[dialect]]
        link.open(Connection(listener, self.settings.output_limit, self.connections))

    def is_accepting(self) -> bool:
        return self._stopping_since < 0

    # The end, as server/app.py does it

    def begin_stop(self, done: Callable[[], None]) -> None:
        """Take nothing new, answer what has arrived; `done` is called when the process ends."""
        self._stopping_since = self.machine.agenda.now
        self.web.stop()
        self.connections.shutting_down = True
        self._stalls.stop()
        self._flow.stop()
        for receiver in self.broker.connections():
            receiver.shut_down()
        self.broker.flush_journal()
        self._await_end(done)

    def _await_end(self, done: Callable[[], None]) -> None:
        open_now = self.connections.all()
        waited = self.machine.agenda.now - self._stopping_since
        if open_now and waited < CLIENT_CLOSE_SECONDS * 1_000_000:
            self.loop.call_later(0.01, self._await_end, done)
            return
        for connection in open_now:
            connection.abort()
        self.loop.call_soon(self._end, done)

    def _end(self, done: Callable[[], None]) -> None:
        self.broker.flush_journal()
        self.scheduler.close()
        if not self.broker.failure:
            self.journal.close()
        self.stopped = True
        done()
