"""`taskyard lake`: the journal as tables, and what can be done with them.

What a command does is `run_NAME(arguments)` of its module, imported when it is called: help and
completion must not wait for Spark, Arrow and Delta.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from taskyard.cli.ask import add_yes
from taskyard.cli.command import add_flags, print_error
from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser, ExamplesFormatter, examples
from taskyard.cli.title import hide_password, hide_value
from taskyard.shared.exit_codes import DONE, INTERRUPTED, PIPE_CLOSED, REFUSED, USAGE
from taskyard.spark import PipelineMissing, check_installed

if TYPE_CHECKING:
    from taskyard.pipeline.lake.storage import Storage

STORAGE_OPTIONS: Final = "TASKYARD_STORAGE_OPTIONS"  # in the environment: a JSON object

_ENGINES: Final = {"Spark": ("pyspark.errors", "PySparkException"), "DuckDB": ("duckdb", "Error")}


class Flag:
    """A flag or an argument of a command; `how` has further options for argparse."""

    def __init__(self, name: str, metavar: str, help: str, **how: Any) -> None:  # noqa: A002
        self.name = name
        self.options = {"metavar": metavar, "help": help, **how}


class Switch(Flag):
    def __init__(self, name: str, help: str) -> None:  # noqa: A002
        self.name = name
        self.options = {"action": "store_true", "help": help}


@dataclass(frozen=True)
class LakeCommand:
    module: str
    doc: str
    examples: tuple[str, ...]
    flags: tuple[Flag, ...]


_STORAGE: Final = (
    Flag(
        "--lake",
        "DIR",
        "the lake's directory, or its URI in an object store (default ./lake)",
        default="lake",
    ),
    Flag(
        "--storage-option",
        "NAME=VALUE",
        "how the object store is reached, such as AWS_ENDPOINT_URL=http://host:9000; may be "
        "repeated (default: what the environment says of that store, and the JSON object in "
        f"{STORAGE_OPTIONS})",
        action="append",
        default=[],
    ),
)
_URL: Final = Flag("--url", "URL", "the server's HTTP listener")
_MASTER: Final = Flag("--master", "M", "where Spark runs (default local[*]: in this process)")
_UI: Final = Switch(
    "--ui", "let Spark show what it does on a page of its own, to all who reach its port"
)
# These needed Spark once, and scripts may still say where that was to run.
_NO_SPARK: Final = (Flag("--master", "M", argparse.SUPPRESS), Switch("--ui", argparse.SUPPRESS))
_JSON: Final = Switch("--json", "as one JSON object")
_ANSWER_FLAGS: Final = (
    Flag(
        "--format",
        "FORMAT",
        "how to print it: table (default), csv, json or parquet",
        choices=("table", "csv", "json", "parquet"),
        default="table",
    ),
    Flag("--out", "FILE", "write it there, not to standard output"),
)

COMMANDS: Final = {
    "run": LakeCommand(
        "lake_run",
        "Read the journal into the lake. It goes on where it was left off, whenever and however "
        "that was.",
        (
            "taskyard lake run --data /var/lib/taskyard --lake /srv/lake",
            "taskyard lake run --url http://ann:secret@host:8080 --lake /srv/lake --follow",
            "taskyard lake run --data /var/lib/taskyard --lake s3://bucket/lake",
        ),
        (
            Flag("--data", "DIR", "the server's data directory"),
            _URL,
            _MASTER,
            _UI,
            Switch("--follow", "go on with what comes, until it is stopped"),
            Switch("--payloads", "keep payloads and results (default: left out)"),
            Flag("--batch", "N", "at most so many records at a time (default 3000000)", type=int),
            Flag(
                "--trigger",
                "TIME",
                "with --follow: how long to wait for more when it has all there is (default 10s)",
                default="10s",
            ),
            Flag(
                "--retention",
                "DAYS",
                "drop events, jobs and attempts that are older (default: kept)",
                type=int,
            ),
            Flag(
                "--reader",
                "NAME",
                "with --url: the name under which the server keeps records for it (default: lake- "
                "and the first digits of the lake's own id)",
            ),
            Flag(
                "--patience",
                "TIME",
                "with --url: how long to wait for a server that has gone (default 10m)",
                default="10m",
            ),
            Flag(
                "--checkpoint",
                "DIR",
                "where Spark keeps its checkpoint, which may be lost (default: in the lake; of one "
                "in an object store below ~/.local/state/taskyard)",
            ),
            Switch("--json", "tell how far it is in lines of JSON on standard output"),
        ),
    ),
    "status": LakeCommand(
        "lake_read",
        "Show how far the lake is, and its tables. With --url also how far that is behind the "
        "server.",
        (
            "taskyard lake status --lake /srv/lake",
            "taskyard lake status --lake /srv/lake --url http://localhost:8080",
        ),
        (_URL, _JSON),
    ),
    "job": LakeCommand(
        "lake_read",
        "Show what the lake has of one job: its runs, attempts and events. Also long after the "
        "server has forgotten it.",
        ("taskyard lake job 42 --lake /srv/lake", "taskyard lake job 42 --json | jq .events"),
        (Flag("job", "JOB", "its id, or the uid that it was pushed with"), _JSON),
    ),
    "show": LakeCommand(
        "lake_read",
        "Show one of the views on the tables: how long jobs wait, what fails, what is unusual. "
        "Without a name, list them with their parameters.",
        (
            "taskyard lake show",
            "taskyard lake show latency --lake /srv/lake",
            "taskyard lake show latency --set since=2030-01-31 --format csv",
        ),
        (
            Flag("view", "NAME", "which one", nargs="?"),
            Flag(
                "--set",
                "NAME=VALUE",
                "a parameter of the view; may be repeated",
                action="append",
                default=[],
            ),
            *_ANSWER_FLAGS,
        ),
    ),
    "sql": LakeCommand(
        "lake_read",
        "Ask the tables a question in SQL. They are events, jobs, open_jobs, attempts, "
        "queue_minutes, failures and watermark, all as they were when the last batch was finished, "
        "and replays.",
        (
            'taskyard lake sql "select outcome, count(*) from jobs group by outcome"',
            "taskyard lake sql \"select * from jobs where queue = 'mail'\" --format csv",
            'taskyard lake sql --engine duckdb "summarize attempts"',
        ),
        (
            Flag("query", "QUERY", "the question"),
            Flag(
                "--engine",
                "ENGINE",
                "who answers, each in words of its own: spark (default), or duckdb, which needs no "
                "Java and is there at once",
                choices=("spark", "duckdb"),
                default="spark",
            ),
            _MASTER,
            *_ANSWER_FLAGS,
        ),
    ),
    "report": LakeCommand(
        "lake_read",
        "Write one page with plots about what the queues did. It needs no other file and no "
        "network: mail it, print it, keep it.",
        (
            "taskyard lake report --lake /srv/lake --out report.html",
            "taskyard lake report --since 7d --queues 'mail.*' --target mail.receipts=30s",
        ),
        (
            Flag(
                "--out",
                "FILE",
                "the page (default report.html in the lake, which a server shows at /lake/report)",
            ),
            Flag(
                "--queues",
                "QUEUE",
                "only these; * and ? stand for any characters",
                nargs="+",
                action="extend",
                default=[],
            ),
            Flag(
                "--since",
                "TIME",
                "from then on: 2026-03-01, 2026-03-01T12:00, or how long before the end (24h, 7d)",
            ),
            Flag("--until", "TIME", "up to then, in the same form"),
            Flag(
                "--target",
                "QUEUE=TIME",
                "jobs of this queue (or pattern) should wait no longer: mail=30s; may be repeated",
                action="append",
                default=[],
            ),
            *_NO_SPARK,
        ),
    ),
    "replay": LakeCommand(
        "lake_write",
        "Push jobs of the lake once more, those that a condition in SQL on its table `jobs` picks. "
        "Each is pushed once, however often this is run. If some have to be left out, the exit "
        "code is 1.",
        (
            "taskyard lake replay --where \"queue = 'mail' and date >= '2030-01-31'\" --dry-run",
            "taskyard lake replay --where \"error_class = 'TimeoutError'\" --to mail.slow --yes",
        ),
        (
            Flag("--where", "SQL", "a condition on the columns of jobs", required=True),
            Flag("--to", "QUEUE", "where they go (default: each to the queue where it was)"),
            Flag(
                "--again",
                "TAG",
                "push also those that were replayed before, unless with the same tag",
                default="",
            ),
            Flag("--limit", "N", "so many at most, the oldest first", type=int),
            Switch("--dry-run", "only show how many and which"),
            *_NO_SPARK,
        ),
    ),
    "compact": LakeCommand(
        "lake_write",
        "Put small files together and remove those that were replaced. `run` does so by itself "
        "when there are many.",
        ("taskyard lake compact --lake /srv/lake",),
        _NO_SPARK,
    ),
    "rebuild": LakeCommand(
        "lake_write",
        "Make jobs, open_jobs, attempts, queue_minutes and failures once more from events. Readers "
        "see the old ones until all is done.",
        ("taskyard lake rebuild --lake /srv/lake",),
        (_MASTER, _UI),
    ),
    "erase": LakeCommand(
        "lake_write",
        "Erase the payload and the result of a job from the lake for good, also from earlier "
        "versions of the tables. The lake can be filled meanwhile.",
        ("taskyard lake erase --lake /srv/lake --job 4711",),
        (Flag("--job", "ID", "the number of the job", type=int, required=True),),
    ),
}


def parser() -> CommandParser:
    result = CommandParser(
        prog="taskyard lake",
        description="Keep the journal's events as Delta tables that every data tool can read, and "
        "ask them questions.",
        epilog=examples(
            "taskyard lake run --data /var/lib/taskyard --lake /srv/lake",
            "taskyard lake run --url http://localhost:8080 --lake /srv/lake --follow",
            'taskyard lake sql --lake /srv/lake "select queue, count(*) from jobs group by queue"',
        ),
        formatter_class=ExamplesFormatter,
        allow_abbrev=False,
    )
    commands = result.add_subparsers(metavar="COMMAND", required=True, dest="command")
    for name, command in COMMANDS.items():
        doc = command.doc
        made = commands.add_parser(
            name,
            help=doc[0].lower() + doc.partition(".")[0][1:],
            description=doc,
            epilog=examples(*command.examples),
            formatter_class=ExamplesFormatter,
            allow_abbrev=False,
        )
        for flag in (*_STORAGE, *command.flags):
            made.add_argument(flag.name, **flag.options)
        if name == "replay":
            add_yes(made)
            add_flags(made, connects=True)
    return result


def main(argv: Sequence[str]) -> int:
    arguments = parser().parse_args(argv)
    name = f"taskyard lake {arguments.command}"
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except CommandFailed as failure:
        return print_error(name, str(failure), failure.code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return PIPE_CLOSED
    except OSError as error:
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return print_error(name, f"{text}.", REFUSED)
    return code


def open_storage(arguments: argparse.Namespace) -> Storage:
    """Where the lake is. No message shows the options, which can be credentials."""
    from taskyard.pipeline.lake.storage import Storage

    options = {}
    if given := os.environ.get(STORAGE_OPTIONS):
        try:
            options = {str(key): str(value) for key, value in dict(json.loads(given)).items()}
        except (ValueError, TypeError):
            raise CommandFailed(f"{STORAGE_OPTIONS} must be a JSON object.", USAGE) from None
    for each in arguments.storage_option:
        name, mark, value = each.partition("=")
        if not (name and mark):
            raise CommandFailed("--storage-option must be NAME=VALUE.", USAGE)
        options[name] = value
    return Storage(arguments.lake, options)


def _hide_secrets(arguments: argparse.Namespace) -> None:
    """Before anything is imported, which takes seconds on a busy machine."""
    for option in arguments.storage_option:
        if "=" in option:
            hide_value(option)
    if url := getattr(arguments, "url", None):
        with contextlib.suppress(ValueError):
            hide_password(url)


def _run(arguments: argparse.Namespace) -> int:
    _hide_secrets(arguments)
    try:
        check_installed()
    except PipelineMissing as error:
        raise CommandFailed(f"{error}.") from None
    from deltalake.exceptions import DeltaError
    from pyarrow import ArrowException

    from taskyard.journal.errors import JournalError
    from taskyard.pipeline.lake.errors import LakeError, sentence_of, store_sentence

    module = importlib.import_module(f"taskyard.cli.{COMMANDS[arguments.command].module}")
    try:
        return int(getattr(module, f"run_{arguments.command}")(arguments) or DONE)
    except (LakeError, JournalError) as error:
        text = str(error)
        raise CommandFailed(text if text.endswith(("?", ".")) else f"{text}.") from error
    except (DeltaError, ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of this machine, not of an object store
        text = store_sentence(str(error))
        raise CommandFailed(f"the lake cannot be read or written: {text}.") from error
    except Exception as error:
        for name, (errors, kind) in _ENGINES.items():
            # Not imported here: some commands need none of them, and others wait a second for it.
            known = getattr(sys.modules.get(errors), kind, None)
            if known is not None and isinstance(error, known):
                raise CommandFailed(f"{name} says: {sentence_of(str(error))}.") from error
        raise
