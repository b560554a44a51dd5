"""Files that are on disk for good when they are said to be."""

import json
import os
from pathlib import Path
from typing import Any


def sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def save_json(path: Path, value: Any, durable: bool = True) -> None:
    """There as a whole or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(json.dumps(value))
        if durable:
            sync_file(aside)
        aside.replace(path)
    except BaseException:  # no space, say
        aside.unlink(missing_ok=True)
        raise
    if durable:
        sync_file(path.parent)


def load_json(path: Path) -> Any:
    """None: it is not there."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
