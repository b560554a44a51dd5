"""`taskyard lake status`: how far a lake is and how large."""

import argparse
import json
import sys
from typing import Any

from taskyard.cli.lake import add_command
from taskyard.cli.table import Column, print_table
from taskyard.cli.units import size
from taskyard.escaping import safe


def add(commands: Any) -> None:
    made = add_command(
        commands,
        "status",
        "Show how far the lake is, and its tables.",
        "taskyard lake status --lake /srv/lake",
        run=run,
    )
    made.add_argument("--json", action="store_true", help="as one JSON object")


def run(arguments: argparse.Namespace) -> None:
    from pathlib import Path

    from taskyard.pipeline.lake.look import describe

    told = describe(Path(arguments.lake))
    if arguments.json:
        print(json.dumps(told))
        return
    for name in ("state", "batch", "next_seq", "last_time", "lag_records", "events_per_second"):
        print(f"{name}: {'-' if told[name] is None else told[name]}")
    if told["error"]:
        print(safe(f"error: {told['error']}"))
    columns = [
        Column("table", lambda row: row["table"]),
        Column("rows", lambda row: f"{row['rows']:,}", right=True),
        Column("files", lambda row: row["files"], right=True),
        Column("size", lambda row: size(row["bytes"]), right=True),
        Column("version", lambda row: row["version"], right=True),
    ]
    print_table(columns, told["tables"], sys.stdout)
