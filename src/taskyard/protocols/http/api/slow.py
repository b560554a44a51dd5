"""The API's page about commands that took too long."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from taskyard.access.principal import INSPECT
from taskyard.broker.broker import Broker
from taskyard.broker.slow import MAX_KEPT, SlowCommand
from taskyard.protocols.http.api.views import moment, seconds
from taskyard.protocols.http.call import ApiCall, Operation, QueryParameter
from taskyard.shared.api_messages import Count, Elapsed, Message, Time


class SlowCommandView(Message):
    id: Annotated[Count, Meta(description="How many there were before it, since the start.")]
    time: Annotated[Time, Meta(description="When it was answered.")]
    dialect: str
    connection: Annotated[Count, Meta(description="Its number in the log.")]
    request: Annotated[str, Meta(description="What the log calls it.")]
    peer: Annotated[str, Meta(description="Host and port of its client.")]
    command: str
    queue: Annotated[str, Meta(description="The one that it was about, if that is known.")] | None
    commands: Annotated[
        int, Meta(ge=1, description="That were answered together, this the first of them.")
    ]
    seconds: Annotated[Elapsed, Meta(description="From its arrival to its answer.")]
    line_seconds: Annotated[Elapsed, Meta(description="Of that, until it was its turn.")]
    work_seconds: Annotated[Elapsed, Meta(description="In the engine and on the event loop.")]
    disk_seconds: Annotated[Elapsed, Meta(description="Until it was on disk.")]


class SlowCommandsView(Message):
    threshold: Annotated[Elapsed, Meta(description="From which on a command is slow.")] | None
    total: Annotated[Count, Meta(description="All there were since the start.")]
    commands: Annotated[list[SlowCommandView], Meta(description="The newest first.")]


class SlowOperations:
    def __init__(self, broker: Broker) -> None:
        self._slow = broker.slow_commands

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET",
                pattern="/api/v1/slow",
                name="getSlowCommands",
                summary="The last commands of all dialects that took too long",
                action=INSPECT,
                run=self._show,
                query=(
                    QueryParameter(
                        name="limit",
                        doc="How many at most.",
                        least=1,
                        most=MAX_KEPT,
                        default=MAX_KEPT,
                    ),
                ),
                answers={200: ("Slow commands.", SlowCommandsView)},
                reads_state=False,
            )
        ]

    def _show(self, call: ApiCall) -> None:
        slow = self._slow
        found = slow.newest_first()[: call.number("limit")]
        call.send_json(
            200,
            SlowCommandsView(
                threshold=seconds(slow.threshold_us) if slow.is_enabled() else None,
                total=slow.count,
                commands=[_view(each) for each in found],
            ),
        )


def _view(slow: SlowCommand) -> SlowCommandView:
    return SlowCommandView(
        id=slow.id,
        time=moment(slow.time),
        dialect=slow.protocol_name,
        connection=slow.connection_number,
        request=slow.request_id,
        peer=slow.peer,
        command=slow.command,
        queue=slow.queue or None,
        commands=slow.command_count,
        seconds=seconds(slow.duration_us),
        line_seconds=seconds(slow.queued_us),
        work_seconds=seconds(slow.processing_us),
        disk_seconds=seconds(slow.disk_us),
    )
