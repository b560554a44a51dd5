"""The parts of a client that need no server: words, uids, what is on its way, what is imported."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

import taskyard
from taskyard.client import feeding
from taskyard.client.api import ApiCalls
from taskyard.client.commands import (
    Call,
    NewJob,
    Reply,
    fetch,
    new_uid,
    new_uids,
    push,
    push_all,
    push_words,
    to_milliseconds,
)
from taskyard.client.errors import NotNow, Refused, refusal_from_reply
from taskyard.client.feeding import PushStream
from taskyard.client.views import ScheduleInfo

UID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (NewJob("q"), []),
        (NewJob("q", name="n", priority=-1), ["NAME", "n", "PRIORITY", -1]),
        (NewJob("q", run_at=datetime(1970, 1, 2, tzinfo=UTC)), ["AT", 86_400_000]),
        (NewJob("q", run_at=-5.0, delay=timedelta(seconds=2)), ["AT", 0, "IN", 2000]),
        (NewJob("q", ttr=0.0001, ttl=1.5), ["TTR", 1, "TTL", 1500]),
        (NewJob("q", retries=0, attempts=2), ["FAILS", 1, "ATTEMPTS", 2]),
        (NewJob("q", retries=-1, backoff=2), ["FAILS", 0, "BACKOFF", 2000, 0]),
        (NewJob("q", backoff=(1, timedelta(minutes=1))), ["BACKOFF", 1000, 60_000]),
        (NewJob("q", unique=b"\x00", limit_key="ada"), ["KEY", b"\x00", "LIMIT", "ada"]),
        (NewJob("q", dead_queue="d", blocked_by=[7, UID]), ["DEAD", "d", "AFTER", 2, "7", UID]),
    ],
)
def test_the_words_of_a_push(new: NewJob, words: list[object]) -> None:
    assert push_words(new) == words


def test_the_time_of_a_wait_that_was_broken_off_counts() -> None:
    call = fetch(["a", "b"], 3, 10, 2, True)
    assert call.words[-2:] == ["WAIT", 10_000]
    later = call.with_remaining_wait(4.0)
    assert (later.words[-2:], later.wait) == (["WAIT", 6000], 6.0)
    assert call.with_remaining_wait(11.0).words[-2:] == ["WAIT", 0]
    assert push(NewJob("q")).with_remaining_wait(5.0).wait == 0


def test_durations() -> None:
    assert [to_milliseconds(span) for span in (0, 0.0004, 1.2345, timedelta(days=1))] == [
        0,
        1,
        1234,
        86_400_000,
    ]
    for wrong in (-1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="duration"):
            to_milliseconds(wrong)
    with pytest.raises(ValueError, match="run_at"):
        push_words(NewJob("q", run_at=float("inf")))


def test_uids_are_uuids_and_never_the_same() -> None:
    made = [*new_uids(600), *(new_uid() for _ in range(100))]
    assert len(set(made)) == 700
    for text in made:
        found = uuid.UUID(text)
        assert str(found) == text
        assert (found.version, found.variant) == (4, uuid.RFC_4122)
    assert new_uids(0) == []


def test_uids_have_nothing_in_common_but_their_marks() -> None:
    """Whoever has seen some cannot say the next one."""
    for made in (new_uids(300), [new_uid() for _ in range(300)], uids_of(300)):
        same = [at for at, digits in enumerate(zip(*made, strict=True)) if len(set(digits)) < 9]
        assert same == [8, 13, 14, 18, 19, 23]


def uids_of(count: int) -> list[str]:
    """Of the pushes of one push_many."""
    sent = PushStream(NewJob("q"), [b""] * count).next_commands().decode().split("\r\n")
    return [sent[at + 2] for at, word in enumerate(sent) if word == "UID"]


# Repetitions


DUPLICATE = "DUPLICATE 7 is a job with this uid"


def test_a_uid_of_our_own_that_is_known_is_an_error_unless_it_was_sent_before() -> None:
    call = push(NewJob("q"))
    with pytest.raises(taskyard.Duplicate):
        call.read_reply(refusal_from_reply(DUPLICATE), False)
    pushed = call.read_reply(refusal_from_reply(DUPLICATE), True)
    assert (pushed.id, pushed.uid, pushed.new) == (7, call.words[4], True)


@pytest.mark.parametrize("again", [False, True])
def test_a_given_uid_that_is_known_is_not_new(again: bool) -> None:
    pushed = push(NewJob("q", uid=UID)).read_reply(refusal_from_reply(DUPLICATE), again)
    assert (pushed.id, pushed.uid, pushed.new) == (7, UID, False)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("uid", [None, UID])
def test_a_uid_that_is_anothers_is_an_error(uid: str | None, again: bool) -> None:
    taken = refusal_from_reply("UIDTAKEN another push has this uid")
    for call in (push(NewJob("q", uid=uid)), push_all([NewJob("q", uid=uid)])):
        with pytest.raises(taskyard.UidTaken):
            call.read_reply(taken, again)


def test_among_many_a_known_uid_is_an_error_unless_it_was_sent_before() -> None:
    feed = PushStream(NewJob("q"), [b"a", b"b", b"c"])
    feed.next_commands()
    feed.on_replies([1, NotNow("OOM no room"), NotNow("OOM no room")])
    feed.resend_unanswered()  # the server has said that it did not do them
    feed.next_commands()
    feed.on_replies([refusal_from_reply(DUPLICATE), 3])
    with pytest.raises(taskyard.Incomplete) as caught:
        feed.result()
    first, second, third = caught.value.outcomes
    assert isinstance(second, taskyard.Duplicate)
    assert isinstance(first, taskyard.Pushed)
    assert isinstance(third, taskyard.Pushed)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("STALE it is over", taskyard.StaleLease),
        ("DUPLICATE 7 is a job with this uid", taskyard.Duplicate),
        ("UIDTAKEN another push has this uid", taskyard.UidTaken),
        ("NOJOB there is none", taskyard.JobNotFound),
        ("NOPERM no", taskyard.Denied),
        ("OOM queue is full: 3 jobs", taskyard.QueueFull),
        ("OOM the disk is full", taskyard.NotNow),
        ("DRAINING the queue", taskyard.Draining),
        ("READONLY the journal", taskyard.NotNow),
        ("ERR what", Refused),
    ],
)
def test_the_kinds_of_errors(text: str, kind: type[Refused]) -> None:
    error = refusal_from_reply(text)
    assert type(error) is kind
    assert error.code == text.partition(" ")[0]


# push_many, without a connection


def answer(feed: PushStream, sent: bytes, ids: Iterator[int]) -> None:
    feed.on_replies([next(ids) for _ in range(sent.count(b"JOB.PUSH"))])


def test_no_more_than_a_window_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "_WINDOW_JOBS", 10)
    monkeypatch.setattr(feeding, "_CHUNK_JOBS", 4)
    read = itertools.count()
    feed = PushStream(NewJob("q"), (b"%d" % number for number in read))
    sent = b""
    while chunk := feed.next_commands():
        sent += chunk
    assert sent.count(b"JOB.PUSH") == 10
    assert next(read) == 10
    feed.on_replies([1, 2, 3])
    assert feed.next_commands().count(b"JOB.PUSH") == 3


def test_large_payloads_make_the_window_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "_WINDOW_BYTES", 5000)
    monkeypatch.setattr(feeding, "_CHUNK_BYTES", 1000)
    feed = PushStream(NewJob("q"), itertools.repeat(b"x" * 900))
    assert sum(len(chunk) for chunk in iter(feed.next_commands, b"")) < 7000
    assert not feed.done


def test_something_is_sent_however_slow_this_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = itertools.count(0.0, 3600.0)
    monkeypatch.setattr(feeding, "time", SimpleNamespace(monotonic=lambda: next(hours)))
    feed = PushStream(NewJob("q"), [b"a", b"b"])
    assert feed.next_commands().count(b"JOB.PUSH") == 1
    assert feed.next_commands().count(b"JOB.PUSH") == 1


def test_what_has_no_answer_is_sent_again_as_it_was() -> None:
    feed = PushStream(NewJob("q"), [b"a", b"b", b"c"])
    first = feed.next_commands()
    feed.on_replies([1])
    feed.resend_unanswered()
    again = feed.next_commands()
    assert again in first
    assert b"a" not in again.split(b"\r\n")
    feed.on_replies([refusal_from_reply("DUPLICATE 2 is a job with this uid"), 3])
    assert feed.done
    assert [(one.id, one.new) for one in feed.result()] == [(1, True), (2, True), (3, True)]


def test_what_the_server_could_not_do_now_is_put_off() -> None:
    feed = PushStream(NewJob("q"), [b"a", b"b", b"c"])
    feed.next_commands()
    replies: list[Reply] = [NotNow("OOM no room"), 2, NotNow("OOM no room")]
    feed.on_replies(replies)
    assert feed.done
    assert feed.transient_error() is not None
    feed.resend_unanswered()
    assert feed.transient_error() is None
    assert feed.next_commands().count(b"JOB.PUSH") == 2
    feed.on_replies([3, 4])
    assert feed.done
    assert [one.id for one in feed.result()] == [3, 2, 4]


# Schedules


def body_of(call: Call[ScheduleInfo]) -> object:
    method, path, body = call.words[1:4]
    assert (method, path) == ("PUT", "/api/v1/schedules/every%2Fnight")
    assert isinstance(body, bytes)
    return json.loads(body)


def test_the_body_of_a_schedule() -> None:
    made = ApiCalls("db2:").set_schedule(
        "every/night",
        "q",
        {
            "cron": "0 3 * * *",
            "timezone": "Europe/Berlin",
            "payload": b"\xff",
            "job_name": "tidy",
            "retries": 2,
            "attempts": 5,
            "ttr": timedelta(minutes=1),
            "unique": "tidy",
            "dead_queue": "dead",
            "overlap": "skip",
        },
    )
    assert body_of(made) == {
        "queue": "db2:q",
        "cron": "0 3 * * *",
        "timezone": "Europe/Berlin",
        "base64": "/w==",
        "name": "tidy",
        "max_fails": 3,
        "max_attempts": 5,
        "ttr": 60,
        "key": "tidy",
        "dead_queue": "db2:dead",
        "overlap": "skip",
    }
    simple = ApiCalls().set_schedule("every/night", "q", {"every": 5, "payload": {"a": 1}})
    assert body_of(simple) == {"queue": "q", "every": 5, "payload": {"a": 1}}
    endless = ApiCalls().set_schedule("every/night", "q", {"every": 5, "retries": -1})
    assert body_of(endless) == {"queue": "q", "every": 5, "max_fails": 2**32 - 1}


# The package


def test_the_package_loads_nothing_before_it_is_used() -> None:
    code = "import sys, taskyard; taskyard.__version__; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "taskyard" in loaded
    assert not {"asyncio", "msgspec", "hiredis", "taskyard.client"} & set(loaded)


def test_the_names_of_the_package() -> None:
    for name in taskyard._MODULES:
        assert getattr(taskyard, name).__name__ == name
    assert {"Client", "AsyncClient", "Job", "Unavailable"} <= set(dir(taskyard))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = taskyard.Nothing  # type: ignore[attr-defined]
