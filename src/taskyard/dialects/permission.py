"""The one place where a request is allowed or refused, whichever dialect it came by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from taskyard.http.messages import Principal

PUSH: Final = "push"
TAKE: Final = "take"
INSPECT: Final = "inspect"
ADMIN: Final = "admin"


class Denied(Exception):
    """This principal may not do that; the text says what it would need."""


# Who, which action, and on which queue ("": on the server as a whole); raises Denied.
Allow = Callable[[Principal, str, str], None]


def allow_everybody(principal: Principal, action: str, queue: str) -> None:
    """There are no users yet."""
