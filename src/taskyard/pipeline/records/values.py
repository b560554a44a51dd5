"""Records of keyed values, many at a time: with toq there is one for each result.

What they say stands in `details` only. It must be just what `describe` says of them; whatever is
not simple enough for that is left to it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from taskyard.engine import records as r
from taskyard.pipeline.records.found import Ints, Records, array_of, datable

_SIMPLE: Final = r"^[ !#-\[\]-~]*$"  # a text that JSON has as it is
_MOMENT: Final = "%Y-%m-%dT%H:%M:%SZ"


def read_values(found: Records, fields: Ints) -> NDArray[np.bool_]:
    """Describe those that are simple; gives which records they are."""
    done = np.zeros(found.count, np.bool_)
    for kind in (r.VALUE, r.VALUE_GONE):
        which = np.flatnonzero(found.kinds == kind)
        if len(which):
            done[_read(found, kind, which, fields[which])] = True
    return done


def _read(found: Records, kind: int, which: Ints, at: Ints) -> Ints:
    sizes = found.u16(at)
    after = at + 2 + sizes
    blob_at = after + 9 if kind == r.VALUE else after
    blobs = found.u32(blob_at)
    found.check_ends(which, blob_at + 4 + blobs)
    if "details" not in found.wanted:
        return which
    found.put_span("value_key", which, at + 2, sizes)
    keys = found.binary("value_key", keep_empty=True).take(pa.array(which))
    del found.spans["value_key"]
    simple = _is_simple(keys)
    if kind == r.VALUE:
        expiries = found.i64(after)
        simple &= datable(expiries) == expiries
        keeps = found.u8(after + 8) != 0
        rest = [_moments(expiries[simple]), _words(keeps[simple]), pa.array(blobs[simple])]
    else:
        rest = []
    which = which[simple]
    texts = _details(keys.filter(pa.array(simple)).cast(pa.string()), rest)
    patches = found.patches.setdefault("details", {})
    patches.update(zip(which.tolist(), texts.to_pylist(), strict=True))
    return which


def _is_simple(keys: Any) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = pc.match_substring_regex(keys, _SIMPLE).to_numpy(zero_copy_only=False)
    return mask.copy()


def _moments(times: Ints) -> Any:
    spelled = pc.strftime(array_of(pa.timestamp("us", tz="UTC"), times, None), format=_MOMENT)
    quoted = pc.binary_join_element_wise('"', spelled, '"', "")
    return pc.if_else(pa.array(times != 0), quoted, "null")


def _words(flags: NDArray[np.bool_]) -> Any:
    return pc.if_else(pa.array(flags), "true", "false")


def _details(keys: Any, rest: list[Any]) -> Any:
    if not rest:
        return pc.binary_join_element_wise('{"key": "', keys, '"}', "")
    moments, keeps, sizes = rest
    return pc.binary_join_element_wise(
        '{"key": "',
        keys,
        '", "expires_at": ',
        moments,
        ', "keep": ',
        keeps,
        ', "value_size": ',
        sizes.cast(pa.string()),
        "}",
        "",
    )
