"""The exception that a run ended with: in words, without our own frames, and in other processes."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable
from typing import Final

_MAX_TRACE_CHARS: Final = 16_384  # characters
_MAX_PICKLE_BYTES: Final = 65_536  # bytes
# What stands between a pool and the function that it runs.
_INTERNAL_PATHS: Final = (
    os.path.join(os.path.dirname(os.path.dirname(__file__)), ""),
    os.path.join(os.path.dirname(os.__file__), "asyncio", ""),
)


class RemoteError(Exception):
    """In place of an exception that could not be brought here from the process that it was in."""


class RemoteTraceback(Exception):
    """The traceback of another process as text: the cause of the exception that came from there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class Cause:
    """An exception for the log.

    Frames cannot be sent to another process. There it is the same exception, with its traceback as
    the text of a RemoteTraceback that it is chained to; or a RemoteError if it cannot be pickled.
    """

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Callable[[bytes, str, str], Cause], tuple[bytes, str, str]]:
        known = self.error.__traceback__ is not None
        text = "".join(traceback.format_exception(self.error)) if known else ""
        return _restore_cause, (_pickle_error(self.error), summarize_error(self.error), text)


def _pickle_error(error: BaseException) -> bytes:
    """Nothing if it cannot be read back, as with exceptions that are not made of their `args`."""
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:  # pickle raises all kinds
        return b""
    return data if len(data) <= _MAX_PICKLE_BYTES else b""


def _restore_cause(data: bytes, said: str, text: str) -> Cause:
    try:
        found = pickle.loads(data) if data else None
    except Exception:  # it is not the same here as there
        found = None
    error = found if isinstance(found, BaseException) else RemoteError(said)
    if text:
        error.__cause__ = RemoteTraceback(text)
    return Cause(error)


def trim_traceback(error: BaseException) -> BaseException:
    """The same, its traceback without the frames that lead to the function that was run."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename.startswith(_INTERNAL_PATHS):
        found = found.tb_next
    if found is not None:  # else it is from our own code, and there are no others
        error.__traceback__ = found
    return error


def summarize_error(error: BaseException) -> str:
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    said = str(error)
    return f"{name}: {said}" if said else name


def describe_error(error: BaseException) -> str:
    """Describe it in one line, and below that where it was raised."""
    trace = "".join(traceback.format_exception(error))
    return f"{summarize_error(error)}\n{trace[-_MAX_TRACE_CHARS:]}"
