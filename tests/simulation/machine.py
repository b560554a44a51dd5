"""A computer with a disk that fails and clocks that are set, on which one process runs.

The process has one thread that counts, that of its loop. While it runs, the world stands still;
what that takes of simulated time is added up in `_ahead`, and it is busy for as long afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from simulation.agenda import Call, EventQueue
from simulation.loop import ROUND, Loop

from taskyard.journal.memory import MemoryDisk

EPOCH = 1_700_000_000_250_000  # microseconds; when a run begins, by the machine's clock


class PowerCut(BaseException):
    """The power fails in the middle of an operation: no error that could be handled."""


class SlowDisk:
    """How long operations of the disk take, in microseconds: at most, and how often at all."""

    def __init__(self, longest: int = 0, often: float = 0.0) -> None:
        self.longest = longest
        self.often = often


class Machine:
    def __init__(self, agenda: EventQueue, chance: Random) -> None:
        self.agenda = agenda
        self.chance = chance
        self.disk = MemoryDisk()
        self.disk.watch(self._watch)
        self.slow = SlowDisk()
        self.loop = Loop(self)
        self.rounding = False
        self.dark = False  # there is no power
        self.operations = 0  # of the disk, that change something
        # the power fails at this one; after it took effect
        self.cut: tuple[int, bool] | None = None
        self.cut_within = ""  # the kind of the operation at which it has failed
        self.written_at = 0.0  # the server's time when it last wrote records
        self.synced_at = 0.0  # and when those that are synced in the background were written
        self.kinds: dict[str, int] = {}  # operations by kind
        self._ahead = 0
        self._busy_until = 0
        self._stopped_until = 0
        self._suspended = 0
        self._wakes_at = 0
        self._set_by = 0  # by how much somebody has set the clock
        self._latest = 0

    # Clocks

    def monotonic(self) -> int:
        """Microseconds. It stands still while the machine is suspended."""
        now = self.agenda.now + self._ahead - self._suspended
        self._latest = max(self._latest, now)
        return self._latest

    def monotonic_ns(self) -> int:
        return self.monotonic() * 1000

    def wall(self) -> int:
        return EPOCH + self.agenda.now + self._ahead + self._set_by

    def wall_ns(self) -> int:
        return self.wall() * 1000

    def set_clock(self, by: int) -> None:
        self._set_by += by

    def when(self, monotonic: int) -> int:
        """The time of the world at which this clock will show that."""
        return monotonic + self._suspended

    # The process

    def new_loop(self) -> Loop:
        self.loop.die()
        self.loop = Loop(self)
        return self.loop

    def free_at(self) -> int:
        """When the process can do something more."""
        return max(self.agenda.now + self._ahead, self._busy_until, self._stopped_until)

    def stop_process(self, microseconds: int) -> None:
        """As SIGSTOP does, for so long."""
        self._stopped_until = max(self._stopped_until, self.agenda.now + microseconds)

    def suspend(self, microseconds: int) -> None:
        """The whole machine; its monotonic clock does not count that."""
        if self.agenda.now >= self._stopped_until:
            self.stop_process(microseconds)
            self._suspended += microseconds
            self._wakes_at = self._stopped_until
            self.loop.plan()

    def _resume(self) -> None:
        """The process is another one, and runs."""
        self._suspended -= max(0, self._wakes_at - self.agenda.now)
        # The one before may have read what it was ahead: that has passed, or the clock would stand.
        self._suspended = min(self._suspended, self.agenda.now - self._latest)
        self._wakes_at = self._stopped_until = self._busy_until = 0

    def in_round(self, call: Callable[[], object]) -> None:
        """Let the process do this now, after what it is busy with. PowerCut if the power fails."""
        self.rounding = True
        self._ahead = max(0, self._busy_until - self.agenda.now)
        try:
            call()
        finally:
            self._busy_until = self.agenda.now + self._ahead + ROUND
            self._ahead = 0
            self.rounding = False
        if self.dark:  # and somebody has caught it
            raise PowerCut

    def off_loop(self, call: Call) -> None:
        """Let one of its threads do this now."""
        call()
        if self.dark:
            raise PowerCut

    # The disk

    def slowness(self) -> int:
        """What one operation takes longer than usual."""
        slow = self.slow
        if slow.longest and self.chance.random() < slow.often:
            return self.chance.randrange(1, slow.longest)
        return 0

    def _watch(self, operation: str, path: str, done: bool) -> None:
        if self.dark:
            raise PowerCut
        if not done:
            self.operations += 1
            self.kinds[operation] = self.kinds.get(operation, 0) + 1
            self.agenda.record(f"disk {operation} {path}")
            if self.rounding and self.slow.longest:
                self._ahead += self.slowness()
        elif operation == "write" and path.endswith(".seg"):
            self.written_at = self.loop.clock() / 1_000_000
        if self.cut == (self.operations, done):
            self.cut = None
            self.cut_within = f"{'after' if done else 'before'} {operation}"
            self.dark = True
            raise PowerCut

    def power_off(self) -> None:
        self.loop.die()
        self.cut = None
        self.dark = False
        self.disk.crash(self.chance)
        self._resume()

    def kill(self) -> None:
        """Only the process ends."""
        self.loop.die()
        self.cut = None
        self.disk.heal()
        self._resume()
