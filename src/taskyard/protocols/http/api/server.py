"""The API's page about the server itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal

from taskyard import __version__
from taskyard.access.principal import ADMIN, INSPECT
from taskyard.broker import build
from taskyard.broker.broker import Broker
from taskyard.journal.journal import Journal
from taskyard.protocols.http.api.lake import LakeStatus
from taskyard.protocols.http.api.views import moment, seconds
from taskyard.protocols.http.call import ApiCall, Operation
from taskyard.shared import api_messages as messages

Durability = Literal["sync", "write", "memory"]
Connections = Callable[[], dict[str, int]]  # how many there are, by protocol
Listeners = Callable[[], dict[str, messages.ListenerView]]  # where, by protocol


class ServerOperations:
    def __init__(
        self,
        broker: Broker,
        durability: Durability,
        connections: Connections,
        listeners: Listeners,
        users: Callable[[], int],
        lake_status: LakeStatus,
    ) -> None:
        self._broker = broker
        self._durability = durability
        self._connections = connections
        self._listeners = listeners
        self._users = users
        self._lake = lake_status
        self._started = broker.clock.now()

    def operations(self) -> list[Operation]:
        one = {200: ("The server.", messages.ServerView)}
        return [
            Operation(
                method="GET",
                pattern="/api/v1/server",
                name="getServer",
                summary="Version, uptime, durability, journal, memory, connections, addresses",
                action=INSPECT,
                run=self._show,
                answers=one,
                reads_state=False,
            ),
            Operation(
                method="GET",
                pattern="/api/v1/listeners",
                name="getListeners",
                summary="Where the server listens, also for those who may not see all of it",
                action=INSPECT,
                checks_queues_itself=True,
                run=self._show_listeners,
                answers={200: ("By dialect.", messages.ListenersView)},
                reads_state=False,
            ),
            Operation(
                method="POST",
                pattern="/api/v1/server/drain",
                name="drainServer",
                summary="Take no pushes until that is revoked or the server is started again",
                action=ADMIN,
                run=lambda call: self._drain(call, True),
                answers=one,
                reads_state=False,
            ),
            Operation(
                method="POST",
                pattern="/api/v1/server/undrain",
                name="undrainServer",
                summary="Take pushes again",
                action=ADMIN,
                run=lambda call: self._drain(call, False),
                answers=one,
                reads_state=False,
            ),
        ]

    def _show_listeners(self, call: ApiCall) -> None:
        call.send_json(200, messages.ListenersView(listeners=self._listeners()))

    def _drain(self, call: ApiCall, draining: bool) -> None:
        call.engine.set_draining(draining)
        self._show(call)

    def _show(self, call: ApiCall) -> None:
        state = call.engine.state
        draining = call.engine.draining
        refusing = call.engine.read_only_reason or call.engine.journal_space.push_refusal
        if draining and not refusing:
            refusing = "the server is being drained"
        unfinished = (
            sum(queue.unfinished_count() for queue in state.queues.values()) if draining else None
        )
        jobs, queues = state.entity_counts()[:2]
        call.send_json(
            200,
            messages.ServerView(
                version=__version__,
                form=build.form(),
                started_at=moment(self._started),
                uptime=seconds(call.now - self._started),
                durability=self._durability,
                accepting=not refusing,
                refusing=refusing or None,
                draining=draining,
                unfinished=unfinished,
                leased=state.leased_count,
                jobs=jobs,
                queues=queues,
                recently_finished=len(state.finished_ring),
                epoch=state.epoch,
                connections=self._connections(),
                listeners=self._listeners(),
                users=self._users(),
                journal=self._journal(),
                memory=messages.MemoryView(resident=resident_bytes()),
                lake=self._lake(),
            ),
        )

    def _journal(self) -> messages.JournalView:
        journal = self._broker.journal
        return messages.JournalView(
            timeline=journal.timeline.hex(),
            bytes=journal.end - journal.first_base,
            live_bytes=self._broker.engine.state.compacted_size(),
            segments=count_segments(journal),
            records=journal.durable_seq,
            commits=self._broker.commits,
        )


def count_segments(journal: Journal) -> int:
    count = 1
    base = journal.next_base(journal.first_base)
    while base:
        count += 1
        base = journal.next_base(base)
    return count


def resident_bytes() -> int:
    """What the process has in memory, as the kernel counts it; 0 where it does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
