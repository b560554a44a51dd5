"""GET /api/v1/events: durable records as they come, filtered, and resumable."""

import json
import random

import pytest
from support.batches import lease_all
from support.exchanges import FakeStream
from support.listening import ORIGIN, Listening, push, recorded, seqs
from support.retaining import SEGMENT, RetainingYard
from support.simulated import SimulatedServer
from support.wire import exchange

from taskyard.access.principal import INSPECT, Principal, Rule
from taskyard.engine.model.job import API, NewJob, Origin, Policy
from taskyard.journal.retention import RetentionLimits
from taskyard.protocols.http.monitoring.events import KINDS

PUSH = b'PUSH {"name":"a","queue":"q"}\n'


@pytest.fixture
def listening() -> Listening:
    return Listening(SimulatedServer())


# What a client sees


def test_what_happens_from_now_on_is_sent_in_the_words_of_a_dump(listening: Listening) -> None:
    yard = listening.yard
    push(yard, count=3)
    last = yard.journal.durable_seq
    stream = listening.listen()
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a","queue":"q","payload":"secret"}\n', b'OK {"id":4}\n')
    peer.send(b'FETCH {"queues":["q"]}\nACK {"id":1}\nNACK {"id":2}\n')
    yard.advance(0.01)
    events = stream.events()
    assert events == recorded(yard, last)
    assert [event["event"] for event in events] == ["push", "lease", "finish"]
    assert events[0]["dialect"] == "masenko"
    assert events[0]["holder"] == "peer:0#1"
    assert (events[0]["id"], events[0]["queue"], events[0]["name"]) == (4, "q", "a")
    assert "payload" not in events[0]
    assert set(stream.marks) == {0}  # all of it is durable already


def test_an_event_has_its_id_and_kind(listening: Listening) -> None:
    stream = listening.listen()
    assert stream.take() == [{"retry": "1000"}]
    push(listening.yard)
    (block,) = stream.take()
    seq = listening.yard.journal.durable_seq
    assert block["id"] == f"{listening.timeline}:{seq}"
    assert block["event"] == "push"
    assert json.loads(block["data"])["seq"] == seq


@pytest.mark.parametrize("old", [False, True])
def test_the_id_of_a_session_is_its_clients_secret(listening: Listening, old: bool) -> None:
    """Who knows it can take the session up; the same number stands for it in all events."""
    yard = listening.yard
    stream = None if old else listening.listen()
    peer = yard.connect_glovebox(durable=True)
    peer.next()
    peer.send_json(type="create", queue="q", label=1)
    peer.send_json(type="post", queue="q", label=2, message="x", notify=["finish"])
    peer.send_json(type="fetch", queue="q", label=3, work_timeout=9, block_timeout=0)
    peer.close()
    yard.advance(0.01)
    stream = stream or listening.listen(after="0")
    yard.advance(0.01)
    events = stream.events()
    (session,) = yard.engine.state.sessions
    assert str(session) not in json.dumps(events)
    told = {
        event[name]
        for event in events
        for kind, name in (("session", "id"), ("push", "notify"), ("lease", "owner"))
        if event["event"] == kind
    }
    assert len(told) == 1


@pytest.mark.parametrize("durability", ["sync", "write", "memory"])
@pytest.mark.parametrize("inline", [True, False])
def test_nothing_is_shown_before_it_is_durable(durability: str, inline: bool) -> None:
    listening = Listening(SimulatedServer(durability=durability, inline_sync=inline))
    yard = listening.yard
    stream = listening.listen()
    stream.take()
    yard.scheduler.slow = True
    peer = yard.connect()
    peer.send(PUSH)
    if inline and durability == "sync":
        assert len(stream.events()) == 1
        return
    yard.advance(2)
    assert stream.events() == []
    yard.scheduler.finish_blocking()
    yard.run_pending()
    assert [event["event"] for event in stream.events()] == ["push"]


def test_who_comes_while_records_are_on_their_way_to_the_disk_gets_them() -> None:
    listening = Listening(SimulatedServer(inline_sync=False))
    yard = listening.yard
    yard.scheduler.slow = True
    yard.connect().send(PUSH)
    stream = listening.listen()
    yard.scheduler.finish_blocking()  # the sync
    yard.run_pending()
    yard.scheduler.finish_blocking()  # a chunk: the record was written before anybody listened
    yard.run_pending()
    assert [event["event"] for event in stream.events()] == ["push"]


def test_all_listeners_see_the_same_and_a_record_is_decoded_once(listening: Listening) -> None:
    streams = [listening.listen() for _ in range(5)]
    push(listening.yard, count=10)
    found = [stream.data for stream in streams]
    assert len(set(found)) == 1
    feed = listening.yard.broker.feed
    events = feed.events_from(0, 100)
    assert len(events) == 10
    assert all(event.rendered for event in events)


def test_events_go_on_beyond_what_is_done_in_one_turn(listening: Listening) -> None:
    stream = listening.listen()
    yard = listening.yard
    now = yard.broker.begin_turn()
    for _ in range(1000):  # one commit
        yard.engine.push(NewJob("q", "task", b"", Policy()), ORIGIN, now)
    yard.broker.end_turn()
    yard.advance(0.01)
    assert seqs(stream) == list(range(2, 1002))


# Filters


def test_only_the_queues_that_are_asked_for(listening: Listening) -> None:
    stream = listening.listen(queue="a,c")
    for name in ("a", "b", "c"):
        push(listening.yard, name)
    assert [event["queue"] for event in stream.events()] == ["a", "c"]


def test_only_the_kinds_that_are_asked_for(listening: Listening) -> None:
    stream = listening.listen(event="finish,lease")
    peer = listening.yard.connect()
    exchange(peer, PUSH, b'OK {"id":1}\n')
    peer.send(b'FETCH {"queues":["q"]}\nACK {"id":1}\n')
    listening.yard.advance(0.01)
    assert [event["event"] for event in stream.events()] == ["lease", "finish"]


def test_old_records_are_filtered_in_the_same_way(listening: Listening) -> None:
    for name in ("a", "b", "a"):
        push(listening.yard, name)
    stream = listening.listen(queue="a", event="push", after="0")
    assert seqs(stream) == [2, 4]


def test_a_job_that_moves_concerns_both_queues(listening: Listening) -> None:
    yard = listening.yard
    streams = [listening.listen(queue=name, event="move,fail") for name in ("q", "other", "dead")]
    push(yard)
    yard.engine.move_job(1, "other", False, ORIGIN, yard.broker.begin_turn())
    policy = Policy(max_fails=1, dead_queue="dead")
    yard.engine.push(NewJob("q", "task", b"", policy), ORIGIN, yard.broker.begin_turn())
    yard.engine.fail(2, b"", ORIGIN, yard.broker.begin_turn())
    yard.broker.end_turn()
    yard.advance(0.01)
    found = [[event["event"] for event in stream.events()] for stream in streams]
    assert found == [["move", "fail"], ["move"], ["fail"]]


def test_a_batch_concerns_all_its_queues(listening: Listening) -> None:
    yard = listening.yard
    streams = [listening.listen(queue=name, event="batch,boot") for name in ("a", "b", "c")]
    push(yard, "a")
    push(yard, "b")
    lease_all(yard.engine, "spark", 1, [b"a", b"b", b"c"], 9, 0, ORIGIN, yard.broker.begin_turn())
    yard.broker.end_turn()
    yard.advance(0.01)
    assert [len(stream.events()) for stream in streams] == [1, 1, 0]


@pytest.mark.parametrize("old", [False, True])
def test_what_happened_in_a_queue_one_may_not_inspect_names_nobody(
    listening: Listening, old: bool
) -> None:
    yard = listening.yard
    ada = Principal("ada", [Rule(["mine", "ours"], [INSPECT])])
    streams = [] if old else [listening.listen(queue="mine", who=ada)]
    origin = Origin(API, "eve", "her machine")
    now = yard.broker.begin_turn()
    for name in ("secret", "ours"):
        yard.engine.push(NewJob(name, "task", b"", Policy()), origin, now)
    for job in (1, 2):
        yard.engine.move_job(job, "mine", False, origin, now)
    yard.engine.push(
        NewJob("secret", "task", b"", Policy(max_fails=1, dead_queue="mine")), origin, now
    )
    yard.engine.fail(3, b"oops", origin, now)
    yard.broker.end_turn()
    yard.advance(0.01)
    if old:
        streams = [listening.listen(queue="mine", after="0", who=ada)]
    of_all = listening.listen(queue="mine", after="0")
    (stream,) = streams
    events = [event for event in stream.events() if event["event"] in ("move", "fail")]
    assert [event["event"] for event in events] == ["move", "move", "fail"]
    assert ["user" in event for event in events] == [False, True, False]
    assert ["holder" in event for event in events] == [False, True, False]
    assert "error_size" not in events[2]
    assert [event["user"] for event in of_all.events() if "user" in event] == ["eve"] * 3


def test_an_unknown_kind_is_refused_with_those_there_are(listening: Listening) -> None:
    problem = listening.refused(event="push,explode")
    assert problem["status"] == 400
    assert "'explode'" in problem["detail"]
    assert all(name in problem["detail"] for name in KINDS)


# Resuming


@pytest.mark.parametrize("end", ["none", "restart", "kill", "crash"])
def test_a_client_goes_on_behind_the_last_event_it_has_seen(end: str) -> None:
    listening = Listening(SimulatedServer())
    yard = listening.yard
    stream = listening.listen()
    push(yard, count=5)
    last = stream.take()[-1]["id"]
    stream.hang_up()
    push(yard, count=3)
    if end != "none":
        getattr(yard, end)()
        listening = Listening(yard)
    again = listening.listen({"last-event-id": last})
    push(yard)
    seen = int(last.rpartition(":")[2])
    assert seqs(again) == [int(str(record["seq"])) for record in recorded(yard, seen)]


def test_the_header_counts_more_than_the_address(listening: Listening) -> None:
    push(listening.yard, count=5)
    stream = listening.listen({"last-event-id": f"{listening.timeline}:4"}, after="1")
    assert seqs(stream) == [5, 6]


@pytest.mark.parametrize("place", ["3", "{}:3"])
def test_after_takes_an_id_or_a_number(listening: Listening, place: str) -> None:
    push(listening.yard, count=5)
    assert seqs(listening.listen(after=place.format(listening.timeline))) == [4, 5, 6]


def test_after_zero_means_from_the_first_that_is_there(listening: Listening) -> None:
    push(listening.yard, count=5)
    assert seqs(listening.listen(after="0")) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("place", ["x", "1:x", "-1", "1.5", "\u0661", "1" * 5000])
def test_what_is_no_id_is_refused(listening: Listening, place: str) -> None:
    assert listening.refused(after=place)["status"] == 400


def test_an_event_that_has_not_been_is_refused(listening: Listening) -> None:
    push(listening.yard)
    assert "the last one is 2" in listening.refused(after="3")["detail"]


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("last", [3, 5, 6, 100, 2000])
def test_until_ends_the_stream_and_says_so(listening: Listening, old: bool, last: int) -> None:
    yard = listening.yard
    if not old:
        listening.listen()  # so that they are decoded when they come
    push(yard, count=5)
    stream = listening.listen(after="2", until=str(last))
    if last > 6:
        assert not stream.closed
        push(yard, count=2000)
    *blocks, end = stream.take()[1:]
    assert [json.loads(block["data"])["seq"] for block in blocks] == list(range(3, last + 1))
    assert end == {
        "id": f"{listening.timeline}:{last}",
        "event": "end",
        "data": f'{{"seq": {last}}}',
    }
    assert stream.closed


def test_until_now_is_the_last_there_is(listening: Listening) -> None:
    push(listening.yard, count=5)
    stream = listening.listen(after="0", until="now")
    push(listening.yard)
    assert [block.get("event") for block in stream.take()[1:]] == ["boot", *["push"] * 5, "end"]
    assert stream.closed
    (end,) = listening.listen(until="now").take()[1:]
    assert end["event"] == "end"


def test_until_ends_with_what_is_left_out_as_well(listening: Listening) -> None:
    push(listening.yard, count=5)
    stream = listening.listen(after="0", until="now", event="finish")
    (end,) = stream.take()[1:]
    assert (end["event"], json.loads(end["data"])) == ("end", {"seq": 6})


def test_until_is_behind_what_there_is_not_any_more() -> None:
    listening = Listening(RetainingYard())
    yard = listening.yard
    assert isinstance(yard, RetainingYard)
    yard.work(20 * SEGMENT)
    first = yard.first_seq()
    assert first > 3
    lost, end = listening.listen(after="1", until="3").take()[1:]
    assert (lost["event"], json.loads(lost["data"])["first"]) == ("left_behind", first)
    assert (end["event"], json.loads(end["data"])) == ("end", {"seq": first - 1})


@pytest.mark.parametrize("until", ["x", "1:1", "-1", "\u0661", "1" * 21])
def test_what_is_no_end_is_refused(listening: Listening, until: str) -> None:
    assert "would be the number of an event, or now" in listening.refused(until=until)["detail"]


def test_another_timeline_is_told_and_all_that_is_there_follows(listening: Listening) -> None:
    push(listening.yard, count=2)
    stream = listening.listen({"last-event-id": "abcdef:2"})
    told, *rest = stream.take()[1:]
    assert told["event"] == "timeline"
    assert json.loads(told["data"]) == {"was": "abcdef", "first": 1}
    assert told["id"] == f"{listening.timeline}:0"
    assert [json.loads(block["data"])["seq"] for block in rest] == [1, 2, 3]


def test_old_and_new_records_meet_without_a_gap_or_a_double(listening: Listening) -> None:
    yard = listening.yard
    other = listening.listen()  # so that new records are decoded all the time
    push(yard, count=1500)
    yard.scheduler.slow = True
    stream = listening.listen(after="0")
    while yard.scheduler.blocking:
        push(yard, count=40)
        yard.scheduler.finish_blocking()
        yard.run_pending()
    push(yard, count=3)
    last = yard.journal.durable_seq
    assert seqs(stream) == list(range(1, last + 1))
    assert seqs(other) == list(range(2, last + 1))


@pytest.mark.parametrize("seed", range(5))
def test_clients_that_come_and_go_and_stall_miss_nothing(seed: int) -> None:
    chance = random.Random(seed)
    listening = Listening(RetainingYard(RetentionLimits(1 << 40)))
    yard = listening.yard
    assert isinstance(yard, RetainingYard)
    yard.register("keeps", 1)
    wanted = list(range(1, 3))
    stream = listening.listen(after="0")
    seen: list[int] = []
    last = "0"
    for _ in range(150):
        step = chance.randrange(5)
        if step == 0:
            yard.work(chance.randrange(1, 12) * 4000)
        elif step == 1:
            yard.push(size=chance.randrange(1, 30_000))
        elif step == 2:
            stream.stuffed = True
        elif step == 3:
            stream.read_again()
            yard.run_pending()
        else:
            last, seen = collect(stream, last, seen)
            stream.hang_up()
            stream = listening.listen({"last-event-id": last})
    stream.read_again()
    yard.advance(1)
    last, seen = collect(stream, last, seen)
    wanted = [int(str(record["seq"])) for record in recorded(yard)]
    assert seen == wanted


def collect(stream: FakeStream, last: str, seen: list[int]) -> tuple[str, list[int]]:
    blocks = [block for block in stream.take() if "id" in block]
    found = [json.loads(block["data"])["seq"] for block in blocks if "data" in block]
    return (blocks[-1]["id"] if blocks else last), seen + found


def test_carries_are_left_out() -> None:
    listening = Listening(RetainingYard())
    yard = listening.yard
    assert isinstance(yard, RetainingYard)
    yard.push("kept")
    stream = listening.listen()
    yard.work(20 * SEGMENT)
    assert yard.journal.replay_start > 0  # so there were some
    kinds = {event["event"] for event in stream.events()}
    assert kinds == {"push", "finish"}
    again = listening.listen(after=str(yard.first_seq()))
    assert {event["event"] for event in again.events()} == {"push", "finish"}
