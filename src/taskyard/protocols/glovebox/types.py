"""What Glovebox's clients and server say to each other, whichever way it is encoded.

Plain data. The codecs check ranges that belong to the protocol's types; what a value means is up to
the connection.
"""

from __future__ import annotations

from typing import Final

# How durable something must be before it is sent; UNSPECIFIED where the client left it out.
UNSPECIFIED: Final = -1
READY: Final = 0
WAIT_WRITTEN: Final = 1
WAIT_SYNCED: Final = 2

LEVEL_NAMES: Final = ("ready", "write", "sync")
# In the order of the engine's bits: the stage of index n is the bit 1 << n.
STAGE_NAMES: Final = ("ready", "write", "sync", "assign", "finish", "retry", "drop")

# Error codes. The last two are our own; a bincode client sees them in the key.
NO_OBJECT: Final = 0
OBJECT_ALREADY_EXISTS: Final = 1
PERMISSION_DENIED: Final = 2
BAD_REQUEST: Final = 3
UNAVAILABLE: Final = 4

CODE_NAMES: Final = (
    "NoObject",
    "ObjectAlreadyExists",
    "PermissionDenied",
    "BadRequest",
    "Unavailable",
)

MAX_U32: Final = 0xFFFF_FFFF
MAX_U64: Final = 0xFFFF_FFFF_FFFF_FFFF


class MalformedMessage(Exception):
    """A message that cannot be parsed; `label` is its label, as far as that could be read."""

    def __init__(self, reason: str, label: int = 0) -> None:
        super().__init__(reason)
        self.label = label


class GloveboxRequest:
    """Base of the five requests."""

    __slots__ = ("label", "queue")

    def __init__(self, queue: str, label: int) -> None:
        self.queue = queue
        self.label = label


class Post(GloveboxRequest):
    __slots__ = ("message", "priority", "stages")

    def __init__(
        self, queue: str, message: bytes, priority: int = 0, label: int = 0, stages: int = 0
    ) -> None:
        super().__init__(queue, label)
        self.message = message
        self.priority = priority
        self.stages = stages  # bits of engine/model/job.py


class Fetch(GloveboxRequest):
    __slots__ = ("block_timeout", "sync", "work_timeout")

    def __init__(
        self,
        queue: str,
        block_timeout: float | None,
        work_timeout: float,
        sync: int = READY,
        label: int = 0,
    ) -> None:
        super().__init__(queue, label)
        self.block_timeout = block_timeout
        self.work_timeout = work_timeout
        self.sync = sync


class Finish(GloveboxRequest):
    __slots__ = ("has_label", "response", "sequence", "shard")

    def __init__(
        self,
        queue: str,
        sequence: int,
        shard: int,
        label: int | None = None,
        response: int = UNSPECIFIED,
    ) -> None:
        super().__init__(queue, 0 if label is None else label)
        self.sequence = sequence
        self.shard = shard
        self.has_label = label is not None
        self.response = response


class Pop(GloveboxRequest):
    __slots__ = ("sync", "timeout")

    def __init__(
        self, queue: str, sync: int = UNSPECIFIED, timeout: float | None = None, label: int = 0
    ) -> None:
        super().__init__(queue, label)
        self.sync = sync
        self.timeout = timeout


class Create(GloveboxRequest):
    """Queues have no shards here, so what is said of them is taken and has no effect."""

    __slots__ = ("retries", "shard_max_bytes", "shard_max_entries")

    def __init__(
        self,
        queue: str,
        label: int = 0,
        retries: int | None = None,
        shard_max_entries: int | None = None,
        shard_max_bytes: int | None = None,
    ) -> None:
        super().__init__(queue, label)
        self.retries = retries
        self.shard_max_entries = shard_max_entries
        self.shard_max_bytes = shard_max_bytes


class GloveboxResponse:
    """Base of the five responses."""

    __slots__ = ()


class FetchedMessage(GloveboxResponse):
    __slots__ = ("body", "finished", "label", "sequence", "shard")

    def __init__(self, label: int, shard: int, sequence: int, body: bytes, finished: bool) -> None:
        self.label = label
        self.shard = shard
        self.sequence = sequence
        self.body = body
        self.finished = finished


class Notice(GloveboxResponse):
    __slots__ = ("label", "stage")

    def __init__(self, label: int, stage: int) -> None:
        self.label = label
        self.stage = stage  # an index of STAGE_NAMES


class Hello(GloveboxResponse):
    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id


class NoMessage(GloveboxResponse):
    __slots__ = ("label",)

    def __init__(self, label: int) -> None:
        self.label = label


class Error(GloveboxResponse):
    __slots__ = ("code", "key", "label")

    def __init__(self, label: int, code: int, key: str) -> None:
        self.label = label
        self.code = code
        self.key = key
