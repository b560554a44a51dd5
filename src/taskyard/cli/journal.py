"""`taskyard journal`: checks the journal of a data directory, or repairs it."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from taskyard.cli.journal_stat import figures
from taskyard.cli.main import CommandParser, ExamplesFormatter
from taskyard.cli.progress import ProgressBar
from taskyard.engine.model.state import EngineSettings, State
from taskyard.engine.records.describe import describe
from taskyard.journal.disk import RealDisk
from taskyard.journal.errors import JournalCorrupt, JournalError
from taskyard.journal.format import segment_names
from taskyard.journal.identity import (
    IDENTITY,
    JOURNAL,
    BadIdentity,
    DirectoryLock,
    Identity,
    is_locked,
    load_identity,
)
from taskyard.journal.reader import JournalEntry, JournalReader
from taskyard.journal.recovery import GarbageCollectionPaused, Recovery, SegmentReport
from taskyard.journal.repair import (
    CheckpointPlan,
    JournalStats,
    RepairPlan,
    execute_repair,
    plan_repair,
)
from taskyard.shared.escaping import escape_unsafe

# How often a damage is checked that a running server may just be writing over.
READ_ONLY_COMMANDS: Final = 3


def main(argv: Sequence[str]) -> int:
    arguments = parser().parse_args(argv)
    try:
        _require_journal(arguments.data)
        code: int = arguments.run(arguments)
    except (JournalError, OSError) as error:
        print(f"taskyard journal: {error}", file=sys.stderr)
        return 1
    return code


def parser() -> CommandParser:
    result = CommandParser(
        prog="taskyard journal",
        description="Look at the journal of a data directory, or repair it.",
        epilog="examples:\n  taskyard journal check --data /var/lib/taskyard\n"
        "  taskyard journal dump --from 1000 --to 2000 | jq .",
        formatter_class=ExamplesFormatter,
        allow_abbrev=False,
    )
    commands = result.add_subparsers(metavar="COMMAND", required=True, dest="command")

    def add(name: str, run: Callable[[argparse.Namespace], int], doc: str) -> Any:
        command = commands.add_parser(name, help=doc, description=doc, allow_abbrev=False)
        command.add_argument(
            "--data", type=Path, default=Path("data"), help="the data directory (default ./data)"
        )
        command.set_defaults(run=run)
        return command

    add("check", check, "verify every frame and replay all records")
    stat_parser = add("stat", stat, "count segments, records and jobs")
    stat_parser.add_argument("--json", action="store_true", help="as one JSON object")
    dump_parser = add("dump", dump, "print records as lines of JSON")
    dump_parser.add_argument(
        "--from", type=int, default=0, metavar="SEQ", dest="first", help="first record"
    )
    dump_parser.add_argument("--to", type=int, metavar="SEQ", dest="last", help="last record")
    dump_parser.add_argument(
        "--payloads", action="store_true", help="with payloads, results, errors and values"
    )
    dump_parser.add_argument(
        "--carries", action="store_true", help="with what compaction has only written forward"
    )
    repair_parser = add("repair", repair, "keep all before a damage, move the rest aside")
    repair_parser.add_argument("--yes", action="store_true", help="do it, do not only say what")
    return result


def _require_journal(data: Path) -> None:
    if not (data / JOURNAL).is_dir():
        raise JournalError(f"there is no journal in {data}")


def _identity(disk: RealDisk) -> Identity:
    identity = load_identity(disk)
    if identity is None:
        raise BadIdentity("is missing")
    return identity


def _progress(directory: RealDisk, *, streaming: bool = False) -> ProgressBar:
    return ProgressBar("reading segments", len(segment_names(directory)), streaming=streaming)


def _entries(
    reader: JournalReader, directory: RealDisk, from_seq: int, carries: bool
) -> Iterator[JournalEntry]:
    """All records from `from_seq` on, with progress."""
    begins = [header.first_seq for header in reader.segments(from_seq)]
    with _progress(directory, streaming=True) as progress:
        for entry in reader.read(from_seq, carries):
            while begins and entry.seq >= begins[0]:
                begins.pop(0)
                progress.step()
            yield entry


def check(arguments: argparse.Namespace) -> int:
    """Print one line a segment, then the verdict; a running server is read beside."""
    live = is_locked(str(arguments.data))
    disk = RealDisk(str(arguments.data))
    seen: list[SegmentReport] = []
    try:
        recovery, survey = _recover(disk, live, seen)
    except JournalCorrupt:
        for segment in seen:
            _print_segment(segment)
        raise
    for segment in survey.retained:
        _print_segment(segment, "  retained for readers")
    for segment in recovery.segments:
        _print_segment(segment)
    print(
        f"intact: {len(recovery.segments)} segments, "
        f"{sum(segment.records for segment in recovery.segments)} records, "
        f"timeline {recovery.identity.timeline.hex()}"
    )
    if live:
        print("a server is writing it: what it writes now was not looked at")
    elif recovery.torn_at:
        print(
            f"torn tail: {recovery.torn_bytes} bytes at {recovery.torn_at}; "
            "nobody was told of them, the next start cuts them off"
        )
    for damage in survey.damage:
        print(f"{damage}: only readers want it, the server starts without it")
    return 1 if survey.damage else 0


def _recover(
    disk: RealDisk, live: bool, seen: list[SegmentReport]
) -> tuple[Recovery, JournalStats]:
    """Replay the journal and count what is in it, reading only.

    A damage beside a server must show more than once, and a segment that it removes meanwhile is a
    reason to start again. `seen`: the segments up to the damage, if there is one.
    """
    looks = READ_ONLY_COMMANDS if live else 1
    while True:
        directory = disk.directory(JOURNAL)
        progress = _progress(directory)
        recovery = Recovery(directory, _identity(disk), State(EngineSettings()), progress.step)
        try:
            with GarbageCollectionPaused(), progress:
                recovery.run()
            survey = JournalStats(directory, recovery, _positions(recovery.state))
            survey.collect()
        except (JournalCorrupt, FileNotFoundError):  # compaction may have removed a segment
            looks -= 1
            if looks:
                continue
            seen += recovery.segments
            raise
        return recovery, survey


def _positions(state: State) -> list[int]:
    return [reader.next_seq for reader in state.readers.values()]


def _print_segment(segment: SegmentReport, note: str = "") -> None:
    records = (
        f"records {segment.first_seq} to {segment.last_seq()}" if segment.records else "no records"
    )
    print(f"{segment.name}  {segment.end} bytes  {segment.frames} frames  {records}{note}")


def stat(arguments: argparse.Namespace) -> int:
    data = arguments.data
    disk = RealDisk(str(data))
    recovery, survey = _recover(disk, is_locked(str(data)), [])
    found = figures(disk.directory(JOURNAL), recovery, survey, time.time_ns() // 1000)
    if arguments.json:
        print(json.dumps(found))
    else:
        _print_figures(found, "")
    return 0


def _print_figures(found: dict[str, Any], indent: str) -> None:
    for name, figure in found.items():
        if isinstance(figure, dict):
            print(f"{indent}{name}:{'' if figure else ' -'}")
            _print_figures(figure, indent + "  ")
        else:
            print(escape_unsafe(f"{indent}{name}: {'-' if figure is None else figure}"))


def dump(arguments: argparse.Namespace) -> int:
    data = arguments.data
    directory = RealDisk(str(data)).directory(JOURNAL)
    reader = JournalReader(directory, arguments.payloads, is_locked(str(data)))
    out = sys.stdout
    try:
        for entry in _entries(reader, directory, max(arguments.first, 0), arguments.carries):
            if arguments.last is not None and entry.seq > arguments.last:
                break
            out.write(json.dumps(describe(entry.record, arguments.payloads)) + "\n")
        out.flush()
    except BrokenPipeError:
        # The reader of the output has ended; nothing more must be flushed to it at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def repair(arguments: argparse.Namespace) -> int:
    lock = DirectoryLock(str(arguments.data))
    try:
        return _repair(RealDisk(str(arguments.data)), arguments.yes)
    finally:
        lock.release()


def _repair(disk: RealDisk, confirmed: bool) -> int:
    directory = disk.directory(JOURNAL)
    with _progress(directory) as progress:
        plan = plan_repair(disk, progress.step)
    if not plan.is_needed():
        print("the journal is intact, there is nothing to repair")
        return 0
    now = time.time_ns() // 1000
    aside = f"damaged-{datetime.fromtimestamp(now / 1e6, UTC):%Y%m%dT%H%M%S.%fZ}"
    _print_plan(plan, aside)
    if not confirmed:
        print("nothing was changed; add --yes to do this")
        return 1
    execute_repair(disk, plan, aside, os.urandom, now)
    with _progress(directory) as progress:
        left = plan_repair(disk, progress.step)
    if left.is_needed():
        raise JournalError("it is still damaged; run the repair again")
    print(f"repaired; the journal goes on as timeline {_identity(disk).timeline.hex()}")
    return 0


def _print_plan(plan: RepairPlan, aside: str) -> None:
    if plan.lost_identity:
        print(f"{IDENTITY} {plan.lost_identity}: a new one is made")
        print("  uids that were derived for jobs without one will be others")
    passed = plan.skippable_damage
    if passed is not None:
        print(f"damage: {passed.file}, byte {passed.offset}: {passed.reason}")
        print("  only readers want what is there; the server will begin behind it")
    damage = plan.damage
    if damage is None:
        if passed is not None:
            print(f"kept: all up to record {plan.last_kept}, the last one")
        return
    print(f"damage: {damage.file}, byte {damage.offset}: {damage.reason}")
    print(f"kept: all up to record {plan.last_kept}")
    if plan.checkpoint_plan is not None:
        _print_closing(plan.checkpoint_plan)
    if not plan.cut and not plan.moved:
        return
    if plan.last_lost >= plan.first_lost:
        print(
            f"lost: records {plan.first_lost} to at least {plan.last_lost}, "
            f"of which {plan.readable} are readable where they are put"
        )
    else:
        print(f"lost: records from {plan.first_lost} on; how many cannot be seen")
    print(f"put into {JOURNAL}/{aside}: {plan.bytes} bytes")
    for name in [plan.cut, *plan.moved]:
        if name:
            how = f"a copy; cut at byte {damage.offset}" if name == plan.cut else "moved"
            print(f"  {name} ({how})")


def _print_closing(closing: CheckpointPlan) -> None:
    if closing.begins_in_retained:
        print(f"  the server will begin at byte {closing.start}, with what was kept for readers")
    if not closing.partial:
        return
    print(f"  all before byte {closing.start} was dropped by compaction")
    print("  what lived there is only known as far as it was written forward before the damage")
    counted = f" of the {closing.counted_jobs} that were there" if closing.counted_jobs >= 0 else ""
    print(f"  {closing.jobs} jobs{counted} are known; which others there were cannot be known")
