"""`taskyard lake sql`: asks the tables a question."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

from taskyard.cli.failure import USAGE, Failure
from taskyard.cli.lake import add_command, add_master, check_out
from taskyard.cli.progress import Progress
from taskyard.cli.table import Column, print_table

_FORMATS: Final = ("table", "csv", "json", "parquet")


def add(commands: Any) -> None:
    made = add_command(
        commands,
        "sql",
        "Ask the tables a question in Spark's SQL. They are events, jobs, open_jobs, attempts, "
        "queue_minutes, failures and watermark, all as they were when the last batch was finished, "
        "and replays.",
        'taskyard lake sql "select outcome, count(*) from jobs group by outcome"',
        "taskyard lake sql \"select * from jobs where queue = 'mail'\" --format csv",
        run=run,
    )
    made.add_argument("query", metavar="QUERY", help="the question")
    add_master(made)
    made.add_argument(
        "--format", choices=_FORMATS, default="table", help="how to print it (default table)"
    )
    made.add_argument("--out", metavar="FILE", help="write it there, not to standard output")


def run(arguments: argparse.Namespace) -> None:
    if arguments.format == "parquet" and not arguments.out:
        raise Failure("--format parquet needs --out FILE.", USAGE)
    if arguments.out:
        check_out(Path(arguments.out))
    from taskyard.pipeline.lake.snapshot import open_lake
    from taskyard.pipeline.lake.views import create_views
    from taskyard.spark import session

    lake = open_lake(arguments.lake)
    with Progress("asking Spark"):
        spark = session(arguments.master, name="taskyard lake sql", ui=False)
        try:
            create_views(spark, lake)
            answer = spark.sql(arguments.query).toArrow()
        finally:
            spark.stop()
    if arguments.format == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(answer, arguments.out, compression="zstd")
    elif arguments.out:
        with open(arguments.out, "w", encoding="utf-8", newline="") as file:
            _print(answer, arguments.format, file)
    else:
        _print(answer, arguments.format, sys.stdout)


def _print(answer: Any, form: str, file: Any) -> None:
    if form == "csv":
        import csv

        writer = csv.writer(file)
        writer.writerow(answer.schema.names)
        for row in _rows(answer):
            writer.writerow(["" if value is None else value for value in row])
    elif form == "json":
        for row in _rows(answer):
            named = dict(zip(answer.schema.names, row, strict=True))
            print(json.dumps(named, default=str), file=file)
    else:
        columns = [_column(number, field) for number, field in enumerate(answer.schema)]
        print_table(columns, _rows(answer), file)


def _rows(answer: Any) -> Any:
    for batch in answer.to_batches():
        yield from zip(*[map(_plain, column.to_pylist()) for column in batch.columns], strict=True)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value.isoformat() if hasattr(value, "isoformat") else value


def _column(number: int, field: Any) -> Column:
    import pyarrow.types as types

    is_number = types.is_integer(field.type) or types.is_floating(field.type)

    def text(row: Any) -> object:
        return "-" if row[number] is None else row[number]

    return Column(field.name, text, right=is_number, flexible=not is_number)
