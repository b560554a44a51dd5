"""GET /api/v1/events beside what is gone, clients that do not read, and too many of them."""

import json

import pytest
from support.listening import ORIGIN, Listening, push, seqs
from support.retaining import SEGMENT, RetainingYard
from support.simulated import SimulatedServer

from taskyard.engine.model.job import NewJob, Policy
from taskyard.journal.retention import RetentionLimits


@pytest.fixture
def listening() -> Listening:
    return Listening(SimulatedServer())


# What is not there any more


def test_who_comes_too_late_is_told_how_much_is_missed() -> None:
    listening = Listening(RetainingYard())
    yard = listening.yard
    assert isinstance(yard, RetainingYard)
    yard.work(20 * SEGMENT)
    first = yard.first_seq()
    assert first > 10
    stream = listening.listen(after="5")
    told, *rest = stream.take()[1:]
    assert told["event"] == "left_behind"
    assert json.loads(told["data"]) == {"wanted": 6, "first": first, "missed": first - 6}
    assert told["id"] == f"{listening.timeline}:{first - 1}"
    assert json.loads(rest[0]["data"])["seq"] >= first
    assert json.loads(rest[-1]["data"])["seq"] == yard.journal.durable_seq


def test_a_slow_client_is_told_what_was_dropped_before_it_read_it() -> None:
    listening = Listening(RetainingYard())
    yard = listening.yard
    assert isinstance(yard, RetainingYard)
    stream = listening.listen()
    stream.take()
    stream.stuffed = True
    wanted = yard.journal.durable_seq + 1
    yard.work(100 * SEGMENT)
    assert stream.data == b""
    first = yard.first_seq()
    stream.read_again()
    yard.push()
    told, *rest = stream.take()
    assert json.loads(told["data"]) == {
        "wanted": wanted,
        "first": first,
        "missed": first - wanted,
    }
    assert json.loads(rest[-1]["data"])["seq"] == yard.journal.durable_seq


def test_a_segment_that_goes_while_it_is_read_is_no_end() -> None:
    listening = Listening(RetainingYard(RetentionLimits(1 << 40)))
    yard = listening.yard
    assert isinstance(yard, RetainingYard)
    yard.register("keeps", 1)
    yard.work(20 * SEGMENT)
    yard.scheduler.slow = True
    stream = listening.listen(after="0")
    assert len(yard.scheduler.blocking) == 1
    work = yard.scheduler.blocking.popleft()
    yard.scheduler.slow = False
    yard.commit("keeps", int(yard.journal.first_seq_of(yard.journal.replay_start)))
    assert yard.journal.first_base > 0
    yard.scheduler.blocking.append(work)
    yard.scheduler.finish_blocking()
    yard.advance(1)
    blocks = stream.take()[1:]
    assert blocks[0]["event"] == "left_behind"
    assert json.loads(blocks[-1]["data"])["seq"] == yard.journal.durable_seq


def test_a_journal_that_cannot_be_read_ends_the_stream_with_the_reason(
    listening: Listening,
) -> None:
    push(listening.yard, count=5)
    listening.yard.disk.fail_call("read")
    stream = listening.listen(after="0")
    told = stream.take()[-1]
    assert told["event"] == "error"
    assert "injected into read" in json.loads(told["data"])["detail"]
    assert stream.closed
    assert listening.yard.broker.feed.listener_count() == 0


# Bounds


def test_a_slow_client_is_sent_nothing_until_it_reads(listening: Listening) -> None:
    yard = listening.yard
    stream = listening.listen()
    stream.take()
    stream.stuffed = True
    push(yard, count=100)
    yard.advance(60)  # not even signs of life
    assert stream.data == b""
    stream.read_again()
    yard.run_pending()
    assert seqs(stream) == list(range(2, 102))


def test_a_client_that_stops_reading_in_the_middle_is_sent_little_more(
    listening: Listening,
) -> None:
    yard = listening.yard
    push(yard, count=3000)
    yard.scheduler.slow = True
    stream = listening.listen(after="0")
    stream.stuffed = True
    yard.scheduler.finish_blocking()
    yard.run_pending()
    assert len(stream.events()) == 500  # the chunk that was on its way
    assert not yard.scheduler.blocking
    stream.read_again()
    assert len(yard.scheduler.blocking) == 1


def test_memory_does_not_grow_with_what_nobody_reads(listening: Listening) -> None:
    yard = listening.yard
    stream = listening.listen()
    stream.stuffed = True
    push(yard, count=5000)
    feed = yard.broker.feed
    assert len(feed.events_from(0, 1 << 20)) == 2048
    stream.read_again()
    yard.run_pending()
    assert seqs(stream) == list(range(2, 5002))


def test_records_that_come_faster_than_they_are_decoded_are_read_from_disk() -> None:
    listening = Listening(SimulatedServer(segment_size=1 << 25))
    yard = listening.yard
    stream = listening.listen()
    now = yard.broker.begin_turn()
    for _ in range(20):
        yard.engine.push(NewJob("q", "task", b"x" * 900_000, Policy()), ORIGIN, now)
        yard.broker.end_turn()
    yard.advance(0.01)
    assert seqs(stream) == list(range(2, 22))


def test_one_portion_is_read_at_a_time_and_all_have_their_turn(listening: Listening) -> None:
    yard = listening.yard
    push(yard, count=1200)
    yard.scheduler.slow = True
    streams = [listening.listen(after="0") for _ in range(3)]
    portions = 0
    while yard.scheduler.blocking:
        assert len(yard.scheduler.blocking) == 1
        yard.scheduler.finish_blocking()
        yard.run_pending()
        portions += 1
        if portions == 3:
            assert all(stream.data.count(b"data: ") == 500 for stream in streams)
    assert [len(stream.events()) for stream in streams] == [1201] * 3


def test_only_so_many_clients_may_listen() -> None:
    listening = Listening(SimulatedServer(), most=2)
    first = listening.listen()
    listening.listen()
    assert listening.refused()["status"] == 503
    first.hang_up()
    listening.listen()


def test_while_nobody_listens_nothing_is_kept(listening: Listening) -> None:
    yard = listening.yard
    stream = listening.listen()
    push(yard, count=3)
    stream.hang_up()
    push(yard, count=3)
    assert yard.broker.feed.listener_count() == 0
    assert yard.broker.feed.events_from(0, 100) == []
    assert not yard.scheduler.is_waiting()


def test_a_client_that_goes_while_its_portion_is_read_is_forgotten(listening: Listening) -> None:
    yard = listening.yard
    push(yard, count=3)
    yard.scheduler.slow = True
    stream = listening.listen(after="0")
    waiting = listening.listen(after="0")
    stream.hang_up()
    waiting.hang_up()
    yard.scheduler.finish_blocking()
    yard.run_pending()
    assert not yard.scheduler.blocking
    assert stream.events() == []


# Signs of life


def test_a_sign_of_life_says_how_far_the_client_is(listening: Listening) -> None:
    stream = listening.listen(queue="none")
    push(listening.yard, count=4)
    stream.take()
    listening.yard.advance(15)
    assert stream.take() == [{"id": f"{listening.timeline}:5"}]
    listening.yard.advance(30)
    assert len(stream.take()) == 2


def test_a_server_that_stops_ends_the_streams(listening: Listening) -> None:
    streams = [listening.listen() for _ in range(3)]
    listening.events.close()
    assert all(stream.closed for stream in streams)
    assert listening.yard.broker.feed.listener_count() == 0
