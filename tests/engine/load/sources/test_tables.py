"""Parquet, Arrow and frames: columns of any Arrow type are kept or refused, never bent."""

from __future__ import annotations

import datetime as dt
import gc
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import ipc
from pyarrow import parquet as pq

from omnigraph.engine.load.conform import MAX_ROWS
from tests.engine.load.sources.reading import read, read_good

NAMES = pa.array(["a", "b", "c"])


def every(**columns: Any) -> pa.Table:
    """Return a table of `Every` rows a, b, c."""
    return pa.table({"name": NAMES, **columns})


def stored(table: Any, name: str, cast: str | None = None, **options: Any) -> list[Any]:
    """Return a stored column of an input without problems."""
    found = read(table, type="Every", **options)
    assert found.problems == []
    columns = [block.rows.column(name) for block in found.blocks]
    return [value for c in columns for value in (c.cast(cast) if cast else c).to_pylist()]


INTS = [1, None, 3]
KEPT: list[Any] = [
    ("s", pa.array(["x", None, "é"], pa.large_string()), ["x", None, "é"]),
    ("s", pa.array(["x", None, "é"], pa.string_view()), ["x", None, "é"]),
    ("s", pa.array(["x", None, "x"]).dictionary_encode(), ["x", None, "x"]),
    ("s", pa.nulls(3), [None] * 3),
    ("b", pa.array([True, None, False]), [True, None, False]),
    *[
        (n, pa.array(INTS, t), INTS)
        for n in "ijuv"
        for t in (pa.int8(), pa.uint16(), pa.int64(), pa.uint64())
    ],
    *[
        (n, pa.array(INTS, t), [1.0, None, 3.0])
        for n in "fg"
        for t in (pa.int32(), pa.uint64(), pa.float32())
    ],
    ("f", pa.array([0.1, None, 1.0]), [0.10000000149011612, None, 1.0]),
    ("g", pa.array([0.5, None, 1.0], pa.float16()), [0.5, None, 1.0]),
    ("o", pa.array([b"x", None, b""]), [b"x", None, b""]),
    ("o", pa.array([b"x", None, b""], pa.binary_view()), [b"x", None, b""]),
    ("o", pa.array([b"xy", None, b"zz"], pa.binary(2)), [b"xy", None, b"zz"]),
    ("o", pa.array(["base64:eA==", None, "base64:"]), [b"x", None, b""]),
    ("ls", pa.array([["x"], None, []], pa.large_list(pa.large_string())), [["x"], None, []]),
    ("li", pa.array([[1, 2], None, []], pa.list_(pa.int64())), [[1, 2], None, []]),
    ("li", pa.array([[1, 2], None, []], pa.list_view(pa.int64())), [[1, 2], None, []]),
    ("li", pa.array([[1, 2], None, [3, 4]], pa.list_(pa.uint8(), 2)), [[1, 2], None, [3, 4]]),
    ("lg", pa.array([[1], None, []], pa.list_(pa.int8())), [[1.0], None, []]),
    *[
        ("x", pa.array([[1, 2, 3], None, [4, 5, 6]], t), [[1.0, 2.0, 3.0], None, [4.0, 5.0, 6.0]])
        for t in (
            pa.list_(pa.float64()),
            pa.large_list(pa.float32()),
            pa.list_(pa.int32(), 3),
            pa.list_(pa.float32(), 3),
            pa.list_view(pa.float64()),
        )
    ],
]


@pytest.mark.parametrize(("name", "column", "values"), KEPT, ids=[f"{k[0]}-{k[1].type}" for k in KEPT])
def test_values_are_kept_whatever_the_arrow_type(name: str, column: pa.Array, values: list[Any]) -> None:
    assert stored(every(**{name: column}), name) == values
    twice = pa.concat_tables([every(**{name: column})] * 2).slice(1, 4)
    assert stored(twice, name) == [*values[1:], *values[:2]]


DAY = 86_400_000
TIMES: list[Any] = [
    ("d", pa.array([1, None, -1], pa.date32()), [1, None, -1]),
    ("d", pa.array([1, None, -1], pa.int8()), [1, None, -1]),
    ("d", pa.array([DAY + 5, None, -1], pa.int64()).cast(pa.date64()), [1, None, -1]),
    ("d", pa.array([DAY * 1000, None, -1], pa.timestamp("us")), [1, None, -1]),
    ("d", pa.array(["1970-01-02", None, "1969-12-31T23:00Z"]), [1, None, -1]),
    ("t", pa.array([1, None, -1], pa.int64()).cast(pa.date64()), [1, None, -1]),
    ("t", pa.array([1, None, -1], pa.date32()), [DAY, None, -DAY]),
    ("t", pa.array([1, None, -1], pa.timestamp("s")), [1000, None, -1000]),
    ("t", pa.array([1, None, -1], pa.timestamp("ms", "Europe/Oslo")), [1, None, -1]),
    ("t", pa.array([1999, None, -1], pa.timestamp("us")), [1, None, -1]),  # towards the past, like text
    ("t", pa.array([1_999_999, None, -1_000_001], pa.timestamp("ns", "UTC")), [1, None, -2]),
    ("t", pa.array([5, None, -5], pa.int16()), [5, None, -5]),
    ("t", pa.array(["1970-01-01T00:00:01.9999Z", None, "1970-01-01"]).dictionary_encode(), [1999, None, 0]),
]


@pytest.mark.parametrize(("name", "column", "values"), TIMES, ids=[f"{t[0]}-{t[1].type}" for t in TIMES])
def test_days_and_times_of_any_unit_and_zone(name: str, column: pa.Array, values: list[Any]) -> None:
    assert stored(every(**{name: column}), name, "int32" if name == "d" else "int64") == values


REFUSED: list[Any] = [
    ("i", pa.array([1, None, 2**31]), "Every.i: 2147483648 exceeds Int32 range"),
    ("u", pa.array([1, None, -1]), "-1 exceeds UInt32 range"),
    ("j", pa.array([1, None, 2**63], pa.uint64()), "exceeds Int64 range"),
    ("v", pa.array([1, None, -1], pa.int8()), "-1 exceeds UInt64 range"),
    ("f", pa.array([1, None, 1e39]), "1e+39 exceeds Float32 range"),
    ("g", pa.array([1, None, float("nan")]), "Every.g must be a finite number, not NaN"),
    ("d", pa.array([1, None, 2**31]), "2147483648 exceeds Int32 range"),
    ("d", pa.array(["1970-01-02", None, "soon"]), "expected a day such as"),
    ("t", pa.array([1, None, 2**62], pa.timestamp("s")), "out of range"),
    ("x", pa.array([[1.0, 2, 3], None, [1.0]]), "Every.x: expected 3 numbers, found 1"),
    ("x", pa.array([[1.0, 2, 3], None, [1.0, None, 2]]), "element 1 is null"),
    ("x", pa.array([[1.0, 2, 3], None, [1.0, 1e39, 2]]), "exceeds Float32 range"),
    ("x", pa.array([[1.0, 2, 3], None, [1.0, float("inf"), 2]]), "element 1 must be a finite number"),
    ("ls", pa.array([["a"], None, ["b", None]]), "item 1 is null"),
    ("li", pa.array([[1], None, [1, 2**40]]), "exceeds Int32 range"),
    ("o", pa.array(["base64:", None, "file:///x"]), "external blob URIs are not allowed"),
    ("s", pa.array([b"x", None, b"\xff"]).view(pa.string()), "broken UTF-8 at byte 0"),
]


@pytest.mark.parametrize(("name", "column", "words"), REFUSED, ids=[f"{r[0]}-{r[1].type}" for r in REFUSED])
def test_a_value_that_does_not_fit_is_refused_with_its_row(name: str, column: pa.Array, words: str) -> None:
    found = read(every(**{name: column}), type="Every")

    [violation] = found.report.violations
    assert (violation.code, violation.place, violation.property) == ("type", "<table>:3", name)
    assert words in violation.message
    assert [row["name"] for row in found.rows] == ["a", "b"]


WRONG: list[Any] = [
    ("s", pa.array([1, 2, 3]), "Every.s is of type String? and takes text, not a column of int64"),
    ("s", pa.array([b"1", b"2", b"3"]), "takes text"),
    ("i", pa.array(["1", "2", "3"]), "takes integers, not a column of string"),
    ("i", pa.array([1.0, 2.0, 3.0]), "takes integers, not a column of double"),
    ("i", pa.array([True, False, None]), "takes integers, not a column of bool"),
    ("b", pa.array([1, 0, None]), "takes booleans"),
    ("g", pa.array(["1", "2", "3"]), "takes numbers"),
    ("g", pa.array([1, 2, 3]).cast(pa.decimal128(21, 2)), "takes numbers"),
    ("d", pa.array([1.5, 2, 3]), "takes days"),
    ("t", pa.array([1, 2, 3], pa.time64("us")), "takes timestamps"),
    ("x", pa.array([1.0, 2, 3]), "takes lists of numbers"),
    ("x", pa.array([["a"], ["b"], ["c"]]), "takes numbers"),
    ("li", pa.array([["a"], ["b"], ["c"]]), "takes integers"),
    ("ls", pa.array(["a", "b", "c"]), "takes lists"),
    ("o", pa.array([1, 2, 3]), "takes bytes"),
]


@pytest.mark.parametrize(("name", "column", "words"), WRONG, ids=[f"{w[0]}-{w[1].type}" for w in WRONG])
def test_a_column_of_a_wrong_type_is_said_once_and_nothing_is_read(
    name: str, column: pa.Array, words: str
) -> None:
    found = read(every(**{name: column}), type="Every")

    [violation] = found.report.violations
    assert (violation.code, violation.place, found.blocks) == ("type", "<table>:1", [])
    assert words in violation.message


@pytest.mark.parametrize(
    ("table", "code", "words"),
    [
        (pa.table({"name": ["a"], "nam": ["b"]}), "unknown_property", "unknown input field 'nam'"),
        (
            pa.table({"s": ["a"]}),
            "required",
            "non-nullable property 'name' has null or invalid values: there",
        ),
        (pa.table({"s": pa.array([], pa.string())}), "required", "'name'"),
        (pa.table([["a"], ["b"]], names=["name", "name"]), "envelope", "column 'name' stands twice"),
    ],
)
def test_columns_that_do_not_fit_the_type_are_said_once(table: pa.Table, code: str, words: str) -> None:
    found = read(table, type="Every")

    [violation] = found.report.violations
    assert (violation.code, violation.place, found.blocks) == (code, "<table>:1", [])
    assert words in violation.message


def test_nulls_in_a_required_column_are_refused_row_by_row_and_counted() -> None:
    names = [None if n % 2 else f"n{n}" for n in range(100)]

    found = read(pa.table({"name": pa.array(names)}), type="Every")

    assert found.report.total == 50
    assert [v.place for v in found.report.violations] == [f"<table>:{n}" for n in range(2, 42, 2)]
    assert {v.code for v in found.report.violations} == {"required"}
    assert len(found.rows) == 50


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), None])
def test_a_float_key_must_be_a_number(wrong: float | None) -> None:
    found = read(pa.table({"at": pa.array([1.0, wrong, -0.0])}), type="Gauge")

    assert [v.code for v in found.report.violations] == ["required" if wrong is None else "key"]
    assert [row["id"] for row in found.rows] == ["1", "0"]


def test_composite_keys_and_given_ids() -> None:
    table = pa.table({"row": [1, 2], "day": pa.array([3, 4], pa.date32()), "id": ['["3","1"]', '["4","1"]']})

    found = read(table, type="Slot")

    assert [row["id"] for row in found.rows] == ['["3","1"]']
    message = """id '["4","1"]' does not match its canonical @key id '["4","2"]'"""
    assert found.problems == [("key", message)]


ENDS: list[Any] = [
    ("OnDay", pa.array([2, -3], pa.date32()), ["2", "-3"]),
    ("OnDay", pa.array([2 * DAY, 0], pa.timestamp("ms")), ["2", "0"]),
    ("OnDay", pa.array(["2", "-3"]), ["2", "-3"]),
    ("Counts", pa.array([7, 8], pa.uint8()), ["7", "8"]),
    ("Measures", pa.array([1.5, -0.0]), ["1.5", "0"]),
    ("Knows", pa.array(["bo", "ada"]).dictionary_encode(), ["bo", "ada"]),
]


@pytest.mark.parametrize(("edge", "column", "ids"), ENDS)
def test_endpoints_are_ids_or_typed_keys(edge: str, column: pa.Array, ids: list[str]) -> None:
    for names in (("from", "to"), ("src", "dst")):
        table = pa.table([pa.array(["n", "n"]), column], names=names)
        assert [row["dst"] for row in read_good(table, type=edge)] == ids


@pytest.mark.parametrize(
    ("edge", "column", "words"),
    [
        ("Knows", pa.array([1, 2]), "holds the ids of Person nodes, which are text, not int64"),
        ("Takes", pa.array([1, 2]), "holds the ids of Slot nodes"),
        ("Counts", pa.array([1.5, 2.0]), "takes integers"),
        ("Measures", pa.array([1.0, float("nan")]), "a key is a finite number, not NaN"),
        ("Counts", pa.array([1, None]), "non-nullable property 'to'"),
    ],
)
def test_endpoints_that_are_neither_are_refused(edge: str, column: pa.Array, words: str) -> None:
    found = read(pa.table({"from": ["n", "n"], "to": column}), type=edge)

    [violation] = found.report.violations
    assert words in violation.message


# -- files and frames --------------------------------------------------------------------------------

PEOPLE = pa.table(
    {
        "slug": ["ada", "bo", "cy"],
        "age": pa.array([36, None, 120]),
        "role": pa.array(["admin", None, "guest"]).dictionary_encode(),
        "joined": pa.array([dt.datetime(2026, 1, 5, 9, tzinfo=dt.UTC)] * 3, pa.timestamp("us", "UTC")),
    }
)


def arrow_bytes(table: pa.Table, *, stream: bool) -> bytes:
    """Return a table as an Arrow file or stream."""
    sink = io.BytesIO()
    make = ipc.new_stream if stream else ipc.new_file
    with make(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    """Return a table as a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def all_forms(folder: Path) -> Iterator[Any]:
    """Yield the same people in every form of a table."""
    contents = {
        "a.parquet": parquet_bytes(PEOPLE),
        "b.arrow": arrow_bytes(PEOPLE, stream=False),
        "c.arrows": arrow_bytes(PEOPLE, stream=True),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        yield folder / name
        yield content
        yield io.BytesIO(content)
    yield PEOPLE
    yield PEOPLE.combine_chunks().to_batches()[0]
    yield PEOPLE.to_reader()
    yield PEOPLE.to_batches(max_chunksize=1)
    yield PEOPLE.to_pandas()
    yield PEOPLE.to_pandas(types_mapper=pd.ArrowDtype)
    yield Streamed(PEOPLE)


class Streamed:
    """What polars and others are to us: something that hands out an Arrow stream."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_every_form_of_a_table_gives_the_same_rows(tmp_path: Path) -> None:
    expected = read_good(PEOPLE, type="Person")
    assert [row["id"] for row in expected] == ["ada", "bo", "cy"]

    forms = list(all_forms(tmp_path))

    assert len(forms) == 16
    for form in forms:
        assert read_good(form, type="Person") == expected


def test_a_callers_file_stays_open() -> None:
    for content in (parquet_bytes(PEOPLE), arrow_bytes(PEOPLE, stream=False), b'{"slug": "ada"}'):
        file = io.BytesIO(content)
        read_good(file, type="Person")
        gc.collect()
        assert not file.closed


def test_an_empty_table_is_an_empty_load() -> None:
    empty = PEOPLE.slice(0, 0)

    for form in (empty, parquet_bytes(empty), arrow_bytes(empty, stream=True), empty.to_pandas()):
        found = read(form, type="Person")
        assert (found.blocks, found.problems) == ([], [])


def test_in_pandas_nan_is_missing_and_whole_floats_are_integers() -> None:
    frame = pd.DataFrame({"name": ["a", "b"], "i": [1, None], "g": [0.5, np.nan], "v": [2.0**63, None]})

    assert frame["i"].dtype == np.float64
    assert read_good(frame, type="Every") == [
        {"id": "a", "name": "a", "i": 1, "g": 0.5, "v": 2**63},
        {"id": "b", "name": "b"},
    ]


@pytest.mark.parametrize(
    ("values", "words"),
    [([1.5, None], "found 1.5"), ([float("inf"), None], "found inf"), ([3e9, None], "found 3000000000.0")],
)
def test_floats_in_pandas_that_are_no_integers_are_refused(values: list[Any], words: str) -> None:
    found = read(pd.DataFrame({"name": ["a", "b"], "i": values}), type="Every")

    assert [violation.place for violation in found.report.violations] == ["<frame>:1"]
    assert words in found.problems[0][1]


def test_a_pandas_column_of_several_types_is_judged_value_by_value() -> None:
    when = [dt.date(1970, 1, 2), "1970-01-03", 3, None, 4.5]
    frame = pd.DataFrame({"name": list("abcde"), "d": pd.Series(when, dtype=object)})

    found = read(frame, type="Every")

    assert [row.get("d") for row in found.rows] == [dt.date(1970, 1, n) for n in (2, 3, 4)] + [None]
    assert [violation.place for violation in found.report.violations] == ["<frame>:5"]


def test_big_tables_come_in_blocks_with_running_positions() -> None:
    table = pa.table({"text": pa.array(np.arange(150_000)).cast(pa.string())})

    found = read(table, type="Note")

    assert [block.rows.num_rows for block in found.blocks] == [MAX_ROWS, MAX_ROWS, 150_000 - 2 * MAX_ROWS]
    assert pa.chunked_array([b.positions for b in found.blocks]).to_pylist() == list(range(1, 150_001))
    ids = pa.chunked_array([block.rows.column("id") for block in found.blocks])
    assert len(ids.unique()) == 150_000


def test_a_problem_far_in_a_big_file_has_its_row(tmp_path: Path) -> None:
    ages = np.full(200_000, 30)
    ages[[70_000, 199_999]] = 200
    slugs = pa.array(np.arange(200_000)).cast(pa.string())
    pq.write_table(pa.table({"slug": slugs, "age": ages}), tmp_path / "p.parquet", row_group_size=50_000)

    found = read(tmp_path / "p.parquet", type="Person")

    assert [v.place for v in found.report.violations] == ["p.parquet:70001", "p.parquet:200000"]
    assert found.progress[-1] == (tmp_path / "p.parquet").stat().st_size
