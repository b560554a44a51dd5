"""Asks before something is lost: on a terminal; elsewhere --yes must say so."""

import sys

from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser
from taskyard.cli.session import Context
from taskyard.cli.style import is_terminal
from taskyard.cli.text import escape_unsafe
from taskyard.shared.exit_codes import INTERRUPTED, USAGE


def add_yes(parser: CommandParser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")


def confirm(session: Context, question: str) -> None:
    """Returns if it is to be done; `question` has no mark at its end."""
    if session.arguments.yes:
        return
    if not is_terminal(sys.stdin):
        raise CommandFailed(
            f"{question}? Nothing was done: give --yes to do it without asking.", USAGE
        )
    session.out.flush()
    print(f"{escape_unsafe(question)}? [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    if answer.strip().lower() not in {"y", "yes"}:
        raise CommandFailed("nothing was done.", INTERRUPTED if not answer else 1)
