"""`taskyard lake compact`: puts small files together, and removes those that nobody needs."""

import argparse
from typing import Any

from taskyard.cli.lake import add_command, add_master
from taskyard.cli.progress import Progress


def add(commands: Any) -> None:
    made = add_command(
        commands,
        "compact",
        "Put small files together and remove those that were replaced. `run` does so by itself "
        "when there are many.",
        "taskyard lake compact --lake /srv/lake",
        run=run,
    )
    add_master(made)


def run(arguments: argparse.Namespace) -> None:
    from pathlib import Path

    from taskyard.pipeline.lake.maintain import Maintenance
    from taskyard.pipeline.lake.snapshot import open_lake
    from taskyard.pipeline.lake.spark_tasks import SparkTasks
    from taskyard.pipeline.lake.store import Store
    from taskyard.spark import session

    open_lake(arguments.lake)
    store = Store(Path(arguments.lake), "compacting")
    try:
        with Progress("compacting"):
            spark = session(arguments.master, name="taskyard lake compact", ui=False)
            try:
                count = Maintenance(SparkTasks(spark), store).compact(many=2)
            finally:
                spark.stop()
            store.sweep()
    finally:
        store.close()
    print(f"{count} small files were put together")
