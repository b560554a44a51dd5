"""`taskyard lake rebuild`: makes the other tables once more from `events`."""

import argparse
from typing import Any

from taskyard.cli.lake import add_command, add_master, add_ui
from taskyard.cli.progress import Progress


def add(commands: Any) -> None:
    made = add_command(
        commands,
        "rebuild",
        "Make jobs, open_jobs, attempts, queue_minutes and failures once more from events. "
        "Readers see the old ones until all is done.",
        "taskyard lake rebuild --lake /srv/lake",
        run=run,
    )
    add_master(made)
    add_ui(made)


def run(arguments: argparse.Namespace) -> None:
    from pathlib import Path

    from taskyard.pipeline.lake.rebuild import Rebuild
    from taskyard.pipeline.lake.snapshot import open_lake
    from taskyard.pipeline.lake.spark_tasks import SparkTasks
    from taskyard.pipeline.lake.store import Store
    from taskyard.spark import announce, session

    open_lake(arguments.lake)
    store = Store(Path(arguments.lake), "rebuilding")
    try:
        spark = session(arguments.master, name="taskyard lake rebuild", ui=arguments.ui)
        announce(spark)
        try:
            with Progress(
                "reading events", sum(file.rows for file in store.files("events"))
            ) as bar:

                def tell(done: int, total: int) -> None:
                    bar.done = done

                total = Rebuild(SparkTasks(spark), store, tell).run()
        finally:
            spark.stop()
    finally:
        store.close()
    print(f"made of {total:,} events")
