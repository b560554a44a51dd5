"""Work of the broker that is done off the loop, and whom its end is told to.

Each of these remembers what the work was for; a method of it is what the scheduler calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from taskyard.broker.seams import Scheduler
from taskyard.journal.cold import ColdRead, Load
from taskyard.journal.drop import DropWork
from taskyard.journal.spare import SpareWork
from taskyard.journal.sync import SyncPoint

if TYPE_CHECKING:
    from taskyard.broker.broker import Broker
    from taskyard.broker.room_watch import RoomWatch


class Spare:
    """The next segment of the journal, made off the loop."""

    def __init__(self, room: RoomWatch, work: SpareWork) -> None:
        self._room = room
        self._work = work

    def start(self, scheduler: Scheduler) -> None:
        scheduler.run_blocking(self._work.run, self._done)

    def _done(self, error: BaseException | None) -> None:
        self._room.spared(self._work)


class Drop:
    """Segments of the journal that are removed off the loop."""

    def __init__(self, room: RoomWatch, work: DropWork) -> None:
        self._room = room
        self._work = work

    def start(self, scheduler: Scheduler) -> None:
        scheduler.run_blocking(self._work.run, self._done)

    def _done(self, error: BaseException | None) -> None:
        self._room.dropped(self._work)


class ThreadSync:
    """One fdatasync off the loop. How long it took is measured there: the loop hears of its end
    when it has time for it."""

    def __init__(self, broker: Broker, point: SyncPoint) -> None:
        self._broker = broker
        self._point = point
        self._began = broker.flush_began
        self._ended: i64 = 0

    def start(self, scheduler: Scheduler) -> None:
        file = self._point.file()
        if file < 0 or not scheduler.flush(file, self._flushed):
            scheduler.run_blocking(self._run, self._done)

    def _flushed(self, failure: int, took: int) -> None:
        try:
            self._point.flushed(failure)
        except OSError as error:
            self._broker.sync_done(self._point, error, took)
        else:
            self._broker.sync_done(self._point, None, took)

    def _run(self) -> None:
        self._point.run()
        self._ended = self._broker.clock.now()

    def _done(self, error: BaseException | None) -> None:
        self._broker.sync_done(self._point, error, self._ended - self._began)


class Answer:
    """Bytes that were in memory when they were to be read; they are given later all the same."""

    def __init__(self, broker: Broker, load: Load) -> None:
        self._broker = broker
        self._load = load

    def give(self) -> None:
        self._broker.answer(self._load)


class Read:
    """One read of cold bytes off the loop."""

    def __init__(self, broker: Broker, read: ColdRead) -> None:
        self._broker = broker
        self._read = read

    def start(self, scheduler: Scheduler) -> None:
        scheduler.run_blocking(self._read.run, self._done)

    def _done(self, error: BaseException | None) -> None:
        self._broker.read_done(self._read)  # what is missing in it says that it has failed
