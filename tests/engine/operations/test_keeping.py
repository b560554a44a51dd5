"""Expiring keyed values, and durable sessions with what they are owed."""

import pytest
from engine.harness import ORIGIN, OWNER, Bench

from taskyard.engine.model.events import InvalidOption, ReadOnly, SessionNotFound
from taskyard.engine.model.job import (
    ALL_STAGES,
    FOREVER,
    SECOND,
    STAGE_ASSIGN,
    STAGE_DROP,
    STAGE_FINISH,
    STAGE_READY,
    STAGE_RETRY,
    Notify,
    Policy,
)
from taskyard.engine.model.state import OUTBOX_NOTICE_BYTES, EngineSettings


def put(bench: Bench, key: bytes, value: bytes = b"value", expires_at: int = 0) -> None:
    bench.engine.set_value(key, value, expires_at, ORIGIN, bench.now)


def get(bench: Bench, key: bytes) -> bytes | None:
    value = bench.engine.value(key)
    return None if value is None else bench.read(value.value_at, value.size)


# Values


def test_a_value_is_kept(bench: Bench) -> None:
    put(bench, b"k", b"value")
    assert get(bench, b"k") == b"value"
    assert get(bench, b"other") is None
    bench.restart()
    assert get(bench, b"k") == b"value"


def test_a_value_can_be_empty_and_can_be_replaced(bench: Bench) -> None:
    put(bench, b"k", b"")
    assert get(bench, b"k") == b""
    put(bench, b"k", b"new")
    assert get(bench, b"k") == b"new"


def test_a_value_is_forgotten_in_its_time(bench: Bench) -> None:
    put(bench, b"k", expires_at=bench.now + 5 * SECOND)
    bench.advance_clock(5 * SECOND - 1)
    assert get(bench, b"k") is not None
    bench.advance_clock(1)
    assert get(bench, b"k") is None
    bench.restart()
    assert get(bench, b"k") is None


def test_a_replaced_value_has_its_own_time(bench: Bench) -> None:
    put(bench, b"k", expires_at=bench.now + SECOND)
    put(bench, b"k")
    bench.advance_clock(10 * SECOND)
    assert get(bench, b"k") is not None


def test_only_the_time_can_be_changed(bench: Bench) -> None:
    put(bench, b"k", b"value", bench.now + SECOND)
    assert bench.engine.set_value_expiry(b"k", bench.now + 9 * SECOND, ORIGIN, bench.now)
    bench.advance_clock(8 * SECOND)
    assert get(bench, b"k") == b"value"
    assert bench.engine.set_value_expiry(b"k", 0, ORIGIN, bench.now)
    bench.advance_clock(8 * SECOND)
    bench.restart()
    assert get(bench, b"k") == b"value"
    assert not bench.engine.set_value_expiry(b"other", 0, ORIGIN, bench.now)


def test_a_value_for_ever_needs_no_timer(bench: Bench) -> None:
    put(bench, b"k", expires_at=FOREVER)
    assert bench.engine.next_deadline(bench.now) == 0


def test_a_deleted_value_is_gone_with_its_timer(bench: Bench) -> None:
    put(bench, b"k", expires_at=bench.now + SECOND)
    assert bench.engine.delete_value(b"k", ORIGIN, bench.now)
    assert not bench.engine.delete_value(b"k", ORIGIN, bench.now)
    assert bench.engine.next_deadline(bench.now) == 0


@pytest.mark.parametrize("key", [b"", b"k" * 65536])
def test_a_key_has_1_to_65535_bytes(bench: Bench, key: bytes) -> None:
    put(bench, b"k" * 65535)
    with pytest.raises(InvalidOption):
        put(bench, key)


def test_a_value_has_the_limit_of_payloads() -> None:
    bench = Bench(EngineSettings(payload_limit=5))
    put(bench, b"k", b"12345")
    with pytest.raises(InvalidOption):
        put(bench, b"k", b"123456")
    assert get(bench, b"k") == b"12345"


@pytest.mark.parametrize("ahead", [0, -1, -(10**17)])
def test_an_end_that_does_not_lie_ahead_is_refused(bench: Bench, ahead: int) -> None:
    put(bench, b"k")
    with pytest.raises(InvalidOption):
        put(bench, b"k", expires_at=bench.now + ahead)
    with pytest.raises(InvalidOption):
        bench.engine.set_value_expiry(b"k", bench.now + ahead, ORIGIN, bench.now)


# Sessions


def open_session(bench: Bench, id: int = 1) -> None:
    bench.engine.open_session(id, ORIGIN, bench.now)


def outbox(bench: Bench, id: int = 1) -> list[tuple[int, int, int]]:
    """Number, job and stage of each letter."""
    session = bench.engine.state.sessions[id]
    return [(letter.number, letter.job, letter.stage) for letter in session.outbox]


def test_a_session_is_opened_once(bench: Bench) -> None:
    open_session(bench)
    with pytest.raises(InvalidOption):
        open_session(bench)


def test_a_session_that_is_not_there_can_be_neither_attached_nor_closed(bench: Bench) -> None:
    with pytest.raises(SessionNotFound):
        bench.engine.attach_session(1, ORIGIN, bench.now)
    with pytest.raises(SessionNotFound):
        bench.engine.close_session(1, ORIGIN, bench.now)
    bench.collect()
    bench.engine.detach_session(1, ORIGIN, bench.now)
    bench.engine.acknowledge_notices(1, 5, ORIGIN, bench.now)
    assert bench.collect() == []


def test_what_a_session_asked_for_is_in_its_outbox(bench: Bench) -> None:
    open_session(bench)
    job = bench.push(notify=Notify(1, 42, STAGE_READY | STAGE_ASSIGN | STAGE_FINISH))
    bench.take()
    bench.ack(job)
    assert outbox(bench) == [(1, 1, STAGE_READY), (2, 1, STAGE_ASSIGN), (3, 1, STAGE_FINISH)]
    letter = bench.engine.state.sessions[1].outbox[0]
    assert (letter.label, letter.time) == (42, bench.now)


def test_letters_are_kept_until_they_are_delivered(bench: Bench) -> None:
    open_session(bench)
    job = bench.push(notify=Notify(1, 0, ALL_STAGES))
    bench.engine.acknowledge_notices(1, 2, ORIGIN, bench.now)
    assert [number for number, _, _ in outbox(bench)] == [3]
    bench.engine.detach_session(1, ORIGIN, bench.now)
    bench.take()
    bench.restart()
    assert [number for number, _, _ in outbox(bench)] == [3, 4]
    bench.engine.attach_session(1, ORIGIN, bench.now)
    bench.engine.acknowledge_notices(1, 4, ORIGIN, bench.now)
    assert outbox(bench) == []
    bench.ack(job)
    assert [number for number, _, _ in outbox(bench)] == [5]


def test_saying_again_that_a_letter_was_delivered_is_harmless(bench: Bench) -> None:
    open_session(bench)
    bench.push(notify=Notify(1, 0, ALL_STAGES))
    bench.engine.acknowledge_notices(1, 2, ORIGIN, bench.now)
    bench.collect()
    bench.engine.acknowledge_notices(1, 2, ORIGIN, bench.now)
    bench.engine.acknowledge_notices(1, 0, ORIGIN, bench.now)
    assert bench.collect() == []


def test_a_letter_that_was_never_written_cannot_be_delivered(bench: Bench) -> None:
    """Else the letters up to that number would never count as delivered."""
    open_session(bench)
    with pytest.raises(InvalidOption):
        bench.engine.acknowledge_notices(1, 1, ORIGIN, bench.now)


def test_an_outbox_is_bounded_and_the_oldest_letters_go_first() -> None:
    bench = Bench(EngineSettings(outbox_bytes=2 * OUTBOX_NOTICE_BYTES))
    open_session(bench)
    bench.push(notify=Notify(1, 0, ALL_STAGES))
    assert [number for number, _, _ in outbox(bench)] == [2, 3]


def test_a_session_nobody_comes_back_to_is_closed() -> None:
    bench = Bench(EngineSettings(outbox_age=10 * SECOND))
    open_session(bench)
    bench.advance_clock(100 * SECOND)
    bench.engine.detach_session(1, ORIGIN, bench.now)
    bench.advance_clock(10 * SECOND - 1)
    bench.engine.attach_session(1, ORIGIN, bench.now)
    bench.advance_clock(100 * SECOND)
    bench.engine.detach_session(1, ORIGIN, bench.now)
    bench.advance_clock(10 * SECOND)
    assert bench.engine.state.sessions == {}


def test_a_restart_detaches_every_session() -> None:
    bench = Bench(EngineSettings(outbox_age=10 * SECOND))
    open_session(bench, 1)
    open_session(bench, 2)
    bench.engine.detach_session(2, ORIGIN, bench.now)
    bench.advance_clock(5 * SECOND)
    bench.restart()
    assert not bench.engine.state.sessions[1].attached
    bench.advance_clock(5 * SECOND)
    assert list(bench.engine.state.sessions) == [1]
    bench.advance_clock(5 * SECOND)
    assert bench.engine.state.sessions == {}


def test_a_closed_session_gets_no_letters(bench: Bench) -> None:
    open_session(bench)
    job = bench.push(notify=Notify(1, 0, ALL_STAGES))
    bench.engine.close_session(1, ORIGIN, bench.now)
    open_session(bench)
    assert outbox(bench) == []
    bench.take()
    assert outbox(bench) == [(1, job.id, STAGE_ASSIGN)]


def test_nothing_is_kept_when_no_record_can_be_written(bench: Bench) -> None:
    open_session(bench)
    bench.engine.read_only_reason = "disk failed"
    with pytest.raises(ReadOnly):
        put(bench, b"k")
    with pytest.raises(ReadOnly):
        open_session(bench, 2)
    bench.engine.detach_session(1, ORIGIN, bench.now)
    assert bench.engine.state.sessions[1].attached


def test_an_outbox_has_a_letter_for_each_stage_of_a_job(bench: Bench) -> None:
    session = bench.engine.open_session(7, ORIGIN, bench.now)
    notify = Notify(7, 5, STAGE_RETRY | STAGE_FINISH | STAGE_DROP)
    given_back = bench.push(notify=notify)
    bench.take()
    bench.engine.release_lease(given_back.id, OWNER, ORIGIN, bench.now)
    nacked = bench.push("nacked", notify=notify)
    bench.nack(bench.take("nacked"))
    bench.ack(bench.take())
    failed = bench.push("failed", notify=notify, policy=Policy(max_fails=1))
    bench.nack(bench.take("failed"))
    letters = [(letter.job, letter.label, letter.stage) for letter in session.outbox]
    assert letters == [
        (given_back.id, 5, STAGE_RETRY),
        (nacked.id, 5, STAGE_RETRY),
        (given_back.id, 5, STAGE_FINISH),
        (failed.id, 5, STAGE_DROP),
    ]
