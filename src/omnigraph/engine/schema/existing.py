"""Existing: do the rows that are there satisfy what a schema change newly asks of them?

Room    engine.schema. Runs the checks of engine.validate over the image of each type that a step concerns.
Gives   findings; the first twenty and the total, nothing raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import ENDPOINTS, Cardinality, Check, EdgeType, Index, Range, TableType, Unique
from omnigraph.catalog.steps import AddConstraint, AlterProperty, AnyConstraint, Effect, EnumSet, Step
from omnigraph.engine.validate import values as checks
from omnigraph.engine.validate.relation import Findings, Violation
from omnigraph.execution.result import json_values

# -- image ---------------------------------------------------------------------------------------
#
# The rows of a type as they will be under a desired schema, before anything is written.
# Constraints that a schema change adds are judged on this, so that a plan which
# adds a column and a constraint on it at once is judged as a whole.
# Given   the table as it is, the type as it shall be, and where each column's values come from.


ID = "id"


@dataclass(frozen=True)
class ColumnSource:
    """Where the values of a desired column come from: a stored column, a value for nulls, or both."""

    stored: str | None
    fill: pa.Scalar | None = None


@dataclass(frozen=True)
class Image:
    """One type under the desired schema."""

    declared: TableType
    handle: Any
    sources: Mapping[str, ColumnSource]  # by property id

    def batches(self, properties: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield `id` and some properties (or endpoints), named by their ids."""
        stored = {p: p if p in ENDPOINTS else self.sources[p].stored for p in properties}
        wanted = list(dict.fromkeys([ID, *(column for column in stored.values() if column is not None)]))
        for batch in self.handle.scanner(columns=wanted).to_batches():
            columns = {ID: batch[ID], **{p: self._values(batch, p) for p in properties}}
            yield pa.record_batch(list(columns.values()), names=list(columns))

    def table(self, properties: Sequence[str]) -> pa.Table:
        """Return `id` and some properties of all rows."""
        found = list(self.batches(properties))
        if not found:
            return pa.table({name: pa.array([], pa.string()) for name in (ID, *properties)})
        return pa.Table.from_batches(found)

    def _values(self, batch: pa.RecordBatch, identity: str) -> pa.Array:
        if identity in ENDPOINTS:
            return batch[identity]
        source, arrow = self.sources[identity], self.declared.property_by_id(identity).type.arrow
        if source.stored is None:
            missing = source.fill is None  # a fill of `false` is one
            return pa.nulls(batch.num_rows, arrow) if missing else pa.repeat(source.fill, batch.num_rows)
        values = batch[source.stored].cast(arrow)
        return pc.fill_null(values, source.fill) if source.fill is not None else values


# -- existing ------------------------------------------------------------------------------------


def needs_rows(step: Step) -> TypeGuard[AddConstraint | AlterProperty]:
    """Say whether existing rows must be looked at before this step."""
    match step:
        case AddConstraint():
            return step.effect is not Effect.METADATA
        case AlterProperty():
            return step.must_not_be_null and step.effect is not Effect.METADATA
        case _:
            return False


def judge(steps: Iterable[Step], images: dict[str, Image]) -> Findings:
    """Judge the rows of every type that a step asks more of."""
    found = Findings()
    for step in filter(needs_rows, steps):
        image = images[step.type_id]
        if isinstance(step, AddConstraint):
            found += _constraint(image, step.constraint)
        else:
            found += _required(image, step.property_id)
    return found


def _constraint(image: Image, constraint: AnyConstraint) -> Findings:
    match constraint:
        case Unique(properties):
            return _unique(image, properties)
        case Range(identity, low, high):
            bounds = f"{'' if low is None else f'{low:g}'}..{'' if high is None else f'{high:g}'}"
            text = f"@range violation on {_place(image, identity)}: value {{}} is outside {bounds}"
            return _values(image, identity, "range", text, constraint)
        case Check(identity, pattern):
            shown = pattern.replace("{", "{{").replace("}", "}}")
            text = f"@check violation on {_place(image, identity)}: value {{!r}} does not match '{shown}'"
            return _values(image, identity, "check", text, constraint)
        case EnumSet(identity, values):
            text = f"invalid enum value {{!r}} for {_place(image, identity)} (expected: {', '.join(values)})"
            return _values(image, identity, "enum", text, constraint)
        case Cardinality():
            return _cardinality(image, constraint)
        case Index():
            return Findings()  # an index never looks at rows


def _values(
    image: Image, identity: str, code: str, text: str, constraint: Range | Check | EnumSet
) -> Findings:
    found = Findings()
    name = image.declared.name_of(identity)
    for batch in image.batches([identity]):
        values = batch[identity]
        match constraint:
            case Range():
                mask = checks.outside_range(values, constraint)
            case Check():
                mask = checks.unmatched(values, constraint)
            case EnumSet():
                mask = checks.outside_enum(values, constraint.values)
        found = _first(found, batch, mask, values, code, (*_kind(image.declared), name), text)
    return found


def _first(
    found: Findings,
    batch: pa.RecordBatch,
    mask: pa.Array,
    values: pa.Array,
    code: str,
    place: tuple[str, str, str],
    text: str,
) -> Findings:
    """Add what a batch breaks; those with the least ids are shown, wherever their rows lie."""
    wrong = pc.indices_nonzero(mask)
    if not len(wrong):
        return found
    ids = batch["id"].take(wrong)
    order = wrong.take(pc.sort_indices(ids))
    every = pa.repeat(pa.scalar(True), len(order))
    more = checks.by_row(every, batch["id"].take(order), values.take(order), code, place, text)
    shown = sorted((*found.violations, *more.violations), key=lambda one: one.entity_id or "")
    return Findings.of(shown, found.total + more.total)


def _required(image: Image, identity: str) -> Findings:
    found = Findings()
    name = image.declared.name_of(identity)
    text = f"required property {_place(image, identity)} has no value"
    for batch in image.batches([identity]):
        values = batch[identity]
        place = (*_kind(image.declared), name)
        found = _first(found, batch, checks.missing(values), values, "required", place, text)
    return found


def _unique(image: Image, properties: tuple[str, ...]) -> Findings:
    several = checks.shared(image.table(properties), properties)
    kind, type_name = _kind(image.declared)
    names = [image.declared.name_of(p) for p in properties]
    place = f"{type_name}.{names[0]}" if len(names) == 1 else f"{type_name}.({', '.join(names)})"
    violations = []
    ordered = several.sort_by("a")
    columns = [json_values(column) for column in ordered.columns]
    for values in zip(*columns, strict=True):
        row = dict(zip(ordered.column_names, values, strict=True))
        value = ", ".join(str(row[f"k{position}"]) for position in range(len(names)))
        shown = f"'{value}'" if len(names) == 1 else f"'({value})'"
        message = f"@unique violation on {place}: value {shown} held by {row['a']!r} and {row['b']!r}"
        violations.append(Violation("unique", kind, type_name, message, row["a"], ", ".join(names)))
    return Findings.of(violations)


def _cardinality(image: Image, card: Cardinality) -> Findings:
    wrong = checks.outside_cardinality(image.table(["src"])["src"], card)
    kind, type_name = _kind(image.declared)
    violations = []
    for row in wrong.to_pylist():
        limit = f"min {card.low}" if row["n"] < card.low else f"max {card.high}"
        message = (
            f"@card violation on edge {type_name}: source {row['source']!r} has {row['n']} edges ({limit})"
        )
        violations.append(Violation("cardinality", kind, type_name, message))
    return Findings.of(violations)


def _kind(declared: TableType) -> tuple[str, str]:
    return "edge" if isinstance(declared, EdgeType) else "node", declared.name


def _place(image: Image, identity: str) -> str:
    return f"{image.declared.name}.{image.declared.name_of(identity)}"
