"""A target with a defect that chance alone would not find: some bytes, one after the other."""

from __future__ import annotations

SEEDS = [b"hello"]
LONGEST = 8


class Defect(Exception):
    """What the fuzzer is to find."""


def fuzz(data: bytes) -> None:
    """Nested, so that each right byte is a branch of its own."""
    if len(data) >= 4 and data[0] == 0x13:  # noqa: SIM102
        if data[1] == ord("y"):  # noqa: SIM102
            if data[2] == ord("d"):
                raise Defect("it was found")
