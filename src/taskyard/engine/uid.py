"""Public ids of jobs that were pushed without one.

A derived uid is the job's id, enciphered under the data directory's salt into 122 bits that look
like a random UUID. It can be turned back into the id, so no index is needed for it.
"""

from __future__ import annotations

import uuid
from hashlib import blake2b
from typing import Final

_HALF: Final = 61
_MASK: Final = (1 << _HALF) - 1
_ROUNDS: Final = (b"0", b"1", b"2", b"3")


def derive_uid(salt: bytes, job_id: int) -> bytes:
    """The uid of `job_id`: 16 bytes, a UUID of version 4 by its looks."""
    # The upper 58 bits of the plain text are zero: that is how job_id_of knows its own.
    left, right = job_id >> _HALF, job_id & _MASK
    for tag in _ROUNDS:
        left, right = right, left ^ _mix(salt, tag, right)
    return _dress((left << _HALF) | right)


def job_id_of(salt: bytes, uid: bytes) -> int:
    """The id behind a derived uid, or 0 if `uid` is not one."""
    bits = _undress(uid)
    if bits < 0:
        return 0
    left, right = bits >> _HALF, bits & _MASK
    for tag in reversed(_ROUNDS):
        left, right = right ^ _mix(salt, tag, left), left
    return (left << _HALF) | right if left >> 3 == 0 else 0


def format_uid(uid: bytes) -> str:
    return str(uuid.UUID(bytes=uid))


def _mix(salt: bytes, tag: bytes, half: int) -> int:
    digest = blake2b(half.to_bytes(8, "big"), key=salt, person=tag, digest_size=8).digest()
    return int.from_bytes(digest, "big") & _MASK


def _dress(bits: int) -> bytes:
    """Put 122 bits around the version and variant bits of a UUID."""
    high, middle, low = bits >> 74, (bits >> 62) & 0xFFF, bits & ((1 << 62) - 1)
    return ((high << 80) | (4 << 76) | (middle << 64) | (2 << 62) | low).to_bytes(16, "big")


def _undress(uid: bytes) -> int:
    value = int.from_bytes(uid, "big")
    if (value >> 76) & 0xF != 4 or (value >> 62) & 3 != 2:
        return -1
    return ((value >> 80) << 74) | (((value >> 64) & 0xFFF) << 62) | (value & ((1 << 62) - 1))
