"""The checks that a row can fail by itself, as every write surface calls them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.catalog.model import TableType
from omnigraph.engine.validate.values import value_findings
from tests.support.catalogs import catalog

SCHEMA = """
node T {
  k: F64 @key
  r: F64?
  half: F64?
  n: I32?
  u: F64? @unique
  e: enum(a, b)?
  c: String?
  must: String
  v: Vector(2)?
  l: [F64]?
  w: [String]?
  @range(r, 0..1)
  @range(half, 0..)
  @range(n, -5..9007199254740993)
  @check(c, "^[A-Z]{2}\\\\d")
}
edge E: T -> T { mood: enum(up, down)? must: I32 }
node Ranged { k: F64 @key @range(k, 0..10) }
"""
CATALOG = catalog(SCHEMA)
T, E, RANGED = CATALOG.node("T"), CATALOG.edge("E"), CATALOG.node("Ranged")
NAN, INF = math.nan, math.inf


def batch(declared: TableType, *rows: dict[str, Any]) -> pa.RecordBatch:
    """Return rows under property names as a batch; `id` is the row's number where it is not given."""
    columns = []
    for field in declared.stored_schema:
        values = [row.get(field.name, f"id{n}" if field.name == "id" else None) for n, row in enumerate(rows)]
        columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, names=declared.stored_schema.names)


GOOD = {"k": 1.0, "must": "x"}
CASES: list[Any] = [
    ({}, None, None, None),
    ({"must": None}, "required", "must", "non-nullable property 'must' has null or invalid values"),
    ({"k": None}, "required", "k", "non-nullable property 'k' has null or invalid values"),
    ({"k": NAN}, "key", "k", "key property T.k must be a finite number, not NaN"),
    ({"k": -INF}, "key", "k", "key property T.k must be a finite number, not -inf"),
    ({"k": -0.0}, None, None, None),
    ({"r": 0.0}, None, None, None),
    ({"r": 1.0}, None, None, None),
    ({"r": 1.1}, "range", "r", "@range violation on T.r: value 1.1 > max 1"),
    ({"r": -0.5}, "range", "r", "@range violation on T.r: value -0.5 < min 0"),
    ({"r": NAN}, "range", "r", "@range violation on T.r: value is NaN"),
    ({"r": INF}, "range", "r", "@range violation on T.r: value inf > max 1"),
    ({"half": INF}, "type", "half", "T.half must be a finite number, not inf"),
    ({"half": NAN}, "range", "half", "@range violation on T.half: value is NaN"),
    ({"half": 1e308}, None, None, None),
    ({"n": -6}, "range", "n", "@range violation on T.n: value -6 < min -5"),
    ({"u": NAN}, "type", "u", "T.u must be a finite number, not NaN"),
    ({"u": INF}, "type", "u", "T.u must be a finite number, not inf"),
    ({"e": "b"}, None, None, None),
    ({"e": "B"}, "enum", "e", "invalid enum value 'B' for T.e (expected: a, b)"),
    ({"c": "AB1"}, None, None, None),
    ({"c": "AB"}, "check", "c", "@check violation on T.c: value 'AB' does not match pattern '^[A-Z]{2}\\d'"),
    ({"c": ""}, "check", "c", "value ''"),
    ({"v": [1, 2]}, None, None, None),
    ({"v": [1, None]}, "type", "v", "T.v: element 1 is null"),
    ({"v": [NAN, 1]}, "type", "v", "T.v: element 0 must be a finite number, not NaN"),
    ({"v": [1, INF]}, "type", "v", "T.v: element 1 must be a finite number, not inf"),
    ({"l": []}, None, None, None),
    ({"l": [1, NAN]}, "type", "l", "T.l: item 1 must be a finite number, not NaN"),
    ({"w": ["a", None]}, "type", "w", "T.w: item 1 is null"),
]


@pytest.mark.parametrize(("row", "code", "name", "words"), CASES)
def test_each_rule_finds_its_row_among_good_ones(
    row: dict[str, Any], code: str | None, name: str | None, words: str | None
) -> None:
    found = value_findings(batch(T, GOOD, GOOD | row, GOOD), T)

    if code is None:
        assert found.violations == ()
        return
    [violation] = found.violations
    assert (violation.code, violation.property, violation.entity_id) == (code, name, "id1")
    assert (violation.entity_kind, violation.type_name, found.total) == ("node", "T", 1)
    assert str(words) in violation.message
    assert violation.message.endswith("(node 'id1')")


def test_rows_of_a_slice_are_counted_from_its_beginning() -> None:
    whole = batch(T, *[GOOD | {"id": f"n{n}", "v": [1, NAN if n == 5 else 2]} for n in range(8)])

    [violation] = value_findings(whole.slice(3), T).violations

    assert violation.entity_id == "n5"


def test_an_edge_needs_its_endpoints_and_keeps_its_enums() -> None:
    good = {"src": "a", "dst": "b", "must": 1}

    found = value_findings(batch(E, good, good | {"mood": "no"}, good | {"src": None, "must": None}), E)

    assert [(v.code, v.property, v.entity_kind) for v in found.violations] == [
        ("required", "from", "edge"),
        ("required", "must", "edge"),
        ("enum", "mood", "edge"),
    ]


def test_a_key_that_is_no_number_breaks_the_key_and_not_its_range_as_well() -> None:
    found = value_findings(batch(RANGED, {"k": NAN}, {"k": 11.0}), RANGED)

    assert [v.code for v in found.violations] == ["range", "key"]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([[1.0, 2.0, 3.0]]), "T.v needs 2 numbers, found 3"),
        (pa.array(["[1, 2]"]), "T.v is of type Vector(2)?; '[1, 2]' is string"),
    ],
)
def test_a_column_of_another_type_is_refused_and_not_coerced(column: pa.Array, words: str) -> None:
    rows = batch(T, GOOD)
    rows = rows.set_column(rows.schema.get_field_index("v"), "v", column)

    [violation] = value_findings(rows, T).violations

    assert (violation.code, violation.property) == ("type", "v")
    assert words in violation.message


def test_the_first_twenty_are_kept_by_code_then_id_and_all_are_counted() -> None:
    order = np.random.default_rng(3).permutation(100)
    rows = [GOOD | {"id": f"{n:03}", "e": "x", "c": "x"} for n in order]

    found = value_findings(batch(T, *rows), T)

    assert found.total == 200
    assert [v.entity_id for v in found.violations] == [f"{n:03}" for n in range(20)]
    assert {v.code for v in found.violations} == {"enum"}


def test_a_batch_may_lack_ids() -> None:
    rows = batch(T, GOOD, GOOD | {"e": "x"}).drop_columns(["id"])

    [violation] = value_findings(rows, T).violations

    assert violation.text == "invalid enum value 'x' for T.e (expected: a, b)"
    assert (violation.place, violation.value, violation.entity_id) == (None, "'x'", None)


def test_an_empty_batch_has_no_findings() -> None:
    assert value_findings(batch(T), T).total == 0
