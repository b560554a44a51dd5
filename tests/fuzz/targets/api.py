"""The JSON API: whatever bodies and query strings say, an answer that is no mistake of ours.

Requests are divided by a zero byte; each is a line such as `POST /api/v1/queues/q/jobs`, and its
body behind it.
"""

from __future__ import annotations

import json

from fuzz.talking import check_served, check_server_state, new_server
from fuzz.targets.http import check_answers

ROOT = b"/api/v1"
OPERATIONS = [
    b'POST /queues/mail/jobs\n{"payload":{"a":[1]},"name":"n","delay":5,"key":"k","ttl":60}',
    b'POST /queues/mail/jobs\n{"payload_base64":"aGVsbG8=","run_at":"2030-01-31T08:00:00Z"}',
    b'POST /queues/mail/jobs\n{"blocked_by":[1],"max_fails":1,"ttr":5,"backoff":"exponential"}',
    b'PUT /queues/mail\n{"retries":3,"rate":{"count":5,"per":1},"max_jobs":9,"overflow":"refuse"}',
    b'PATCH /queues/mail\n{"concurrency":2,"dead_retention":5,"idle_expiry":60}',
    b"GET /queues?limit=1&prefix=m&cursor=WyJuIiwibWFpbCJd",
    b"GET /queues/mail/jobs?state=ready&limit=2&cursor=WyJqIiwibWFpbCIsInJlYWR5IiwwLDEsMV0",
    b"GET /queues/mail/dead/jobs?reason=x",
    b'POST /queues/mail/dead/replay\n{"ids":[1,2],"limit":5}',
    b'POST /queues/mail/dead/purge\n{"reason":"failures used up"}',
    b"GET /queues/mail/leases",
    b"GET /finished?limit=3",
    b"GET /jobs/1",
    b"GET /jobs/1/events?limit=5",
    b"GET /jobs/1/graph",
    b'PATCH /jobs/1\n{"priority":5,"run_at":"2030-01-31T08:00:00+01:00"}',
    b'POST /jobs/1/move\n{"queue":"other"}',
    b"POST /jobs/1/retry",
    b"DELETE /jobs/1",
    b'POST /queues/mail/purge\n{"state":"ready"}',
    b"POST /queues/mail/pause",
    b"DELETE /queues/mail?purge=true",
    b'PUT /schedules/s\n{"queue":"mail","cron":"*/5 * * * *","timezone":"Europe/Berlin"}',
    b'PUT /schedules/s\n{"queue":"mail","every":60,"overlap":"skip","payload":[]}',
    b"GET /schedules?limit=1",
    b"POST /schedules/s/run",
    b'PUT /readers/r\n{"next_seq":1,"lease":60}',
    b'POST /readers/r/commit\n{"next_seq":2,"lease":60}',
    b"GET /journal?from=1",
    b"GET /journal/segments/0?offset=0",
    b"GET /jobs?q=mail&state=ready&limit=5",
    b"GET /search?q=1",
    b"GET /consumers",
    b"GET /history?queue=mail&minutes=5",
    b"GET /session",
    b'POST /session\n{"token":"x"}',
    b"POST /server/drain",
    b'N POST /queues/mail/jobs\n{"payload":1}\n{"payload":2}\n',
]
SEEDS = [
    *OPERATIONS,
    b"\0".join(OPERATIONS[:5]),
    b"\0".join(OPERATIONS[5:12]),
    b"\0".join([OPERATIONS[0], b"GET /jobs?q=1&cursor=eA"]),
]
WORDS = [
    b"limit=",
    b"cursor=",
    b"state=ready",
    b"\0GET /",
    b"\0POST /",
    b"/queues/mail/",
    b"/jobs/1",
    b'"payload":',
    b"1e400",
    b"5.0",
    b"99999999999999999999",
    b"\\ud800",
    b"%ff",
]


def fuzz(data: bytes) -> None:
    yard = new_server()
    dead = yard.connect("masenko")
    dead.send(b'PUSH {"name":"a","queue":"mail","retry":0}\nFETCH {"queues":["mail"]}\n')
    dead.send(b'NACK {"id":1}\nPUSH {"name":"b","queue":"mail"}\n')
    for part in data.split(b"\0")[:8]:
        request = as_request(part)
        if request:
            peer = yard.connect("api")
            peer.send(request)
            heard = peer.take()
            if not heard:
                yard.advance(61)
                heard = peer.take()
            _check(heard)
            peer.close()
    check_served(yard)
    check_server_state(yard)


def as_request(part: bytes) -> bytes:
    head, newline, body = part.partition(b"\n")
    kind = b"application/json"
    if head.startswith(b"N "):
        head, kind = head[2:], b"application/x-ndjson"
    method, _, path = head.partition(b" ")
    if not method.isalpha() or not method.isupper() or not path.startswith(b"/"):
        return b""
    path = bytes(byte for byte in path if 33 <= byte < 127)
    lines = [b"%b %b%b HTTP/1.1" % (method, ROOT, path), b"Host: localhost"]
    if newline:
        lines += [b"Content-Type: " + kind, b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _check(heard: bytes) -> None:
    """One answer, whose body is what its head says."""
    assert heard
    check_answers(heard)
    head, _, body = heard.partition(b"\r\n\r\n")
    if b"json" in head and b"chunked" not in head and body:
        json.loads(body)
