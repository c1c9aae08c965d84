"""Identities: which types and properties of three schemas are the same, and which are declared alike.

Room    engine.merge, under schemas.py. Pure. Ids say what is the same: those of the three schemas, those that
        earlier merges unified (the aliases in the schemas), and those that this merge unifies.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from omnigraph.catalog import encode
from omnigraph.catalog.build import fresh_column
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.constraints import ENDPOINTS, in_identity_order
from omnigraph.catalog.identity import renumbered
from omnigraph.catalog.model import (
    ID,
    AnyType,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    StoredType,
    TableType,
)

Form = tuple[Any, Any]


class Identities:
    """Groups of ids that mean one thing; each group goes by the name of one of its ids."""

    def __init__(self, *catalogs: Catalog) -> None:
        self._group: dict[str, str] = {}
        self._members: dict[str, set[str]] = {}
        self._types = {declared.id for catalog in catalogs for declared in catalog.types}
        for catalog in catalogs:
            for declared in catalog.types:
                self.join(*declared.ids)
                for member in properties_of(declared):
                    self.join(*member.ids)

    def of(self, identity: str) -> str:
        """Return the group of an id."""
        return self._group.get(identity, identity)

    def join(self, first: str, *others: str) -> None:
        """Take some ids for the same thing."""
        group = self.of(first)
        members = self._members.setdefault(group, {group})
        for other in others:
            joined = self._members.pop(self.of(other), {other}) if self.of(other) != group else set()
            members |= joined
        for member in members:
            self._group[member] = group

    def others(self, identity: str) -> tuple[str, ...]:
        """Return the further ids of the thing that an id stands for."""
        return in_identity_order(self._members.get(self.of(identity), {identity}) - {identity})

    def by_group(self, catalog: Catalog) -> dict[str, AnyType]:
        """Return the types of a schema by what they are."""
        return {self.of(declared.id): declared for declared in catalog.types}

    def members(self, declared: AnyType | None) -> dict[str, Property]:
        """Return the stored properties of a type by what they are."""
        return {self.of(member.id): member for member in properties_of(declared)}

    def shared_twice(self, catalog: Catalog) -> list[str]:
        """Return the names of types in one schema that another holds to be one, or with such properties."""
        seen: dict[str, str] = {}
        names: list[str] = []
        for declared in catalog.types:
            if (other := seen.setdefault(self.of(declared.id), declared.name)) != declared.name:
                names += [other, declared.name]
            if len(self.members(declared)) != len(properties_of(declared)):
                names.append(declared.name)
        return names

    def declaration(self, declared: AnyType) -> Any:
        """Return what a type declares: properties by name, other types by what they are."""
        groups = {identity: self.of(identity) for identity in self._types}
        match declared:
            case NodeType():
                # The order of key members is part of every id that derives from them.
                key = [declared.name_of(member) for member in declared.key]
                return {**encode.canonical_node(declared, groups), "key": key}
            case EdgeType():
                return encode.canonical_edge(declared, groups)
            case InterfaceType():
                return encode.canonical_interface(declared)

    def form(self, declared: AnyType | None) -> Form | None:
        """Return what a type declares, and which property has which name."""
        if declared is None:
            return None
        return self.declaration(declared), {m.name: self.of(m.id) for m in properties_of(declared)}


def properties_of(declared: AnyType | None) -> tuple[Property, ...]:
    """Return the properties that have columns, which those of an interface have not."""
    return declared.properties if isinstance(declared, NodeType | EdgeType) else ()


def composed(
    ids: Identities, declared: TableType, ground: TableType, other: TableType, chosen: dict[str, str]
) -> TableType:
    """Return a declaration as a type that goes on with the table of `ground`; `chosen` is group by name.

    A property that only the other side has gets a column that the table never had, and so does one whose
    stored type is not the declared one.
    """
    taken = {ID, *ENDPOINTS, *_columns(ground)}
    here, there = ids.members(ground), ids.members(other)
    properties: list[Property] = []
    renamed = {declared.id: ground.id}
    for member in declared.properties:
        mine, theirs = here.get(chosen[member.name]), there.get(chosen[member.name])
        renamed[member.id] = identity = (mine or theirs or member).id
        column = _column(member, mine, theirs, taken)
        properties.append(replace(member, column=column, aliases=ids.others(identity)))
    once = _columns(ground) | (_columns(other) if other.id == ground.id else set())
    placed = replace(
        declared,
        properties=tuple(properties),
        retired_columns=tuple(sorted(once - {one.column for one in properties})),
        aliases=ids.others(ground.id),
    )
    return renumbered(placed, renamed)


def _column(member: Property, mine: Property | None, theirs: Property | None, taken: set[str]) -> str:
    if mine is not None and mine.type.arrow == member.type.arrow:
        return mine.column
    if theirs is not None and theirs.type.arrow == member.type.arrow and theirs.column not in taken:
        taken.add(theirs.column)
        return theirs.column
    return fresh_column(member.name, taken)


def _columns(declared: StoredType) -> set[str]:
    return {member.column for member in declared.properties} | set(declared.retired_columns)
