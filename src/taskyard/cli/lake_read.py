"""Commands that read a lake: `taskyard lake status`, `job`, `show`, `sql` and `report`."""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from taskyard.cli.failure import CommandFailed
from taskyard.cli.lake import open_storage
from taskyard.cli.progress import ProgressBar
from taskyard.cli.table import Column, print_table
from taskyard.cli.text import escape_unsafe
from taskyard.cli.units import size
from taskyard.shared.error_line import error_line
from taskyard.shared.exit_codes import NOTHING, UNREACHABLE, USAGE
from taskyard.shared.text import parse_duration

if TYPE_CHECKING:
    from taskyard.pipeline.lake.snapshot import Lake

_REPORT: Final = "report.html"
_STATUS: Final = (
    *("state", "batch", "next_seq", "last_time", "written_at", "lag_records", "events_per_second"),
    *("error", "ui"),
)
# What a server that fills a lake knows of that.
_SERVER_FIGURES: Final = (
    *("state", "pid", "lag_records", "lag_seconds", "events_per_second", "error", "ui"),
)
_LARGE: Final = 1e5  # numbers below it have six digits in a table; other formats have all
_DAYS: Final = re.compile(r"([0-9]+)d")
_NOT_FOUND: Final = 404
_HIDDEN_COLUMNS: Final = (
    frozenset(  # of an event: what is the same in all of them, or stands elsewhere
        ["time", "event", "seq", "part", "job_id", "uid", "payload_size", "details", "error_line"]
    )
)


def _column(name: str, *, right: bool = False, flexible: bool = False) -> Column:
    def text(row: Any) -> object:
        value = row.get(name)
        return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else value

    return Column(name, text, right=right, flexible=flexible)


# status


def run_status(arguments: argparse.Namespace) -> None:
    from taskyard.pipeline.lake.snapshot import open_lake

    told = describe(open_lake(open_storage(arguments)))
    if arguments.url is not None:
        told |= _fetch_server_status(arguments.url, told["next_seq"])
    if arguments.json:
        print(json.dumps(told))
        return
    for name in _STATUS:
        if told[name] is not None:
            print(escape_unsafe(f"{name}: {told[name]}"))
    columns = [
        Column("table", lambda row: row["table"]),
        Column("rows", lambda row: f"{row['rows']:,}", right=True),
        Column("files", lambda row: row["files"], right=True),
        Column("size", lambda row: size(row["bytes"]), right=True),
        Column("version", lambda row: row["version"], right=True),
    ]
    print_table(columns, told["tables"], sys.stdout)


def describe(lake: Lake) -> dict[str, Any]:
    """Describe a lake by its tables. Only a server knows its process, and how fast that is."""
    from taskyard.pipeline.lake.tables import PUBLIC

    mark = lake.watermark
    return {
        "lake": lake.storage.uri,
        **dict.fromkeys(_SERVER_FIGURES),
        "batch": mark.batch,
        "timeline": mark.timeline,
        "next_seq": mark.next_seq,
        "last_time": mark.last_time.isoformat() if mark.last_time else None,
        "written_at": mark.written_at.isoformat() if mark.written_at else None,
        "schema_version": mark.schema_version,
        "tables": [
            {
                "table": name,
                "rows": sum(file.rows for file in lake.files(name)),
                "files": len(lake.files(name)),
                "bytes": sum(file.size for file in lake.files(name)),
                "version": mark.versions[name],
            }
            for name in PUBLIC
        ],
    }


def _fetch_server_status(url: str, next_seq: int) -> dict[str, Any]:
    """How far behind a server the lake is; and of its process, if the server fills a lake."""
    from taskyard.pipeline.journal_http import ServerHttpClient, ServerRefused, ServerUnreachable

    try:
        web = ServerHttpClient(url)
    except ValueError as error:
        raise CommandFailed(f"--url: {error}.", USAGE) from None
    told: dict[str, Any] = {}
    try:
        durable = int(web.call_json("GET", "/api/v1/journal")["durable_seq"])
        told["lag_records"] = max(0, durable + 1 - next_seq)
        found = web.call_json("GET", "/api/v1/lake")
    except ServerUnreachable as error:
        raise CommandFailed(f"{error}.", UNREACHABLE) from error
    except ServerRefused as error:
        if error.status != _NOT_FOUND:
            raise
        return told
    return told | {name: found[name] for name in _SERVER_FIGURES}


# job


def run_job(arguments: argparse.Namespace) -> None:
    from taskyard.pipeline.lake.errors import LakeError
    from taskyard.pipeline.lake.one_job import find_job
    from taskyard.pipeline.lake.snapshot import last_watermark, open_lake

    storage = open_storage(arguments)
    try:
        found = find_job(open_lake(storage), arguments.job)
    except ValueError as error:
        raise CommandFailed(f"{error}.", USAGE) from None
    except LakeError as error:
        if last_watermark(storage) is None:  # there is none yet, so that no job is in it
            raise CommandFailed(f"{error}.", NOTHING) from None
        raise
    if found is None:
        raise CommandFailed(f"the lake has no job {arguments.job}.", NOTHING)
    if arguments.json:
        print(json.dumps(found))
    else:
        _show_job(found)


def _show_job(found: dict[str, Any]) -> None:
    for run in [*found["runs"], *([found["open"]] if found["open"] else [])]:
        ended = run.get("outcome") or run.get("state")
        told = f"job {found['id']}, run {run['run']}: {run['name']} in {run['queue']}, {ended}"
        print(escape_unsafe(told))
        for name in ("uid", "pushed_at", "started_at", "finished_at", "reason", "error"):
            if run.get(name) is not None:
                print(f"  {name}: {escape_unsafe(str(run[name]))}")
    if found["attempts"]:
        print()
        columns = [
            _column("run", right=True),
            _column("attempt", right=True),
            _column("worker", flexible=True),
            _column("started_at"),
            _column("run_seconds", right=True),
            _column("outcome"),
            Column("error", lambda row: error_line(row["error"] or "") or "-", flexible=True),
        ]
        print_table(columns, found["attempts"], sys.stdout)
    print()
    columns = [_column("time"), _column("event"), Column("", _details, flexible=True)]
    print_table(columns, found["events"], sys.stdout)


def _details(event: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={value}" for name, value in event.items() if name not in _HIDDEN_COLUMNS
    )


# show and sql


def run_show(arguments: argparse.Namespace) -> None:
    from taskyard.pipeline.lake.snapshot import open_lake
    from taskyard.pipeline.views import VIEWS, ask_duckdb

    if arguments.view is None:
        columns = [_column("view"), _column("parameters", flexible=True), _column("about")]
        rows = [
            {
                "view": name,
                "parameters": " ".join(f"{key}={p.default}" for key, p in view.parameters.items()),
                "about": view.title,
            }
            for name, view in VIEWS.items()
        ]
        print_table(columns, rows, sys.stdout)
        return
    _check_answer_target(arguments)
    given = {}
    for each in arguments.set:
        name, mark, value = each.partition("=")
        if not mark:
            raise CommandFailed(f"--set {each}: write NAME=VALUE.", USAGE)
        given[name] = value
    lake = open_lake(open_storage(arguments))
    with ProgressBar("asking DuckDB"):
        answer = ask_duckdb(lake, arguments.view, given)
    _write_answer(answer, arguments)


def run_sql(arguments: argparse.Namespace) -> None:
    _check_answer_target(arguments)
    from taskyard.pipeline.lake.snapshot import open_lake

    lake = open_lake(open_storage(arguments))
    if arguments.engine == "duckdb":
        with ProgressBar("asking DuckDB"), lake.connect() as connection:
            relation = connection.sql(arguments.query)
            if relation is None:
                raise CommandFailed("that is no question: it has no rows for an answer.", USAGE)
            answer = relation.to_arrow_table()
    else:
        answer = _ask_spark(lake, arguments)
    _write_answer(answer, arguments)


def _ask_spark(lake: Lake, arguments: argparse.Namespace) -> Any:
    from taskyard.spark import session

    with ProgressBar("asking Spark"):
        spark = session(arguments.master, name="taskyard lake sql", ui=False)
        try:
            lake.create_views(spark)
            return spark.sql(arguments.query).toArrow()
        finally:
            spark.stop()


def _check_answer_target(arguments: argparse.Namespace) -> None:
    if arguments.format == "parquet" and not arguments.out:
        raise CommandFailed("--format parquet needs --out FILE.", USAGE)
    if arguments.out:
        _check_out(Path(arguments.out))


def _check_out(out: Path) -> None:
    """Before the work, not after it."""
    if out.is_dir():
        raise CommandFailed(f"{out} is a directory: name a file with --out.", USAGE)
    if not out.parent.is_dir():
        raise CommandFailed(f"there is no directory {out.parent} to write {out.name} into.", USAGE)


def _write_answer(answer: Any, arguments: argparse.Namespace) -> None:
    if arguments.format == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(answer, arguments.out, compression="zstd")
    elif arguments.out:
        with open(arguments.out, "w", encoding="utf-8", newline="") as file:
            _print(answer, arguments.format, file)
    else:
        _print(answer, arguments.format, sys.stdout)


def _print(answer: Any, form: str, file: TextIO) -> None:
    names = answer.schema.names
    if form == "csv":
        writer = csv.writer(file)
        writer.writerow(names)
        for row in _rows(answer):
            writer.writerow(["" if value is None else value for value in row])
    elif form == "json":
        for row in _rows(answer):
            print(json.dumps(dict(zip(names, row, strict=True)), default=str), file=file)
    else:
        columns = [_numbered_column(number, field) for number, field in enumerate(answer.schema)]
        print_table(columns, _rows(answer), file)


def _rows(answer: Any) -> Iterator[tuple[Any, ...]]:
    for batch in answer.to_batches():
        yield from zip(*[map(_plain, column.to_pylist()) for column in batch.columns], strict=True)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value.isoformat() if hasattr(value, "isoformat") else value


def _numbered_column(number: int, field: Any) -> Column:
    import pyarrow.types as types

    is_number = types.is_integer(field.type) or types.is_floating(field.type)

    def text(row: Any) -> object:
        value = row[number]
        if isinstance(value, float):
            return f"{value:.6g}" if abs(value) < _LARGE else f"{value:.1f}"
        return "-" if value is None else value

    return Column(field.name, text, right=is_number, flexible=not is_number)


# report


def run_report(arguments: argparse.Namespace) -> None:
    targets = [read_target(each) for each in arguments.target]
    storage = open_storage(arguments)
    if arguments.out is None and storage.path is None:
        raise CommandFailed(
            f"--out FILE must be given: {storage.uri} is not on this machine.", USAGE
        )
    out = Path(arguments.out or Path(arguments.lake) / _REPORT)
    if arguments.out is not None:
        _check_out(out)
    from taskyard.pipeline.lake.snapshot import open_lake

    lake = open_lake(storage)
    end = lake.watermark.last_time or datetime.now(UTC)
    since = read_time("--since", arguments.since, end)
    until = read_time("--until", arguments.until, end)
    if since and (until or end) <= since:
        raise CommandFailed("--since must be before --until and before the end of the lake.", USAGE)
    from taskyard.pipeline.report import STEPS, write_report

    with ProgressBar("report", STEPS) as progress:
        write_report(
            lake,
            out,
            queues=arguments.queues,
            since=since,
            until=until,
            targets=targets,
            step=progress.step,
        )
    print(f"wrote {out}", file=sys.stderr)


def read_time(flag: str, value: str | None, end: datetime) -> datetime | None:
    """A moment in UTC; a duration counts back from the end of what the lake has."""
    if value is None:
        return None
    try:
        days = _DAYS.fullmatch(value)
        if days:
            return end - timedelta(days=int(days[1]))
        if value[-1:].isalpha() and not value.upper().endswith("Z"):
            return end - timedelta(microseconds=abs(parse_duration(value)))
        found = datetime.fromisoformat(value)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise CommandFailed(
            f"{flag} {value}: not a time; write 2026-03-01, 2026-03-01T12:00 or 24h.", USAGE
        ) from None


def read_target(value: str) -> tuple[str, float]:
    queue, _, limit = value.rpartition("=")
    try:
        seconds = float(limit) if limit[-1:].isdigit() else parse_duration(limit) / 1_000_000
    except ValueError:
        seconds = -1.0
    if not queue or not 0 < seconds < float("inf"):
        raise CommandFailed(f"--target {value}: write QUEUE=TIME, such as mail=30s.", USAGE)
    return queue, seconds
