"""One driver for each consumer: two on this machine would run the same jobs."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from taskyard.client.address import Address

_PAUSE: Final = 0.05


class Claimed(ValueError):
    """Another process has this consumer."""

    def __init__(self, consumer: str) -> None:
        super().__init__(
            f"another process on this machine has the consumer {consumer}, and would get the same "
            "jobs: give this one another name"
        )


@contextlib.contextmanager
def claim(address: Address, consumer: str) -> Iterator[None]:
    """Until the end of the block, or of the process, however that comes."""
    lock = hold(address, consumer)
    try:
        yield
    finally:
        os.close(lock)


def hold(address: Address, consumer: str, patience: float = 0.0) -> int:
    """The descriptor of a file: until that is closed, or the process ends. `patience`: how long
    to wait for who has it, in seconds.
    """
    name = hashlib.sha256(f"{address}/{address.database} {consumer}".encode()).hexdigest()[:24]
    path = Path(tempfile.gettempdir()) / f"taskyard-{os.getuid()}-{name}.lock"
    # Others can write in that directory: what stands there is neither followed nor emptied.
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= deadline:
                os.close(file)
                raise Claimed(consumer) from None
            time.sleep(_PAUSE)
        else:
            return file
