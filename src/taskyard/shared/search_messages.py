"""The JSON of what is found: jobs, what happened to one, and how jobs hang together."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from taskyard.shared.api_messages import (
    AnyState,
    Count,
    Cursor,
    Id,
    JobSummary,
    Message,
    Name,
)


class FoundJobs(Message):
    jobs: list[JobSummary]
    looked_at: Annotated[Count, Meta(description="Jobs that were compared for this page.")]
    next: Cursor | None


class Found(Message):
    """What a text may stand for."""

    jobs: Annotated[list[JobSummary], Meta(description="The job whose id or uid it is.")]
    queues: Annotated[list[Name], Meta(description="Whose names have it in them.")]
    names: Annotated[list[Name], Meta(description="Of tasks that there have been in queues.")]
    schedules: list[Name]
    complete: Annotated[bool, Meta(description="false: there may be more than what is shown.")]


class JobEvents(Message):
    """Records of one job, the oldest first."""

    events: Annotated[
        list[dict[str, Any]],
        Meta(description="In the words of live events; a failed attempt with its error."),
    ]
    complete: Annotated[
        bool, Meta(description="The job's push is the first of all: none of them is gone.")
    ]
    from_seq: Annotated[Count, Meta(description="The first record that was looked at.")]
    next: Cursor | None


class GraphNode(Message):
    id: Id
    queue: Name
    name: Name
    state: AnyState
    level: Annotated[
        int, Meta(description="0: the job itself; -1: it waits for this one; 1: the other way.")
    ]


class JobGraph(Message):
    """The jobs that one waits for, and those that wait for it, on several levels."""

    nodes: list[GraphNode]
    edges: Annotated[
        list[Annotated[list[Id], Meta(min_length=2, max_length=2)]],
        Meta(description="The job that must succeed, and the one that waits."),
    ]
    cut: Annotated[bool, Meta(description="There are more than these.")]
