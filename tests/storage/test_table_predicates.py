"""Predicates: every comparison, on every type, with SQL's idea of null; values stay values."""

from __future__ import annotations

import datetime as dt
import decimal
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.base.errors import InvalidRequest
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Append
from omnigraph.storage.tables.predicate import (
    Predicate,
    all_hold,
    any_holds,
    compares,
    find,
    is_in,
    is_null,
)
from tests.storage.docs import DOC, make_docs
from tests.support.graphs import write
from tests.support.places import Place

pytestmark = pytest.mark.s3_when_full


def shown(value: object) -> str:
    """Return the id of a case."""
    return str(value.expression if isinstance(value, Predicate) else value)


MEANINGS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# Three values in ascending order; the middle one is compared with.
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [False, False, True]),
    "int8": (pa.int8(), [-128, 0, 127]),
    "int32": (pa.int32(), [-(2**31), 7, 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), 2**53 + 1, 2**63 - 1]),
    "uint8": (pa.uint8(), [0, 200, 255]),
    "uint32": (pa.uint32(), [0, 2**31, 2**32 - 1]),
    "uint64": (pa.uint64(), [2**63 - 1, 2**63, 2**64 - 1]),
    "float32": (pa.float32(), [-1.5, 0.25, 3e30]),
    "float64": (pa.float64(), [-1.5, 0.1, 1e300]),
    "decimal": (pa.decimal128(18, 4), [decimal.Decimal(n) for n in ("-1.0001", "1.7500", "99.9999")]),
    "date32": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
    "date64": (pa.date64(), [-86_400_000, 0, 86_400_000]),
    "timestamp": (pa.timestamp("us"), [-1, 0, 2**52]),
    "timestamp ns": (pa.timestamp("ns"), [-1, 0, 1]),
    "timestamp UTC": (pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, d, tzinfo=dt.UTC) for d in (1, 2, 3)]),
    "time": (pa.time64("us"), [dt.time(0), dt.time(12, 30), dt.time(23, 59, 59)]),
    "binary": (pa.binary(), [b"", b"\x00'", b"\xff"]),
    "text": (pa.string(), ["", "it's \"x\" \\ \n", "ünï"]),
}  # fmt: skip
NASTY = [
    "",
    " ",
    "it's",
    "''",
    'say "hi"',
    "`tick`",
    "back\\slash",
    "\\'",
    "new\nline",
    "tab\t",
    "nul\0nul",
    "ünïcødé",
    "🜁 astral",
    "%",
    "_",
    "a' OR '1'='1",
    "a'; DROP TABLE t; --",
    "null",
    "true",
    "1",
]


def holder(address: str, values: pa.Array, column: str = "v", **options: Any) -> GraphStore:
    """Make a graph whose table has these values in one column, with ids r0, r1, ..."""
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field(column, values.type)])
    made = make_docs(address, schema, **options)
    names = [f"r{number}" for number in range(len(values))]
    write(made, {DOC: Append(pa.table([names, values], schema=schema))})
    return made


def matching(store: GraphStore, predicate: Predicate) -> set[int]:
    """Return the numbers of the rows that a scan with a predicate gives."""
    table = find(store.table(store.snapshot(), DOC), predicate, ["id"])
    return {int(name[1:]) for name in table["id"].to_pylist()}


@pytest.mark.parametrize("kind", TYPES)
def test_every_comparison_keeps_the_rows_for_which_it_is_true(local_place: Place, kind: str) -> None:
    """And never those with null, for which it is unknown."""
    data_type, found = TYPES[kind]
    values = pa.array([*found, None], data_type)
    plain = [value.as_py() if kind != "timestamp ns" else value.value for value in values[:3]]
    with holder(local_place.address, values) as store:
        for symbol, means in MEANINGS.items():
            expected = {row for row in range(3) if means(plain[row], plain[1])}

            assert matching(store, compares("v", symbol, values[1])) == expected, symbol


@pytest.mark.parametrize("kind", ["uint64", "date32", "date64", "bool", "text", "int64"])
def test_comparisons_work_alike_on_every_store(place: Place, kind: str) -> None:
    data_type, found = TYPES[kind]
    values = pa.array([*found, None], data_type)
    with holder(place.address, values, **place.kwargs) as store:
        assert matching(store, compares("v", "=", values[2])) == {2}
        assert matching(store, is_null("v", negated=True)) == {0, 1, 2}
        assert matching(store, is_null("v")) == {3}


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind != "bool"])
def test_a_set_of_values_keeps_the_rows_that_have_one_of_them(local_place: Place, kind: str) -> None:
    data_type, found = TYPES[kind]
    values = pa.array([*found, None], data_type)
    with holder(local_place.address, values) as store:
        assert matching(store, is_in("v", values.take([0, 2]))) == {0, 2}


# -- null


NUMBERS = pa.array([1, 2, None, 4], pa.int64())
ONE, TWO, NULL = pa.scalar(1, pa.int64()), pa.scalar(2, pa.int64()), pa.scalar(None, pa.int64())


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (is_null("v"), {2}),
        (is_null("v", negated=True), {0, 1, 3}),
        (compares("v", "=", NULL), set()),
        (compares("v", "!=", NULL), set()),
        (is_in("v", NUMBERS[:0]), set()),
        (is_in("v", pa.array([1, None], pa.int64())), {0}),
        (all_hold([]), {0, 1, 2, 3}),
        (any_holds([]), set()),
        (all_hold([compares("v", ">", ONE), compares("v", "<=", TWO)]), {1}),
        (any_holds([compares("v", "=", ONE), is_null("v")]), {0, 2}),
        (any_holds([compares("v", "=", NULL), compares("v", "=", TWO)]), {1}),
        (all_hold([compares("v", "=", NULL), compares("v", "=", TWO)]), set()),
    ],
    ids=shown,
)
def test_a_predicate_is_true_of_null_only_where_it_asks_for_null(
    local_place: Place, predicate: Predicate, expected: set[int]
) -> None:
    with holder(local_place.address, NUMBERS) as store:
        assert matching(store, predicate) == expected


def test_a_number_that_is_none_is_never_equal_to_one(local_place: Place) -> None:
    values = pa.array([1.0, float("nan"), None], pa.float64())
    with holder(local_place.address, values) as store:
        assert matching(store, compares("v", "=", pa.scalar(1.0))) == {0}


# -- values stay values


@pytest.mark.parametrize("form", ["compare", "set"])
def test_no_text_changes_the_meaning_of_a_condition(place: Place, form: str) -> None:
    values = pa.array(NASTY, pa.string())
    with holder(place.address, values, **place.kwargs) as store:
        for number in (2, 6, 8, 10, 15):
            value = values[number]
            predicate: Predicate = (
                compares("v", "=", value) if form == "compare" else is_in("v", pa.array([value.as_py()]))
            )
            assert matching(store, predicate) == {number}, NASTY[number]


def test_every_awkward_text_is_found_by_itself_alone(local_place: Place) -> None:
    values = pa.array(NASTY, pa.string())
    with holder(local_place.address, values) as store:
        for number, text in enumerate(NASTY):
            assert matching(store, compares("v", "=", values[number])) == {number}, text


@pytest.mark.parametrize(
    "column", ["Upper", "with space", 'with "quote"', "select", "ünï", "a-b", "1st", "it's"]
)
def test_a_column_may_have_any_name(local_place: Place, column: str) -> None:
    with holder(local_place.address, NUMBERS, column) as store:
        assert matching(store, compares(column, ">", ONE)) == {1, 3}


def test_names_that_differ_only_in_case_are_different_columns(local_place: Place) -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), ("v", pa.int64()), ("V", pa.int64())])
    with make_docs(local_place.address, schema) as store:
        write(store, {DOC: Append(pa.table([["r0", "r1"], [1, 2], [2, 1]], schema=schema))})
        assert matching(store, compares("V", "=", ONE)) == {1}


# -- wrong questions


@pytest.mark.parametrize(
    ("predicate", "names"),
    [
        (compares("age", "=", pa.scalar(1)), "'age'"),
        (is_null("age"), "'age'"),
        (is_in("age", pa.array([1])), "'age'"),
        (is_null("age", negated=True), "'age'"),
        (all_hold([is_null("size"), is_null("age")]), "'age'"),
        (any_holds([is_null("age")]), "'age'"),
        (compares("Size", "=", pa.scalar(1)), "'Size'"),
        (compares("size", "=", pa.scalar("1")), "'size'"),
        (compares("size", "=", pa.scalar(1, pa.int32())), "'size'"),
        (compares("size", "=", pa.scalar(1.0)), "'size'"),
        (is_in("size", pa.array(["1"])), "'size'"),
    ],
    ids=shown,
)
def test_an_unknown_column_or_a_value_of_another_type_is_refused(
    local_place: Place, predicate: Predicate, names: str
) -> None:
    with make_docs(local_place.address) as store, pytest.raises(InvalidRequest, match=names) as caught:
        find(store.table(store.snapshot(), DOC), predicate)

    assert caught.value.code == "bad_request"
