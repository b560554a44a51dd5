"""RESP: the protocol of Redis, spoken for Pqueue, for lists and keys, and for jobs.

One listener for all of them, since a client of one kind sees nothing of the others. Here the
commands are brought together. User documentation: docs/resp.md.
"""

from __future__ import annotations

from mypy_extensions import i64

from taskyard.access.authenticator import Authenticator
from taskyard.broker.commit import Broker
from taskyard.protocols.http.routing import Router
from taskyard.protocols.resp import batches as resp_batches
from taskyard.protocols.resp import connection as resp_connection
from taskyard.protocols.resp import jobs as resp_jobs
from taskyard.protocols.resp import keys as resp_keys
from taskyard.protocols.resp import lists as resp_lists
from taskyard.protocols.resp import server as resp_server
from taskyard.protocols.resp.connection import MAX_TRANSACTION_COMMANDS, Resp


def make_resp(
    broker: Broker,
    queue: str,
    payload_limit: i64,
    output_limit: i64,
    max_losses: i64,
    authenticator: Authenticator | None = None,
    batch_limit: i64 = MAX_TRANSACTION_COMMANDS,
    api: Router | None = None,
    body_limit: i64 = 64 * 1_048_576,
) -> Resp:
    """The protocol with all of its commands; `queue` is where Pqueue's items are."""
    resp = Resp(broker, queue, payload_limit, output_limit, max_losses, authenticator, batch_limit)
    resp_lists.add_item_commands(resp)
    resp_lists.add_list_commands(resp)
    resp_keys.add_key_commands(resp)
    resp_jobs.add_job_commands(resp)
    resp_jobs.add_take_commands(resp)
    resp_batches.add_batch_commands(resp)
    resp_batches.add_consumer_commands(resp)
    resp_jobs.add_result_commands(resp)
    resp_connection.add_transaction_commands(resp)
    resp_server.add_server_commands(resp)
    resp_server.add_slow_commands(resp)
    if api is not None:
        resp_server.add_api_command(resp, api, body_limit)
    return resp
