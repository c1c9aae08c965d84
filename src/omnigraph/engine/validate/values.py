"""Values: every check that one row can fail by itself, for all rows of a batch at once.

Pure: the batch and its type decide, nothing is read. Mutation, load, merge, schema apply and the Spark
executors all call it. Rows come under the names of the stored columns; `id` may be absent or null while it is
not yet derived.

`value_breaches` gives masks over the rows, one for each rule that is broken; `value_findings` the first
violations with their messages, and the total. Null is exempt from everything but `required`. A value is
reported under one rule: a float that is not finite breaks `key` or `range` where there is one, and otherwise
the type itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base import times
from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.model import (
    END_NAMES,
    ENDPOINTS,
    ID,
    Check,
    EdgeType,
    Index,
    Property,
    Range,
    TableType,
    Unique,
)
from omnigraph.catalog.types import FLOATS, PropertyType, Scalar, numbers_in
from omnigraph.engine.validate.relation import NO_FINDINGS, SHOWN, Findings, Violation

# -- rules as masks --------------------------------------------------------------------------------
#
# Each answers with a mask over the rows of a batch: true breaks the rule.


def missing(values: pa.Array) -> pa.Array:
    """Mask the rows without a value."""
    return pc.is_null(values)


def outside_enum(values: pa.Array, allowed: Sequence[str]) -> pa.Array:
    """Mask the rows with a value outside the set; for a list, with any such element."""
    allowed_values = pa.array(allowed, pa.string())
    if not pa.types.is_list(values.type):
        return _true(pc.invert(pc.is_in(values, value_set=allowed_values, skip_nulls=True)), values)
    wrong = pc.invert(pc.is_in(pc.list_flatten(values), value_set=allowed_values))
    rows = pc.unique(pc.list_parent_indices(values).filter(wrong))
    return pc.is_in(pa.array(range(len(values)), rows.type), value_set=rows)


def outside_range(values: pa.Array, bounds: Range) -> pa.Array:
    """Mask the rows outside inclusive bounds, compared as doubles; NaN is always outside."""
    numbers = values.cast(pa.float64(), safe=False)
    outside = pc.is_nan(numbers)
    if bounds.low is not None:
        outside = pc.or_(outside, pc.less(numbers, bounds.low))
    if bounds.high is not None:
        outside = pc.or_(outside, pc.greater(numbers, bounds.high))
    return _true(outside, values)


def unmatched(values: pa.Array, check: Check) -> pa.Array:
    """Mask the rows whose text the pattern does not match anywhere (RE2: linear time)."""
    return _true(pc.invert(pc.match_substring_regex(values, check.pattern)), values)


def _true(mask: pa.Array, values: pa.Array) -> pa.Array:
    """Null is exempt."""
    return pc.and_(pc.fill_null(mask, False), pc.is_valid(values))


# -- breaches and findings -------------------------------------------------------------------------


# The order of report (engine contract E-13); what a record as a whole can break comes before its values.
CODES = (
    "syntax",
    "envelope",
    "unknown_type",
    "type",
    "required",
    "unknown_property",
    "enum",
    "range",
    "check",
    "key",
)
LONGEST_SHOWN = 80

Describe: TypeAlias = Callable[[int], tuple[str, str | None]]


@dataclass(frozen=True, eq=False)
class Breach:
    """One rule, and the rows of a batch that break it."""

    code: str
    property: str | None
    mask: pa.Array  # one boolean for each row, none of them null
    describe: Describe  # row -> message, and the value as shown

    def rows(self) -> NDArray[np.int64]:
        """The numbers of the rows, ascending."""
        return np.flatnonzero(self.mask.to_numpy(zero_copy_only=False))


def value_findings(batch: pa.RecordBatch, declared: TableType) -> Findings:
    """Return what is wrong with single rows of a batch, in the order of report."""
    breaches = list(value_breaches(batch, declared))
    return findings_of(breaches, batch, declared) if breaches else NO_FINDINGS


def findings_of(breaches: Iterable[Breach], batch: pa.RecordBatch, declared: TableType) -> Findings:
    """Return the breaches of a batch as violations: the first ones in the order of report, and the total."""
    ids = batch.column(ID) if ID in batch.schema.names else None
    violations, total = [], 0
    for breach in breaches:
        rows = breach.rows()
        total += len(rows)
        for row in _first_by_id(rows, ids):
            row_id = None if ids is None else ids[row].as_py()
            violations.append(violation(breach, row, declared, row_id))
    violations.sort(key=lambda v: (code_rank(v.code), v.entity_id or "", v.property or ""))
    return Findings.of(violations, total)


def violation(
    breach: Breach,
    row: int,
    declared: TableType,
    row_id: str | None,
    origin: str | None = None,
    position: int | None = None,
) -> Violation:
    """Return one row's breach as a violation; the message names the entity of a row without an origin."""
    message, value = breach.describe(row)
    kind = declared.kind.value
    if origin is None and row_id is not None:
        message = f"{message} ({kind} {row_id!r})"
    where = (origin, position)
    return Violation(breach.code, kind, declared.name, message, row_id, breach.property, value, *where)


def code_rank(code: str) -> int:
    """Return where a code stands in the order of report."""
    return CODES.index(code) if code in CODES else len(CODES)


def shown(value: object) -> str:
    r"""Return a value as messages show it: on one line, and short.

    >>> shown("two\nlines"), shown(float("nan"))
    ("'two\\nlines'", 'NaN')
    """
    try:
        text = "NaN" if isinstance(value, float) and math.isnan(value) else repr(value)
    except ValueError:  # Python prints integers of up to 4,300 digits
        return "a number of thousands of digits"
    except RecursionError:
        return f"a {type(value).__name__} of thousands of levels"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def value_breaches(
    batch: pa.RecordBatch, declared: TableType, members: Iterable[Property] | None = None
) -> Iterator[Breach]:
    """Yield each rule that rows of the batch break; of some properties only, it needs no other columns."""
    if members is None and isinstance(declared, EdgeType):
        for name in ENDPOINTS:
            if batch.column(name).null_count:
                yield _missing(batch.column(name), END_NAMES[name])
    stored = declared.stored_schema
    judged = {}
    for member in declared.properties if members is None else members:
        values, kind = batch.column(member.column), member.type
        if values.type != stored.field(member.column).type and kind.scalar is not Scalar.BLOB:
            yield from _misfit(values, declared, member)
            continue
        judged[member.id] = member
        if values.null_count and not kind.nullable:
            yield _missing(values, member.name)
        if kind.is_list or kind.scalar is Scalar.VECTOR:
            yield from _elements(values, declared, member)
        elif kind.scalar in FLOATS and not _judged_elsewhere(declared, member):
            yield from _not_finite("type", values, declared, member, _infinite(values))
    yield from _constraints(batch, declared, judged)


# -- required, and the type itself -------------------------------------------------------------------


def _missing(values: pa.Array, name: str) -> Breach:
    message = f"non-nullable property '{name}' has null or invalid values"
    return Breach("required", name, missing(values), lambda _: (message, None))


def _misfit(values: pa.Array, declared: TableType, member: Property) -> Iterator[Breach]:
    """Report a column that has not the stored type; a vector of another length is the likely case."""
    subject, expected = f"{declared.name}.{member.name}", member.type

    def describe(row: int) -> tuple[str, str | None]:
        value = values[row].as_py()
        if expected.scalar is Scalar.VECTOR and isinstance(value, list):
            return f"{subject} needs {expected.dimension} numbers, found {len(value)}", None
        return f"{subject} is of type {expected}; {shown(value)} is {values.type}", shown(value)

    mask = pc.is_valid(values)
    if not expected.nullable and values.null_count:
        yield _missing(values, member.name)
    yield from _breach("type", member.name, mask, describe)


def _judged_elsewhere(declared: TableType, member: Property) -> bool:
    ranged = any(isinstance(c, Range) and c.property == member.id for c in declared.constraints)
    return ranged or _is_key(declared, member)


def _infinite(values: pa.Array) -> pa.Array:
    """Mask the floats that are not finite: NaN and both infinities."""
    return pc.invert(pc.fill_null(pc.is_finite(values), True))


def _not_finite(
    code: str, values: pa.Array, declared: TableType, member: Property, mask: pa.Array
) -> Iterator[Breach]:
    noun = "key property " if code == "key" else ""

    def describe(row: int) -> tuple[str, str | None]:
        text = shown(values[row].as_py())
        return f"{noun}{declared.name}.{member.name} must be a finite number, not {text}", text

    yield from _breach(code, member.name, mask, describe)


def _elements(values: pa.Array, declared: TableType, member: Property) -> Iterator[Breach]:
    """Check that no element is null, and that numbers are finite."""
    flat = values.flatten()
    bad = pc.is_null(flat) if flat.null_count else None
    if pa.types.is_floating(flat.type):
        finite = pc.is_finite(flat)
        if pc.all(finite).as_py() is False:
            infinite = pc.invert(pc.fill_null(finite, True))
            bad = infinite if bad is None else pc.or_(bad, infinite)
    if bad is None:
        return
    subject = f"{declared.name}.{member.name}"

    def describe(row: int) -> tuple[str, str | None]:
        items = values.slice(row, 1).cast(numbers_in(values.type))[0].as_py()
        return f"{subject}: {_element_problem(items, member.type)}", None

    yield from _breach("type", member.name, rows_with(values, bad), describe)


def _element_problem(items: list[Any], declared: PropertyType) -> str:
    noun = "element" if declared.scalar is Scalar.VECTOR else "item"
    for position, item in enumerate(items):
        if item is None:
            return f"{noun} {position} is null"
        if isinstance(item, float) and not math.isfinite(item):
            return f"{noun} {position} must be a finite number, not {shown(item)}"
    return f"an {noun} is wrong"


def rows_with(values: pa.Array, bad: pa.Array) -> pa.Array:
    """Turn a mask over the flattened elements of lists into a mask over the lists."""
    parents = pc.list_parent_indices(values).to_numpy(zero_copy_only=False)
    mask = np.zeros(len(values), bool)
    mask[parents[bad.to_numpy(zero_copy_only=False)]] = True
    return pa.array(mask)


# -- days and instants -------------------------------------------------------------------------------

_YEARS = {
    Scalar.DATE: (times.FIRST_DAY, times.LAST_DAY, times.write_day, "days"),
    Scalar.DATETIME: (times.FIRST_INSTANT, times.LAST_INSTANT, times.write_instant, "milliseconds"),
}


def breaches_of_years(batch: pa.RecordBatch, declared: TableType) -> Iterator[Breach]:
    """Yield what new data may not hold: days and instants beyond the years that readers have.

    Stored rows are not held to it: those of older graphs may have such values, and are still merged,
    updated and mended.
    """
    for member in declared.properties:
        if member.type.scalar in _YEARS:
            yield from _outside_years(batch.column(member.column), declared, member)


def _outside_years(values: pa.Array, declared: TableType, member: Property) -> Iterator[Breach]:
    first, last, write, unit = _YEARS[member.type.scalar]
    numbers = values.cast(numbers_in(values.type))
    flat = numbers.flatten() if member.type.is_list else numbers
    outside = pc.fill_null(pc.or_(pc.less(flat, first), pc.greater(flat, last)), False)

    def describe(row: int) -> tuple[str, str | None]:
        value = numbers[row].as_py()
        items = value if isinstance(value, list) else [value]
        text = write(next(item for item in items if item is not None and not first <= item <= last))
        subject = f"{declared.name}.{member.name}"
        return f"{subject}: {text} is outside {times.YEARS} (a number counts {unit} since 1970)", text

    mask = rows_with(values, outside) if member.type.is_list else outside
    yield from _breach("type", member.name, mask, describe)


# -- constraints -------------------------------------------------------------------------------------


def _constraints(
    batch: pa.RecordBatch, declared: TableType, members: Mapping[str, Property]
) -> Iterator[Breach]:
    """Yield what breaks the constraints on some properties, given by id."""
    for member in members.values():
        if member.type.enum_values is not None:
            yield from _enum(batch.column(member.column), declared, member)
    for constraint in declared.constraints:
        if isinstance(constraint, Unique | Index) or constraint.property not in members:
            continue  # what rows break together is in evaluate.py
        member = members[constraint.property]
        values = batch.column(member.column)
        match constraint:
            case Range():
                yield from _range(values, declared, member, constraint)
            case Check():
                yield from _check(values, declared, member, constraint)
            case _:
                assert_never(constraint)
    for member in members.values():
        if member.type.scalar in FLOATS and _is_key(declared, member):
            values = batch.column(member.column)
            yield from _not_finite("key", values, declared, member, _infinite(values))


def _enum(values: pa.Array, declared: TableType, member: Property) -> Iterator[Breach]:
    allowed = member.type.enum_values or ()

    def describe(row: int) -> tuple[str, str | None]:
        value = values[row].as_py()
        wrong = value if isinstance(value, str) else next(item for item in value if item not in allowed)
        text = shown(wrong)
        expected = ", ".join(allowed)
        return f"invalid enum value {text} for {declared.name}.{member.name} (expected: {expected})", text

    yield from _breach("enum", member.name, outside_enum(values, allowed), describe)


def _range(values: pa.Array, declared: TableType, member: Property, bounds: Range) -> Iterator[Breach]:
    subject = f"{declared.name}.{member.name}"

    def describe(row: int) -> tuple[str, str | None]:
        value = values[row].as_py()
        text = shown(value)
        if isinstance(value, float) and math.isnan(value):
            return f"@range violation on {subject}: value is NaN", text
        low = bounds.low is not None and value < bounds.low
        limit = f"< min {plain(bounds.low)}" if low else f"> max {plain(bounds.high)}"
        return f"@range violation on {subject}: value {text} {limit}", text

    outside = outside_range(values, bounds)
    if member.type.scalar in FLOATS:
        infinite = _infinite(values)
        if _is_key(declared, member):
            outside = pc.and_not(outside, infinite)
        else:
            # An open side of the range admits infinity; the type does not.
            admitted = pc.and_not(infinite, outside)
            yield from _not_finite("type", values, declared, member, admitted)
    yield from _breach("range", member.name, outside, describe)


def _is_key(declared: TableType, member: Property) -> bool:
    return member.id in declared.key


def _check(values: pa.Array, declared: TableType, member: Property, check: Check) -> Iterator[Breach]:
    def describe(row: int) -> tuple[str, str | None]:
        text = shown(values[row].as_py())
        subject = f"{declared.name}.{member.name}"
        return f"@check violation on {subject}: value {text} does not match pattern '{check.pattern}'", text

    yield from _breach("check", member.name, unmatched(values, check), describe)


# -- shared ------------------------------------------------------------------------------------------


def _breach(code: str, name: str, mask: pa.Array, describe: Describe) -> Iterator[Breach]:
    if pc.any(mask).as_py():
        yield Breach(code, name, mask, describe)


def _first_by_id(rows: NDArray[np.int64], ids: pa.Array | None) -> list[int]:
    if ids is not None and len(rows) > SHOWN:
        rows = rows[pc.sort_indices(ids.take(pa.array(rows))).to_numpy()]
    return [int(row) for row in rows[:SHOWN]]


def plain(bound: float | None) -> str:
    """Return a bound as people write it: whole numbers without a fraction."""
    if bound is not None and bound.is_integer() and abs(bound) < 2**53:
        return str(int(bound))
    return str(bound)
