"""Indexes wanted: which index serves which column of a type.

Room    execution.search. Pure: what every table is looked up by, and the catalog's intents.
"""

from __future__ import annotations

from typing import assert_never

from omnigraph.catalog.constraints import ENDPOINTS
from omnigraph.catalog.model import ID, EdgeType, TableType
from omnigraph.catalog.model import IndexKind as Intended
from omnigraph.storage.tables.index_specs import IndexKind, IndexSpec


def wanted(declared: TableType) -> tuple[IndexSpec, ...]:
    """Return the indexes that a type's table should have: ids and ends of edges first, then as declared."""
    keys = (ID, *ENDPOINTS) if isinstance(declared, EdgeType) else (ID,)
    intents = {intent.column: _kind(intent.kind) for intent in declared.index_intents}
    looked_up = tuple(IndexSpec(column, IndexKind.BTREE) for column in keys)
    return looked_up + tuple(IndexSpec(column, kind) for column, kind in sorted(intents.items()))


def _kind(intended: Intended) -> IndexKind:
    match intended:
        case Intended.ORDERED:
            return IndexKind.BTREE
        case Intended.FULL_TEXT:
            return IndexKind.INVERTED
        case Intended.VECTOR:
            return IndexKind.VECTOR
        case _:
            assert_never(intended)
