"""Draft: run the statements of a mutation against a base, in order, writing nothing.

    checked mutation + parameters -> **draft** -> judged, staged, published

A pure function of its transaction, so that a lost race runs it again. Later statements see earlier ones.
A delete takes the edges of its nodes along, whatever their type.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.ids import new_id
from omnigraph.base.times import DAY_MS
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.keys import NoCanonicalText, derive_id, ids_of_keys
from omnigraph.catalog.model import ID, EdgeType, NodeType, TableType
from omnigraph.catalog.query.expressions import Condition, ParamRef, Values
from omnigraph.catalog.query.params import INLINE
from omnigraph.catalog.query.statements import (
    Assignment,
    CheckedMutation,
    Delete,
    Insert,
    Update,
    assigned_value,
    place_name,
)
from omnigraph.catalog.types import LARGEST_ROW, Scalar, repeated, row_too_large
from omnigraph.engine.change import ChangeSet, TypeChange, last_of_each
from omnigraph.engine.write import Draft
from omnigraph.execution.conditions import (
    StoredRows,
    holds,
    pinned_column,
    pruning,
    stored_column,
    stored_columns,
)
from omnigraph.language.literals import DefaultNow
from omnigraph.storage.transaction import WriteTxn

# -- search --------------------------------------------------------------------------------------
#
# The rows that the condition of an update or delete is true of. A condition that pins one column to some
# values is looked up by them, which costs the same in a table of any size where the column has an index; a
# key is looked up as the id it makes. A look-up or a scan gives all rows that may meet the condition, and
# perhaps others: the judge of read conditions (execution/conditions.py) decides which do.


class RowSearch:
    """A condition on the rows of a type, with its parameters filled in."""

    def __init__(self, condition: Condition, declared: TableType, values: Values, now_ms: int) -> None:
        self._condition = condition
        self._declared = declared
        self._request = StoredRows(values, now_ms)
        self._pinned = _pinned(condition, declared, self._request)

    def run(self, txn: WriteTxn, columns: Sequence[str]) -> pa.Table:
        """Return some columns of the committed rows that meet the condition."""
        read = list(dict.fromkeys([*columns, *stored_columns(self._condition)]))
        table_id = self._declared.table_id
        if self._pinned is None:
            predicate = pruning([self._condition], self._request)
            return txn.where(table_id, predicate, read, self._holds).select(list(columns))
        column, values = self._pinned
        rows = txn.lookup(table_id, column, values, read)
        return self.among(rows).select(list(columns))

    def among(self, rows: pa.Table) -> pa.Table:
        """Return the rows of a table in memory that meet the condition."""
        return rows.filter(self._holds(rows))

    def _holds(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        return holds(self._condition, replace(self._request, rows=rows))


def _pinned(condition: Condition, declared: TableType, request: StoredRows) -> tuple[str, pa.Array] | None:
    """Return the column that a condition pins, and to which values; a key is pinned as the id it makes."""
    pinned = pinned_column(condition, request)
    if pinned is None:
        return None
    column = stored_column(pinned.of)
    if isinstance(declared, NodeType) and len(declared.key) == 1:
        key = declared.property_by_id(declared.key[0])
        if key.column == column:
            return ID, ids_of_keys(pinned.values, key.type)
    return column, pinned.values


# -- pending ---------------------------------------------------------------------------------------
#
# The rows that a mutation has written so far, seen by its own later statements: an overlay on the base,
# where a pending row hides the committed one with its id. Statements come in order; of several rows with
# one id the last one counts.


@dataclass
class Pending:
    """What is written to one type."""

    declared: TableType
    minted: bool = True  # nothing but new ids so far
    inserted: list[Mapping[str, Any]] = field(default_factory=list)  # rows by stored column
    _tables: list[pa.Table] = field(default_factory=list)

    def update(self, txn: WriteTxn, search: RowSearch, values: Mapping[str, pa.Scalar]) -> int:
        """Give matching rows new values; return how many there were."""
        mine = self.rows()
        touched = pa.concat_tables([self._committed(txn, search, mine), search.among(mine)])
        touched = without_stale_vectors(self.declared, touched, values)
        for name, value in values.items():
            position = touched.schema.get_field_index(name)
            column = repeated(value, touched.num_rows)
            touched = touched.set_column(position, touched.schema.field(name), column)
        if touched.num_rows:
            self._tables.append(touched)
            self.minted = False
        return int(touched.num_rows)

    def _committed(self, txn: WriteTxn, search: RowSearch, mine: pa.Table) -> pa.Table:
        schema = self.declared.stored_schema
        rows = search.run(txn, schema.names).cast(schema)
        hidden = pc.is_in(rows[ID], value_set=mine[ID].combine_chunks())
        return rows.filter(pc.invert(hidden))

    def rows(self) -> pa.Table:
        """Return the rows so far, one for each id."""
        schema = self.declared.stored_schema
        if self.inserted:
            columns = [pa.array([row.get(f.name) for row in self.inserted], f.type) for f in schema]
            self._tables.append(pa.table(columns, schema=schema))
            self.inserted = []
        if len(self._tables) != 1:
            self._tables = [pa.concat_tables([schema.empty_table(), *self._tables])]
        if not self.minted and self._tables[0].num_rows > 1:
            self._tables = [last_of_each(self._tables[0])]
        return self._tables[0]

    def change(self) -> TypeChange:
        """Return what happens to the type."""
        rows = self.rows()
        return TypeChange(self.declared, rows, minted=self.minted and rows.num_rows > 0)


# A vector with `@embed` stands for a text. A statement that gives a row another text and no vector takes the
# old vector away: the next fill makes a new one. No vector is better than that of another text.


def without_stale_vectors(declared: TableType, rows: pa.Table, values: Mapping[str, pa.Scalar]) -> pa.Table:
    """Return the rows without those vectors whose text will be another one; `values` are what is assigned."""
    for member in declared.properties:
        if member.embed is None or member.column in values:
            continue
        source = declared.column_of(member.embed.source)
        if source not in values:
            continue
        stale = pc.and_(_differs(rows[source], values[source]), rows[member.column].is_valid())
        if not pc.any(stale).as_py():
            continue
        if not member.type.nullable:
            text = declared.name_of(member.embed.source)
            raise InvalidRequest(
                f"{declared.name}.{member.name} is the vector of {declared.name}.{text}, which changes, "
                "and it is required",
                remedy=f"Set {member.name} as well, or declare it as {member.type}?, which a fill may follow",
            )
        position = rows.schema.get_field_index(member.column)
        kept = pc.if_else(stale, pa.scalar(None, rows.schema.field(position).type), rows[member.column])
        rows = rows.set_column(position, rows.schema.field(position), kept)
    return rows


def _differs(column: pa.ChunkedArray, value: pa.Scalar) -> pa.ChunkedArray:
    if not value.is_valid:
        return column.is_valid()
    return pc.invert(pc.fill_null(pc.equal(column, value), False))


# -- statements ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One run of a mutation: the statements, the values of its parameters, the time."""

    mutation: CheckedMutation
    values: Values
    now_ms: int

    def draft(self, txn: WriteTxn, catalog: Catalog) -> Draft:
        """Say what the mutation changes on this base: it deletes, or it inserts and updates."""
        if self.mutation.destructive:
            return self._deletes(txn, catalog)
        pending = {target.id: Pending(target) for target in self.mutation.targets}
        decided: set[str] = set()
        nodes = edges = 0
        for statement in self.mutation.statements:
            target = statement.target
            if isinstance(statement, Insert):
                self._insert(statement, pending[target.id])
                count = 1
            elif isinstance(statement, Update):
                count = self._update(txn, statement, pending[target.id])
                decided.add(target.id)
            else:
                raise AssertionError("a mutation writes or deletes, never both")
            if isinstance(target, EdgeType):
                edges += count
            else:
                nodes += count
        changes = [part.change() for part in pending.values()]
        change = ChangeSet.of(catalog, [part for part in changes if part.rows.num_rows])
        return Draft(change, frozenset(decided), nodes, edges)

    # -- insert and update -------------------------------------------------------------------------

    def _insert(self, statement: Insert, pending: Pending) -> None:
        target, today = statement.target, self.now_ms // DAY_MS
        row: dict[str, Any] = {}
        for member in target.properties:
            if isinstance(member.default, DefaultNow):
                row[member.column] = today if member.type.scalar is Scalar.DATE else self.now_ms
            else:
                row[member.column] = member.default
        row |= self._assigned(statement.assignments, target)
        if target.key:
            try:
                row[ID] = derive_id(target, row)
            except NoCanonicalText:  # the key has no value: that is reported with the other values
                row[ID] = None
            pending.minted = False
        else:
            row[ID] = new_id()
        pending.inserted.append(row)

    def _update(self, txn: WriteTxn, statement: Update, pending: Pending) -> int:
        target = statement.target
        search = RowSearch(statement.where, target, self.values, self.now_ms)
        types = target.stored_schema
        values = {
            column: pa.scalar(value, types.field(column).type)
            for column, value in self._assigned(statement.assignments, target).items()
        }
        return pending.update(txn, search, values)

    def _assigned(self, assignments: tuple[Assignment, ...], target: TableType) -> dict[str, Any]:
        """Return the values to store by column, each of its property's own type."""
        row: dict[str, Any] = {}
        size = 0
        for assignment in assignments:
            place, operand = assignment.place, assignment.operand
            value = self.values[operand.parameter.name] if isinstance(operand, ParamRef) else None
            # Text is stored as it is given, other values must fit the property.
            if not isinstance(value, str):
                value = assigned_value(assignment, target, self.values, self.now_ms)
            if isinstance(value, tuple):
                row[place.column] = list(value)
            elif place.type.scalar is Scalar.BLOB and isinstance(value, str):
                row[place.column] = _bytes(value, assignment)
            else:
                row[place.column] = value
            size += _bytes_of(row[place.column])
            if size > LARGEST_ROW:
                raise InvalidRequest(
                    f"{target.name}.{place_name(place)}: {row_too_large(size)}",
                    remedy="Keep it elsewhere and store its address, or cut it into several rows",
                    limit=LARGEST_ROW,
                )
        return row

    # -- delete ------------------------------------------------------------------------------------

    def _deletes(self, txn: WriteTxn, catalog: Catalog) -> Draft:
        gone: dict[str, pa.Array] = {}
        decided: set[str] = set()
        for statement in self.mutation.statements:
            if not isinstance(statement, Delete):
                raise AssertionError("a mutation writes or deletes, never both")
            target = statement.target
            search = RowSearch(statement.where, target, self.values, self.now_ms)
            ids = search.run(txn, [ID])[ID]
            decided.add(target.id)
            _add(gone, target.id, ids)
            if isinstance(target, NodeType):
                decided |= _cascade(txn, catalog, target, ids.combine_chunks(), gone)
        changes = [
            TypeChange(declared, declared.stored_schema.empty_table(), removed=ids)
            for table_id, ids in gone.items()
            if len(ids)
            for declared in [catalog.table(table_id)]
        ]
        nodes = sum(len(c.removed) for c in changes if isinstance(c.declared, NodeType))
        edges = sum(len(c.removed) for c in changes if isinstance(c.declared, EdgeType))
        return Draft(ChangeSet.of(catalog, changes), frozenset(decided), nodes, edges)


def _cascade(
    txn: WriteTxn, catalog: Catalog, node: NodeType, ids: pa.Array, gone: dict[str, pa.Array]
) -> set[str]:
    """Collect the edges that name these nodes; return the edge tables that were looked at."""
    touched = set()
    for edge in catalog.edges:
        for column, end in (("src", edge.source), ("dst", edge.target)):
            if end == node.id:
                touched.add(edge.id)
                if len(ids):
                    _add(gone, edge.id, txn.lookup(edge.id, column, ids, [ID])[ID])
    return touched


def _add(gone: dict[str, pa.Array], table_id: str, ids: pa.ChunkedArray) -> None:
    known = gone.get(table_id, pa.array([], pa.string()))
    gone[table_id] = pc.unique(pa.chunked_array([known, *ids.chunks], pa.string()))


def _bytes_of(value: Any) -> int:
    """Return how much room a value takes where that can be much."""
    if isinstance(value, list):
        return sum(map(_bytes_of, value)) + 8 * len(value)
    return len(value) if isinstance(value, str | bytes) else 0


def _bytes(text: str, assignment: Assignment) -> bytes:
    if not text.startswith(INLINE):
        raise InvalidRequest(
            f"property {place_name(assignment.place)!r}: external blobs are not allowed here",
            remedy="Give the bytes as base64:...",
        )
    return base64.b64decode(text.removeprefix(INLINE), validate=True)
