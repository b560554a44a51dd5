"""`taskyard restore`: makes a data directory of a backup, or only checks one."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from taskyard.cli.backup import describe_manifest, summary
from taskyard.cli.command import command_parser, run_command
from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser
from taskyard.cli.progress import ProgressBar
from taskyard.cli.session import Context
from taskyard.shared.exit_codes import USAGE


def parser() -> CommandParser:
    result = command_parser(
        "restore",
        "Make a data directory of a backup, for a server to be started on: all is as it was when "
        "the backup was made. Every byte of the backup is checked first. The directory must be "
        "new or empty.",
        "taskyard restore /backup/monday --data /var/lib/taskyard",
        "taskyard restore /backup/monday --check",
        run=restore,
        connects=False,
    )
    result.add_argument("backup", metavar="BACKUP", help="what `taskyard backup` has made")
    result.add_argument("--data", type=Path, metavar="DIR", help="the data directory to be made")
    result.add_argument("--check", action="store_true", help="check the backup, make nothing")
    return result


def main(argv: Sequence[str]) -> int:
    return run_command(parser(), argv)


def restore(session: Context) -> None:
    from taskyard.backup.errors import BadBackup
    from taskyard.journal.errors import JournalError

    arguments = session.arguments
    if (arguments.data is None) != arguments.check:
        raise CommandFailed("give either --data DIR, where to, or --check.", USAGE)
    path = Path(arguments.backup)
    try:
        if arguments.check:
            _check(session, path)
        else:
            _restore(session, path, arguments.data)
    except BadBackup as error:
        raise CommandFailed(f"{path} cannot be restored: {error}.") from error
    except JournalError as error:
        raise CommandFailed(f"{error}.") from error


def _check(session: Context, path: Path) -> None:
    from taskyard.backup.restore import check_backup, open_backup

    with ProgressBar("checking") as progress:
        manifest, _ = check_backup(open_backup(path), _counting(progress))
    found = {"backup": str(path), "intact": True, **describe_manifest(manifest)}
    session.out.print_result(found, f"{path}: intact, {summary(manifest)}.")


def _restore(session: Context, path: Path, data: Path) -> None:
    from taskyard.backup.restore import open_backup, open_empty_data
    from taskyard.backup.restore import restore as make

    backup = open_backup(path)
    with open_empty_data(data) as disk, ProgressBar("restoring") as progress:
        manifest, identity = make(
            backup, disk, os.urandom, time.time_ns() // 1000, _counting(progress)
        )
    timeline = identity.timeline.hex()
    found = {**describe_manifest(manifest), "data": str(data), "was": manifest.timeline}
    session.out.print_result(
        {**found, "timeline": timeline},
        f"{data}: {summary(manifest)}; it goes on as timeline {timeline}.",
    )


def _counting(progress: ProgressBar) -> Callable[[int], None]:
    def more(done: int) -> None:
        progress.done += done

    return more
