"""`taskyard lake erase`: removes what a job carried from the lake for good."""

import argparse
import time
from typing import Any, Final

from taskyard.cli.lake import add_command
from taskyard.cli.progress import Progress

_LOOK: Final = 0.2  # seconds between looks whether whoever writes the lake has done it


def add(commands: Any) -> None:
    made = add_command(
        commands,
        "erase",
        "Erase the payload and the result of a job from the lake for good, also from earlier "
        "versions of the tables. A lake that is being written does it after its batch.",
        "taskyard lake erase --lake /srv/lake --job 4711",
        run=run,
    )
    made.add_argument("--job", type=int, required=True, metavar="ID", help="the number of the job")


def run(arguments: argparse.Namespace) -> None:
    from taskyard.pipeline.lake.erase import Erasures, request
    from taskyard.pipeline.lake.snapshot import open_lake
    from taskyard.pipeline.lake.store import LakeInUse, Store

    lake = open_lake(arguments.lake)
    asked = request(lake.path, arguments.job)
    with Progress("erasing"):
        while asked.exists():
            try:
                store = Store(lake.path, "erasing")
            except LakeInUse:
                time.sleep(_LOOK)
                continue
            try:
                Erasures(store).carry_out()
            finally:
                store.close()
    print(f"the lake has no payload and no result of job {arguments.job}")
