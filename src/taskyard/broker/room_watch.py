"""Room on the disk: the next segment made in time, old ones removed, and who is told of a lack.

All of it is done off the loop. While something waits for room, it is looked for now and then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from taskyard.broker.offloop import Drop, Spare
from taskyard.broker.seams import Cancellable, Scheduler
from taskyard.journal.drop import DropWork
from taskyard.journal.spare import SpareWork

if TYPE_CHECKING:
    from taskyard.broker.broker import Broker

_AGAIN: Final = 1_000_000  # microseconds between two looks whether the disk has room again


class RoomWatch:
    def __init__(self, broker: Broker, scheduler: Scheduler) -> None:
        self._broker = broker
        self._scheduler = scheduler
        self._on_change: list[Callable[[str], None]] = []
        self._refusing = ""  # why pushes are refused, as far as anybody was told
        self._alarm: Cancellable | None = None

    def on_change(self, call: Callable[[str], None]) -> None:
        """Hear when pushes begin to be refused, and why, and with "" when they go on."""
        self._on_change.append(call)

    def drop_before(self, base: i64) -> bool:
        """Let the journal drop segments before `base`, off the loop; False if there are none."""
        work = self._broker.journal.drop_before(base)
        if work is None:
            return False
        Drop(self, work).start(self._scheduler)
        return True

    def dropped(self, work: DropWork) -> None:
        try:
            self._broker.journal.dropped(work)
        except OSError as error:
            self._broker.fail(error)
            return
        self._came()

    def spared(self, work: SpareWork) -> None:
        try:
            self._broker.journal.spared(work)
        except OSError as error:
            self._broker.fail(error)
            return
        if work.done:
            self._came()
        else:
            self._broker.retention.give_up_one()
            self.look()

    def look(self) -> None:
        """Have the next segment made in time, and tell whether there is room for pushes."""
        journal = self._broker.journal
        spare = journal.spare()
        if spare is not None:
            Spare(self, spare).start(self._scheduler)
        refusing = journal.room.refusing
        if refusing:
            self.watch()
        if bool(refusing) != bool(self._refusing):
            for call in self._on_change:
                call(refusing)
        self._refusing = refusing

    def watch(self) -> None:
        """Something waits for room."""
        broker = self._broker
        if self._alarm is None and not broker.failure:
            self._alarm = self._scheduler.call_at(broker.clock.now() + _AGAIN, self._look_again)

    def _look_again(self) -> None:
        self._alarm = None
        if not self._broker.failure:
            self._broker.journal.retry()
            self._came()

    def _came(self) -> None:
        """There may be more room than before: go on with what there was none for."""
        self.look()
        broker = self._broker
        if broker.engine.room.short:
            broker.engine.resume(broker.begin())
            broker.end()
