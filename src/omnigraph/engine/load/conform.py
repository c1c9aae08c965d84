"""Conform: converted columns of one type become blocks that fit their table.

    input -> columns -> **conform** -> blocks

Room    engine.load. The same last step for every kind of input: defaults, checks, ids.
Given   one column for each property that the input has; those it lacks are null.
Gives   blocks without the rows that broke a rule, which stand in the report with their places.
Rule    a default stands in for null before anything is judged. Ids of keyed nodes are derived, other ids
        taken as given or minted; rows with minted ids go into a block of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.ids import new_ids
from omnigraph.catalog import keys
from omnigraph.catalog.constraints import ENDPOINTS
from omnigraph.catalog.model import ID, EdgeType, NodeType, Property, TableType
from omnigraph.catalog.types import FLOATS, PropertyType, Scalar
from omnigraph.engine.load.block import Block
from omnigraph.engine.load.column import Column, Target
from omnigraph.engine.load.problems import Problems
from omnigraph.engine.schema.lower import scalar as default_scalar
from omnigraph.engine.validate.values import Breach, breaches_of_years, shown, value_breaches

TEXT = PropertyType(Scalar.STRING, nullable=True)


@dataclass(frozen=True, eq=False)
class Given:
    """Rows as converted from an input: columns under property names, `id`, `src` and `dst`."""

    declared: TableType
    columns: Mapping[str, Column]
    positions: pa.Array
    origin: str

    def column(self, name: str, arrow: pa.DataType) -> pa.Array:
        """Return the values under a name; null where the input has none."""
        found = self.columns.get(name)
        return pa.nulls(len(self.positions), arrow) if found is None else found.values


def target(declared: TableType, member: Property) -> Target:
    """Return where the values of a property go."""
    return Target(member.name, member.type, f"{declared.name}.{member.name}")


def fixed_target(declared: TableType, name: str) -> Target:
    """Return where ids or endpoints go."""
    return Target(name, TEXT, f"'{name}' of {declared.name}")


def conform(given: Given, report: Problems, now_ms: int) -> Iterator[Block]:
    """Yield the good rows as one block, or two when only some of the ids are given."""
    declared = given.declared
    columns = [_with_default(given, member, now_ms) for member in declared.properties]
    ids, misnamed = _ids(
        given, {p.id: values for p, values in zip(declared.properties, columns, strict=True)}
    )
    ends = [given.column(name, pa.string()) for name in ENDPOINTS if isinstance(declared, EdgeType)]
    rows = pa.RecordBatch.from_arrays([ids, *ends, *columns], names=declared.stored_schema.names)
    breaches = [*(b for column in given.columns.values() for b in column.breaches), *misnamed]
    breaches += breaches_of_years(rows, declared)
    breaches += _not_yet_known(value_breaches(rows, declared), breaches)
    positions = given.positions
    if breaches:
        for breach in breaches:
            report.breach(breach, declared, ids, given.origin, positions)
        good = pc.invert(_any([breach.mask for breach in breaches]))
        report.leave_out(declared, rows.num_rows - pc.sum(good).as_py())
        rows, positions = rows.filter(good), positions.filter(good)
    yield from _blocks(declared, rows, positions, given.origin)


def _with_default(given: Given, member: Property, now_ms: int) -> pa.Array:
    values = given.column(member.name, member.type.arrow)
    if member.default is None or not values.null_count:
        return values
    return pc.fill_null(values, default_scalar(member.default, member.type.arrow, now_ms))


def _not_yet_known(found: Iterator[Breach], known: Sequence[Breach]) -> Iterator[Breach]:
    """Leave out what follows from an earlier breach: a value that did not fit is null, not missing."""
    for breach in found:
        same = [other.mask for other in known if other.property == breach.property]
        if same:
            breach = Breach(
                breach.code, breach.property, pc.and_not(breach.mask, _any(same)), breach.describe
            )
        if pc.any(breach.mask).as_py():
            yield breach


def _any(masks: Sequence[pa.Array]) -> pa.Array:
    found = masks[0]
    for mask in masks[1:]:
        found = pc.or_(found, mask)
    return found


# -- ids ---------------------------------------------------------------------------------------------


def _ids(given: Given, stored: Mapping[str, pa.Array]) -> tuple[pa.Array, list[Breach]]:
    named = given.column(ID, pa.string())
    if not isinstance(given.declared, NodeType) or not given.declared.key:
        return named, []
    ids = _derived(given.declared, stored)
    if named.null_count == len(named):
        return ids, []
    wrong = pc.fill_null(pc.not_equal(named, ids), False)
    if not pc.any(wrong).as_py():
        return ids, []

    def describe(row: int) -> tuple[str, str | None]:
        value, canonical = shown(named[row].as_py()), ids[row].as_py()
        return f"id {value} does not match its canonical @key id '{canonical}'", value

    return ids, [Breach("key", ID, wrong, describe)]


def _derived(node: NodeType, stored: Mapping[str, pa.Array]) -> pa.Array:
    """Derive the ids; rows whose key is not complete have none, and are refused with the reason."""
    texts = []
    for member in map(node.property_by_id, node.key):
        values = stored[member.id]
        if member.type.scalar in FLOATS:
            values = pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type))
        texts.append(keys.canonical_texts(values, member.type))
    return keys.join_keys(texts)


def _blocks(declared: TableType, rows: pa.RecordBatch, positions: pa.Array, origin: str) -> Iterator[Block]:
    ids = rows.column(0)
    for chosen, minted in _by_origin_of_id(ids):
        part = rows if chosen is None else rows.filter(chosen)
        places = positions if chosen is None else positions.filter(chosen)
        if part.num_rows:
            columns = list(part.columns)
            if minted:
                columns[0] = new_ids(part.num_rows)
            stored = pa.RecordBatch.from_arrays(columns, schema=declared.stored_schema)
            yield Block(declared, stored, places, origin, minted)


def _by_origin_of_id(ids: pa.Array) -> list[tuple[pa.Array | None, bool]]:
    if ids.null_count == 0:
        return [(None, False)]
    if ids.null_count == len(ids):
        return [(None, True)]
    return [(pc.is_valid(ids), False), (pc.is_null(ids), True)]


def rows_from(first: int, count: int) -> pa.Array:
    """Return positions that follow one another."""
    return pa.array(np.arange(first, first + count, dtype=np.int64))
