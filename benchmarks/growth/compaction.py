"""What compaction costs while it works: the soak's `cost`, against a server that does without."""

from typing import Final

from benchmarks import rig
from benchmarks.growth.setting import Found, Setting
from benchmarks.soak.cost import measure_cost
from benchmarks.soak.run import Setting as SoakSetting

SEGMENT_SIZE: Final = 8 * 2**20  # small, so that many come and go in a minute
DISK_LIMIT: Final = 20 * 2**30
OFF: Final = ("--compaction", "off")
PARKED_SHARE: Final = 0.005
SECONDS_A_ROUND: Final = 15.0
"""Of each `--seconds`: three servers are made ready, and then take turns at two loads."""


def measure_compaction(setting: Setting) -> Found:
    soak = SoakSetting(
        server=setting.server("--segment-size", str(SEGMENT_SIZE)),
        generator=rig.compile_generator(rig.DEFAULT_DIRECTORY),
        directory=setting.directory,
        churn=rig.Load(50, 10, setting.payload),
        dead_limit=SEGMENT_SIZE,
        disk_limit=DISK_LIMIT,
    )
    seconds = SECONDS_A_ROUND * setting.rounds * setting.seconds
    cost = measure_cost(soak, seconds, setting.part_of(PARKED_SHARE), OFF, setting.patience)
    if not cost.was_seen:
        raise rig.BenchmarkError("nothing was compacted while it was measured; give more --seconds")
    return cost.data()
