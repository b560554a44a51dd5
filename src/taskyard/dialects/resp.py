"""RESP: the protocol of Redis, spoken for Pqueue, for lists and keys, and for jobs.

One listener for all of them, since a client of one kind sees nothing of the others. Here the
commands are brought together. User documentation: docs/resp.md.
"""

from __future__ import annotations

from mypy_extensions import i64

from taskyard.access.gate import Gate
from taskyard.broker.broker import Broker
from taskyard.dialects import (
    resp_api,
    resp_batches,
    resp_consumers,
    resp_jobs,
    resp_keys,
    resp_lists,
    resp_multi,
    resp_pqueue,
    resp_results,
    resp_server,
    resp_slowlog,
    resp_taking,
)
from taskyard.dialects.resp_command import MAX_BATCH
from taskyard.dialects.resp_connection import Resp
from taskyard.http.router import Router


def make_resp(
    broker: Broker,
    queue: str,
    payload_limit: i64,
    output_limit: i64,
    max_losses: i64,
    gate: Gate | None = None,
    batch_limit: i64 = MAX_BATCH,
    api: Router | None = None,
    body_limit: i64 = 64 * 1_048_576,
) -> Resp:
    """The dialect with all of its commands; `queue` is where Pqueue's items are."""
    resp = Resp(broker, queue, payload_limit, output_limit, max_losses, gate, batch_limit)
    resp_pqueue.add_commands(resp)
    resp_lists.add_commands(resp)
    resp_keys.add_commands(resp)
    resp_jobs.add_commands(resp)
    resp_taking.add_commands(resp)
    resp_batches.add_commands(resp)
    resp_consumers.add_commands(resp)
    resp_results.add_commands(resp)
    resp_multi.add_commands(resp)
    resp_server.add_commands(resp)
    resp_slowlog.add_commands(resp)
    if api is not None:
        resp_api.add_commands(resp, api, body_limit)
    return resp
