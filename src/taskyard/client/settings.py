"""The settings of both clients, and their defaults."""

from __future__ import annotations

import os
from typing import Final

from taskyard.client.address import SCHEME, Address

DEFAULT_URL: Final = f"{SCHEME}://localhost:8002"
URL_VARIABLE: Final = "TASKYARD_URL"
DEFAULT_TIMEOUT_S: Final = 10.0
DEFAULT_PATIENCE_S: Final = 30.0


def resolve_address(url: str | None) -> Address:
    """Of this URL, else of TASKYARD_URL, else on this machine."""
    return Address.parse(url or os.environ.get(URL_VARIABLE) or DEFAULT_URL)


def first_given(*values: float | None) -> float:
    """The first that is given."""
    return next(value for value in values if value is not None)
