"""The API's consumers, which take jobs in numbered batches: list, get, drop.

A consumer belongs to the queues that its last batch is from: clients that may not see all of them
do not see the consumer.
"""

from __future__ import annotations

from typing import Final

from taskyard.access.principal import ADMIN, INSPECT
from taskyard.broker.seams import Scheduler
from taskyard.engine.model.state import BatchConsumer
from taskyard.protocols.http.api.cursor import page_of_names
from taskyard.protocols.http.api.problems import (
    CONSUMER_NOT_FOUND,
    INVALID_CURSOR,
    consumer_not_found,
)
from taskyard.protocols.http.api.queues import CURSOR, LIMIT
from taskyard.protocols.http.call import ApiCall, Operation
from taskyard.protocols.times import format_moment
from taskyard.shared import api_pipeline_messages as shapes

CONSUMER: Final = "/api/v1/consumers/{consumer}"
_BACKLOG_PAUSE_US: Final = 5_000  # microseconds, while the disk is behind


class ConsumerOperations:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET",
                pattern="/api/v1/consumers",
                name="listConsumers",
                summary="The consumers whose queues the caller may see, in order of their names",
                action=INSPECT,
                checks_queues_itself=True,
                run=_list,
                query=(LIMIT, CURSOR),
                answers={200: ("A page.", shapes.ConsumerPage)},
                problems=(INVALID_CURSOR,),
            ),
            Operation(
                method="GET",
                pattern=CONSUMER,
                name="getConsumer",
                summary="One consumer and the batch that it has",
                action=INSPECT,
                checks_queues_itself=True,
                run=lambda call: call.send_json(200, _view(_named_consumer(call))),
                answers={200: ("The consumer.", shapes.ConsumerView)},
                problems=(CONSUMER_NOT_FOUND,),
            ),
            Operation(
                method="DELETE",
                pattern=CONSUMER,
                name="deleteConsumer",
                summary="Drop a consumer; the jobs that it holds go back to their queues",
                action=ADMIN,
                checks_queues_itself=True,
                run=self._drop,
                answers={204: ("It is gone.", None)},
                problems=(CONSUMER_NOT_FOUND,),
            ),
        ]

    def _drop(self, call: ApiCall) -> None:
        _ConsumerDrop(call, self._scheduler, _named_consumer(call)).run_chunk()


class _ConsumerDrop:
    """Returns the jobs to their queues in chunks."""

    def __init__(self, call: ApiCall, scheduler: Scheduler, consumer: BatchConsumer) -> None:
        self._call = call
        self._scheduler = scheduler
        self._consumer = consumer

    def run_chunk(self) -> None:
        call = self._call
        name = self._consumer.name
        if call.engine.consumer(name) is not self._consumer:
            call.send_json(204)  # another client was quicker, and may use the name again by now
        elif call.engine.drop_consumer(name, call.origin, call.now):
            call.send_json(204)
        elif call.broker.is_backlogged():
            self._scheduler.call_at(
                call.broker.clock.now() + _BACKLOG_PAUSE_US, self._continue_next_turn
            )
        else:
            self._scheduler.call_soon(self._continue_next_turn)

    def _continue_next_turn(self) -> None:
        call = self._call
        call.now = call.broker.begin_turn()
        call.run_guarded(self.run_chunk)
        call.broker.end_turn()


def _named_consumer(call: ApiCall) -> BatchConsumer:
    """The one that the path names; it must be there for the caller."""
    name = call.request.params["consumer"]
    consumer = call.engine.consumer(name)
    principal = call.request.principal
    action = call.operation.action
    if consumer is None:
        raise consumer_not_found(name)
    queues = [queue.decode() for queue in consumer.queues]
    if not all(principal.may(INSPECT, queue) or principal.may(action, queue) for queue in queues):
        raise consumer_not_found(name)  # a refusal would show that it exists
    for queue in queues:
        call.require(queue)
    return consumer


def _list(call: ApiCall) -> None:
    may = call.request.principal.may
    consumers = call.engine.state.consumers
    seen = [
        name
        for name, consumer in consumers.items()
        if all(may(INSPECT, queue.decode()) for queue in consumer.queues)
    ]
    names, following = page_of_names(sorted(seen), call.number("limit"), call.text("cursor"))
    shown = [_view(consumers[name]) for name in names]
    call.send_json(200, shapes.ConsumerPage(consumers=shown, next=following))


def _view(consumer: BatchConsumer) -> shapes.ConsumerView:
    return shapes.ConsumerView(
        name=consumer.name,
        batch=consumer.number,
        open=consumer.open,
        jobs=len(consumer.ids),
        queues=[queue.decode() for queue in consumer.queues],
        deadline=format_moment(consumer.deadline),
        expired=consumer.expired,
        user=consumer.user or None,
    )
