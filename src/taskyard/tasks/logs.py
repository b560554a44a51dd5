"""The log of `taskyard work`, the same in the processes that it starts."""

from __future__ import annotations

import logging
import sys
from typing import Final, NamedTuple

from taskyard.shared.escaping import escape_unsafe_lines


class LogSetup(NamedTuple):
    level: int
    formatter: logging.Formatter  # is pickled for processes


class SafeFormatter(logging.Formatter):
    """Spells out what could act on a terminal: errors and names are those of others' jobs."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(escape_unsafe_lines(super().format(record)))


_PLAIN: Final = SafeFormatter("%(asctime)s %(levelname)s %(message)s")
_configured: list[LogSetup] = []


def configure(level: int, formatter: logging.Formatter = _PLAIN) -> None:
    """A program that has handlers of its own keeps them, and the level of all that is not ours."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("taskyard").setLevel(level)
    _configured.append(LogSetup(level, formatter))


def configured() -> LogSetup | None:
    """What to configure in processes; None: nothing, since the program does that itself."""
    return _configured[-1] if _configured else None
