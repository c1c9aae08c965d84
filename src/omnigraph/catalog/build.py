"""Build: mint what is new and put the catalog together.

Room    catalog, inside resolve.py. Every match is sound by now; nothing here can be refused.
Rule    a property keeps its column for life, except when its stored type changes: then it gets a fresh one
        and the values are rewritten into it. Columns that a table once had are never given out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.constraints import (
    ENDPOINTS,
    UNLIMITED,
    Cardinality,
    Check,
    Constraint,
    Index,
    Range,
    Unique,
    identity_order,
    in_identity_order,
)
from omnigraph.catalog.encode import in_stored_order
from omnigraph.catalog.identity import Minter
from omnigraph.catalog.match import PropertyMatch, TypeMatch
from omnigraph.catalog.model import (
    ID,
    Annotation,
    EdgeType,
    Embed,
    InterfaceProperty,
    InterfaceType,
    NodeType,
    Property,
    StoredType,
)
from omnigraph.catalog.types import PropertyType
from omnigraph.language.schema import tree as ast
from omnigraph.language.schema.literals import DefaultValue, default_value

# Kept in their own fields, or not kept at all; on an interface the inline constraints are all there is.
_NOT_METADATA = frozenset({"rename_from", "key", "unique", "index", "embed"})
_NOT_ON_INTERFACE = frozenset({"rename_from"})


def build(matches: Sequence[TypeMatch], source: str, mint: Minter) -> Catalog:
    """Return the catalog of all matches; they come as interfaces, nodes, edges, each by name."""
    identities = [mint() if match.accepted is None else match.accepted.id for match in matches]
    owners = sorted(zip(identities, matches, strict=True), key=lambda pair: identity_order(pair[0]))
    properties = {identity: _mint_properties(match, mint) for identity, match in owners}
    types = {(m.declared.kind, m.name): i for i, m in zip(identities, matches, strict=True)}

    interfaces: list[InterfaceType] = []
    nodes: list[NodeType] = []
    edges: list[EdgeType] = []
    for identity, match in zip(identities, matches, strict=True):
        ids = properties[identity]
        declared = match.declared
        match declared:
            case ast.Interface():
                interfaces.append(_interface(identity, match, ids))
            case ast.Node():
                implements = in_identity_order(types["interface", i.text] for i in declared.implements)
                nodes.append(_Table(identity, match, ids).node(declared, implements))
            case ast.Edge():
                ends = types["node", declared.source.text], types["node", declared.target.text]
                edges.append(_Table(identity, match, ids).edge(declared, *ends))
            case _:
                assert_never(declared)
    return Catalog(tuple(interfaces), tuple(nodes), tuple(edges), source)


def _mint_properties(match: TypeMatch, mint: Minter) -> dict[str, str]:
    """Return property name -> id; the matches come by name, which is the order of allocation."""
    return {p.name: mint() if p.accepted is None else p.accepted.id for p in match.properties}


def _interface(identity: str, match: TypeMatch, ids: dict[str, str]) -> InterfaceType:
    properties = tuple(
        InterfaceProperty(
            ids[p.name],
            p.name,
            PropertyType.of(p.declared.type),
            _annotations(p.declared.annotations, _NOT_ON_INTERFACE),
        )
        for p in match.properties
    )
    aliases = () if match.accepted is None else match.accepted.aliases
    return InterfaceType(id=identity, name=match.name, properties=properties, aliases=aliases)


@dataclass(frozen=True, slots=True)
class _Table:
    """Builds one node or edge type."""

    identity: str
    match: TypeMatch
    ids: dict[str, str]

    def node(self, declared: ast.Node, implements: tuple[str, ...]) -> NodeType:
        properties, retired = self._properties(frozenset({ID}))
        inline = [p.name for p in self.match.properties if p.declared.annotated("key")]
        body = [c.text for k in declared.constraints if k.kind == "key" for c in _columns(k)]
        return NodeType(
            id=self.identity,
            name=self.match.name,
            annotations=_annotations(declared.annotations, _NOT_METADATA),
            properties=properties,
            constraints=self._constraints(declared.constraints),
            retired_columns=retired,
            aliases=() if self.match.accepted is None else self.match.accepted.aliases,
            key=in_identity_order(self.ids[name] for name in (*inline, *body)),
            implements=implements,
        )

    def edge(self, declared: ast.Edge, source: str, target: str) -> EdgeType:
        properties, retired = self._properties(frozenset({ID, *ENDPOINTS}))
        card = declared.card
        return EdgeType(
            id=self.identity,
            name=self.match.name,
            annotations=_annotations(declared.annotations, _NOT_METADATA),
            properties=properties,
            constraints=self._constraints(declared.constraints),
            retired_columns=retired,
            aliases=() if self.match.accepted is None else self.match.accepted.aliases,
            source=source,
            target=target,
            card=UNLIMITED if card is None else Cardinality(card.low, card.high),
        )

    # -- properties ----------------------------------------------------------------------------------

    def _properties(self, fixed: frozenset[str]) -> tuple[tuple[Property, ...], tuple[str, ...]]:
        """Return the properties by name, and the columns that no property may have any more."""
        accepted = self.match.accepted
        before: set[str] = set()
        if isinstance(accepted, StoredType):
            before = {p.column for p in accepted.properties} | set(accepted.retired_columns)
        used = before | fixed
        properties = tuple(self._property(p, used) for p in self.match.properties)
        return properties, tuple(sorted(before - {p.column for p in properties}))

    def _property(self, match: PropertyMatch, used: set[str]) -> Property:
        declared = match.declared
        stored_type = PropertyType.of(declared.type)
        kept = isinstance(match.accepted, Property) and match.accepted.type.arrow == stored_type.arrow
        column = match.accepted.column if kept and isinstance(match.accepted, Property) else ""
        return Property(
            self.ids[match.name],
            match.name,
            column or fresh_column(match.name, used),
            stored_type,
            _annotations(declared.annotations, _NOT_METADATA),
            _default(declared),
            self._embed(declared),
            match.accepted.aliases if isinstance(match.accepted, Property) else (),
        )

    def _embed(self, declared: ast.Property) -> Embed | None:
        for annotation in declared.annotated("embed"):
            model = next((k.value.text for k in annotation.keywords if k.name.text == "model"), None)
            return Embed(self.ids[annotation.value or ""], model)
        return None

    # -- constraints ---------------------------------------------------------------------------------

    def _constraints(self, body: Sequence[ast.Constraint]) -> tuple[Constraint, ...]:
        found: set[Constraint] = set()
        for match in self.match.properties:
            if match.declared.annotated("unique"):
                found.add(Unique((self.ids[match.name],)))
            if match.declared.annotated("index"):
                found.add(Index((self.ids[match.name],)))
        for constraint in body:
            found.update(self._constraint(constraint))
        return in_stored_order(found)

    def _constraint(self, constraint: ast.Constraint) -> list[Constraint]:
        match constraint:
            case ast.ColumnsConstraint("key"):
                return []
            case ast.ColumnsConstraint(kind, columns):
                members = in_identity_order(self._member(c) for c in columns)
                return [Unique(members) if kind == "unique" else Index(members)]
            case ast.RangeConstraint(column, low, high):
                return [Range(self._member(column), *(None if b is None else float(b) for b in (low, high)))]
            case ast.CheckConstraint(column, pattern):
                return [Check(self._member(column), pattern.text)]
            case _:
                assert_never(constraint)

    def _member(self, column: ast.Ident) -> str:
        # An endpoint is no property, and on an edge no property can have its name.
        return self.ids.get(column.text, column.text)


def _columns(constraint: ast.Constraint) -> tuple[ast.Ident, ...]:
    return constraint.columns if isinstance(constraint, ast.ColumnsConstraint) else ()


def fresh_column(name: str, used: set[str]) -> str:
    """Return `name`, or the first of `name_2`, `name_3`, ... that no property of the table ever had."""
    column, number = name, 1
    while column in used:
        number += 1
        column = f"{name}_{number}"
    used.add(column)
    return column


def _default(declared: ast.Property) -> DefaultValue | None:
    for annotation in declared.annotated("default"):
        if annotation.argument is not None:
            return default_value(annotation.argument, declared.type)
    return None


def _annotations(annotations: Sequence[ast.Annotation], left_out: frozenset[str]) -> tuple[Annotation, ...]:
    """Return annotations sorted, each once."""
    found = {
        Annotation(a.name.text, a.value, tuple(sorted((k.name.text, k.value.text) for k in a.keywords)))
        for a in annotations
        if a.name.text not in left_out
    }
    return tuple(sorted(found, key=lambda a: (a.name, a.value is not None, a.value or "", a.keywords)))
