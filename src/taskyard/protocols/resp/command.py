"""A command as it stands in the table, and those that wait between MULTI and EXEC."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from taskyard.broker.metrics import CommandStats
from taskyard.protocols.resp.frames import ARG_OVERHEAD

if TYPE_CHECKING:
    from taskyard.protocols.resp.connection import RespConnection

MAX_TRANSACTION_COMMANDS: Final = 10_000  # commands between MULTI and EXEC, unless it is configured
MAX_TRANSACTION_BYTES: Final = 64 * 1_048_576  # of them, and of the replies to them in one go
# that they may have on an average: a push of many values is much to do too
MAX_AVERAGE_ARGS: Final = 16


class RespCommand:
    """A command, its count, and how many arguments it takes with its own name."""

    def __init__(
        self,
        name: bytes,
        verb: CommandStats,
        run: Callable[[RespConnection, list[bytes]], None],
        min_args: i64,
        max_args: i64,
        immediate: bool,
        when_read_only: bool,
    ) -> None:
        self.name = name  # in upper case
        self.verb = verb
        self.run = run
        self.min_args = min_args
        self.max_args = max_args  # 0: as many as one likes
        self.immediate = immediate  # also between MULTI and EXEC
        # it can be answered although the journal cannot be written
        self.when_read_only = when_read_only

    def arity(self) -> int:
        """As Redis gives it: negative for "at least"."""
        return self.min_args if self.min_args == self.max_args else -self.min_args


class MultiTransaction:
    """Commands between MULTI and EXEC. No other client is served in between, so there is a
    bound to them. Commands that will not be executed are not kept.
    """

    def __init__(self, limit: i64) -> None:
        self.commands: list[tuple[RespCommand, list[bytes]]] = []
        self.size: i64 = 0
        # overhead bytes that were not reported to the memory limit yet
        self.unreported_bytes: i64 = 0
        self.aborted = False  # one of them cannot be executed, so none will be
        self.limit_error = ""  # says which bound they are beyond
        self._limit = limit
        self._args: i64 = 0

    def add(self, command: RespCommand, args: list[bytes]) -> None:
        if self.aborted:
            return
        self._args += len(args)
        self.unreported_bytes += len(args) * ARG_OVERHEAD
        for arg in args:
            self.size += len(arg) + ARG_OVERHEAD
        if len(self.commands) >= self._limit:
            self.limit_error = f"too much in one transaction: at most {self._limit} commands"
        elif self._args > self._limit * MAX_AVERAGE_ARGS:
            most = self._limit * MAX_AVERAGE_ARGS
            self.limit_error = f"too much in one transaction: at most {most} arguments"
        elif self.size > MAX_TRANSACTION_BYTES:
            self.limit_error = f"too much in one transaction: at most {MAX_TRANSACTION_BYTES} bytes"
        else:
            self.commands.append((command, args))
            return
        self.abort()

    def abort(self) -> None:
        self.aborted = True
        self.commands = []
        self.size = 0
