"""RESP: the protocol of Redis, spoken for Pqueue, for lists and keys, and for jobs.

One listener for all of them, since a client of one kind sees nothing of the others. Here the
commands are brought together. User documentation: docs/resp.md.
"""

from __future__ import annotations

from mypy_extensions import i64

from taskyard.access.gate import Gate
from taskyard.broker.broker import Broker
from taskyard.dialects import resp_jobs, resp_keys, resp_lists, resp_multi, resp_pqueue, resp_server
from taskyard.dialects.resp_connection import Resp


def make_resp(
    broker: Broker,
    queue: str,
    payload_limit: i64,
    output_limit: i64,
    max_losses: i64,
    gate: Gate | None = None,
) -> Resp:
    """The dialect with all of its commands; `queue` is where Pqueue's items are."""
    resp = Resp(broker, queue, payload_limit, output_limit, max_losses, gate)
    resp_pqueue.add_commands(resp)
    resp_lists.add_commands(resp)
    resp_keys.add_commands(resp)
    resp_jobs.add_commands(resp)
    resp_multi.add_commands(resp)
    resp_server.add_commands(resp)
    return resp
