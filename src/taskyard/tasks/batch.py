"""Tasks whose function gets many jobs at once, as a table with a row for each.

A job is pushed with the values of its row. How tables are made and read is in spark/tables.py,
which needs pandas or pyarrow, and so is imported when the first one is run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from taskyard.tasks.errors import BadResult
from taskyard.tasks.options import Options
from taskyard.tasks.task import PlainTask

if TYPE_CHECKING:
    from taskyard.tasks.app import App

TableKind: TypeAlias = Literal["pandas", "arrow"]
TABLES: Final = get_args(TableKind)
JOB_ID: Final = "job_id"  # a column of tables of Arrow, and the index of those of pandas
ROWS: Final = 1000


class RowFailed(Exception):
    """What a table of results says in its column `error`."""


class BatchTask(PlainTask[..., Any]):
    """Called or pushed it is a task of one row; `on_table` calls the function itself."""

    def __init__(
        self,
        app: App,
        function: Callable[[Any], Any],
        name: str,
        options: Options,
        *,
        columns: Mapping[str, Any] | None,
        table: TableKind,
        rows: int,
        split: bool,
    ) -> None:
        if table not in TABLES:
            raise ValueError(f"table must be pandas or arrow, not {table!r}")
        if rows < 1:
            raise ValueError("rows must be at least 1")
        if columns is not None and (not columns or JOB_ID in columns):
            raise ValueError(f"columns need a name or more, which is not {JOB_ID!r}")
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{name}: a function of a table cannot be a coroutine function")
        self.on_table = function
        self.columns = columns
        self.table = table
        self.rows = rows
        self.split = split
        super().__init__(app, self._of_one_row(function), name, options)

    def run(self, rows: Sequence[Mapping[str, Any]], ids: Sequence[int]) -> list[Any]:
        """One result for each row; an exception in place of a result is the failure of that row."""
        from taskyard.pipeline.spark import tables

        table = tables.make(self.table, rows, ids, self.columns)
        results = tables.read(self.on_table(table), table)
        if len(results) != len(rows):
            raise BadResult(f"{self.name} gave {len(results)} results for {len(rows)} jobs")
        return results

    def row(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """By the names of the columns."""
        return {**dict(zip(self.columns or (), args, strict=False)), **kwargs}

    def _of_one_row(self, function: Callable[[Any], Any]) -> Callable[..., Any]:
        def one_row(*args: Any, **kwargs: Any) -> Any:
            [result] = self.run([self.row(args, kwargs)], [0])
            if isinstance(result, BaseException):
                raise result
            return result

        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(one_row, name, getattr(function, name))
        columns = self.columns
        one_row.__annotations__ = dict(columns or {})
        one_row.__signature__ = _signature(columns)  # type: ignore[attr-defined]
        return one_row


def _signature(columns: Mapping[str, Any] | None) -> inspect.Signature:
    """What a push of one row may say."""
    if columns is None:
        return inspect.Signature([inspect.Parameter("row", inspect.Parameter.VAR_KEYWORD)])
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature(
        [inspect.Parameter(name, kind, annotation=wanted) for name, wanted in columns.items()]
    )
