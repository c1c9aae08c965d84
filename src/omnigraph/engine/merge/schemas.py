"""Schemas: the schema of a merge, from the base's and the two sides'.

Room    engine.merge. Types are paired by identity. Where one side left a type alone, it is as the other made
        it: changed, renamed, new or dropped. What both changed differently is a conflict by name.
Gives   the merged catalog, and what happens to tables besides their rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.base.ids import new_id
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import IdMinter
from omnigraph.catalog.model import AnyType, EdgeType, InterfaceType, NodeType, TypeKind
from omnigraph.catalog.resolve import resolve_text
from omnigraph.engine.merge.conflicts import SchemaConflict
from omnigraph.language.diagnostics import Source, SourceError
from omnigraph.language.schema.parser import parse
from omnigraph.language.schema.printer import print_schema
from omnigraph.language.schema.tree import Declaration, Edge, Interface, Node, Schema
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.transaction import Adopted

_KINDS: dict[type, TypeKind] = {
    Interface: TypeKind.INTERFACE,
    Node: TypeKind.NODE,
    Edge: TypeKind.EDGE,
}


@dataclass(frozen=True)
class MergedSchema:
    """The merged catalog."""

    catalog: Catalog

    @property
    def text(self) -> bytes:
        """The catalog as it is stored."""
        return self.catalog.to_json()

    def renames(self, pins: Mapping[str, Pin], adopted: Mapping[str, Adopted]) -> dict[str, str]:
        """Return the tables of the target that get another name."""
        names = {t.table_id: t.name for t in self.catalog.tables}
        taken = {table: one.pin for table, one in adopted.items()}
        return {
            table: names[table]
            for table, pin in {**pins, **taken}.items()
            if table in names and pin.name != names[table]
        }

    def dropped(self, pins: Mapping[str, Pin]) -> frozenset[str]:
        """Return the tables of the target that go."""
        return frozenset(pins) - {t.table_id for t in self.catalog.tables}


def merge_schemas(base: Catalog, ours: Catalog, theirs: Catalog) -> MergedSchema:
    """Merge three ways, or refuse with the names of the types that do not go together."""
    if ours.identity == theirs.identity or base.identity == theirs.identity:
        return MergedSchema(ours)
    if base.identity == ours.identity:
        return MergedSchema(theirs)
    before, mine, other = (_types(catalog) for catalog in (base, ours, theirs))
    kept: list[tuple[AnyType, Catalog]] = []  # with the schema that has it as it is
    conflicts: list[str] = []
    for identity in sorted({*before, *mine, *other}):
        old, left, right = before.get(identity), mine.get(identity), other.get(identity)
        chosen, origin = (left, ours) if left == right or right == old else (right, theirs)
        if old not in (left, right) and left != right:
            conflicts.append((left or right or old).name)  # type: ignore[union-attr]
        if chosen is not None:
            kept.append((chosen, origin))
    _refuse([*conflicts, *_twice([one for one, _ in kept])])
    types = _sorted([one for one, _ in kept])
    merged = Catalog(
        tuple(t for t in types if isinstance(t, InterfaceType)),
        tuple(t for t in types if isinstance(t, NodeType)),
        tuple(t for t in types if isinstance(t, EdgeType)),
        _text(kept),
    )
    _check_text(merged)
    return MergedSchema(merged)


def _text(kept: list[tuple[AnyType, Catalog]]) -> str:
    """Put the declarations of all types together, as the side has them that the type is taken from."""
    found: list[Declaration] = []
    for one, origin in kept:
        declared = parse(origin.source).schema.declarations
        found += [d for d in declared if d.name.text == one.name and _KINDS[type(d)] is one.kind]
    order = {kind: number for number, kind in enumerate(_KINDS.values())}
    found.sort(key=lambda d: (order[_KINDS[type(d)]], d.name.text))
    return print_schema(Schema(tuple(found), Source("")))


def _check_text(merged: Catalog) -> None:
    """Make sure that the text says what the types say; a name that one side changed may break the other's."""
    try:
        read = resolve_text(merged.source, merged, IdMinter(new_id())).catalog
    except SourceError as error:
        first = error.diagnostics[0]
        raise SchemaConflict(
            f"the two schemas do not go together: {first.message}",
            remedy="Apply the same schema to both branches, then merge",
            types=[],
        ) from error
    _refuse([one.name for identity, one in _types(merged).items() if read.by_id(identity) != one])


def _refuse(conflicts: list[str]) -> None:
    if conflicts:
        names = ", ".join(sorted(set(conflicts)))
        raise SchemaConflict(
            f"both branches changed the schema of {names} in different ways",
            remedy="Apply the same schema to both branches, then merge",
            types=sorted(set(conflicts)),
        )


def _types(catalog: Catalog) -> dict[str, AnyType]:
    every: list[AnyType] = [*catalog.interfaces, *catalog.nodes, *catalog.edges]
    return {t.id: t for t in every}


def _sorted(types: list[Any]) -> list[Any]:
    return sorted(types, key=lambda t: str(t.name))


def _twice(types: list[AnyType]) -> list[str]:
    """Return the names that both sides gave to different new types."""
    seen: set[tuple[str, str]] = set()
    again: list[str] = []
    for one in types:
        key = (one.kind.value, one.name.casefold())
        if key in seen:
            again.append(one.name)
        seen.add(key)
    return again
