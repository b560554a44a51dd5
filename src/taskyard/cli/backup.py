"""`taskyard backup`: a copy of the journal, consistent and checked, while the server goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskyard.cli.command import command_parser, run_command
from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser
from taskyard.cli.progress import ProgressBar
from taskyard.cli.session import Context
from taskyard.cli.units import counted, size

if TYPE_CHECKING:
    from taskyard.backup.backup import BackupSource
    from taskyard.backup.manifest import Manifest


def parser() -> CommandParser:
    result = command_parser(
        "backup",
        "Copy what a server needs to go on into a new directory, while it runs: all that had "
        "happened up to one moment, and nothing after it. The copy is checked as a start would do "
        "it before it gets its name. `taskyard restore` makes a data directory of it.",
        "taskyard backup /backup/taskyard-$(date +%F)",
        "taskyard backup /backup/monday --url taskyards://:TOKEN@queue.example.org",
        "taskyard backup /backup/monday --data /var/lib/taskyard",
        run=backup,
    )
    result.add_argument("directory", metavar="DIRECTORY", help="where to; it must not exist yet")
    result.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="copy from this data directory on this machine, whether a server has it or not",
    )
    result.add_argument("--http", metavar="URL", help="the HTTP listener, if not where it says")
    return result


def main(argv: Sequence[str]) -> int:
    return run_command(parser(), argv)


def backup(session: Context) -> None:
    from taskyard.backup.restore import create_directory
    from taskyard.journal.errors import JournalError

    path = Path(session.arguments.directory)
    began = time.monotonic()
    try:
        with create_directory(path) as disk:
            manifest = _copy(session, disk)
    except JournalError as error:
        raise CommandFailed(f"{error}.") from error
    spent = time.monotonic() - began
    session.out.print_result(
        {"directory": str(path), **describe_manifest(manifest), "seconds": round(spent, 3)},
        f"{path}: {summary(manifest)}.",
    )


def _copy(session: Context, disk: Any) -> Manifest:
    from taskyard.backup.backup import make_backup

    if session.arguments.data is not None:
        return _make_backup(_from_files(session.arguments.data), disk, make_backup)
    from taskyard.cli.backup_source import ServerSource

    with ServerSource(session, session.arguments.http) as source:
        return _make_backup(source, disk, make_backup)


def _make_backup(source: BackupSource, disk: Any, make: Any) -> Manifest:
    with ProgressBar("copying") as progress:

        def more(copied: int) -> None:
            progress.done += copied

        manifest: Manifest = make(source, disk, time.time_ns() // 1000, more)
    return manifest


def _from_files(data: Path) -> BackupSource:
    from taskyard.backup.backup import DirectorySource
    from taskyard.journal.disk import RealDisk

    if not (data / "journal").is_dir():
        raise CommandFailed(f"there is no journal in {data}.")
    return DirectorySource(RealDisk(str(data)))


def describe_manifest(manifest: Manifest) -> dict[str, Any]:
    """Of a backup, for programs."""
    return {
        "records": manifest.records,
        "jobs": manifest.jobs,
        "bytes": manifest.bytes,
        "segments": len(manifest.segments),
        "first_seq": manifest.first_seq,
        "last_seq": manifest.last_seq,
        "timeline": manifest.timeline,
        "made": manifest.made,
        "version": manifest.version,
    }


def summary(manifest: Manifest) -> str:
    """The same for people."""
    return (
        f"{counted(manifest.jobs, 'job')}, {counted(manifest.records, 'record')} up to number "
        f"{manifest.last_seq}, {size(manifest.bytes)}, timeline {manifest.timeline}"
    )
