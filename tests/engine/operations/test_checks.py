"""Options at, below and above their limits: taken as they are or refused, never clamped."""

from dataclasses import dataclass, field

import pytest
from engine.harness import ORIGIN, Bench

from taskyard.engine.model.events import InvalidOption
from taskyard.engine.model.job import Job, NewJob, Notify, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.model.state import EngineSettings
from taskyard.shared.text import valid_name

DAY = 86_400_000_000
I64 = 2**63 - 1

# Beyond 64 bits the compiled form refuses a number before the engine sees it.
REFUSED = (InvalidOption, TypeError)


@dataclass
class Case:
    option: str
    value: object
    policy: dict[str, object] = field(default_factory=dict)

    def push(self, bench: Bench) -> Job:
        options: dict[str, object] = {"queue": "q", "name": "n", "payload": b""}
        options["policy"] = Policy(**self.policy)  # type: ignore[arg-type]
        if self.option:
            options[self.option] = self.value
        new = NewJob(**options)  # type: ignore[arg-type]
        return bench.engine.push(new, ORIGIN, bench.now)

    def __str__(self) -> str:
        text = str(self.policy or f"{self.option}={self.value!r}")
        return text if len(text) < 60 else f"{text[:50]}...{len(text)}"


def policy_case(**options: object) -> Case:
    return Case("", None, options)


ACCEPTED = [
    Case("queue", "q" * 255),
    Case("queue", "é" * 127),
    Case("name", "n" * 255),
    Case("name", "ünï-cödé/✓"),
    Case("payload", b"x" * 100),
    Case("priority", -(2**63)),
    Case("priority", I64),
    Case("run_at", 0),
    Case("run_at", I64 - 1),
    Case("content", 1),
    Case("ttl_ms", 1),
    Case("ttl_ms", 2**64 - 1),
    Case("uid", b"u" * 16),
    Case("key", b"k"),
    Case("key", b"k" * 65535),
    Case("blocked_by", []),
    Case("blocked_by", [1] * 255),
    Case("blocked_by", [2**63, 2**64, 2**100]),
    Case("notify", Notify(1, 0, 0)),
    Case("notify", Notify(-(2**63), 2**64 - 1, 255)),
    policy_case(ttr=DAY),
    policy_case(max_attempts=2**32 - 1),
    policy_case(max_fails=-1),
    policy_case(max_fails=2**32 - 1),
    policy_case(max_losses=2**32 - 1),
    policy_case(backoff=2, backoff_base=I64, backoff_cap=I64),
    policy_case(dead_queue="d" * 255),
]

OUT_OF_RANGE = [
    Case("queue", ""),
    Case("queue", "q" * 256),
    Case("queue", "é" * 128),
    Case("queue", "two words"),
    Case("queue", "\ud800"),
    Case("name", ""),
    Case("name", "n" * 256),
    Case("name", "tab\t"),
    Case("name", "line\n"),
    Case("name", "nul\0"),
    Case("name", "delete\x7f"),
    Case("name", "control\x85"),
    Case("name", "no-break\u00a0space"),
    Case("name", "\ud800"),
    Case("payload", b"x" * 101),
    Case("priority", -(2**63) - 1),
    Case("priority", 2**63),
    Case("run_at", -1),
    Case("run_at", I64),
    Case("run_at", 2**63),
    Case("content", -1),
    Case("content", 2),
    Case("content", 256),
    Case("ttl_ms", -1),
    Case("ttl_ms", 2**64),
    Case("uid", b""),
    Case("uid", b"u" * 15),
    Case("uid", b"u" * 17),
    Case("key", b""),
    Case("key", b"k" * 65536),
    Case("blocked_by", [1] * 256),
    Case("blocked_by", [0]),
    Case("blocked_by", [-1]),
    Case("blocked_by", [-(2**70)]),
    Case("notify", Notify(1, -1, 0)),
    Case("notify", Notify(1, 2**64, 0)),
    Case("notify", Notify(1, 0, -1)),
    Case("notify", Notify(1, 0, 256)),
    policy_case(ttr=-1),
    policy_case(ttr=DAY + 1),
    policy_case(max_attempts=-1),
    policy_case(max_attempts=2**32),
    policy_case(max_fails=-3),
    policy_case(max_fails=2**32),
    policy_case(max_losses=-1),
    policy_case(max_losses=2**32),
    policy_case(backoff=-1),
    policy_case(backoff=4),
    policy_case(backoff_base=-1),
    policy_case(backoff_cap=-1),
    policy_case(dead_queue="two words"),
    policy_case(dead_queue="d" * 256),
    policy_case(dead_queue="\ud800"),
]


@pytest.fixture
def bench() -> Bench:
    return Bench(EngineSettings(payload_limit=100))


@pytest.mark.parametrize("case", ACCEPTED, ids=str)
def test_an_option_at_its_limit_is_taken_as_it_is(bench: Bench, case: Case) -> None:
    job = case.push(bench)
    if case.option in ("name", "priority", "run_at", "content"):
        assert getattr(job, case.option) == case.value
    if case.option in ("uid", "key", "ttl_ms"):
        assert getattr(job.extras, case.option) == case.value
    for option, value in case.policy.items():
        assert getattr(job.policy, option) == value
    found = bench.rebuild().jobs.get(job.id)
    assert found is not None
    assert found.policy.same(job.policy)


@pytest.mark.parametrize("case", OUT_OF_RANGE, ids=str)
def test_an_option_beyond_its_limit_is_refused(bench: Bench, case: Case) -> None:
    bench.collect()
    with pytest.raises(REFUSED):
        case.push(bench)
    assert bench.collect() == []
    assert bench.engine.queue(b"q") is None


def test_the_option_is_named() -> None:
    bench = Bench()
    with pytest.raises(InvalidOption) as refused:
        bench.push(ttl_ms=-1)
    assert refused.value.option == "ttl"


def test_a_name_that_is_known_to_its_queue_is_no_way_around(bench: Bench) -> None:
    bench.push("q", name="good")
    with pytest.raises(InvalidOption):
        bench.push("q", name="not good")


@pytest.mark.parametrize(
    "settings",
    [
        QueueSettings(retries=2**32 - 1, result_retention=2**62, dead_retention=2**62),
        QueueSettings(backoff=2, backoff_base=I64, backoff_cap=I64, max_jobs=I64, max_bytes=I64),
        QueueSettings(retries=0, dead_retention=0, backoff=0, max_jobs=0, max_bytes=0),
    ],
)
def test_queue_settings_at_their_limits(bench: Bench, settings: QueueSettings) -> None:
    assert bench.engine.create_queue("q", settings, ORIGIN, bench.now).settings is settings


@pytest.mark.parametrize(
    "options",
    [
        {"retries": -2},
        {"retries": 2**32},
        {"result_retention": -1},
        {"result_retention": 2**62 + 1},
        {"dead_retention": -2},
        {"dead_retention": 2**62 + 1},
        {"backoff": -2},
        {"backoff": 3},
        {"backoff_base": -1},
        {"backoff_cap": -1},
        {"max_jobs": -2},
        {"max_bytes": -2},
    ],
    ids=str,
)
def test_queue_settings_beyond_their_limits_are_refused(
    bench: Bench, options: dict[str, int]
) -> None:
    settings = QueueSettings(**options)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption):
        bench.engine.create_queue("new", settings, ORIGIN, bench.now)
    bench.push("q")
    bench.collect()
    with pytest.raises(InvalidOption):
        bench.engine.configure_queue(b"q", settings, ORIGIN, bench.now)
    assert bench.collect() == []


def test_a_large_retention_does_not_overflow(bench: Bench) -> None:
    settings = QueueSettings(result_retention=2**62, dead_retention=2**62)
    bench.engine.create_queue("q", settings, ORIGIN, bench.now)
    done, dead = bench.push(), bench.push(policy=Policy())
    bench.engine.complete(done.id, b"", ORIGIN, bench.now)
    bench.engine.fail(dead.id, b"", ORIGIN, bench.now)
    bench.advance_clock(1000 * DAY)
    assert bench.engine.job(done.id) is done
    assert bench.engine.job(dead.id) is dead


@pytest.mark.parametrize(
    ("name", "fine"),
    [("a", True), ("a" * 255, True), ("é", True), ("", False), (" ", False), ("a\u2028b", False)],
)
def test_names_are_1_to_255_bytes_without_spaces(name: str, fine: bool) -> None:
    assert valid_name(name) == fine
