"""Tasks whose function gets many jobs at once, as a table with a row for each.

A job is pushed with the values of its row. pandas and pyarrow are imported when the first table is
made.
"""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
)

from taskyard.tasks.errors import BadResult
from taskyard.tasks.options import Options
from taskyard.tasks.task import PlainTask

if TYPE_CHECKING:
    from taskyard.tasks.app import App

TableKind: TypeAlias = Literal["pandas", "arrow"]
TABLES: Final = get_args(TableKind)
JOB_ID: Final = "job_id"  # a column of tables of Arrow, and the index of those of pandas
DEFAULT_ROWS: Final = 1000
_ERROR: Final = "error"  # columns of results
_RESULT: Final = "result"


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
        super().__init__(app, self._one_row_function(function), name, options)

    def run(self, rows: Sequence[Mapping[str, Any]], ids: Sequence[int]) -> list[Any]:
        """One result for each row; an exception in place of a result is the failure of that row."""
        table = make_table(self.table, rows, ids, self.columns)
        results = _read_results(self.on_table(table), table)
        if len(results) != len(rows):
            raise BadResult(f"{self.name} gave {len(results)} results for {len(rows)} jobs")
        return results

    def row(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """By the names of the columns."""
        return {**dict(zip(self.columns or (), args, strict=False)), **kwargs}

    def _one_row_function(self, function: Callable[[Any], Any]) -> Callable[..., Any]:
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


# Tables and results


def make_table(
    kind: TableKind,
    rows: Sequence[Mapping[str, Any]],
    ids: Sequence[int],
    columns: Mapping[str, Any] | None,
) -> Any:
    """A column for each name; where a row has no value there is none in the table."""
    names = list(columns or dict.fromkeys(name for row in rows for name in row))
    values = {name: [row.get(name) for row in rows] for name in names}
    if kind == "pandas":
        import pandas as pd

        return pd.DataFrame(values, index=pd.Index(ids, dtype="int64", name=JOB_ID))
    import pyarrow as pa

    wanted = columns or {}
    arrays = {
        name: pa.array(column, _arrow_type(wanted.get(name))) for name, column in values.items()
    }
    return pa.table({JOB_ID: pa.array(ids, pa.int64()), **arrays})


def _arrow_type(wanted: Any) -> Any:
    """Of an annotation; None where the values shall decide."""
    import pyarrow as pa

    plain = {
        int: pa.int64(),
        float: pa.float64(),
        str: pa.string(),
        bool: pa.bool_(),
        bytes: pa.binary(),
        dt.datetime: pa.timestamp("us", "UTC"),
        dt.date: pa.date32(),
    }
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        others = [one for one in arguments if one is not NoneType]
        return _arrow_type(others[0]) if len(others) == 1 else None
    if origin is list:
        inner = _arrow_type(arguments[0])
        return None if inner is None else pa.list_(inner)
    return plain.get(wanted) if isinstance(wanted, type) else None


def _read_results(given: Any, table: Any) -> list[Any]:
    """The results in the order of the table's rows; exceptions for rows that have failed."""
    if given is None:
        return [None] * len(table)
    kind = type(given).__module__.partition(".")[0]
    if kind == "pandas":
        return _read_pandas(given, table)
    if kind == "pyarrow":
        return _read_arrow(given)
    if kind == "numpy" and getattr(given, "ndim", 0) == 1:
        return [_to_plain(value) for value in given.tolist()]
    if isinstance(given, list | tuple):
        return [_to_plain(value) for value in given]
    raise BadResult(
        f"the function of a table gives a table, a series or a list, not a {type(given).__name__}"
    )


def _read_pandas(given: Any, table: Any) -> list[Any]:
    import pandas as pd

    index = getattr(table, "index", None)
    if isinstance(given, pd.DataFrame | pd.Series):
        # Sorted by the function, perhaps: the ids tell which row belongs to which job.
        if index is not None and _same_ids(given.index, index):
            given = given.loc[index]
        if isinstance(given, pd.DataFrame):
            return _row_results(given.to_dict("records"), list(given.columns))
        return [_to_plain(value) for value in given.tolist()]
    if isinstance(given, pd.Index | pd.api.extensions.ExtensionArray):
        return [_to_plain(value) for value in given.tolist()]
    raise BadResult(f"a {type(given).__name__} of pandas has no result for each row")


def _same_ids(one: Any, other: Any) -> bool:
    return len(one) == len(other) and one.is_unique and bool(one.isin(other).all())


def _read_arrow(given: Any) -> list[Any]:
    import pyarrow as pa

    if isinstance(given, pa.Table | pa.RecordBatch):
        return _row_results(given.to_pylist(), given.schema.names)
    if isinstance(given, pa.Array | pa.ChunkedArray):
        return [_to_plain(value) for value in given.to_pylist()]
    raise BadResult(f"a {type(given).__name__} of pyarrow has no result for each row")


def _row_results(rows: Sequence[Mapping[Any, Any]], names: Sequence[Any]) -> list[Any]:
    """A row with an `error` has failed; its `result` is its result, or else what other columns
    have. The id of the job is no part of that.
    """
    found: list[Any] = []
    for row in rows:
        error = _to_plain(row.get(_ERROR))
        if isinstance(error, BaseException):
            found.append(error)
        elif error is not None:
            found.append(RowFailed(str(error)))
        elif _RESULT in names:
            found.append(_to_plain(row[_RESULT]))
        else:
            found.append(
                {str(key): _to_plain(row[key]) for key in names if key not in (_ERROR, JOB_ID)}
            )
    return found


def _to_plain(value: Any) -> Any:
    """What JSON can have of it."""
    module = type(value).__module__.partition(".")[0]
    if module == "numpy":  # its float64 is a float, too
        return _to_plain(value.tolist())
    if isinstance(value, float):
        return None if value != value else value  # NaN is pandas's missing value
    if isinstance(value, list | tuple):
        return [_to_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _to_plain(each) for key, each in value.items()}
    if module == "pandas":
        import pandas as pd

        if value is pd.NA or value is pd.NaT:
            return None
        if isinstance(value, pd.Timestamp):
            return value.to_pydatetime()
        if isinstance(value, pd.Timedelta):
            return value.to_pytimedelta()
    return value
