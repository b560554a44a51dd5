"""Columns of Arrow as JSON texts, a whole column at a time.

Bytes become base64, times ISO 8601 in UTC, intervals seconds, numbers that JSON does not have null.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

NULL: Final = "null"
_ESCAPED: Final = '["\\\\\x00-\x1f]'
_CONTROL: Final = "[\x00-\x1f]"
_WHOLE: Final = "^-?[0-9]+$"
_ESCAPES: Final = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


def json_text(array: Any) -> Any:
    """A text for each value; nulls are the text null."""
    kind = array.type
    if pa.types.is_struct(kind):
        names = [kind.field(at).name for at in range(kind.num_fields)]
        text = json_object(names, array.flatten(), len(array))
    elif pa.types.is_map(kind):
        text = _map(array)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        text = _list(array)
    else:
        text = _plain(array)
    return pc.if_else(pc.is_valid(array), text, NULL) if array.null_count else text


def json_object(names: list[str], columns: list[Any], rows: int) -> Any:
    """An object for each row, with all of the names in it."""
    if not columns:
        return _same("{}", rows)
    parts: list[Any] = []
    before = "{"
    for name, column in zip(names, columns, strict=True):
        parts += (before + msgspec.json.encode(name).decode() + ":", json_text(column))
        before = ","
    return _joined(*parts, "}")


def _list(array: Any) -> Any:
    return _joined("[", _members(array, json_text(array.values)), "]")


def _map(array: Any) -> Any:
    entries = _joined(_quoted(_key(array.keys)), ":", json_text(array.items))
    return _joined("{", _members(array, entries), "}")


def _members(array: Any, texts: Any) -> Any:
    """Those of each list, with commas between them."""
    return pc.binary_join(pa.ListArray.from_arrays(array.offsets, texts), ",")


def _key(keys: Any) -> Any:
    """The names of a JSON object are texts, whatever the keys of a map are."""
    return keys if _is_text(keys.type) else pc.utf8_trim(json_text(keys), '"')


def _plain(array: Any) -> Any:
    kind = array.type
    if _is_text(kind):
        return _quoted(array.cast(pa.string()))
    if pa.types.is_floating(kind):
        return _floating(array)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array([_base64(value) for value in array.to_pylist()], pa.string())
    if pa.types.is_timestamp(kind):
        return _time(array)
    if pa.types.is_duration(kind):
        micros = array.cast(pa.duration("us")).cast(pa.int64())
        return _floating(pc.divide(micros.cast(pa.float64()), 1e6))
    if pa.types.is_null(kind):
        return _same(NULL, len(array))
    text = array.cast(pa.string())
    return _joined('"', text, '"') if _is_quoted(kind) else text


def _floating(array: Any) -> Any:
    text = array.cast(pa.string())
    # A number with a fraction stays one, for those who read it, when the fraction is 0.
    text = pc.if_else(pc.match_substring_regex(text, _WHOLE), _joined(text, ".0"), text)
    return pc.if_else(pc.is_finite(array), text, NULL)


def _time(array: Any) -> Any:
    zone = array.type.tz
    if zone is not None:
        array = array.cast(pa.timestamp("us", "UTC"))
    text = array.cast(pa.timestamp("us")).cast(pa.string())
    return _joined('"', pc.replace_substring(text, " ", "T"), '"' if zone is None else 'Z"')


def _quoted(text: Any) -> Any:
    if pc.any(pc.match_substring_regex(text, _ESCAPED)).as_py():
        for plain, escape in _ESCAPES:
            text = pc.replace_substring(text, plain, escape)
        if pc.any(pc.match_substring_regex(text, _CONTROL)).as_py():
            return pa.array([_rare(value) for value in text.to_pylist()], pa.string())
    return _joined('"', text, '"')


def _rare(text: str | None) -> str | None:
    """Quoted, with the control characters that have no short escape written out."""
    if text is None:
        return None
    return '"' + "".join(f"\\u{ord(one):04x}" if one < " " else one for one in text) + '"'


def _base64(value: bytes | None) -> str | None:
    return None if value is None else f'"{base64.b64encode(value).decode()}"'


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_quoted(kind: Any) -> bool:
    """Whether JSON has it as a text, though it is none."""
    types = pa.types
    return bool(types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind))


def _joined(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, "")


def _same(text: str, rows: int) -> Any:
    return pa.repeat(pa.scalar(text, pa.string()), rows)
