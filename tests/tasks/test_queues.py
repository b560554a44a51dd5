"""Which queues a worker looks at, in which order, and when it is content."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from support.sockets import HANG_GUARD
from tasks import yard
from tasks.workers import WorkerProcess, marks
from toq.brokers import Running

from taskyard.client.url import Address
from taskyard.tasks import worker as source
from taskyard.tasks.worker import QueueOrder

pytestmark = pytest.mark.usefixtures("app")


def burst(directory: Path, server: Running, *options: str) -> None:
    with WorkerProcess(directory, server.url, "--burst", *options) as worker:
        assert worker.wait() == 0, worker.log()


def push_both(count: int) -> None:
    yard.note_low.map(range(count))
    yard.note_high.map(range(count))


def test_queues_are_looked_at_in_the_order_given(server: Running, tmp_path: Path) -> None:
    push_both(10)
    burst(tmp_path, server, "--queues", "high,low", "--concurrency", "1", "--prefetch", "0")
    expected = [f"{name} {number}" for name in ("high", "low") for number in range(10)]
    assert marks(tmp_path, "order") == expected


def test_queues_with_weights_have_their_share_and_none_starves(
    server: Running, tmp_path: Path
) -> None:
    push_both(150)
    options = ("--queues", "high:9,low:1", "--concurrency", "1", "--prefetch", "0")
    burst(tmp_path, server, *options)
    order = [line.split()[0] for line in marks(tmp_path, "order")]
    assert Counter(order) == {"high": 150, "low": 150}
    # The chance that this is not so is below one in a million.
    assert 1 <= Counter(order[:150])["low"] <= 50


def test_the_first_in_line_goes_by_the_weights() -> None:
    queues = QueueOrder({"a": 6.0, "b": 3.0, "c": 1.0})
    first = Counter(queues.next_order()[0] for _ in range(20_000))
    assert sorted(queues.next_order()) == ["a", "b", "c"]
    for name, share in (("a", 0.6), ("b", 0.3), ("c", 0.1)):
        assert abs(first[name] / 20_000 - share) < 0.03


def test_without_a_word_the_queues_are_those_of_the_tasks(server: Running, tmp_path: Path) -> None:
    push_both(3)
    handle = yard.add.push(1, 2)
    burst(tmp_path, server)
    assert handle.result(HANG_GUARD) == 3
    assert len(marks(tmp_path, "order")) == 6


def test_a_burst_waits_for_what_its_tasks_lead_to_but_not_for_delays(
    server: Running, tmp_path: Path
) -> None:
    late = yard.add.push_in(3600, 1, 2)
    steps = yard.add.s(1, 2) | yard.double.s() | yard.double.s()
    handle = steps.push()
    burst(tmp_path, server)
    assert handle.result(0) == 12
    assert late.info().state == "delayed"
    assert late.cancel()


@pytest.mark.parametrize(("query", "timeout"), [("", 10.0), ("?timeout=0.5", 0.5)])
def test_the_timeout_of_the_url_holds_for_workers(
    monkeypatch: pytest.MonkeyPatch, query: str, timeout: float
) -> None:
    timeouts: list[object] = []
    monkeypatch.setattr(source, "Connection", lambda _, timeout=None: timeouts.append(timeout))
    source.TaskSource(Address.parse(f"taskyard://localhost{query}"), QueueOrder({"q": None}), 30.0)
    assert timeouts == [timeout] * 3
