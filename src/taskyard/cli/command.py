"""What the commands that talk to a server share: their flags, and how each of them ends.

Each command is a module with `parser()`, whose default `run` does the work, and `main(argv)`.
"""

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

from taskyard.cli.failure import (
    DONE,
    INTERRUPTED,
    PIPE_CLOSED,
    REFUSED,
    USAGE,
    Failure,
)
from taskyard.cli.main import ExamplesFormatter, Parser, examples
from taskyard.cli.session import DEFAULT_URL, Session
from taskyard.cli.text import safe

Run: TypeAlias = Callable[[Session], int | None]


def command_parser(
    name: str, doc: str, *lines: str, run: Run | None = None, connects: bool = True
) -> Parser:
    """`doc` is one or more sentences; the lines are examples for a shell."""
    result = Parser(
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


def subcommands(parser: Parser) -> Callable[..., Parser]:
    """Gives a function that adds a command below this one: name, doc, examples, run."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True, dest="command")

    def add(name: str, doc: str, *lines: str, run: Run) -> Parser:
        made: Parser = commands.add_parser(
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


def add_flags(parser: Parser, connects: bool) -> None:
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


def default_to(
    parser: Parser, command: str, argv: Sequence[str], commands: Sequence[str]
) -> list[str]:
    """The line with `command` in front, if it names none: `queues --json` is `queues list --json`.

    A help that is asked for without one is that of all.
    """
    given = list(argv)
    if given and (given[0] in commands or given[0] in {"-h", "--help"}):
        return given
    if given and not given[0].startswith("-"):
        parser.check_command(given[0], command)
    return [command, *given]


def add_limit(parser: Parser) -> None:
    parser.add_argument(
        "--limit", type=int, default=100, metavar="N", help="how many at most (default 100)"
    )
    parser.add_argument("--all", action="store_true", help="however many there are")


def most_of(arguments: argparse.Namespace) -> int | None:
    """How many may be shown; None: all."""
    if arguments.limit < 1:
        raise Failure("--limit must be a number from 1 on.", USAGE)
    return None if arguments.all else int(arguments.limit)


def run_command(parser: Parser, argv: Sequence[str]) -> int:
    arguments = parser.parse_args(argv)
    name = parser.prog
    try:
        with Session(arguments) as session:
            code = arguments.run(session) or DONE
            session.out.flush()
    except Failure as failure:
        return complain(name, str(failure), failure.code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return PIPE_CLOSED
    except KeyError as error:
        other = f"the server's answer has no {error}; is it of another version than this command?"
        return complain(name, other, REFUSED)
    except OSError as error:
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return complain(name, f"{text}.", REFUSED)
    return int(code)


def complain(name: str, sentence: str, code: int) -> int:
    with contextlib.suppress(OSError):
        sys.stdout.flush()  # what was printed before stands before it
    with contextlib.suppress(OSError):
        print(f"{name}: {safe(sentence)}", file=sys.stderr)
    return code
