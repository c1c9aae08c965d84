"""Resolve: give a checked schema the identities of the accepted one.

    text -> tree -> checked schema -> **catalog**

Decides which declared type or property is which stored one: by name, else by the old name in `@rename_from`,
else it is new. Everything else follows identity. What comes back is the desired catalog, with notes about
hints that did nothing; or `SchemaError` with all that is wrong.

Matching comes first, minting after it and only if all matches are sound: a refused schema uses up no id.
Order of allocation: interfaces, nodes, edges by name, then properties by owner id and name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import assert_never

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import SchemaUnsupported
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.encode import in_stored_order
from omnigraph.catalog.identity import Minter
from omnigraph.catalog.model import (
    ENDPOINTS,
    ID,
    UNLIMITED,
    Annotation,
    AnyType,
    Cardinality,
    Check,
    Constraint,
    EdgeType,
    Embed,
    Index,
    InterfaceProperty,
    InterfaceType,
    NodeType,
    Property,
    Range,
    StoredType,
    TypeKind,
    Unique,
    identity_order,
    in_identity_order,
    in_key_order,
)
from omnigraph.catalog.types import LARGEST_ROW, PropertyType
from omnigraph.language.diagnostics import Diagnostic, Rule, SchemaError, Span, did_you_mean, in_order
from omnigraph.language.literals import DefaultValue, default_value
from omnigraph.language.schema import CheckedSchema, load, rules
from omnigraph.language.schema import tree as ast
from omnigraph.language.schema.check.declarations import ExpandedProperty
from omnigraph.language.syntax import Ident

# -- matching --------------------------------------------------------------------------------------
#
# Which accepted type or property each declaration continues; mints nothing and builds nothing. The same kind
# and name is the same thing, and a hint on it is idle. Otherwise the hint decides. A hint that comes with an
# inherited property speaks to every node that inherits it: where it finds nothing to rename, it is idle.


AnyProperty = Property | InterfaceProperty


@dataclass(frozen=True, slots=True)
class PropertyMatch:
    """A declared property and the accepted one that it continues, if any."""

    declared: ast.PropertySyntax
    accepted: AnyProperty | None

    @property
    def name(self) -> str:
        """The declared name."""
        return self.declared.name.text


@dataclass(frozen=True, slots=True)
class TypeMatch:
    """A declaration, its properties by name, and the accepted type that it continues, if any."""

    declared: ast.DeclarationSyntax
    accepted: AnyType | None
    properties: tuple[PropertyMatch, ...]

    @property
    def name(self) -> str:
        """The declared name."""
        return self.declared.name.text


@dataclass(frozen=True, slots=True)
class Hint:
    """An old name, and where it stands."""

    old: str
    span: Span


@dataclass(frozen=True, slots=True)
class NameClaim:
    """Who continues an accepted declaration; `hint` says that it does so under another name."""

    label: str
    name: Span
    hint: Span | None

    @property
    def span(self) -> Span:
        """Where a second claim is reported: at the hint, since that is what can be wrong."""
        return self.hint or self.name


@dataclass
class TypeMatcher:
    """Matches one schema; `errors` and `notes` hold what it found on the way."""

    checked: CheckedSchema
    accepted: Catalog | None
    errors: list[Diagnostic] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)
    _claimed: dict[str, NameClaim] = field(default_factory=dict)  # by accepted id

    def run(self) -> tuple[TypeMatch, ...]:
        """Match everything: interfaces, nodes, edges, each by name."""
        matches: list[TypeMatch] = []
        for interface in sorted(self.checked.interfaces, key=lambda d: d.name.text):
            matches.append(self._type(interface, (), [ExpandedProperty(p) for p in interface.properties]))
        for node in sorted(self.checked.nodes, key=lambda n: n.node.name.text):
            matches.append(self._type(node.node, node.node.annotations, node.members))
        for edge in sorted(self.checked.edges, key=lambda d: d.name.text):
            matches.append(self._type(edge, edge.annotations, [ExpandedProperty(p) for p in edge.properties]))
        return tuple(matches)

    # -- types ---------------------------------------------------------------------------------------

    def _type(
        self,
        declared: ast.DeclarationSyntax,
        annotations: Sequence[ast.AnnotationSyntax],
        members: Sequence[ExpandedProperty],
    ) -> TypeMatch:
        label = f"{declared.kind} {declared.name.text}"
        hint = _hint(annotations)
        continued = self._continued(declared, label, hint)
        if continued is not None:
            what = f"{continued.kind.value} '{continued.name}'"
            claim = _claim(label, declared.name, continued.name, hint)
            if not self._claim(continued, what, claim):
                return TypeMatch(declared, None, ())  # its properties would all be claimed twice as well
        properties = tuple(
            self._property(declared, member, continued) for member in sorted(members, key=lambda m: m.name)
        )
        return TypeMatch(declared, continued, properties)

    def _continued(self, declared: ast.DeclarationSyntax, label: str, hint: Hint | None) -> AnyType | None:
        same = self._accepted(TypeKind(declared.kind), declared.name.text)
        if same is not None or hint is None:
            if hint is not None:
                self._note_ignored(label, hint)
            return same
        if self.accepted is None:
            self._note_inert(label, hint)
            return None
        old = self._accepted(TypeKind(declared.kind), hint.old)
        if old is not None:
            return old
        if any(self._accepted(kind, hint.old) for kind in TypeKind):
            message = f"{label} cannot rename accepted '{hint.old}' across declaration kinds"
            self._error(rules.RENAME_KIND, message, hint.span)
        else:
            message = f'{label} declares @rename_from("{hint.old}") but no accepted declaration has that name'
            known = self._names(TypeKind(declared.kind))
            suggestion = did_you_mean(hint.old, known) or "remove the hint if the type is new"
            self._error(rules.RENAME_UNKNOWN, message, hint.span, suggestion)
        return None

    def _accepted(self, kind: TypeKind, name: str) -> AnyType | None:
        if self.accepted is None:
            return None
        match kind:
            case TypeKind.INTERFACE:
                return self.accepted.find_interface(name)
            case TypeKind.NODE:
                return self.accepted.find_node(name)
            case TypeKind.EDGE:
                edge = self.accepted.find_edge(name)  # which ignores case; a rename may change only that
                return edge if edge is not None and edge.name == name else None

    def _names(self, kind: TypeKind) -> list[str]:
        return [t.name for t in self._of_kind(kind)]

    def _of_kind(self, kind: TypeKind) -> Sequence[AnyType]:
        if self.accepted is None:
            return ()
        match kind:
            case TypeKind.INTERFACE:
                return self.accepted.interfaces
            case TypeKind.NODE:
                return self.accepted.nodes
            case TypeKind.EDGE:
                return self.accepted.edges

    # -- properties ----------------------------------------------------------------------------------

    def _property(
        self, owner: ast.DeclarationSyntax, member: ExpandedProperty, continued: AnyType | None
    ) -> PropertyMatch:
        declared = member.declared
        label = f"property {owner.name.text}.{member.name}"
        accepted = self._continued_property(member, label, continued)
        if accepted is not None and continued is not None:
            claim = _claim(label, declared.name, accepted.name, _hint(declared.annotations))
            self._claim(accepted, f"property '{continued.name}.{accepted.name}'", claim)
        return PropertyMatch(declared, accepted)

    def _continued_property(
        self, member: ExpandedProperty, label: str, continued: AnyType | None
    ) -> AnyProperty | None:
        hint = _hint(member.declared.annotations)
        same = None if continued is None else continued.find(member.name)
        if same is not None or hint is None:
            if hint is not None:
                self._note_ignored(label, hint)
            return same
        old = None if continued is None else continued.find(hint.old)
        if old is not None:
            return old
        if self.accepted is None or member.interface is not None:
            self._note_inert(label, hint)
        elif continued is None:
            message = f'{label}: @rename_from("{hint.old}") cannot import property identity into a new type'
            self._error(rules.RENAME_NEW_TYPE, message, hint.span, "remove the hint")
        elif self._lives_elsewhere(hint.old):
            message = (
                f'{label} declares @rename_from("{hint.old}"), which another type has: '
                "property moves across stable owners are not supported"
            )
            self._error(rules.RENAME_MOVE, message, hint.span)
        else:
            message = (
                f'{label} declares @rename_from("{hint.old}") but '
                "no accepted property with that name exists under the stable owner"
            )
            suggestion = did_you_mean(hint.old, (p.name for p in continued.properties))
            self._error(rules.RENAME_PROPERTY, message, hint.span, suggestion)
        return None

    def _lives_elsewhere(self, name: str) -> bool:
        every = (t for kind in TypeKind for t in self._of_kind(kind))
        return any(t.find(name) is not None for t in every)

    # -- findings ------------------------------------------------------------------------------------

    def _claim(self, accepted: AnyType | AnyProperty, what: str, claim: NameClaim) -> bool:
        """Say whether this is the only claim so far; a second one is reported."""
        other = self._claimed.setdefault(accepted.id, claim)
        if other is claim:
            return True
        wrong = claim if claim.hint is not None else other
        message = (
            f"accepted {what} is consumed by more than one desired declaration: {other.label}, {claim.label}"
        )
        self._error(rules.RENAME_TWICE, message, wrong.span, "only one of them can keep the data")
        return False

    def _note_ignored(self, label: str, hint: Hint) -> None:
        message = f'{label} exists already; @rename_from("{hint.old}") is ignored'
        self.notes.append(Diagnostic(rules.IGNORED_HINT, message, hint.span, "the hint can be removed"))

    def _note_inert(self, label: str, hint: Hint) -> None:
        message = f'{label}: there is nothing that @rename_from("{hint.old}") could rename'
        self.notes.append(Diagnostic(rules.INERT_HINT, message, hint.span, "the hint can be removed"))

    def _error(self, rule: Rule, message: str, span: Span, suggestion: str | None = None) -> None:
        self.errors.append(Diagnostic(rule, message, span, suggestion))


def _hint(annotations: Sequence[ast.AnnotationSyntax]) -> Hint | None:
    for annotation in annotations:
        if annotation.name.text == "rename_from" and annotation.argument is not None:
            return Hint(annotation.argument.text, annotation.argument.span)
    return None


def _claim(label: str, name: Ident, accepted: str, hint: Hint | None) -> NameClaim:
    renamed = hint is not None and accepted != name.text
    return NameClaim(label, name.span, hint.span if hint is not None and renamed else None)


# -- minting and building --------------------------------------------------------------------------
#
# Every match is sound by now; nothing here can be refused. A property keeps its column for life, except when
# its stored type changes: then it gets a fresh one and the values are rewritten into it. Columns that a table
# once had are never given out again.


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
            case ast.InterfaceSyntax():
                interfaces.append(_interface(identity, match, ids))
            case ast.NodeSyntax():
                implements = in_identity_order(types["interface", i.text] for i in declared.implements)
                nodes.append(_Table(identity, match, ids).node(declared, implements))
            case ast.EdgeSyntax():
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

    def node(self, declared: ast.NodeSyntax, implements: tuple[str, ...]) -> NodeType:
        properties, retired = self._properties(frozenset({ID}))
        inline = [self.ids[p.name] for p in self.match.properties if p.declared.annotated("key")]
        return NodeType(
            id=self.identity,
            name=self.match.name,
            annotations=_annotations(declared.annotations, _NOT_METADATA),
            properties=properties,
            constraints=self._constraints(declared.constraints),
            retired_columns=retired,
            aliases=() if self.match.accepted is None else self.match.accepted.aliases,
            key=in_key_order((*inline, *self._body_key(declared.constraints))),
            implements=implements,
        )

    def edge(self, declared: ast.EdgeSyntax, source: str, target: str) -> EdgeType:
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
            key=in_key_order(self._body_key(declared.constraints)),
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

    def _embed(self, declared: ast.PropertySyntax) -> Embed | None:
        for annotation in declared.annotated("embed"):
            model = next((k.value.text for k in annotation.keywords if k.name.text == "model"), None)
            return Embed(self.ids[annotation.value or ""], model)
        return None

    # -- constraints ---------------------------------------------------------------------------------

    def _constraints(self, body: Sequence[ast.ConstraintSyntax]) -> tuple[Constraint, ...]:
        constraints: set[Constraint] = set()
        for match in self.match.properties:
            if match.declared.annotated("unique"):
                constraints.add(Unique((self.ids[match.name],)))
            if match.declared.annotated("index"):
                constraints.add(Index((self.ids[match.name],)))
        for constraint in body:
            constraints.update(self._constraint(constraint))
        return in_stored_order(constraints)

    def _constraint(self, constraint: ast.ConstraintSyntax) -> list[Constraint]:
        match constraint:
            case ast.ColumnsConstraintSyntax("key"):
                return []
            case ast.ColumnsConstraintSyntax(kind, columns):
                members = in_identity_order(self._member(c) for c in columns)
                return [Unique(members) if kind == "unique" else Index(members)]
            case ast.RangeConstraintSyntax(column, low, high):
                return [Range(self._member(column), *(None if b is None else float(b) for b in (low, high)))]
            case ast.CheckConstraintSyntax(column, pattern):
                return [Check(self._member(column), pattern.text)]
            case _:
                assert_never(constraint)

    def _body_key(self, body: Sequence[ast.ConstraintSyntax]) -> list[str]:
        return [self._member(column) for c in body if c.kind == "key" for column in _columns(c)]

    def _member(self, column: Ident) -> str:
        # An endpoint is no property, and on an edge no property can have its name.
        return self.ids.get(column.text, column.text)


def _columns(constraint: ast.ConstraintSyntax) -> tuple[Ident, ...]:
    return constraint.columns if isinstance(constraint, ast.ColumnsConstraintSyntax) else ()


def fresh_column(name: str, used: set[str]) -> str:
    """Return `name`, or the first of `name_2`, `name_3`, ... that no property of the table ever had."""
    column, number = name, 1
    while column in used:
        number += 1
        column = f"{name}_{number}"
    used.add(column)
    return column


def _default(declared: ast.PropertySyntax) -> DefaultValue | None:
    for annotation in declared.annotated("default"):
        if annotation.argument is not None:
            return default_value(annotation.argument, declared.type)
    return None


def _annotations(
    annotations: Sequence[ast.AnnotationSyntax], left_out: frozenset[str]
) -> tuple[Annotation, ...]:
    """Return annotations sorted, each once."""
    distinct = {
        Annotation(a.name.text, a.value, tuple(sorted((k.name.text, k.value.text) for k in a.keywords)))
        for a in annotations
        if a.name.text not in left_out
    }
    return tuple(sorted(distinct, key=lambda a: (a.name, a.value is not None, a.value or "", a.keywords)))


# -- the way through -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resolution:
    """The desired catalog, and advice about the text."""

    catalog: Catalog
    notes: tuple[Diagnostic, ...] = ()


def resolve(checked: CheckedSchema, accepted: Catalog | None, mint: Minter) -> Resolution:
    """Return the catalog that the schema asks for."""
    matcher = TypeMatcher(checked, accepted)
    matches = matcher.run()
    if matcher.errors:
        raise SchemaError(checked.source, matcher.errors)
    catalog = build(matches, checked.source.text, mint)
    for table in catalog.tables:
        if table.fixed_bytes > LARGEST_ROW:
            raise SchemaUnsupported(
                f"no row of {table.name} can be stored: its vectors take {table.fixed_bytes} bytes in each, "
                f"and a row has at most {LARGEST_ROW}",
                remedy="Choose smaller dimensions",
                type_name=table.name,
                limit=LARGEST_ROW,
            )
    return Resolution(catalog, in_order(matcher.notes))


def resolve_text(
    text: str | bytes, accepted: Catalog | None, mint: Minter, *, file: str = "schema.pg"
) -> Resolution:
    """Parse, check and resolve a schema text."""
    return resolve(load(text, file=file), accepted, mint)
