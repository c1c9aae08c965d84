"""Checks: each constraint as a question about Arrow columns.

Room    engine.validate. Value checks answer with a mask over the rows of a batch (true = breaks it); set
        checks need all rows of a type. Pure functions; the vocabulary is the catalog's.
Rule    null is exempt from everything but `required`. Messages name the type, the property, the value.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.constraints import Cardinality, Check, Range
from omnigraph.engine.validate.findings import SHOWN, Findings, Violation

ID = "id"


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


def shared(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the tuples that more than one row holds, with two of the holders: columns `a`, `b`, `n`."""
    complete = rows.drop_null() if any(rows[name].null_count for name in columns) else rows
    keyed = complete.select([ID])
    for position, name in enumerate(columns):
        keyed = keyed.append_column(f"k{position}", _one_zero(complete[name]))
    names = [f"k{position}" for position in range(len(columns))]
    grouped = keyed.group_by(names).aggregate([(ID, "min"), (ID, "max"), (ID, "count")])
    several = grouped.filter(pc.greater(grouped[f"{ID}_count"], 1))
    return several.rename_columns({f"{ID}_min": "a", f"{ID}_max": "b", f"{ID}_count": "n"})


def outside_cardinality(sources: pa.ChunkedArray, card: Cardinality) -> pa.Table:
    """Return the sources whose number of edges is not allowed: columns `source`, `n`."""
    counted = pa.table({"source": sources}).group_by("source").aggregate([([], "count_all")])
    counted = counted.rename_columns({"count_all": "n"})
    wrong = pc.less(counted["n"], card.low)
    if card.high is not None:
        wrong = pc.or_(wrong, pc.greater(counted["n"], card.high))
    return counted.filter(wrong).sort_by("source")


def by_row(
    mask: pa.Array, ids: pa.Array, values: pa.Array, code: str, place: tuple[str, str, str], text: str
) -> Findings:
    """Turn a mask into findings; `text` has a place for the value."""
    kind, type_name, name = place
    total = pc.sum(mask).as_py() or 0
    if total == 0:
        return Findings()
    found = zip(
        ids.filter(mask).slice(0, SHOWN).to_pylist(),
        values.filter(mask).slice(0, SHOWN).to_pylist(),
        strict=True,
    )
    return Findings.of(
        [
            Violation(code, kind, type_name, f"{text.format(value)} ({kind} {row_id!r})", row_id, name)
            for row_id, value in found
        ],
        total,
    )


def _true(mask: pa.Array, values: pa.Array) -> pa.Array:
    """Null is exempt."""
    return pc.and_(pc.fill_null(mask, False), pc.is_valid(values))


def _one_zero(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Both zeros are one value."""
    return pc.add(values, 0.0) if pa.types.is_floating(values.type) else values
