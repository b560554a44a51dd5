"""A day of a shop's queues on the real engine: quiet nights, a retry storm, an outage, slow names.

Workers take jobs as they can, so that what waits, runs and fails hangs together as it does in life.
"""

import math
from pathlib import Path
from random import Random

from pipeline.histories import HOUR, MINUTE, History

from taskyard.engine.model.job import CLIENT, MASENKO, SECOND, Job, Origin, Policy

MIDNIGHT = 1_769_990_400 * SECOND  # of a Monday, UTC
STORM = (9.5, 10.2)  # the hours in which the image store is away
OUTAGE = (14.1, 14.7)  # and in which nobody works on mail
TRIED = Policy(
    ttr=10 * MINUTE, max_fails=5, backoff=2, backoff_base=30 * SECOND, backoff_cap=4 * MINUTE
)
BURIED = Policy(ttr=5 * MINUTE, max_fails=2, dead_queue="payments.dead")
# By name: the queue, the share of all arrivals, how long one takes, how many fail, and with what.
KINDS = {
    "mail.welcome": ("mail", 0.5, 0.8, 0.01, TRIED, b"TimeoutError: no answer in 30 s"),
    "thumbnail": ("images", 0.24, 2.5, 0.02, TRIED, b"OSError: image 4711 is truncated"),
    "video.preview": ("images", 0.03, 95.0, 0.05, TRIED, b"MemoryError: 2048 MiB"),
    "charge": ("payments", 0.16, 1.5, 0.06, BURIED, b"CardDeclined: 51"),
    "report.monthly": ("reports", 0.02, 240.0, 0.02, TRIED, b"TimeoutError: no answer in 30 s"),
    "search.index": ("search", 0.05, 4.0, 0.01, TRIED, b"CardDeclined: 5"),
}
WORKERS = {"mail": 2, "images": 4, "payments": 2, "reports": 2, "search": 1}


def write_day(data: Path) -> None:
    random = Random(1)
    history = History(data, random, MIDNIGHT)
    pusher = Origin(MASENKO, "shop", "10.0.0.1:4000")
    history.push("search", "<b>markup</b>&<script>alert(1)</script>", TRIED)
    history.engine.pop(b"search", False, pusher, history.now)
    idle = {
        queue: [Origin(CLIENT, "worker", f"{queue}-{number}@host") for number in range(count)]
        for queue, count in WORKERS.items()
    }
    arrival = history.now
    running: list[tuple[int, Job, Origin]] = []
    while (hour := (history.now - MIDNIGHT) / HOUR) < 24:
        if history.now >= arrival:
            busy = 0.12 + 0.88 * max(0.0, math.sin((hour - 6) / 16 * math.pi))
            arrival = history.now + round(random.expovariate(busy / 20) * SECOND)
            name = random.choices([*KINDS], [kind[1] for kind in KINDS.values()])[0]
            history.push(KINDS[name][0], name, KINDS[name][4])
        for end, job, worker in [each for each in running if each[0] <= history.now]:
            running.remove((end, job, worker))
            queue, _, _, failing, _, error = KINDS[job.name]
            idle[queue].append(worker)
            is_stormy = queue == "images" and STORM[0] <= hour < STORM[1]
            if job.lease is None:  # it took too long
                continue
            if random.random() < (0.9 if is_stormy else failing):
                unreachable = b"ConnectionError: image store 10.0.0.7 refused"
                history.nack(job, worker, unreachable if is_stormy else error)
            else:
                history.ack(job, worker)
        for queue, workers in idle.items():
            if queue == "mail" and OUTAGE[0] <= hour < OUTAGE[1]:
                continue
            while workers and (taken := history.lease(queue, workers[-1], 1)):
                seconds = random.lognormvariate(math.log(KINDS[taken.name][2]), 0.3)
                running.append((history.now + round(seconds * SECOND), taken, workers.pop()))
        due = min((arrival, *(end for end, _, _ in running)))
        history.pass_time(max(1, due - history.now))
    history.close()
