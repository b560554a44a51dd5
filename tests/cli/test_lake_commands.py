"""What `taskyard lake ...` takes, refuses and prints, where that needs no Spark."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.process import ServerProcess
from support.small_lake import BEGAN, SmallLake, closed_job
from support.tool import Tool

from taskyard.cli.lake import COMMANDS, STORAGE_OPTIONS, main
from taskyard.pipeline.journal_http import ServerUnreachable
from taskyard.pipeline.lake.errors import LakeError, RecordsGone, cause_of, sentence_of
from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.views import VIEWS


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    found = SmallLake(tmp_path / "lake")
    found.fill(
        jobs=[closed_job(1), closed_job(2, outcome="succeeded", error=None, payload=b"\xff")]
    )
    return found.path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


# Help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples_and_stands_in_the_pages(name: str) -> None:
    ran = Tool("")("lake", name, "--help")
    assert f"  taskyard lake {name}" in ran.out.partition("examples:\n")[2]
    assert "--storage-option NAME=VALUE" in ran.out
    assert "==" not in ran.out  # which is what argparse is told to hide
    docs = Path(__file__).resolve().parents[2] / "docs"
    page = (docs / "lake.md").read_text() + (docs / "cli.md").read_text()
    assert f"taskyard lake {name}" in page


def test_flags_have_their_types_and_defaults() -> None:
    from taskyard.cli.lake import parser

    given = parser().parse_args(
        ["run", "--url", "http://h", "--batch", "5", "--storage-option", "a=b=c", "--follow"]
    )
    assert (given.lake, given.batch, given.storage_option) == ("lake", 5, ["a=b=c"])
    assert (given.trigger, given.patience, given.follow, given.json) == ("10s", "10m", True, False)
    given = parser().parse_args(
        ["report", "--queues", "a", "b", "--target", "a=1s", "--master", "m"]
    )
    assert (given.queues, given.target, given.until) == (["a", "b"], ["a=1s"], None)
    given = parser().parse_args(["show", "--set", "a=1", "--set", "b=2"])
    assert (given.view, given.set, given.format) == (None, ["a=1", "b=2"], "table")


# Refusals


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["run"], 2, "one of --data and --url must be given"),
        (["run", "--data", "/nowhere", "--url", "http://h"], 2, "one of --data and --url must be"),
        (["run", "--url", "http://"], 2, "--url: 'http://' is not an address"),
        (["run", "--url", "http://h", "--batch", "0"], 2, "--batch must be a number from 1 on"),
        (["run", "--data", "/nowhere", "--retention", "0"], 2, "--retention must be a number of"),
        (["run", "--data", "/nowhere"], 1, "is it a server's data directory?"),
        (["sql", "select 1", "--out", "/nowhere/x"], 2, "there is no directory /nowhere"),
        (["sql", "select 1", "--format", "parquet"], 2, "--format parquet needs --out FILE"),
        (["status"], 1, "there is no lake in "),
        (["job", "1"], 5, "there is no lake in "),
        (["erase", "--job", "1"], 1, "there is no lake in "),
        (["erase", "--job", str(1 << 63)], 2, "--job must be the number of a job"),
        (["compact"], 1, "there is no lake in "),
        (["show", "latency"], 1, "there is no lake in "),
        (["show", "latency", "--set", "by"], 2, "--set by: write NAME=VALUE"),
        (["status", "--storage-option", "secret"], 2, "--storage-option must be NAME=VALUE"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_makes_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    told: str,
) -> None:
    assert main([*arguments, "--lake", str(tmp_path / "lake")]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
    assert line.endswith((".", "?"))
    assert not line.endswith("?.")
    assert not list(tmp_path.iterdir())


def test_a_lake_that_is_damaged_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "watermark" / "_delta_log" / f"{0:020d}.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{}{")
    assert main(["status", "--lake", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "the lake cannot be read or written: " in line


def test_secrets_are_hidden_before_anything_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden: list[str] = []

    def check() -> None:
        hidden.append("check")

    monkeypatch.setattr("taskyard.cli.lake.hide_value", hidden.append)
    monkeypatch.setattr("taskyard.cli.lake.hide_password", hidden.append)
    monkeypatch.setattr("taskyard.cli.lake.check_installed", check)
    main(["status", "--lake", "none", "--storage-option", "a=b", "--url", "http://u:p@h"])
    assert hidden == ["a=b", "http://u:p@h", "check"]


def test_no_message_shows_an_option_of_storage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody answers at that address."""
    place = ["--lake", "s3://bucket/lake", "--storage-option", "aws_access_key_id=hunter2"]
    options = {
        "aws_secret_access_key": "hunter3",
        "aws_endpoint_url": "http://127.0.0.1:1",
        "aws_allow_http": "true",
        "aws_region": "x",
        "max_retries": "0",
    }
    monkeypatch.setenv(STORAGE_OPTIONS, json.dumps(options))
    assert main(["status", *place]) == 1
    told = "".join(capsys.readouterr())
    assert len(told.splitlines()) == 1
    assert "127.0.0.1:1" in told  # so it has taken them
    assert "the lake cannot be read or written: " in told
    assert told.endswith(": Connection refused (os error 111).\n")
    assert "hunter" not in told
    monkeypatch.setenv(STORAGE_OPTIONS, "hunter4")
    assert main(["status", *place]) == 2
    assert capsys.readouterr().err.endswith(f"{STORAGE_OPTIONS} must be a JSON object.\n")


# Answers


def test_an_answer_of_duckdb_in_each_form(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "select job_id, error_class, payload, finished_at from jobs order by job_id"
    asked = ("sql", query, "--engine", "duckdb", "--lake", str(lake))
    assert said(capsys, *asked, "--format", "csv").splitlines() == [
        "job_id,error_class,payload,finished_at",
        '1,TimeoutError,"{""n"":1}",2030-01-31T08:01:00+00:00',
        "2,TimeoutError,\\xff,2030-01-31T08:02:00+00:00",
    ]
    rows = [json.loads(line) for line in said(capsys, *asked, "--format", "json").splitlines()]
    assert rows[1] == {
        "job_id": 2,
        "error_class": "TimeoutError",
        "payload": "\\xff",
        "finished_at": "2030-01-31T08:02:00+00:00",
    }
    table = said(capsys, *asked).splitlines()
    assert table[0].split() == ["job_id", "error_class", "payload", "finished_at"]
    assert len(table) == 3
    out = tmp_path / "out.parquet"
    assert said(capsys, *asked, "--format", "parquet", "--out", str(out)) == ""
    assert pq.read_table(out)["job_id"].to_pylist() == [1, 2]
    assert main(["sql", "select none", "--engine", "duckdb", "--lake", str(lake)]) == 1
    assert capsys.readouterr().err.startswith("taskyard lake sql: DuckDB says: Binder Error: ")


def test_views_are_listed_and_asked(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = said(capsys, "show").splitlines()
    assert [line.split()[0] for line in listed[1:]] == list(VIEWS)
    asked = ("show", "cost", "--lake", str(lake), "--format", "csv")
    told = said(capsys, *asked, "--set", "by=name").splitlines()
    assert told[0].split(",") == list(VIEWS["cost"].columns)
    assert len(told) == 2  # jobs of one name
    assert len(said(capsys, *asked, "--set", "since=2031-01-01").splitlines()) == 1
    assert main(["show", "none", "--lake", str(lake)]) == 1
    assert "there is no view 'none'; there are " in capsys.readouterr().err


def test_small_files_are_put_together_and_payloads_erased(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SmallLake(lake).fill(jobs=[closed_job(3)])
    assert said(capsys, "compact", "--lake", str(lake)) == "2 small files were put together\n"
    told = said(capsys, "erase", "--job", "1", "--lake", str(lake), "--storage-option", "a=b")
    assert told == "the lake has no payload and no result of job 1\n"
    rows = open_lake(lake).arrow("jobs", ["job_id", "payload"]).to_pylist()
    kept = {row["job_id"]: row["payload"] for row in rows}
    assert kept == {1: None, 2: b"\xff", 3: b'{"n":3}'}
    assert len(open_lake(lake).files("jobs")) == 1


# Status


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path) as running:
        yield running


def test_how_far_a_lake_is(
    lake: Path, server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*words: str) -> Any:
        return json.loads(said(capsys, "status", "--json", "--lake", str(lake), *words))

    alone = told()
    assert (alone["lake"], alone["batch"], alone["state"]) == (str(lake), 1, None)
    assert alone["last_time"] == BEGAN.isoformat()
    assert {table["table"]: table["rows"] for table in alone["tables"]}["jobs"] == 2
    host, port = server.address("http")
    durable = told("--url", f"http://{host}:{port}")["lag_records"] - 1
    assert durable >= 0  # the lake has no record of that server's journal
    lines = said(capsys, "status", "--lake", str(lake)).splitlines()
    assert lines[:2] == ["batch: 1", "next_seq: 0"]
    assert lines[4].split() == ["table", "rows", "files", "size", "version"]


# What Spark says

STREAM = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [RUNTIME] Failed \
when Python streaming data source perform latestOffset: Traceback (most recent call last):
  File "runner.py", line 281, in main
    offset = reader.latestOffset(start_offset_dict, limit_obj)
{raised}
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: taskyard lake /lake [id = 1, runId = 2]
"""
TASK = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 31, in read
    raise RecordsRemoved(3, 5)
taskyard.journal.errors.RecordsRemoved: records 3 to 4 are not there any more
"""


def test_what_was_raised_in_a_process_of_spark_is_known_again() -> None:
    text = STREAM.format(raised="taskyard.pipeline.journal_http.ServerUnreachable: no answer: x")
    found = cause_of(text)
    assert (type(found), str(found)) == (ServerUnreachable, "no answer: x")
    found = cause_of(TASK)
    assert (type(found), str(found)) == (RecordsGone, "records 3 to 4 are not there any more")
    found = cause_of(STREAM.format(raised="OSError: [Errno 28] No space left on device"))
    assert (type(found), str(found)) == (LakeError, "[Errno 28] No space left on device")


def test_a_sentence_of_spark_has_no_code() -> None:
    text = "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `x` cannot be resolved. SQLSTATE: 42703; l"
    assert sentence_of(text) == "A column `x` cannot be resolved"
    assert sentence_of("") == "Spark gave no reason"


def test_commands_that_need_no_spark_do_not_import_it(lake: Path) -> None:
    code = (
        "import json, sys; from taskyard.cli.lake import main; "
        "codes = [main(words) for words in json.loads(sys.argv[1])]; "
        "sys.exit(any(codes) or 'pyspark' in sys.modules)"
    )
    commands = (
        ["status"],
        ["show", "latency"],
        ["report"],
        ["job", "1"],
        ["replay", "--where", "true", "--dry-run"],
        ["compact"],
        ["erase", "--job", "1"],
    )
    asked = json.dumps([[*words, "--lake", str(lake)] for words in commands])
    subprocess.run([sys.executable, "-c", code, asked], check=True, capture_output=True)
