"""GET /api/v1/history: figures of late, in steps."""

from typing import Any

import pytest
from support.api import ApiClient
from support.listening import ORIGIN, push
from support.simulated import SimulatedServer

from taskyard.access.principal import Principal, Rule
from taskyard.protocols.http.monitoring.history import SERIES, History, Ring
from taskyard.protocols.http.monitoring.watch import StatsSampler


class Plotted:
    """A simulated server that is watched, and the API beside it."""

    def __init__(
        self,
        principal: Principal | None = None,
        portion: int = 500,
        yard: SimulatedServer | None = None,
    ) -> None:
        self.yard = yard or SimulatedServer()
        self.watch = StatsSampler(self.yard.broker, self.yard.scheduler, chunk_queues=portion)
        self.watch.start()
        self.api = ApiClient(self.yard, principal=principal)
        self.api.history = History(self.watch, self.yard.scheduler)

    def get(self, **query: Any) -> Any:
        view = self.api.get("/api/v1/history", **query).ok()
        lengths = {len(column) for column in [*view["series"].values(), *view["requests"].values()]}
        assert lengths == {len(view["times"])}
        assert set(view["series"]) == set(SERIES)
        return view

    def last(self, **query: Any) -> dict[str, Any]:
        """The newest figures."""
        return {name: column[-1] for name, column in self.get(**query)["series"].items()}


@pytest.fixture
def plotted() -> Plotted:
    return Plotted()


def test_totals_by_the_second(plotted: Plotted) -> None:
    yard = plotted.yard
    peer = yard.connect()
    yard.advance(3)
    peer.send(b'PUSH {"name":"a","queue":"q"}\n' * 4)
    peer.send(b'FETCH {"queues":["q"]}\nFETCH {"queues":["q"]}\nACK {"id":1}\nNACK {"id":2}\n')
    yard.advance(1)
    view = plotted.get(span=300)
    assert (view["step"], len(view["times"])) == (1, 300)
    assert view["times"] == list(range(view["times"][-1] - 299, view["times"][-1] + 1))
    assert view["times"][-1] == int(yard.now())
    last = plotted.last()
    assert (last["ready"], last["leased"]) == (2, 0)
    assert (last["pushed"], last["finished"], last["failed"]) == (4, 1, 1)
    assert last["wait_p50"] is not None
    assert last["run_p99"] is not None
    assert view["requests"]["masenko"][-1] == 8
    assert view["series"]["ready"][-2] == 0
    assert view["series"]["ready"][0] is None  # before the server was there
    yard.advance(1)
    last = plotted.last()
    assert (last["pushed"], last["finished"]) == (0, 0)
    assert last["wait_p50"] is None


def test_longer_spans_have_longer_steps(plotted: Plotted) -> None:
    yard = plotted.yard
    yard.advance(250)
    push(yard, count=30)
    yard.advance(260)
    hour = plotted.get(span=3600)
    assert (hour["step"], len(hour["times"])) == (10, 360)
    assert hour["times"][-1] % 10 == 0
    pushed = [value for value in hour["series"]["pushed"] if value]
    assert sum(pushed) * 10 == pytest.approx(30, rel=0.01)
    day = plotted.get(span=86_400)
    assert (day["step"], len(day["times"])) == (240, 360)
    assert sum(value or 0 for value in day["series"]["pushed"]) * 240 == pytest.approx(30, rel=0.05)
    assert day["series"]["ready"][-1] == 30


def test_a_ring_forgets_the_oldest() -> None:
    ring = Ring(1, 3, 1)
    for number in range(10, 15):
        ring.append(number, [float(number)])
    assert ring.column(0, 14, 3) == [12, 13, 14]
    ring.append(16, [16.0])  # for two steps
    assert ring.column(0, 16, 3) == [14, 16, 16]
    ring.append(99, [99.0])
    assert ring.column(0, 99, 3) == [99, 99, 99]
    assert ring.times(99, 3) == [97, 98, 99]


def test_a_queue_has_the_last_hour(plotted: Plotted) -> None:
    yard = plotted.yard
    push(yard, "a", 5)
    push(yard, "b", 1)
    yard.advance(10)
    yard.connect("workq").send(b"lease a 0\r\n")
    push(yard, "a", 20)
    yard.advance(10)
    view = plotted.get(queue="a", span=3600)
    assert (view["step"], len(view["times"]), view["requests"]) == (10, 360, {})
    last = plotted.last(queue="a")
    assert (last["ready"], last["leased"], last["pushed"]) == (24, 1, 2)
    assert last["wait_p95"] > 1
    assert len(plotted.get(queue="a", span=300)["times"]) == 30
    assert plotted.last(queue="b")["ready"] == 1


def test_a_new_queue_of_an_old_name_has_a_history_of_its_own(plotted: Plotted) -> None:
    yard = plotted.yard
    push(yard, "a", 1)
    yard.advance(30)
    job = yard.engine.state.queues[b"a"].ready.first()
    assert job is not None
    yard.engine.delete_job(job.id, ORIGIN, yard.broker.begin_turn())
    yard.engine.delete_queue(b"a", ORIGIN, yard.broker.begin_turn())
    yard.broker.end_turn()
    plotted.api.get("/api/v1/history", queue="a").problem(404, "queue-not-found")
    push(yard, "a", 2)
    assert set(plotted.get(queue="a")["series"]["ready"]) == {None}
    yard.advance(10)
    known = [value for value in plotted.get(queue="a", span=3600)["series"]["ready"] if value]
    assert known == [2]


def test_while_a_look_takes_longer_its_figures_stand_for_all_steps() -> None:
    plotted = Plotted(portion=1)  # 50 ms for each queue while nobody watches
    for number in range(60):
        push(plotted.yard, f"q{number}")
    plotted.yard.advance(12)
    view = plotted.get(span=300)
    assert None not in view["series"]["ready"][-6:]
    assert view["series"]["ready"][-1] == 60


def test_without_a_name_of_its_own_a_queue_has_no_history(plotted: Plotted) -> None:
    plotted.yard.engine.statistics.limit = 1
    push(plotted.yard, "a")
    push(plotted.yard, "b")
    plotted.yard.advance(20)
    assert plotted.last(queue="a")["ready"] == 1
    assert plotted.last(queue="b")["ready"] is None


def test_plots_do_not_wait_for_the_disk() -> None:
    plotted = Plotted(yard=SimulatedServer(inline_sync=False))
    yard = plotted.yard
    yard.scheduler.slow = True
    yard.connect().send(b'PUSH {"name":"a","queue":"q"}\n')
    yard.advance(2)
    assert yard.journal.durable < yard.engine.records.end_position()
    assert plotted.last()["ready"] == 1


def test_what_cannot_be_asked_for(plotted: Plotted) -> None:
    plotted.api.get("/api/v1/history", span=60).problem(400, "invalid-value", "span")
    plotted.api.get("/api/v1/history", queue="a b").problem(400, "invalid-value", "queue")
    plotted.api.get("/api/v1/history", queue="none").problem(404, "queue-not-found")


def test_totals_are_for_those_who_may_see_all_queues() -> None:
    plotted = Plotted(Principal("ada", [Rule(["mail"], ["inspect"])]))
    push(plotted.yard, "mail")
    push(plotted.yard, "secret")
    plotted.yard.advance(10)
    plotted.api.get("/api/v1/history").problem(403, "denied")
    plotted.api.get("/api/v1/history", queue="secret").problem(403, "denied")
    assert plotted.last(queue="mail")["ready"] == 1
