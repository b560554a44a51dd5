"""Public ids of jobs that were pushed without one.

A derived uid looks like a random UUID: eight bytes are a keyed hash of the job's id, the other
eight are the id under a mask that depends on them. So it can be turned back into the id without an
index, a uid that somebody else has made up is known as such after one hash, and who does not know
the data directory's salt can neither guess one nor see that two are neighbours.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

MAX_ID: Final = (1 << 62) - 1
_VARIANT: Final = 2 << 62


def derive_uid(salt: bytes, job_id: int) -> bytes:
    """The uid of `job_id`: 16 bytes, a UUID of version 4 by its looks."""
    tag = _tag(salt, job_id)
    return tag + (job_id ^ _mask(salt, tag) | _VARIANT).to_bytes(8, "big")


def job_id_of(salt: bytes, uid: bytes, below: int = MAX_ID + 1) -> int:
    """The id behind a derived uid, or 0 if `uid` is not one of an id below that limit."""
    if uid[6] >> 4 != 4 or uid[8] >> 6 != 2:
        return 0
    tag = uid[:8]
    job_id = (int.from_bytes(uid[8:], "big") & MAX_ID) ^ _mask(salt, tag)
    return job_id if job_id < below and tag == _tag(salt, job_id) else 0


def format_uid(uid: bytes) -> str:
    text = uid.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _tag(salt: bytes, job_id: int) -> bytes:
    tag = blake2b(job_id.to_bytes(8, "big"), key=salt, person=b"tag", digest_size=8).digest()
    return tag[:6] + bytes([0x40 | tag[6] & 0x0F]) + tag[7:]


def _mask(salt: bytes, tag: bytes) -> int:
    digest = blake2b(tag, key=salt, person=b"mask", digest_size=8).digest()
    return int.from_bytes(digest, "big") & MAX_ID
