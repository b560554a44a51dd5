"""Workq inspect: jobs, scheduled jobs, queues and the server, as they are and changing nothing."""

import re

import pytest
from support.simulated import SimulatedServer
from support.wire import Peer, SimulatedWire, Wire, exchange
from support.workq import (
    INVALID_ARGS,
    INVALID_ID,
    INVALID_NAME,
    JOB_KEYS,
    NEW,
    NOT_FOUND,
    OK,
    PENDING,
    TIMEOUT,
    UNKNOWN,
    add,
    client_error,
    complete,
    delete,
    expect_in_step,
    fail,
    inspect,
    is_there,
    job,
    lease,
    leased,
    lengths,
    new_id,
    new_name,
    read_text,
    rfc3339,
    run,
    schedule,
    server,
    state,
)

INVALID_OFFSET = client_error("Invalid cursor offset")
INVALID_LIMIT = client_error("Invalid limit")
LATER = b"2100-01-01T00:00:00Z"


def labels(peer: Peer, what: bytes) -> list[bytes]:
    return [label for label, _ in inspect(peer, what)]


def add_many(peer: Peer, name: bytes, number: int) -> list[bytes]:
    ids = [new_id() for _ in range(number)]
    exchange(peer, b"".join(add(id, name) for id in ids), OK * number)
    return ids


@pytest.mark.parametrize(
    "what", [b"bogus", b"Server", b"JOB", b"job-s", b"scheduled-job", b"client", b"6"]
)
def test_an_unknown_object_is_an_unknown_command(shared_wire: Wire, what: bytes) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, b"inspect %b\r\n" % what, UNKNOWN)
    exchange(peer, b"inspect %b ping 0 10\r\n" % what, UNKNOWN)
    expect_in_step(peer)


def test_an_inspect_of_nothing_is_refused(shared_wire: Wire) -> None:
    peer = shared_wire.connect("workq")
    peer.send(b"inspect\r\n")
    assert peer.read_line() in (INVALID_ARGS, UNKNOWN)
    expect_in_step(peer)


# A job


def test_a_job_is_shown_as_the_protocol_text_shows_it(yard: SimulatedWire) -> None:
    peer = yard.connect("workq")
    exchange(
        peer,
        b"add 6ba7b810-9dad-11d1-80b4-00c04fd430c4 ping 1000 600000 4\r\nping\r\n",
        b"+OK\r\n",
    )
    exchange(
        peer,
        b"inspect job 6ba7b810-9dad-11d1-80b4-00c04fd430c4\r\n",
        b"+OK 1\r\n"
        b"6ba7b810-9dad-11d1-80b4-00c04fd430c4 12\r\n"
        b"name ping\r\n"
        b"ttr 1000\r\n"
        b"ttl 600000\r\n"
        b"payload-size 4\r\n"
        b"payload ping\r\n"
        b"max-attempts 0\r\n"
        b"attempts 0\r\n"
        b"max-fails 0\r\n"
        b"fails 0\r\n"
        b"priority 0\r\n"
        b"state 0\r\n"
        b"created 2023-11-14T22:13:20Z\r\n",
    )
    peer.expect_nothing()


def test_a_scheduled_job_has_its_time_as_a_thirteenth_key(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, schedule(id, time=b"2023-11-14T22:15:00.25Z"), OK)
    peer.send(b"inspect job %b\r\n" % id)
    peer.expect(b"+OK 1\r\n%b 13\r\nname ping\r\n" % id)
    for _ in range(10):
        read_text(peer)
    peer.expect(b"created 2023-11-14T22:13:20Z\r\ntime 2023-11-14T22:15:00Z\r\n")
    peer.expect_nothing()


@pytest.mark.parametrize("payload", [b"", b"\r\n", b"a\r\nstate 9\r\n", bytes(range(256))])
def test_a_payload_is_shown_raw(shared_wire: Wire, payload: bytes) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id, payload=payload), OK)
    peer.send(b"inspect job %b\r\n" % id)
    for _ in range(5):
        read_text(peer)
    peer.expect(b"payload-size %d\r\npayload %b\r\nmax-attempts 0\r\n" % (len(payload), payload))


def test_the_states_of_a_job_are_shown_by_their_numbers(yard: SimulatedWire) -> None:
    peer, good, bad = yard.connect("workq"), new_id(), new_id()
    exchange(peer, add(good), OK)
    assert state(peer, good) == b"0"
    exchange(peer, lease(b"ping"), leased(good))
    assert state(peer, good) == b"4"
    yard.advance(1)
    assert state(peer, good) == b"3"
    exchange(peer, complete(good), OK)
    assert state(peer, good) == b"1"
    exchange(peer, add(bad), OK)
    exchange(peer, fail(bad), OK)
    assert state(peer, bad) == b"2"


def test_created_is_the_time_of_the_add_and_does_not_change(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    yard.advance(60)
    exchange(peer, add(id), OK)
    yard.advance(10)
    exchange(peer, lease(b"ping"), leased(id))
    yard.advance(10)
    exchange(peer, complete(id), OK)
    assert job(peer, id)["created"] == b"2023-11-14T22:14:20Z"


def test_the_ttl_is_shown_as_it_was_given(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, ttl=60_000), OK)
    yard.advance(30)
    assert job(peer, id)["ttl"] == b"60000"


def test_an_unknown_job_is_not_found_and_a_wrong_id_refused(shared_wire: Wire) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, b"inspect job %b\r\n" % new_id(), NOT_FOUND)
    exchange(peer, b"inspect job 6ba7b810\r\n", INVALID_ID)
    expect_in_step(peer)


def test_an_id_in_upper_case_is_shown_in_lower_case(shared_wire: Wire) -> None:
    peer = shared_wire.connect("workq")
    id = b"abcdefab-cdef-4abc-8def-%b" % new_id()[-12:]
    exchange(peer, add(id), OK)
    assert labels(peer, b"job " + id.upper()) == [id]


# Jobs of a queue


def test_jobs_are_listed_in_the_order_of_delivery(yard: SimulatedWire) -> None:
    peer, low, high, middle = yard.connect("workq"), new_id(), new_id(), new_id()
    exchange(peer, add(low, flags=b"-priority=-1"), OK)
    exchange(peer, add(high, flags=b"-priority=1"), OK)
    exchange(peer, add(middle), OK)
    assert labels(peer, b"jobs ping 0 10") == [high, middle, low]
    assert lengths(peer, b"ping") == (3, 0)
    for id in (high, middle, low):
        exchange(peer, lease(b"ping"), leased(id))


def test_each_job_of_a_list_is_shown_like_one_alone(yard: SimulatedWire) -> None:
    peer, one, two = yard.connect("workq"), new_id(), new_id()
    exchange(peer, add(one, payload=b"\r\n", ttr=7, flags=b"-priority=3 -max-fails=9"), OK)
    exchange(peer, schedule(two, time=rfc3339(yard.now() + 1)), OK)
    yard.advance(1)
    listed = inspect(peer, b"jobs ping 0 10")
    assert listed == [(one, job(peer, one)), (two, job(peer, two))]
    assert [len(keys) for _, keys in listed] == [12, 13]
    assert list(listed[0][1]) == JOB_KEYS
    assert list(listed[1][1]) == [*JOB_KEYS, "time"]


def test_an_offset_and_a_limit_choose_a_part(shared_wire: Wire) -> None:
    peer, name = shared_wire.connect("workq"), new_name()
    ids = add_many(peer, name, 7)
    for offset in range(9):
        for limit in (1, 2, 6, 7, 8, 100):
            what = b"jobs %b %d %d" % (name, offset, limit)
            assert labels(peer, what) == ids[offset : offset + limit]


def test_a_list_holds_a_hundred_at_most(shared_wire: Wire) -> None:
    peer, name = shared_wire.connect("workq"), new_name()
    ids = add_many(peer, name, 150)
    assert labels(peer, b"jobs %b 0 100" % name) == ids[:100]
    assert labels(peer, b"jobs %b 100 100" % name) == ids[100:]


def test_an_offset_beyond_the_end_gives_none(shared_wire: Wire) -> None:
    peer, name = shared_wire.connect("workq"), new_name()
    add_many(peer, name, 2)
    for offset in (2, 3, 1000, 1 << 32):
        exchange(peer, b"inspect jobs %b %d 10\r\n" % (name, offset), b"+OK 0\r\n")
        exchange(peer, b"inspect scheduled-jobs %b %d 10\r\n" % (name, offset), b"+OK 0\r\n")


def test_only_what_can_be_leased_is_listed_among_the_jobs(yard: SimulatedWire) -> None:
    peer = yard.connect("workq")
    held, again, done, broken, later, ready = (new_id() for _ in range(6))
    exchange(peer, add(again, ttr=1), OK)
    exchange(peer, lease(b"ping"), leased(again))
    exchange(peer, add(held, ttr=10_000), OK)
    exchange(peer, lease(b"ping"), leased(held))
    exchange(peer, add(done) + complete(done), OK + OK)
    exchange(peer, add(broken) + fail(broken), OK + OK)
    exchange(peer, schedule(later, time=LATER), OK)
    yard.advance(0.001)
    exchange(peer, add(ready, flags=b"-priority=1"), OK)
    listed = {label: keys["state"] for label, keys in inspect(peer, b"jobs ping 0 10")}
    assert listed == {ready: NEW, again: PENDING}
    assert labels(peer, b"scheduled-jobs ping 0 10") == [later]
    assert lengths(peer, b"ping") == (2, 1)


def test_a_job_that_is_being_run_is_listed(yard: SimulatedWire) -> None:
    caller, peer, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id))
    [(label, keys)] = inspect(peer, b"jobs ping 0 10")
    assert (label, keys["ttl"]) == (id, b"0")
    assert lengths(peer, b"ping") == (1, 0)


# Scheduled jobs of a queue


def test_scheduled_jobs_are_listed_in_the_order_of_their_times(yard: SimulatedWire) -> None:
    peer = yard.connect("workq")
    moments = [5, 1, 4, 2, 3, 2]
    ids = [new_id() for _ in moments]
    for id, moment in zip(ids, moments, strict=True):
        time = b"2100-01-01T00:00:0%dZ" % moment
        exchange(peer, schedule(id, time=time, flags=b"-priority=%d" % moment), OK)
    order = [ids[at] for at in (1, 3, 5, 4, 2, 0)]
    assert labels(peer, b"scheduled-jobs ping 0 10")[0] == order[0]
    assert set(labels(peer, b"scheduled-jobs ping 1 2")) == set(order[1:3])
    assert labels(peer, b"scheduled-jobs ping 3 10") == order[3:]
    assert labels(peer, b"scheduled-jobs ping 4 1") == order[4:5]
    assert labels(peer, b"jobs ping 0 10") == []
    times = [keys["time"] for _, keys in inspect(peer, b"scheduled-jobs ping 0 10")]
    assert times == [b"2100-01-01T00:00:0%dZ" % moment for moment in sorted(moments)]


def test_each_scheduled_job_is_shown_like_one_alone(yard: SimulatedWire) -> None:
    peer, one, two = yard.connect("workq"), new_id(), new_id()
    exchange(peer, schedule(one, payload=b"\r\n", time=LATER, ttr=7), OK)
    exchange(peer, schedule(two, time=b"2100-01-01T00:00:01Z"), OK)
    listed = inspect(peer, b"scheduled-jobs ping 0 10")
    assert listed == [(one, job(peer, one)), (two, job(peer, two))]
    assert [list(keys) for _, keys in listed] == [[*JOB_KEYS, "time"]] * 2


def test_a_job_that_woke_moves_from_one_list_to_the_other(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, schedule(id, time=rfc3339(yard.now() + 1)), OK)
    exchange(peer, b"inspect jobs ping 0 10\r\n", b"+OK 0\r\n")
    assert labels(peer, b"scheduled-jobs ping 0 10") == [id]
    yard.advance(1)
    assert labels(peer, b"jobs ping 0 10") == [id]
    exchange(peer, b"inspect scheduled-jobs ping 0 10\r\n", b"+OK 0\r\n")


# Arguments of lists


@pytest.mark.parametrize("what", [b"jobs ping", b"scheduled-jobs ping", b"queues"])
@pytest.mark.parametrize("offset", [b"x", b"1.5", b"0x1", b"\xd9\xa1"])
def test_an_offset_that_is_no_number_is_refused(
    shared_wire: Wire, what: bytes, offset: bytes
) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, add(new_id()), OK)
    exchange(peer, b"inspect %b %b 10\r\n" % (what, offset), INVALID_OFFSET)
    expect_in_step(peer)


@pytest.mark.parametrize("what", [b"jobs ping", b"scheduled-jobs ping", b"queues"])
@pytest.mark.parametrize("limit", [b"0", b"101", b"x", b"1.5", b"18446744073709551616"])
def test_a_limit_beyond_one_to_a_hundred_is_refused(
    shared_wire: Wire, what: bytes, limit: bytes
) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, add(new_id()), OK)
    exchange(peer, b"inspect %b 0 %b\r\n" % (what, limit), INVALID_LIMIT)
    expect_in_step(peer)


@pytest.mark.parametrize("what", [b"jobs a/b 0 10", b"scheduled-jobs a/b 0 10", b"queue a/b"])
def test_a_name_that_is_none_is_refused(shared_wire: Wire, what: bytes) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, b"inspect %b\r\n" % what, INVALID_NAME)
    expect_in_step(peer)


@pytest.mark.parametrize("what", [b"jobs %b 0 10", b"scheduled-jobs %b 0 10", b"queue %b"])
def test_an_unknown_queue_is_not_found(shared_wire: Wire, what: bytes) -> None:
    peer, name = shared_wire.connect("workq"), new_name()
    exchange(peer, b"inspect %b\r\n" % (what % name), NOT_FOUND)
    exchange(peer, b"inspect %b\r\n" % (what % name), NOT_FOUND)  # looking makes none
    expect_in_step(peer)


# Queues


def test_a_queue_counts_what_is_ready_and_what_is_scheduled(yard: SimulatedWire) -> None:
    peer = yard.connect("workq")
    add_many(peer, b"ping", 3)
    exchange(peer, schedule(new_id(), time=LATER) + schedule(new_id(), time=LATER), OK + OK)
    reply = b"+OK 1\r\nping 2\r\nready-len 3\r\nscheduled-len 2\r\n"
    exchange(peer, b"inspect queue ping\r\n", reply)
    peer.expect_nothing()


def test_a_queue_stays_when_its_jobs_are_gone(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    exchange(peer, delete(id), OK)
    assert lengths(peer, b"ping") == (0, 0)
    exchange(peer, b"inspect jobs ping 0 10\r\n", b"+OK 0\r\n")
    assert labels(peer, b"queues 0 10") == [b"ping"]


def test_queues_are_listed_in_alphabetical_order(yard: SimulatedWire) -> None:
    peer = yard.connect("workq")
    exchange(peer, b"inspect queues 0 10\r\n", b"+OK 0\r\n")
    names = [b"b", b"a", b"a.b", b"ab", b"a-b", b"c", b"aa"]
    for name in names:
        exchange(peer, add(new_id(), name), OK)
    exchange(peer, add(new_id(), b"c"), OK)
    exchange(peer, schedule(new_id(), b"aa", time=LATER), OK)
    listed = inspect(peer, b"queues 0 100")
    assert [label for label, _ in listed] == sorted(names)
    assert dict(listed)[b"c"] == {"ready-len": b"2", "scheduled-len": b"0"}
    assert dict(listed)[b"aa"] == {"ready-len": b"1", "scheduled-len": b"1"}


def test_a_list_of_queues_is_shown_as_the_protocol_text_shows_it(yard: SimulatedWire) -> None:
    peer = yard.connect("workq")
    add_many(peer, b"ping2", 9)
    add_many(peer, b"ping1", 3)
    exchange(
        peer,
        b"inspect queues 0 10\r\n",
        b"+OK 2\r\n"
        b"ping1 2\r\nready-len 3\r\nscheduled-len 0\r\n"
        b"ping2 2\r\nready-len 9\r\nscheduled-len 0\r\n",
    )
    peer.expect_nothing()


def test_an_offset_and_a_limit_choose_a_part_of_the_queues(yard: SimulatedWire) -> None:
    peer = yard.connect("workq")
    names = [b"q%03d" % number for number in range(105)]
    for name in reversed(names):
        exchange(peer, add(new_id(), name), OK)
    for offset, limit in [(0, 1), (0, 100), (1, 3), (100, 100), (104, 1), (103, 5)]:
        assert labels(peer, b"queues %d %d" % (offset, limit)) == names[offset : offset + limit]
    exchange(peer, b"inspect queues 105 1\r\n", b"+OK 0\r\n")
    exchange(peer, b"inspect queues 4000000000 100\r\n", b"+OK 0\r\n")


def test_queues_whose_names_cannot_be_spelled_here_are_left_out(yard: SimulatedWire) -> None:
    masenko, peer = yard.connect(), yard.connect("workq")
    exchange(masenko, b'PUSH {"name":"a","queue":"a/b"}\n', b'OK {"id":1}\n')
    exchange(masenko, b'PUSH {"name":"a","queue":"ok"}\n', b'OK {"id":2}\n')
    exchange(peer, add(new_id(), b"zz"), OK)
    assert labels(peer, b"queues 0 10") == [b"ok", b"zz"]
    assert labels(peer, b"queues 1 1") == [b"zz"]


# The server


def test_the_server_is_shown_with_three_keys(yard: SimulatedWire) -> None:
    peer = yard.connect("workq")
    exchange(
        peer,
        b"inspect server\r\n",
        b"+OK 1\r\n"
        b"server 3\r\n"
        b"active-clients 1\r\n"
        b"evicted-jobs 0\r\n"
        b"started 2023-11-14T22:13:20Z\r\n",
    )
    peer.expect_nothing()


def test_the_time_of_the_start_of_a_real_server_is_in_utc(shared_wire: Wire) -> None:
    keys = server(shared_wire.connect("workq"))
    assert list(keys) == ["active-clients", "evicted-jobs", "started"]
    assert re.fullmatch(rb"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", keys["started"])


def test_clients_are_counted_while_they_are_connected(yard: SimulatedWire) -> None:
    peer = yard.connect("workq")
    others = [yard.connect("workq") for _ in range(3)]
    assert server(peer)["active-clients"] == b"4"
    others[0].close()
    others[1].send(lease(b"ping", wait=1000))
    assert server(peer)["active-clients"] == b"3"
    others[1].close()
    others[2].close()
    assert server(peer)["active-clients"] == b"1"


def test_incomplete_jobs_that_outlive_their_ttl_are_counted_as_evicted(
    yard: SimulatedWire,
) -> None:
    peer = yard.connect("workq")
    new, held, pending, later = (new_id() for _ in range(4))
    exchange(peer, add(pending, b"b", ttr=1, ttl=1000), OK)
    exchange(peer, lease(b"b"), leased(pending, b"b"))
    exchange(peer, add(held, b"a", ttr=5000, ttl=1000), OK)
    exchange(peer, lease(b"a"), leased(held, b"a"))
    exchange(peer, add(new, ttl=1000), OK)
    exchange(peer, schedule(later, time=rfc3339(yard.now() + 1), ttl=1000), OK)
    yard.advance(0.999999)
    assert server(peer)["evicted-jobs"] == b"0"
    yard.advance(0.000001)
    assert server(peer)["evicted-jobs"] == b"3"
    yard.advance(1)
    assert server(peer)["evicted-jobs"] == b"4"


def test_nothing_else_is_counted_as_evicted(yard: SimulatedWire) -> None:
    peer, caller = yard.connect("workq"), yard.connect("workq")
    done, broken, deleted, called = (new_id() for _ in range(4))
    exchange(peer, add(done, ttl=1000) + complete(done), OK + OK)
    exchange(peer, add(broken, ttl=1000) + fail(broken), OK + OK)
    exchange(peer, add(deleted, ttl=1000) + delete(deleted), OK + OK)
    caller.send(run(called, wait=1000))
    yard.advance(100)
    caller.expect(TIMEOUT)
    for id in (done, broken, deleted, called):
        assert not is_there(peer, id)
    assert server(peer)["evicted-jobs"] == b"0"


def test_evicted_jobs_are_counted_and_the_start_is_told_from_each_start_on() -> None:
    yard = SimulatedServer()
    peer = yard.connect("workq")
    exchange(peer, add(new_id(), ttl=1000), OK)
    yard.advance(60)
    assert server(peer)["evicted-jobs"] == b"1"
    yard.restart()
    keys = server(yard.connect("workq"))
    assert keys["evicted-jobs"] == b"0"
    assert keys["started"] == b"2023-11-14T22:14:20Z"
    assert keys["active-clients"] == b"1"
