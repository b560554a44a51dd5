"""Consumers that are signalled or killed, tasks that kill, and servers that go away."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sockets import HANG_GUARD
from support.waiting import wait_for
from toq.brokers import BROKERS, Running
from toq.consumers import ConsumerProcess, Consumers, PatientProducer

from taskyard.toq import RESULT_FAILED, Producer, Task, Unavailable

# Seconds. Longer than anybody here waits: what comes back was given back.
LONG_LEASE = ("--lease", "3600")
# A consumer that stands still for longer than its lease has lost it: then a longer one is tried.
LEASES = (0.5, 3.0, 15.0)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def hold(directory: Path, name: str = "task") -> Task:
    """A task that runs until `let_end`."""
    return Task.of("hold", str(directory), name)


def is_there(process: int) -> bool:
    return os.path.exists(f"/proc/{process}/fd/0")


def let_end(directory: Path, name: str = "task") -> None:
    (directory / f"{name}-may-end").touch()


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_a_consumer_that_is_killed_loses_nothing(
    running: Running, queue: str, producer: Producer, tmp_path: Path, pool: str
) -> None:
    task = hold(tmp_path)
    producer.enqueue(queue, task)
    options = ("--pool", pool, "--concurrency", "1")
    with ConsumerProcess(tmp_path, running.url, queue, *options) as first:
        first.wait_for_file("task-runs")
        children = first.children()
        first.kill()
    running.broker.end_leases(queue)
    with ConsumerProcess(tmp_path, running.url, queue, *options) as second:
        wait_for(lambda: len(lines(tmp_path / "task-runs")) == 2)
        wait_for(lambda: not any(map(is_there, children)))
        let_end(tmp_path)
        result = producer.result(task.id)
        assert result.succeeded, second.log()
    # The process that ran it the first time has ended with its parent, and not gone on.
    assert lines(tmp_path / "task-ended") == [task.id]


def test_a_long_task_is_not_given_to_another(
    running: Running, queue: str, producer: Producer, tmp_path: Path, consumers: Consumers
) -> None:
    runs_again: list[Task] = []
    for lease in LEASES:
        runs_again.clear()
        name, own_queue = f"task-{lease}", f"{queue}-{lease}"
        task = hold(tmp_path, name)
        producer.enqueue(own_queue, task)
        options = ("--lease", str(lease))
        with ConsumerProcess(tmp_path, running.url, own_queue, *options) as consumer:
            consumer.wait_for_file(f"{name}-runs")
            consumers.start(running.url, own_queue, {"hold": runs_again.append}, lease=lease)
            running.ask("PSETEX", f"leases-{own_queue}", round(3000 * lease), "not over")
            wait_for(lambda own_queue=own_queue: running.ask("GET", f"leases-{own_queue}") is None)  # type: ignore[misc]
            let_end(tmp_path, name)
            assert producer.result(task.id).succeeded
        if not runs_again:
            break
    assert not runs_again


@pytest.mark.parametrize(
    ("pool", "number"),
    [
        ("threads", signal.SIGTERM),
        ("threads", signal.SIGINT),
        ("threads", signal.SIGUSR1),
        ("processes", signal.SIGTERM),
    ],
)
def test_a_signal_stops_a_consumer_when_its_tasks_are_done(
    running: Running,
    queue: str,
    producer: Producer,
    tmp_path: Path,
    pool: str,
    number: signal.Signals,
) -> None:
    task, other = hold(tmp_path), Task.of("note", str(tmp_path))
    producer.enqueue(queue, task)
    options = ("--pool", pool, "--concurrency", "1")
    with ConsumerProcess(tmp_path, running.url, queue, *options) as consumer:
        consumer.wait_for_file("task-runs")
        consumer.tell(number)
        wait_for(lambda: "stopping" in consumer.log())
        producer.enqueue(queue, other)
        let_end(tmp_path)
        assert consumer.wait() == 0, consumer.log()
    assert producer.result(task.id).succeeded
    assert running.ask("LLEN", queue) == 1
    assert not lines(tmp_path / "noted")


@pytest.mark.parametrize("pool", ["threads", "processes", "async"])
def test_a_second_signal_ends_a_consumer_and_its_tasks_are_given_back(
    running: Running, queue: str, producer: Producer, tmp_path: Path, pool: str
) -> None:
    tasks = [hold(tmp_path, "one"), hold(tmp_path, "two")]
    producer.enqueue_many(queue, tasks)
    options = ("--pool", pool, *LONG_LEASE)
    with ConsumerProcess(tmp_path, running.url, queue, *options) as consumer:
        consumer.wait_for_file("one-runs")
        consumer.wait_for_file("two-runs")
        consumer.tell(signal.SIGTERM)
        wait_for(lambda: "stopping" in consumer.log())
        consumer.tell(signal.SIGTERM)
        assert consumer.wait() == 3, consumer.log()
    # It does not wait for long to have its last words answered.
    wait_for(lambda: running.ask("LLEN", queue) == 2)
    first = running.ask("LINDEX", queue, 0)
    assert isinstance(first, bytes)
    assert Task.from_json(first).id == tasks[0].id


def test_a_task_that_kills_its_process_fails_alone(
    running: Running, queue: str, producer: Producer, tmp_path: Path
) -> None:
    held, deadly = hold(tmp_path), Task.of("die", str(tmp_path), max_retries=1)
    later = Task.of("note", str(tmp_path))
    with ConsumerProcess(tmp_path, running.url, queue, "--pool", "processes") as consumer:
        producer.enqueue(queue, held)
        consumer.wait_for_file("task-runs")
        producer.enqueue(queue, deadly)
        result = producer.result(deadly.id)
        assert result.state == RESULT_FAILED
        assert result.message == "the process that ran it was ended by SIGKILL"
        assert lines(tmp_path / "died") == [deadly.id] * 2
        producer.enqueue(queue, later)
        assert producer.result(later.id).succeeded, consumer.log()
        let_end(tmp_path)
        assert producer.result(held.id).succeeded
    assert lines(tmp_path / "task-runs") == [held.id]


# Servers that go away


@pytest.fixture(params=list(BROKERS))
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    """A server that the test may kill."""
    directory = tmp_path / "server"
    directory.mkdir()
    with Running(BROKERS[request.param](directory)) as server:
        yield server


def test_what_ends_while_the_server_is_away_is_reported_when_it_is_back(
    own: Running, consumers: Consumers
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    ended = threading.Event()

    def work(task: Task) -> str:
        begun.set()
        assert go_on.wait(HANG_GUARD)
        return "worked"

    consumers.start(
        own.url,
        "queue",
        {"work": work},
        on_result=lambda task, result: ended.set(),
    )
    with PatientProducer(own.url, patience=HANG_GUARD) as producer:
        task = Task(key="work")
        producer.enqueue("queue", task)
        assert begun.wait(HANG_GUARD)
        own.broker.kill()
        go_on.set()
        assert ended.wait(HANG_GUARD)
        own.broker.start()
        assert producer.result(task.id, timeout=HANG_GUARD).value() == "worked"
        begun.clear()
        later = producer.enqueue("queue", Task(key="work"))
        assert producer.result(later, timeout=HANG_GUARD).value() == "worked"


def test_a_consumer_whose_server_is_away_can_be_stopped(
    own: Running, consumers: Consumers, caplog: pytest.LogCaptureFixture
) -> None:
    own.broker.kill()
    consumer = consumers.start(own.url, "queue", {})
    wait_for(lambda: "cannot fetch jobs" in caplog.text)
    consumer.stop()
    consumers.wait()
    assert consumers.returned == [True]


def test_a_producer_waits_for_a_server_and_then_gives_up(own: Running) -> None:
    own.broker.kill()
    with (
        Producer(own.url, patience=0.1) as producer,
        pytest.raises(Unavailable, match="cannot be reached"),
    ):
        producer.enqueue("queue", Task(key="a"))
    with Producer(own.url, patience=HANG_GUARD) as patient:
        pushing = threading.Thread(target=patient.enqueue, args=("queue", Task(key="a")))
        pushing.start()
        own.broker.start()
        pushing.join(HANG_GUARD)
        assert own.ask("LLEN", "queue") == 1


def test_a_producer_notices_that_its_server_was_started_anew(own: Running) -> None:
    with Producer(own.url, patience=HANG_GUARD) as producer:
        producer.enqueue("queue", Task(id="1", key="a"))
        own.broker.kill()
        own.broker.start()
        producer.enqueue("queue", Task(id="2", key="a"))
    assert own.ask("LLEN", "queue") == 2


def test_the_processes_of_a_consumer_end_with_it(
    running: Running, queue: str, producer: Producer, tmp_path: Path
) -> None:
    producer.enqueue(queue, hold(tmp_path))
    options = ("--pool", "processes", "--concurrency", "1")
    with ConsumerProcess(tmp_path, running.url, queue, *options) as consumer:
        consumer.wait_for_file("task-runs")
        children = consumer.children()
        assert children
        consumer.kill()
    wait_for(lambda: not any(map(is_there, children)))
