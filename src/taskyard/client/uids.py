"""Uids for jobs that are pushed, so that a push whose answer was lost can be repeated.

A uid is a UUID of version 4 in form: a part that is random for each client, and a number.
"""

from __future__ import annotations

import itertools
import os
import weakref
from typing import Final

_COUNTED: Final = 12  # digits of the number


class Uids:
    """Threads may share it; the child of a fork goes on with uids of its own."""

    def __init__(self) -> None:
        self.begin()
        _all.add(self)

    def begin(self) -> None:
        """74 bits of chance: nobody else has this beginning."""
        digits = os.urandom(10).hex()
        variant = "89ab"[int(digits[15], 16) & 3]
        self.prefix: str = f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-{variant}{digits[16:19]}-"
        self.numbers = itertools.count()

    def next(self) -> str:
        return f"{self.prefix}{next(self.numbers):0{_COUNTED}x}"


_all: Final[weakref.WeakSet[Uids]] = weakref.WeakSet()


def _forked() -> None:
    for uids in list(_all):
        uids.begin()


os.register_at_fork(after_in_child=_forked)
