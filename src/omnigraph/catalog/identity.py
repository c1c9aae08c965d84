"""Identity: where the ids of new types and properties come from, and types under other ids.

Schemas belong to branches, and two branches must never mint the same id for different things. So an id is not
the next number of a counter kept in the graph: it is the id of the change that made it (unique by itself) and
a number within that change.

Ids of one change sort in the order of their allocation (`identity_order` in model.py): the order of key
members depends on it, and so does every derived node id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, TypeAlias, TypeVar

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.encode import in_stored_order
from omnigraph.catalog.model import (
    AnyType,
    Check,
    Constraint,
    EdgeType,
    Index,
    NodeType,
    Property,
    Range,
    TableType,
    Unique,
    in_identity_order,
    in_key_order,
)

Minter: TypeAlias = Callable[[], str]
T = TypeVar("T", bound=AnyType)
S = TypeVar("S", bound=TableType)


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


def renumbered(declared: T, ids: Mapping[str, str]) -> T:
    """Return a type with other ids for itself, its properties and the types it names, where `ids` has one."""
    changed = replace(declared, id=ids.get(declared.id, declared.id))
    return _table(changed, ids) if isinstance(changed, NodeType | EdgeType) else changed


def under_ids_of(catalog: Catalog, other: Catalog) -> Catalog:
    """Return a schema in which everything that merges unified has the id that another schema has for it."""
    ids = {}
    for declared in catalog.types:
        known = other.same_type(declared)
        ids[declared.id] = declared.id if known is None else known.id
        if isinstance(declared, NodeType | EdgeType) and isinstance(known, NodeType | EdgeType):
            same = ((p, known.same_property(p)) for p in declared.properties)
            ids |= {p.id: there.id for p, there in same if there is not None}
    return replace(
        catalog,
        interfaces=tuple(renumbered(declared, ids) for declared in catalog.interfaces),
        nodes=tuple(renumbered(declared, ids) for declared in catalog.nodes),
        edges=tuple(renumbered(declared, ids) for declared in catalog.edges),
    )


def _table(declared: S, ids: Mapping[str, str]) -> S:
    changed: dict[str, Any] = {
        "properties": tuple(_property(p, ids) for p in declared.properties),
        "constraints": in_stored_order(_constraint(c, ids) for c in declared.constraints),
    }
    if isinstance(declared, EdgeType):
        changed |= {
            end: ids.get(getattr(declared, end), getattr(declared, end)) for end in ("source", "target")
        }
    changed["key"] = in_key_order(ids.get(p, p) for p in declared.key)
    if isinstance(declared, NodeType):
        changed["implements"] = in_identity_order(ids.get(i, i) for i in declared.implements)
    return replace(declared, **changed)


def _property(declared: Property, ids: Mapping[str, str]) -> Property:
    embed = declared.embed
    if embed is not None:
        embed = replace(embed, source=ids.get(embed.source, embed.source))
    return replace(declared, id=ids.get(declared.id, declared.id), embed=embed)


def _constraint(constraint: Constraint, ids: Mapping[str, str]) -> Constraint:
    match constraint:
        case Unique(members) | Index(members):
            return type(constraint)(in_identity_order(ids.get(member, member) for member in members))
        case Range(member) | Check(member):
            return replace(constraint, property=ids.get(member, member))
