"""FrozenMap: a read-only mapping that can be hashed, compared and pickled."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class FrozenMap(Mapping[K, V]):
    """An immutable mapping; iteration follows insertion.

    >>> FrozenMap({"a": 1})["a"]
    1
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        self._items: dict[K, V] = dict(items or {})

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    # What Mapping would do in Python, one call for each key; every write goes through several of these maps.

    def __contains__(self, key: object) -> bool:
        return key in self._items

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...

    def get(self, key: K, /, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        return self._items.get(key, default)

    def keys(self) -> KeysView[K]:
        """Return the keys."""
        return self._items.keys()

    def values(self) -> ValuesView[V]:
        """Return the values."""
        return self._items.values()

    def items(self) -> ItemsView[K, V]:
        """Return keys and values."""
        return self._items.items()

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return f"FrozenMap({self._items!r})"
