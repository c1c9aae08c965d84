"""Model: a schema as the engine sees it, with identities, stored columns and constraints.

    text -> tree -> checked schema -> **catalog**

Immutable values without I/O; resolve.py makes them, the engine stores them whole as one content-addressed
object.

Ids are opaque and final: names are mere names, and a rename changes nothing else. A type's id is also the id
of its table. Where a merge unified two types or properties, the one that is kept has the other's id among its
`aliases`: a branch that has the other still has the same thing. A column name is never used twice in one
table, even after its property is gone: old fragments still hold the old values under it.

A table has `id` (edges: `id`, `src`, `dst`), never null, then one column for each property in the order of
their names when the table was made. Property columns are nullable whatever the schema says: required-ness is
enforced on write, so that changing it touches no data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, TypeAlias, assert_never

import pyarrow as pa

from omnigraph.base.dataclass import dataclass
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.language.literals import DefaultValue

# -- constraints -----------------------------------------------------------------------------------
#
# A constraint names properties by id, so that a rename does not change it; on edges `src` and `dst` may stand
# for an id. It is a set of properties: the order in which they were written has no meaning, and inline and
# body form are the same constraint.


ENDPOINTS = ("src", "dst")
END_NAMES = FrozenMap({"src": "from", "dst": "to"})  # what writers and readers call the ends


def identity_order(identity: str) -> tuple[int, str]:
    """Sort key of ids: the order in which one change allocated them.

    Ids end in a counter of at least four digits; a longer one is a later one.
    """
    return len(identity), identity


def in_identity_order(identities: Iterable[str]) -> tuple[str, ...]:
    """Return distinct ids in the order of their allocation."""
    return tuple(sorted(set(identities), key=identity_order))


def in_key_order(identities: Iterable[str]) -> tuple[str, ...]:
    """Return the members of a key in the order in which they enter ids: ends, then properties by id."""
    given = set(identities)
    return (*(end for end in ENDPOINTS if end in given), *in_identity_order(given - set(ENDPOINTS)))


def key_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a key's members as they are shown: ends, then properties by name."""
    given = set(names)
    return (*(end for end in ENDPOINTS if end in given), *sorted(given - set(ENDPOINTS)))


@dataclass(frozen=True, slots=True)
class Unique:
    """No two rows share the values; a row with a null among them is exempt."""

    properties: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """The properties are looked up often. Never changes a result."""

    properties: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """`low <= value <= high`, compared as doubles; null is exempt."""

    property: str
    low: float | None
    high: float | None

    def covers(self, other: Range) -> bool:
        """Say whether every value that the other admits is admitted here."""
        low_ok = self.low is None or (other.low is not None and self.low <= other.low)
        high_ok = self.high is None or (other.high is not None and self.high >= other.high)
        return low_ok and high_ok


@dataclass(frozen=True, slots=True)
class Check:
    """The pattern matches somewhere in the value; null is exempt."""

    property: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Cardinality:
    """How many edges of a type may leave one source."""

    low: int = 0
    high: int | None = None

    @property
    def unlimited(self) -> bool:
        """Say whether this limits nothing."""
        return self.low == 0 and self.high is None

    def covers(self, other: Cardinality) -> bool:
        """Say whether every count that the other admits is admitted here."""
        return self.low <= other.low and (
            self.high is None or (other.high is not None and self.high >= other.high)
        )


UNLIMITED = Cardinality()
Constraint: TypeAlias = Unique | Index | Range | Check


def properties_of(constraint: Constraint) -> tuple[str, ...]:
    """Return the ids (or endpoints) that a constraint names."""
    match constraint:
        case Unique(properties) | Index(properties):
            return properties
        case Range(property=name) | Check(property=name):
            return (name,)
        case _:
            assert_never(constraint)


def constraint_json(constraint: Constraint, name: Callable[[str], str]) -> dict[str, Any]:
    """Return a constraint as plain JSON values; `name` says what to write for an id."""
    match constraint:
        case Unique(properties) | Index(properties):
            kind = "unique" if isinstance(constraint, Unique) else "index"
            return {"kind": kind, "properties": sorted(name(p) for p in properties)}
        case Range(column, low, high):
            return {"kind": "range", "property": name(column), "min": _number(low), "max": _number(high)}
        case Check(column, pattern):
            return {"kind": "check", "property": name(column), "pattern": pattern}
        case _:
            assert_never(constraint)


def constraint_from_json(value: dict[str, Any]) -> Constraint:
    """Read what `constraint_json` wrote with ids for names."""
    match value["kind"]:
        case "unique":
            return Unique(in_identity_order(value["properties"]))
        case "index":
            return Index(in_identity_order(value["properties"]))
        case "range":
            low, high = (None if value[side] is None else float(value[side]) for side in ("min", "max"))
            return Range(value["property"], low, high)
        case "check":
            return Check(value["property"], value["pattern"])
        case kind:
            raise ValueError(f"unknown constraint kind {kind!r}")


def card_json(card: Cardinality) -> dict[str, Any]:
    """Return a cardinality in the shape of a constraint."""
    return {"kind": "card", "min": card.low, "max": card.high}


def _number(value: float | None) -> int | float | None:
    """Write whole numbers as such, as far as a double tells them apart."""
    if value is not None and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


# -- types and properties --------------------------------------------------------------------------


ID = "id"


class TypeKind(Enum):
    """The three namespaces of declarations."""

    INTERFACE = "interface"
    NODE = "node"
    EDGE = "edge"


class IndexKind(Enum):
    """What sort of index a declaration asks for."""

    ORDERED = "ordered"
    FULL_TEXT = "full_text"
    VECTOR = "vector"


@dataclass(frozen=True, slots=True)
class Annotation:
    """Metadata of a type or property, values as text. Constraints and `@rename_from` are not metadata."""

    name: str
    value: str | None = None
    keywords: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the annotation as plain JSON values."""
        return {"name": self.name, "value": self.value, "arguments": dict(self.keywords)}


@dataclass(frozen=True, slots=True)
class Embed:
    """What a vector embeds: the id of the source property, and the model if recorded."""

    source: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Property:
    """A property of a node or edge type, with the column that holds it."""

    id: str
    name: str
    column: str
    type: PropertyType
    annotations: tuple[Annotation, ...] = ()
    default: DefaultValue | None = None
    embed: Embed | None = None
    aliases: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Every id of the property: its own, and those that merges unified with it."""
        return (self.id, *self.aliases)

    @property
    def field(self) -> pa.Field:
        """The stored column."""
        return pa.field(self.column, self.type.arrow, nullable=True)


TEXT = PropertyType(Scalar.STRING)


@dataclass(frozen=True, slots=True)
class KeyMember:
    """One part of a key: a property, or an end of an edge."""

    id: str
    name: str
    column: str
    type: PropertyType

    @classmethod
    def of(cls, declared: Property) -> KeyMember:
        """Return a property as part of a key."""
        return cls(declared.id, declared.name, declared.column, declared.type)


@dataclass(frozen=True, slots=True)
class InterfaceProperty:
    """A property that an interface asks for; its annotations include the inline constraints."""

    id: str
    name: str
    type: PropertyType
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexIntent:
    """An index that the schema asks for; maintenance builds it when it sees fit."""

    type_id: str
    property_id: str
    column: str
    kind: IndexKind


@dataclass(frozen=True, kw_only=True)
class InterfaceType:
    """An interface: no rows, no table."""

    kind: ClassVar[TypeKind] = TypeKind.INTERFACE
    id: str
    name: str
    properties: tuple[InterfaceProperty, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Every id of the interface: its own, and those that merges unified with it."""
        return (self.id, *self.aliases)

    def find(self, name: str) -> InterfaceProperty | None:
        """Return the property of a name, or None."""
        return next((p for p in self.properties if p.name == name), None)


@dataclass(frozen=True, kw_only=True)
class StoredType:
    """What node and edge types have in common."""

    id: str
    name: str
    annotations: tuple[Annotation, ...] = ()
    properties: tuple[Property, ...] = ()  # by name
    constraints: tuple[Constraint, ...] = ()
    retired_columns: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    key: tuple[str, ...] = ()  # what ids are made of, in that order; without a key they are generated

    @property
    def ids(self) -> tuple[str, ...]:
        """Every id of the type: its own, and those that merges unified with it."""
        return (self.id, *self.aliases)

    @property
    def table_id(self) -> str:
        """The table that holds the rows."""
        return self.id

    @cached_property
    def fixed_bytes(self) -> int:
        """What the vectors of a row take, also where they are null."""
        return sum(4 * (p.type.dimension or 0) for p in self.properties)

    @cached_property
    def _by_name(self) -> dict[str, Property]:
        return {p.name: p for p in self.properties}

    @cached_property
    def _by_id(self) -> dict[str, Property]:
        return {p.id: p for p in self.properties}

    @cached_property
    def _by_any_id(self) -> dict[str, Property]:
        return {identity: p for p in self.properties for identity in p.ids} | self._by_id

    def find(self, name: str) -> Property | None:
        """Return the property of a name, or None."""
        return self._by_name.get(name)

    def same_property(self, other: Property) -> Property | None:
        """Return the property here that a property of the same type in another schema is, or None."""
        return next((self._by_any_id[i] for i in other.ids if i in self._by_any_id), None)

    def property_by_id(self, identity: str) -> Property:
        """Return the property of an id that this type has."""
        return self._by_id[identity]

    @cached_property
    def looked_up(self) -> tuple[str, ...]:
        """The columns that rows are looked up by, beside ids and the ends of edges."""
        unique = (member for c in self.constraints if isinstance(c, Unique) for member in c.properties)
        columns = [self.column_of(member) for member in unique if member not in ENDPOINTS]
        return tuple(dict.fromkeys([*columns, *(self.column_of(member) for member in self._indexed())]))

    @cached_property
    def key_members(self) -> tuple[KeyMember, ...]:
        """What ids are made of, in the order in which it enters them."""
        return tuple(
            KeyMember(part, part, part, TEXT) if part in ENDPOINTS else KeyMember.of(self._by_id[part])
            for part in self.key
        )

    @property
    def key_names(self) -> tuple[str, ...]:
        """The key as people see it: the ends of an edge, then names in order."""
        return key_order(self.name_of(part) for part in self.key)

    def is_key(self, constraint: Unique) -> bool:
        """Say whether a constraint asks no more than the key, which ids keep unique by themselves."""
        return bool(self.key) and set(constraint.properties) == set(self.key)

    def column_of(self, identity: str) -> str:
        """Return the stored column of a property id or endpoint."""
        return identity if identity in ENDPOINTS else self._by_id[identity].column

    def name_of(self, identity: str) -> str:
        """Return the name of a property id or endpoint."""
        return identity if identity in ENDPOINTS else self._by_id[identity].name

    def _intents(self, indexed: tuple[str, ...]) -> tuple[IndexIntent, ...]:
        intents = []
        for identity in in_identity_order(indexed):
            declared = self._by_id.get(identity)  # the endpoints are looked up efficiently anyway
            kind = None if declared is None else index_kind(declared.type)
            if declared is not None and kind is not None:
                intents.append(IndexIntent(self.id, identity, declared.column, kind))
        return tuple(intents)

    def _indexed(self) -> tuple[str, ...]:
        """The single properties with an index; a composite declaration builds nothing."""
        indexes = (c.properties for c in self.constraints if isinstance(c, Index))
        return tuple(properties[0] for properties in indexes if len(properties) == 1)


@dataclass(frozen=True, kw_only=True)
class NodeType(StoredType):
    """A node type; its key holds property ids in identity order."""

    kind: ClassVar[TypeKind] = TypeKind.NODE
    implements: tuple[str, ...] = ()  # ids of interfaces

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """The Arrow schema of the table."""
        return pa.schema([pa.field(ID, pa.string(), nullable=False), *(p.field for p in self.properties)])

    @cached_property
    def index_intents(self) -> tuple[IndexIntent, ...]:
        """The indexes asked for; a key of one property implies one."""
        return self._intents(self._indexed() + (self.key if len(self.key) == 1 else ()))


@dataclass(frozen=True, kw_only=True)
class EdgeType(StoredType):
    """An edge type; endpoints are ids of node types. Its key holds both ends, then property ids."""

    kind: ClassVar[TypeKind] = TypeKind.EDGE
    source: str
    target: str
    card: Cardinality = UNLIMITED

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """The Arrow schema of the table."""
        fixed = [pa.field(name, pa.string(), nullable=False) for name in (ID, *ENDPOINTS)]
        return pa.schema([*fixed, *(p.field for p in self.properties)])

    @cached_property
    def index_intents(self) -> tuple[IndexIntent, ...]:
        """The indexes asked for."""
        return self._intents(self._indexed())


AnyType: TypeAlias = InterfaceType | NodeType | EdgeType
TableType: TypeAlias = NodeType | EdgeType


def index_kind(declared: PropertyType) -> IndexKind | None:
    """Say which index serves a type; none serves a list or a Blob."""
    if declared.is_list or declared.scalar is Scalar.BLOB:
        return None
    if declared.scalar is Scalar.VECTOR:
        return IndexKind.VECTOR
    if declared.scalar is Scalar.STRING and not declared.is_enum:
        return IndexKind.FULL_TEXT
    return IndexKind.ORDERED
