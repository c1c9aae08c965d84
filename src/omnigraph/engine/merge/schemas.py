"""Schemas: the schema of a merge, from the base's and the two sides'.

Types and properties are paired by identity, never by name; docs/merging.md has the table of what becomes of
them. Two that both sides made under one name, with equal declarations, are unified: one goes on, and has the
other's id among its aliases, by which later merges know both.

`merge_schemas` gives the merged catalog, what was unified, and what goes because one side dropped it. That is
only right if the other side did not write to it meanwhile; write.py, which has the rows, looks at that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from omnigraph.base.dataclass import JsonFields, dataclass
from omnigraph.base.ids import new_id
from omnigraph.catalog import encode
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import IdMinter, renumbered
from omnigraph.catalog.model import (
    ENDPOINTS,
    ID,
    AnyType,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    StoredType,
    TableType,
    TypeKind,
    in_identity_order,
)
from omnigraph.catalog.resolve import fresh_column, resolve_text
from omnigraph.engine.merge.conflicts import SchemaConflict
from omnigraph.language.diagnostics import SourceError, SourceText
from omnigraph.language.schema.parser import parse
from omnigraph.language.schema.printer import print_schema
from omnigraph.language.schema.tree import (
    DeclarationSyntax,
    EdgeSyntax,
    InterfaceSyntax,
    NodeSyntax,
    SchemaSyntax,
)
from omnigraph.language.syntax import Ident
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.transaction import Adopted

# -- what is the same ------------------------------------------------------------------------------
#
# Ids say what is the same: those of the three schemas, those that earlier merges unified (the aliases in the
# schemas), and those that this merge unifies. Here also: which types are declared alike.


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
        retired_columns=tuple(sorted(once - {member.column for member in properties})),
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


# -- the merge -------------------------------------------------------------------------------------


SideName = Literal["ours", "theirs"]
_KINDS: dict[type, TypeKind] = {
    InterfaceSyntax: TypeKind.INTERFACE,
    NodeSyntax: TypeKind.NODE,
    EdgeSyntax: TypeKind.EDGE,
}
DECLARE_ALIKE = "Apply one schema to both branches, or rename one of the two, then merge"
DROP_BOTH = "Drop it on the other branch too, and make it again there if the first branch did, then merge"


@dataclass(frozen=True, slots=True)
class Unified(JsonFields):
    """Two types, or two properties, that are one from now on."""

    json_names: ClassVar = {"type_name": "type", "property_name": "property"}

    kind: str
    type_name: str
    property_name: str | None
    kept: str  # the id that goes on
    other: str


@dataclass(frozen=True)
class Gone:
    """A type or property of the base that one side dropped, as the other side still has it."""

    side: SideName  # who still has it
    declared: TableType
    member: Property | None = None

    @property
    def name(self) -> str:
        """What it is called by the side that has it."""
        return self.declared.name if self.member is None else f"{self.declared.name}.{self.member.name}"


@dataclass(frozen=True)
class MergedSchema:
    """The merged catalog, and how it came about."""

    catalog: Catalog
    unified: tuple[Unified, ...] = ()
    gone: tuple[Gone, ...] = ()

    @property
    def text(self) -> bytes:
        """The catalog as it is stored."""
        return self.catalog.to_json()

    def renames(self, pins: Mapping[str, Pin], adopted: Mapping[str, Adopted]) -> dict[str, str]:
        """Return the tables of the target that get another name."""
        names = {t.table_id: t.name for t in self.catalog.tables}
        taken = {table: adoption.pin for table, adoption in adopted.items()}
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
    if ours.identity == theirs.identity:
        return MergedSchema(ours)
    return _SchemaMerge(base, ours, theirs).run()


def refuse_dropped(names: list[str]) -> None:
    """Refuse to drop what the other side changed."""
    if names:
        listed = ", ".join(sorted(set(names)))
        raise SchemaConflict(
            f"one branch dropped {listed}, and the other changed it meanwhile",
            remedy=DROP_BOTH,
            types=sorted({name.partition(".")[0] for name in names}),
        )


def _refuse_different(names: list[str]) -> None:
    if names:
        listed = ", ".join(sorted(set(names)))
        raise SchemaConflict(
            f"the branches do not agree on the schema of {listed}",
            remedy=DECLARE_ALIKE,
            types=sorted(set(names)),
        )


class _SchemaMerge:
    """One merge of three schemas."""

    def __init__(self, base: Catalog, ours: Catalog, theirs: Catalog) -> None:
        self._sides: dict[SideName, Catalog] = {"ours": ours, "theirs": theirs}
        self._ids = ids = Identities(base, ours, theirs)
        _refuse_different([name for catalog in (base, ours, theirs) for name in ids.shared_twice(catalog)])
        self._base = ids.by_group(base)
        self._pairs: list[tuple[str, str | None, str, str]] = []  # type, property, id of ours, of theirs
        self._kept: list[tuple[AnyType, Catalog]] = []  # with the schema whose text declares it
        self._gone: list[Gone] = []
        self._dropped: list[str] = []
        self._remade: list[str] = []
        self._different: list[str] = []

    def run(self) -> MergedSchema:
        """Merge everything, and refuse everything that cannot be merged."""
        for kind in (InterfaceType, NodeType, EdgeType):  # edges refer to nodes, nodes to interfaces
            self._unify_new(kind)
        refuse_dropped(self._remade)
        ours, theirs = self._by_group()
        for group in ours.keys() & theirs.keys():
            self._unify_members(self._base.get(group), ours[group], theirs[group])
        for group in sorted({*ours, *theirs}):
            self._decide(self._base.get(group), ours.get(group), theirs.get(group))
        _refuse_different([*self._different, *_twice([declared for declared, _ in self._kept])])
        refuse_dropped([*self._dropped, *self._ends_gone()])
        merged = self._catalog()
        return MergedSchema(merged, tuple(self._unified(merged)), tuple(self._gone))

    def _by_group(self) -> tuple[dict[str, AnyType], dict[str, AnyType]]:
        return self._ids.by_group(self._sides["ours"]), self._ids.by_group(self._sides["theirs"])

    # -- unifying ----------------------------------------------------------------------------------

    def _unify_new(self, kind: type[AnyType]) -> None:
        """Unify the types of one name that both sides made."""
        ours, theirs = self._by_group()
        new_here = {
            _spelling(declared): declared
            for group, declared in ours.items()
            if isinstance(declared, kind) and group not in self._base and group not in theirs
        }
        for group, other in theirs.items():
            mine = new_here.get(_spelling(other))
            if mine is None or group in self._base or group in ours:
                continue
            if self._ids.declaration(mine) != self._ids.declaration(other):
                self._different.append(other.name)
                self._remade += self._remade_ends(mine, other)
                continue
            self._join(mine.name, None, mine.id, other.id)
            named = {member.name: member for member in properties_of(other)}
            for member in properties_of(mine):
                self._ids.join(member.id, named[member.name].id)

    def _remade_ends(self, mine: AnyType, other: AnyType) -> Iterator[str]:
        """Yield the node types that one side made again, under two edge types of one name."""
        if not isinstance(mine, EdgeType) or not isinstance(other, EdgeType):
            return
        ours, theirs = self._by_group()
        for here, there in ((mine.source, other.source), (mine.target, other.target)):
            end_here, end_there = ours[self._ids.of(here)], theirs[self._ids.of(there)]
            kept = [end for end in (here, there) if self._ids.of(end) in self._base]
            if (
                end_here.name == end_there.name
                and len(kept) == 1
                and self._ids.of(kept[0]) not in ours.keys() & theirs
            ):
                yield end_here.name

    def _unify_members(self, old: AnyType | None, mine: AnyType, other: AnyType) -> None:
        """Unify the properties of one name that both sides made, of a type that both declare alike."""
        ids = self._ids
        if ids.declaration(mine) != ids.declaration(other):
            return
        known, here, there = ids.members(old), ids.members(mine), ids.members(other)
        new_there = {m.name: m for group, m in there.items() if group not in known and group not in here}
        for group, member in here.items():
            same = new_there.get(member.name)
            if same is not None and group not in known and group not in there:
                self._join(mine.name, member.name, member.id, same.id)

    def _join(self, type_name: str, property_name: str | None, mine: str, other: str) -> None:
        self._ids.join(mine, other)
        self._pairs.append((type_name, property_name, mine, other))

    def _unified(self, merged: Catalog) -> Iterator[Unified]:
        kept = {declared.id: declared for declared in merged.types}
        members = {m.id: declared for declared in merged.types for m in properties_of(declared)}
        for type_name, property_name, mine, other in self._pairs:
            where = kept if property_name is None else members
            first, second = (mine, other) if mine in where else (other, mine)
            yield Unified(where[first].kind.value, type_name, property_name, first, second)

    # -- deciding ----------------------------------------------------------------------------------

    def _decide(self, old: AnyType | None, mine: AnyType | None, other: AnyType | None) -> None:
        if mine is not None and other is not None:
            self._decide_shared(old, mine, other)
            return
        side: SideName = "theirs" if mine is None else "ours"
        only = mine or other
        assert only is not None
        if old is None:
            self._keep(only, side)
        elif self._ids.form(old) != self._ids.form(only):
            self._dropped.append(only.name)
        elif isinstance(only, NodeType | EdgeType):
            self._gone.append(Gone(side, only))

    def _decide_shared(self, old: AnyType | None, mine: AnyType, other: AnyType) -> None:
        """Decide about a type that both sides have."""
        forms = [self._ids.form(version) for version in (old, mine, other)]
        chosen = None
        if forms[1] == forms[2]:
            side: SideName = "theirs" if mine == old else "ours"
        elif forms[0] in forms[1:]:
            side = "theirs" if forms[0] == forms[1] else "ours"
        else:
            side, chosen = "ours", self._chosen(old, mine, other)
            if chosen is None:
                self._different.append(mine.name)
                return
        declared = mine if side == "ours" else other
        if isinstance(mine, InterfaceType) or isinstance(other, InterfaceType):
            identity = self._identity(old, mine, other)
            self._keep(replace(declared, id=identity, aliases=self._ids.others(identity)), side)
            return
        ground = mine if self._identity(old, mine, other) == mine.id else other
        if mine.id == other.id and side == "theirs":
            ground = other  # both are versions of one table: it goes on with the one that fits
        rest = other if ground is mine else mine
        named = {member.name: self._ids.of(member.id) for member in properties_of(declared)}
        assert isinstance(declared, NodeType | EdgeType)
        self._keep(composed(self._ids, declared, ground, rest, chosen or named), side)
        self._gone += self._members_gone(old, mine, other)

    def _identity(self, old: AnyType | None, mine: AnyType, other: AnyType) -> str:
        """Return the id that goes on: the target's, unless only the source has another than the base."""
        return other.id if old is not None and old.id == mine.id else mine.id

    def _chosen(self, old: AnyType | None, mine: AnyType, other: AnyType) -> dict[str, str] | None:
        """Return which property has which name where both sides changed a type; None if they disagree."""
        ids = self._ids
        if ids.declaration(mine) != ids.declaration(other):
            return None
        known, here, there = ids.members(old), ids.members(mine), ids.members(other)
        chosen: dict[str, str] = {}
        for group in {*here, *there}:
            if group in known and not (group in here and group in there):
                continue  # one side dropped it
            name = _name(known.get(group), here.get(group), there.get(group))
            if name is None or name in chosen:
                return None
            chosen[name] = group
        return chosen if chosen.keys() == {member.name for member in properties_of(mine)} else None

    def _members_gone(self, old: AnyType | None, mine: TableType, other: TableType) -> Iterator[Gone]:
        here, there = self._ids.members(mine), self._ids.members(other)
        for group in self._ids.members(old):
            if group in here and group not in there:
                yield Gone("ours", mine, here[group])
            if group in there and group not in here:
                yield Gone("theirs", other, there[group])

    def _ends_gone(self) -> Iterator[str]:
        """Yield the names of node types that one side dropped, and an edge type of the other needs."""
        gone = {
            self._ids.of(gone_type.declared.id): gone_type.name
            for gone_type in self._gone
            if gone_type.member is None
        }
        for declared, _ in self._kept:
            if isinstance(declared, EdgeType):
                ends = (self._ids.of(declared.source), self._ids.of(declared.target))
                yield from (gone[end] for end in ends if end in gone)

    def _keep(self, declared: AnyType, side: SideName) -> None:
        self._kept.append((declared, self._sides[side]))

    # -- the outcome -------------------------------------------------------------------------------

    def _catalog(self) -> Catalog:
        ids = {other: declared.id for declared, _ in self._kept for other in self._ids.others(declared.id)}
        kept = sorted(
            ((renumbered(declared, ids), origin) for declared, origin in self._kept),
            key=lambda pair: pair[0].name,
        )
        types = [declared for declared, _ in kept]
        merged = Catalog(
            tuple(t for t in types if isinstance(t, InterfaceType)),
            tuple(t for t in types if isinstance(t, NodeType)),
            tuple(t for t in types if isinstance(t, EdgeType)),
        )
        for side in self._sides.values():
            if side.identity == merged.identity:
                return side
        merged = replace(merged, source=self._text(kept))
        _check_text(merged)
        return merged

    def _text(self, kept: list[tuple[AnyType, Catalog]]) -> str:
        """Put the declarations of all types together, as the side has them that the type is taken from.

        Where that is one side for all it has, this is the text of that side, comments and all. Otherwise a
        declaration may name a type that the other side renamed: it gets the name that the type has now.
        """
        for _, side in kept[:1]:
            if len(side.types) == len(kept) and all(origin is side for _, origin in kept):
                return side.source
        names = {self._ids.of(declared.id): declared.name for declared, _ in kept}
        texts = {origin.source: parse(origin.source).schema.declarations for _, origin in kept}
        declarations: list[DeclarationSyntax] = []
        for declared, origin in kept:
            same = (d for d in texts[origin.source] if d.name.text == declared.name)
            known: list[AnyType] = [*origin.interfaces, *origin.nodes]
            now = {
                known_type.name: names.get(self._ids.of(known_type.id), known_type.name)
                for known_type in known
            }
            declarations += [_with_names(d, now) for d in same if _KINDS[type(d)] is declared.kind]
        order = {kind: number for number, kind in enumerate(_KINDS.values())}
        declarations.sort(key=lambda d: (order[_KINDS[type(d)]], d.name.text))
        return print_schema(SchemaSyntax(tuple(declarations), SourceText("")))


def _with_names(declared: DeclarationSyntax, names: Mapping[str, str]) -> DeclarationSyntax:
    """Return a declaration that names the ends of an edge, or the interfaces of a node, as they are now."""

    def now(name: Ident) -> Ident:
        return replace(name, text=names.get(name.text, name.text))

    match declared:
        case EdgeSyntax():
            return replace(declared, source=now(declared.source), target=now(declared.target))
        case NodeSyntax():
            return replace(declared, implements=tuple(now(name) for name in declared.implements))
        case InterfaceSyntax():
            return declared


def _name(old: Property | None, mine: Property | None, other: Property | None) -> str | None:
    """Return the name that a property has when both sides' renames are taken; None if they disagree."""
    names = {member.name for member in (mine, other) if member is not None}
    if len(names) == 2 and old is not None:
        names.discard(old.name)
    return names.pop() if len(names) == 1 else None


def _check_text(merged: Catalog) -> None:
    """Make sure that the text says what the types say; a name that one side changed may break the other's."""
    try:
        read = resolve_text(merged.source, merged, IdMinter(new_id())).catalog
    except SourceError as error:
        first = error.diagnostics[0]
        raise SchemaConflict(
            f"the two schemas do not go together: {first.message}", remedy=DECLARE_ALIKE, types=[]
        ) from error
    _refuse_different([declared.name for declared in merged.types if read.by_id.get(declared.id) != declared])


def _spelling(declared: AnyType) -> tuple[str, str]:
    """Return what no two types of a schema share."""
    return declared.kind.value, declared.name.casefold() if isinstance(declared, EdgeType) else declared.name


def _twice(types: list[AnyType]) -> list[str]:
    """Return the names that different types have."""
    seen: set[tuple[str, str]] = set()
    again: list[str] = []
    for declared in types:
        if _spelling(declared) in seen:
            again.append(declared.name)
        seen.add(_spelling(declared))
    return again
