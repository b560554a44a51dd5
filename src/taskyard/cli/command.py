"""What the commands that talk to a server share: their flags, and how each of them ends.

Each command is a module with `parser()`, whose default `run` does the work, and `main(argv)`.
"""

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser, ExamplesFormatter, examples
from taskyard.cli.session import DEFAULT_URL, Context
from taskyard.cli.text import escape_unsafe
from taskyard.shared.exit_codes import DONE, INTERRUPTED, PIPE_CLOSED, REFUSED, USAGE

Run: TypeAlias = Callable[[Context], int | None]


def command_parser(
    name: str, doc: str, *lines: str, run: Run | None = None, connects: bool = True
) -> CommandParser:
    """`doc` is one or more sentences; the lines are examples for a shell."""
    result = CommandParser(
        prog=f"taskyard {name}",
        description=doc,
        epilog=examples(*lines),
        formatter_class=ExamplesFormatter,
        allow_abbrev=False,
    )
    if run is not None:
        result.set_defaults(run=run)
        add_flags(result, connects)
    return result


def subcommands(parser: CommandParser) -> Callable[..., CommandParser]:
    """Gives a function that adds a command below this one: name, doc, examples, run."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True, dest="command")

    def add(name: str, doc: str, *lines: str, run: Run) -> CommandParser:
        made: CommandParser = commands.add_parser(
            name,
            help=doc.partition(".")[0].lower(),
            description=doc,
            epilog=examples(*lines),
            formatter_class=ExamplesFormatter,
            allow_abbrev=False,
        )
        made.set_defaults(run=run)
        add_flags(made, connects=True)
        return made

    return add


def add_flags(parser: CommandParser, connects: bool) -> None:
    group = parser.add_argument_group("common options")
    if connects:
        group.add_argument(
            "--url",
            metavar="URL",
            help=f"the server (default: what TASKYARD_URL says, else {DEFAULT_URL})",
        )
        group.add_argument(
            "--timeout",
            metavar="TIME",
            default="10s",
            help="how long an answer may take (default 10s)",
        )
    group.add_argument("--json", action="store_true", help="print one JSON object a line")


def insert_default_command(
    parser: CommandParser, command: str, argv: Sequence[str], commands: Sequence[str]
) -> list[str]:
    """Insert `command` in front, if the line names none: `queues --json` is `queues list --json`.

    A help without one is that of all.
    """
    given = list(argv)
    if given and (given[0] in commands or given[0] in {"-h", "--help"}):
        return given
    if given and not given[0].startswith("-"):
        parser.check_command(given[0], command)
    return [command, *given]


def add_limit(parser: CommandParser) -> None:
    parser.add_argument(
        "--limit", type=int, default=100, metavar="N", help="how many at most (default 100)"
    )
    parser.add_argument("--all", action="store_true", help="however many there are")


def limit_of(arguments: argparse.Namespace) -> int | None:
    """How many may be shown; None: all."""
    if arguments.limit < 1:
        raise CommandFailed("--limit must be a number from 1 on.", USAGE)
    return None if arguments.all else int(arguments.limit)


def run_command(parser: CommandParser, argv: Sequence[str]) -> int:
    arguments = parser.parse_args(argv)
    name = parser.prog
    try:
        with Context(arguments) as session:
            code = arguments.run(session) or DONE
            session.out.flush()
    except CommandFailed as failure:
        return print_error(name, str(failure), failure.code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return PIPE_CLOSED
    except KeyError as error:
        other = f"the server's answer has no {error}; is it of another version than this command?"
        return print_error(name, other, REFUSED)
    except OSError as error:
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return print_error(name, f"{text}.", REFUSED)
    return int(code)


def print_error(name: str, sentence: str, code: int) -> int:
    with contextlib.suppress(OSError):
        sys.stdout.flush()  # what was printed before stands before it
    with contextlib.suppress(OSError):
        print(f"{name}: {escape_unsafe(sentence)}", file=sys.stderr)
    return code
