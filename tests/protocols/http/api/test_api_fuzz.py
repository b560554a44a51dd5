"""The JSON API under nonsense: whatever is sent, the answer is one that its document has."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.api import NDJSON, ApiClient
from support.effort import effort
from support.simulated import SimulatedServer

from taskyard.shared import api_types as messages
from taskyard.shared import api_types as shapes

FIELDS = sorted(
    {
        name
        for kind in (
            messages.Push,
            messages.Settings,
            messages.Purge,
            messages.Change,
            messages.Move,
            messages.Replay,
            shapes.Schedule,
        )
        for name in kind.__struct_fields__
    }
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(
        [
            "ready",
            "failed",
            "mail",
            "failures used up",
            "exponential",
            "2030-01-31T08:00:00Z",
            "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            "aGVsbG8=",
            "*/5 * * * *",
            "Europe/Berlin",
        ]
    )
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(), SCALARS, max_size=2)
BODIES = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=5) | VALUES
QUERIES = st.dictionaries(
    st.sampled_from(["limit", "cursor", "state", "reason", "purge", "other"]),
    st.sampled_from(["", "1", "ready", "failed", "true", "eA", "\x00"]) | st.text(max_size=5),
    max_size=2,
)
NAMES = st.sampled_from(["mail", "é", "a b", "\x00", "x" * 300])
JOBS = st.sampled_from(["1", "2", "3", "99", "x", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"])


def furnish(api: ApiClient) -> None:
    """A few jobs, so that there is something to act on."""
    dead = api.post("/api/v1/queues/mail/jobs", {"max_fails": 1}).ok()
    api.yard.connect("workq").send(b"fail %b 2\r\nhm\r\n" % dead["uid"].encode())
    api.push(delay=10)
    api.call("PUT", "/api/v1/schedules/mail", {"queue": "mail", "every": 60}).ok()
    api.push()


@settings(max_examples=effort(150, 30))
@given(st.data())
def test_every_answer_is_in_the_document(data: st.DataObject) -> None:
    api = ApiClient(SimulatedServer())
    furnish(api)
    for operation in data.draw(st.lists(st.sampled_from(api.api().operations), max_size=4)):
        path = operation.pattern.replace("{queue}", data.draw(NAMES))
        path = path.replace("{job}", data.draw(JOBS))
        path = path.replace("{schedule}", data.draw(NAMES))
        body: Any = data.draw(BODIES) if operation.bodies else None
        reply = api.call(operation.method, path, body, query=data.draw(QUERIES))
        assert reply.status < 500


@settings(max_examples=effort(200, 40))
@given(st.binary(max_size=40), st.sampled_from(["application/json", NDJSON]))
def test_any_bytes_are_refused_or_pushed(body: bytes, content_type: str) -> None:
    api = ApiClient(SimulatedServer())
    path = "/api/v1/queues/mail/jobs"
    reply = api.post(path, body=body or b"\n", content_type=content_type)
    assert reply.status in {201, 400}


@settings(max_examples=effort(200, 40))
@given(st.text(max_size=60))
def test_any_cursor_is_good_or_refused(cursor: str) -> None:
    api = ApiClient(SimulatedServer())
    api.push()
    for path in ("queues", "queues/mail/jobs", "leases", "finished", "queues/mail/dead/jobs"):
        assert api.get(f"/api/v1/{path}", cursor=cursor).status in {200, 400}
