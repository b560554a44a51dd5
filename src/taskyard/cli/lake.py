"""`taskyard lake`: the journal as tables, and what can be done with them.

Each command below it is a module of its own, `taskyard.cli.lake_NAME` with `add(commands)`. None
imports Spark, Arrow or Delta before it runs: help and completion must not wait for them.
"""

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from taskyard.cli.command import complain
from taskyard.cli.failure import DONE, INTERRUPTED, PIPE_CLOSED, REFUSED, USAGE, Failure
from taskyard.cli.main import ExamplesFormatter, Parser, examples

SUBCOMMANDS: Final = (
    "run",
    "status",
    "job",
    "sql",
    "report",
    "replay",
    "compact",
    "rebuild",
    "erase",
)
_PACKAGES: Final = ("deltalake", "numpy", "pandas", "plotly", "pyarrow", "pyspark")


def parser() -> Parser:
    result = Parser(
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
    for name in SUBCOMMANDS:
        module = f"taskyard.cli.lake_{name}"
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module).add(commands)
    return result


def add_command(commands: Any, name: str, doc: str, *lines: str, run: Any) -> Parser:
    """For the modules of the commands: one that knows `--lake` and calls `run(arguments)`."""
    made: Parser = commands.add_parser(
        name,
        help=doc[0].lower() + doc.partition(".")[0][1:],
        description=doc,
        epilog=examples(*lines),
        formatter_class=ExamplesFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "--lake", metavar="DIR", default="lake", help="the lake's directory (default ./lake)"
    )
    made.set_defaults(run=run)
    return made


def add_master(parser: Parser) -> None:
    parser.add_argument(
        "--master", metavar="M", help="where Spark runs (default local[*]: in this process)"
    )


def add_ui(parser: Parser) -> None:
    parser.add_argument(
        "--ui",
        action="store_true",
        help="let Spark show what it does on a page of its own, to all who reach its port",
    )


def check_out(out: Path) -> None:
    """Before the work, not after it."""
    if out.is_dir():
        raise Failure(f"{out} is a directory: name a file with --out.", USAGE)
    if not out.parent.is_dir():
        raise Failure(f"there is no directory {out.parent} to write {out.name} into.", USAGE)


def main(argv: Sequence[str]) -> int:
    arguments = parser().parse_args(argv)
    name = f"taskyard lake {arguments.command}"
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except Failure as failure:
        return complain(name, str(failure), failure.code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return PIPE_CLOSED
    except OSError as error:
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return complain(name, f"{text}.", REFUSED)
    return code


def _run(arguments: argparse.Namespace) -> int:
    _require_packages()
    from deltalake.exceptions import DeltaError
    from pyarrow import ArrowException

    from taskyard.journal.errors import JournalError
    from taskyard.pipeline.lake.errors import LakeError

    try:
        return int(arguments.run(arguments) or DONE)
    except (LakeError, JournalError) as error:
        raise Failure(_sentence(str(error))) from error
    except (DeltaError, ArrowException) as error:
        raise Failure(f"the lake cannot be read or written: {_last_line(str(error))}.") from error
    except Exception as error:
        if not _is_of_spark(error):
            raise
        raise Failure(f"Spark says: {_last_line(str(error))}.") from error


def _is_of_spark(error: Exception) -> bool:
    """Without an import of what some commands never need, and others wait a second for."""
    errors = sys.modules.get("pyspark.errors")
    return errors is not None and isinstance(error, errors.PySparkException)


def _require_packages() -> None:
    for name in _PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise Failure(
                f"the data pipeline needs `pip install taskyard[spark]` ({name} is not installed)."
            )


def _sentence(text: str) -> str:
    return text if text.endswith(("?", ".")) else f"{text}."


def _last_line(text: str) -> str:
    """Of a traceback, what it comes to; of an error of SQL, what it begins with."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return "nothing"
    return (lines[-1] if "Traceback" in text else lines[0]).rstrip(".")
