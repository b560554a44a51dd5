"""One Spark session for all tests of this folder."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pipeline.cluster import Cluster
from pipeline.connect import ConnectServer
from pipeline.histories import write_history
from pipeline.quick_java import quick_java
from pipeline.seaweed import S3, seaweed
from pipeline.servers import Server
from pyspark.sql import SparkSession

import taskyard.spark
from taskyard import Client
from taskyard.pipeline.lake.storage import Storage


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules without Spark come first: meanwhile another run may make what Java is quick with."""
    with_spark = {item.path for item in items if "java" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: item.path in with_spark)


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For the sessions of these tests, and of the programs that they start."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("JAVA_HOME", str(quick_java(tmp_path_factory.mktemp("java"))))
        yield


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """On two threads, with little memory and nothing left behind."""
    place: Path = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.local.dir": str(place / "local"),
        "spark.sql.streaming.pollingDelay": "20ms",
        # For some thousand rows the compilation of a query takes longer than the query.
        "spark.sql.codegen.wholeStage": "false",
    }
    session = taskyard.spark.session("local[2]", name="tests", conf=conf, ui=False)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connect(spark: SparkSession) -> Iterator[ConnectServer]:
    """A server of Spark Connect in the Java of these tests."""
    with contextlib.closing(ConnectServer(spark)) as server:
        yield server


@pytest.fixture(params=["classic", "connect"])
def any_spark(request: pytest.FixtureRequest, spark: SparkSession) -> SparkSession:
    """A session of this process, and one of Spark Connect."""
    if request.param == "classic":
        return spark
    server: ConnectServer = request.getfixturevalue("connect")
    return server.session


@pytest.fixture(scope="session")
def cluster(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Tests on it run their drivers as programs: a process can have one Spark only."""
    with contextlib.closing(Cluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with seaweed(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=["disk", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """For a lake."""
    if request.param == "disk":
        return Storage(tmp_path / "a lake")
    s3: S3 = request.getfixturevalue("s3")
    return Storage(s3.uri(tmp_path.name), s3.options)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal that nobody changes: several days of random history."""
    path = tmp_path_factory.mktemp("history")
    write_history(path, Random(11), 500)
    return path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """For a test that kills it, or looks at all of its journal."""
    with Server(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def client(shared_server: Server) -> Iterator[Client]:
    with Client(shared_server.url) as connected:
        yield connected
