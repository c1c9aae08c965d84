"""Arguments: what callers give to public functions, held to the annotations of those functions.

The annotation is the only place that says what a parameter takes; whoever calls with something else gets
`BadArgument`, which names the function, the parameter, what it takes and what came. `checked` wraps a
function, `checked_methods` the public methods of a class.

Text is text that UTF-8 can hold, without NUL; True is no number; a text or a mapping is no list of texts;
numbers and truths of numpy become Python's; an iterator is read into a tuple, since it can be looked at
only once. A missing or unknown argument stays Python's own TypeError: that is the signature.

The annotations are read at the first call; a call with ten arguments then takes some microseconds.
"""

from __future__ import annotations

import os
import types
from collections import abc
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial, wraps
from inspect import Parameter, isfunction, signature
from itertools import chain, repeat
from typing import (
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import IntegrityError, InvalidRequest
from omnigraph.base.panics import is_panic

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)
Reader = Callable[[Any], Any]  # returns the value to go on with, or raises `_Wrong`
LARGEST = 2**63 - 1
NO_READER = (None, "anything")
_SHOWN = 60  # characters of a wrong value in a message
_LISTS = (abc.Iterable, abc.Collection, abc.Sequence, abc.Set, list, tuple, set, frozenset)


class BadArgument(InvalidRequest):
    """An argument is not what the parameter takes; `fields` name the function, the parameter and both."""

    code = "bad_argument"


@dataclass(frozen=True, slots=True)
class Minimum:
    """Of a number: the smallest that is taken."""

    least: int


@dataclass(frozen=True, slots=True)
class AnyText:
    """Of a text: NUL is taken, too. Stored values may hold it; names, messages and paths may not."""


Positive = Annotated[int, Minimum(1)]
Count = Annotated[int, Minimum(0)]
EntityId = Annotated[str, AnyText()]


class _Wrong(Exception):
    """A value is not what it should be. `near` if its type is right, so that this says more than the type."""

    def __init__(self, expected: str, value: Any, *, near: bool = False) -> None:
        super().__init__(expected)
        self.expected = expected
        self.value = value
        self.near = near


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with its arguments checked against their annotations."""
    readers: _Readers | None = None

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal readers
        if readers is None:
            readers = _Readers(function)
        positional, keywords = readers.read(args, kwargs)
        try:
            return function(*positional, **keywords)
        except BaseException as error:
            if is_panic(error):
                raise _gave_up(error) from error
            raise

    return call


def _gave_up(panic: BaseException) -> IntegrityError:
    """Return the error for a panic that nobody below knew to be possible: no caller expects one."""
    return IntegrityError(
        f"native code gave up: {panic}",
        remedy="Run 'omnigraph doctor --deep': it says which files are damaged. If none is, report this text",
    )


def checked_methods(cls: C) -> C:
    """Check the arguments of a class's public methods; a method that is added later is among them."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_") and name != "__call__":
            continue
        if isfunction(member):
            setattr(cls, name, checked(member))
        elif isinstance(member, classmethod):
            setattr(cls, name, classmethod(checked(member.__func__)))
    return cls


def expected_of(function: Callable[..., Any]) -> dict[str, str]:
    """Return what the parameters of a checked function take, in words; without those that take anything."""
    inner = getattr(function, "__wrapped__", function)
    return {str(name): words for name, (_, words) in _Readers(inner).by_name.items()}


class _Readers:
    """The readers of one function's parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function.__name__
        hints = get_type_hints(function, include_extras=True)
        self.by_name: dict[str | None, tuple[Reader | None, str]] = {}
        self._order: list[str] = []
        self._rest: str | None = None  # the parameter that takes any number of arguments
        self._by_place: set[str] = set()  # only: a keyword of the same name is another argument
        for name, parameter in signature(function).parameters.items():
            if parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
                self._order.append(name)
            if parameter.kind is Parameter.POSITIONAL_ONLY:
                self._by_place.add(name)
            if parameter.kind is Parameter.VAR_POSITIONAL:
                self._rest = name
            reader, words = _compiled(hints.get(name, Any))
            if reader is not None and parameter.kind is not Parameter.VAR_KEYWORD:
                self.by_name[name] = (reader, words)

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call, checked."""
        by_name = self.by_name
        names = chain(self._order, repeat(self._rest))  # the rest goes to the one that takes any number
        by_keyword = ((None if name in self._by_place else name, kwargs[name]) for name in kwargs)
        given = [*zip(names, args, strict=False), *by_keyword]
        read = []
        for name, value in given:
            reader, words = by_name.get(name, NO_READER)
            try:
                read.append(value if reader is None else reader(value))
            except _Wrong as wrong:
                raise self._refusal(wrong, name, words, value) from None
        return tuple(read[: len(args)]), dict(zip(kwargs, read[len(args) :], strict=True))

    def _refusal(self, wrong: _Wrong, name: str | None, words: str, value: Any) -> BadArgument:
        expected = wrong.expected if wrong.near else words
        shown = _shown(wrong.value if wrong.near else value)
        return BadArgument(
            f"{self._function}: argument {name!r} must be {expected}, not {shown}",
            function=self._function,
            argument=name,
            expected=expected,
            given=shown,
        )


# -- one reader for each form of annotation ----------------------------------------------------------


def _compiled(hint: Any) -> tuple[Reader | None, str]:
    """Return the reader of an annotation and its words; no reader where anything is taken."""
    if hint is Any or hint is object or isinstance(hint, TypeVar):
        return None, "anything"
    if hint is None or hint is type(None):
        return partial(_instance, type(None), "None"), "None"
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _narrowed(arguments[0], arguments[1])
    if origin is Literal:
        words = _either([repr(choice) for choice in arguments])
        return partial(_choice, arguments, words), words
    if origin is Union or origin is types.UnionType:
        return _union(arguments)
    if origin is abc.Callable or hint is abc.Callable:
        return _function, "a function"
    if isinstance(origin, type) and issubclass(origin, os.PathLike):
        return _path, "a path"
    if isinstance(origin, type) and issubclass(origin, abc.Mapping):
        return _mapping(arguments[0], arguments[-1])
    if origin in _LISTS:
        return _list_of(arguments[0])
    described = getattr(hint, "_is_protocol", False) and not getattr(hint, "_is_runtime_protocol", False)
    if isinstance(hint, type) and not described:
        words = f"{'an' if hint.__name__[0] in 'AEIOU' else 'a'} {hint.__name__}"
        # Spark's classes have twins behind Spark Connect that share the name with them and nothing else.
        reader = _named if hint.__module__.startswith("pyspark.") else _instance
        return partial(reader, hint, words), words
    if getattr(hint, "_is_protocol", False):
        return _function, "a function"
    raise TypeError(f"no check for the annotation {hint!r}")  # met by the first call of the function


def _text(value: Any, *, nul: bool = False) -> Any:
    if not isinstance(value, str):
        raise _Wrong("text", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            expected = f"text without lone surrogates (there is one at position {error.start})"
            raise _Wrong(expected, value, near=True) from None
    if not nul and "\0" in value:
        expected = f"text without NUL (there is one at position {value.index(chr(0))})"
        raise _Wrong(expected, value, near=True)
    return value


def _whole(value: Any, least: int = -LARGEST - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise _Wrong("a whole number", value)
    number = int(value)
    if not least <= number <= LARGEST:
        limit = f"of at least {least}" if number < least and least > -LARGEST - 1 else "of at most 64 bits"
        raise _Wrong(f"a whole number {limit}", value, near=True)
    return number


def _number(value: Any) -> int | float:
    if isinstance(value, float | np.floating):
        return float(value)
    try:
        return _whole(value)
    except _Wrong as wrong:
        raise wrong if wrong.near else _Wrong("a number", value) from None


def _flag(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise _Wrong("True or False", value)


def _moment(value: Any) -> datetime:
    if isinstance(value, datetime) and value == value:  # the missing time of pandas is a datetime, too
        return value
    raise _Wrong("a datetime", value)


def _function(value: Any) -> Any:
    if callable(value):
        return value
    raise _Wrong("a function", value)


def _path(value: Any) -> Any:
    if not isinstance(value, os.PathLike):
        raise _Wrong("a path", value)
    try:
        _text(os.fspath(value))
    except _Wrong as wrong:
        raise _Wrong(wrong.expected.replace("text", "a path", 1), value, near=True) from None
    return value


def _instance(kind: type, words: str, value: Any) -> Any:
    if isinstance(value, kind):
        return value
    raise _Wrong(words, value)


def _named(kind: type, words: str, value: Any) -> Any:
    if any(base.__name__ == kind.__name__ for base in type(value).__mro__):
        return value
    raise _Wrong(words, value)


def _choice(choices: tuple[Any, ...], words: str, value: Any) -> Any:
    if isinstance(value, str | int | None) and value in choices:
        return value
    raise _Wrong(words, value)


_PLAIN: Mapping[Any, tuple[Reader, str]] = {
    str: (_text, "text"),
    int: (_whole, "a whole number"),
    float: (_number, "a number"),
    bool: (_flag, "True or False"),
    datetime: (_moment, "a datetime"),
}


def _narrowed(hint: Any, limit: Any) -> tuple[Reader | None, str]:
    """Return the reader of an annotation that says more than a type."""
    match limit:
        case Minimum(least):
            return partial(_whole, least=least), f"a whole number of at least {least}"
        case AnyText():
            return partial(_text, nul=True), "text"
    return _compiled(hint)


def _union(hints: tuple[Any, ...]) -> tuple[Reader | None, str]:
    parts = [_compiled(hint) for hint in hints]
    if any(reader is None for reader, _ in parts):
        return None, "anything"
    optional = type(None) in hints
    # None is met before any reader.
    readers = [cast(Reader, reader) for reader, words in parts if words != "None"]
    words = _either(list(dict.fromkeys(words for _, words in parts)))

    def read(value: Any) -> Any:
        if value is None and optional:
            return None
        near: _Wrong | None = None
        for reader in readers:
            try:
                return reader(value)
            except _Wrong as wrong:
                near = wrong if wrong.near else near
        raise near or _Wrong(words, value)

    return read, words


def _mapping(key: Any, item: Any) -> tuple[Reader, str]:
    (read_key, keys), (read_item, items) = _compiled(key), _compiled(item)
    words = f"a mapping of {keys} to {items}"

    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _Wrong(words, value)
        for name, member in value.items():
            if read_key is not None:
                _member(read_key, name, words, "key", name)
            if read_item is not None:
                _member(read_item, member, words, "the item of", name)
        return value

    return read, words


def _list_of(item: Any) -> tuple[Reader, str]:
    read_item, items = _compiled(item)
    words = f"a list, each item {items}"

    def read(value: Any) -> Any:
        if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, abc.Iterable):
            raise _Wrong(words, value)
        listed = value if isinstance(value, abc.Collection) else tuple(value)
        if read_item is not None:
            for number, member in enumerate(listed):
                _member(read_item, member, words, "item", number)
        return listed

    return read, words


def _member(reader: Reader, value: Any, words: str, what: str, place: Any) -> None:
    try:
        reader(value)
    except _Wrong as wrong:
        expected = f"{words}; {what} {_cut(place)} must be {wrong.expected}"
        raise _Wrong(expected, wrong.value, near=True) from None


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _shown(value: Any) -> str:
    return f"{_cut(value)} ({type(value).__name__})"


def _cut(value: Any) -> str:
    """Return a value as a message can hold it: short, and of characters that every terminal has."""
    try:
        text = ascii(value)
    except Exception:  # noqa: BLE001 (a value of the caller's may fail to describe itself)
        text = object.__repr__(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
