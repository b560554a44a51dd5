"""The API's plots: figures of the last five minutes, hour or day."""

from __future__ import annotations

import msgspec

from taskyard.access.principal import INSPECT
from taskyard.protocols.http.api.problems import QUEUE_NOT_FOUND, queue_not_found
from taskyard.protocols.http.call import ApiCall, Operation, QueryParameter
from taskyard.protocols.http.messages import Response
from taskyard.protocols.http.monitoring import live_messages as messages
from taskyard.protocols.http.monitoring.history import SERIES, SHAPES, History, Ring


class HistoryOperations:
    def __init__(self, history: History) -> None:
        self._history = history

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET",
                pattern="/api/v1/history",
                name="getHistory",
                summary="Depth, rates and times of late, of all queues or of one",
                action=INSPECT,
                checks_queues_itself=True,
                run=self._show,
                query=(
                    QueryParameter(
                        name="span",
                        doc="how far back, in seconds; a queue has the last hour",
                        values=tuple(str(span) for span in SHAPES),
                        default="300",
                    ),
                    QueryParameter(
                        name="queue",
                        doc="the queue; without it: all together",
                        of_queue=True,
                    ),
                ),
                answers={200: ("Series of equal length, the oldest first.", messages.HistoryView)},
                problems=(QUEUE_NOT_FOUND,),
                reads_state=False,
            )
        ]

    def _show(self, call: ApiCall) -> None:
        span = int(call.text("span"))
        name = call.text("queue")
        call.require(name)
        if name:
            self._show_queue(call, name, span)
            return
        ring = self._history.totals[span].ring
        newest = ring.last or ring.step_of(call.now)
        protocols = self._history.protocols
        requests = {
            protocol: ring.column(len(SERIES) + at, newest, ring.size)
            for at, protocol in enumerate(protocols)
        }
        _answer(call, _view(ring, newest, ring.size, requests))

    def _show_queue(self, call: ApiCall, name: str, span: int) -> None:
        queue = call.engine.queue(name.encode())
        if queue is None:
            raise queue_not_found(name)
        known = self._history.queue_history(queue)
        ring = known.ring if known is not None else Ring(*SHAPES[3_600], len(SERIES))
        newest = ring.last or ring.step_of(call.now)
        _answer(call, _view(ring, newest, min(ring.size, span // ring.step), {}))


def _answer(call: ApiCall, view: messages.HistoryView) -> None:
    """Answer without waiting for the disk: it promises nothing, and is needed most when the disk
    hangs.
    """
    call.reply(Response(200, msgspec.json.encode(view)))


def _view(
    ring: Ring, newest: int, count: int, requests: dict[str, list[float | None]]
) -> messages.HistoryView:
    return messages.HistoryView(
        step=ring.step,
        times=ring.times(newest, count),
        series={name: ring.column(at, newest, count) for at, name in enumerate(SERIES)},
        requests=requests,
    )
