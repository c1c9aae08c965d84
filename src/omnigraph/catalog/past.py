"""Past: a state of the graph under the names of today, and types that two states can be compared in.

The one rule for every read of a state: **names are those of today** (of the branch that has the state),
**columns and types are those of the state's own schema**. Only a comparison of two states uses other types:
for each property the wider one, which holds the values of both.

Types and properties are found by identity. A name that was declared twice, on two branches or again after a
drop, is two properties; one that the state does not have is null in each of its rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import renumbered
from omnigraph.catalog.model import AnyType, EdgeType, InterfaceType, NodeType, Property, TableType
from omnigraph.catalog.types import PropertyType

T = TypeVar("T", bound=NodeType | EdgeType)
_LATER = "?"  # in the column of a property that came later; no name has it


def past_catalog(now: Catalog, then: Catalog) -> Catalog:
    """Return what `now` declares as a state with the schema `then` has it.

    A property that came later has a column that no table has, so that it cannot be taken for another one
    of its name.
    """
    ids = {declared.id: _id_then(declared, then) for declared in now.types}
    return replace(
        now,
        interfaces=tuple(renumbered(_interface(declared, then), ids) for declared in now.interfaces),
        nodes=tuple(renumbered(_past_type(declared, then), ids) for declared in now.nodes),
        edges=tuple(renumbered(_past_type(declared, then), ids) for declared in now.edges),
    )


def _past_type(declared: T, then: Catalog) -> T:
    """Return one type with the columns and types that a state with the schema `then` has."""
    known = _properties(declared, then)
    return replace(declared, properties=tuple(_past(p, known.get(p.id)) for p in declared.properties))


def _id_then(declared: AnyType, then: Catalog) -> str:
    known = then.same_type(declared)
    return declared.id if known is None else known.id


def stored_column(declared: Property) -> str | None:
    """Return the column of a property of the past; None if it came later."""
    return None if _LATER in declared.column else declared.column


def columns_then(declared: TableType, then: Catalog) -> dict[str, str]:
    """Return where a schema keeps the columns that another one declares: column there -> here.

    A change of type makes a new column, so a property is found by its identity. Those that the schema does
    not have are left out.
    """
    known = _properties(declared, then)
    mine = {p.column: p.id for p in declared.properties}
    fixed = {name: name for name in declared.stored_schema.names if name not in mine}
    return fixed | {column: known[identity].column for column, identity in mine.items() if identity in known}


def types_then(declared: T, then: Catalog) -> T:
    """Return a type with its own columns, and the types of another schema."""
    known = _properties(declared, then)
    return replace(
        declared,
        properties=tuple(
            replace(p, type=known[p.id].type) if p.id in known else p for p in declared.properties
        ),
    )


def compared_type(declared: T, schemas: Iterable[Catalog]) -> T:
    """Return a type with properties so wide that they hold the values of all the schemas."""
    known = [_properties(declared, then) for then in schemas]
    return replace(
        declared,
        properties=tuple(
            replace(p, type=_widest(p.type, [there[p.id].type for there in known if p.id in there]))
            for p in declared.properties
        ),
    )


def _properties(declared: TableType, then: Catalog) -> dict[str, Property]:
    """Return the properties of a type that a schema has, by the ids that they are declared with."""
    mine = then.same_table(declared)
    pairs = () if mine is None else ((p, mine.same_property(p)) for p in declared.properties)
    return {p.id: known for p, known in pairs if known is not None}


def _past(now: Property, then: Property | None) -> Property:
    if then is None:
        return replace(now, column=f"{now.column}{_LATER}{now.id}", type=replace(now.type, nullable=True))
    embed = now.embed
    if embed is not None and then.embed is not None:
        embed = replace(embed, model=then.embed.model)
    return replace(now, column=then.column, type=_typed(now.type, then.type), embed=embed)


def _interface(now: InterfaceType, then: Catalog) -> InterfaceType:
    known = then.same_type(now)
    types = {p.id: p.type for p in known.properties} if isinstance(known, InterfaceType) else {}
    return replace(
        now,
        properties=tuple(replace(p, type=_typed(p.type, types.get(p.id, p.type))) for p in now.properties),
    )


def _typed(now: PropertyType, then: PropertyType) -> PropertyType:
    """Return the type of then; a query may still ask for the values that an enum got since."""
    return then if now.enum_values is None or then.enum_values is None else then.extended(now.enum_values)


def _widest(first: PropertyType, others: Iterable[PropertyType]) -> PropertyType:
    widest = first
    for other in others:
        if widest.widens_to(other):
            widest = other
    return widest
