"""Canonical text: one spelling of each value, and the ids made of it."""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.keys import (
    NoCanonicalText,
    canonical_text,
    canonical_texts,
    derive_id,
    derive_ids,
    join_key,
)
from omnigraph.catalog.types import PropertyType, Scalar
from tests.support.catalogs import catalog

fast = settings(deadline=None, max_examples=150)


def of(scalar: Scalar) -> PropertyType:
    return PropertyType(scalar)


@pytest.mark.parametrize(
    ("scalar", "value", "text"),
    [
        (Scalar.STRING, 'né "x"', 'né "x"'),
        (Scalar.STRING, "", ""),
        (Scalar.BOOL, True, "true"),
        (Scalar.BOOL, False, "false"),
        (Scalar.I32, -7, "-7"),
        (Scalar.I64, -(2**63), "-9223372036854775808"),
        (Scalar.U32, 2**32 - 1, "4294967295"),
        (Scalar.U64, 2**64 - 1, "18446744073709551615"),
        (Scalar.F64, 1.25, "1.25"),
        (Scalar.F64, -2.5, "-2.5"),
        (Scalar.F64, 3.0, "3"),
        (Scalar.F64, 3, "3"),
        (Scalar.F64, 0.1, "0.1"),
        (Scalar.F64, 0.0, "0"),
        (Scalar.F64, -0.0, "0"),
        (Scalar.F64, 1e21, "1" + "0" * 21),
        (Scalar.F64, 1e-7, "0.0000001"),
        (Scalar.F64, 5e-324, "0." + "0" * 323 + "5"),
        (Scalar.F64, 123456789.125, "123456789.125"),
        (Scalar.F32, 0.1, "0.1"),
        (Scalar.F32, 16777217.0, "16777216"),
        (Scalar.F32, 1e-10, "0.0000000001"),
        (Scalar.F32, -0.0, "0"),
        (Scalar.DATE, date(1970, 1, 2), "1"),
        (Scalar.DATE, date(1969, 12, 31), "-1"),
        (Scalar.DATE, 20_000, "20000"),
        (Scalar.DATETIME, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "1000"),
        (Scalar.DATETIME, datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "0"),
        (Scalar.DATETIME, datetime(1970, 1, 1, 0, 0, 0, 1999, tzinfo=UTC), "1"),
        (Scalar.DATETIME, -5, "-5"),
    ],
)
def test_canonical_text(scalar: Scalar, value: Any, text: str) -> None:
    assert canonical_text(value, of(scalar)) == text


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (of(Scalar.F64), float("nan")),
        (of(Scalar.F64), float("inf")),
        (of(Scalar.F32), 1e39),
        (of(Scalar.STRING), None),
        (of(Scalar.STRING), 5),
        (of(Scalar.I32), True),
        (of(Scalar.I32), "5"),
        (of(Scalar.F64), True),
        (of(Scalar.BLOB), b"x"),
        (PropertyType(Scalar.STRING, is_list=True), ["x"]),
        (PropertyType(Scalar.VECTOR, dimension=1), [1.0]),
    ],
)
def test_values_without_canonical_text(declared: PropertyType, value: Any) -> None:
    with pytest.raises(NoCanonicalText):
        canonical_text(value, declared)


VALUES: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.STRING: st.text(),
    Scalar.BOOL: st.booleans(),
    Scalar.I32: st.integers(-(2**31), 2**31 - 1),
    Scalar.I64: st.integers(-(2**63), 2**63 - 1),
    Scalar.U32: st.integers(0, 2**32 - 1),
    Scalar.U64: st.integers(0, 2**64 - 1),
    Scalar.F32: st.floats(width=32, allow_nan=False, allow_infinity=False),
    Scalar.F64: st.floats(allow_nan=False, allow_infinity=False),
    Scalar.DATE: st.dates(),
    Scalar.DATETIME: st.integers(-(2**52), 2**52),
}


@pytest.mark.parametrize("scalar", VALUES, ids=lambda s: s.value)
def test_both_renderers_agree(scalar: Scalar) -> None:
    declared = of(scalar)

    @fast
    @given(st.lists(st.none() | VALUES[scalar], max_size=8))
    def agree(values: list[Any]) -> None:
        texts = canonical_texts(pa.array(values, declared.arrow), declared).to_pylist()
        assert texts == [None if v is None else canonical_text(v, declared) for v in values]

    agree()


@fast
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_f64_text_reads_back_and_has_no_exponent(value: float) -> None:
    text = canonical_text(value, of(Scalar.F64))

    assert float(text) == value
    assert set(text) <= set("-.0123456789")
    assert not text.endswith(".0")
    # As short as Python's own shortest spelling, which differs in notation only.
    digits = repr(abs(value)).partition("e")[0].replace(".", "").strip("0")
    assert text.replace(".", "").strip("-0") == digits


@fast
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_f32_text_reads_back_at_its_width(value: float) -> None:
    text = canonical_text(value, of(Scalar.F32))

    assert struct.pack("<f", float(text)) == struct.pack("<f", value + 0.0)


# -- ids ---------------------------------------------------------------------------------------------

TICKET = catalog("node Ticket { tenant: String slot: U32 note: String? @key(tenant, slot) }").node("Ticket")


def test_single_key_is_the_text_itself() -> None:
    node = catalog("node N { day: Date @key }").node("N")

    assert derive_id(node, {"day": date(1970, 1, 11)}) == "10"
    assert derive_ids(pa.table({"day": pa.array([10], pa.date32())}), node).to_pylist() == ["10"]


def test_composite_key_is_compact_json_in_the_order_of_identity() -> None:
    """Identities of properties made together follow their names: slot comes before tenant."""
    assert derive_id(TICKET, {"tenant": "acme", "slot": 7}) == '["7","acme"]'


@fast
@given(st.lists(st.tuples(st.text(), st.integers(0, 2**32 - 1)), max_size=8))
def test_composite_ids_agree_and_are_json(rows: list[tuple[str, int]]) -> None:
    tenants, slots = ([row[i] for row in rows] for i in (0, 1))
    data = pa.table({"slot": pa.array(slots, pa.uint32()), "tenant": pa.array(tenants, pa.string())})

    ids = derive_ids(data, TICKET).to_pylist()

    assert ids == [derive_id(TICKET, {"tenant": t, "slot": s}) for t, s in rows]
    assert [json.loads(i) for i in ids] == [[str(s), t] for t, s in rows]
    assert all(i.isascii() == t.isascii() for i, (t, _) in zip(ids, rows, strict=True))


def test_ids_do_not_change_with_renames() -> None:
    before = catalog("node N { a: I32 b: String @key(a, b) }")
    after = catalog('node N { z: I32 @rename_from("a") b: String @key(z, b) }', before)

    assert derive_id(after.node("N"), {"a": 1, "b": "x"}) == derive_id(before.node("N"), {"a": 1, "b": "x"})
    stored = pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]})
    assert derive_ids(stored, after.node("N")).to_pylist() == ['["1","x"]']
    named = stored.rename_columns(["z", "b"])
    assert derive_ids(named, after.node("N"), by_column=False).to_pylist() == ['["1","x"]']


def test_chunks_and_batches_are_both_read() -> None:
    chunked = pa.table({"slot": pa.chunked_array([[1], [2, 3]], pa.uint32()), "tenant": ["a", "b", "c"]})

    assert derive_ids(chunked, TICKET).to_pylist() == ['["1","a"]', '["2","b"]', '["3","c"]']
    batch = chunked.combine_chunks().to_batches()[0]
    assert derive_ids(batch, TICKET).to_pylist() == derive_ids(chunked, TICKET).to_pylist()
    assert derive_ids(chunked.slice(0, 0), TICKET).to_pylist() == []


def test_null_in_a_key_names_the_property_and_the_row() -> None:
    data = pa.table({"slot": pa.array([1, None], pa.uint32()), "tenant": ["a", "b"]})

    with pytest.raises(NoCanonicalText, match=r"Ticket\.slot has null values") as refused:
        derive_ids(data, TICKET)
    assert refused.value.fields["row"] == 1


def test_not_finite_in_a_column_names_the_row() -> None:
    with pytest.raises(NoCanonicalText) as refused:
        canonical_texts(pa.array([1.0, float("inf")]), of(Scalar.F64))
    assert refused.value.fields["row"] == 1


def test_a_column_of_another_type_is_refused() -> None:
    with pytest.raises(NoCanonicalText):
        canonical_texts(pa.array([1], pa.int64()), of(Scalar.I32))


def test_a_type_without_key_derives_nothing() -> None:
    with pytest.raises(InvalidRequest, match="has no key"):
        derive_id(catalog("node N {}").node("N"), {})


def test_no_value_can_forge_a_collision() -> None:
    assert join_key(['a","b', "c"]) != join_key(["a", 'b","c'])
