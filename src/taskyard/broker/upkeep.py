"""When compaction works: a little between turns, as much as new records make necessary.

Under load it is given an allowance for each new byte, so that it keeps up without taking more than
its share. When nothing else happens it goes on by itself, in portions small enough that nobody who
comes meanwhile has to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from taskyard.broker.seams import Cancellable, Scheduler
from taskyard.journal.compaction import IDLE, Compactor
from taskyard.journal.head_read import BlobsRead, HeadRead

if TYPE_CHECKING:
    from taskyard.broker.broker import Broker

_PORTION: Final = 131_072  # bytes of carries in one go
_LEAST: Final = 16_384  # below that it is not worth a turn
_PAUSE: Final = 5_000  # microseconds between portions while nothing else happens


class Upkeep:
    def __init__(self, broker: Broker, compactor: Compactor, scheduler: Scheduler) -> None:
        self.compactor = compactor
        self._broker = broker
        self._scheduler = scheduler
        self._allowance: i64 = 0
        self._seen: i64 = broker.journal.end
        self._carried: i64 = 0  # bytes of what was seen next that compaction has written itself
        self._planned = False
        self._alarm: Cancellable | None = None
        self._quiet = True  # nothing new was written since the alarm was set
        self._on_damage: list[Callable[[str], None]] = []

    def on_damage(self, call: Callable[[str], None]) -> None:
        self._on_damage.append(call)

    def committed(self) -> None:
        """More was written, or more is durable."""
        compactor = self.compactor
        journal = self._broker.journal
        end = journal.end
        new = end - self._seen - self._carried
        self._seen = end
        self._carried = 0
        if compactor.phase == IDLE:
            if not compactor.is_due():
                return
            compactor.begin()
            self._allowance = _PORTION
        elif new > 0:
            self._quiet = False
            self._allowance = min(
                self._allowance + new * compactor.pace() // 100, 8 * i64(_PORTION)
            )
        if self._allowance >= _LEAST or compactor.has_closed():
            self._plan()
        if self._alarm is None:
            self._set_alarm()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._scheduler.call_soon(self._turn)

    def _set_alarm(self) -> None:
        self._quiet = True
        when = self._broker.clock.now() + _PAUSE
        self._alarm = self._scheduler.call_at(when, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self._broker.failure or self.compactor.phase == IDLE:
            return
        if self._quiet:
            self._allowance = max(self._allowance, i64(_PORTION))
            self._plan()
        self._set_alarm()

    def _turn(self) -> None:
        self._planned = False
        broker = self._broker
        if broker.failure:
            return
        compactor = self.compactor
        if compactor.has_closed():
            self._drop()
            return
        log = broker.engine.log
        before = log.size()
        spent = compactor.step(broker.clock.now(), min(self._allowance, i64(_PORTION)))
        self._allowance -= spent
        self._carried += log.size() - before
        read = compactor.next_read()
        if read is not None:
            _HeadReading(self, read).start(self._scheduler)
        late = compactor.late_read()
        if late is not None:
            _BlobsReading(self, late).start(self._scheduler)
        broker.end()
        if spent and compactor.can_step() and self._allowance >= _LEAST:
            self._plan()

    def _drop(self) -> None:
        """The new base is durable: what is before it can go."""
        self.compactor.finish()
        self._broker.retention.look()
        self.committed()  # the next pass may be due already

    def head_read(self, read: HeadRead, error: BaseException | None) -> None:
        self.compactor.loaded(read, _text(error))
        self._go_on()

    def blobs_read(self, read: BlobsRead, error: BaseException | None) -> None:
        self.compactor.late_loaded(read, _text(error))
        self._go_on()

    def _go_on(self) -> None:
        damage = self.compactor.damage
        if damage:
            for call in self._on_damage:
                call(damage)
        elif self._allowance >= _LEAST:
            self._plan()


def _text(error: BaseException | None) -> str:
    return "" if error is None else str(error) or repr(error)


class _HeadReading:
    def __init__(self, upkeep: Upkeep, read: HeadRead) -> None:
        self._upkeep = upkeep
        self._read = read

    def start(self, scheduler: Scheduler) -> None:
        scheduler.run_blocking(self._read.run, self._done)

    def _done(self, error: BaseException | None) -> None:
        self._upkeep.head_read(self._read, error)


class _BlobsReading:
    def __init__(self, upkeep: Upkeep, read: BlobsRead) -> None:
        self._upkeep = upkeep
        self._read = read

    def start(self, scheduler: Scheduler) -> None:
        scheduler.run_blocking(self._read.run, self._done)

    def _done(self, error: BaseException | None) -> None:
        self._upkeep.blobs_read(self._read, error)
