"""Public ids of jobs that were pushed without one.

A derived uid looks like a random UUID: eight bytes are a keyed hash of the job's id, the other
eight are the id under a mask that depends on them. So it can be turned back into the id without an
index, and one hash shows that a uid was made up by a client. Without the data directory's salt
nobody can guess a uid, or see that two are neighbours.

A given uid belongs to its producer: the queue that the push named, and the user who sent it. Only a
push of the same producer repeats it. A producer is kept as a hash of each, so that it has the same
few bytes whatever the names are.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from mypy_extensions import mypyc_attr

MAX_ID: Final = (1 << 62) - 1
_VARIANT: Final = 2 << 62

_HALF: Final = 8
PRODUCER_BYTES: Final = 2 * _HALF
# Instead of what an old journal does not say of a producer: it may be any.
_ANY: Final = bytes(_HALF)
ANY_PRODUCER: Final = bytes(PRODUCER_BYTES)
_CACHED: Final = 4096


def derive_uid(salt: bytes, job_id: int) -> bytes:
    """Return the uid of `job_id`: 16 bytes that look like a UUID of version 4."""
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


@mypyc_attr(acyclic=True)
class ProducerHashes:
    """Makes producers, and has all jobs of one share its bytes. It remembers the last thousands."""

    __slots__ = ("_by_queue_and_user", "_interned", "_last", "_queue", "_user")

    def __init__(self) -> None:
        self._by_queue_and_user: dict[tuple[bytes, str], bytes] = {}
        self._interned: dict[bytes, bytes] = {}
        self._queue = b""
        self._user = ""
        self._last = b""  # that of the two

    def hash_of(self, queue: bytes, user: str) -> bytes:
        if queue is self._queue and user is self._user and self._last:
            return self._last
        key = (queue, user)
        found = self._by_queue_and_user.get(key)
        if found is None:
            found = _digest(queue, b"queue") + _digest(user.encode(), b"user")
            if len(self._by_queue_and_user) >= _CACHED:
                self._by_queue_and_user.clear()
            self._by_queue_and_user[key] = self.intern(found)
        self._queue = queue
        self._user = user
        self._last = found
        return found

    def hash_of_queue(self, queue: bytes) -> bytes:
        """That of a push whose user an old journal does not say."""
        return self.intern(_digest(queue, b"queue") + _ANY)

    def intern(self, producer: bytes) -> bytes:
        """The same bytes, in the object that others have already."""
        found = self._interned.get(producer)
        if found is None:
            if len(self._interned) >= _CACHED:
                self._interned.clear()
            self._interned[producer] = producer
            found = producer
        return found


def is_same_producer(one: bytes, other: bytes) -> bool:
    if one == other:
        return True
    return _is_same(one[:_HALF], other[:_HALF]) and _is_same(one[_HALF:], other[_HALF:])


def _is_same(one: bytes, other: bytes) -> bool:
    return one == other or _ANY in (one, other)


def _digest(name: bytes, what: bytes) -> bytes:
    return blake2b(name, person=what, digest_size=_HALF).digest()
