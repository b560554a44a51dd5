"""An engine that has been in use for a while."""

from engine.harness import ORIGIN, START, Bench
from engine.scheduling import put, wish
from support.batches import lease_all

from taskyard.engine.model.job import SECOND, Notify, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.model.state import EngineSettings


def make_used_engine() -> Bench:
    """A server with something of everything in it."""
    bench = Bench(EngineSettings(finished_bytes=4 * 512))
    engine = bench.engine
    engine.open_session(1, ORIGIN, bench.now)
    engine.set_value(b"v", b"value", START + 90 * SECOND, ORIGIN, bench.now)
    engine.create_queue("q", QueueSettings(retries=3, max_jobs=999), ORIGIN, bench.now)
    put(bench, wish("nightly", cron="0 3 * * *", zone="Europe/Berlin", payload=b"x"))
    for number in range(20):
        bench.push(payload=b"x" * number, priority=number % 3, notify=Notify(1, number, 127))
        bench.now += 1
    bench.push(run_at=START + 50 * SECOND, key=b"k")
    bench.push(blocked_by=[1, 2], uid=b"u" * 16)
    for owner in (1, 2):
        bench.take(owner=owner, bound=True)
        bench.take(owner=owner)
    lease_all(engine, "c", 1, [b"q"], 2, 60 * SECOND, ORIGIN, bench.now)
    for number in range(6):
        job = bench.push("done", ttl_ms=60_000 * (number % 2), uid=bytes([number]) * 16)
        engine.complete(job.id, b"result", ORIGIN, bench.now)
    engine.fail(bench.push("dead", policy=Policy()).id, b"error", ORIGIN, bench.now)
    return bench
