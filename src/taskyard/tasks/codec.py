"""Arguments and results as JSON, read back as what the function's annotations say.

JSON has few types, so the annotations decide: a parameter `when: datetime` gets a datetime, one
without an annotation gets what JSON has. Nothing is ever pickled.
"""

from __future__ import annotations

import inspect
import pathlib
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, Final

import msgspec

from taskyard.tasks.errors import BadArguments, BadResult
from taskyard.tasks.foreign import PUSH_HINTS

_EMPTY: Final = inspect.Parameter.empty
_JSON_SCALARS: Final = (str, int, float, bool)  # JSON has them as they are
_CALL_KEYS: Final = {"args", "kwargs"}
_ENVELOPE_KEYS: Final = frozenset({"args", "kwargs", "results_of", "join", "keep", "pauses"})
_RESULTS_OF_MARK: Final = b'"results_of"'
_JSON_SAMPLES: Final[tuple[Any, ...]] = ("", 0, 0.5, True, None, [], {})  # all kinds of JSON
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Envelope(msgspec.Struct, omit_defaults=True):
    """The payload of a job. What others push may also be the bare arguments: an array or object."""

    args: Sequence[Any]
    kwargs: dict[str, Any]
    results_of: list[str] = []
    """Uids of jobs before it, whose results come before the arguments."""
    join: bool = False
    """As one list, of any length; else there is one, and it comes as it is."""
    keep: float = 0.0
    """Seconds for which its own result must be kept, for those that come after it."""
    pauses: tuple[float, float] | None = None
    """Seconds before its first retry, and the most: of schedules that were set before the
    server had words for that."""


_decode_payload: Final = msgspec.json.Decoder(dict[str, Any] | list[Any]).decode
_decode_json: Final = msgspec.json.Decoder().decode


def _to_json(value: Any) -> Any:
    if isinstance(value, pathlib.PurePath):
        return str(value)
    raise TypeError(f"a {type(value).__qualname__} has no JSON")


def _from_json(wanted: Any, value: Any) -> Any:
    kind = typing.get_origin(wanted) or wanted
    if kind is Iterable and kind is not wanted:
        return msgspec.convert(value, list[typing.get_args(wanted)[0]], dec_hook=_from_json)  # type: ignore[misc]
    if isinstance(value, kind):
        return value
    if issubclass(kind, pathlib.PurePath) and isinstance(value, str):
        return kind(value)
    raise TypeError(f"`{kind.__qualname__}` cannot be made of JSON")


_encode: Final = msgspec.json.Encoder(enc_hook=_to_json).encode
_encode_key: Final = msgspec.json.Encoder(enc_hook=_to_json, order="deterministic").encode


def encode(value: Any) -> bytes:
    return _encode(value)


def encode_result(value: Any) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadResult(f"the result has no JSON: {error}") from error


def encode_arguments(envelope: Envelope) -> bytes:
    try:
        return _encode(envelope)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadArguments(f"the arguments have no JSON: {error}") from error


def arguments_key(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The same for the same arguments, however their sets and dictionaries are ordered."""
    import hashlib

    text = _encode_key([args, kwargs])
    return f"{name}:{hashlib.sha256(text).hexdigest()[:40]}"


def read_envelope(payload: bytes) -> Envelope:
    """Read any payload; BadArguments if it is neither an array nor an object."""
    if not payload:
        return Envelope((), {})
    try:
        found = _decode_payload(payload)
    except _UNREADABLE as error:
        raise BadArguments(f"the payload is no JSON array or object: {error}") from error
    if isinstance(found, list):
        return Envelope(found, {})
    if found.keys() == _CALL_KEYS:  # nearly all are
        args, kwargs = found["args"], found["kwargs"]
        if type(args) is list and type(kwargs) is dict:
            return Envelope(args, kwargs)
    if ("args" in found or "kwargs" in found) and _ENVELOPE_KEYS.issuperset(found):
        try:
            return msgspec.convert({"args": (), "kwargs": {}, **found}, Envelope)
        except msgspec.ValidationError as error:
            raise BadArguments(f"the payload does not name arguments: {error}") from error
    return Envelope((), found)


def may_need_results(payload: bytes) -> bool:
    """Whether it may be that of a step. Quick, because it checks every payload."""
    return _RESULTS_OF_MARK in payload


class Codec:
    """For one function."""

    def __init__(self, function: Callable[..., Any], name: str, context: type) -> None:
        """`context`: a parameter with this annotation is given by the worker."""
        self._name = name
        self._signature = inspect.signature(function)
        hints = _hints(function)
        self._positional: list[Any] = []
        self._named: dict[str, Any] = {}
        self._var_positional: Any = None
        self._var_keyword: Any = None
        self.context_name = ""
        self._required = self._max_positional = 0  # positional arguments
        self._needs_names = False
        for parameter in self._signature.parameters.values():
            wanted = hints.get(parameter.name, _EMPTY)
            if _is_context(wanted, context):
                self.context_name = parameter.name
                self._needs_names = True
                continue
            self._add_parameter(parameter, self._parameter_type(parameter, wanted))
        self.returns = hints.get("return", Any)
        if self.returns is not Any:
            self._check_annotation("its result", self.returns)
        self.returns_nothing = self.returns is NoneType

    def _add_parameter(self, parameter: inspect.Parameter, wanted: Any) -> None:
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                self._var_positional = wanted
            case inspect.Parameter.VAR_KEYWORD:
                self._var_keyword = wanted
            case inspect.Parameter.KEYWORD_ONLY:
                self._named[parameter.name] = wanted
                self._needs_names = self._needs_names or parameter.default is _EMPTY
            case kind:
                self._positional.append(wanted)
                if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
                    self._named[parameter.name] = wanted
                self._max_positional += 1
                self._required += parameter.default is _EMPTY

    def _parameter_type(self, parameter: inspect.Parameter, wanted: Any) -> Any:
        if wanted is _EMPTY or wanted is Any or wanted is object:
            return None
        what = f"parameter {parameter.name!r}"
        self._check_annotation(what, wanted)
        if parameter.default is _EMPTY and not _can_be_json(wanted):
            raise TypeError(f"{what} of task {self._name!r}: JSON has nothing that is a {wanted}")
        return wanted

    def _check_annotation(self, what: str, wanted: Any) -> None:
        """An annotation that JSON can never fit is found when the task is declared."""
        try:
            msgspec.json.Decoder(wanted, dec_hook=_from_json)
        except TypeError as error:
            raise TypeError(f"{what} of task {self._name!r}: {error}") from error

    def check_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """BadArguments if the function cannot be called so."""
        if (
            not kwargs
            and self._required <= len(args) <= self._max_positional
            and not self._needs_names
        ):
            return  # which is what `bind` would find, in 3 microseconds
        if self.context_name and self.context_name in kwargs:
            raise BadArguments(f"{self._name}: {self.context_name!r} is given by the worker")
        try:
            if self.context_name:
                kwargs = {**kwargs, self.context_name: None}
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            hints = [PUSH_HINTS[name] for name in kwargs if name in PUSH_HINTS]
            raise BadArguments(f"{self._name}: {'; '.join([str(error), *hints])}") from None

    def decode_arguments(
        self, envelope: Envelope, inputs: Sequence[Any] = ()
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments in the function's types; BadArguments if they do not fit."""
        args = [*inputs, *envelope.args] if inputs else list(envelope.args)
        kwargs = envelope.kwargs
        self.check_arguments(args, kwargs)
        known = len(self._positional)
        for at, value in enumerate(args):
            wanted = self._positional[at] if at < known else self._var_positional
            if wanted is not None:
                args[at] = self._convert(value, wanted, f"argument {at + 1}")
        if kwargs:
            kwargs = {
                name: self._convert_named(name, value, self._named.get(name, self._var_keyword))
                for name, value in kwargs.items()
            }
        return args, kwargs

    def _convert_named(self, name: str, value: Any, wanted: Any) -> Any:
        return value if wanted is None else self._convert(value, wanted, f"argument {name!r}")

    def _convert(self, value: Any, wanted: Any, what: str) -> Any:
        if type(value) is wanted and wanted in _JSON_SCALARS:
            return value
        try:
            return msgspec.convert(value, wanted, str_keys=True, dec_hook=_from_json)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise BadArguments(f"{self._name}: {what} does not fit: {error}") from None

    def decode_result(self, data: bytes | None) -> Any:
        """BadResult if it does not fit the annotation."""
        if not data:
            return None
        try:
            return msgspec.json.decode(data, type=self.returns, dec_hook=_from_json)
        except (*_UNREADABLE, TypeError, ValueError) as error:
            raise BadResult(f"the result of {self._name} does not fit: {error}") from error


def decode_plain(data: bytes | None) -> Any:
    """A result, as JSON has it."""
    return _decode_json(data) if data else None


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    except NameError as error:
        # Names that are imported for type checkers only, for instance.
        raise TypeError(
            f"an annotation of {function.__qualname__} cannot be read: {error}"
        ) from error


def _can_be_json(wanted: Any) -> bool:
    """False of types that only Python has; what is inside of others is not checked."""
    if wanted in _JSON_SCALARS:
        return True
    from msgspec.inspect import CustomType, type_info

    info = type_info(wanted)
    if not isinstance(info, CustomType) or issubclass(info.cls, pathlib.PurePath):
        return True
    return any(isinstance(sample, info.cls) for sample in _JSON_SAMPLES)


def _is_context(wanted: Any, context: type) -> bool:
    if wanted is context:
        return True
    return context in typing.get_args(wanted)
