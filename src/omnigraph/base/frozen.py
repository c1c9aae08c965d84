"""FrozenMap: a read-only mapping that can be hashed, compared and pickled."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

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
