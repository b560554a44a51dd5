"""The `taskyard` command: finds the sub-command and hands the rest of the line to it.

A sub-command's module is imported only when it is called, so that each starts fast.
"""

import argparse
import importlib
from collections.abc import Sequence
from typing import Final, NoReturn

import taskyard

# name: (module with `main(argv) -> exit code`, description)
COMMANDS: Final = {
    "serve": ("taskyard.cli.serve", "run the server"),
    "user": ("taskyard.cli.user", "add, change or remove users"),
    "journal": ("taskyard.cli.journal", "check, inspect or repair a journal"),
}


class Parser(argparse.ArgumentParser):
    """Refuses a bad command line in one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    module = importlib.import_module(COMMANDS[arguments.command][0])
    code: int = module.main(arguments.arguments)
    return code


def _parser() -> Parser:
    listing = "\n".join(f"  {name:<10} {doc}" for name, (_, doc) in COMMANDS.items())
    parser = Parser(
        prog="taskyard",
        description="One durable job queue that speaks several queue protocols.",
        epilog=f"commands:\n{listing}\n\n`taskyard COMMAND --help` describes each.",
        usage="%(prog)s [--help] [--version] COMMAND ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"taskyard {taskyard.__version__}")
    parser.add_argument("command", metavar="COMMAND", choices=COMMANDS, help=argparse.SUPPRESS)
    rest = parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    rest.required = False  # or a missing command would be reported as two missing things
    return parser
