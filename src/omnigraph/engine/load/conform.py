"""Conform: converted columns of one type become blocks that fit their table.

    input -> columns -> **conform** -> blocks

The same last step for every kind of input: defaults, checks, ids.

Given   one column for each property that the input has; those it lacks are null.
Gives   blocks without the rows that broke a rule, which stand in the report with their positions.
Rule    a default stands in for null before anything is judged. Ids of keyed types are derived, other ids
        taken as given or minted; rows with minted ids go into a block of their own.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, NotFound
from omnigraph.base.ids import new_ids
from omnigraph.catalog import keys
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ENDPOINTS, ID, EdgeType, Property, TableType
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.engine.load.cells import ColumnTarget, InputColumn
from omnigraph.engine.load.fingerprint import Fingerprint
from omnigraph.engine.schema.existing import scalar as default_scalar
from omnigraph.engine.validate.relation import SHOWN, Findings, Violation
from omnigraph.engine.validate.values import (
    Breach,
    breaches_of_years,
    code_rank,
    shown,
    value_breaches,
    violation,
)

# -- problems ----------------------------------------------------------------------------------------
#
# What reading found wrong with an input, each with its origin and position. Filled by sources while they
# read; the load is refused when anything is in it. All are counted, the first few are kept: in the order of
# the inputs, then of the lines, whatever order the checks ran in. So the same input always gives the same
# report. Rows that are left out are counted by their type; a row may have several problems.


@dataclass(slots=True)
class LoadProblems:
    """The first problems of an input, and how many there are in all."""

    shown: int = SHOWN
    total: int = 0
    of_columns: bool = False  # a whole column is wrong, so that no row could be good
    left_out: Counter[str] = field(default_factory=Counter)  # rows by type id; "" where it is not known
    fingerprint: Fingerprint | None = None  # of the rows as they were given, where one is wanted
    _kept: list[tuple[tuple[int, int, int, str, int], Violation]] = field(default_factory=list)
    _origins: dict[str, int] = field(default_factory=dict)

    def add(self, violation: Violation) -> None:
        """Take in one problem of a row that has an origin and a position."""
        assert violation.origin is not None
        assert violation.position is not None
        self.total += 1
        source = self._origins.setdefault(violation.origin, len(self._origins))
        # The running number keeps equal problems in the order found, and violations out of the comparison.
        order = (source, violation.position, code_rank(violation.code), violation.property or "", self.total)
        if len(self._kept) < self.shown or order < self._kept[-1][0]:
            insort(self._kept, (order, violation), key=lambda entry: entry[0])
            del self._kept[self.shown :]

    def keeps(self, origin: str, position: int) -> bool:
        """Say whether a problem there would be kept; the others are only counted, and need no words."""
        if len(self._kept) < self.shown:
            return True
        source = self._origins.get(origin, len(self._origins))
        return (source, position) <= self._kept[-1][0][:2]

    def count(self, more: int) -> None:
        """Take in problems that would not be kept."""
        self.total += more

    def leave_out(self, declared: TableType | None, rows: int) -> None:
        """Take in that rows are left out."""
        self.left_out["" if declared is None else declared.id] += rows

    def breach(
        self, breach: Breach, declared: TableType, ids: pa.Array | None, origin: str, positions: pa.Array
    ) -> None:
        """Take in the rows that break a rule; rows are in the order of their positions."""
        rows = breach.rows()
        for row in rows[: self.shown]:
            position = positions[int(row)].as_py()
            if not self.keeps(origin, position):
                self.count(1)
                continue
            row_id = None if ids is None else ids[int(row)].as_py()
            self.add(violation(breach, int(row), declared, row_id, origin, position))
        self.count(max(len(rows) - self.shown, 0))

    def __bool__(self) -> bool:
        return self.total > 0

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The first problems, by place."""
        return tuple(violation for _, violation in self._kept)

    def findings(self) -> Findings:
        """Return the problems as validation reports them; `.refuse(...)` raises."""
        return Findings(self.violations, self.total)


# -- block -------------------------------------------------------------------------------------------
#
#   input -> **source -> blocks** -> set checks -> publish
#
# Rows on their way into one table, and what a source of them is. The border between reading (sources/) and
# writing: values only, no I/O of its own. The rows of a block fit their table exactly and satisfy every
# value constraint; a row that does not is left out and stands in `LoadProblems`. So a block is good to
# write if the whole input had no problem.


MAX_ROWS = 65_536
MAX_BYTES = 8 * 1024 * 1024

Progress: TypeAlias = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class RowBlock:
    """At most `MAX_ROWS` rows of one type, in the order of the input."""

    declared: TableType
    rows: pa.RecordBatch  # the columns of `declared.stored_schema`
    positions: pa.Array  # int64: the 1-based line (JSONL, CSV) or row (everything else) of each row
    origin: str  # a file name, or `<records>` and the like
    minted: bool  # the ids were generated here, so they collide with nothing

    def position(self, row: int) -> int:
        """Return the line or row of the input that a row came from."""
        position: int = self.positions[row].as_py()
        return position


class LoadSource(Protocol):
    """An input that has been recognised, but not read."""

    @property
    def name(self) -> str:
        """What the input is called in messages."""
        ...

    @property
    def size_bytes(self) -> int | None:
        """How much there is to read, if that is known; compressed input counts as it is stored."""
        ...

    def blocks(self, catalog: Catalog, report: LoadProblems, progress: Progress) -> Iterator[RowBlock]:
        """Read the input, once, in blocks of bounded size.

        What is wrong with single records goes to `report`, and reading goes on; an input that cannot be
        read any further raises `UnreadableInput`. `progress` is told the bytes read so far.
        """
        ...


class UnreadableInput(InvalidRequest):
    """The input breaks off or is not what it claims to be; `fields` say where. Nothing was written."""

    code = "unreadable_input"


class InputNotFound(NotFound):
    """There is no file at the path given."""

    code = "input_not_found"


# -- conform -----------------------------------------------------------------------------------------


TEXT = PropertyType(Scalar.STRING, nullable=True)


@dataclass(frozen=True, eq=False)
class InputRows:
    """Rows as converted from an input: columns under property names, `id`, `src` and `dst`."""

    declared: TableType
    columns: Mapping[str, InputColumn]
    positions: pa.Array
    origin: str

    def column(self, name: str, arrow: pa.DataType) -> pa.Array:
        """Return the values under a name; null where the input has none."""
        column = self.columns.get(name)
        return pa.nulls(len(self.positions), arrow) if column is None else column.values


def target(declared: TableType, member: Property) -> ColumnTarget:
    """Return where the values of a property go."""
    return ColumnTarget(member.name, member.type, f"{declared.name}.{member.name}")


def fixed_target(declared: TableType, name: str) -> ColumnTarget:
    """Return where ids or endpoints go."""
    return ColumnTarget(name, TEXT, f"'{name}' of {declared.name}")


def conform(rows_in: InputRows, report: LoadProblems, now_ms: int) -> Iterator[RowBlock]:
    """Yield the good rows as one block, or two when only some of the ids are given."""
    declared = rows_in.declared
    columns = [_with_default(rows_in, member, now_ms) for member in declared.properties]
    ends = {name: rows_in.column(name, pa.string()) for name in ENDPOINTS if isinstance(declared, EdgeType)}
    stored = {p.id: values for p, values in zip(declared.properties, columns, strict=True)}
    ids, misnamed = _ids(rows_in, ends | stored)
    rows = pa.RecordBatch.from_arrays([ids, *ends.values(), *columns], names=declared.stored_schema.names)
    breaches = [*(b for column in rows_in.columns.values() for b in column.breaches), *misnamed]
    breaches += breaches_of_years(rows, declared)
    breaches += _not_yet_known(value_breaches(rows, declared), breaches)
    positions = rows_in.positions
    if breaches:
        for breach in breaches:
            report.breach(breach, declared, ids, rows_in.origin, positions)
        good = pc.invert(_any([breach.mask for breach in breaches]))
        report.leave_out(declared, rows.num_rows - pc.sum(good).as_py())
        rows, positions = rows.filter(good), positions.filter(good)
    yield from _blocks(declared, rows, positions, rows_in.origin)


def _with_default(rows_in: InputRows, member: Property, now_ms: int) -> pa.Array:
    values = rows_in.column(member.name, member.type.arrow)
    if member.default is None or not values.null_count:
        return values
    return pc.fill_null(values, default_scalar(member.default, member.type.arrow, now_ms))


def _not_yet_known(breaches: Iterator[Breach], known: Sequence[Breach]) -> Iterator[Breach]:
    """Leave out what follows from an earlier breach: a value that did not fit is null, not missing."""
    for breach in breaches:
        same = [other.mask for other in known if other.property == breach.property]
        if same:
            breach = Breach(
                breach.code, breach.property, pc.and_not(breach.mask, _any(same)), breach.describe
            )
        if pc.any(breach.mask).as_py():
            yield breach


def _any(masks: Sequence[pa.Array]) -> pa.Array:
    either = masks[0]
    for mask in masks[1:]:
        either = pc.or_(either, mask)
    return either


# -- ids ---------------------------------------------------------------------------------------------


def _ids(rows_in: InputRows, stored: Mapping[str, pa.Array]) -> tuple[pa.Array, list[Breach]]:
    named = rows_in.column(ID, pa.string())
    if not rows_in.declared.key:
        return named, []
    ids = keys.ids_where_whole(rows_in.declared, lambda member: stored[member.id])
    if named.null_count == len(named):
        return ids, []
    wrong = pc.fill_null(pc.not_equal(named, ids), False)
    if not pc.any(wrong).as_py():
        return ids, []

    def describe(row: int) -> tuple[str, str | None]:
        value, canonical = shown(named[row].as_py()), ids[row].as_py()
        return f"id {value} does not match its canonical @key id '{canonical}'", value

    return ids, [Breach("key", ID, wrong, describe)]


def _blocks(
    declared: TableType, rows: pa.RecordBatch, positions: pa.Array, origin: str
) -> Iterator[RowBlock]:
    ids = rows.column(0)
    for chosen, minted in _by_origin_of_id(ids):
        part = rows if chosen is None else rows.filter(chosen)
        part_positions = positions if chosen is None else positions.filter(chosen)
        if part.num_rows:
            columns = list(part.columns)
            if minted:
                columns[0] = new_ids(part.num_rows)
            stored = pa.RecordBatch.from_arrays(columns, schema=declared.stored_schema)
            yield RowBlock(declared, stored, part_positions, origin, minted)


def _by_origin_of_id(ids: pa.Array) -> list[tuple[pa.Array | None, bool]]:
    if ids.null_count == 0:
        return [(None, False)]
    if ids.null_count == len(ids):
        return [(None, True)]
    return [(pc.is_valid(ids), False), (pc.is_null(ids), True)]


def rows_from(first: int, count: int) -> pa.Array:
    """Return positions that follow one another."""
    return pa.array(np.arange(first, first + count, dtype=np.int64))
