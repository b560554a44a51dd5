"""The tables of a lake as one process writes them: steps that change all of them or none.

A step writes new files, then commits one table after the other through delta-rs, the watermark
last; its row names the versions of all others, and readers keep to these. What a step that was cut
off has committed is ahead of the watermark, and is undone when the lake is opened again.

Every commit carries this application's id. delta-rs refuses a commit from a table that was opened
before another commit with the same id, so two processes cannot both change a table from the same
state: the later one gets a Conflict, opens the tables anew, and makes its step again.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.files import (
    BOUNDED,
    DataFile,
    TableChange,
    data_files,
    read_files,
    remove_files,
    write_files,
)
from taskyard.pipeline.lake.snapshot import (
    Watermark,
    check_version,
    last_watermark,
    read_watermarks,
)
from taskyard.pipeline.lake.storage import Storage, sync
from taskyard.pipeline.lake.tables import REPLAYS, SCHEMA_VERSION, TABLES, WATERMARK, Table

T = TypeVar("T")

CHECKPOINT: Final = "_checkpoint"  # Spark's, of the query that fills the lake
REPORT: Final = "report.html"
_APPLICATION: Final = "taskyard.lake"
_ALL_TABLES: Final = (*TABLES.values(), WATERMARK)
# What stands in a lake's directory, also in that of a former version.
_FORMER_NAMES: Final = ("_work", "lock", "status.json")
_OWN_NAMES: Final = frozenset(
    (*(table.name for table in _ALL_TABLES), REPLAYS.name, CHECKPOINT, REPORT, *_FORMER_NAMES)
)
_MAX_WATERMARKS: Final = 500  # rows that are kept: a batch replaces the file that has them
_CHECKPOINT_INTERVAL: Final = 50  # commits from one checkpoint of a Delta log to the next
# Readers may still be at files that were replaced so long ago.
_SETTINGS: Final = {
    "delta.checkpointInterval": str(_CHECKPOINT_INTERVAL),
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 15 minutes",
    "delta.enableExpiredLogCleanup": "true",
}
# Checkpoints are made here: delta-rs would remove what they stand for before they are on disk,
# and before the watermark names their version.
_NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_UNSYNCED: Final = 2  # commits of a table that may not be on the disk: a vacuum makes so many
_MAX_TRIES: Final = 20  # of a step, while another process changes the lake
_ORPHANED_HOURS: Final = 24  # after which a file that no commit refers to is nobody's any more


class Conflict(Exception):
    """Another process has changed the lake since its tables were opened."""


class LakeInUse(LakeError):
    """Another process writes the lake."""

    def __init__(self, storage: Storage, next_seq: int) -> None:
        super().__init__(
            f"another process fills the lake in {storage.uri}: it has committed the records before "
            f"{next_seq} meanwhile; one process at a time can do that"
        )


class Store:
    """All tables of a lake, opened to be written."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.watermark: Watermark | None = None
        self._tables: dict[str, DeltaTable] = {}
        self._files: dict[str, dict[str, DataFile]] = {}
        self._watermark_rows: list[dict[str, Any]] = []
        self._is_passed = False  # another process was here behind the last commit of this one
        self.attempt = ""  # a part of the names of the files that it writes
        self._reopen()

    # Looking

    @property
    def id(self) -> str:
        """No other lake has it, but a copy of this one."""
        return str(self._tables["events"].metadata().id)

    @property
    def next_step(self) -> int:
        return self.watermark.step + 1 if self.watermark is not None else 1

    @property
    def next_seq(self) -> int:
        """The first record that is not in the lake; 0: it has none."""
        return self.watermark.next_seq if self.watermark is not None else 0

    def files(self, name: str) -> list[DataFile]:
        return list(self._files[name].values())

    def read(self, name: str) -> Any:
        return read_files(self.storage, TABLES[name], self.files(name))

    # Changing

    def write(self, name: str, rows: Any, kind: str = "") -> list[DataFile]:
        """Write rows into files of the next step; `kind` becomes a part of their names."""
        files: list[DataFile] = write_files(
            self.storage, TABLES[name], self.next_step, rows, f"{kind}{self.attempt}"
        )
        return files

    def run_step(self, work: Callable[[], T], tries: int = _MAX_TRIES) -> T:
        """Do work that makes a step, and do it again if another process was faster."""
        for _ in range(tries):
            self.attempt = f"{uuid.uuid4().hex[:8]}-"
            step = self.next_step
            try:
                return work()
            except Conflict:
                pass
            except Exception:
                if not self._is_behind():
                    raise
                # Else files that it was to read may have been removed: see purge.
            self._reopen()
            self._remove_attempt(step)
        raise LakeInUse(self.storage, self.next_seq)

    def _remove_attempt(self, step: int) -> None:
        """Remove what has been written for a step that was refused, on executors too.

        Another process may have erased meanwhile what it was made of.
        """
        for table in TABLES.values():
            remove_files(self.storage, table, step, self._files[table.name], self.attempt)

    def _is_behind(self) -> bool:
        """Whether another process has changed the lake since it was opened."""
        mark = last_watermark(self.storage)
        return mark is not None and mark.step >= self.next_step

    def apply(self, changes: dict[str, TableChange], **mark: Any) -> None:
        """Commit one step; raises Conflict. `mark` is what the watermark says otherwise."""
        step = self.next_step
        for name in TABLES:
            change = changes.get(name)
            if change is not None and (change.add or change.remove):
                self._commit(TABLES[name], step, change)
        self._commit_watermark(mark)

    def _commit(self, table: Table, step: int, change: TableChange) -> None:
        if self._is_passed:
            raise Conflict
        transaction = Transaction(_APPLICATION, step)
        try:
            _commit(self.storage, table, self._tables[table.name], change, transaction)
        except CommitFailedError as error:
            raise Conflict from error
        files = self._files[table.name]
        for file in change.remove:
            files.pop(file.path, None)
        files.update({file.path: file for file in change.add})

    def _commit_watermark(self, mark: dict[str, Any]) -> None:
        old = self.watermark
        row = {
            "batch": old.batch if old else 0,
            "timeline": old.timeline if old else "",
            "next_seq": old.next_seq if old else 0,
            "last_time": old.last_time if old else None,
            "versions": {name: self._tables[name].version() for name in TABLES},
            **mark,
            "step": self.next_step,
            "schema_version": SCHEMA_VERSION,
            "written_at": datetime.now(UTC),
        }
        row["versions"] = json.dumps(row["versions"])
        rows = [*self._watermark_rows[1 - _MAX_WATERMARKS :], row]
        data = pa.Table.from_pylist(rows, schema=WATERMARK.schema)
        added = write_files(self.storage, WATERMARK, row["step"], data)
        self._commit(WATERMARK, row["step"], TableChange(added, self.files(WATERMARK.name)))
        self._watermark_rows = rows
        self.watermark = Watermark.of_row(row)
        # This step is committed. But another one may be, too, since: then nothing that was opened
        # may be used for the next.
        newest = self._tables[WATERMARK.name].transaction_version(_APPLICATION)
        self._is_passed = newest != row["step"]

    # Opening

    def _reopen(self) -> None:
        for _ in range(_MAX_TRIES):
            with contextlib.suppress(Conflict):
                return self._open()
        raise LakeError(f"other processes change the lake in {self.storage.uri} all the time")

    def _open(self) -> None:
        self._check_ours()
        self.storage.make_directory(_OWN_NAMES)
        if self.storage.path is not None:
            for table in (*_ALL_TABLES, REPLAYS):
                _remove_torn_files(self.storage.path / table.name / "_delta_log")
        found = {table.name: _find_table(self.storage, table) for table in _ALL_TABLES}
        known = last_watermark(self.storage)
        if known is None:
            self._check_begun(found)
        else:
            check_version(self.storage, known.schema_version)
        self._tables = {
            table.name: found[table.name] or _make_table(self.storage, table)
            for table in _ALL_TABLES
        }
        self._files = {
            table.name: data_files(self._tables[table.name], table) for table in _ALL_TABLES
        }
        marks = read_watermarks(self.storage, self._tables[WATERMARK.name]).to_pylist()
        self._watermark_rows = sorted(marks, key=lambda row: int(row["step"]))
        self.watermark = Watermark.of_row(self._watermark_rows[-1]) if marks else None
        self._is_passed = False
        self._undo_unfinished()

    def _check_ours(self) -> None:
        root = self.storage.path
        if root is None or (root / WATERMARK.name).is_dir():
            return
        for table in _ALL_TABLES:
            if (root / table.name).exists() and not (root / table.name / "_delta_log").is_dir():
                raise LakeError(
                    f"{root} is no lake, but has something named {table.name} in it; name an "
                    "empty directory"
                )

    def _check_begun(self, found: dict[str, DeltaTable | None]) -> None:
        """Whether tables that are there without a watermark are of a first step that was cut off.

        All that other tables have got would be undone like such a step.
        """
        for table in _ALL_TABLES:
            delta = found[table.name]
            if delta is None:
                continue
            names = [each.name for each in delta.schema().fields]
            begun = 1 if delta.transaction_version(_APPLICATION) == 1 else 0
            if names != table.schema.names or delta.version() > begun:
                raise LakeError(
                    f"{self.storage.uri} is no lake, but has a table named {table.name}; name an "
                    "empty directory"
                )

    def _undo_unfinished(self) -> None:
        """Put back the tables that are ahead of the watermark.

        Whoever has committed them may still be alive. So a step of the watermark comes first: the
        other process can then not finish what is undone here. Readers stay where they are.
        """
        changes = {name: self._change_to_watermark(name) for name in TABLES}
        if not any(change.add or change.remove for change in changes.values()):
            return
        self._commit_watermark({"versions": {name: self._readers_version(name) for name in TABLES}})
        self.apply(changes)

    def _readers_version(self, name: str) -> int:
        """The version of a table that readers are at."""
        return self.watermark.versions.get(name, 0) if self.watermark is not None else 0

    def _change_to_watermark(self, name: str) -> TableChange:
        """What leads from the newest version of a table back to that of the watermark."""
        version = self._readers_version(name)
        if self._tables[name].version() == version:
            return TableChange()
        wanted = data_files(self.storage.table(name, version), TABLES[name])
        found = self._files[name]
        return TableChange(
            [file for path, file in wanted.items() if path not in found],
            [file for path, file in found.items() if path not in wanted],
        )

    # Keeping in order

    def vacuum(self) -> None:
        """Remove files that were replaced a quarter of an hour ago, and files of steps that never
        came to their end after a day."""
        for table in _ALL_TABLES:
            self._vacuum(table, None)
            self._vacuum(table, _ORPHANED_HOURS, full=True)
        self._commit_watermark({})  # or the versions it names would be forgotten after a day

    def purge(self) -> None:
        """Remove all files that are no part of the tables, at once.

        Other processes may be writing files of a step that they have not committed. The claim makes
        that step fail, and files of later steps are left alone.
        """
        self._commit_watermark({})
        claimed = self.next_step - 1
        for table in _ALL_TABLES:
            self._vacuum(table, 0)
            remove_files(self.storage, table, claimed, self._files[table.name])
        self._commit_watermark({})

    def _vacuum(self, table: Table, hours: int | None, full: bool = False) -> None:
        delta = self._tables[table.name]
        known = delta.version()
        with self.storage.private():
            try:
                delta.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=full)
            except CommitFailedError as error:
                raise Conflict from error
            delta.update_incremental()
        _sync_log(self.storage, table.name, delta, known)
        if data_files(delta, table).keys() != self._files[table.name].keys():
            raise Conflict  # another process has begun a step: no watermark may name that version


def append_once(storage: Storage, table: Table, rows: Any, application: str) -> None:
    """Add rows to a table that is no part of the lake's steps, unless this was done before."""
    delta = _find_table(storage, table) or _make_table(storage, table)
    if delta.transaction_version(application) is None:
        change = TableChange(write_files(storage, table, 0, rows))
        _commit(storage, table, delta, change, Transaction(application, 1))


def _find_table(storage: Storage, table: Table) -> DeltaTable | None:
    with contextlib.suppress(TableNotFoundError):
        return storage.table(table.name)
    return None


def _make_table(storage: Storage, table: Table) -> DeltaTable:
    with storage.private():
        made = DeltaTable.create(
            storage.table_uri(table.name),
            table.schema,
            mode="ignore",
            partition_by=[table.partitioned_by] if table.partitioned_by else None,
            configuration={**_SETTINGS, **_bounded_columns(table)},
            storage_options=storage.options or None,
        )
    _sync_log(storage, table.name, made, -1)
    return made


def _commit(
    storage: Storage, table: Table, delta: DeltaTable, change: TableChange, transaction: Transaction
) -> None:
    known = delta.version()
    with storage.private():
        delta.create_write_transaction(
            change.actions(table),
            "append",
            delta.schema(),
            partition_by=[table.partitioned_by] if table.partitioned_by else None,
            commit_properties=CommitProperties(app_transactions=[transaction]),
            post_commithook_properties=_NO_HOOKS,
        )
        delta.update_incremental()
    _sync_log(storage, table.name, delta, known)


def _sync_log(storage: Storage, name: str, delta: DeltaTable, known: int) -> None:
    """Bring the commits after version `known` to a local disk.

    Now and then make a checkpoint of the log.
    """
    version = delta.version()
    is_due = max(known, 0) // _CHECKPOINT_INTERVAL < version // _CHECKPOINT_INTERVAL
    if is_due:
        with storage.private():
            delta.create_checkpoint()
    if storage.path is not None and version > known:
        log = storage.path / name / "_delta_log"
        for each in range(known + 1, version + 1):
            sync(log / f"{each:020d}.json")
        for path in log.glob(f"{version:020d}.checkpoint*.parquet") if is_due else ():
            sync(path)
        sync(log)
        if known < 0:  # the table is new, and so are its directories
            sync(log.parent)
            sync(log.parent.parent)
    if is_due:
        # What the last checkpoint but this one stands for: readers may need the rest, and so
        # does whoever undoes this commit.
        storage.table(name, version - _CHECKPOINT_INTERVAL).cleanup_metadata()


def _bounded_columns(table: Table) -> dict[str, str]:
    """Which columns have lowest and highest values for each file.

    A reader that does not know takes those of other columns for null, and finds nothing there.
    """
    names = [name for name in BOUNDED if name in table.schema.names]
    if not names:
        return {"delta.dataSkippingNumIndexedCols": "0"}
    return {"delta.dataSkippingStatsColumns": ",".join(names)}


def _remove_torn_files(log: Path) -> None:
    """Remove what was being written to a log when the power went: it may lack its content.

    What is left may be of a process that was killed before it had brought it to the disk.
    """
    newest = sorted(log.glob("*.json"))[-_UNSYNCED:]
    torn = next((n for n, entry in enumerate(newest) if not _is_json(entry)), len(newest))
    for entry in reversed(newest[torn:]):
        entry.unlink()
    for entry in newest[:torn]:
        sync(entry)
    if newest:
        sync(log)
    for entry in sorted(log.glob("*.checkpoint*.parquet"))[-1:]:
        try:
            pq.read_table(entry)
        except (pa.ArrowInvalid, OSError):
            entry.unlink()
            (log / "_last_checkpoint").unlink(missing_ok=True)
    pointer = log / "_last_checkpoint"
    if pointer.exists() and not _is_json(pointer):
        pointer.unlink()


def _is_json(path: Path) -> bool:
    try:
        lines = path.read_text().splitlines()
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
    except ValueError:
        return False
