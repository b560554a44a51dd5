"""The lake on disk: its Delta tables, and steps that change all of them or none.

A step is a batch, a compaction, an erasure...: it writes new files, then says in `_work/redo.json`
what every table's commit is, then commits one table after the other, the watermark last. Whatever
was cut off before that file is there leaves only files that nobody refers to, which are removed at
the next start; what was cut off behind it is gone on with. Each commit carries the number of the
step, so that none is made twice.
"""

import contextlib
import fcntl
import json
import os
import re
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from taskyard.pipeline.lake.disk import (
    DIRECTORY,
    FILE,
    load_json,
    narrow,
    private,
    save_json,
    sync_file,
)
from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.files import BOUNDED, DataFile, TableWriter, read_files
from taskyard.pipeline.lake.log import NO_HOOKS, checkpoint_now_and_then, drop_torn, sync_commit
from taskyard.pipeline.lake.snapshot import Watermark, check_version, last_watermark
from taskyard.pipeline.lake.tables import SCHEMA_VERSION, TABLES, WATERMARK, Table

WORK: Final = "_work"
APPLICATION: Final = "taskyard.lake"
RUNNING: Final = "running"  # it reads the journal, and says in status.json how that is going
KEPT_FILES: Final = 15 * 60.0  # seconds for which readers may still be at files that were replaced
_PAUSES: Final = (0.01, 0.05, 0.1)  # seconds: who only looks has the lock for a moment
_WATERMARKS: Final = 500  # rows in a file
_SETTINGS: Final = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 1 days",
    "delta.enableExpiredLogCleanup": "true",
}


@dataclass
class Change:
    """What a step does to one table."""

    add: list[DataFile] = field(default_factory=list)
    remove: list[DataFile] = field(default_factory=list)
    same_rows: bool = False  # only in other files


class Store:
    """The lake of one process: it holds the lock."""

    def __init__(self, path: Path, doing: str = RUNNING) -> None:
        """`doing`: what it is opened for, for whoever asks meanwhile."""
        self.path = _directory(path)
        self._lock = _lock(self.path, doing)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        _check_ours(self.path)
        (self.path / WORK).mkdir(DIRECTORY, exist_ok=True)
        _narrow(self.path)
        for table in _ALL:
            drop_torn(self.path / table.name)
        known = last_watermark(self.path)
        if known is not None:
            check_version(self.path, known.schema_version)
        self._tables = {table.name: _delta(self.path, table) for table in _ALL}
        self._files = {name: _files(self._tables[name], TABLES[name]) for name in TABLES}
        self._go_on()
        self.drop_strays()
        self.watermark = last_watermark(self.path)

    def close(self) -> None:
        os.close(self._lock)

    # Looking

    @property
    def id(self) -> str:
        """No other lake has it, but a copy of this one."""
        return str(self._tables["events"].metadata().id)

    @property
    def next_step(self) -> int:
        return self.watermark.step + 1 if self.watermark is not None else 1

    def files(self, name: str) -> list[DataFile]:
        """All of a table now."""
        return list(self._files[name].values())

    def read(self, name: str) -> Any:
        return read_files(self.path, TABLES[name], self.files(name))

    # Changing

    def apply(self, changes: dict[str, Change], **mark: Any) -> None:
        """One step. `mark` is what the watermark says otherwise than before."""
        row = self._next_mark(mark)
        redo = {
            "step": row["step"],
            "at": time.time(),
            "tables": {
                name: asdict(change)
                for name, change in changes.items()
                if change.add or change.remove
            },
            "mark": row,
        }
        save_json(self.path / WORK / "redo.json", redo)
        self._commit(redo)

    def _next_mark(self, mark: dict[str, Any]) -> dict[str, Any]:
        old = self.watermark
        row = {
            "step": self.next_step,
            "batch": old.batch if old else 0,
            "timeline": old.timeline if old else "",
            "next_seq": old.next_seq if old else 0,
            "last_time": old.last_time if old else None,
            **mark,
        }
        if row["last_time"] is not None:
            row["last_time"] = row["last_time"].isoformat()
        return row

    def _go_on(self) -> None:
        """Finish the step that was cut off, if there is one."""
        redo = load_json(self.path / WORK / "redo.json")
        self.watermark = last_watermark(self.path)
        if redo is not None:
            redo["at"] = time.time()  # until now, what it replaces was what readers saw
            save_json(self.path / WORK / "redo.json", redo)
            self._commit(redo)

    def _commit(self, redo: dict[str, Any]) -> None:
        for name in TABLES:
            told = redo["tables"].get(name)
            if told is not None:
                add = [DataFile(**each) for each in told["add"]]
                remove = [DataFile(**each) for each in told["remove"]]
                self._commit_table(name, redo["step"], Change(add, remove, told["same_rows"]))
        if self.watermark is None or self.watermark.step < redo["step"]:
            self._commit_mark(redo)
        work = self.path / WORK
        (work / "redo.json").replace(work / f"done-{redo['step']:010d}.json")
        sync_file(work)

    def _commit_table(self, name: str, step: int, change: Change) -> None:
        table = self._tables[name]
        if (table.transaction_version(APPLICATION) or 0) >= step:
            return
        now = time.time_ns() // 1_000_000
        divided_by = TABLES.get(name, WATERMARK).divided_by
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                file.path,
                file.size,
                {divided_by: file.division} if divided_by else {},
                now,
                not change.same_rows,
                file.stats(),
            )
            for file in change.add
        ]
        actions += [
            RemoveAction(
                file.path,
                not change.same_rows,
                now,
                size=file.size,
                partition_values={divided_by: file.division} if divided_by else {},
            )
            for file in change.remove
        ]
        made_by = CommitProperties(app_transactions=[Transaction(APPLICATION, step)])
        with private():
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                partition_by=[divided_by] if divided_by else None,
                commit_properties=made_by,
                post_commithook_properties=NO_HOOKS,
            )
        table.update_incremental()
        sync_commit(self.path / name, table.version())
        checkpoint_now_and_then(self.path / name, table)
        if name in self._files:
            known = self._files[name]
            for file in change.remove:
                known.pop(file.path, None)
            known.update({file.path: file for file in change.add})

    def _commit_mark(self, redo: dict[str, Any]) -> None:
        mark = redo["mark"]
        last = mark["last_time"]
        row = {
            **mark,
            "last_time": datetime.fromisoformat(last) if last else None,
            "versions": json.dumps({name: self._tables[name].version() for name in TABLES}),
            "schema_version": SCHEMA_VERSION,
            "written_at": datetime.now(UTC),
        }
        newest = _newest_mark(self._tables[WATERMARK.name])
        replaced = []
        rows = [row]
        if newest is not None and newest.rows < _WATERMARKS:
            replaced = [newest]
            rows = [*read_files(self.path, WATERMARK, replaced).to_pylist(), row]
        writer = TableWriter(self.path, WATERMARK, mark["step"])
        writer.write(pa.Table.from_pylist(rows, schema=WATERMARK.schema))
        self._commit_table(WATERMARK.name, mark["step"], Change(writer.close(), replaced))
        for file in replaced:  # whoever reads the watermark begins with the newest version
            redo["tables"].setdefault(WATERMARK.name, {"remove": []})["remove"].append(asdict(file))
        save_json(self.path / WORK / "redo.json", redo)
        self.watermark = Watermark.of_row(row)

    # Tidying

    def sweep(self, older_than: float = KEPT_FILES) -> None:
        """Remove files that were replaced long enough ago for nobody to be reading them."""
        limit = time.time() - older_than
        for done in sorted((self.path / WORK).glob("done-*.json")):
            told = load_json(done)
            if told["at"] > limit:
                break
            for name, change in told["tables"].items():
                for file in change["remove"]:
                    (self.path / name / file["path"]).unlink(missing_ok=True)
            done.unlink()

    def drop_strays(self) -> None:
        """Files of a step that never was, or of a try of a task that was not the last one.

        Not while tasks are writing.
        """
        waiting = {
            (name, file["path"])
            for done in (self.path / WORK).glob("done-*.json")
            for name, change in load_json(done)["tables"].items()
            for file in change["remove"]
        }
        for table in _ALL:
            root = self.path / table.name
            if table.name in self._files:
                known = set(self._files[table.name])
            else:
                known = set(_files(self._tables[table.name], table))
            for found in root.rglob("*.parquet"):
                path = str(found.relative_to(root))
                if path.startswith("_delta_log"):
                    continue
                if path not in known and (table.name, path) not in waiting:
                    found.unlink()


_ALL: Final = (*TABLES.values(), WATERMARK)
# What stands in a lake's directory, and what is being written there to take its name.
_NAMES: Final = {*(table.name for table in _ALL), WORK, "replays", "lock", "status.json"}
_OF_OURS: Final = re.compile(r"report\.html|\.(?:report\.html|status\.json)\.\d+")


def _directory(path: Path) -> Path:
    """Where the lake is, made if it is not there."""
    if path.exists() and not path.is_dir():
        raise LakeError(f"{path} is a file; a lake is a directory")
    found = path.resolve()
    if re.search("%[0-9A-Fa-f]{2}", str(found)):
        raise LakeError(f"{found} has a % in its name, which readers of Delta tables take wrongly")
    found.parent.mkdir(parents=True, exist_ok=True)
    found.mkdir(DIRECTORY, exist_ok=True)
    return found


def _narrow(path: Path) -> None:
    """The lake's own files, and its directory unless that has files of others too."""
    found = {entry.name for entry in os.scandir(path)}
    own = {name for name in found if name in _NAMES or _OF_OURS.fullmatch(name)}
    for name in own:
        narrow(path / name)
    if own == found:
        narrow(path)


def _check_ours(path: Path) -> None:
    """What is found in the tables' directories and belongs to no table is removed."""
    if (path / WORK).is_dir() or (path / WATERMARK.name).is_dir():
        return
    for table in _ALL:
        if (path / table.name).exists():
            raise LakeError(
                f"{path} is no lake, but has something named {table.name} in it; name an empty "
                "directory"
            )


def _lock(path: Path, doing: str) -> int:
    fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE)
    for pause in (*_PAUSES, None):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if pause is None:
                writer = _writer(fd)
                os.close(fd)
                raise LakeInUse(path, writer) from error
        time.sleep(pause)
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()} {doing}\n".encode(), 0)
    return fd


@dataclass(frozen=True)
class Writer:
    """The process that has a lake."""

    pid: int | None = None  # None: it has not said so yet
    doing: str = RUNNING


def _writer(fd: int) -> Writer:
    pid, _, doing = os.pread(fd, 64, 0).decode(errors="replace").strip().partition(" ")
    return Writer(int(pid) if pid.isdigit() else None, doing or RUNNING)


def writer_of(path: Path) -> Writer | None:
    """Who has the lake now; None: nobody."""
    try:
        fd = os.open(path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _writer(fd)
    finally:
        os.close(fd)
    return None


def is_written(path: Path) -> bool:
    """Whether a process has the lake now."""
    return writer_of(path) is not None


class LakeInUse(LakeError):
    def __init__(self, path: Path, writer: Writer) -> None:
        who = f"process {writer.pid}" if writer.pid else "another process"
        super().__init__(f"{who} is writing to the lake in {path} ({writer.doing})")


def _delta(path: Path, table: Table) -> DeltaTable:
    with contextlib.suppress(TableNotFoundError):
        return DeltaTable(path / table.name)
    with private():
        made = DeltaTable.create(
            path / table.name,
            table.schema,
            partition_by=[table.divided_by] if table.divided_by else None,
            configuration={**_SETTINGS, **_with_bounds(table)},
        )
    sync_commit(path / table.name, 0)
    return made


def _with_bounds(table: Table) -> dict[str, str]:
    """Which columns have lowest and highest values for each file.

    A reader that does not know takes those of other columns for null, and finds nothing there.
    """
    names = [name for name in BOUNDED if name in table.schema.names]
    if not names:
        return {"delta.dataSkippingNumIndexedCols": "0"}
    return {"delta.dataSkippingStatsColumns": ",".join(names)}


def _files(delta: DeltaTable, table: Table) -> dict[str, DataFile]:
    """What a table consists of, by path."""
    rows = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    division = f"partition.{table.divided_by}"
    return {
        row["path"]: DataFile(
            row["path"],
            row["size_bytes"],
            None if table.divided_by is None else str(row[division]),
            row["num_records"],
            {name[4:]: row[name] for name in row if name.startswith("min.") and _is_int(row[name])},
            {name[4:]: row[name] for name in row if name.startswith("max.") and _is_int(row[name])},
        )
        for row in rows
    }


def _is_int(value: object) -> bool:
    return isinstance(value, int)


def _newest_mark(delta: DeltaTable) -> DataFile | None:
    files = _files(delta, WATERMARK).values()
    return max(files, key=lambda file: file.high.get("step", 0)) if files else None
