"""Choices: what the caller decided about conflicts, before the merge meets them.

Room    engine.merge. Given as `Resolve` values or as plain mappings with the same keys, so that a file or a
        command line can hold them. A choice for an entity takes one side's whole state, also where the sides
        do not contradict each other: that is how an edge without an endpoint is dropped.
Rule    a choice that meets nothing to decide is an error: it was meant for something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType, NodeType, TableType
from omnigraph.catalog.query import BadParameters, Parameter, bind_params
from omnigraph.engine.history.change import find_type

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
            {key: one if isinstance(one, Value) else other[one] for key, one in self.properties.items()},
            None if self.strategy is None else other[self.strategy],
            self.granularity,
        )

    def names(self) -> set[tuple[str, str]]:
        """Return the table and id of every entity that is decided about."""
        return set(self.entities) | {(table, entity) for table, entity, _ in self.properties}


def read_choices(
    given: Resolutions | None, strategy: Take | None, catalog: Catalog, granularity: Granularity = "property"
) -> Choices:
    """Check what the caller gave against the schema."""
    if granularity not in GRANULARITIES:
        raise InvalidRequest(f"unknown granularity {granularity!r}", remedy="Use 'property' or 'entity'")
    if strategy is not None and strategy not in TAKES:
        raise InvalidRequest(f"unknown strategy {strategy!r}", remedy="Use 'ours' or 'theirs'")
    entities: dict[tuple[str, str], Take] = {}
    properties: dict[tuple[str, str, str], Take | Value] = {}
    for one in given or ():
        choice = one if isinstance(one, Resolve) else _from_mapping(one)
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


def _from_mapping(given: Mapping[str, Any]) -> Resolve:
    known = {"type", "id", "property", "take", "value"}
    unknown = sorted(set(given) - known)
    if unknown or not {"type", "id"} <= set(given):
        problem = f"unknown key {unknown[0]!r}" if unknown else "type and id are needed"
        raise InvalidRequest(
            f"resolution {dict(given)!r}: {problem}", remedy=f"Keys: {', '.join(sorted(known))}"
        )
    return Resolve(**given)


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
    if isinstance(declared, NodeType) and member.id in declared.key:
        raise InvalidRequest(
            f"resolution of {choice}: it makes up the node's id, which never changes",
            remedy="Take one side's node with 'ours' or 'theirs'",
        )
    try:
        plain = replace(member.type, enum_values=None)  # an enum is judged with the merged image
        bound = bind_params([Parameter(member.name, plain)], {member.name: choice.value})
    except BadParameters as error:
        raise InvalidRequest(f"resolution of {choice}: {error.message}") from error
    return member.column, Value(bound[member.name])
