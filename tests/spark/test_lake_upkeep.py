"""Retention, erasure, versions, readers of other makes, and what an operator is told."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, cast

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from spark.histories import write_history
from spark.lake_runs import HereTasks, read_in
from spark.oracle import Tables, compute, read_records

from taskyard.cli.main import main
from taskyard.pipeline.lake import failures, snapshot
from taskyard.pipeline.lake.erase import Erasures, request
from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.look import describe
from taskyard.pipeline.lake.maintain import Maintenance
from taskyard.pipeline.lake.rebuild import Rebuild
from taskyard.pipeline.lake.run import Options, Run, last_within
from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.lake.tables import FAILURES, TABLES, TIME
from taskyard.pipeline.ranges import Journal, JournalView, SegmentView, open_journal
from taskyard.pipeline.web import ServerUnreachable

_ROWS = pa.schema(
    [
        ("queue", pa.string()),
        ("name", pa.string()),
        ("error", pa.string()),
        ("reason", pa.string()),
        ("final", pa.bool_()),
        ("time", TIME),
        ("job_id", pa.int64()),
        ("seq", pa.int64()),
    ]
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history")
    write_history(path, Random(11), 900)
    return path


@pytest.fixture(scope="module")
def want(data: Path) -> Tables:
    return compute(read_records(data))


@pytest.fixture(scope="module")
def lake(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lake")
    read_in(data, path, batch=700)
    return path


def _succeeded(want: Tables) -> int:
    return sum(row["outcome"] == "succeeded" for row in want.jobs)


def _ask_duckdb(query: str) -> list[Any]:
    with duckdb.connect() as connection:
        return connection.execute(query).fetchall()


def test_duckdb_reads_the_tables(lake: Path, want: Tables) -> None:
    files = DeltaTable(lake / "jobs").file_uris()
    count = _ask_duckdb(
        f"select count(*) from read_parquet({files}, hive_partitioning = true) "
        "where outcome = 'succeeded' and date >= date '2026-01-01'"
    )
    assert count == [(_succeeded(want),)]


def test_pandas_reads_the_tables(lake: Path, want: Tables) -> None:
    frame = DeltaTable(lake / "jobs").to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert (frame.outcome == "succeeded").sum() == _succeeded(want)


def test_polars_reads_the_tables(lake: Path, want: Tables) -> None:
    frame = pl.scan_delta(str(lake / "queue_minutes")).collect()
    assert frame.height == len(want.queue_minutes)
    assert frame["arrivals"].sum() == sum(row["arrivals"] for row in want.queue_minutes)


@pytest.mark.parametrize("name", list(TABLES))
def test_readers_that_skip_files_find_every_row(lake: Path, name: str) -> None:
    """They look at the statistics of files, which not all columns have."""
    table = DeltaTable(lake / name)
    rows = table.to_pyarrow_table()
    looked_at = 0
    for field in rows.schema:
        values = rows[field.name].drop_null()
        if pa.types.is_nested(field.type) or not len(values):
            continue
        looked_at += 1
        wanted = values[len(values) // 2]
        count = pc.sum(pc.equal(values, wanted)).as_py()
        found = table.to_pyarrow_dataset().to_table(filter=pc.field(field.name) == wanted)
        assert (field.name, found.num_rows) == (field.name, count)
    assert looked_at


def test_delta_readers_see_types_and_statistics(lake: Path) -> None:
    table = DeltaTable(lake / "events")
    assert table.metadata().partition_columns == ["date"]
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert all(action["min.seq"] <= action["max.seq"] for action in actions)
    rows = table.to_pyarrow_table(columns=["time", "blocked_by"])
    assert rows.schema.field("time").type == pa.timestamp("us", tz="UTC")


def test_days_before_the_retention_go(data: Path, tmp_path: Path) -> None:
    read_in(data, tmp_path, batch=700, retention_days=1)
    last = open_lake(tmp_path).watermark.last_time
    assert last is not None
    store = Store(tmp_path)
    try:
        Maintenance(HereTasks(), store, retention_days=1).drop_old()
        first = (last.date() - timedelta(days=1)).isoformat()
        for name in ("events", "jobs", "attempts"):
            divisions = {file.division or "" for file in store.files(name)}
            assert divisions
            assert min(divisions) >= first
        assert min(file.division or "" for file in store.files("queue_minutes")) < first
        before = store.files("open_jobs")
        with pytest.raises(LakeError, match="were dropped"):  # it would lose open jobs
            Rebuild(HereTasks(), store).run()
        assert store.files("open_jobs") == before
        store.sweep(0)
    finally:
        store.close()
    dates = {path.parent.name for path in (tmp_path / "events").rglob("date=*/*.parquet")}
    assert min(dates) >= f"date={first}"


def test_payloads_are_left_out_unless_they_are_wanted(lake: Path) -> None:
    payloads = open_lake(lake).arrow("jobs", ["payload"])["payload"]
    assert payloads.null_count == len(payloads) > 0


def test_an_erased_payload_is_in_no_file_any_more(tmp_path: Path) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    data.mkdir()
    write_history(data, Random(4), 300)
    read_in(data, lake, payloads=True, batch=200)
    kept = open_lake(lake).arrow("jobs", ["job_id", "payload"]).to_pylist()
    (job, *others) = [row["job_id"] for row in kept if row["payload"]]
    store = Store(lake)
    try:
        request(store.path, job)
        again = next(lake.glob("jobs/*/*.parquet"))  # what a task leaves that is tried again
        again.with_name("0000000001-again.parquet").write_bytes(again.read_bytes())
        assert Erasures(store).carry_out() > 0
        assert Erasures(store).carry_out() == 0
    finally:
        store.close()
    rows = open_lake(lake).arrow("jobs", ["job_id", "payload"]).to_pylist()
    assert len(rows) == len(kept)
    assert not [row for row in rows if row["job_id"] == job and row["payload"]]
    assert {row["job_id"] for row in rows if row["payload"]} == set(others) - {job}
    for path in [*lake.glob("events/*/*.parquet"), *lake.glob("jobs/*/*.parquet")]:
        found = f"from read_parquet('{path}') where job_id = {job} and payload is not null"
        assert _ask_duckdb(f"select count(*) {found}") == [(0,)]


def test_a_lake_of_a_newer_version_is_refused(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "SCHEMA_VERSION", 0)
    with pytest.raises(LakeError, match="newer Taskyard"):
        open_lake(lake)
    with pytest.raises(LakeError, match="newer Taskyard"):
        Store(lake)


def test_no_lake_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no lake"):
        open_lake(tmp_path)


def test_what_is_said_of_a_lake(lake: Path, want: Tables) -> None:
    told = describe(lake)
    assert told["state"] == "stopped"
    assert told["lag_records"] == 0
    rows = {table["table"]: table["rows"] for table in told["tables"]}
    assert rows["jobs"] == len(want.jobs)
    assert rows["open_jobs"] == len(want.open_jobs)


def test_errors_that_all_differ_do_not_make_groups_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failures, "GROUPS", 3)
    began = datetime(2030, 1, 1, tzinfo=UTC)
    rows = [
        {
            "queue": "mail",
            "name": "send",
            "error": f"Error{'abcde'[seq % 5]}: no",
            "reason": None,
            "final": False,
            "time": began + timedelta(seconds=seq),
            "job_id": seq,
            "seq": seq,
        }
        for seq in range(20)
    ]
    table = FAILURES.schema.empty_table()
    for at in (0, 7, 14):
        table = failures.merge(
            table, failures.group(pa.Table.from_pylist(rows[at : at + 7], _ROWS))
        )
    counts = {row["error_class"]: row["count"] for row in table.to_pylist()}
    assert counts == {"Errora": 4, "Errorb": 4, "Errorc": 4, failures.REST: 8}
    (rest,) = [row for row in table.to_pylist() if row["error_class"] == failures.REST]
    assert (rest["first_seen"], rest["last_seen"]) == (rows[3]["time"], rows[19]["time"])


def test_a_follower_waits_for_a_server_that_does_not_answer(data: Path, tmp_path: Path) -> None:
    states: list[str] = []
    journal = open_journal(str(data))

    class Away:
        """Answers every other time."""

        calls = 0

        def view(self, from_seq: int = 0) -> JournalView:
            self.calls += 1
            if self.calls % 2:
                raise ServerUnreachable("no answer")
            return journal.view(from_seq)

    def stopped(seconds: float) -> bool:
        return states[-1] == "idle"

    store = Store(tmp_path)
    try:
        run = Run(
            HereTasks(),
            store,
            cast(Journal, Away()),
            Options(follow=True),
            stopped=stopped,
            report=lambda told: states.append(told["state"]),
        )
        run.run()
    finally:
        store.close()
    assert "waiting" in states
    assert describe(tmp_path)["lag_records"] == 0
    assert describe(tmp_path)["error"] is None


def test_a_batch_with_payloads_is_as_large_as_memory_bears() -> None:
    segments = (SegmentView(0, 1, 100, 10_000), SegmentView(1, 101, 200, 100_000))
    view = JournalView("", 1, 200, segments)
    assert last_within(view, 1, 200, 1 << 20) == 200
    assert last_within(view, 1, 200, 5_000) == 50
    assert last_within(view, 51, 200, 5_000 + 20_000) == 120
    assert last_within(view, 51, 90, 1 << 20) == 90
    assert last_within(view, 150, 200, 10) == 150


def test_the_name_of_a_lake_may_have_spaces(data: Path, tmp_path: Path) -> None:
    read_in(data, tmp_path / "a lake #1")
    files = open_lake(tmp_path / "a lake #1").files("jobs")
    assert files
    assert all(Path(file).is_file() for file in files)
    with pytest.raises(LakeError, match="%"):
        Store(tmp_path / "a%20lake")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run", "--url", "http://"], 2, "--url: 'http://' is not an address"),
        (["run", "--url", "http://host:99999"], 2, "is not an address like http://host:8080"),
        (["run", "--data", "/nowhere"], 1, "is it a server's data directory?"),
        (["sql", "select 1", "--out", "/nowhere/x"], 2, "there is no directory /nowhere"),
        (["status"], 1, "the lake cannot be read or written: "),
    ],
)
def test_what_cannot_be_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    damaged = tmp_path / "watermark" / "_delta_log" / f"{0:020d}.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{}{")
    assert main(["lake", *arguments, "--lake", str(tmp_path)]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert line.endswith((".", "?"))
    assert not line.endswith("?.")
