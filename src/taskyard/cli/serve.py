"""`taskyard serve`: reads the settings and runs the server."""

import argparse
import os
import sys
from collections.abc import Sequence

from taskyard.cli.main import CommandParser, ExamplesFormatter
from taskyard.server.settings.schema import ConfigError, Option, Settings, load_settings, options


def main(argv: Sequence[str]) -> int:
    flags = vars(parser().parse_args(argv))
    try:
        settings = load_settings(flags, os.environ)
    except ConfigError as error:
        print(f"taskyard serve: {error}", file=sys.stderr)
        return 2
    return _serve(settings)


def parser() -> CommandParser:
    """Flags are taken as texts here; load_settings reads them, as it does the other sources."""
    result = CommandParser(
        prog="taskyard serve",
        description="Run the server. Each flag can also be given as a TASKYARD_* variable or as a "
        "key of the TOML file; flags win over variables, those over the file.",
        epilog="examples:\n  taskyard serve --data /var/lib/taskyard\n"
        "  taskyard serve --config taskyard.toml --log-format json",
        usage="%(prog)s [--help] [--FLAG VALUE]...",
        formatter_class=ExamplesFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    for option in options():
        result.add_argument(
            option.flag,
            dest=option.name,
            metavar=option.kind.metavar,
            nargs=None if option.kind.value_without_argument is None else "?",
            const=option.kind.value_without_argument,
            help=_help(option),
        )
    return result


def _help(option: Option) -> str:
    default = f" (default {option.default})" if option.default else ""
    return f"{option.doc}{default}".replace("%", "%%")


def _serve(settings: Settings) -> int:
    # Imported late: a refused setting or --help needs neither the event loop nor the engine.
    from taskyard.server import logs
    from taskyard.server.app import serve

    logs.configure(style=settings.log_format, level=settings.log_level)
    return serve(settings)
