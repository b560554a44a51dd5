"""The `taskyard` command: finds the sub-command and passes the rest of the line to it.

A sub-command's module is imported only when it is called, so that each starts fast.
"""

import argparse
import importlib
import itertools
import os
import re
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NoReturn

import taskyard
from taskyard.shared.misspelt import did_you_mean

# name: (module with `main(argv) -> exit code` and `parser()`, description)
COMMANDS: Final = {
    "push": ("taskyard.cli.push", "push jobs"),
    "fetch": ("taskyard.cli.fetch", "lease jobs and print them, or run a program for each"),
    "ack": ("taskyard.cli.ack", "end leased jobs with success"),
    "nack": ("taskyard.cli.nack", "end leased jobs with failure, or give them back"),
    "extend": ("taskyard.cli.extend", "keep leases for longer"),
    "result": ("taskyard.cli.result", "show how a job ended, or wait for it"),
    "jobs": ("taskyard.cli.jobs", "list the jobs of a queue"),
    "job": ("taskyard.cli.job", "show, retry, move, cancel a job"),
    "queues": ("taskyard.cli.queues", "list, show, set, delete queues"),
    "leases": ("taskyard.cli.leases", "list the jobs that are being worked on"),
    "dead": ("taskyard.cli.dead", "list, show, replay, purge dead letters"),
    "pause": ("taskyard.cli.pause", "hand out no more jobs of a queue"),
    "resume": ("taskyard.cli.resume", "hand them out again"),
    "purge": ("taskyard.cli.purge", "remove the jobs of a queue"),
    "schedules": (
        "taskyard.cli.schedules",
        "list, set, delete, pause, run schedules",
    ),
    "consumers": ("taskyard.cli.consumers", "list, show, drop consumers of batches"),
    "readers": ("taskyard.cli.readers", "list, drop readers of the journal"),
    "events": ("taskyard.cli.events", "show what happens, as it happens"),
    "top": ("taskyard.cli.top", "watch the server live"),
    "server": ("taskyard.cli.server", "show how the server is, drain it"),
    "serve": ("taskyard.cli.serve", "run the server"),
    "work": ("taskyard.cli.work", "run the tasks of an app"),
    "user": ("taskyard.cli.user", "add, change or remove users"),
    "journal": ("taskyard.cli.journal", "check, inspect or repair a journal"),
    "backup": ("taskyard.cli.backup", "copy the journal while the server runs"),
    "restore": ("taskyard.cli.restore", "make a data directory of a backup"),
    "lake": ("taskyard.cli.lake", "keep events as tables, and ask them questions"),
    "completion": ("taskyard.cli.completion", "print the completion script of a shell"),
}


class CommandParser(argparse.ArgumentParser):
    """Refuses a bad command line in one sentence, with what may have been meant."""

    other_commands: Mapping[str, str] = MappingProxyType(
        {}
    )  # options that others have: what to say

    def error(self, message: str) -> NoReturn:
        where = "" if message.endswith(")") else f" (see {self.prog} --help)"
        self.exit(2, f"{self.prog}: {_translate_message(message)}{where}\n")

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        given = list(sys.argv[1:] if args is None else args)
        self._check_options(given)
        found, rest = self.parse_known_args(given, namespace)
        if rest:
            self._exit_unknown_word(rest[0], self._chosen(given))
        return found

    def _check_options(self, given: Sequence[str]) -> None:
        """Check options first: a misspelt one may leave too much or too little of the rest."""
        if any(action.nargs == argparse.REMAINDER for action in self._actions):
            given = given[:1]  # the others are for a command
        parsers = [self, *self._commands().values()]
        known = {name for parser in parsers for name in parser._option_string_actions}
        for word in itertools.takewhile(lambda word: word != "--", given):
            if word.startswith("--") and word.partition("=")[0] not in known:
                self._exit_unknown_word(word, self._chosen(given))

    def check_command(self, word: str, default: str) -> None:
        """Check a line without a command: whether the word may be an argument of the default one.

        A misspelt command is not: it would list or show something else than was meant.
        """
        commands = self._commands()
        takes_none = not commands[default]._get_positional_actions()
        if takes_none:
            self.error(_unknown_command_error(word, list(commands)))
        if word.isalpha() and (hint := did_you_mean(word, commands, _SIMILARITY)):
            self.error(f"there is no command {word!r}{hint} (or a name: put {default} before it)")

    def _exit_unknown_word(self, word: str, where: "CommandParser") -> NoReturn:
        if not word.startswith("-") or word == "-":
            where.error(f"there is no place for {word!r}")
        option = word.partition("=")[0]
        known = [name for name in where._option_string_actions if name.startswith("--")]
        said = where.other_commands.get(option)
        hint = f" ({said})" if said else did_you_mean(option, known)
        where.error(f"there is no option {option}{hint}")

    def _commands(self) -> Mapping[str, "CommandParser"]:
        """Those below this one, by name."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                found: Mapping[str, CommandParser] = action.choices
                return found
        return {}

    def _chosen(self, given: Sequence[str]) -> "CommandParser":
        commands = self._commands()
        return next((commands[word] for word in given if word in commands), self)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        if action.metavar == "COMMAND":
            raise argparse.ArgumentError(None, _unknown_command_error(str(value), names))
        hint = did_you_mean(str(value), names)
        told = f"invalid choice: {value!r}{hint}; choose from {', '.join(names)}"
        raise argparse.ArgumentError(action, told)


_MAX_LISTED_WORDS: Final = 12  # names that an error can list
_SIMILARITY: Final = 0.75
_NOT_A_NUMBER: Final = re.compile(r"argument (.+): invalid int value: (.+)", re.DOTALL)


def _unknown_command_error(word: str, names: Sequence[str]) -> str:
    hint = did_you_mean(word, names)
    others = (
        f"; there are {', '.join(names)}" if len(names) < _MAX_LISTED_WORDS and not hint else ""
    )
    return f"there is no command {word!r}{hint}{others}"


def _translate_message(message: str) -> str:
    """What argparse says, as a sentence."""
    return _NOT_A_NUMBER.sub(r"\1 must be a whole number, not \2", message)


class _Version(argparse.Action):
    """Finds the form only when it is needed: that loads a module of the engine."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from taskyard.broker import metrics

        print(f"taskyard {taskyard.__version__} ({metrics.describe_form()})")
        parser.exit()


class Formatter(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal, as its base, which would load much to find that out."""

    def __init__(self, prog: str, **options: Any) -> None:
        options.setdefault("width", _columns() - 2)
        super().__init__(prog, **options)


def _columns() -> int:
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (ValueError, OSError):  # closed, or no terminal
        return 80


class ExamplesFormatter(Formatter):
    """Leaves the examples as they are, and fills the description."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)


def examples(*lines: str) -> str:
    """For the end of a help: whole lines for a shell."""
    return "examples:\n" + "\n".join(f"  {line}" for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    module = importlib.import_module(COMMANDS[arguments.command][0])
    code: int = module.main(arguments.arguments)
    return code


def _parser() -> CommandParser:
    listing = "\n".join(f"  {name:<10} {doc}" for name, (_, doc) in COMMANDS.items())
    parser = CommandParser(
        prog="taskyard",
        description="One durable job queue that speaks several queue protocols.",
        epilog=f"commands:\n{listing}\n\n`taskyard COMMAND --help` describes each.",
        usage="%(prog)s [--help] [--version] COMMAND ...",
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print version and form")
    parser.add_argument("command", metavar="COMMAND", choices=COMMANDS, help=argparse.SUPPRESS)
    rest = parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    rest.required = False  # or a missing command would be reported as two missing things
    return parser
