"""What is particular to Taskyard: the jobs behind the tasks."""

from __future__ import annotations

import socketserver
import threading
import uuid
from collections.abc import Iterator

import pytest
from support.sockets import HANG_GUARD
from support.waiting import wait_for
from toq.brokers import Running, TaskyardBroker
from toq.consumers import Consumers, PatientProducer

from taskyard.client.source import Failed, Job, Released, RetryLater, Success
from taskyard.toq import Producer, Refused, Result, Task, Unavailable
from taskyard.toq.backends.taskyard import TaskyardSource

REF, UID, NAME, ATTEMPT, FAILS = 0, 2, 4, 5, 6


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(TaskyardBroker(tmp_path_factory.mktemp("yard"))) as server:
        yield server


@pytest.fixture
def producer(yard: Running) -> Iterator[Producer]:
    with PatientProducer(yard.url) as found:
        yield found


@pytest.fixture
def source(yard: Running, queue: str) -> Iterator[TaskyardSource]:
    found = TaskyardSource(yard.url, [queue], 30.0, 500)
    yield found
    found.close()


def take(yard: Running, queue: str) -> list[object]:
    """A job as another program gets it."""
    jobs = yard.ask("JOB.TAKE", 1, queue, "WAIT", 5000, "TTR", 60_000)
    assert isinstance(jobs, list)
    assert isinstance(jobs[0], list)
    return list(jobs[0])


def test_a_task_is_a_job_with_its_key_and_id(yard: Running, queue: str, producer: Producer) -> None:
    task = Task(key="resize")
    producer.enqueue(queue, task)
    job = take(yard, queue)
    assert (job[NAME], job[UID]) == (b"resize", task.id.encode())


def test_a_task_that_is_enqueued_again_is_there_once(
    yard: Running, queue: str, producer: Producer
) -> None:
    task = Task(key="a")
    producer.enqueue(queue, task)
    producer.enqueue_many(queue, [task, Task(id=task.id.upper(), key="a")])
    assert yard.ask("LLEN", queue) == 1


def test_a_task_that_is_enqueued_elsewhere_too_is_refused(
    yard: Running, queue: str, producer: Producer
) -> None:
    task = Task(key="a")
    producer.enqueue(queue, task)
    with pytest.raises(Refused) as caught:
        producer.enqueue(f"{queue}-other", task)
    assert caught.value.code == "UIDTAKEN"
    assert yard.ask("LLEN", f"{queue}-other") == 0


@pytest.mark.parametrize("key", ["two words", "", "x" * 256])
def test_a_key_that_is_no_name_of_a_job_is_no_hindrance(
    yard: Running, queue: str, producer: Producer, consumers: Consumers, key: str
) -> None:
    seen: list[int] = []

    def fail(task: Task) -> None:
        seen.append(task.tried)
        raise ValueError

    consumers.start(yard.url, queue, {key: fail})
    task_id = producer.enqueue(queue, Task.of(key, max_retries=2))
    assert not producer.result(task_id).succeeded
    assert seen == [0, 1, 2]


def test_the_fails_of_the_job_are_the_retries_of_the_task(
    yard: Running, queue: str, producer: Producer, source: TaskyardSource
) -> None:
    producer.enqueue(queue, Task.of("a", max_retries=1))
    job = source.fetch_jobs(1, 5)[0]
    again = RetryLater(b"why", 0.0, b"", b"the result", f"result-{queue}")
    assert source.finish_jobs([(job, again)]) == []
    assert yard.ask("EXISTS", f"result-{queue}") == 0
    second = source.fetch_jobs(1, 5)[0]
    assert (second.attempt, second.fails) == (2, 1)
    # Only so many retries were allowed when it was pushed, so this one is final.
    assert source.finish_jobs([(second, again)]) == []
    assert yard.ask("GET", f"result-{queue}") == b"the result"
    assert source.fetch_jobs(1, 0) == []


def test_a_failure_for_good_is_one_whatever_the_job_would_allow(
    yard: Running, queue: str, source: TaskyardSource
) -> None:
    yard.ask("JOB.PUSH", queue, "one", "NAME", "a", "FAILS", 5)
    job = source.fetch_jobs(1, 5)[0]
    assert source.finish_jobs([(job, Failed(b"why"))]) == []
    assert source.fetch_jobs(1, 0) == []


def test_a_plain_list_entry_is_tried_again_as_often_as_its_task_says(
    yard: Running, queue: str, source: TaskyardSource
) -> None:
    task = Task(key="a", retry=True, max_retries=5).to_json()
    yard.ask("RPUSH", queue, task)
    for fails in range(3):
        job = source.fetch_jobs(1, 5)[0]
        assert (job.payload, job.fails) == (task, fails)
        again = RetryLater(b"why", 0.0, task)
        assert source.finish_jobs([(job, again)]) == []
        assert source.finish_jobs([(job, again)]) == [job]


def test_a_task_that_is_given_back_has_no_fail(
    queue: str, producer: Producer, source: TaskyardSource
) -> None:
    producer.enqueue(queue, Task(key="a"))
    job = source.fetch_jobs(1, 5)[0]
    assert source.finish_jobs([(job, Released())]) == []
    again = source.fetch_jobs(1, 5)[0]
    assert (again.attempt, again.fails) == (2, 0)


def test_a_lease_that_is_over_is_known(
    yard: Running, queue: str, producer: Producer, source: TaskyardSource
) -> None:
    producer.enqueue_many(queue, [Task(key="a"), Task(key="a")])
    first, second = source.fetch_jobs(2, 5)
    assert source.extend_leases([first, second]) == []
    assert source.finish_jobs([(first, Success(b"yes", f"one-{queue}"))]) == []
    assert source.extend_leases([first, second]) == [first]
    failed = Failed(b"why", b"no", f"two-{queue}")
    assert source.finish_jobs([(first, Success()), (second, failed)]) == [first]
    assert yard.ask("GET", f"one-{queue}") == b"yes"
    assert yard.ask("GET", f"two-{queue}") == b"no"


def test_an_id_that_is_no_uuid_is_no_hindrance(
    yard: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    consumers.start(yard.url, queue, {"a": lambda task: task.id})
    name = f"task {queue}"
    producer.enqueue(queue, Task(id=name, key="a"))
    assert producer.result(name).value() == name


def test_a_task_without_an_id_goes_by_that_of_its_job(
    yard: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    seen: list[str] = []
    consumers.start(yard.url, queue, {"a": lambda task: seen.append(task.id)})
    yard.ask("RPUSH", queue, '{"key":"a"}')
    wait_for(lambda: seen)
    assert str(uuid.UUID(seen[0])) == seen[0]
    assert producer.result(seen[0]).succeeded


def test_another_dialects_failure_counts_as_a_try(
    yard: Running, queue: str, consumers: Consumers
) -> None:
    roads: list[list[str]] = []
    task = Task.of("a", max_retries=3)
    yard.ask("JOB.PUSH", queue, task.to_json(), "NAME", "a", "FAILS", 4)
    yard.ask("JOB.FAIL", str(take(yard, queue)[REF], "ascii"), "elsewhere")  # type: ignore[call-overload]
    consumers.start(yard.url, queue, {"a": lambda task: roads.append(task.road)})
    wait_for(lambda: roads == [[queue, "retry_time_1"]])


def test_many_tasks_are_pushed_in_one_go(yard: Running, queue: str, producer: Producer) -> None:
    tasks = [Task(key="a") for _ in range(600)]
    producer.enqueue_many(queue, tasks)
    found = yard.ask("LRANGE", queue, 0, -1)
    assert found == [task.to_json() for task in tasks]


def test_one_refusal_among_many_is_raised_and_the_others_are_pushed(
    yard: Running, queue: str, producer: Producer
) -> None:
    tasks = [Task(key="a"), Task(key="a", args="x" * (2 << 20)), Task(key="a")]
    with pytest.raises(Refused, match="larger than the limit"):
        producer.enqueue_many(queue, tasks)
    assert yard.ask("LLEN", queue) == 2


@pytest.mark.parametrize(
    "large",
    [
        Result(result="x" * (2 << 20)),
        Result(result="x" * (2 << 20), state=0),
        Result(message="x" * (2 << 20), state=0),
    ],
    ids=["success", "failure", "message"],
)
def test_a_result_that_is_too_large_is_a_failure_with_that_reason(
    queue: str, yard: Running, producer: Producer, consumers: Consumers, large: Result
) -> None:
    consumers.start(yard.url, queue, {"a": lambda task: large})
    result = producer.result(producer.enqueue(queue, Task(key="a")))
    assert result.state == 0
    assert "the server refused what came of it: ERR an argument is larger" in result.message
    wait_for(lambda: yard.ask("LLEN", queue) == 0)


def test_of_a_long_traceback_the_end_is_kept(
    yard: Running, queue: str, producer: Producer, consumers: Consumers
) -> None:
    def fail(task: Task) -> None:
        raise ValueError("x" * (2 << 20) + "the end")

    consumers.start(yard.url, queue, {"a": fail})
    assert producer.result(producer.enqueue(queue, Task(key="a"))).message.endswith("xthe end\n")


def test_a_failure_that_comes_too_late_does_not_hide_the_success_of_another(
    yard: Running, queue: str, producer: Producer, source: TaskyardSource
) -> None:
    task = Task(key="a")
    producer.enqueue(queue, task)
    key = f"toq:rst:{task.id}"
    slow = TaskyardSource(yard.url, [queue], 0.1, 500)
    [late] = slow.fetch_jobs(1, 5.0)
    [job] = source.fetch_jobs(1, HANG_GUARD)  # when the lease of the slow one is over
    assert slow.finish_jobs([(late, Failed(b"e", b"failed", key))]) == [late]
    assert yard.ask("GET", key) is None
    assert source.finish_jobs([(job, Success(b"succeeded", key))]) == []
    assert slow.finish_jobs([(late, Failed(b"e", b"failed", key))]) == [late]
    assert yard.ask("GET", key) == b"succeeded"
    slow.close()


class Unable(socketserver.StreamRequestHandler):
    """A server without room, or whose journal has failed."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            if line.startswith(b"*"):
                self.wfile.write(b"-READONLY the journal cannot be written\r\n")


def test_a_server_that_can_do_nothing_now_is_waited_for() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Unable) as server:
        threading.Thread(target=server.serve_forever).start()
        source = TaskyardSource(f"taskyard://127.0.0.1:{server.server_address[1]}", ["q"], 30, 500)
        job = Job(ref="1-1-1", queue="q", payload=b"")
        with pytest.raises(Unavailable):
            source.fetch_jobs(1, 0.0)
        with pytest.raises(Unavailable):
            source.extend_leases([job])
        for verdict in (
            Success(b"", "k"),
            Failed(b"", b"", "k"),
            Released(),
            RetryLater(b"", 0, b""),
        ):
            with pytest.raises(Unavailable):
                source.finish_jobs([(job, verdict)])
        source.close()
        server.shutdown()
