"""Runs functions of the lake on Spark's executors: one task each, what they return comes back."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


class Tasks(Protocol):
    """Where the work of the lake is done."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at a time."""

    @property
    def ui(self) -> str | None:
        """Where one can watch them."""

    def run(self, doc: str, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """The results in the order of the tasks. `doc` says what it is, for people."""


class SparkTasks:
    """Tasks read and write files themselves: only what they are and return goes through the JVM."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    @property
    def parallelism(self) -> int:
        return max(2, self._spark.sparkContext.defaultParallelism)

    @property
    def ui(self) -> str | None:
        return self._spark.sparkContext.uiWebUrl

    def run(self, doc: str, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        if not tasks:
            return []

        def go(batches: Iterable[Any]) -> Iterator[Any]:
            import pyarrow as pa

            for batch in batches:
                for number in batch.column(0).to_pylist():
                    result = pickle.dumps((number, work(tasks[number])))
                    yield pa.record_batch([pa.array([result], pa.binary())], names=["result"])

        self._spark.sparkContext.setJobDescription(doc)
        frame = self._spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(go, "result binary")
        found = dict(pickle.loads(row.result) for row in frame.collect())
        return [found[number] for number in range(len(tasks))]
