"""RESP: the protocol of Redis, spoken for Pqueue, for lists and keys, and for jobs.

One listener for all of them, since a client of one kind sees nothing of the others. Here the
commands are brought together. User documentation: docs/resp.md.
"""

from __future__ import annotations

from mypy_extensions import i64

from taskyard.access.gate import Gate
from taskyard.broker.broker import Broker
from taskyard.protocols.http.router import Router
from taskyard.protocols.resp import api as resp_api
from taskyard.protocols.resp import batches as resp_batches
from taskyard.protocols.resp import consumers as resp_consumers
from taskyard.protocols.resp import jobs as resp_jobs
from taskyard.protocols.resp import keys as resp_keys
from taskyard.protocols.resp import lists as resp_lists
from taskyard.protocols.resp import multi as resp_multi
from taskyard.protocols.resp import pqueue as resp_pqueue
from taskyard.protocols.resp import results as resp_results
from taskyard.protocols.resp import server as resp_server
from taskyard.protocols.resp import slowlog as resp_slowlog
from taskyard.protocols.resp import taking as resp_taking
from taskyard.protocols.resp.command import MAX_BATCH
from taskyard.protocols.resp.connection import Resp


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
