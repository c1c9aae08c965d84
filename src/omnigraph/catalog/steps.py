"""Steps: what a migration does, one value for each change.

plan.py makes them, the engine executes them, surfaces print them. A step carries everything that its
execution needs (ids, columns, fields, fills): whoever runs it looks nothing up. `to_json` is the public shape
and holds names only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any, ClassVar, Literal, TypeAlias

import pyarrow as pa

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.encode import default_json
from omnigraph.catalog.model import (
    Annotation,
    AnyType,
    Cardinality,
    Constraint,
    EdgeType,
    Embed,
    InterfaceProperty,
    NodeType,
    Property,
    TypeKind,
)
from omnigraph.catalog.types import PropertyType
from omnigraph.language.diagnostics import Rule, Severity
from omnigraph.language.literals import DefaultValue

Json = dict[str, Any]


class Effect(Enum):
    """What a step costs."""

    METADATA = "metadata"  # no row is read or written
    SCAN = "scan"  # existing rows are validated, none is written
    REWRITE = "rewrite"  # rows or columns are written


class DropMode(Enum):
    """How a drop treats history."""

    SOFT = "soft"  # earlier commits still show the data, until cleanup
    HARD = "hard"  # history that holds the data is reclaimed


Dedupe = Literal["equal", "latest"]  # of edges that would share a key: equal ones become one, or one stays


class Support(Enum):
    """Whether a step can be executed."""

    SUPPORTED = "supported"
    DESTRUCTIVE = "destructive"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class EnumSet:
    """The values that an enum is narrowed to, where a constraint would stand."""

    property: str
    values: tuple[str, ...]


AnyConstraint: TypeAlias = Constraint | Cardinality | EnumSet


@dataclass(frozen=True, kw_only=True)
class _Step(ABC):
    kind: ClassVar[str]
    support: ClassVar[Support] = Support.SUPPORTED
    effect: Effect = Effect.METADATA

    @abstractmethod
    def fields(self) -> Json:
        """Return what the step has to say besides its kind and effect."""

    def to_json(self) -> Json:
        """Return the public shape of the step."""
        return {"kind": self.kind, **self.fields(), "effect": self.effect.value}


@dataclass(frozen=True, kw_only=True)
class _TypeStep(_Step):
    type_kind: TypeKind
    type_id: str
    type_name: str  # the desired name, or the accepted one of a type that goes


@dataclass(frozen=True, kw_only=True)
class _PropertyStep(_TypeStep):
    property_id: str
    property_name: str

    def owner_fields(self) -> Json:
        return {
            "type_kind": self.type_kind.value,
            "type_name": self.type_name,
            "property_name": self.property_name,
        }


# -- types -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AddType(_TypeStep):
    """A new type; a node or edge type gets an empty table with this schema."""

    kind = "add_type"
    declared: AnyType

    @property
    def stored_schema(self) -> pa.Schema | None:
        """The schema of the new table; None for an interface."""
        return self.declared.stored_schema if isinstance(self.declared, NodeType | EdgeType) else None

    def fields(self) -> Json:
        return {"type_kind": self.type_kind.value, "name": self.type_name}


@dataclass(frozen=True, kw_only=True)
class RenameType(_TypeStep):
    """The same type under a new name."""

    kind = "rename_type"
    old_name: str

    def fields(self) -> Json:
        return {"type_kind": self.type_kind.value, "from": self.old_name, "to": self.type_name}


@dataclass(frozen=True, kw_only=True)
class DropType(_TypeStep):
    """The type leaves the schema, and its table the pins."""

    kind = "drop_type"
    support = Support.DESTRUCTIVE
    mode: DropMode = DropMode.SOFT

    def fields(self) -> Json:
        return {"type_kind": self.type_kind.value, "name": self.type_name, "mode": self.mode.value}


@dataclass(frozen=True, kw_only=True)
class UpdateTypeMetadata(_TypeStep):
    """Other annotations, or another list of interfaces (`implements` is None when it did not change)."""

    kind = "update_type_metadata"
    annotations: tuple[Annotation, ...]
    implements: tuple[str, ...] | None = None

    def fields(self) -> Json:
        fields: Json = {
            "type_kind": self.type_kind.value,
            "name": self.type_name,
            "annotations": [a.to_json() for a in self.annotations],
        }
        return fields if self.implements is None else {**fields, "implements": list(self.implements)}


# -- properties --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AddProperty(_PropertyStep):
    """A new property; existing rows get `fill`, or null when there is none."""

    kind = "add_property"
    declared: Property | InterfaceProperty
    fill: DefaultValue | None = None

    @property
    def field(self) -> pa.Field | None:
        """The new column; None on an interface."""
        return self.declared.field if isinstance(self.declared, Property) else None

    def fields(self) -> Json:
        fields = {**self.owner_fields(), "property_type": self.declared.type.to_json()}
        return fields if self.fill is None else {**fields, "fill": default_json(self.fill)}


@dataclass(frozen=True, kw_only=True)
class RenameProperty(_PropertyStep):
    """The same property under a new name; its column stays."""

    kind = "rename_property"
    old_name: str

    def fields(self) -> Json:
        return {
            "type_kind": self.type_kind.value,
            "type_name": self.type_name,
            "from": self.old_name,
            "to": self.property_name,
        }


@dataclass(frozen=True, kw_only=True)
class ExtendEnum(_PropertyStep):
    """More values are allowed from now on."""

    kind = "extend_enum"
    added_values: tuple[str, ...]

    def fields(self) -> Json:
        return {**self.owner_fields(), "added_values": list(self.added_values)}


@dataclass(frozen=True, kw_only=True)
class AlterProperty(_PropertyStep):
    """A wider type, or another nullability.

    When the columns differ, the values of `old_column` are cast into `new_column`; otherwise they are the
    same column, and only nulls are replaced by `fill`, if there is one. On an interface all three are None.
    """

    kind = "alter_property"
    old_type: PropertyType
    new_type: PropertyType
    old_column: str | None = None
    new_column: str | None = None
    fill: DefaultValue | None = None

    @property
    def field(self) -> pa.Field | None:
        """The column after the step; None on an interface."""
        return None if self.new_column is None else pa.field(self.new_column, self.new_type.arrow)

    @property
    def must_not_be_null(self) -> bool:
        """Say whether existing rows must have a value that nothing fills in."""
        return self.old_type.nullable and not self.new_type.nullable and self.fill is None

    def fields(self) -> Json:
        fields = {**self.owner_fields(), "from": self.old_type.to_json(), "to": self.new_type.to_json()}
        return fields if self.fill is None else {**fields, "fill": default_json(self.fill)}


@dataclass(frozen=True, kw_only=True)
class ChangeEmbed(_PropertyStep):
    """The vectors embed something else now: they are cleared and wait for a fill."""

    kind = "change_embed"
    old: Embed
    new: Embed
    column: str
    old_source: str
    new_source: str

    def fields(self) -> Json:
        return {
            **self.owner_fields(),
            "from": {"source": self.old_source, "model": self.old.model},
            "to": {"source": self.new_source, "model": self.new.model},
        }


@dataclass(frozen=True, kw_only=True)
class UpdatePropertyMetadata(_PropertyStep):
    """Other annotations, a changed default among them."""

    kind = "update_property_metadata"
    annotations: tuple[Annotation, ...]

    def fields(self) -> Json:
        return {**self.owner_fields(), "annotations": [a.to_json() for a in self.annotations]}


@dataclass(frozen=True, kw_only=True)
class DropProperty(_PropertyStep):
    """The property leaves the schema; its column is retired. Indexes on it go with it."""

    kind = "drop_property"
    support = Support.DESTRUCTIVE
    column: str | None = None
    mode: DropMode = DropMode.SOFT

    def fields(self) -> Json:
        return {**self.owner_fields(), "mode": self.mode.value}


# -- constraints -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _ConstraintStep(_TypeStep):
    constraint: AnyConstraint
    shown: Mapping[str, Any] = field(hash=False)  # the constraint with names, as printed
    other: AnyConstraint | None = None
    other_shown: Mapping[str, Any] | None = field(default=None, hash=False)
    other_label: ClassVar[str]

    def fields(self) -> Json:
        fields: Json = {
            "type_kind": self.type_kind.value,
            "type_name": self.type_name,
            "constraint": dict(self.shown),
        }
        return fields if self.other_shown is None else {**fields, self.other_label: dict(self.other_shown)}


@dataclass(frozen=True, kw_only=True)
class AddConstraint(_ConstraintStep):
    """Rows must satisfy more; `other` is the looser constraint that this one replaces."""

    kind = "add_constraint"
    other_label = "replaces"


@dataclass(frozen=True, kw_only=True)
class DropConstraint(_ConstraintStep):
    """Rows must satisfy less; `other` is the looser constraint that takes over."""

    kind = "drop_constraint"
    other_label = "replaced_by"


# -- edge keys ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _KeyStep(_TypeStep):
    """Keys are tuples of names, as they are shown."""

    def fields(self) -> Json:
        return {"type_kind": self.type_kind.value, "type_name": self.type_name}


@dataclass(frozen=True, kw_only=True)
class AddKey(_KeyStep):
    """The edges get the ids that their key makes."""

    kind = "add_key"
    key: tuple[str, ...]

    def fields(self) -> Json:
        return {**super().fields(), "key": list(self.key)}


@dataclass(frozen=True, kw_only=True)
class ChangeKey(_KeyStep):
    """The edges get the ids that another key makes, or another spelling of its values."""

    kind = "change_key"
    old_key: tuple[str, ...]
    key: tuple[str, ...]

    def fields(self) -> Json:
        return {**super().fields(), "from": list(self.old_key), "to": list(self.key)}


@dataclass(frozen=True, kw_only=True)
class DropKey(_KeyStep):
    """New edges get generated ids; those that are there keep theirs."""

    kind = "drop_key"
    old_key: tuple[str, ...]

    def fields(self) -> Json:
        return {**super().fields(), "key": list(self.old_key)}


@dataclass(frozen=True, kw_only=True)
class UnsupportedChange(_Step):
    """A change that no step can bring about; the plan is refused whole."""

    kind = "unsupported_change"
    support = Support.UNSUPPORTED
    entity: str
    reason: str
    code: str
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)  # rows that stand in the way

    def fields(self) -> Json:
        return {"entity": self.entity, "reason": self.reason, "code": self.code, **self.details}

    @property
    def message(self) -> str:
        """What the caller is told."""
        return f"[{self.code}] {self.entity}: {self.reason}"


Step: TypeAlias = (
    AddType
    | RenameType
    | DropType
    | UpdateTypeMetadata
    | AddProperty
    | RenameProperty
    | ExtendEnum
    | AlterProperty
    | ChangeEmbed
    | UpdatePropertyMetadata
    | DropProperty
    | AddConstraint
    | DropConstraint
    | AddKey
    | ChangeKey
    | DropKey
    | UnsupportedChange
)


# -- codes ---------------------------------------------------------------------------------------
#
# The stable names of what can be said about a migration. `OG-<family>-<number>`: DS destructive, MF may fail,
# CD constraints, BC breaks callers, VE vectors, ED edges. A published code keeps its meaning for good.


MIGRATION_STAGE = 9
REGISTRY: dict[str, Rule] = {}


def _code(code: str, name: str, title: str, severity: Severity = Severity.ERROR) -> Rule:
    rule = Rule(code, name, title, MIGRATION_STAGE, severity)
    REGISTRY[code] = rule
    return rule


NODE_DROPPED = _code("OG-DS-102", "node_type_dropped", "a node type is dropped", Severity.WARN)
EDGE_DROPPED = _code("OG-DS-103", "edge_type_dropped", "an edge type is dropped", Severity.WARN)
PROPERTY_DROPPED = _code("OG-DS-104", "property_dropped", "a property is dropped", Severity.WARN)

REQUIRED_ADDED = _code("OG-MF-103", "required_added", "a required property is added with nothing to fill it")
TIGHTENED = _code(
    "OG-MF-104",
    "nullable_to_required",
    "a nullable property becomes required: existing rows are validated",
    Severity.WARN,
)
TYPE_CHANGED = _code("OG-MF-106", "type_changed", "a property changes to a type that its values do not fit")
CONSTRAINT_ADDED = _code(
    "OG-MF-107",
    "constraint_added",
    "a constraint is added or tightened: existing rows are validated",
    Severity.WARN,
)
KEY_CHANGED = _code(
    "OG-MF-108", "key_changed", "the key of a node type changes, and with it the ids of its nodes"
)

ENDPOINTS_CHANGED = _code("OG-ED-101", "endpoints_changed", "an edge type joins other node types")
EDGES_SHARE_KEY = _code("OG-ED-102", "edges_share_key", "edges share the key that their type shall have")
IDS_REWRITTEN = _code("OG-ED-103", "ids_rewritten", "edges get the ids that their key makes", Severity.WARN)
EMBED_CHANGED = _code(
    "OG-VE-101", "embed_changed", "the vectors of a property are cleared and need a fill", Severity.WARN
)
EMBED_ADDED = _code("OG-VE-102", "embed_added_or_removed", "`@embed` is added to or removed from a property")
INTERFACE_DROPPED = _code("OG-BC-101", "interface_dropped", "an interface is removed")
RENAMED = _code(
    "OG-BC-102", "renamed", "a type or property is renamed: queries must use the new name", Severity.INFO
)
CONSTRAINT_DROPPED = _code(
    "OG-CD-101", "constraint_dropped", "a constraint is removed or loosened", Severity.INFO
)
