"""Three-way: what becomes of the entities of one type that either side changed.

    base -> theirs, base -> ours (two deltas) -> **three-way** -> rows to write, ids to remove, conflicts

Tables in, values out. An entity that one side left alone is as the other made it; one that both changed is
decided property by property; the ends of an edge count as one property. A property that both sides changed to
different values is a conflict, unless a choice decides it.

Deltas come in types that hold the values of all three states. The merged type may be narrower, where a side
took a widening back: a value that it cannot hold exactly is a conflict, never rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.dataclass import JsonFields, dataclass
from omnigraph.catalog.keys import edge_text
from omnigraph.catalog.model import ENDPOINTS, ID, EdgeType, TableType
from omnigraph.engine.change import TypeChange
from omnigraph.engine.history.delta import (
    Delta,
    column_name,
    from_python,
    narrowed,
    same_value,
    to_python,
)
from omnigraph.engine.merge.conflicts import Choices, Conflict, ConflictKind, PropertyConflict, Take, Value
from omnigraph.engine.validate.relation import Findings
from omnigraph.execution.result import json_value
from omnigraph.storage.manifest.records import ManifestState, Pin
from omnigraph.storage.tables.effects import Effect
from omnigraph.storage.transaction import Adopted

Row = Mapping[str, Any]  # stored values by column


@dataclass(frozen=True, eq=False)
class TypeMerge:
    """The outcome for one type, relative to ours."""

    declared: TableType
    rows: pa.Table  # to be as here, new or not
    removed: pa.Array
    conflicts: tuple[Conflict, ...]
    met: frozenset[str]  # ids that a choice decided about


@dataclass(frozen=True)
class MergeEntity:
    """One entity in three states; None where it does not exist."""

    id: str
    base: Row | None
    ours: Row | None
    theirs: Row | None

    def side(self, take: Take) -> Row | None:
        """Return one side's state."""
        return self.ours if take == "ours" else self.theirs


def merge_type(
    declared: TableType, ours: Delta, theirs: Delta, choices: Choices, ambiguous: frozenset[str]
) -> TypeMerge:
    """Merge the changes of both sides; `ambiguous` ids have different states in equally good bases."""
    chosen = {entity for table, entity in choices.names() if table == declared.table_id}
    wide = theirs.inserted.schema
    narrow = {field.name: field.type for field in declared.stored_schema if wide.field(field.name) != field}
    shared = set(_ids_in_both(ours, theirs)) | ambiguous | chosen
    shared |= _unheld_ids(ours, narrow) | _unheld_ids(theirs, narrow)
    alone = pc.invert(pc.is_in(theirs.inserted[ID], value_set=_values(shared)))
    updated = pc.invert(pc.is_in(theirs.after[ID], value_set=_values(shared)))
    gone = pc.invert(pc.is_in(theirs.deleted[ID], value_set=_values(shared)))
    rows = [theirs.inserted.filter(alone), theirs.after.filter(updated)]
    removed = theirs.deleted[ID].filter(gone).to_pylist()
    judge = _Judge(declared, choices, ambiguous, wide, narrow)
    written: list[Row] = []
    for entity in entities(shared, ours, theirs):
        state = judge.decide(entity)
        if state is None and entity.ours is not None:
            removed.append(entity.id)
        elif state is not None and (entity.ours is None or not _same_row(state, entity.ours)):
            written.append(state)
    rows.append(from_python(written, wide))
    return TypeMerge(
        declared,
        in_types_of(pa.concat_tables(rows), declared),
        pa.array(sorted(removed), pa.string()),
        tuple(judge.conflicts),
        frozenset(chosen & judge.seen),
    )


def in_types_of(rows: pa.Table, declared: TableType) -> pa.Table:
    """Return compared rows in the types of a declaration; what those cannot hold was a conflict before."""
    return rows.cast(declared.stored_schema, safe=False)


def entities(ids: set[str], ours: Delta, theirs: Delta) -> Iterator[MergeEntity]:
    """Gather the three states of some entities, by id; those that neither side changed are left out."""
    mine, other = _States(ours, ids), _States(theirs, ids)
    for entity in sorted(mine.known | other.known):
        base = mine.base(entity) if entity in mine.known else other.base(entity)
        yield MergeEntity(
            entity,
            base,
            mine.now(entity) if entity in mine.known else base,
            other.now(entity) if entity in other.known else base,
        )


class _States:
    """The base and the present state of the entities that one side changed."""

    def __init__(self, delta: Delta, ids: set[str]) -> None:
        self._inserted, self._deleted = _rows(delta.inserted, ids), _rows(delta.deleted, ids)
        self._before, self._after = _rows(delta.before, ids), _rows(delta.after, ids)
        self.known = {*self._inserted, *self._deleted, *self._after}

    def base(self, entity: str) -> Row | None:
        """Return the state that the side started from."""
        return self._before.get(entity) or self._deleted.get(entity)

    def now(self, entity: str) -> Row | None:
        """Return what the side made of it."""
        return self._after.get(entity) or self._inserted.get(entity)


class _Judge:
    """Decides entities one by one and collects what it cannot decide."""

    def __init__(
        self,
        declared: TableType,
        choices: Choices,
        ambiguous: frozenset[str],
        wide: pa.Schema,
        narrow: Mapping[str, pa.DataType],
    ) -> None:
        self._declared = declared
        self._choices = choices
        self._ambiguous = ambiguous
        self._wide = wide  # the types in which states are held
        self._narrow = narrow  # columns that the merged type holds less of
        self._units = _units(declared)
        self._embedded = _embedded(declared)
        self.conflicts: list[Conflict] = []
        self.seen: set[str] = set()

    def decide(self, entity: MergeEntity) -> Row | None:
        """Return the merged state; on a conflict, ours."""
        self.seen.add(entity.id)
        known = len(self.conflicts)
        state = self._merged(entity)
        columns = self._unheld(state)
        if state is None or not columns or len(self.conflicts) > known:
            return state
        if self._choices.strategy is not None:
            side = entity.side(self._choices.strategy)
            state = None if side is None else {**state, **{column: side[column] for column in columns}}
            if not self._unheld(state):
                return state
        types = ", ".join(sorted({str(p.type) for p in self._declared.properties if p.column in columns}))
        self._report(entity, ConflictKind.DIVERGENT_UPDATE, columns, f"has values that {types} cannot hold")
        return entity.ours

    def _unheld(self, state: Row | None) -> list[str]:
        """Return the columns whose values the merged type cannot hold exactly."""
        if state is None:
            return []
        wide = pa.schema([self._wide.field(column) for column in self._narrow])
        row = from_python([{column: state[column] for column in self._narrow}], wide)
        return [
            column
            for column, kind in self._narrow.items()
            if narrowed(row[column].combine_chunks(), kind)[1].any()
        ]

    def _merged(self, entity: MergeEntity) -> Row | None:
        take = self._choices.entities.get((self._declared.table_id, entity.id))
        if take is not None:
            return entity.side(take)
        base, ours, theirs = entity.base, entity.ours, entity.theirs
        if _same_state(ours, theirs):
            return ours
        if entity.id not in self._ambiguous:
            if _same_state(base, theirs):
                return self._with_values(entity, ours)
            if _same_state(base, ours):
                return self._with_values(entity, theirs)
        if ours is None or theirs is None:
            unclear = entity.id in self._ambiguous
            kind = ConflictKind.DIVERGENT_UPDATE if unclear else ConflictKind.DELETE_VS_UPDATE
            return self._undecided(entity, kind, ())
        return self._combined(entity, ours, theirs)

    def _combined(self, entity: MergeEntity, ours: Row, theirs: Row) -> Row | None:
        base = None if entity.id in self._ambiguous else entity.base
        merged = dict(ours)
        open_units: list[tuple[str, ...]] = []
        for unit in self._units:
            mine, other = _part(ours, unit), _part(theirs, unit)
            choice = self._choices.properties.get((self._declared.table_id, entity.id, unit[0]))
            if choice is not None:
                merged.update(self._chosen(choice, unit, mine, other))
            elif same_value(mine, other):
                continue
            elif self._choices.granularity == "entity":
                open_units.append(unit)
            elif base is not None and same_value(_part(base, unit), other):
                continue
            elif base is not None and same_value(_part(base, unit), mine):
                merged.update(zip(unit, other, strict=True))
            else:
                open_units.append(unit)
        if self._choices.granularity != "entity":
            self._let_vectors_follow(entity, merged, open_units)
        if not open_units:
            return merged
        inserted = entity.base is None and entity.id not in self._ambiguous
        kind = ConflictKind.DIVERGENT_INSERT if inserted else ConflictKind.DIVERGENT_UPDATE
        if self._choices.strategy is not None:
            for unit in open_units:
                side = ours if self._choices.strategy == "ours" else theirs
                merged.update({column: side[column] for column in unit})
            return merged
        return self._undecided(entity, kind, open_units)

    def _with_values(self, entity: MergeEntity, state: Row | None) -> Row | None:
        """Apply choices for single properties to an entity that is not in conflict."""
        if state is None:
            return None
        merged = dict(state)
        for unit in self._units:
            choice = self._choices.properties.get((self._declared.table_id, entity.id, unit[0]))
            if choice is None:
                continue
            sides = [state if side is None else side for side in (entity.ours, entity.theirs)]
            merged.update(self._chosen(choice, unit, _part(sides[0], unit), _part(sides[1], unit)))
        self._let_vectors_follow(entity, merged, [])
        return merged

    def _let_vectors_follow(
        self, entity: MergeEntity, merged: dict[str, Any], open_units: list[tuple[str, ...]]
    ) -> None:
        """Give each vector with `@embed` to the side whose text it will stand beside; it is never stale.

        Property by property, a side that changed a text and one that filled vectors would agree on the new
        text with the vector of the old one. Where both sides have the text, the vector is merged like any
        other property, but a filled one is no conflict with none; where neither has the text, the vector is
        removed, and the next fill makes one.
        """
        ours, theirs = entity.ours, entity.theirs
        if ours is None or theirs is None:
            return
        for vector, source, nullable in self._embedded:
            if (self._declared.table_id, entity.id, vector) in self._choices.properties:
                continue
            text = merged[source]
            if (source,) in open_units:
                if self._choices.strategy is None:
                    continue  # a conflict about the text is one about its vector
                text = (ours if self._choices.strategy == "ours" else theirs)[source]
            mine, other = same_value([ours[source]], [text]), same_value([theirs[source]], [text])
            if mine and other:
                if (vector,) not in open_units or None not in (ours[vector], theirs[vector]):
                    continue
                mine = ours[vector] is not None  # one side has filled it, the other has not yet
            if mine or other or nullable:
                merged[vector] = ours[vector] if mine else theirs[vector] if other else None
                open_units[:] = [unit for unit in open_units if unit != (vector,)]

    def _chosen(
        self, choice: Take | Value, unit: tuple[str, ...], mine: Sequence[Any], other: Sequence[Any]
    ) -> dict[str, Any]:
        if isinstance(choice, Value):
            field = self._declared.stored_schema.field(unit[0])
            value = pa.table([pa.array([choice.stored], field.type)], schema=pa.schema([field]))
            return to_python(value.cast(pa.schema([self._wide.field(unit[0])])))[0]
        return dict(zip(unit, mine if choice == "ours" else other, strict=True))

    def _undecided(
        self, entity: MergeEntity, kind: ConflictKind, units: Sequence[tuple[str, ...]]
    ) -> Row | None:
        if self._choices.strategy is not None:
            return entity.side(self._choices.strategy)
        self._report(entity, kind, [column for unit in units for column in unit], _said(entity, kind))
        return entity.ours

    def _report(self, entity: MergeEntity, kind: ConflictKind, columns: Sequence[str], said: str) -> None:
        properties = tuple(self._property(column, entity) for column in columns)
        declared = self._declared
        ends = self._ends(entity)
        named = (
            f"{declared.name} {entity.id!r}" if ends is None else edge_text(declared.name, entity.id, ends)
        )
        what = f"{declared.kind.value} {named}"
        values = f": {_list(properties)}" if properties else ""
        message = f"{kind.value}: {what} {said}{values}"
        self.conflicts.append(
            Conflict(declared.kind.value, declared.name, kind, message, entity.id, properties, ends=ends)
        )

    def _ends(self, entity: MergeEntity) -> tuple[str, str] | None:
        row = entity.ours or entity.theirs or entity.base
        if row is None or not isinstance(self._declared, EdgeType):
            return None
        source, target = (row[column] for column in ENDPOINTS)
        return source, target

    def _property(self, column: str, entity: MergeEntity) -> PropertyConflict:
        kind = self._wide.field(column).type
        states = (entity.base, entity.ours, entity.theirs)
        values = (None if row is None else json_value(row[column], kind) for row in states)
        return PropertyConflict(column_name(column, self._declared), *values)


def _said(entity: MergeEntity, kind: ConflictKind) -> str:
    match kind:
        case ConflictKind.DELETE_VS_UPDATE:
            first, second = ("removed", "changed") if entity.ours is None else ("changed", "removed")
            return f"was {first} on the target and {second} on the source"
        case ConflictKind.DIVERGENT_INSERT:
            return "was inserted on both sides with different values"
        case _:
            return "was changed on both sides"


def _list(properties: Sequence[PropertyConflict]) -> str:
    return ", ".join(
        f"{disputed.name} ({disputed.ours!r} here, {disputed.theirs!r} there)" for disputed in properties[:3]
    )


def _units(declared: TableType) -> tuple[tuple[str, ...], ...]:
    """Return what is merged as one: each property by itself, the ends of an edge together."""
    single = tuple((p.column,) for p in declared.properties)
    return (ENDPOINTS, *single) if isinstance(declared, EdgeType) else single


def _embedded(declared: TableType) -> tuple[tuple[str, str, bool], ...]:
    """Return the columns of vectors that stand for texts, those of the texts, and which may be null."""
    return tuple(
        (member.column, declared.column_of(member.embed.source), member.type.nullable)
        for member in declared.properties
        if member.embed is not None
    )


def _part(row: Row, unit: tuple[str, ...]) -> list[Any]:
    return [row[column] for column in unit]


def _same_state(first: Row | None, other: Row | None) -> bool:
    if first is None or other is None:
        return first is other
    return _same_row(first, other)


def _same_row(first: Row, other: Row) -> bool:
    return all(same_value(first[column], other[column]) for column in first)


def _ids_in_both(ours: Delta, theirs: Delta) -> list[str]:
    mine = ours.ids
    return list(mine.filter(pc.is_in(mine, value_set=theirs.ids)).to_pylist())


def _unheld_ids(delta: Delta, narrow: Mapping[str, pa.DataType]) -> set[str]:
    """Return the entities that a side gave values which a narrower type cannot hold exactly."""
    ids: set[str] = set()
    for table in (delta.inserted, delta.after) if narrow else ():
        for column, kind in narrow.items():
            lost = narrowed(table[column].combine_chunks(), kind)[1]
            ids.update(table[ID].filter(pa.array(lost)).to_pylist())
    return ids


def _values(ids: set[str]) -> pa.Array:
    return pa.array(sorted(ids), pa.string())


def _rows(table: pa.Table, ids: set[str]) -> dict[str, Row]:
    if not ids or not table.num_rows:
        return {}
    rows = to_python(table.filter(pc.is_in(table[ID], value_set=_values(ids))))
    return {row[ID]: row for row in rows}


# -- the outcome for one type ----------------------------------------------------------------------
#
# A type is merged in this process (write.py), or elsewhere if it is too large for it; the plan does not see
# the difference.


@dataclass(frozen=True)
class Counts:
    """What a merge brings to one type."""

    declared: TableType
    inserted: int
    updated: int
    deleted: int

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Inserted, updated, deleted."""
        return self.inserted, self.updated, self.deleted


@dataclass(frozen=True, slots=True)
class Dropped(JsonFields):
    """What the target loses with the schema: the rows of a type, or the values of a property."""

    json_names: ClassVar = {"type_name": "type", "property_name": "property"}

    kind: str
    type_name: str
    property_name: str | None
    rows: int


@dataclass(frozen=True)
class Conflicts:
    """What the sides themselves do not agree on: the first ones, and how many there are."""

    first: tuple[Conflict, ...] = ()
    total: int = 0


@dataclass(frozen=True, eq=False)
class MergedType:
    """The outcome for one type and how it gets there."""

    counts: Counts
    judged: TypeChange  # what the evaluator looks at: everything that is new to what counts as stored
    conflicts: Conflicts = Conflicts()
    met: frozenset[str] = frozenset()  # ids that a choice decided about
    adopted: Adopted | None = None
    image: Pin | None = None  # what the evaluator takes as stored, where that is not the target's version
    effect: Effect | None = None  # what is written on top of the target's version, or of the adopted one
    values: Findings = field(default_factory=Findings)  # of rows that are not in this process

    @property
    def table_id(self) -> str:
        """The table of the type."""
        return self.judged.table_id

    @property
    def changes(self) -> bool:
        """Say whether the merge brings anything to the type."""
        return any(self.counts.numbers)


@dataclass(frozen=True)
class States:
    """Where a merge starts, and the two sides of it."""

    base: ManifestState
    target: ManifestState
    source: ManifestState


class LargeTypes(Protocol):
    """Whoever merges types that are too large for this process."""

    def __call__(self, declared: TableType, states: States, choices: Choices) -> MergedType | None:
        """Merge what both sides did to a type; None if it is small enough to be merged here."""
        ...
