"""A command as it stands in the table, and those that wait between MULTI and EXEC."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from taskyard.broker.metrics import Verb
from taskyard.protocols.resp.frames import ARG_OVERHEAD

if TYPE_CHECKING:
    from taskyard.protocols.resp.connection import RespConnection

MAX_BATCH: Final = 10_000  # commands between MULTI and EXEC, unless it is configured
MAX_BATCH_BYTES: Final = 64 * 1_048_576  # of them, and of the replies to them in one go
ARGS_EACH: Final = 16  # that they may have on an average: a push of many values is much to do too


class Command:
    """A command, its count, and how many arguments it takes with its own name."""

    def __init__(
        self,
        name: bytes,
        verb: Verb,
        run: Callable[[RespConnection, list[bytes]], None],
        least: i64,
        most: i64,
        at_once: bool,
        always: bool,
    ) -> None:
        self.name = name  # in upper case
        self.verb = verb
        self.run = run
        self.least = least
        self.most = most  # 0: as many as one likes
        self.at_once = at_once  # also between MULTI and EXEC
        self.always = always  # it can be answered although the journal cannot be written

    def arity(self) -> int:
        """As Redis gives it: negative for "at least"."""
        return self.least if self.least == self.most else -self.least


class Batch:
    """Commands between MULTI and EXEC, of which nobody else is served in between: so there is a
    bound to them. What will not be carried out is not kept."""

    def __init__(self, limit: i64) -> None:
        self.commands: list[tuple[Command, list[bytes]]] = []
        self.size: i64 = 0
        self.untold: i64 = 0  # bytes of it beside the arguments' own, that nobody was told of
        self.broken = False  # one of them cannot be carried out, so none will be
        self.too_much = ""  # says which bound they are beyond
        self._limit = limit
        self._args: i64 = 0

    def add(self, command: Command, args: list[bytes]) -> None:
        if self.broken:
            return
        self._args += len(args)
        self.untold += len(args) * ARG_OVERHEAD
        for arg in args:
            self.size += len(arg) + ARG_OVERHEAD
        if len(self.commands) >= self._limit:
            self.too_much = f"too much in one transaction: at most {self._limit} commands"
        elif self._args > self._limit * ARGS_EACH:
            most = self._limit * ARGS_EACH
            self.too_much = f"too much in one transaction: at most {most} arguments"
        elif self.size > MAX_BATCH_BYTES:
            self.too_much = f"too much in one transaction: at most {MAX_BATCH_BYTES} bytes"
        else:
            self.commands.append((command, args))
            return
        self.give_up()

    def give_up(self) -> None:
        self.broken = True
        self.commands = []
        self.size = 0
