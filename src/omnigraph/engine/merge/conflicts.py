"""Conflicts: what a merge cannot decide by itself, and what the caller decided about it.

A conflict names the entity, what each side made of it, and who did it when; errors and previews carry the
same values. "Ours" is the branch that is merged into, "theirs" the one that is merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Any, ClassVar, Literal

from omnigraph.base.dataclass import JsonFields, dataclass
from omnigraph.base.errors import ConflictError, InvalidRequest
from omnigraph.base.text_table import at_most
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType, TableType
from omnigraph.catalog.query import BadParameters, Parameter, bind_params
from omnigraph.engine.history.changes import ends_json, find_type
from omnigraph.engine.validate.relation import Violation


class ConflictKind(Enum):
    """Why it cannot be decided."""

    DIVERGENT_INSERT = "divergent_insert"
    DIVERGENT_UPDATE = "divergent_update"
    DELETE_VS_UPDATE = "delete_vs_update"
    ORPHAN_EDGE = "orphan_edge"
    UNIQUE = "unique_violation"
    CARDINALITY = "cardinality_violation"
    VALUE = "value_constraint_violation"


STRUCTURAL = frozenset(
    {ConflictKind.DIVERGENT_INSERT, ConflictKind.DIVERGENT_UPDATE, ConflictKind.DELETE_VS_UPDATE}
)
_BY_CODE = {
    "orphan_edge": ConflictKind.ORPHAN_EDGE,
    "unique": ConflictKind.UNIQUE,
    "cardinality": ConflictKind.CARDINALITY,
}


@dataclass(frozen=True, slots=True)
class Origin(JsonFields):
    """Who last changed an entity on one side, and when."""

    json_names: ClassVar = {
        "commit_id": "graph_commit_id",
        "actor": "actor_id",
        "authored_at_us": "authored_at",
    }

    commit_id: str
    actor: str | None
    authored_at_us: int


@dataclass(frozen=True, slots=True)
class PropertyConflict(JsonFields):
    """One property with three values, in the format of result values."""

    json_names: ClassVar = {"name": "property"}

    name: str
    base: Any
    ours: Any
    theirs: Any


@dataclass(frozen=True, slots=True)
class Conflict:
    """One entity, or one set of entities, that the sides do not agree on."""

    entity_kind: str
    type_name: str
    kind: ConflictKind
    message: str
    entity_id: str | None = None
    properties: tuple[PropertyConflict, ...] = ()
    ours: Origin | None = None
    theirs: Origin | None = None
    ends: tuple[str, str] | None = None  # of an edge

    def __repr__(self) -> str:
        return f"Conflict({self.kind.value}: {self.message})"

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "entity_kind": self.entity_kind,
            "type_name": self.type_name,
            "entity_id": self.entity_id,
            **ends_json(self.ends),
            "kind": self.kind.value,
            "message": self.message,
            "properties": [disputed.to_json() for disputed in self.properties],
            "ours": None if self.ours is None else self.ours.to_json(),
            "theirs": None if self.theirs is None else self.theirs.to_json(),
        }

    @classmethod
    def of(cls, violation: Violation) -> Conflict:
        """Turn what the evaluator found in the merged image into a conflict."""
        kind = _BY_CODE.get(violation.code, ConflictKind.VALUE)
        return cls(violation.entity_kind, violation.type_name, kind, violation.message, violation.entity_id)


class MergeConflict(ConflictError):
    """The sides disagree; nothing was changed. `conflicts` has the first ones, `total` counts all."""

    code = "merge_conflict"
    conflicts: tuple[Conflict, ...] = ()
    total = 0

    def __init__(self, doing: str, conflicts: Sequence[Conflict], total: int) -> None:
        super().__init__(
            f"{doing}: {total} conflict{'s' if total != 1 else ''}",
            remedy="Nothing was changed; choose a side for each with resolutions, or mend a branch",
            merge_conflicts=[conflict.to_json() for conflict in conflicts],
            total=total,
        )
        self._doing = doing
        self.conflicts = tuple(conflicts)
        self.total = total

    def __reduce__(self) -> tuple[Any, ...]:
        return MergeConflict, (self._doing, self.conflicts, self.total)

    @property
    def details(self) -> tuple[str, ...]:
        """The conflicts, a line for each."""
        return at_most(tuple(conflict.message for conflict in self.conflicts), self.total)

    def with_conflicts(self, conflicts: Sequence[Conflict]) -> MergeConflict:
        """Return the same error with more said about its conflicts."""
        return MergeConflict(self._doing, conflicts, self.total)


class SchemaConflict(ConflictError):
    """Both sides changed the schema in ways that do not go together."""

    code = "schema_conflict"


def in_order(conflicts: Sequence[Conflict]) -> list[Conflict]:
    """Put conflicts in the order of report: structural ones first, nodes before edges, by type and id."""
    return sorted(
        conflicts,
        key=lambda conflict: (
            conflict.kind not in STRUCTURAL,
            conflict.entity_kind == "edge",
            conflict.type_name,
            conflict.entity_id or "",
        ),
    )


# -- choices of the caller -------------------------------------------------------------------------
#
# Given as `Resolve` values or as plain mappings with the same keys, so that a file or a command line can hold
# them. A choice for an entity takes one side's whole state, also where the sides do not contradict each
# other: that is how an edge without an endpoint is dropped. A choice that meets nothing to decide is an
# error: it was meant for something else.


Take = Literal["ours", "theirs"]
TAKES: tuple[Take, ...] = ("ours", "theirs")
Granularity = Literal["property", "entity"]
GRANULARITIES: tuple[Granularity, ...] = ("property", "entity")
_NOTHING: Any = object()


@dataclass(frozen=True)
class Resolve:
    """One decision: for an entity, or for one property of it. `value` is in the format of parameters."""

    type: str
    id: str
    property: str | None = None
    take: Take | None = None
    value: Any = _NOTHING

    def has_value(self) -> bool:
        """Say whether a value was given, which may be null."""
        return self.value is not _NOTHING

    def __str__(self) -> str:
        return f"{self.type} {self.id!r}" + (f" property {self.property!r}" if self.property else "")


Resolutions = Iterable[Resolve | Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Value:
    """A value that neither side has, as it is stored."""

    stored: Any


@dataclass(frozen=True)
class Choices:
    """Decisions by table and id; for a property also by column. `strategy` is for what is left.

    With granularity "entity" an entity that both sides changed is a conflict, whatever they changed of it.
    """

    entities: Mapping[tuple[str, str], Take] = field(default_factory=dict)
    properties: Mapping[tuple[str, str, str], Take | Value] = field(default_factory=dict)
    strategy: Take | None = None
    granularity: Granularity = "property"

    @property
    def turned(self) -> Choices:
        """The same decisions seen from the other side."""
        other: dict[Take, Take] = {"ours": "theirs", "theirs": "ours"}
        return Choices(
            {key: other[take] for key, take in self.entities.items()},
            {
                key: choice if isinstance(choice, Value) else other[choice]
                for key, choice in self.properties.items()
            },
            None if self.strategy is None else other[self.strategy],
            self.granularity,
        )

    def names(self) -> set[tuple[str, str]]:
        """Return the table and id of every entity that is decided about."""
        return set(self.entities) | {(table, entity) for table, entity, _ in self.properties}


def read_choices(
    resolutions: Resolutions | None,
    strategy: Take | None,
    catalog: Catalog,
    granularity: Granularity = "property",
) -> Choices:
    """Check what the caller gave against the schema."""
    if granularity not in GRANULARITIES:
        raise InvalidRequest(f"unknown granularity {granularity!r}", remedy="Use 'property' or 'entity'")
    if strategy is not None and strategy not in TAKES:
        raise InvalidRequest(f"unknown strategy {strategy!r}", remedy="Use 'ours' or 'theirs'")
    entities: dict[tuple[str, str], Take] = {}
    properties: dict[tuple[str, str, str], Take | Value] = {}
    for resolution in resolutions or ():
        choice = resolution if isinstance(resolution, Resolve) else _from_mapping(resolution)
        declared = find_type([catalog], choice.type)
        if (choice.take is None) == (not choice.has_value()):
            raise InvalidRequest(f"{choice}: give either take or value")
        if choice.take is not None and choice.take not in TAKES:
            raise InvalidRequest(f"{choice}: cannot take {choice.take!r}", remedy="Use 'ours' or 'theirs'")
        if choice.property is None:
            if choice.take is None:
                raise InvalidRequest(f"{choice}: a value is for a property", remedy="Name the property")
            entities[(declared.table_id, choice.id)] = choice.take
        else:
            column, stored = _property(choice, declared)
            properties[(declared.table_id, choice.id, column)] = choice.take or stored
    return Choices(entities, properties, strategy, granularity)


def _from_mapping(values: Mapping[str, Any]) -> Resolve:
    known = {"type", "id", "property", "take", "value"}
    unknown = sorted(set(values) - known)
    if unknown or not {"type", "id"} <= set(values):
        problem = f"unknown key {unknown[0]!r}" if unknown else "type and id are needed"
        raise InvalidRequest(
            f"resolution {dict(values)!r}: {problem}", remedy=f"Keys: {', '.join(sorted(known))}"
        )
    return Resolve(**values)


def _property(choice: Resolve, declared: TableType) -> tuple[str, Value]:
    if choice.property in ("from", "to", "src", "dst") and isinstance(declared, EdgeType):
        if choice.has_value():
            raise InvalidRequest(
                f"resolution of {choice}: the ends of an edge go together",
                remedy="Take one side's ends with 'ours' or 'theirs'",
            )
        return "src", Value(None)
    member = next((p for p in declared.properties if p.name == choice.property), None)
    if member is None:
        raise InvalidRequest(f"resolution of {choice}: there is no such property")
    if not choice.has_value():
        return member.column, Value(None)
    if member.id in declared.key:
        kind = declared.kind.value
        raise InvalidRequest(
            f"resolution of {choice}: it makes up the {kind}'s id, which never changes",
            remedy=f"Take one side's {kind} with 'ours' or 'theirs'",
        )
    try:
        plain = replace(member.type, enum_values=None)  # an enum is judged with the merged image
        bound = bind_params([Parameter(member.name, plain)], {member.name: choice.value})
    except BadParameters as error:
        raise InvalidRequest(f"resolution of {choice}: {error.message}") from error
    return member.column, Value(bound[member.name])
