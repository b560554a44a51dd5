"""The side-by-side benchmark: what it plans to measure, by its options."""

from collections import defaultdict
from itertools import pairwise

import pytest
from support.side_by_side import plan_of, subjects

from benchmarks import rig
from benchmarks.side_by_side.plan import FULL, SMALL, Block, cases_of, in_turns
from benchmarks.side_by_side.results import Case, Part
from benchmarks.side_by_side.subjects import KEYS


def test_without_options_all_is_measured_and_that_is_for_the_page() -> None:
    plan = plan_of()

    assert plan.is_whole
    assert plan.subjects == list(KEYS)
    assert plan.blocks == list(FULL)
    assert plan.resident_jobs == 200_000


@pytest.mark.parametrize(
    "words",
    [
        ["--quick"],
        ["--only", "c50"],
        ["--rounds", "1"],
        ["--seconds", "0.2"],
        ["--payload", "500"],
        ["--rate", "10"],
        ["--form", "interpreted"],
    ],
)
def test_a_run_that_was_changed_is_not_for_the_page(words: list[str]) -> None:
    assert not plan_of(*words).is_whole


def test_only_chooses_servers_durabilities_shapes_and_parts() -> None:
    plan = plan_of("--only", "masenko,nats,sync", "--only", "c1,peak,c50x100", "--rounds", "7")

    assert plan.subjects == ["masenko", "nats"]
    assert plan.parts == ["peak"]
    assert [(block.durability, block.payload) for block in plan.blocks] == [
        ("sync", 200),
        ("sync", 10_000),
    ]
    assert {block.shapes for block in plan.blocks} == {("c1", "c50x100")}
    cases = [Case("peak", "masenko", "sync", shape, SMALL) for shape in ("c1", "c50x100")]
    assert {block.rounds_of(case) for block in plan.blocks for case in cases} == {7}


@pytest.mark.parametrize(
    ("durability", "close"),
    [
        (
            "sync",
            {("masenko", "c1"), ("redis-lists", "c1"), ("masenko", "c50"), ("redis-lists", "c50")},
        ),
        ("write", set()),
        ("memory", {("masenko", "c50"), ("beanstalkd", "c50")}),
    ],
)
def test_where_it_is_close_there_are_more_rounds(
    durability: rig.Durability, close: set[tuple[str, str]]
) -> None:
    shapes = ("c1", "c50", "c50x100")
    block = Block("peak", durability, SMALL, shapes, 2, 1.0, close_rounds=5)
    rounds = {
        (subject, shape): block.rounds_of(Case("peak", subject, durability, shape, SMALL))
        for subject in ("masenko", "redis-lists", "beanstalkd", "workq")
        for shape in shapes
    }
    assert {key for key, count in rounds.items() if count == 5} == close
    assert set(rounds.values()) <= {2, 5}


def test_a_payload_takes_the_place_of_the_small_one() -> None:
    assert {block.payload for block in plan_of("--payload", "64").blocks} == {64}


@pytest.mark.parametrize(
    "words",
    [["--only", "mongo"], ["--rounds", "-1"], ["--seconds", "-2"], ["--patience", "-1"]],
)
def test_options_without_sense_are_refused(words: list[str]) -> None:
    with pytest.raises(rig.BenchmarkError):
        plan_of(*words)


def test_each_server_has_the_cases_that_say_something_of_it() -> None:
    known = subjects("masenko", "pqueue", "jobs-batch", "nats", "redis-pop")
    del known[-2].servers["memory"]  # as of NATS

    def keys(part: Part, durability: rig.Durability, payload: int, shape: str) -> list[str]:
        block = Block(part, durability, payload, (shape,), rounds=1, seconds=1.0)
        return [each.subject for each in cases_of(block, known)]

    assert keys("peak", "sync", 200, "c50") == ["masenko", "pqueue", "nats", "redis-pop"]
    assert keys("peak", "sync", 200, "c50x100") == [*(each.key for each in known)]
    assert keys("peak", "sync", 10_000, "c50x100") == ["masenko", "jobs-batch", "nats"]
    assert keys("peak", "memory", 200, "c1") == ["masenko", "pqueue"]
    assert keys("offered", "sync", 200, "c50") == ["masenko", "pqueue", "nats"]
    assert keys("slow-flush", "sync", 200, "c50") == ["masenko"]


def test_servers_take_turns_within_a_shape_in_another_order_each_round() -> None:
    block = Block("peak", "sync", 200, ("c1", "c50"), rounds=2, seconds=1.0)
    cases = list(cases_of(block, subjects("masenko", "workq", "nats")))

    before = defaultdict(set)
    for number in range(12):
        ordered = in_turns(cases, number)
        assert [each.shape for each in ordered] == ["c1"] * 3 + ["c50"] * 3
        assert ordered == in_turns(cases, number)
        for one, following in pairwise(each.subject for each in ordered[:3]):
            before[following].add(one)

    assert before == {
        "masenko": {"workq", "nats"},
        "workq": {"masenko", "nats"},
        "nats": {"masenko", "workq"},
    }
