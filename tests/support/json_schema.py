"""As much of JSON Schema as the API's document uses; another keyword is an error."""

import re
from collections.abc import Callable
from typing import Any

_ANNOTATIONS = {"title", "description", "default", "format", "contentEncoding"}
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


class Invalid(AssertionError):
    """The value is not what the schema says."""


def check(value: Any, schema: Any, root: dict[str, Any], where: str = "$") -> None:
    """Raise Invalid unless the value is as the schema of the document `root` says."""
    if isinstance(schema, bool):
        _demand(schema, where, "must not be there")
        return
    for keyword, argument in schema.items():
        if keyword in _ANNOTATIONS:
            continue
        if keyword == "$ref":
            check(value, resolve(argument, root), root, where)
        elif keyword in {"anyOf", "oneOf", "not"}:
            _check_many(value, keyword, argument, root, where)
        elif keyword in _STRUCTURE:
            _STRUCTURE[keyword](value, argument, schema, root, where)
        else:
            _demand(_SIMPLE[keyword](value, argument), where, f"{value!r}: {keyword} {argument}")


def matches(value: Any, schema: Any, root: dict[str, Any]) -> bool:
    try:
        check(value, schema, root)
    except Invalid:
        return False
    return True


def resolve(reference: str, root: dict[str, Any]) -> Any:
    found: Any = root
    for name in reference.removeprefix("#/").split("/"):
        found = found[name]
    return found


def _demand(good: bool, where: str, text: str) -> None:
    if not good:
        raise Invalid(f"{where}: {text}")


def _check_many(value: Any, keyword: str, schemas: Any, root: dict[str, Any], where: str) -> None:
    if keyword == "not":
        _demand(not matches(value, schemas, root), where, f"{value!r} matches what it must not")
        return
    count = sum(matches(value, schema, root) for schema in schemas)
    wanted = count == 1 if keyword == "oneOf" else count > 0
    _demand(wanted, where, f"{value!r} matches {count} of {keyword} {schemas}")


def _properties(value: Any, properties: Any, schema: Any, root: Any, where: str) -> None:
    if isinstance(value, dict):
        for name, inner in properties.items():
            if name in value:
                check(value[name], inner, root, f"{where}.{name}")


def _additional(value: Any, inner: Any, schema: Any, root: Any, where: str) -> None:
    if isinstance(value, dict):
        for name in value.keys() - schema.get("properties", {}).keys():
            check(value[name], inner, root, f"{where}.{name}")


def _items(value: Any, inner: Any, schema: Any, root: Any, where: str) -> None:
    if isinstance(value, list):
        for index, item in enumerate(value):
            check(item, inner, root, f"{where}[{index}]")


def _is_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_STRUCTURE: dict[str, Callable[[Any, Any, Any, Any, str], None]] = {
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
}
_SIMPLE: dict[str, Callable[[Any, Any], bool]] = {
    "type": _is_type,
    "enum": lambda value, known: value in known,
    "const": lambda value, known: value == known,
    "required": lambda value, names: not isinstance(value, dict) or set(names) <= value.keys(),
    "minimum": lambda value, least: not _is_number(value) or value >= least,
    "maximum": lambda value, most: not _is_number(value) or value <= most,
    "minLength": lambda value, least: not isinstance(value, str) or len(value) >= least,
    "maxLength": lambda value, most: not isinstance(value, str) or len(value) <= most,
    "minItems": lambda value, least: not isinstance(value, list) or len(value) >= least,
    "maxItems": lambda value, most: not isinstance(value, list) or len(value) <= most,
    "uniqueItems": lambda value, _: not isinstance(value, list) or len(set(value)) == len(value),
    "pattern": lambda value, text: not isinstance(value, str) or bool(re.search(text, value)),
}
