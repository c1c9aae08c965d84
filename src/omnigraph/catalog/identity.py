"""Identity: where the ids of new types and properties come from.

Room    catalog. Schemas belong to branches, and two branches must never mint the same id for different
        things. So an id is not the next number of a counter kept in the graph: it is the id of the change
        that made it (unique by itself) and a number within that change.
Rule    ids of one change sort in the order of their allocation (`constraints.identity_order`): the order
        of key members depends on it, and so does every derived node id.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TypeAlias

Minter: TypeAlias = Callable[[], str]


class IdMinter:
    """Gives the ids of one change.

    >>> mint = IdMinter("01J")
    >>> mint(), mint()
    ('01J-0001', '01J-0002')
    """

    def __init__(self, change_id: str) -> None:
        self._change_id = change_id
        self._numbers = count(1)

    def __call__(self) -> str:
        """Return the next id."""
        return f"{self._change_id}-{next(self._numbers):04d}"
