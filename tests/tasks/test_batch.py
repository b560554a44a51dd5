"""Tasks that take many jobs at once, as a table: rows in, one verdict for each out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import taskyard
from taskyard.client.source import Failed, Job, RetryLater, Success, Verdict
from taskyard.tasks.execution import GroupRunner, make_table
from taskyard.worker.pools import GroupingPool, JobGroup, RunFailure, ThreadPool

COLUMNS = {"a": int, "b": float}


def verdicts_of(
    function: Callable[[Any], Any],
    payloads: Sequence[bytes],
    columns: dict[str, Any] | None = COLUMNS,
    **options: Any,
) -> list[Verdict]:
    """Of a bundle with these payloads."""
    app = taskyard.App()
    app.batch_task(**{"table": "pandas", "columns": columns, "name": "task", **options})(function)
    jobs = [
        Job(f"{number}-1-1", "default", payload, "task", id=100 + number)
        for number, payload in enumerate(payloads)
    ]
    return GroupRunner(app)(JobGroup("b", "default", b"", "task", jobs=jobs))


def shown(verdict: Verdict) -> str:
    if isinstance(verdict, Success):
        return verdict.result.decode()
    assert isinstance(verdict, RetryLater | Failed)
    return f"{type(verdict).__name__} {verdict.error.decode().partition(chr(10))[0]}"


def rows(count: int) -> list[bytes]:
    return [b"[%d, 0.5]" % number for number in range(count)]


@pytest.mark.parametrize(
    "given",
    [
        lambda t: t["a"] * 2,
        lambda t: (t["a"] * 2).sort_values(ascending=False),
        lambda t: (t["a"] * 2).reset_index(drop=True),
        lambda t: t["a"].to_numpy() * 2,
        lambda t: [value * 2 for value in t["a"]],
        lambda t: pa.array([value * 2 for value in t["a"]]),
        lambda t: pa.chunked_array([[value * 2] for value in t["a"]]),
        lambda t: pd.DataFrame({"result": t["a"] * 2, "more": 1}),
        lambda t: pa.table({"result": [value * 2 for value in t["a"]]}),
    ],
)
def test_results_may_come_in_many_forms(given: Callable[[Any], Any]) -> None:
    assert [shown(one) for one in verdicts_of(given, rows(4))] == ["0", "2", "4", "6"]


def test_rows_of_a_table_without_result_are_objects() -> None:
    found = verdicts_of(lambda t: pd.DataFrame({"x": t["a"], "y": "z"}), rows(2))
    assert [shown(one) for one in found] == ['{"x":0,"y":"z"}', '{"x":1,"y":"z"}']


def test_what_json_has_not_becomes_what_it_has() -> None:
    values = [pd.NA, pd.NaT, float("nan"), np.int64(3), pd.Timestamp("2026-01-02T03:04:05Z")]
    found = verdicts_of(lambda t: values, rows(5))
    assert [shown(one) for one in found] == ["null", "null", "null", "3", '"2026-01-02T03:04:05Z"']


def test_numbers_of_numpy_have_json_wherever_they_are() -> None:
    values = [np.float64(1.5), [np.float32(0.5), float("nan")], {"n": np.int64(3)}, np.array([2.0])]
    found = verdicts_of(lambda t: values, rows(4))
    assert [shown(one) for one in found] == ["1.5", "[0.5,null]", '{"n":3}', "[2.0]"]
    found = verdicts_of(lambda t: np.array([1.5, float("nan")]), rows(2))
    assert [shown(one) for one in found] == ["1.5", "null"]


def test_no_results_are_successes_without() -> None:
    assert verdicts_of(lambda t: None, rows(2), result=False) == [Success(), Success()]


def test_a_row_fails_alone_by_an_exception_or_a_text_in_its_place() -> None:
    errors = [None, taskyard.GiveUp("never"), taskyard.TryAgain("later", delay=3)]
    first = verdicts_of(lambda t: errors, rows(3), retry=3)
    assert [shown(one) for one in first] == [
        "null",
        "Failed taskyard.tasks.errors.GiveUp: never",
        "RetryLater taskyard.tasks.errors.TryAgain: later",
    ]
    second = verdicts_of(lambda t: pd.DataFrame({"error": [None, "bad"], "result": 1}), rows(2))
    assert [shown(one) for one in second] == [
        "1",
        "RetryLater taskyard.tasks.execution.RowFailed: bad",
    ]


def test_a_row_that_does_not_fit_or_has_no_json_fails_alone() -> None:
    found = verdicts_of(
        lambda t: [object() if value == 1 else value for value in t["a"]],
        [b'["x", 1]', b"[1, 1]", b"[2, 1]", b"{}"],
    )
    assert [shown(one).partition(":")[0] for one in found] == [
        "Failed BadArguments",
        "RetryLater taskyard.tasks.errors.BadResult",
        "2",
        "Failed BadArguments",
    ]


def test_a_call_that_raises_is_split_until_only_the_bad_rows_are_left() -> None:
    calls: list[int] = []

    def function(table: Any) -> Any:
        calls.append(len(table))
        if 5 in set(table["a"]):
            raise SystemExit(5)
        return table["a"]

    found = [shown(one) for one in verdicts_of(function, rows(8))]
    assert found == ["0", "1", "2", "3", "4", "Failed SystemExit: 5", "6", "7"]
    assert calls == [8, 4, 4, 2, 1, 1, 2]


@pytest.mark.parametrize("options", [{"split": False}, {}])
def test_all_rows_fail_when_that_is_meant(options: dict[str, Any]) -> None:
    calls: list[int] = []

    def function(table: Any) -> Any:
        calls.append(len(table))
        raise taskyard.TryAgain("away") if not options else ValueError("away")

    found = verdicts_of(function, rows(4), **options)
    assert all(isinstance(one, RetryLater) for one in found)
    assert calls == [4]


def test_a_result_too_few_is_a_failure_of_the_row_without() -> None:
    found = verdicts_of(lambda t: list(t["a"][t["a"] != 2]), rows(4))
    assert [shown(one) for one in found] == [
        "0",
        "1",
        "RetryLater taskyard.tasks.errors.BadResult: task gave 0 results for 1 jobs",
        "3",
    ]


def test_tables_have_the_types_and_ids_that_were_declared() -> None:
    day = dt.date(2026, 1, 2)
    columns = {"n": int, "x": float | None, "words": list[str], "day": dt.date}
    some: list[dict[str, Any]] = [
        {"n": 1, "x": None, "words": ["a"], "day": day},
        {"n": 2, "words": [], "day": day},
    ]
    arrow = make_table("arrow", some, [7, 8], columns)
    assert arrow.schema == pa.schema(
        [
            ("job_id", pa.int64()),
            ("n", pa.int64()),
            ("x", pa.float64()),
            ("words", pa.list_(pa.string())),
            ("day", pa.date32()),
        ]
    )
    frame = make_table("pandas", [{"x": 1}, {"y": "b"}], [7, 8], None)
    assert list(frame.columns) == ["x", "y"]
    assert list(frame.index) == [7, 8]
    assert frame.index.name == "job_id"


def test_one_row_runs_where_it_is_called_and_inline() -> None:
    app = taskyard.App(inline=True)

    @app.batch_task(table="arrow", columns=COLUMNS, retry=0)
    def product(table: Any) -> Any:
        return pc.multiply(table["a"], table["b"])

    assert product(2, b=1.5) == 3.0
    assert product.push(4, 0.5).result() == 2.0
    with pytest.raises(taskyard.BadArguments):
        product.push(1, 2, 3)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"table": "polars"}, ValueError),
        ({"table": "arrow", "rows": 0}, ValueError),
        ({"table": "arrow", "columns": {}}, ValueError),
        ({"table": "arrow", "columns": {"job_id": int}}, ValueError),
        ({"table": "arrow", "columns": {"x": object.__init__}}, TypeError),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_declared(
    options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        taskyard.App().batch_task(**options)(lambda table: None)


async def _coroutine(table: Any) -> None:
    pass


def test_a_coroutine_function_of_a_table_is_refused() -> None:
    with pytest.raises(TypeError, match="coroutine"):
        taskyard.App().batch_task(table="arrow")(_coroutine)


def job(number: int, name: str = "many") -> Job:
    return Job(str(number), "q", b"", name)


def test_a_pool_bundles_what_comes_at_once_and_reports_each_job() -> None:
    told: dict[str, Any] = {}

    def execute(job: Job) -> Any:
        if not isinstance(job, JobGroup):
            return "alone"
        if len(job.jobs) == 1:
            raise ValueError("one")
        return [len(job.jobs)] * len(job.jobs)

    pool: GroupingPool[Any] = GroupingPool(ThreadPool(execute, 2), {"many": 3})
    assert pool.size == 6
    pool.start(lambda job, outcome: told.update({job.ref: outcome}))
    pool.submit(*[job(number) for number in range(4)], job(4, "other"))
    pool.close()
    crash = told.pop("3")
    assert told == {"0": 3, "1": 3, "2": 3, "4": "alone"}
    assert isinstance(crash, RunFailure)
    assert "ValueError: one" in crash.reason


def test_bundles_that_nobody_has_begun_with_are_withdrawn_whole() -> None:
    pool: GroupingPool[Any] = GroupingPool(ThreadPool(lambda job: None, 1), {"many": 2})
    jobs = [job(number) for number in range(6)]
    pool.submit(*jobs)
    assert pool.withdraw(1) == jobs[4:]
    assert pool.withdraw() == jobs[:4]
