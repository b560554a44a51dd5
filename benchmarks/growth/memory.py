"""What a waiting job costs in memory when its payload is on disk only."""

from typing import Final

from benchmarks import readings, rig
from benchmarks.growth.setting import Found, Setting, say

PAYLOAD_MEMORY: Final = "1MiB"
WARM_JOBS: Final = 10_000

KINDS: Final[dict[str, rig.Dialect]] = {
    "plain, PUSH over Masenko": "masenko",
    "plain, RPUSH": "lists",
    "with uid and ttl, add over Workq": "workq",
}


def measure_memory(setting: Setting) -> Found:
    jobs = setting.part_of(0.1)
    return {"jobs": jobs, "kinds": [measure_kind(setting, kind, jobs) for kind in KINDS]}


def measure_kind(setting: Setting, kind: str, jobs: int) -> Found:
    server = setting.server("--payload-memory", PAYLOAD_MEMORY, dialect=KINDS[kind])
    with rig.scratch(setting.directory) as directory, server.run(directory) as running:
        # What the first jobs bring into memory once is not the price of a waiting job.
        setting.generator.cycles(running, setting.bulk, WARM_JOBS)
        before = readings.resident_bytes(running.pid)
        setting.generator.fill(running, setting.bulk, jobs)
        full = readings.resident_bytes(running.pid)
    bytes_a_job = (full - before) / jobs
    say(f"memory: {kind}: {bytes_a_job:,.0f} bytes a job")
    return {
        "kind": kind,
        "is_plain": KINDS[kind] != "workq",
        "bytes_before": before,
        "bytes_full": full,
        "bytes_a_job": bytes_a_job,
    }
