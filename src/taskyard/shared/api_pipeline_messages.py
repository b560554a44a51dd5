"""The JSON of the API's journal, its readers, and consumers; the rest is in api_messages.py."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from taskyard.shared.api_messages import Bytes, Count, Cursor, Message, Name, Time

Seq = Annotated[int, Meta(ge=1, le=2**63 - 2)]
Timeline = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
Lease = Annotated[
    float, Meta(ge=1, le=366 * 86_400, description="Seconds that records are kept for the reader.")
]


class EarlierTimelineView(Message):
    """A timeline that ended when the journal was repaired or restored."""

    timeline: Timeline
    last_seq: Count


class SegmentView(Message):
    base: Annotated[int, Meta(ge=0, description="Its name, and where it begins in the journal.")]
    first_seq: Seq
    last_seq: Annotated[Seq, Meta(description="The last record that is durable.")]
    bytes: Annotated[Bytes, Meta(description="Those that are durable, with the header.")]
    timeline: Timeline
    created_at: Time


class JournalPage(Message):
    timeline: Timeline
    earlier: list[EarlierTimelineView]
    first_seq: Annotated[Seq, Meta(description="The first record that there still is.")]
    durable_seq: Annotated[Count, Meta(description="The last one that is durable.")]
    segments: list[SegmentView]


class EndedTimeline(Message):
    timeline: Timeline
    end: Annotated[int, Meta(ge=0, description="The position where it ended.")]
    last_seq: Count
    ended: Annotated[int, Meta(ge=0, description="Microseconds since 1970.")]


class JournalReach(Message):
    """What the journal had come to at the last start."""

    end: Annotated[int, Meta(ge=0)]
    last_seq: Count
    epoch: Count
    next_id: Count


class JournalIdentity(Message):
    """identity.json of the data directory, for a backup."""

    format: Annotated[int, Meta(ge=1)]
    timeline: Timeline
    salt: Annotated[str, Meta(description="What the uids of jobs pushed without one come from.")]
    created: Annotated[int, Meta(ge=0, description="Microseconds since 1970.")]
    earlier: list[EndedTimeline]
    reach: JournalReach


class Registration(Message):
    """Where a reader begins, and for how long records are kept for it."""

    next_seq: Annotated[
        Seq | None, Meta(description="The first record it wants; null: the first there is.")
    ] = None
    lease: Lease = 3600.0


class Commit(Message):
    """The reader has all records before `next_seq`; its lease begins anew."""

    next_seq: Seq
    lease: Lease = 3600.0


class ReaderView(Message):
    name: Name
    next_seq: Seq
    lease_until: Time
    behind: Annotated[Count, Meta(description="Durable records that it has not committed.")]
    missed: Annotated[Count, Meta(description="Records that it wanted and that are gone.")]


class ReaderPage(Message):
    readers: list[ReaderView]
    next: Cursor | None


class ConsumerView(Message):
    name: Name
    batch: Annotated[int, Meta(ge=1, description="The number of its last batch.")]
    open: Annotated[bool, Meta(description="Whether that is out.")]
    jobs: Annotated[Count, Meta(description="How many jobs were leased with it, while it is out.")]
    queues: Annotated[list[Name], Meta(description="That those were taken from.")]
    deadline: Time | None
    expired: Annotated[bool, Meta(description="It was out for too long: drop the consumer.")]
    user: Annotated[str, Meta(description="Whose it is: nobody else may use it.")] | None


class ConsumerPage(Message):
    consumers: list[ConsumerView]
    next: Cursor | None
