"""Records of what the engine keeps beside jobs: queues, values, sessions, consumers and the like.

Layout and version rules are those of records.py.
"""

from __future__ import annotations

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from taskyard.engine.model.job import Origin
from taskyard.engine.model.queue import OVERFLOW_DEAD, QueueSettings
from taskyard.engine.records.job_lifecycle import (
    BATCH,
    BATCH_DONE,
    FORGET,
    QUEUE,
    QUEUE_GONE,
    READER,
    READER_GONE,
    SESSION,
    VALUE,
    VALUE_GONE,
    Record,
)
from taskyard.engine.records.wire import (
    put_i64,
    put_ids,
    put_short_bytes,
    put_text,
    put_u8,
    put_u32,
)


def put_settings(out: BytesWriter, settings: QueueSettings) -> None:
    # In records of older servers the bits of overflow and draining are never set.
    flags = (1 if settings.created else 0) | (2 if settings.paused else 0)
    flags |= (4 if settings.overflow == OVERFLOW_DEAD else 0) | (8 if settings.draining else 0)
    put_u8(out, flags)
    put_i64(out, settings.retries)
    put_i64(out, settings.result_retention)
    put_i64(out, settings.dead_retention)
    put_i64(out, settings.backoff)
    put_i64(out, settings.backoff_base)
    put_i64(out, settings.backoff_cap)
    put_i64(out, settings.max_jobs)
    put_i64(out, settings.max_bytes)


def put_limit_settings(out: BytesWriter, settings: QueueSettings) -> None:
    """Encode the settings that were added in version 2."""
    put_i64(out, settings.ttr)
    put_i64(out, settings.concurrency)
    put_i64(out, settings.rate_count)
    put_i64(out, settings.rate_period)
    put_i64(out, settings.key_concurrency)
    put_i64(out, settings.key_rate_count)
    put_i64(out, settings.key_rate_period)
    put_i64(out, settings.idle_expiry)


@mypyc_attr(acyclic=True)
class QueueSet(Record):
    """A queue was made, or has other settings now."""

    __slots__ = ("queue", "settings")

    def __init__(self, time: i64, origin: Origin, queue: bytes, settings: QueueSettings) -> None:
        super().__init__(time, origin)
        self.queue = queue
        self.settings = settings

    def kind(self) -> i64:
        return QUEUE

    def format_version(self) -> i64:
        return 2

    def encode(self, out: BytesWriter) -> None:
        put_short_bytes(out, self.queue)
        put_settings(out, self.settings)
        put_limit_settings(out, self.settings)


@mypyc_attr(acyclic=True)
class QueueGone(Record):
    """A queue was deleted; its jobs were removed one by one before."""

    __slots__ = ("queue",)

    def __init__(self, time: i64, origin: Origin, queue: bytes) -> None:
        super().__init__(time, origin)
        self.queue = queue

    def kind(self) -> i64:
        return QUEUE_GONE

    def encode(self, out: BytesWriter) -> None:
        put_short_bytes(out, self.queue)


@mypyc_attr(acyclic=True)
class ValueSet(Record):
    """A keyed value was set. The blob is the value, unless only its expiry changed."""

    __slots__ = ("expires_at", "keep", "key")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        key: bytes,
        expires_at: i64,
        keep: bool,
        value: bytes = b"",
    ) -> None:
        super().__init__(time, origin, value)
        self.key = key
        self.expires_at = expires_at  # 0: never
        self.keep = keep  # the value stays what it is

    def kind(self) -> i64:
        return VALUE

    def encode(self, out: BytesWriter) -> None:
        put_short_bytes(out, self.key)
        put_i64(out, self.expires_at)
        put_u8(out, 1 if self.keep else 0)


@mypyc_attr(acyclic=True)
class ValueGone(Record):
    """A keyed value was deleted or has expired."""

    __slots__ = ("key",)

    def __init__(self, time: i64, origin: Origin, key: bytes) -> None:
        super().__init__(time, origin)
        self.key = key

    def kind(self) -> i64:
        return VALUE_GONE

    def encode(self, out: BytesWriter) -> None:
        put_short_bytes(out, self.key)


@mypyc_attr(acyclic=True)
class SessionChange(Record):
    """Something happened to a durable session."""

    __slots__ = ("event", "id", "upto")

    def __init__(self, time: i64, origin: Origin, id: i64, event: i64, upto: i64 = 0) -> None:
        super().__init__(time, origin)
        self.id = id
        self.event = event
        self.upto = upto  # DELIVERED: entries of the outbox up to this number are with the client

    def kind(self) -> i64:
        return SESSION

    def encode(self, out: BytesWriter) -> None:
        put_i64(out, self.id)
        put_u8(out, self.event)
        put_i64(out, self.upto)


@mypyc_attr(acyclic=True)
class BatchRecord(Record):
    """A consumer leased batch `number`: these jobs, until `deadline` if there is one.

    A record with the number of a leased batch says that these jobs are in it as well.
    """

    __slots__ = (
        "attempts",
        "consumer",
        "consumer_user",
        "counts",
        "deadline",
        "epoch",
        "ids",
        "number",
        "owner",
        "queues",
    )

    def __init__(
        self,
        time: i64,
        origin: Origin,
        consumer: str,
        owner: i64,
        number: i64,
        epoch: i64,
        deadline: i64,
        ids: list[int],
        queues: list[bytes],
        counts: list[int],
        attempts: list[int],
        consumer_user: str = "",
    ) -> None:
        super().__init__(time, origin)
        self.consumer = consumer
        self.owner = owner
        self.number = number
        self.epoch = epoch
        self.deadline = deadline
        self.ids = ids
        self.queues = queues  # that they were taken from, one after the other
        self.counts = counts  # and how many of each
        self.attempts = attempts  # which one this is of each job; 0: not said, in version 1
        self.consumer_user = consumer_user  # the consumer's user; "": none

    def kind(self) -> i64:
        return BATCH

    def format_version(self) -> i64:
        return 3 if self.consumer_user else 2

    def encode(self, out: BytesWriter) -> None:
        put_text(out, self.consumer)
        put_i64(out, self.owner)
        put_i64(out, self.number)
        put_u32(out, self.epoch)
        put_i64(out, self.deadline)
        put_ids(out, self.ids)
        put_ids(out, self.counts)
        for queue in self.queues:
            put_short_bytes(out, queue)
        for attempt in self.attempts:
            put_u32(out, attempt)
        if self.consumer_user:
            put_text(out, self.consumer_user)


@mypyc_attr(acyclic=True)
class BatchDone(Record):
    """A consumer is done with its batch; its jobs were finished or released one by one before."""

    __slots__ = ("consumer", "dropped", "expired", "number")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        consumer: str,
        number: i64,
        dropped: bool = False,
        expired: bool = False,
    ) -> None:
        super().__init__(time, origin)
        self.consumer = consumer
        self.number = number
        self.dropped = dropped  # the consumer itself is gone too
        self.expired = expired  # it was out for too long

    def kind(self) -> i64:
        return BATCH_DONE

    def encode(self, out: BytesWriter) -> None:
        put_text(out, self.consumer)
        put_i64(out, self.number)
        put_u8(out, (1 if self.dropped else 0) | (2 if self.expired else 0))


@mypyc_attr(acyclic=True)
class ForgetUids(Record):
    """The uids of jobs that were gone before a time are forgotten."""

    __slots__ = ("before",)

    def __init__(self, time: i64, origin: Origin, before: i64) -> None:
        super().__init__(time, origin)
        self.before = before

    def kind(self) -> i64:
        return FORGET

    def encode(self, out: BytesWriter) -> None:
        put_i64(out, self.before)


@mypyc_attr(acyclic=True)
class ReaderSet(Record):
    """A reader of the journal has all before `next_seq`; what follows is kept for it for a while.

    It has everything about the reader.
    """

    __slots__ = ("lease_until", "name", "next_seq")

    def __init__(
        self, time: i64, origin: Origin, name: str, next_seq: i64, lease_until: i64
    ) -> None:
        super().__init__(time, origin)
        self.name = name
        self.next_seq = next_seq
        self.lease_until = lease_until

    def kind(self) -> i64:
        return READER

    def encode(self, out: BytesWriter) -> None:
        put_text(out, self.name)
        put_i64(out, self.next_seq)
        put_i64(out, self.lease_until)


@mypyc_attr(acyclic=True)
class ReaderGone(Record):
    """A reader of the journal was removed: nothing need be kept for it."""

    __slots__ = ("name",)

    def __init__(self, time: i64, origin: Origin, name: str) -> None:
        super().__init__(time, origin)
        self.name = name

    def kind(self) -> i64:
        return READER_GONE

    def encode(self, out: BytesWriter) -> None:
        put_text(out, self.name)
