"""Functions: what each function and operator of the query language does to whole columns.

A kernel takes Arrow arrays and scalars, never a row at a time, and gives an array: of one row where it is
given scalars alone. The table of catalog/query/functions.py says what it may be given and of what type the
result is; here is what it does.

columns.py    what all share: columns beside scalars, failures with their row
logic.py      comparisons, three-valued logic
numbers.py    arithmetic and functions of numbers
text.py       functions of texts
time.py       functions of dates and times, durations
lists.py      functions of lists, membership
choice.py     coalesce, if, case and the like
casts.py      to_string, to_int and the like

`apply(name, arguments, type)` calls a function of the table, `operate(operator, arguments, type)` an
operator; `type` is the Arrow type of the result. What the language computes only where it is chosen is put
together by `merge(choice, branches, type)`: the number of a branch for each row (-1 is NULL), and of each
branch the values of its own rows. `any_item(lists, truths)` and `all_items(lists, truths)` fold what was
asked of the items that `items_of(lists)` gives; `shift(times, period, sign)` adds a duration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.errors import LimitExceeded
from omnigraph.catalog.query.functions import FUNCTIONS, Nulls
from omnigraph.catalog.types import repeated
from omnigraph.execution.functions import casts, choice, lists, logic, numbers, text, time
from omnigraph.execution.functions.choice import merge
from omnigraph.execution.functions.columns import Column, Kernel, NotComputable, cast, is_missing, row_count
from omnigraph.execution.functions.lists import all_items, any_item, items_of
from omnigraph.execution.functions.time import shift

__all__ = [
    "KERNELS",
    "OPERATORS",
    "Column",
    "Kernel",
    "NotComputable",
    "all_items",
    "any_item",
    "apply",
    "items_of",
    "merge",
    "operate",
    "shift",
]

KERNELS: Mapping[str, Kernel] = MappingProxyType(
    choice.KERNELS | casts.KERNELS | text.KERNELS | numbers.KERNELS | time.KERNELS | lists.KERNELS
)


def apply(name: str, arguments: Sequence[Column], kind: pa.DataType) -> pa.Array:
    """Return what a function of the table gives in each row."""
    function = FUNCTIONS[name]
    if function.nulls is Nulls.ANY and any(is_missing(argument) for argument in arguments):
        return repeated(pa.scalar(None, kind), row_count(arguments))
    return _column(KERNELS[name], name, arguments, kind)


def operate(operator: str, arguments: Sequence[Column], kind: pa.DataType) -> pa.Array:
    """Return what an operator gives in each row; the names are those of `OPERATORS`."""
    if operator not in _KNOW_NULL and any(is_missing(argument) for argument in arguments):
        return repeated(pa.scalar(None, kind), row_count(arguments))
    return _column(OPERATORS[operator], f"'{operator}'", arguments, kind)


def _column(kernel: Kernel, name: str, arguments: Sequence[Column], kind: pa.DataType) -> pa.Array:
    try:
        result = kernel(arguments, kind)
    except pa.ArrowCapacityError as error:
        raise LimitExceeded(
            f"the values of {name} take more than 2 GiB in one column",
            remedy="Read fewer rows at once, or shorter texts",
        ) from error
    count = row_count(arguments)
    if isinstance(result, pa.Scalar):
        result = repeated(result, count)
    elif isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if len(result) != count:  # the kernel met scalars in front of a column
        raise AssertionError(f"{name} gave {len(result)} rows for {count}")
    return cast(result, kind)


# -- operators ---------------------------------------------------------------------------------------


def _arithmetic(operator: str) -> Kernel:
    return lambda sides, kind: numbers.arithmetic(operator, sides, kind)


def _comparison(operator: str) -> Kernel:
    return lambda sides, kind: logic.compare(operator, *sides)


def _logical(function: Callable[..., Column]) -> Kernel:
    return lambda sides, kind: logic.fold(function, *(cast(side, pa.bool_()) for side in sides))


def _joined(sides: Sequence[Column], kind: pa.DataType) -> Column:
    if pa.types.is_list(kind):
        return lists.concatenate(sides[0], sides[1], kind)
    return text.concatenate(*sides)


_KNOW_NULL = frozenset({"and", "or", "is null", "is not null", "in"})
OPERATORS: Mapping[str, Kernel] = MappingProxyType(
    {operator: _arithmetic(operator) for operator in ("+", "-", "*", "/", "%")}
    | {operator: _comparison(operator) for operator in logic.COMPARISONS}
    | {
        "negate": lambda sides, kind: numbers.negate(sides[0], kind),
        "and": _logical(pc.and_kleene),
        "or": _logical(pc.or_kleene),
        "not": lambda sides, kind: pc.invert(sides[0]),
        "is null": lambda sides, kind: pc.is_null(sides[0]),
        "is not null": lambda sides, kind: pc.is_valid(sides[0]),
        "in": lambda sides, kind: lists.contained(*sides),
        "||": _joined,
        "[]": lambda sides, kind: lists.element(*sides),
    }
)
