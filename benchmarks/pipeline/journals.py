"""Writes a journal of so many events with the real engine, as a busy server would have left it.

    python -m benchmarks.pipeline.journals DIR EVENTS

Jobs of ten queues are pushed, leased by fifty workers some seconds later and finished; one attempt
in twenty fails and is tried again, and a few of those fail for good.
"""

import sys
import time
from pathlib import Path
from random import Random
from typing import Final

from taskyard.engine.model.events import FetchRequest
from taskyard.engine.model.job import CLIENT, JSON, REDIS, SECOND, NewJob, Origin, Policy
from taskyard.engine.model.state import EngineSettings, State
from taskyard.engine.operations.facade import Engine
from taskyard.journal.disk import RealDisk
from taskyard.journal.identity import JournalSettings
from taskyard.journal.opening import open_journal

_START: Final = 1_770_000_000 * SECOND
_TURN: Final = 200  # jobs that are pushed, and leased, and finished, at a time
_QUEUES: Final = tuple(f"queue-{number}" for number in range(10))
_NAMES: Final = tuple(f"tasks.number_{number}" for number in range(23))
_PUSHER: Final = Origin(REDIS, "ann", "10.0.0.1:4000")
_WORKERS: Final = tuple(Origin(CLIENT, "bob", f"host-{number}/1234") for number in range(50))
_POLICY: Final = Policy(max_fails=3, backoff=1, backoff_base=SECOND)
_PAYLOAD: Final = b'{"args": [1, 2, 3], "kwargs": {"to": "somebody@example.com"}}'


def write_journal(data: Path, events: int, seed: int = 1, rate: float = 2_000.0) -> int:
    """`rate`: jobs a second of the time that the journal tells of. Gives the last record."""
    data.mkdir(parents=True, exist_ok=True)
    random = Random(seed)
    state = State(EngineSettings(payload_limit=1 << 20, default_ttr=3600 * SECOND))
    settings = JournalSettings(payload_memory=0)
    journal, _ = open_journal(RealDisk(str(data)), settings, state, _START, random.randbytes)
    engine = Engine(state, journal.records, journal.salt, random)
    engine.boot("benchmark", _START)
    now = _START
    step = int(_TURN / rate * SECOND)
    held: list[tuple[int, int]] = []
    while journal.records.next_seq <= events:
        now += step
        while 0 < engine.next_deadline(now) <= now and engine.tick(now):
            pass
        for _ in range(_TURN):
            queue = _QUEUES[random.randrange(10)]
            new = NewJob(queue, _NAMES[random.randrange(23)], _PAYLOAD, _POLICY, 0, 0, JSON)
            engine.push(new, _PUSHER, now)
        if now > _START + 2 * SECOND:
            _work(engine, held, random, now)
        engine.drain_effects()
        journal.write()
    point = journal.sync_point()
    point.run()
    journal.on_synced(point)
    journal.close()
    return int(journal.records.next_seq) - 1


def _work(engine: Engine, held: list[tuple[int, int]], random: Random, now: int) -> None:
    for _ in range(_TURN + 12):
        owner = random.randrange(50)
        take = FetchRequest([_QUEUES[random.randrange(10)].encode()], owner + 1, _WORKERS[owner])
        job = engine.fetch(take, now)
        if job is not None:
            held.append((int(job.id), owner))
    while len(held) > 4000:
        place = random.randrange(len(held))
        held[place], held[-1] = held[-1], held[place]
        job_id, owner = held.pop()
        if random.random() < 0.05:
            error = b"ValueError: %d is too much" % random.randrange(1000)
            engine.nack(job_id, owner + 1, error, _WORKERS[owner], now, -1)
        else:
            engine.ack(job_id, owner + 1, _WORKERS[owner], now)


def main() -> None:
    data, events = Path(sys.argv[1]), int(sys.argv[2])
    began = time.monotonic()
    last = write_journal(data, events)
    print(f"{last} records in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
