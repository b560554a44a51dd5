"""Workq add: what is taken, what is refused and in which order, duplicates, TTL and delivery."""

import pytest
from support.simulated import SimulatedServer
from support.wire import SimulatedWire, Wire, exchange
from support.workq import (
    DUPLICATE_JOB,
    ID_TAKEN,
    INVALID_ARGS,
    INVALID_FLAGS,
    INVALID_ID,
    INVALID_NAME,
    LEASED,
    MAX_TTL,
    MAX_TTR,
    NEW,
    NOT_FOUND,
    OK,
    PAYLOAD_SIZE,
    PENDING,
    TIMEOUT,
    add,
    client_error,
    complete,
    delete,
    expect_in_step,
    fail,
    is_there,
    job,
    lease,
    leased,
    lengths,
    new_id,
    new_name,
    read_reply,
    result,
    rfc3339,
    run,
    schedule,
    state,
    succeeded,
)

from taskyard.journal.memory import MemoryDisk

INVALID_TTR = client_error("Invalid TTR")
INVALID_TTL = client_error("Invalid TTL")
INVALID_PRIORITY = client_error("Invalid Priority")
INVALID_MAX_ATTEMPTS = client_error("Invalid Max Attempts")
INVALID_MAX_FAILS = client_error("Invalid Max Fails")

NO_IDS = [
    b"1",
    b"6ba7b8109dad11d180b400c04fd430c4",
    b"{6ba7b810-9dad-11d1-80b4-00c04fd430c4}",
    b"urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c4",
    b"6ba7b810-9dad-11d1-80b4-00c04fd430c",
    b"6ba7b810-9dad-11d1-80b4-00c04fd430c44",
    b"6ba7b810-9dad-11d1-80b4-00c04fd430cg",
    b"6ba7b810-9dad-11d1-80b4_00c04fd430c4",
    b"6ba7b810-9dad-11d1-80b40-0c04fd430c4",
    b"6ba7b8-109dad-11d1-80b4-00c04fd430c4",
    b"6ba7b810-9dad-11d1-80b4-00c04fd430\xc3\xa9",
    b"6ba7b810-9dad-11d1-80b4-00c04fd430+4",
    b"6ba7b810\x009dad-11d1-80b4-00c04fd430c4",
]
NO_NAMES = [
    b"a" * 256,
    b"a/b",
    b"a:b",
    b"a,b",
    b"a=b",
    b"a+b",
    b"a*",
    b"\xc3\xa9",
    b"\xff",
    b"a\x00",
    b"a\tb",
    b"a\x7f",
    b"~",
]
NO_NUMBERS = [b"x", b"1x", b"1.0", b"1e3", b"0x10", b"1,0", b"1_0", b"\xd9\xa1", b"9" * 30]
NO_COUNTS = [b"+1", b"9" * 5000, *NO_NUMBERS]
FLAGS = [b"-priority=5", b"-max-attempts=6", b"-max-fails=7"]


def added(id: bytes, arguments: bytes) -> bytes:
    """An add of the payload `ping` with these arguments between the id and the flags."""
    return b"add %b %b\r\nping\r\n" % (id, arguments)


def test_an_added_job_is_new_and_ready(shared_wire: Wire) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    exchange(peer, b"add %b %b 1000 60000 4\r\npong\r\n" % (id, name), b"+OK\r\n")
    assert state(peer, id) == NEW
    assert lengths(peer, name) == (1, 0)
    exchange(peer, b"lease %b 0\r\n" % name, b"+OK 1\r\n%b %b 4\r\npong\r\n" % (id, name))


# Ids


@pytest.mark.parametrize(
    "id",
    [
        b"6ba7b810-9dad-11d1-80b4-00c04fd430c4",
        b"00000000-0000-4000-8000-000000000001",
        b"00000000-0000-0000-0000-000000000000",
        b"ffffffff-ffff-ffff-ffff-ffffffffffff",
    ],
)
def test_an_id_is_any_uuid_in_canonical_form(yard: SimulatedWire, id: bytes) -> None:
    peer = yard.connect("workq")
    exchange(peer, add(id), OK)
    exchange(peer, add(id), DUPLICATE_JOB)
    exchange(peer, lease(b"ping"), leased(id))
    exchange(peer, complete(id), OK)
    exchange(peer, result(id), succeeded(id))


def test_an_id_in_upper_case_is_the_same_id_and_is_answered_in_lower_case(
    shared_wire: Wire,
) -> None:
    peer, name = shared_wire.connect("workq"), new_name()
    lower = b"abcdefab-cdef-4abc-8def-%b" % new_id()[-12:]
    upper = lower.upper()
    exchange(peer, add(upper, name), OK)
    exchange(peer, add(lower, name), DUPLICATE_JOB)
    exchange(peer, lease(name), leased(lower, name))
    assert job(peer, lower)["state"] == LEASED
    exchange(peer, complete(upper), OK)
    exchange(peer, result(upper), succeeded(lower))
    exchange(peer, b"delete %b\r\n" % upper, OK)
    assert not is_there(peer, lower)


@pytest.mark.parametrize("id", NO_IDS)
def test_what_is_no_uuid_in_canonical_form_is_refused(shared_wire: Wire, id: bytes) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, add(id), INVALID_ID)
    expect_in_step(peer)


def test_an_id_that_is_there_is_a_duplicate_in_any_state_and_taken_under_another_name(
    yard: SimulatedWire,
) -> None:
    peer, id = yard.connect("workq"), new_id()
    again = [
        add(id),
        schedule(id, b"ping", time=b"2100-01-01T00:00:00Z"),
        run(id, b"ping", wait=0),
    ]
    others = [
        add(id, b"other"),
        schedule(id, b"other", time=b"2100-01-01T00:00:00Z"),
        run(id, b"other", wait=0),
    ]

    def expect_duplicates() -> None:
        for command in again:
            exchange(peer, command, DUPLICATE_JOB)
        for command in others:
            exchange(peer, command, ID_TAKEN)

    exchange(peer, schedule(id, b"ping", b"first", time=rfc3339(yard.now() + 10)), OK)
    expect_duplicates()
    yard.advance(10)
    assert state(peer, id) == NEW
    expect_duplicates()
    exchange(peer, lease(b"ping"), leased(id, payload=b"first"))
    expect_duplicates()
    yard.advance(1)
    assert state(peer, id) == PENDING
    expect_duplicates()
    exchange(peer, complete(id), OK)
    expect_duplicates()
    assert job(peer, id)["payload"] == b"first"


def test_the_id_of_a_failed_job_is_a_duplicate(shared_wire: Wire) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    exchange(peer, add(id, name), OK)
    exchange(peer, fail(id), OK)
    exchange(peer, add(id, name), DUPLICATE_JOB)


def test_the_id_of_a_job_that_is_being_run_is_a_duplicate(shared_wire: Wire) -> None:
    caller, peer, id = shared_wire.connect("workq"), shared_wire.connect("workq"), new_id()
    name = new_name()
    caller.send(run(id, name))
    caller.expect_nothing()
    exchange(peer, add(id, name), DUPLICATE_JOB)
    exchange(peer, add(id), ID_TAKEN)


def test_an_id_that_is_taken_makes_no_queue(shared_wire: Wire) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    exchange(peer, add(id), OK)
    exchange(peer, add(id, name), ID_TAKEN)
    exchange(peer, b"inspect queue %b\r\n" % name, NOT_FOUND)


def test_an_id_is_free_again_after_a_delete(shared_wire: Wire) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    for payload in (b"one", b"two", b"three"):
        exchange(peer, add(id, name, payload), OK)
        exchange(peer, lease(name), leased(id, name, payload))
        exchange(peer, delete(id), OK)


def test_an_id_is_free_again_when_its_ttl_is_over(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, ttl=2000), OK)
    yard.advance(1.999)
    exchange(peer, add(id, ttl=2000), DUPLICATE_JOB)
    yard.advance(0.001)
    exchange(peer, add(id, b"other", ttl=2000), OK)
    exchange(peer, complete(id), OK)
    yard.advance(1.999)
    exchange(peer, add(id, ttl=2000), ID_TAKEN)
    yard.advance(0.001)
    exchange(peer, add(id, ttl=2000), OK)
    exchange(peer, lease(b"ping"), leased(id))


# Names and numbers


@pytest.mark.parametrize("name", [b"a", b"Z", b"0", b"_", b".", b"a-b", b"A_b.c-9", b"x" * 255])
def test_names_are_of_letters_digits_and_three_signs(yard: SimulatedWire, name: bytes) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, name), OK)
    exchange(peer, lease(name), leased(id, name))
    assert job(peer, id)["name"] == name


@pytest.mark.parametrize("name", [b"-", b"-a", b"-priority"])
def test_a_name_may_start_with_a_hyphen(yard: SimulatedWire, name: bytes) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, name), OK)
    exchange(peer, lease(name), leased(id, name))


@pytest.mark.parametrize("name", NO_NAMES)
def test_other_names_are_refused(shared_wire: Wire, name: bytes) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id, name), INVALID_NAME)
    expect_in_step(peer)
    assert not is_there(peer, id)


@pytest.mark.parametrize("ttr", [1, 2, MAX_TTR - 1, MAX_TTR])
def test_a_ttr_is_of_one_millisecond_to_a_day(shared_wire: Wire, ttr: int) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id, ttr=ttr), OK)
    assert job(peer, id)["ttr"] == b"%d" % ttr


@pytest.mark.parametrize("ttr", [b"0", b"%d" % (MAX_TTR + 1), b"%d" % (1 << 64), *NO_COUNTS])
def test_any_other_ttr_is_refused(shared_wire: Wire, ttr: bytes) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, added(id, b"ping %b 60000 4" % ttr), INVALID_TTR)
    expect_in_step(peer)
    assert not is_there(peer, id)


@pytest.mark.parametrize("ttl", [1 << 31, 1 << 32, 2_592_000_001, 1 << 63, MAX_TTL - 1, MAX_TTL])
def test_a_ttl_goes_up_to_the_largest_of_64_bits(shared_wire: Wire, ttl: int) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id, ttl=ttl), OK)
    assert job(peer, id)["ttl"] == b"%d" % ttl


def test_the_largest_ttl_does_not_end(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, ttl=MAX_TTL), OK)
    yard.advance(100 * 365 * 86_400)
    exchange(peer, lease(b"ping"), leased(id))


@pytest.mark.parametrize("ttl", [b"0", b"%d" % (MAX_TTL + 1), *NO_COUNTS])
def test_any_other_ttl_is_refused(shared_wire: Wire, ttl: bytes) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, added(id, b"ping 1000 %b 4" % ttl), INVALID_TTL)
    expect_in_step(peer)
    assert not is_there(peer, id)


@pytest.mark.parametrize("line", [b"ping -1 60000 4", b"ping 1000 -1 4", b"ping 1000 60000 -1"])
def test_negative_numbers_are_refused(shared_wire: Wire, line: bytes) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    peer.send(b"add %b %b\r\nping\r\n" % (id, line))
    assert read_reply(peer).startswith(b"-CLIENT-ERROR Invalid ")
    peer.close()
    assert not is_there(shared_wire.connect("workq"), id)


def test_a_job_is_there_until_its_ttl_is_over(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, ttl=1), OK)
    yard.advance(0.000999)
    assert is_there(peer, id)
    yard.advance(0.000001)
    assert not is_there(peer, id)
    exchange(peer, lease(b"ping"), TIMEOUT)
    assert lengths(peer, b"ping") == (0, 0)


# Flags


def test_without_flags_priority_and_limits_are_zero(shared_wire: Wire) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    keys = job(peer, id)
    assert [keys[key] for key in ("priority", "max-attempts", "max-fails")] == [b"0"] * 3


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_flags_may_come_in_any_order(shared_wire: Wire, order: tuple[int, ...]) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id, flags=b" ".join(FLAGS[at] for at in order)), OK)
    keys = job(peer, id)
    assert [keys[key] for key in ("priority", "max-attempts", "max-fails")] == [b"5", b"6", b"7"]


@pytest.mark.parametrize("flag", FLAGS)
def test_each_flag_may_come_alone(shared_wire: Wire, flag: bytes) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id, flags=flag), OK)
    key, _, value = flag[1:].partition(b"=")
    assert job(peer, id)[key.decode()] == value


@pytest.mark.parametrize("value", [-(1 << 31), -1, 0, 1, (1 << 31) - 1])
def test_a_priority_is_a_signed_number_of_32_bits(shared_wire: Wire, value: int) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id, flags=b"-priority=%d" % value), OK)
    assert job(peer, id)["priority"] == b"%d" % value


@pytest.mark.parametrize(
    "value", [b"%d" % (-(1 << 31) - 1), b"%d" % (1 << 31), b"4294967295", b"-", *NO_NUMBERS]
)
def test_any_other_priority_is_refused(shared_wire: Wire, value: bytes) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id, flags=b"-priority=" + value), INVALID_PRIORITY)
    expect_in_step(peer)
    assert not is_there(peer, id)


@pytest.mark.parametrize("value", [b"0", b"1", b"254", b"255"])
@pytest.mark.parametrize("flag", [b"max-attempts", b"max-fails"])
def test_max_attempts_and_max_fails_go_up_to_255(
    shared_wire: Wire, flag: bytes, value: bytes
) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id, flags=b"-%b=%b" % (flag, value)), OK)
    assert job(peer, id)[flag.decode()] == value


@pytest.mark.parametrize("value", [b"256", b"-1", b"4294967296", *NO_COUNTS])
@pytest.mark.parametrize(
    ("flag", "error"),
    [(b"max-attempts", INVALID_MAX_ATTEMPTS), (b"max-fails", INVALID_MAX_FAILS)],
)
def test_any_other_max_attempts_and_max_fails_are_refused(
    shared_wire: Wire, flag: bytes, error: bytes, value: bytes
) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id, flags=b"-%b=%b" % (flag, value)), error)
    expect_in_step(peer)
    assert not is_there(peer, id)


@pytest.mark.parametrize(
    "flags",
    [
        b"-=1",
        b"-priority=",
        b"-max-attempts=",
        b"-max-fails=",
        b"-=",
        b"-priority=1 -priority=1",
        b"-max-attempts=1 -max-fails=1 -max-attempts=2",
    ],
)
def test_flags_without_key_or_value_and_duplicate_flags_are_refused(
    shared_wire: Wire, flags: bytes
) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id, flags=flags), INVALID_FLAGS)
    expect_in_step(peer)
    assert not is_there(peer, id)


def test_more_flags_than_there_are_are_refused(shared_wire: Wire) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id, flags=b" ".join([*FLAGS, b"-more=1"])), INVALID_ARGS)
    expect_in_step(peer)
    assert not is_there(peer, id)


@pytest.mark.parametrize("flag", [b"-unknown=1", b"-Priority=1", b"--priority=1"])
def test_a_flag_that_is_not_known_is_refused(shared_wire: Wire, flag: bytes) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    peer.send(add(id, flags=flag))
    assert peer.read_line() in (INVALID_FLAGS, INVALID_ARGS)
    expect_in_step(peer)
    assert not is_there(peer, id)


# The order of checks


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"add 1 a/b 0 0 2 -priority=x\r\nping\r\n", INVALID_ID),
        (b"add %b a/b 0 0 2 -priority=x\r\nping\r\n", INVALID_NAME),
        (b"add %b ping 0 0 2 -priority=x\r\nping\r\n", PAYLOAD_SIZE),
        (b"add %b ping 0 0 1048577 -priority=x\r\n" + b"x" * 1048577 + b"\r\n", PAYLOAD_SIZE),
        (b"add %b ping 0 0 4 -priority=x\r\nping\r\n", INVALID_TTR),
        (b"add %b ping 1 0 4 -priority=x\r\nping\r\n", INVALID_TTL),
        (b"add %b ping 1 1 4 -priority=x\r\nping\r\n", INVALID_PRIORITY),
    ],
)
def test_id_name_payload_ttr_ttl_and_flags_are_checked_in_this_order(
    shared_wire: Wire, line: bytes, error: bytes
) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, line.replace(b"%b", new_id()), error)
    expect_in_step(peer)


def test_what_is_wrong_is_found_before_a_duplicate(shared_wire: Wire) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    exchange(peer, add(id, ttr=0), INVALID_TTR)
    exchange(peer, add(id, flags=b"-max-fails=256"), INVALID_MAX_FAILS)


# Refusals of the server


def test_a_full_disk_is_an_error_of_the_server_with_its_reason() -> None:
    disk = MemoryDisk()
    disk.set_capacity(200_000)
    yard = SimulatedServer(spare=True, disk=disk, segment_size=1 << 16)
    peer = yard.connect("workq")
    replies = {}
    for _ in range(200):
        id = new_id()
        peer.send(add(id, payload=b"x" * 1000))
        replies[id] = peer.read_line()
    assert {*replies.values()} > {OK}
    refused = {reply for reply in replies.values() if reply != OK}
    assert all(reply.startswith(b"-SERVER-ERROR ") for reply in refused), refused
    assert all(reply.endswith(b"No space left on device\r\n") for reply in refused), refused
    expect_in_step(peer)
    for id, reply in replies.items():
        assert is_there(peer, id) == (reply == OK)


def test_a_disk_that_fails_makes_every_change_an_error_of_the_server() -> None:
    yard = SimulatedServer()
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    yard.disk.fail_call("write")
    yard.connect("workq").send(add(new_id()))
    for command in (add(new_id()), run(new_id()), lease(b"ping"), complete(id), fail(id)):
        peer.send(command)
        line = peer.read_line()
        assert line.startswith(b"-SERVER-ERROR "), (command, line)
        assert b"the journal cannot be written: " in line, (command, line)
        assert line.endswith(b"\r\n")
    exchange(peer, b"bogus\r\n", client_error("Unknown command"))
