"""What RESP commands are refused with, in the words that clients of Redis know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from taskyard.engine.model.errors import (
    Draining,
    DuplicateJob,
    DuplicateKey,
    InvalidOption,
    NoSpace,
    NotLeaseholder,
    QueueFull,
    ReadOnly,
    StaleBatch,
    TaskyardError,
    TooManyWaiting,
    TransactionStepRefused,
    UidTaken,
)
from taskyard.protocols.resp.values import MAX_SHOWN_BYTES, printable
from taskyard.shared.misspelt import suggestion
from taskyard.shared.names import NAME_RULE

BAD_QUEUE: Final = f"ERR invalid queue name: it {NAME_RULE}"


def wrong_arg_count(name: bytes) -> str:
    return f"ERR wrong number of arguments for '{name.decode().lower()}' command"


def error_text(error: TaskyardError) -> str:
    if isinstance(error, InvalidOption):
        if error.option == "queue":
            return BAD_QUEUE
        return f"ERR {error.option}: {error.reason}"
    if isinstance(error, TransactionStepRefused):  # of a push of several values
        return error_text(error.cause)
    if isinstance(error, (NoSpace, QueueFull, TooManyWaiting)):
        return f"OOM {error}"
    if isinstance(error, Draining):
        return f"DRAINING {error}"
    if isinstance(error, ReadOnly):
        return f"READONLY {error}"
    if isinstance(error, DuplicateKey):
        return f"DUPLICATE {error.job_id} is a job with this key, and waits"
    if isinstance(error, DuplicateJob):
        return f"DUPLICATE {error.job_id} is a job with this uid"
    if isinstance(error, UidTaken):
        return f"UIDTAKEN {error}"
    if isinstance(error, NotLeaseholder):
        return "STALE the lease is over, or the job is gone"
    if isinstance(error, StaleBatch):
        return f"STALEBATCH {error}"
    return f"ERR {error}"


def unknown_command(args: list[bytes], commands: Iterable[bytes]) -> str:
    family, dot, _ = args[0][:MAX_SHOWN_BYTES].upper().partition(b".")
    if dot:
        ours = [name.decode() for name in commands if name.startswith(family + dot)]
        if ours:
            word = printable(args[0])
            return (
                f"ERR unknown command '{word}'{suggestion(word, ours)} There are {', '.join(ours)}"
            )
    arguments = ""
    left = MAX_SHOWN_BYTES
    for arg in args[1:]:
        if left <= 0:
            break
        word = f"'{printable(arg, left)}' "
        arguments += word
        left -= len(word.encode(errors="surrogateescape"))
    return f"ERR unknown command '{printable(args[0])}', with args beginning with: {arguments}"
