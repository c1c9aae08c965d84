"""Frozen: read-only values that can be hashed, compared and pickled: a mapping, and records of named fields.

Why     a frozen dataclass compiles six methods of its own, about half a millisecond of import for each class.
        Subclasses of `FrozenRecord` share theirs: fifty of them take less than a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError
from operator import attrgetter
from typing import Any, ClassVar, NoReturn, Self, TypeVar, dataclass_transform

K = TypeVar("K")
V = TypeVar("V")


class FrozenMap(dict[K, V]):
    """An immutable mapping; iteration follows insertion.

    A dict whose methods of change are taken away: every write goes through several of these maps, and a
    mapping of Python code would cost a call for each look at one.

    >>> FrozenMap({"a": 1})["a"]
    1
    """

    __slots__ = ()

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        super().__init__(items or {})

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a FrozenMap cannot be changed")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return f"FrozenMap({dict(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenMap, (dict(self),)


# -- records -----------------------------------------------------------------------------------------

_UNCOMPARED = object()


def uncompared() -> Any:
    """Declare a field that takes no part in equality, hash and repr, such as a position in a text."""
    return _UNCOMPARED


@dataclass_transform(frozen_default=True, field_specifiers=(uncompared,))
class _RecordType(type):
    """Turns the annotations of a class body into slots, once, when the class is created."""

    __match_args__: tuple[str, ...]
    _defaults: dict[str, Any]
    _shown: tuple[str, ...]
    _setters: tuple[Callable[[Any, Any], None], ...]

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> _RecordType:
        own = [n for n, kind in body.get("__annotations__", {}).items() if not kind.startswith("ClassVar")]
        parents = [base for base in bases if isinstance(base, _RecordType)]
        inherited = [n for parent in parents for n in parent.__match_args__]
        defaults = {n: body.pop(n) for n in own if n in body}
        compared = [n for parent in parents for n in parent._shown]
        compared += [n for n in own if defaults.get(n) is not _UNCOMPARED]
        body["__slots__"] = tuple(own)
        body["__match_args__"] = names = (*inherited, *own)
        body["_defaults"] = {n: value for parent in parents for n, value in parent._defaults.items()}
        body["_defaults"] |= {n: value for n, value in defaults.items() if value is not _UNCOMPARED}
        body["_shown"] = tuple(compared)
        body["_compared"] = staticmethod(attrgetter(*compared) if compared else type)
        record_type = super().__new__(cls, name, bases, body)
        record_type._setters = tuple(getattr(record_type, n).__set__ for n in names)
        return record_type


class FrozenRecord(metaclass=_RecordType):
    """Named fields, given by position or name, that never change. Modules of records postpone annotations.

    >>> class Point(FrozenRecord):
    ...     __annotations__ = {"x": "int", "y": "int"}
    >>> Point(1, y=2), Point(1, 2) == Point(1, 2)
    (Point(x=1, y=2), True)
    """

    _defaults: ClassVar[dict[str, Any]]
    _shown: ClassVar[tuple[str, ...]]
    _setters: ClassVar[tuple[Callable[[Any, Any], None], ...]]
    _compared: ClassVar[staticmethod[[Any], Any]]
    __match_args__: ClassVar[tuple[str, ...]]

    def __init__(self, *values: Any, **named: Any) -> None:
        if named or len(values) != len(self._setters):
            values = self._completed(values, named)
        for set_field, value in zip(self._setters, values, strict=True):
            set_field(self, value)

    def _completed(self, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        rest = self.__match_args__[len(values) :]
        chosen = {**{n: v for n, v in self._defaults.items() if n in rest}, **named}
        if len(values) > len(self._setters) or set(chosen) != set(rest):
            raise TypeError(f"{type(self).__name__} takes {', '.join(self.__match_args__)}")
        return (*values, *(chosen[name] for name in rest))

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with other values in some fields."""
        return type(self)(**{name: getattr(self, name) for name in self.__match_args__} | changes)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return bool(self._compared(self) == self._compared(other))

    def __hash__(self) -> int:
        return hash(self._compared(self))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._shown)
        return f"{type(self).__qualname__}({fields})"

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)
