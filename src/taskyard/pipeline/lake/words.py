"""Words of a few different values as numbers and back, and columns put into a table's order."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from taskyard.pipeline.lake import lives as l
from taskyard.pipeline.lake.gather import numbers
from taskyard.pipeline.lake.lives import Flags, Ints

_DAY: Final = 86_400_000_000
_OUTCOME_OF: Final = {"ttl": "expired"}  # where it is not called as the cause


def waiting(state: Any) -> Flags:
    found: Flags = (state >= l.BLOCKED) & (state <= l.READY)
    return found


def plain_words(column: Any) -> Any:
    """As a dictionary of plain strings, whatever it was."""
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def event_codes(column: Any) -> Any:
    array = plain_words(column.combine_chunks())
    known = [l.CODES.get(word, l.STRANGE) for word in array.dictionary.to_pylist()]
    return np.array([*known, l.STRANGE], np.int8)[numbers(array.indices, len(known))]


def among(column: Any, words: tuple[str, ...]) -> Flags:
    array = plain_words(column)
    found = [word in words for word in array.dictionary.to_pylist()]
    return np.array([*found, False], np.bool_)[numbers(array.indices, len(found))]


def states(column: Any) -> Any:
    known = {word: number for number, word in enumerate(l.STATES) if word}
    array = plain_words(column.combine_chunks())
    codes = [known.get(word, l.UNKNOWN) for word in array.dictionary.to_pylist()]
    return np.array([*codes, l.UNKNOWN], np.int8)[numbers(array.indices, len(codes))]


ENDS: Final = pa.array(
    [
        {
            l.FINISH: "succeeded",
            l.RETRY: "retried",
            l.FAIL: "failed",
            l.RELEASE: "released",
            l.REMOVE: "removed",
            l.MOVE: "moved",
        }.get(code)
        for code in range(l.STRANGE)
    ],
    pa.string(),
).dictionary_encode()


def outcomes(code: Any, reason: Any) -> Any:
    array = plain_words(reason)
    words = [_OUTCOME_OF.get(word, word) for word in array.dictionary.to_pylist()]
    names = pa.array([*words, "succeeded", "failed", None], pa.string())
    places = numbers(array.indices, len(words) + 2)
    places = np.where(code == l.FINISH, len(words), places)
    places = np.where(code == l.FAIL, len(words) + 1, places)
    return names.take(pa.array(places))


def dates(time: Ints) -> Any:
    return pa.array((time // _DAY).astype(np.int32)).view(pa.date32())


def table(columns: dict[str, Any], schema: Any) -> Any:
    """In the schema's order; words may stay dictionaries."""
    arrays = [_fitting(columns[field.name], field.type) for field in schema]
    return pa.table(arrays, names=schema.names)


def _fitting(column: Any, kind: Any) -> Any:
    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):
        return column.cast(kind)
    return column.cast(kind)
