"""What a client of either kind does with a real server."""

from __future__ import annotations

import dataclasses
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from client.both import open_client
from support.sockets import HANG_GUARD
from support.waiting import wait_for

import taskyard
from taskyard import Client, NewJob

UID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"


@dataclasses.dataclass
class Mail:
    to: str
    at: datetime | None = None


def test_a_job_is_pushed_taken_and_acknowledged(client: Client, queue: str) -> None:
    pushed = client.push(queue, {"to": "ada"}, ttl=60)
    [job] = client.fetch(queue)
    assert (job.id, job.uid) == (pushed.id, pushed.uid)
    assert (job.queue, job.name, job.attempt, job.fails) == (queue, queue, 1, 0)
    assert job.json() == {"to": "ada"}
    assert job.decode(Mail) == Mail("ada")
    assert client.result(pushed) is None
    client.ack(job, {"sent": True})
    outcome = client.result(pushed)
    assert outcome is not None
    assert (outcome.id, outcome.state, outcome.success) == (pushed.id, "succeeded", True)
    assert outcome.json() == {"sent": True}
    assert outcome.decode(dict[str, bool]) == {"sent": True}
    assert client.fetch(queue) == []


@pytest.mark.parametrize(
    ("payload", "sent"),
    [
        (b"\x00\r\n\xff", b"\x00\r\n\xff"),
        (b"", b""),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        ("text", b'"text"'),
        (None, b"null"),
        ([1, 2.5, "\u00e4"], '[1,2.5,"\u00e4"]'.encode()),
        (
            Mail("ada", datetime(2030, 1, 2, tzinfo=UTC)),
            b'{"to":"ada","at":"2030-01-02T00:00:00Z"}',
        ),
    ],
)
def test_bytes_are_sent_as_they_are_and_all_else_as_json(
    client: Client, queue: str, payload: object, sent: bytes
) -> None:
    client.push(queue, payload)
    assert client.fetch(queue)[0].payload == sent


def test_what_cannot_be_json_is_not_sent(client: Client, queue: str) -> None:
    with pytest.raises(TypeError):
        client.push(queue, object())
    assert client.fetch(queue) == []


def test_the_options_of_a_push(client: Client, queue: str) -> None:
    first = client.push(queue, 1)
    job = client.push(
        queue,
        2,
        name="send",
        priority=-7,
        delay=timedelta(hours=1),
        ttr=2.5,
        ttl=7200,
        retries=3,
        backoff=(1, 60),
        attempts=9,
        dead_queue=f"{queue}-dead",
        uid=uuid.uuid4(),
        unique="the key",
        blocked_by=[first],
    )
    info = client.inspect(job)
    assert (info.uid, info.name, info.priority) == (job.uid, "send", -7)
    assert (info.ttr, info.ttl, info.max_fails, info.max_attempts) == (2.5, 7200, 4, 9)
    assert (info.dead_queue, info.state, info.blocked_by) == (
        f"{queue}-dead",
        "blocked",
        [first.id],
    )
    assert info.key is not None
    assert info.key.data == b"the key"
    assert info.payload is not None
    assert info.payload.json() == 2
    assert info.run_at is not None
    assert info.run_at > datetime.now(UTC) + timedelta(minutes=55)


def test_a_time_to_run_at(client: Client, queue: str) -> None:
    at = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert client.inspect(client.push(queue, run_at=at)).run_at == at
    assert client.inspect(client.push(queue, run_at=at.timestamp())).run_at == at
    assert [job.due_at for job in client.jobs(queue, "delayed")] == [at, at]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"run_at": datetime(2100, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"delay": -1}, "less than nothing"),
        ({"retries": -2}, "retries must be"),
        ({"uid": "x"}, "is not a UUID"),
        ({"blocked_by": ["x"]}, "neither an id nor a uid"),
    ],
)
def test_options_that_cannot_be_meant(
    client: Client, queue: str, options: dict[str, object], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        client.push(queue, **options)  # type: ignore[arg-type]


def test_a_uid_is_pushed_once(client: Client, queue: str) -> None:
    uid = str(uuid.uuid4())
    first = client.push(queue, 1, uid=uid.upper())
    assert (first.uid, first.new) == (uid, True)
    again = client.push(queue, 2, uid=uid)
    assert (again.id, again.uid, again.new) == (first.id, uid, False)
    assert client.queue(queue).counts.ready == 1


def test_a_uid_is_of_one_queue(client: Client, queue: str) -> None:
    uid = str(uuid.uuid4())
    client.push(queue, 1, uid=uid)
    with pytest.raises(taskyard.UidTaken):
        client.push(f"{queue}-other", 2, uid=uid)
    with pytest.raises(taskyard.QueueNotFound):
        client.queue(f"{queue}-other")


def test_a_unique_key_is_there_once_while_it_waits(client: Client, queue: str) -> None:
    first = client.push(queue, 1, unique="k")
    again = client.push(queue, 2, unique=b"k")
    assert (again.id, again.new) == (first.id, False)
    [job] = client.fetch(queue, count=2)
    client.ack(job)
    assert client.push(queue, 3, unique="k").new


def test_uids_that_were_made_are_uuids_that_nobody_else_has(
    client: Client, url: str, kind: str, queue: str
) -> None:
    with open_client(kind, url) as other:
        pushed = [one.push(queue) for one in (client, other) for _ in range(5)]
    pushed += client.push_many(queue, [b""] * 5) + client.push_many(queue, [b""] * 5)
    assert len({uuid.UUID(one.uid) for one in pushed}) == 20
    assert all(uuid.UUID(one.uid).version == 4 for one in pushed)


# Many at once


def test_many_are_pushed_and_fetched_in_order(client: Client, queue: str) -> None:
    pushed = client.push_many(queue, ({"n": n} for n in range(3000)), priority=2, name="n")
    assert [one.id for one in pushed] == list(range(pushed[0].id, pushed[0].id + 3000))
    assert client.inspect(pushed[-1]).uid == pushed[-1].uid
    jobs = [job for _ in range(3) for job in client.fetch(queue, count=1000)]
    assert [job.json()["n"] for job in jobs] == list(range(3000))
    assert [job.uid for job in jobs] == [one.uid for one in pushed]
    assert jobs[0].name == "n"
    assert client.ack_many(jobs) == []
    counts = client.queue(queue).counts
    assert (counts.ready, counts.leased) == (0, 0)


def test_none_are_pushed(client: Client, queue: str) -> None:
    assert client.push_many(queue, []) == []
    assert client.push_all([]) == []


def test_a_single_payload_is_not_many(client: Client, queue: str) -> None:
    with pytest.raises(TypeError, match="there is push"):
        client.push_many(queue, b"abc")


def test_payloads_as_large_as_they_may_be(client: Client, queue: str) -> None:
    payloads = [bytes([n]) * (1 << 20) for n in range(24)]
    pushed = client.push_many(queue, payloads)
    assert len(pushed) == 24
    taken = [job for _ in range(24) for job in client.fetch(queue)]
    assert [job.payload for job in taken] == payloads
    client.ack_many(taken)


def test_a_job_that_is_refused_ends_a_push_of_many(client: Client, queue: str) -> None:
    payloads = [b"a", b"b", b"x" * (1 << 21), b"c"]
    with pytest.raises(taskyard.Incomplete, match="larger than the limit") as caught:
        client.push_many(queue, payloads)
    first, second, third, *rest = caught.value.outcomes
    assert isinstance(first, taskyard.Pushed)
    assert isinstance(second, taskyard.Pushed)
    assert isinstance(third, taskyard.Refused)
    assert caught.value.__cause__ is third
    there = {job.uid for job in client.jobs(queue)}
    assert there == {one.uid for one in (first, second, *rest) if isinstance(one, taskyard.Pushed)}


def test_an_error_of_the_payloads_comes_when_those_before_are_pushed(
    client: Client, queue: str
) -> None:
    def broken() -> object:
        yield from [b"a", b"b"]
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        client.push_many(queue, broken())  # type: ignore[arg-type]
    assert client.queue(queue).counts.ready == 2


def test_jobs_are_pushed_together(client: Client, queue: str) -> None:
    other = f"{queue}-other"
    jobs = client.push_all(
        [
            NewJob(queue, 1),
            NewJob(other, {"two": 2}, name="two", blocked_by=[-1]),
            NewJob(other, 3, blocked_by=[-1, -2]),
        ]
    )
    assert client.inspect(jobs[1]).blocked_by == [jobs[0].id]
    assert sorted(client.inspect(jobs[2].uid).blocked_by) == [jobs[0].id, jobs[1].id]
    client.ack(client.fetch(queue)[0])
    [second] = client.fetch(other, count=5, wait=HANG_GUARD)
    assert (second.id, second.name, second.json()) == (jobs[1].id, "two", {"two": 2})


def test_all_or_none_are_pushed(client: Client, queue: str) -> None:
    with pytest.raises(taskyard.Refused, match="invalid queue name"):
        client.push_all([NewJob(queue), NewJob("no name")])
    uid = str(uuid.uuid4())
    known = client.push(f"{queue}-other", uid=uid)
    with pytest.raises(taskyard.Duplicate) as caught:
        client.push_all([NewJob(queue), NewJob(f"{queue}-other", uid=uid)])
    assert caught.value.job_id == known.id
    with pytest.raises(taskyard.UidTaken, match=r"job 2 of the command") as taken:
        client.push_all([NewJob(queue), NewJob(queue, uid=uid)])
    assert str(known.id) not in str(taken.value).replace("job 2", "")
    with pytest.raises(taskyard.QueueNotFound):
        client.queue(queue)
    with pytest.raises(ValueError, match="at most 1000"):
        client.push_all([NewJob(queue)] * 1001)


# Taking


def test_a_fetch_waits_for_a_job(client: Client, url: str, queue: str) -> None:
    with Client(url) as other:
        waiting = threading.Thread(target=_push_when_awaited, args=(other, queue))
        waiting.start()
        client.configure(queue, replace=True)
        [job] = client.fetch("nothing-there", queue, wait=HANG_GUARD)
        waiting.join(HANG_GUARD)
    assert job.payload == b"late"


def _push_when_awaited(client: Client, queue: str) -> None:
    def is_awaited() -> bool:
        try:
            return client.queue(queue).waiting > 0
        except taskyard.QueueNotFound:
            return False

    wait_for(is_awaited)
    client.push(queue, b"late")


def test_a_fetch_waits_for_no_longer_than_it_is_told(client: Client, queue: str) -> None:
    began = time.monotonic()
    assert client.fetch(queue, wait=timedelta(milliseconds=50)) == []
    assert time.monotonic() - began >= 0.05


def test_a_fetch_of_queues_in_their_order_or_at_random(client: Client, queue: str) -> None:
    names = [f"{queue}-{n}" for n in range(3)]
    for name in names:
        client.push(name)
    assert [job.queue for job in client.fetch(*reversed(names), count=3)] == names[::-1]
    for name in names:
        client.push(name)
    assert sorted(job.queue for job in client.fetch(*names, count=3, random=True)) == names


@pytest.mark.parametrize("count", [0, 1001])
def test_a_fetch_of_what_cannot_be(client: Client, queue: str, count: int) -> None:
    with pytest.raises(ValueError, match="count must be"):
        client.fetch(queue, count=count)
    with pytest.raises(ValueError, match="name of a queue"):
        client.fetch()


def test_failures(client: Client, queue: str) -> None:
    pushed = client.push(queue, retries=2)
    [job] = client.fetch(queue)
    assert client.nack(job, "not yet", delay=0) == "ready"
    [job] = client.fetch(queue)
    assert (job.attempt, job.fails) == (2, 1)
    assert client.nack(job, "not yet", delay=3600) == "delayed"
    client.retry(pushed)
    [job] = client.fetch(queue)
    assert client.nack(job, ValueError.__name__) == "failed"
    outcome = client.result(pushed)
    assert outcome is not None
    assert (outcome.success, outcome.state, outcome.error_text) == (False, "failed", "ValueError")


def test_a_failure_for_good_with_its_result(client: Client, queue: str) -> None:
    pushed = client.push(queue, retries=5)
    [job] = client.fetch(queue)
    client.fail(job, {"code": 3})
    [letter] = client.dead(queue)
    assert (letter.id, letter.state) == (pushed.id, "failed")
    assert letter.error is not None
    assert letter.error.json() == {"code": 3}


def test_a_job_is_given_back(client: Client, queue: str) -> None:
    client.push(queue, 1)
    client.push(queue, 2)
    [job] = client.fetch(queue)
    client.give_back(job)
    [again] = client.fetch(queue)
    assert (again.id, again.attempt, again.fails) == (job.id, 2, 0)


def test_a_lease_that_is_over(client: Client, queue: str) -> None:
    client.push(queue)
    [job] = client.fetch(queue)
    client.cancel(job)
    for end in (client.ack, client.nack, client.fail, client.give_back):
        with pytest.raises(taskyard.StaleLease):
            end(job)
    with pytest.raises(taskyard.StaleLease):
        client.extend(job, 5)
    assert job.lost
    assert client.ack_many([job]) == [job]


def test_the_progress_of_a_job(client: Client, queue: str) -> None:
    pushed = client.push(queue)
    [job] = client.fetch(queue)
    client.progress(job, 0.4, "on its way")
    shown = client.inspect(pushed).progress
    assert shown is not None
    assert (shown.fraction, shown.message) == (0.4, "on its way")
    with pytest.raises(ValueError, match="between 0 and 1"):
        client.progress(job, 40)


# Results


def test_a_result_is_waited_for(client: Client, url: str, queue: str) -> None:
    pushed = client.push(queue, ttl=60)
    [job] = client.fetch(queue)
    assert client.result(pushed.uid, wait=0.02) is None
    with Client(url) as other:
        ending = threading.Timer(0.05, lambda: other.ack(job, b"\x00"))
        ending.start()
        outcome = client.result(uuid.UUID(pushed.uid), wait=HANG_GUARD)
        ending.join()
    assert outcome is not None
    assert outcome.result == b"\x00"


def test_a_job_that_is_not_known(client: Client) -> None:
    for ask in (client.result, client.inspect, client.cancel):
        with pytest.raises(taskyard.JobNotFound):
            ask(uuid.uuid4())
    with pytest.raises(ValueError, match="neither an id nor a uid"):
        client.inspect("../server")


# What there is


def test_queues_and_their_settings(client: Client, queue: str) -> None:
    name = f"{queue}/\u00e4?#%"
    assert client.configure(name, replace=True, retries=3).settings.retries == 3
    assert client.configure(name, max_jobs=1).settings.retries == 3
    assert name in [one.name for one in client.queues()]
    client.push(name, 1)
    with pytest.raises(taskyard.QueueFull):
        client.push(name, 2)
    with pytest.raises(taskyard.QueueFull):
        client.call_api("POST", f"/api/v1/queues/{queue}%2F%C3%A4%3F%23%25/jobs", {"payload": 2})
    assert client.pause(name).paused
    assert client.fetch(name) == []
    assert not client.resume(name).paused
    with pytest.raises(taskyard.Problem) as caught:
        client.delete(name)
    assert (caught.value.code, caught.value.status) == ("queue-not-empty", 409)
    assert client.purge(name, "ready") == 1
    assert client.purge(name) == 0
    assert client.delete(name, purge=True) == 0
    with pytest.raises(taskyard.QueueNotFound):
        client.queue(name)


def test_lists_of_any_length(client: Client, queue: str) -> None:
    pushed = client.push_many(queue, [b""] * 2100)
    assert [job.id for job in client.jobs(queue)] == [one.id for one in pushed]
    assert len(list(client.jobs(queue, limit=1050))) == 1050
    assert list(client.jobs(queue, limit=0)) == []
    jobs = client.fetch(queue, count=3)
    assert [held.id for held in client.leases(queue)] == [job.id for job in jobs]
    assert {job.id for job in jobs} <= {held.id for held in client.leases()}
    client.ack_many(jobs)
    assert [job.id for job in client.finished(limit=3)] == [job.id for job in reversed(jobs)]


def test_dead_letters(client: Client, queue: str) -> None:
    pushed = client.push_many(queue, [b""] * 3)
    for job in client.fetch(queue, count=3):
        client.fail(job, "5")
    groups = client.dead_groups(queue)
    assert (groups.total, groups.groups[0].count) == (3, 3)
    reason = groups.groups[0].reason
    assert [letter.id for letter in client.dead(queue, reason)] == [one.id for one in pushed]
    assert list(client.dead(queue, "another")) == []
    replayed = client.replay(queue, [pushed[0].id, 1 << 60])
    assert (replayed.replayed, replayed.skipped) == (1, [1 << 60])
    assert client.replay(queue, reason="another").replayed == 0
    assert client.purge_dead(queue, [pushed[1].id, 1 << 60]) == 1
    assert client.purge_dead(queue, reason="another") == 0
    assert client.purge_dead(queue, reason=reason) == 1
    assert client.replay(queue).replayed == 0


def test_a_job_is_moved_and_changed(client: Client, queue: str) -> None:
    first, second = client.push_many(queue, [1, 2])
    assert client.set_priority(second, 5).priority == 5
    assert [job.id for job in client.jobs(queue)] == [second.id, first.id]
    assert client.move(first, f"{queue}-other", front=True).queue == f"{queue}-other"
    with pytest.raises(taskyard.Problem, match="ready") as caught:
        client.retry(first)
    assert caught.value.code == "wrong-state"


def test_the_server_itself(client: Client, url: str) -> None:
    client.ping()
    info = client.server()
    assert info.version == taskyard.__version__
    assert info.durability == "sync"
    assert str(info.listeners["resp"]["port"]) in url
    assert client.call_api("get", "/api/v1/server")["version"] == info.version
    with pytest.raises(taskyard.Problem) as caught:
        client.call_api("GET", "/api/v1/nothing")
    assert caught.value.status == 404


def test_a_database_has_queues_of_its_own(client: Client, url: str, kind: str, queue: str) -> None:
    with open_client(kind, f"{url}/3") as third:
        third.push(queue, 3)
        assert third.queue(queue).counts.ready == 1
        assert client.queue(f"db3:{queue}").counts.ready == 1
        assert [job.queue for job in third.fetch(queue)] == [queue]
    assert client.fetch(queue) == []


def test_an_answer_from_a_server_of_another_version_can_be_read() -> None:
    text = b'{"id":1,"uid":"u","queue":"q","name":"n","state":"new","colour":"red"}'
    assert msgspec.json.decode(text, type=taskyard.JobInfo).state == "new"


def test_schedules_are_set_shown_paused_run_and_deleted(client: Client, queue: str) -> None:
    name = f"nightly/{queue}"
    made = client.set_schedule(
        name, queue, cron="0 3 * * *", timezone="Europe/Berlin", payload={"a": 1}, retries=2
    )
    assert (made.name, made.queue, made.job_name, made.max_fails) == (name, queue, queue, 3)
    assert made.payload is not None
    assert made.payload.json() == {"a": 1}
    assert made.next_at is not None
    assert client.schedule(name) == made
    assert name in [one.name for one in client.schedules()]
    assert client.pause_schedule(name).paused
    assert not client.resume_schedule(name).paused
    pushed = client.run_schedule(name)
    [job] = client.fetch(queue)
    assert (job.id, job.json()) == (pushed.id, {"a": 1})
    client.ack(job)
    client.delete_schedule(name)
    with pytest.raises(taskyard.ScheduleNotFound):
        client.schedule(name)
