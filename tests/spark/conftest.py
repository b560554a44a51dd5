"""One Spark session for all tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark.cluster import Cluster
from support.effort import LONG

import taskyard.spark

# Each takes most of a minute or more: several drivers, clusters or servers that start anew.
_FOR_LONG_RUNS = (
    "test_kills.py",
    "test_lake_beside.py",
    "test_lake_live.py",
    "test_tour.py",
    "test_workers_killed.py",
)
collect_ignore = [] if LONG else list(_FOR_LONG_RUNS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not LONG:
        terminalreporter.write_line(f"left to TEST_EFFORT=long: {', '.join(_FOR_LONG_RUNS)}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """On two threads, with little memory and nothing left behind."""
    place: Path = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.local.dir": str(place / "local"),
        "spark.sql.streaming.pollingDelay": "20ms",
    }
    session = taskyard.spark.session("local[2]", name="tests", conf=conf, ui=False)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Tests on it run their drivers as programs: a process can have one Spark only."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
