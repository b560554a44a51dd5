"""The JSON API: the journal's segments and bytes, and its readers."""

import json
from typing import Any

import pytest
from support.api import ApiClient, FakeExchange
from support.simulated import SimulatedServer

from taskyard.access.principal import INSPECT, JOURNAL, Principal, Rule
from taskyard.journal.format import segment_name

JOURNAL_PATH = "/api/v1/journal"
READERS = "/api/v1/readers"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer(segment_size=1 << 14)


@pytest.fixture
def api(yard: SimulatedServer) -> ApiClient:
    return ApiClient(yard)


def push(api: ApiClient, count: int) -> None:
    for _ in range(count):
        api.push(text="x" * 1000)


def ask_for_bytes(api: ApiClient, base: int, **query: int) -> FakeExchange:
    return api.begin("GET", f"{JOURNAL_PATH}/segments/{base}", query=query)


def octets(api: ApiClient, base: int, **query: int) -> bytes:
    exchange = ask_for_bytes(api, base, **query)
    api.yard.run_pending()
    assert exchange.response is not None
    assert exchange.sent
    assert exchange.response.status == 200
    assert exchange.response.content_type == "application/octet-stream"
    return exchange.response.body


def test_the_journal_tells_its_segments(yard: SimulatedServer, api: ApiClient) -> None:
    push(api, 30)
    page = api.get(JOURNAL_PATH).ok()
    assert page["timeline"] == yard.journal.timeline.hex()
    assert page["earlier"] == []
    assert page["first_seq"] == page["segments"][0]["first_seq"] == 1
    assert page["durable_seq"] == page["segments"][-1]["last_seq"] == yard.journal.durable_seq
    last = page["segments"][-1]
    assert api.get(JOURNAL_PATH, **{"from": last["first_seq"]}).ok()["segments"] == [last]
    assert api.get(JOURNAL_PATH, **{"from": page["durable_seq"] + 1}).ok()["segments"] == []


def test_the_identity_is_what_stands_in_the_data_directory(
    yard: SimulatedServer, api: ApiClient
) -> None:
    push(api, 3)
    yard.restart()
    page = ApiClient(yard).get(JOURNAL_PATH + "/identity").ok()
    assert page == json.loads(yard.disk.content("identity.json"))
    assert page["reach"]["last_seq"] == 4


def test_the_bytes_of_a_segment_are_given_as_they_are(
    yard: SimulatedServer, api: ApiClient
) -> None:
    push(api, 30)
    for segment in api.get(JOURNAL_PATH).ok()["segments"]:
        file = yard.journal.directory.view(segment_name(segment["base"]))
        content = file.read_at(0, segment["bytes"])
        assert octets(api, segment["base"]) == content
        assert octets(api, segment["base"], **{"from": 100, "to": 150}) == content[100:150]
        assert octets(api, segment["base"], **{"from": segment["bytes"]}) == b""
        assert octets(api, segment["base"], **{"from": 9, "to": 5}) == b""


def test_the_disk_is_read_off_the_loop_a_few_at_a_time(
    yard: SimulatedServer, api: ApiClient
) -> None:
    push(api, 5)
    yard.scheduler.slow = True
    exchanges = [ask_for_bytes(api, 0) for _ in range(5)]
    yard.run_pending()
    assert len(yard.scheduler.blocking) == 2
    assert all(each.response is None for each in exchanges)
    assert api.get(JOURNAL_PATH).ok()["first_seq"] == 1
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    bodies = {each.response.body for each in exchanges if each.response is not None}
    assert len(bodies) == 1


def drop_first(yard: SimulatedServer) -> None:
    journal = yard.journal
    assert yard.broker.disk_space.remove_segments_before(journal.next_base(journal.first_base))
    yard.run_pending()


def test_a_segment_that_was_dropped_is_gone(yard: SimulatedServer, api: ApiClient) -> None:
    push(api, 30)
    drop_first(yard)
    first_seq = api.get(JOURNAL_PATH).ok()["first_seq"]
    assert first_seq > 1
    problem = api.get(f"{JOURNAL_PATH}/segments/0").problem(410, "segment-gone")
    assert problem["first_seq"] == first_seq


def test_a_segment_that_goes_while_it_is_read_is_gone(
    yard: SimulatedServer, api: ApiClient
) -> None:
    push(api, 30)
    yard.scheduler.slow = True
    exchange = ask_for_bytes(api, 0)
    yard.journal.directory.remove(segment_name(0))
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    api.finish(exchange).problem(410, "segment-gone")


def test_a_disk_that_cannot_be_read_is_a_problem(
    yard: SimulatedServer, api: ApiClient, caplog: pytest.LogCaptureFixture
) -> None:
    push(api, 1)
    yard.disk.fail_always("read")
    exchange = ask_for_bytes(api, 0)
    yard.run_pending()
    yard.disk.heal()
    api.finish(exchange).problem(503, "disk-error")
    assert "a segment of the journal could not be read" in caplog.text  # where it says to look


@pytest.mark.parametrize("base", ["77", "9" * 19])
def test_there_is_no_such_segment(api: ApiClient, base: str) -> None:
    api.get(f"{JOURNAL_PATH}/segments/{base}").problem(404, "segment-not-found")


def test_a_segment_is_named_by_a_number(api: ApiClient) -> None:
    api.get(f"{JOURNAL_PATH}/segments/first").problem(400, "invalid-value", "base")


# Readers


def register(api: ApiClient, name: str = "lake", **body: Any) -> Any:
    return api.call("PUT", f"{READERS}/{name}", body).ok()


def test_a_reader_from_its_registration_to_its_end(yard: SimulatedServer, api: ApiClient) -> None:
    push(api, 3)
    reply = api.call("PUT", f"{READERS}/lake", {"next_seq": None, "lease": 60})
    assert (reply.status, reply.headers["Location"]) == (201, f"{READERS}/lake")
    assert (reply.body["next_seq"], reply.body["missed"]) == (1, 0)
    assert reply.body["behind"] == 4
    committed = api.post(f"{READERS}/lake/commit", {"next_seq": 4, "lease": 60}).ok()
    assert committed["next_seq"] == 4
    assert [reader["name"] for reader in api.get(READERS).ok()["readers"]] == ["lake"]
    yard.restart()
    again = register(api, next_seq=2, lease=60)
    assert again["next_seq"] == 4  # it never goes back
    assert api.call("DELETE", f"{READERS}/lake").status == 204
    assert api.get(READERS).ok()["readers"] == []
    api.call("DELETE", f"{READERS}/lake").problem(404, "reader-not-found")


def test_null_is_the_first_record_there_is(yard: SimulatedServer, api: ApiClient) -> None:
    push(api, 30)
    register(api, "early", next_seq=1)
    drop_first(yard)
    first_seq = api.get(JOURNAL_PATH).ok()["first_seq"]
    assert register(api, next_seq=None)["next_seq"] == first_seq
    [early, _] = api.get(READERS).ok()["readers"]
    assert early["missed"] == first_seq - 1


def test_a_reader_cannot_be_ahead_of_the_journal_nor_go_back(api: ApiClient) -> None:
    push(api, 5)
    path = f"{READERS}/lake"
    api.call("PUT", path, {"next_seq": 999}).problem(409, "wrong-position", "next_seq")
    register(api, next_seq=3)
    commit = f"{path}/commit"
    api.post(commit, {"next_seq": 999}).problem(409, "wrong-position", "next_seq")
    api.post(commit, {"next_seq": 2}).problem(409, "wrong-position", "next_seq")
    api.post(f"{READERS}/unknown/commit", {"next_seq": 2}).problem(404, "reader-not-found")
    api.post(commit, {"next_seq": 0}).problem(400, "invalid-value", "next_seq")
    api.post(commit, {"next_seq": 4, "lease": 0.5}).problem(400, "invalid-value", "lease")


def test_readers_come_in_pages(api: ApiClient) -> None:
    for name in "dbcae":
        register(api, name)
    found = api.walk(READERS, "readers", limit=2)
    assert [reader["name"] for reader in found] == [*"abcde"]
    api.get(READERS, cursor="x").problem(400, "invalid-cursor", "cursor")


def test_the_journal_is_for_those_who_may_read_all_of_it(yard: SimulatedServer) -> None:
    everywhere = Principal("lake", [Rule(["*"], [JOURNAL])])
    one_queue = Principal("some", [Rule(["mail"], [JOURNAL])])
    viewer = Principal("viewer", [Rule(["*"], [INSPECT])])
    for path in (JOURNAL_PATH, f"{JOURNAL_PATH}/segments/9", READERS):
        assert ApiClient(yard, principal=everywhere).get(path).status in (200, 404)
        for principal in (one_queue, viewer):
            ApiClient(yard, principal=principal).get(path).problem(403, "denied")
