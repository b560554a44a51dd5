"""The rate of a queue after a replay from the middle: leases and pops of unknown jobs count."""

import pytest
from engine.harness import ORIGIN, OWNER, Bench
from support.batches import lease_all

from taskyard.engine.model.job import SECOND
from taskyard.engine.model.queue import QueueSettings


@pytest.mark.parametrize("how", ["lease", "batch", "pop"])
def test_starts_of_unknown_jobs_move_the_rate_of_their_queue(how: str) -> None:
    bench = Bench()
    bench.engine.create_queue("before", QueueSettings(), ORIGIN, bench.now)
    for _ in range(3):
        bench.push()
    bench.collect()
    bench.configure(settings=QueueSettings(rate_count=2, rate_period=SECOND))
    bench.collect()
    start = bench.frames[-1].base  # behind the pushes, and with the rate
    if how == "lease":
        bench.engine.fetch(bench.fetch_request(owner=OWNER), bench.now)
    elif how == "batch":
        lease_all(bench.engine, "c", 1, [b"q"], 2, 0, ORIGIN, bench.now)
    else:
        bench.engine.pop(b"q", False, ORIGIN, bench.now)
    rate = bench.queue().theoretical_arrival_ns
    assert rate > 0
    assert bench.replay(start).queues[b"q"].theoretical_arrival_ns == rate
