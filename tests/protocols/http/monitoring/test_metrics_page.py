"""GET /metrics: a page that Prometheus can read, with the right numbers in it."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.exchanges import FakeExchange, get
from support.lake_view import lake_view
from support.retaining import SEGMENT, RetainingYard
from support.simulated import SimulatedServer
from support.wire import exchange

from taskyard.engine.model.job import API, NewJob, Origin, Policy
from taskyard.engine.schedules.schedule import Schedule
from taskyard.protocols.http.monitoring.metrics import MetricsPage, label
from taskyard.shared.api_types import LakeView
from taskyard.shared.process import Usage, process_usage

ORIGIN = Origin(API, "", "tester")
PUSH = b'PUSH {"name":"a","queue":"q"}\n'
PROCESS = Usage(1.5, 10, 1024, 1 << 20, 1 << 30)
DOCS = Path(__file__).resolve().parents[4] / "docs" / "metrics.md"

Labels = frozenset[tuple[str, str]]


class Page:
    """The page of a simulated server, and what a parser makes of it."""

    def __init__(
        self, yard: SimulatedServer, queues: int = 1000, lake: LakeView | None = None
    ) -> None:
        self._yard = yard
        self._page = MetricsPage(
            yard.broker, yard.scheduler, queues, lambda: PROCESS, lake_status=lambda: lake
        )
        self.samples: dict[tuple[str, Labels], float] = {}
        self.kinds: dict[str, str] = {}

    def ask(self) -> FakeExchange:
        return get(self._page.routes(), "/metrics")

    def read(self) -> str:
        asked = self.ask()
        self._yard.run_pending()
        response = asked.answer()
        assert response.status == 200
        assert response.content_type == "text/plain; version=0.0.4; charset=utf-8"
        assert response.position == 0
        text = response.body.decode()
        self.samples = {}
        self.kinds = {}
        for family in text_string_to_metric_families(text):
            assert family.documentation
            self.kinds[family.name] = family.type
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self.samples, key
                self.samples[key] = sample.value
        return text

    def number(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]

    def has(self, name: str, **labels: str) -> bool:
        return (name, frozenset(labels.items())) in self.samples


@pytest.fixture
def plain() -> SimulatedServer:
    return SimulatedServer()


def push(yard: SimulatedServer, queue: str, run_at: int = 0) -> None:
    yard.engine.push(
        NewJob(queue, "a", b"", Policy(), run_at=run_at), ORIGIN, yard.broker.begin_turn()
    )
    yard.broker.end_turn()
    yard.run_pending()


def test_a_page_of_a_new_server_is_well_formed(plain: SimulatedServer) -> None:
    page = Page(plain)
    text = page.read()
    assert text.endswith("\n")
    assert page.number("taskyard_jobs") == 0
    assert page.number("taskyard_queues") == 0
    assert page.number("taskyard_read_only") == 0
    assert page.number("taskyard_pushes_refused") == 0
    assert not page.has("taskyard_queue_jobs", queue="", state="ready")


def test_the_lines_of_a_family_stand_together_behind_their_head(plain: SimulatedServer) -> None:
    for name in ("a", "b", "c"):
        push(plain, name)
        plain.engine.pop(name.encode(), False, ORIGIN, plain.broker.begin_turn())
    text = Page(plain).read()
    heads = re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)
    assert len(set(heads)) == len(heads)
    names = re.findall(r"^([a-z_]+)", text, re.MULTILINE)
    order = [re.sub("_(bucket|sum|count)$", "", name) for name in names]
    assert [name for at, name in enumerate(order) if not at or order[at - 1] != name] == heads


def test_jobs_are_counted_by_queue_and_state(plain: SimulatedServer) -> None:
    peer = plain.connect()
    exchange(peer, PUSH * 3, b'OK {"id":1}\nOK {"id":2}\nOK {"id":3}\n')
    peer.send(b'FETCH {"queues":["q"]}\n')
    peer.send(b'PUSH {"name":"b","queue":"q","blocked_by":[1]}\n')
    push(plain, "q", plain.clock.now() + 1_000_000_000)
    push(plain, "dead")
    plain.engine.fail(6, b"no", ORIGIN, plain.broker.begin_turn())
    plain.broker.end_turn()
    page = Page(plain)
    page.read()
    states = ("ready", "delayed", "leased", "blocked", "succeeded", "dead")
    counts = [page.number("taskyard_queue_jobs", queue="q", state=state) for state in states]
    assert counts == [2, 1, 1, 1, 0, 0]
    assert page.number("taskyard_queue_jobs", queue="dead", state="dead") == 1
    assert page.number("taskyard_queue_failed_total", queue="dead") == 1
    assert page.number("taskyard_jobs") == 6
    assert page.number("taskyard_queues") == 2
    kinds = ("ready", "delayed", "toack")
    tasks = [page.number("masenko_tasks_total", queue="q", kind=kind) for kind in kinds]
    assert tasks == [2, 2, 1]


def test_queues_count_what_has_happened_since_the_start(plain: SimulatedServer) -> None:
    peer = plain.connect()
    peer.send(b'PUSH {"name":"a","queue":"q","retry":1}\n' * 2 + b'FETCH {"queues":["q"]}\n' * 2)
    peer.send(b'ACK {"id":1}\nNACK {"id":2}\n')
    page = Page(plain)
    page.read()
    names = ("pushed", "leased", "finished", "failed", "retried", "released", "expired", "removed")
    counts = [page.number(f"taskyard_queue_{name}_total", queue="q") for name in names]
    assert counts == [2, 2, 1, 0, 1, 0, 0, 0]
    plain.restart()
    page = Page(plain)
    page.read()
    assert page.number("taskyard_queue_pushed_total", queue="q") == 0
    assert page.number("taskyard_queue_jobs", queue="q", state="delayed") == 1


def test_histograms_are_cumulative_and_in_seconds(plain: SimulatedServer) -> None:
    peer = plain.connect()
    for id, seconds in enumerate((0.001, 0.1, 10), start=1):
        peer.send(PUSH)
        plain.advance(seconds)
        peer.send(b'FETCH {"queues":["q"]}\n')
        plain.advance(2)
        peer.send(b'ACK {"id":%d}\n' % id)
    page = Page(plain)
    page.read()
    waits = [
        page.number("taskyard_queue_wait_seconds_bucket", queue="q", le=bound)
        for bound in ("0.000256", "0.001024", "0.065536", "0.262144", "4.194304", "16.777216")
    ]
    assert waits == [0, 1, 1, 2, 2, 3]
    assert page.number("taskyard_queue_wait_seconds_bucket", queue="q", le="+Inf") == 3
    assert page.number("taskyard_queue_wait_seconds_count", queue="q") == 3
    assert page.number("taskyard_queue_wait_seconds_sum", queue="q") == pytest.approx(10.101)
    assert page.number("taskyard_queue_run_seconds_sum", queue="q") == 6
    assert page.kinds["taskyard_queue_wait_seconds"] == "histogram"


def test_names_of_queues_are_escaped(plain: SimulatedServer) -> None:
    name = 'a"b\\c{},é'
    push(plain, name)
    page = Page(plain)
    page.read()
    assert page.number("taskyard_queue_jobs", queue=name, state="ready") == 1
    assert label("reader", 'a\nb"\\') == 'reader="a\\nb\\"\\\\"'


def test_queues_beyond_the_limit_are_summed(plain: SimulatedServer) -> None:
    page = Page(plain, queues=3)
    for number in range(10):
        for _ in range(number + 1):
            push(plain, f"q{number}")
    plain.engine.pop(b"q9", False, ORIGIN, plain.broker.begin_turn())
    page.read()
    # q9 has come first: it was the first that was measured.
    shown = {dict(labels).get("queue") for name, labels in page.samples if "_queue_" in name}
    assert shown == {"q0", "q1", "q9", ""}
    assert page.number("taskyard_queue_jobs", queue="", state="ready") == 3 + 4 + 5 + 6 + 7 + 8 + 9
    assert page.number("taskyard_queue_pushed_total", queue="") == 42
    assert page.number("taskyard_queue_finished_total", queue="q9") == 1


def test_the_sum_goes_on_when_its_queues_are_deleted(plain: SimulatedServer) -> None:
    page = Page(plain, queues=0)
    for name in ("a", "b"):
        push(plain, name)
    now = plain.broker.begin_turn()
    plain.engine.pop(b"a", False, ORIGIN, now)
    plain.engine.delete_queue(b"a", ORIGIN, now)
    page.read()
    assert page.number("taskyard_queue_pushed_total", queue="") == 2
    assert page.number("taskyard_queue_wait_seconds_count", queue="") == 1
    assert page.number("taskyard_queue_jobs", queue="", state="ready") == 1


def test_many_queues_are_gone_through_a_few_at_a_time(plain: SimulatedServer) -> None:
    page = Page(plain, queues=50)
    for number in range(1000):
        push(plain, f"q{number}")
    asked = page.ask()
    turns = 0
    while asked.response is None:
        assert plain.scheduler.step()
        turns += 1
    assert turns == 9
    page.read()
    assert page.number("taskyard_queue_jobs", queue="", state="ready") == 950
    assert len(asked.answer().body) < 200_000


def test_requests_and_connections_are_shown_by_dialect(plain: SimulatedServer) -> None:
    peer = plain.connect()
    peer.send(b"PING\n" + PUSH * 2 + b"PUSH {}\nNONSENSE\n" + b'FETCH {"queues":[]}\n')
    plain.connect("workq").close()
    page = Page(plain)
    page.read()
    pushes = {"dialect": "masenko", "verb": "PUSH"}
    assert page.number("taskyard_requests_total", **pushes, outcome="ok") == 2
    assert page.number("taskyard_requests_total", **pushes, outcome="error") == 1
    assert page.number("taskyard_requests_total", **pushes, outcome="empty") == 0
    assert page.number("taskyard_connections_open", dialect="masenko") == 1
    assert page.number("taskyard_connections_open", dialect="workq") == 0
    assert page.number("taskyard_connections_total", dialect="workq") == 1
    verbs = {dict(labels)["verb"] for name, labels in page.samples if name.startswith("masenko_r")}
    assert "NONSENSE" not in verbs
    assert page.number("masenko_clients_total") == 1
    assert page.number("masenko_requests_total", verb="PUSH") == 3
    responses = {
        verb: page.number("masenko_responses_total", verb=verb)
        for verb in ("OK", "PONG", "EMPTY", "ERR")
    }
    assert responses == {"OK": 2, "PONG": 1, "EMPTY": 1, "ERR": 2}


def test_the_journal_is_shown(plain: SimulatedServer) -> None:
    page = Page(plain)
    exchange(plain.connect(), PUSH, b'OK {"id":1}\n')
    plain.advance(60)
    page.read()
    journal = plain.journal
    assert page.number("taskyard_journal_records_total") == 1
    assert page.number("taskyard_journal_written_bytes_total") > 40
    assert page.number("taskyard_journal_durable_seq") == journal.durable_seq
    assert page.number("taskyard_journal_bytes") == journal.end
    assert page.number("taskyard_journal_live_bytes") == plain.engine.state.compacted_size()
    assert page.number("taskyard_journal_segments") == 1
    assert page.number("taskyard_journal_head_age_seconds") == 60
    assert page.number("taskyard_commits_total") == 1
    assert page.number("taskyard_flush_seconds_count") == 1


def test_readers_and_how_far_behind_they_are() -> None:
    yard = RetainingYard()
    yard.register("lake", 1)
    yard.work(3 * SEGMENT)
    page = Page(yard)
    page.read()
    assert page.number("taskyard_readers") == 1
    assert page.number("taskyard_reader_lag_records", reader="lake") == yard.journal.durable_seq
    assert page.number("taskyard_reader_missed_records", reader="lake") == 0
    assert 3590 < page.number("taskyard_reader_lease_seconds", reader="lake") <= 3600
    assert page.number("taskyard_journal_segments") == yard.files()


@pytest.mark.parametrize("running", [True, False])
def test_the_lake_beside_the_server(plain: SimulatedServer, running: bool) -> None:
    page = Page(plain, lake=lake_view(running=running))
    page.read()
    assert page.number("taskyard_lake_up") == running
    assert page.number("taskyard_lake_lag_records") == 7
    assert page.number("taskyard_lake_lag_seconds") == 2.5
    assert page.number("taskyard_lake_restarts_total") == 3


def test_a_server_that_runs_no_lake_shows_none(plain: SimulatedServer) -> None:
    assert "taskyard_lake" not in Page(plain).read()


def test_schedules_and_what_came_of_their_ticks(plain: SimulatedServer) -> None:
    engine = plain.broker.engine
    now = plain.broker.begin_turn()
    job = NewJob("q", "task", b"", Policy())
    engine.set_schedule(Schedule("a", job, every=10_000_000, overlap=1), ORIGIN, now)
    engine.set_schedule(Schedule("b", job, every=40_000_000), ORIGIN, now)
    plain.broker.end_turn()
    plain.advance(40)
    page = Page(plain)
    page.read()
    assert page.number("taskyard_schedules") == 2
    ticks = {"ran": 2, "skipped": 3, "missed": 0, "refused": 0}
    for outcome, count in ticks.items():
        assert page.number("taskyard_schedule_ticks_total", outcome=outcome) == count
    assert page.number("taskyard_schedule_lateness_seconds_count") == 2


def test_the_process_is_shown(plain: SimulatedServer) -> None:
    page = Page(plain)
    page.read()
    assert page.number("process_cpu_seconds_total") == 1.5
    assert page.number("process_open_fds") == 10
    assert page.number("process_max_fds") == 1024
    assert page.number("process_resident_memory_bytes") == 1 << 20
    assert page.number("process_start_time_seconds") == plain.now()


def test_a_page_can_be_had_when_nothing_can_be_written(plain: SimulatedServer) -> None:
    peer = plain.connect()
    plain.disk.fail_call("sync")
    peer.send(PUSH)
    page = Page(plain)
    page.read()
    assert page.number("taskyard_read_only") == 1


def test_what_the_system_says_about_this_process(tmp_path: Path) -> None:
    found = process_usage()
    assert found.cpu_seconds > 0
    assert found.max_files > 0
    there = tmp_path / "self"
    there.mkdir()
    nothing = process_usage(str(there))
    assert (nothing.memory_bytes, nothing.virtual_bytes, nothing.open_files) == (None, None, None)
    (there / "statm").write_text("200 100 5 1 0 5 0\n")
    (there / "fd").mkdir()
    (there / "fd" / "0").touch()
    known = process_usage(str(there))
    assert known.open_files == 1
    assert known.virtual_bytes == 2 * (known.memory_bytes or 0)


def test_every_metric_is_in_the_documentation_and_the_other_way_round(
    plain: SimulatedServer,
) -> None:
    peer = plain.connect()
    exchange(peer, PUSH, b'OK {"id":1}\n')
    peer.send(b'FETCH {"queues":["q"]}\nACK {"id":1}\n')
    plain.engine.register_reader("lake", 1, 1_000_000, ORIGIN, plain.broker.begin_turn())
    text = Page(plain, lake=lake_view(running=True)).read()
    shown = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    page = DOCS.read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `([a-z_]+)` \| (\w+) \|", page, re.MULTILINE)) == shown
