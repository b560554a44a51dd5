"""A table's Delta log on disk: what is in it for good, and what a loss of power leaves of it."""

import json
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, PostCommitHookProperties

from taskyard.pipeline.lake.disk import private, sync_file

# Checkpoints are made here: delta-rs would remove what they stand for before they are on disk.
NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
INTERVAL: Final = 50  # commits from one checkpoint to the next
_LOG: Final = "_delta_log"
_POINTER: Final = "_last_checkpoint"


def sync_commit(root: Path, version: int) -> None:
    log = root / _LOG
    sync_file(log / f"{version:020d}.json")
    sync_file(log)
    if not version:  # the table is new, and so are its directories
        sync_file(root)
        sync_file(root.parent)


def checkpoint_now_and_then(root: Path, table: DeltaTable) -> None:
    version = table.version()
    if not version or version % INTERVAL:
        return
    with private():
        table.create_checkpoint()
    log = root / _LOG
    for path in (*log.glob(f"{version:020d}.checkpoint*.parquet"), log / _POINTER, log):
        sync_file(path)
    table.cleanup_metadata()


def drop_torn(root: Path) -> None:
    """What was being written when the power went may be there without its content."""
    log = root / _LOG
    for entry in sorted(log.glob("*.json"))[-1:]:
        if not _is_commit(entry):
            entry.unlink()
    checkpoints = sorted(log.glob("*.checkpoint*.parquet"))
    if checkpoints and not _is_parquet(checkpoints[-1]):
        checkpoints[-1].unlink()
        (log / _POINTER).unlink(missing_ok=True)
    pointer = log / _POINTER
    if pointer.exists() and not _is_commit(pointer):
        pointer.unlink()


def _is_commit(entry: Path) -> bool:
    try:
        lines = entry.read_text().splitlines()
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
    except ValueError:
        return False


def _is_parquet(path: Path) -> bool:
    try:
        pq.read_metadata(path)
    except pa.ArrowInvalid:
        return False
    return True
