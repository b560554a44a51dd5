"""What replies of RESP mean to the clients of a drill."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.drill.slip import require
from support.replies_resp import Failure, Word

Heard = Callable[[Any], None]
Request = tuple[Word, ...]


def is_refusal(reply: Any) -> bool:
    """The server cannot write, for now or until it is started again: nothing was done."""
    return isinstance(reply, Failure) and reply.startswith(("OOM ", "READONLY "))


def is_stale(reply: Any) -> bool:
    return isinstance(reply, Failure) and reply.startswith("STALE ")


def number(reply: Any) -> int:
    require(isinstance(reply, int), f"answered with {reply!r} in place of a number")
    assert isinstance(reply, int)
    return reply


def expect(expected: str) -> Heard:
    def heard(reply: Any) -> None:
        right = reply == expected and not isinstance(reply, Failure)
        require(right, f"answered with {reply!r} in place of {expected}")

    return heard
