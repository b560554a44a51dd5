"""Asks before something is lost: on a terminal; elsewhere --yes must say so."""

import sys

from taskyard.cli.failure import INTERRUPTED, USAGE, Failure
from taskyard.cli.main import Parser
from taskyard.cli.session import Session
from taskyard.cli.style import is_terminal
from taskyard.cli.text import safe


def add_yes(parser: Parser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")


def confirm(session: Session, question: str) -> None:
    """Returns if it is to be done; `question` has no mark at its end."""
    if session.arguments.yes:
        return
    if not is_terminal(sys.stdin):
        raise Failure(f"{question}? Nothing was done: give --yes to do it without asking.", USAGE)
    session.out.flush()
    print(f"{safe(question)}? [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    if answer.strip().lower() not in {"y", "yes"}:
        raise Failure("nothing was done.", INTERRUPTED if not answer else 1)
