"""`taskyard completion`: prints what makes a shell complete commands, flags and names of queues."""

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from taskyard.cli.command import command_parser, run_command
from taskyard.cli.main import COMMANDS, CommandParser
from taskyard.cli.session import Context

SHELLS: Final = ("bash", "zsh", "fish")
_QUEUES: Final = {"QUEUE"}  # the metavars of arguments that are names of queues
_FILES: Final = {"FILE", "DIR"}
# A queue may be called $(reboot), and a shell might come to expand that: only names that mean
# nothing to any of them are offered.
_ASK_SERVER: Final = (
    "command taskyard queues list --names 2>/dev/null"
    " | LC_ALL=C grep -xE '[A-Za-z0-9_.:/@%+=][A-Za-z0-9_.:/@%+=-]*'"
)
_PREAMBLE: Final = {
    "bash": f'_taskyard_queues() {{\n  compgen -W "$({_ASK_SERVER})" -- "$1"\n}}\n',
    "zsh": f'_taskyard_queues() {{\n  local -a names\n  names=(${{(f)"$({_ASK_SERVER})"}})\n'
    "  compadd -a names\n}\n",
}
_COMPLETE: Final = {
    "preamble": _PREAMBLE,
    "bash": "_taskyard_queues",
    "zsh": "_taskyard_queues",
    "fish": f"({_ASK_SERVER})",
}


def parser() -> CommandParser:
    result = command_parser(
        "completion",
        "Print a script that makes your shell complete commands, flags and names of queues.",
        'eval "$(taskyard completion bash)"      # in ~/.bashrc',
        "taskyard completion zsh > ~/.zfunc/_taskyard",
        "taskyard completion fish > ~/.config/fish/completions/taskyard.fish",
    )
    result.set_defaults(run=show)
    result.add_argument("shell", choices=SHELLS)
    return result


def main(argv: Sequence[str]) -> int:
    return run_command(parser(), argv)


def show(session: Context) -> None:
    import shtab

    shell = session.arguments.shell
    script = shtab.complete(build_full_parser(), shell)
    sys.stdout.write(script if script.endswith("\n") else f"{script}\n")


def build_full_parser() -> CommandParser:
    """All commands in one, which the command itself never needs."""
    result = CommandParser(prog="taskyard")
    commands = result.add_subparsers(metavar="COMMAND")
    for name, (module, doc) in COMMANDS.items():
        if importlib.util.find_spec(module) is None:
            continue
        own = importlib.import_module(module).parser()
        commands.add_parser(name, help=doc, parents=[own], add_help=False)
        for each in _parsers(own):
            _mark_arguments(each)
    return result


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def _mark_arguments(parser: argparse.ArgumentParser) -> None:
    import shtab

    for action in parser._actions:
        if action.metavar in _QUEUES:
            action.complete = _COMPLETE  # type: ignore[attr-defined]
        elif action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
