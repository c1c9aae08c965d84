"""Values: what an expression is in each row, as an Arrow column.

Properties are fetched when they are asked for, and only those: a vector or blob that no expression names
is never read. Null in, null out; arithmetic on integers that overflows or divides by zero is a typed error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.model import ID
from omnigraph.catalog.query.expressions import (
    Aggregate,
    Arithmetic,
    Bm25,
    Constant,
    EntityField,
    EntityPart,
    EntityValue,
    Nearest,
    Now,
    Operand,
    OutputRef,
    ParamRef,
    PropertyValue,
    Rrf,
    ShortestPath,
    TextMatch,
    Value,
    Variable,
    operand_value,
)
from omnigraph.catalog.types import INTEGERS, PropertyType, Scalar
from omnigraph.execution.columns import FEW
from omnigraph.execution.conditions import Sets, constant_column
from omnigraph.execution.context import Context
from omnigraph.execution.match_rows import MatchRows
from omnigraph.execution.paths import shortest_paths

Searches = Callable[[TextMatch | Nearest | Bm25 | Rrf, MatchRows], pa.Array]


class Evaluator:
    """Evaluates expressions over rows; `outputs` are the columns computed so far, for aliases."""

    def __init__(
        self, context: Context, searches: Searches, needed: Mapping[Variable, tuple[str, ...]] | None = None
    ) -> None:
        self.context = context
        self._searches = searches
        self._needed = needed or {}  # the columns of each variable that the answer needs
        self.sets: Sets = {}
        self._fetched: tuple[Variable, Any, dict[str, pa.Array]] | None = None

    def column(self, value: Value, rows: MatchRows, outputs: Sequence[pa.Array] = ()) -> pa.Array:
        """Return the value of an expression in each row."""
        match value:
            case Constant() | ParamRef() | Now():
                return constant_column(self.operand(value), value.type, rows.count)
            case PropertyValue(variable, member):
                return self._taken(rows, variable, member.column)
            case EntityField(variable, part):
                return self._part(rows, variable, part)
            case EntityValue(variable):
                return self._whole(rows, variable)
            case Arithmetic(operator, left, right, kind):
                sides = (self.column(left, rows, outputs), self.column(right, rows, outputs))
                return calculate(operator, *sides, kind)
            case OutputRef(position=position):
                return outputs[position]
            case TextMatch() | Nearest() | Bm25() | Rrf():
                return self._searches(value, rows)
            case ShortestPath():
                return shortest_paths(self.context, value, rows)
            case Aggregate():
                raise AssertionError("aggregates belong to groups, not to rows")
            case _:
                assert_never(value)

    def operand(self, operand: Operand) -> Any:
        """Return what a constant, parameter or now() stands for."""
        return operand_value(operand, self.context.values, self.context.now_ms)

    def _taken(self, rows: MatchRows, variable: Variable, column: str) -> pa.Array:
        """Return a column of a variable; the columns that the answer needs of it come in one go."""
        ordinals = rows.bound[variable]
        table = self.context.table(variable.type.id)
        needed = self._needed.get(variable, ())
        if column not in needed or len(needed) == 1 or len(ordinals) > FEW:
            return table.take(column, ordinals)
        kept = self._fetched
        if kept is None or kept[0] != variable or kept[1] is not ordinals:
            kept = self._fetched = (variable, ordinals, table.take_all(needed, ordinals))
        return kept[2][column]

    def _part(self, rows: MatchRows, variable: Variable, part: EntityPart) -> pa.Array:
        if part is not EntityPart.TYPE:
            return self._taken(rows, variable, ID if part is EntityPart.ID else part.value)
        names = pa.repeat(pa.scalar(variable.type.name), rows.count)
        absent = rows.bound[variable] < 0
        return names if not absent.any() else pc.if_else(pa.array(~absent), names, None)

    def _whole(self, rows: MatchRows, variable: Variable) -> pa.Array:
        """Return a node as an object: its id, then every property but blobs, by name."""
        members = [p for p in variable.type.properties if p.type.scalar is not Scalar.BLOB]
        names = [ID, *(p.name for p in members)]
        columns = [self._taken(rows, variable, column) for column in (ID, *(p.column for p in members))]
        absent = rows.bound[variable] < 0
        fields = [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(absent))


@dataclass(frozen=True, eq=False)
class MatchedRows:
    """Rows of a match, as what conditions are asked of."""

    rows: MatchRows
    evaluator: Evaluator

    @property
    def sets(self) -> Sets:
        """The lists of conditions as sets, kept for the whole query."""
        return self.evaluator.sets

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self.rows.count

    def column(self, value: Value) -> pa.Array:
        """Return a value in each row."""
        return self.evaluator.column(value, self.rows)

    def operand(self, operand: Operand) -> Any:
        """Return what a constant, parameter or now() stands for."""
        return self.evaluator.operand(operand)

    def absent(self, variable: Variable) -> pa.Array:
        """Return where an optional variable stands for nothing."""
        return pa.array(self.rows.bound[variable] < 0)


# -- arithmetic ------------------------------------------------------------------------------------


def calculate(operator: str, left: pa.Array, right: pa.Array, kind: PropertyType) -> pa.Array:
    """Return `left operator right` in the type of the result."""
    functions = {
        "+": pc.add_checked,
        "-": pc.subtract_checked,
        "*": pc.multiply_checked,
        "/": pc.divide_checked,
    }
    try:
        left, right = (side.cast(kind.arrow, safe=kind.scalar in INTEGERS) for side in (left, right))
        if operator == "/":
            right = _divisor(left, right)
        return functions[operator](left, right)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(
            f"{kind} overflow in {operator!r}", remedy="Use F64 values where numbers get so large"
        ) from error


def _divisor(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return the divisors; a zero is an error, unless there is nothing to divide."""
    zero = pc.equal(right, pa.scalar(0, right.type))
    if pc.any(pc.and_(zero, pc.is_valid(left))).as_py():
        raise InvalidRequest("division by zero", remedy="Filter out the rows that divide by zero first")
    return pc.if_else(zero, None, right)
