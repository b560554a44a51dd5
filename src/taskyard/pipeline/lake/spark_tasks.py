"""Runs functions of the lake on Spark's executors: one task each, what they return comes back."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from taskyard.journal.errors import JournalError, JournalPassed, LeftBehind
from taskyard.pipeline.web import ServerUnreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


class RecordsGone(JournalError):
    """A task found a part of the journal gone that was there when it was planned."""


_UNREACHABLE: Final = "unreachable"
_GONE: Final = "gone"


@dataclass(frozen=True)
class Trouble:
    """Why a task could not read the journal.

    As a result, not as an error: Spark would try the task again, which has tried enough, would
    print the traces of all tries, and would leave the other tasks running when it gives up.
    """

    kind: str
    text: str

    def error(self) -> JournalError:
        kinds = {_UNREACHABLE: ServerUnreachable, _GONE: RecordsGone}
        return kinds.get(self.kind, JournalError)(self.text)


def attempt(work: Callable[[T], R], task: T) -> R | Trouble:
    try:
        return work(task)
    except ServerUnreachable as error:
        return Trouble(_UNREACHABLE, str(error))
    except (LeftBehind, JournalPassed) as error:
        return Trouble(_GONE, str(error))
    except JournalError as error:
        return Trouble("", str(error))


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
                    result = pickle.dumps((number, attempt(work, tasks[number])))
                    yield pa.record_batch([pa.array([result], pa.binary())], names=["result"])

        self._spark.sparkContext.setJobDescription(doc)
        frame = self._spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(go, "result binary")
        found = dict(pickle.loads(row.result) for row in frame.collect())
        for result in found.values():
            if isinstance(result, Trouble):
                raise result.error()
        return [found[number] for number in range(len(tasks))]
