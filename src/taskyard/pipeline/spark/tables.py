"""Tables for functions that take many jobs at once, and what they give: pandas and Arrow."""

from __future__ import annotations

import datetime as dt
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final

from taskyard.tasks.batch import JOB_ID, RowFailed, TableKind
from taskyard.tasks.errors import BadResult

ERROR: Final = "error"
RESULT: Final = "result"


def make(
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
        name: pa.array(column, arrow_type(wanted.get(name))) for name, column in values.items()
    }
    return pa.table({JOB_ID: pa.array(ids, pa.int64()), **arrays})


def arrow_type(wanted: Any) -> Any:
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
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        others = [one for one in arguments if one is not types.NoneType]
        return arrow_type(others[0]) if len(others) == 1 else None
    if origin is list:
        inner = arrow_type(arguments[0])
        return None if inner is None else pa.list_(inner)
    return plain.get(wanted) if isinstance(wanted, type) else None


def read(given: Any, table: Any) -> list[Any]:
    """The results in the order of the table's rows; exceptions for rows that have failed."""
    if given is None:
        return [None] * len(table)
    kind = type(given).__module__.partition(".")[0]
    if kind == "pandas":
        return _read_pandas(given, table)
    if kind == "pyarrow":
        return _read_arrow(given)
    if kind == "numpy" and getattr(given, "ndim", 0) == 1:
        return [_plain(value) for value in given.tolist()]
    if isinstance(given, list | tuple):
        return [_plain(value) for value in given]
    raise BadResult(
        f"the function of a table gives a table, a series or a list, not a {type(given).__name__}"
    )


def _read_pandas(given: Any, table: Any) -> list[Any]:
    import pandas as pd

    index = getattr(table, "index", None)
    if isinstance(given, pd.DataFrame | pd.Series):
        # Sorted by the function, perhaps: the ids tell which row is whose.
        if index is not None and _same_ids(given.index, index):
            given = given.loc[index]
        if isinstance(given, pd.DataFrame):
            return _rows(given.to_dict("records"), list(given.columns))
        return [_plain(value) for value in given.tolist()]
    if isinstance(given, pd.Index | pd.api.extensions.ExtensionArray):
        return [_plain(value) for value in given.tolist()]
    raise BadResult(f"a {type(given).__name__} of pandas has no result for each row")


def _same_ids(one: Any, other: Any) -> bool:
    return len(one) == len(other) and one.is_unique and bool(one.isin(other).all())


def _read_arrow(given: Any) -> list[Any]:
    import pyarrow as pa

    if isinstance(given, pa.Table | pa.RecordBatch):
        return _rows(given.to_pylist(), given.schema.names)
    if isinstance(given, pa.Array | pa.ChunkedArray):
        return [_plain(value) for value in given.to_pylist()]
    raise BadResult(f"a {type(given).__name__} of pyarrow has no result for each row")


def _rows(rows: Sequence[Mapping[Any, Any]], names: Sequence[Any]) -> list[Any]:
    """A row with an `error` has failed; its `result` is its result, or else what other columns
    have. The id of the job is no part of that.
    """
    found: list[Any] = []
    for row in rows:
        error = _plain(row.get(ERROR))
        if isinstance(error, BaseException):
            found.append(error)
        elif error is not None:
            found.append(RowFailed(str(error)))
        elif RESULT in names:
            found.append(_plain(row[RESULT]))
        else:
            found.append(
                {str(key): _plain(row[key]) for key in names if key not in (ERROR, JOB_ID)}
            )
    return found


def _plain(value: Any) -> Any:
    """What JSON can have of it."""
    module = type(value).__module__.partition(".")[0]
    if module == "numpy":  # its float64 is a float, too
        return _plain(value.tolist())
    if isinstance(value, float):
        return None if value != value else value  # NaN is how pandas says that there is nothing
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if module == "pandas":
        import pandas as pd

        if value is pd.NA or value is pd.NaT:
            return None
        if isinstance(value, pd.Timestamp):
            return value.to_pydatetime()
        if isinstance(value, pd.Timedelta):
            return value.to_pytimedelta()
    return value
