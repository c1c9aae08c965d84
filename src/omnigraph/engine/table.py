"""Table: `graph.nodes` and `graph.edges`: the entities of one type in one state, under the names of today.

The type is declared as the state has it (catalog/past.py): a rename since then is followed, a property that
did not exist yet reads as null, and a type that did not exist is refused.

Nothing is read before rows are asked for, and then only the columns that are needed. A filter by values is
a look-up, in an index where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.arguments import checked_methods
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.model import ENDPOINTS, TEXT, EdgeType, TableType
from omnigraph.catalog.past import stored_column
from omnigraph.catalog.query import BadParameters, Parameter, bind_params
from omnigraph.catalog.types import PropertyType, Scalar, readable
from omnigraph.engine.history.resolve_at import check_existed
from omnigraph.execution.result import Rows
from omnigraph.language.diagnostics import did_you_mean
from omnigraph.storage.lance_reads import scanner
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.predicate import both_zeros
from omnigraph.storage.transaction import PinnedSnapshot

ID = "id"


@checked_methods
@dataclass(frozen=True, eq=False, repr=False)
class TypeRows(Rows):
    """The nodes or edges of one type, by id; read when rows are asked for."""

    reads_later: ClassVar[bool] = True  # when it is gone through: it may take long

    _store: GraphStore
    snapshot: PinnedSnapshot
    declared: TableType  # as the snapshot has it
    _selected: tuple[str, ...] | None = None
    _values: Mapping[str, pa.Array] = FrozenMap()  # what a column may hold
    _condition: pc.Expression | None = None

    @property
    def commit_id(self) -> str:  # type: ignore[override]
        """The commit that is read."""
        return self.snapshot.commit_id

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns: `id`, the ends of an edge, the properties; or those that are selected."""
        return self._selected if self._selected is not None else tuple(self._types)

    def __len__(self) -> int:
        if self._values or self._condition is not None or "table" in vars(self):
            return super().__len__()
        return self.snapshot.pin(self.declared.table_id).rows

    def select(self, *columns: str) -> TypeRows:
        """Keep some columns, in this order; without names, all there are."""
        for name in columns:
            self._check_name(name)
        if len(set(columns)) < len(columns):
            raise InvalidRequest("select: a column is named twice", remedy="Name each of them once")
        return replace(self, _selected=columns or None)

    def filter(self, condition: pc.Expression | None = None, /, **values: Any) -> TypeRows:
        """Keep the rows whose columns have these values; a list means one of them, None means null.

        Values are written as those of query parameters. Other conditions are Arrow expressions on the columns
        of `to_arrow`, as `pyarrow.compute.field("age") > 30`.
        """
        bound = {name: bound_filter(self.declared, name, value) for name, value in values.items()}
        for name in set(bound) & set(self._values):
            bound[name] = bound[name].filter(pc.is_in(bound[name], value_set=self._values[name]))
        if condition is not None:
            self._check_condition(condition)
            condition = condition if self._condition is None else self._condition & condition
        return replace(
            self,
            _values=FrozenMap({**self._values, **bound}),
            _condition=self._condition if condition is None else condition,
        )

    @cached_property
    def table(self) -> pa.Table:
        """The rows, in stored types."""
        check_existed(self.snapshot, self.declared)
        shown = [*self.columns, *(name for name in self._values if name not in self.columns)]
        names = shown if self._condition is None else list(self._types)
        with self._store.reading(self.snapshot.state, tables=(self.declared.table_id,)):
            rows = self._read(names).sort_by(ID)
        columns = {name: self._column(rows, name) for name in names}
        table = pa.table(columns)
        for name, values in self._values.items():
            table = table.filter(pc.is_in(table[name], value_set=values))
        if self._condition is not None:
            table = self._meeting(table)
        return table.select(self.columns)

    def _meeting(self, table: pa.Table) -> pa.Table:
        """Return the rows that meet the condition."""
        numbered = _readable(table).append_column("", pa.array(range(table.num_rows)))
        return table.take(numbered.filter(self._condition).column(table.num_columns))

    # -- names and types ---------------------------------------------------------------------------

    @cached_property
    def _types(self) -> dict[str, PropertyType]:
        """The columns that there are."""
        return column_types(self.declared)

    @cached_property
    def _stored(self) -> dict[str, str]:
        """The stored columns, by the names of today; a property of a later schema has none."""
        kept = [p for p in self.declared.properties if stored_column(p) is not None]
        names = {p.name for p in self.declared.properties}
        return {name: name for name in self._types if name not in names} | {p.name: p.column for p in kept}

    def _check_name(self, name: str) -> None:
        check_column(self.declared, name)

    def _check_condition(self, condition: pc.Expression) -> None:
        empty = pa.table({name: pa.nulls(0, kind.arrow) for name, kind in self._types.items()})
        try:
            _readable(empty).filter(condition)
        except (pa.ArrowException, TypeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise InvalidRequest(f"filter of {self.declared.name}: {reason}") from error

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, names: list[str]) -> pa.Table:
        """Return the stored columns of the rows that may be wanted: of one value's, or of all."""
        handle = self._store.table(self.snapshot, self.declared.table_id)
        columns = list(dict.fromkeys([ID, *(self._stored[name] for name in names if name in self._stored)]))
        for name, values in self._values.items():
            column = self._stored.get(name)
            if column and not values.null_count and handle.schema.field(column).type == values.type:
                table_id = self.declared.table_id
                version = self.snapshot.pin(table_id).version
                return self._store.reads.lookup(table_id, version, column, values, columns)
        return scanner(handle, columns=columns).to_table()

    def _column(self, rows: pa.Table, name: str) -> pa.ChunkedArray:
        kind = self._types[name].arrow
        if name not in self._stored:
            return pa.chunked_array([pa.nulls(rows.num_rows, kind)])
        return rows[self._stored[name]].cast(kind)


def column_types(declared: TableType) -> dict[str, PropertyType]:
    """Return the columns that callers know of a type: `id`, the ends of an edge, the properties."""
    fixed = (ID, *ENDPOINTS) if isinstance(declared, EdgeType) else (ID,)
    return {**dict.fromkeys(fixed, TEXT), **{p.name: p.type for p in declared.properties}}


def check_column(declared: TableType, name: str) -> None:
    """Refuse a name that no column has."""
    types = column_types(declared)
    if name not in types:
        known = did_you_mean(name, list(types)) or f"there are {', '.join(types)}"
        raise InvalidRequest(f"{declared.name} has no column {name!r}: {known}")


def bound_filter(declared: TableType, name: str, value: Any) -> pa.Array:
    """Return what a column may hold, of a value or a list of values as callers write them."""
    check_column(declared, name)
    kind = replace(column_types(declared)[name], nullable=True, enum_values=None)
    if kind.is_list or kind.scalar in (Scalar.VECTOR, Scalar.BLOB):
        raise InvalidRequest(
            f"{declared.name}.{name} is {kind}: a filter compares single values",
            remedy="Filter with an Arrow expression, or with a query",
        )
    items = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
    try:
        bound = [bind_params([Parameter(name, kind)], {name: item})[name] for item in items]
    except BadParameters as error:
        raise InvalidRequest(f"filter of {declared.name}: {error.message}") from None
    return both_zeros(pa.array(bound, kind.arrow))


def _readable(table: pa.Table) -> pa.Table:
    columns = [column.cast(readable(column.type)) for column in table.columns]
    return pa.table(dict(zip(table.column_names, columns, strict=True)))
