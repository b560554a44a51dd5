"""The log of `taskyard work`, the same in the processes that it starts."""

from __future__ import annotations

import logging
import sys
from typing import Final

from taskyard.escaping import safe_lines

_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"

_configured: list[int] = []


class SafeFormatter(logging.Formatter):
    """Spells out what could act on a terminal: errors and names are those of others' jobs."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(safe_lines(super().format(record)))


def configure(level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter(_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
    _configured.append(level)


def level_for_processes() -> int:
    """What to configure there; 0: nothing, since the program does that itself."""
    return _configured[-1] if _configured else 0
