"""Existing rows: do they satisfy what a schema change newly asks of them?

    steps -> demands, the rows under the desired schema -> **the evaluator of writes** -> findings

The rows of a type are seen as they will be once the change is published: widened, filled, in the new columns.
So a plan that adds a column and a constraint on it is judged as a whole, before anything is written. The
evaluator in engine.validate judges a stream, and groups spill to disk: no table has to fit into memory.

Only what is new is asked: rows that break an older rule do not stop a change that is not about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeGuard, assert_never

import pyarrow as pa

from omnigraph.base.dataclass import dataclass
from omnigraph.base.times import DAY_MS
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import (
    ENDPOINTS,
    ID,
    Cardinality,
    Check,
    Index,
    Property,
    Range,
    TableType,
    Unique,
)
from omnigraph.catalog.steps import AddConstraint, AlterProperty, Effect, EnumSet, Step
from omnigraph.catalog.types import Scalar
from omnigraph.engine.change import ChangeSet
from omnigraph.engine.validate.evaluate import in_order, judge_sets, questions_of_stored
from omnigraph.engine.validate.executors import FrameExecutor, streamed
from omnigraph.engine.validate.relation import Findings
from omnigraph.engine.validate.values import findings_of, value_breaches
from omnigraph.language.literals import DefaultNow, DefaultValue
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.predicate import quoted
from omnigraph.storage.tables.reads import frame

if TYPE_CHECKING:
    from datafusion import SessionContext

# -- what a change asks of rows ------------------------------------------------------------------------


@dataclass
class Demands:
    """What a change newly asks of the rows of one type."""

    declared: TableType  # as it shall be
    values: set[tuple[str, str]] = field(
        default_factory=set
    )  # what a row can break by itself: (code, property id)
    sets: list[Unique | Cardinality] = field(default_factory=list)  # what rows can break together

    @property
    def members(self) -> list[Property]:
        """The properties whose values are judged row by row."""
        judged = {identity for _, identity in self.values}
        return [member for member in self.declared.properties if member.id in judged]

    def add(self, step: AddConstraint | AlterProperty) -> None:
        """Add what a step asks."""
        if isinstance(step, AlterProperty):
            self.values.add(("required", step.property_id))
            return
        match step.constraint:
            case Range(property=identity):
                self.values.add(("range", identity))
            case Check(property=identity):
                self.values.add(("check", identity))
            case EnumSet(property=identity):
                self.values.add(("enum", identity))
            case Unique() | Cardinality() as constraint:
                self.sets.append(constraint)
            case Index():
                pass  # an index never looks at rows
            case constraint:
                assert_never(constraint)


def needs_rows(step: Step) -> TypeGuard[AddConstraint | AlterProperty]:
    """Say whether existing rows must be looked at before this step."""
    match step:
        case AddConstraint():
            return step.effect is not Effect.METADATA
        case AlterProperty():
            return step.must_not_be_null and step.effect is not Effect.METADATA
        case _:
            return False


def demands_of(steps: Iterable[Step], desired: Catalog) -> list[Demands]:
    """Return what steps newly ask of existing rows, type by type."""
    by_type: dict[str, Demands] = {}
    for step in filter(needs_rows, steps):
        by_type.setdefault(step.type_id, Demands(desired.table(step.type_id))).add(step)
    return list(by_type.values())


# -- rows under the desired schema ---------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnSource:
    """Where the values of a desired column come from: a stored column, a value for nulls, or both."""

    stored: str | None
    fill: pa.Scalar | None = None


def scalar(value: DefaultValue, arrow: pa.DataType, now_ms: int) -> pa.Scalar:
    """Return a default as a stored value."""
    if isinstance(value, DefaultNow):
        return pa.scalar(now_ms // DAY_MS if pa.types.is_date32(arrow) else now_ms, arrow)
    return pa.scalar(value, arrow)


@dataclass(frozen=True)
class DesiredRows:
    """The stored rows of each type, in the columns that the type has under the desired schema."""

    desired: Catalog
    table: Callable[[str], Handle]  # opens a table by its id
    sources: Callable[[TableType], Mapping[str, ColumnSource]]  # by property id

    def frame(self, context: SessionContext, table_id: str) -> Any:
        """Return all rows of a table."""
        from datafusion import col

        declared = self.desired.table(table_id)
        sources = self.sources(declared)
        fixed = [name for name in (ID, *ENDPOINTS) if name in declared.stored_schema.names]
        columns = [_expression(member, sources[member.id]) for member in declared.properties]
        return frame(context, self.table(table_id)).select(*map(col, fixed), *columns)

    def batches(self, declared: TableType, members: Sequence[Property]) -> Iterator[pa.RecordBatch]:
        """Yield the ids and some properties of all rows of a type."""
        from datafusion import SessionContext, col

        context = SessionContext()  # held while its frame is read
        rows = self.frame(context, declared.table_id)
        for batch in streamed(rows.select(col(ID), *(col(quoted(member.column)) for member in members))):
            columns = {ID: batch[ID]} | {
                member.column: _typed(batch[member.column], member) for member in members
            }
            yield pa.record_batch(list(columns.values()), names=list(columns))


def _typed(values: pa.Array, member: Property) -> pa.Array:
    """Return values in the declared type; blobs have an encoding of their own."""
    return values if member.type.scalar is Scalar.BLOB else values.cast(member.type.arrow)


def _expression(member: Property, source: ColumnSource) -> Any:
    from datafusion import col, lit
    from datafusion import functions as f

    arrow = member.type.arrow
    if source.stored is None:
        value = lit(None).cast(arrow) if source.fill is None else lit(source.fill)
    else:
        value = col(quoted(source.stored))
        if source.stored != member.column:
            value = value.cast(arrow)
        if source.fill is not None:
            value = f.coalesce(value, lit(source.fill))
    return value.alias(member.column)


# -- judging -------------------------------------------------------------------------------------------


def judge_existing(steps: Iterable[Step], rows: DesiredRows) -> Iterator[Findings]:
    """Judge the rows of every type that a step asks more of: each by itself, then together, as writes do."""
    demands = demands_of(steps, rows.desired)
    yield in_order(findings for demand in demands if demand.values for findings in _by_row(demand, rows))
    questions = [
        question for demand in demands for question in questions_of_stored(demand.declared, demand.sets)
    ]
    yield judge_sets(questions, FrameExecutor(ChangeSet(rows.desired, {}), rows))


def _by_row(demand: Demands, rows: DesiredRows) -> Iterator[Findings]:
    declared, members = demand.declared, demand.members
    rules = {(code, declared.name_of(identity)) for code, identity in demand.values}
    for batch in rows.batches(declared, members):
        breaches = value_breaches(batch, declared, members)
        yield findings_of(
            (breach for breach in breaches if (breach.code, breach.property) in rules), batch, declared
        )
