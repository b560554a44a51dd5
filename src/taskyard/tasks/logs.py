"""The log of `taskyard work`, the same in the processes that it starts."""

from __future__ import annotations

import logging
import sys
from typing import Final

_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"

_configured: list[int] = []


def configure(level: int) -> None:
    logging.basicConfig(level=level, format=_FORMAT, stream=sys.stderr)
    _configured.append(level)


def level_for_processes() -> int:
    """What to configure there; 0: nothing, since the program does that itself."""
    return _configured[-1] if _configured else 0
