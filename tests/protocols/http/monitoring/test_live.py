"""GET /api/v1/live: figures once a second, for all who listen."""

from typing import Any

import pytest
from support.exchanges import FakeStream
from support.lake_view import lake_view
from support.listening import ORIGIN, push
from support.simulated import SimulatedServer
from support.watching import Watching, looks, names

import taskyard
from taskyard.access.principal import ANONYMOUS, Principal, Rule
from taskyard.protocols.http.monitoring.live import SummarySources

PUSH = b'PUSH {"name":"a","queue":"q"}\n'


@pytest.fixture
def watching() -> Watching:
    return Watching()


def next_look(watching: Watching, stream: FakeStream) -> Any:
    """The one of the next second."""
    stream.take()
    watching.yard.advance(1)
    (look,) = looks(stream)
    return look


# What a client sees


def test_a_look_comes_at_once_and_then_every_second(watching: Watching) -> None:
    push(watching.yard)
    stream = watching.listen()
    blocks = stream.take()
    assert blocks[0] == {"retry": "1000"}
    assert (blocks[1]["id"], blocks[1]["event"]) == ("1", "look")
    for _ in range(3):
        watching.yard.advance(1)
        assert len(looks(stream)) == 1


def test_the_figures_of_the_server(watching: Watching) -> None:
    yard = watching.yard
    stream = watching.listen()
    push(yard, count=3)
    look = next_look(watching, stream)
    server = look["server"]
    assert (server["version"], server["durability"]) == (taskyard.__version__, "sync")
    assert (server["accepting"], server["refusing"], server["draining"]) == (True, None, False)
    assert (server["epoch"], server["timeline"]) == (1, yard.journal.timeline.hex())
    assert look["journal"]["durable_seq"] == yard.journal.durable_seq
    assert look["journal"]["bytes"] >= look["journal"]["live_bytes"] > 0
    assert look["journal"]["commits_rate"] > 0
    assert look["journal"]["bytes_rate"] > 0
    assert look["journal"]["segments"] == 1
    assert look["memory"] > 0
    assert look["lake"] is None
    assert look["queue"] is None


def test_jobs_are_counted_by_state_and_what_happens_to_them_by_the_second(
    watching: Watching,
) -> None:
    yard = watching.yard
    stream = watching.listen()
    peer = yard.connect()
    watching.yard.advance(1)
    peer.send(PUSH * 4)
    peer.send(b'FETCH {"queues":["q"]}\nFETCH {"queues":["q"]}\nACK {"id":1}\n')
    look = next_look(watching, stream)
    totals = look["totals"]
    assert (totals["ready"], totals["leased"], totals["jobs"]) == (2, 1, 3)
    assert (totals["queues"], totals["pushed"], totals["leased_total"]) == (1, 4, 2)
    assert (totals["finished"], totals["failed"]) == (1, 0)
    assert look["rates"] == {"pushed": 4, "started": 2, "finished": 1, "failed": 0}
    (row,) = look["queues"]["shown"]
    assert (row["ready"], row["leased"], row["name"]) == (2, 1, "q")
    assert (row["pushed_rate"], row["done_rate"], row["failed_rate"]) == (4, 1, 0)
    dialects = {each["dialect"]: each for each in look["dialects"]}
    assert (dialects["masenko"]["clients"], dialects["http"]["clients"]) == (1, 2)
    assert dialects["masenko"]["requests_rate"] == 7
    assert next_look(watching, stream)["rates"]["pushed"] == 0


def test_a_look_for_a_newcomer_does_not_make_rates_jump(watching: Watching) -> None:
    stream = watching.listen()
    watching.yard.advance(3.75)  # to a whole second
    push(watching.yard, count=4)
    stream.take()
    watching.listen(sort="name")
    watching.yard.advance(0.3)
    (look,) = looks(stream)
    assert look["rates"]["pushed"] == pytest.approx(4 / 1.25)
    assert look["queues"]["shown"][0]["pushed_rate"] in (None, pytest.approx(4 / 1.25))


def test_a_failed_attempt_counts_as_failed_though_it_is_tried_again(watching: Watching) -> None:
    yard = watching.yard
    stream = watching.listen()
    peer = yard.connect()
    peer.send(PUSH)
    peer.send(b'FETCH {"queues":["q"]}\nNACK {"id":1}\n')
    yard.advance(1)
    look = looks(stream)[-1]
    assert look["rates"]["failed"] > 0
    assert look["queues"]["shown"][0]["failed_rate"] > 0
    assert look["totals"]["retried"] + look["totals"]["failed"] == 1


def test_how_long_jobs_wait_and_run(watching: Watching) -> None:
    yard = watching.yard
    peer = yard.connect()
    peer.send(PUSH * 2)
    yard.advance(8)
    stream = watching.listen(queue="q")
    looks(stream)
    peer.send(b'FETCH {"queues":["q"]}\n')
    yard.advance(0.5)
    peer.send(b'ACK {"id":1}\n')
    look = next_look(watching, stream)
    assert 4 < look["wait"]["p95"] <= 16.8  # the bucket that 8 seconds are in
    assert 0.25 < look["run"]["p50"] <= 1.05
    (row,) = look["queues"]["shown"]
    assert row["wait_p95"] == look["wait"]["p95"] == look["queue"]["wait"]["p95"]
    assert row["run_p95"] == look["run"]["p95"] == look["queue"]["run"]["p95"]
    assert 8 < row["oldest_age"] < 10
    look = next_look(watching, stream)
    assert (look["wait"], look["run"]) == (None, None)
    assert look["queues"]["shown"][0]["wait_p95"] is None


def test_a_queue_that_is_asked_for_is_told_more_of(watching: Watching) -> None:
    yard = watching.yard
    push(yard, "big", 3, b"x" * 10)
    push(yard, "mail", 2, b"12345")
    stream = watching.listen(queue="mail", limit="1")
    (look,) = looks(stream)
    assert names(look) == ["big"]
    assert look["queue"]["name"] == "mail"
    assert look["queue"]["counters"]["pushed"] == 2
    assert look["queue"]["counts"]["ready"] == 2
    assert look["queue"]["waiting_bytes"] == 10
    look = watching.first(queue="none-yet")
    assert look["queue"] is None


def test_clients_that_wait_for_a_job_are_counted(watching: Watching) -> None:
    yard = watching.yard
    push(yard)
    yard.connect("workq").send(b"lease q 0\r\n")
    yard.connect("workq").send(b"lease q 60000\r\n")
    (look,) = looks(watching.listen())
    assert look["queues"]["shown"][0]["waiting"] == 1


def test_the_room_on_the_disk_and_the_lake() -> None:
    about = SummarySources(space=lambda: (3, 10), lake=lambda: lake_view(running=True))
    watching = Watching(about=about)
    stream = watching.listen()
    look = next_look(watching, stream)
    assert look["disk"] == {"free": 3, "total": 10}
    assert look["lake"]["running"]


def test_a_disk_that_hangs_keeps_no_look_back() -> None:
    watching = Watching(
        SimulatedServer(inline_sync=True), about=SummarySources(space=lambda: (3, 10))
    )
    watching.yard.scheduler.slow = True
    stream = watching.listen()
    for _ in range(30):
        assert next_look(watching, stream)["disk"] is None
    assert len(watching.yard.scheduler.blocking) == 1


def test_the_server_says_why_it_takes_no_pushes(watching: Watching) -> None:
    watching.yard.engine.set_draining(True)
    (look,) = looks(watching.listen())
    assert look["server"]["draining"]
    assert look["server"]["refusing"] == "the server is being drained"


# Which queues


def test_queues_in_each_order(watching: Watching) -> None:
    yard = watching.yard
    for name, count in (("a", 1), ("b", 3), ("c", 2)):
        push(yard, name, count)
    yard.connect("workq").send(b"lease c 0\r\n")
    assert names(watching.first(sort="ready")) == ["b", "a", "c"]
    assert names(watching.first(sort="leased")) == ["c", "a", "b"]
    assert names(watching.first(sort="name")) == ["a", "b", "c"]
    stream = watching.listen(sort="pushed_rate")
    watching.yard.advance(1)
    push(yard, "c", 5)
    push(yard, "a", 1)
    assert names(next_look(watching, stream)) == ["c", "a", "b"]


def test_only_the_first_ones_and_only_those_that_fit(watching: Watching) -> None:
    for number in range(30):
        push(watching.yard, f"mail.{number:02}")
    push(watching.yard, "Mailbox", 9)
    push(watching.yard, "other", 5)
    look = watching.first(limit="3")
    assert names(look) == ["Mailbox", "other", "mail.00"]
    assert look["queues"]["total"] == 32
    look = watching.first(match="MAIL", limit="2", sort="name")
    assert names(look) == ["Mailbox", "mail.00"]
    assert look["queues"]["total"] == 31


def test_a_list_that_begins_further_down(watching: Watching) -> None:
    for number in range(30):
        push(watching.yard, f"mail.{number:02}")
    look = watching.first(sort="name", offset="10", limit="3")
    assert names(look) == ["mail.10", "mail.11", "mail.12"]
    assert look["queues"]["total"] == 30
    assert names(watching.first(sort="name", offset="29")) == ["mail.29"]
    assert names(watching.first(sort="name", offset="30")) == []


def test_a_queue_that_has_gone_is_told_once(watching: Watching) -> None:
    yard = watching.yard
    push(yard)
    stream = watching.listen()
    assert looks(stream)[0]["queues"]["gone"] == []
    yard.connect("workq").send(b"lease q 0\r\n")
    yard.engine.delete_job(1, ORIGIN, yard.broker.begin_turn())
    yard.engine.delete_queue(b"q", ORIGIN, yard.broker.begin_turn())
    yard.broker.end_turn()
    look = next_look(watching, stream)
    assert (look["queues"]["gone"], look["queues"]["shown"]) == (["q"], [])
    # What it has counted stays counted.
    assert look["totals"]["pushed"] == 1
    assert next_look(watching, stream)["queues"]["gone"] == []


def test_a_new_queue_of_an_old_name_begins_anew(watching: Watching) -> None:
    yard = watching.yard
    stream = watching.listen()
    push(yard, count=50)
    assert next_look(watching, stream)["queues"]["shown"][0]["ready"] == 50
    for id in range(1, 51):
        yard.engine.delete_job(id, ORIGIN, yard.broker.begin_turn())
    yard.engine.delete_queue(b"q", ORIGIN, yard.broker.begin_turn())
    yard.broker.end_turn()
    push(yard)
    look = next_look(watching, stream)
    assert look["queues"]["shown"][0]["pushed_rate"] == look["rates"]["pushed"] == 1
    assert look["queues"]["gone"] == []


# Many queues, many clients


def test_many_queues_are_gone_through_in_portions() -> None:
    watching = Watching(portion=20)
    for number in range(60):
        push(watching.yard, f"q{number:02}")
    stream = watching.listen(sort="name", limit="200")
    assert looks(stream) == []  # that takes more than one turn, with some time between them
    late = watching.listen(sort="name", match="q")  # which has not seen the beginning
    watching.yard.advance(0.02)
    (look,) = looks(stream)
    assert look["totals"]["queues"] == look["queues"]["total"] == len(names(look)) == 60
    assert looks(late) == []
    watching.yard.advance(0.3)
    assert looks(late)[0]["queues"]["total"] == 60


def test_a_queue_deleted_in_the_middle_of_a_look_is_counted_once() -> None:
    watching = Watching(portion=1)
    for name in ("a", "b", "c"):
        push(watching.yard, name)
    stream = watching.listen()
    yard = watching.yard
    for utf8 in (b"a", b"c"):  # one that was counted, and one that was not yet
        job = yard.engine.state.queues[utf8].ready.first()
        assert job is not None
        yard.engine.delete_job(job.id, ORIGIN, yard.broker.begin_turn())
        yard.engine.delete_queue(utf8, ORIGIN, yard.broker.begin_turn())
    yard.broker.end_turn()
    yard.advance(0.1)
    (look,) = looks(stream)
    assert (look["totals"]["pushed"], look["totals"]["queues"]) == (3, 3)
    look = next_look(watching, stream)
    assert (look["totals"]["pushed"], look["totals"]["queues"]) == (3, 1)


def test_clients_share_the_look_and_those_who_ask_for_the_same_its_text(
    watching: Watching,
) -> None:
    push(watching.yard)
    streams = [watching.listen() for _ in range(3)] + [watching.listen(sort="name")]
    watching.yard.advance(0.5)
    for stream in streams:
        stream.take()
    watching.yard.advance(1)
    assert len({stream.data for stream in streams[:3]}) == 1
    assert len(looks(streams[3])) == 1
    assert len(watching.live._rankings) == 2


def test_who_does_not_read_is_sent_no_more_and_then_the_newest(watching: Watching) -> None:
    slow, quick = watching.listen(), watching.listen()
    slow.take()
    slow.stuffed = True
    for _ in range(5):
        push(watching.yard)
        watching.yard.advance(1)
    assert slow.data == b""
    slow.read_again()
    watching.yard.advance(1)
    (look,) = looks(slow)
    assert look == looks(quick)[-1]
    assert look["totals"]["ready"] == 5


def test_nothing_is_kept_of_queues_while_nobody_listens(watching: Watching) -> None:
    push(watching.yard)
    streams = [watching.listen(), watching.listen(sort="name")]
    assert watching.live.count() == 2
    for stream in streams:
        stream.hang_up()
    watching.yard.advance(2)
    assert watching.live.count() == 0
    assert (watching.live._rows, watching.live._next_rows, watching.live._rankings) == ({}, {}, {})


def test_there_is_a_bound_to_the_number_of_clients() -> None:
    watching = Watching(most=2)
    streams = [watching.listen(), watching.listen()]
    assert watching.refused()["status"] == 503
    streams[0].hang_up()
    watching.listen()


def test_all_streams_end_with_the_server(watching: Watching) -> None:
    streams = [watching.listen(), watching.listen()]
    watching.live.close()
    watching.watch.stop()
    assert all(stream.closed for stream in streams)
    watching.yard.advance(5)
    assert watching.live.count() == 0


# Who may see what


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"sort": "size"}, "sort"),
        ({"limit": "0"}, "limit"),
        ({"limit": "201"}, "limit"),
        ({"offset": "-1"}, "offset"),
        ({"queue": "a b"}, "queue"),
        ({"every": "1"}, "every"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(
    watching: Watching, query: dict[str, str], field: str
) -> None:
    told = watching.refused(ANONYMOUS, **query)
    assert (told["status"], told["field"]) == (400, field)


def test_who_may_see_some_queues_sees_those_and_nothing_of_the_server(watching: Watching) -> None:
    for name in ("mail.in", "mail.out", "secret"):
        push(watching.yard, name)
    ada = Principal("ada", [Rule(["mail.*"], ["inspect"])])
    stream = watching.listen(ada, queue="mail.in")
    (look,) = looks(stream)
    assert names(look) == ["mail.in", "mail.out"]
    assert look["queues"]["total"] == 2
    assert look["queue"]["name"] == "mail.in"
    hidden = {name for name, value in look.items() if value is None}
    assert hidden == set(look) - {"at", "queues", "queue"}
    assert "secret" not in str(look)
    assert watching.refused(ada, queue="secret")["status"] == 403
    nobody = Principal("bob", [Rule(["*"], ["push"])])
    assert watching.refused(nobody)["status"] == 403


def test_when_the_rules_change_clients_have_to_come_again(watching: Watching) -> None:
    ada = Principal("ada", [Rule(["*"], ["inspect"])])
    stream, anonymous = watching.listen(ada), watching.listen()
    ada.set_rules([Rule(["mail"], ["inspect"])], False)
    watching.live.rules_changed()
    assert stream.closed
    assert not anonymous.closed
    assert watching.first(ada)["totals"] is None
