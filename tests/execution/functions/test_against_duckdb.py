"""Functions and operators give what DuckDB gives for the same values: an oracle that is not ours."""

from __future__ import annotations

from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from omnigraph.catalog.query.functions import FUNCTIONS
from omnigraph.catalog.types import readable
from omnigraph.execution.functions import OPERATORS, apply, operate

ROWS = 2_000
INT, FLOAT, TEXT, BOOL = pa.int64(), pa.float64(), pa.string(), pa.bool_()
DATE, TIME, TEXTS = pa.date32(), pa.date64(), pa.list_(pa.field("item", pa.string()))
LETTERS = "abAB äÄ日,x𐐨"


def _column(rnd: Random, kind: pa.DataType, make: Any) -> pa.Array:
    values = [None if rnd.random() < 0.15 else make() for _ in range(ROWS)]
    numbers = {DATE: pa.int32(), TIME: pa.int64()}
    return pa.array(values, numbers[kind]).view(kind) if kind in numbers else pa.array(values, kind)


def _columns() -> dict[str, pa.Array]:
    """Return columns with NULLs; i and j are integers, f and g floats, s and t texts, and so on."""
    rnd = Random(11)

    def text(most: int) -> str:
        return "".join(rnd.choices(LETTERS, k=rnd.randint(0, most)))

    makers: dict[str, tuple[pa.DataType, Any]] = {
        "i": (INT, lambda: rnd.randint(-1000, 1000)),
        "j": (INT, lambda: rnd.choice([-7, -3, 1, 2, 5])),
        "k": (INT, lambda: rnd.randint(0, 4)),
        "f": (
            FLOAT,
            lambda: rnd.choice([rnd.uniform(-50, 50), float(rnd.randint(-9, 9)), rnd.randint(-9, 9) / 2]),
        ),
        "g": (FLOAT, lambda: rnd.choice([-2.5, 0.5, 1.0, 3.0])),
        "s": (TEXT, lambda: text(8)),
        "t": (TEXT, lambda: text(2)),
        "n": (TEXT, lambda: str(rnd.randint(-(10**6), 10**6))),
        "b": (BOOL, lambda: rnd.random() < 0.5),
        "c": (BOOL, lambda: rnd.random() < 0.5),
        "d": (DATE, lambda: rnd.randint(-80_000, 80_000)),
        "e": (DATE, lambda: rnd.randint(-300, 300)),
        "u": (TIME, lambda: rnd.randint(-(10**12), 10**13)),
        "v": (TIME, lambda: rnd.randint(-(10**9), 10**9)),
        "l": (TEXTS, lambda: [text(1) for _ in range(rnd.randint(0, 4))]),
    }
    return {name: _column(rnd, *maker) for name, maker in makers.items()}


COLUMNS = _columns()
# What is called, with columns by name and constants in a list, the type of the result, and the SQL for it.
CASES: list[tuple[str, list[Any], pa.DataType, str]] = [
    *((op, ["i", "j"], INT, f"i {'//' if op == '/' else op} j") for op in ("+", "-", "*", "/", "%")),
    *((op, ["f", "g"], FLOAT, f"f {op} g") for op in ("+", "-", "*", "/", "%")),
    ("+", ["i", "g"], FLOAT, "i + g"),
    ("negate", ["i"], INT, "-i"),
    *((op, ["i", "f"], BOOL, f"i {op} f") for op in ("=", "!=", "<", "<=", ">", ">=")),
    *((op, ["s", "t"], BOOL, f"s {op} t") for op in ("=", "<", ">=")),
    *((op, ["d", "e"], BOOL, f"d {op} e") for op in ("=", "<", ">=")),
    *((op, ["b", "c"], BOOL, f"b {op} c") for op in ("and", "or", "=", "<")),
    ("not", ["b"], BOOL, "not b"),
    ("is null", ["s"], BOOL, "s is null"),
    ("is not null", ["s"], BOOL, "s is not null"),
    ("||", ["s", "t"], TEXT, "s || t"),
    ("in", ["k", [[1, 3]]], BOOL, "k in (1, 3)"),
    ("in", ["k", [[1, None]]], BOOL, "k in (1, null)"),
    ("in", ["t", "l"], BOOL, "case when len(l) = 0 then false else list_contains(l, t) end"),
    ("[]", ["l", "k"], TEXT, "l[k + 1]"),
    ("[]", ["l", [-1]], TEXT, "l[-1]"),
    ("coalesce", ["i", "j", [0]], INT, "coalesce(i, j, 0)"),
    ("nullif", ["k", [2]], INT, "nullif(k, 2)"),
    ("if", ["b", "i", "j"], INT, "case when b then i else j end"),
    ("least", ["i", "j", "k"], INT, "least(i, j, k)"),
    ("greatest", ["s", "t"], TEXT, "greatest(s, t)"),
    ("lower", ["s"], TEXT, "lower(s)"),
    ("upper", ["s"], TEXT, "upper(s)"),
    ("trim", ["s"], TEXT, "trim(s)"),
    ("length", ["s"], INT, "length(s)"),
    ("substring", ["s", "k"], TEXT, "substring(s, k + 1)"),
    ("substring", ["s", "k", [2]], TEXT, "substring(s, k + 1, 2)"),
    ("substring", ["s", [1], [3]], TEXT, "substring(s, 2, 3)"),
    ("replace", ["s", ["a"], ["ä-"]], TEXT, "replace(s, 'a', 'ä-')"),
    ("replace", ["s", "t", ["?"]], TEXT, "replace(s, t, '?')"),
    ("split", ["s", [","]], TEXTS, "string_split(s, ',')"),
    ("contains", ["s", "t"], BOOL, "contains(s, t)"),
    ("contains", ["s", ["ab"]], BOOL, "contains(s, 'ab')"),
    ("starts_with", ["s", "t"], BOOL, "starts_with(s, t)"),
    ("ends_with", ["s", "t"], BOOL, "ends_with(s, t)"),
    ("matches", ["s", ["^[aä].*b"]], BOOL, "regexp_matches(s, '^[aä].*b')"),
    ("abs", ["i"], INT, "abs(i)"),
    ("floor", ["f"], FLOAT, "floor(f)"),
    ("ceil", ["f"], FLOAT, "ceil(f)"),
    ("round", ["f"], FLOAT, "round(f)"),
    ("round", ["f", [2]], FLOAT, "round(f, 2)"),
    ("sqrt", ["k"], FLOAT, "sqrt(k)"),
    ("power", ["k", "j"], FLOAT, "case when k = 0 and j < 0 then null else power(k, j) end"),
    *(
        ("date_part", [[unit], times], INT, f"date_part('{name}', {times})")
        for unit, name in (
            *((unit, unit) for unit in ("year", "quarter", "month", "week", "day")),
            ("weekday", "isodow"),
            ("yearday", "doy"),
        )
        for times in ("d", "u")
    ),
    *(("date_part", [[unit], "u"], INT, f"date_part('{unit}', u)") for unit in ("hour", "minute", "second")),
    ("date_part", [["millisecond"], "u"], INT, "date_part('millisecond', u) % 1000"),
    ("date_part", [["epoch"], "u"], INT, "floor(date_part('epoch', u))::bigint"),
    *(
        ("date_trunc", [[unit], times], DATE if times == "d" else TIME, f"date_trunc('{unit}', {times})")
        for unit in ("year", "quarter", "month", "week", "day")
        for times in ("d", "u")
    ),
    *(
        ("date_trunc", [[unit], "u"], TIME, f"date_trunc('{unit}', u)")
        for unit in ("hour", "minute", "second")
    ),
    *(
        ("date_diff", [[unit], "d", "e"], INT, f"date_sub('{unit}', d, e)")
        for unit in ("year", "quarter", "month", "day")
    ),
    *(
        ("date_diff", [[unit], "u", "v"], INT, f"date_sub('{unit}', u, v)")
        for unit in ("week", "day", "hour", "second")
    ),
    ("to_string", ["i"], TEXT, "i::varchar"),
    ("to_string", ["f"], TEXT, "f::varchar"),
    ("to_string", ["b"], TEXT, "b::varchar"),
    ("to_string", ["d"], TEXT, "d::varchar"),
    ("to_string", ["u"], TEXT, "strftime(u::timestamp, '%Y-%m-%dT%H:%M:%S.%gZ')"),
    ("to_int", ["n"], INT, "n::bigint"),
    ("to_int", ["f"], INT, "trunc(f)::bigint"),
    ("to_float", ["n"], FLOAT, "n::double"),
    ("to_date", ["u"], DATE, "u::date"),
    ("to_datetime", ["d"], TIME, "d::timestamp"),
    ("size", ["l"], INT, "len(l)"),
    ("slice", ["l", [1], [3]], TEXTS, "l[2:3]"),
    ("slice", ["l", "k"], TEXTS, "case when k is null then null else l[k + 1:] end"),
]
EXCEPT = {"to_bool"}  # DuckDB reads more words than two


def _ours(name: str, arguments: list[Any], kind: pa.DataType) -> list[Any]:
    run = apply if name in FUNCTIONS else operate
    given = [COLUMNS[a] if isinstance(a, str) else pa.scalar(a[0]) for a in arguments]
    if name == "power":  # a zero to a negative power is no number for either
        zero = pa.compute.and_(pa.compute.equal(given[0], 0), pa.compute.less(given[1], 0))
        given[0] = pa.compute.if_else(pa.compute.fill_null(zero, False), None, given[0])
    result = run(name, given, kind)
    values: list[Any] = result.cast(readable(result.type)).to_pylist()
    return values


@pytest.fixture(scope="module")
def database() -> Any:
    """DuckDB with the same columns; times without a zone, as ours are of UTC."""
    naive = {
        name: column.cast(pa.timestamp("ms")) if column.type == TIME else column
        for name, column in COLUMNS.items()
    }
    rows = pa.table({"row": list(range(ROWS)), **naive})
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("given", rows)
        connection.execute("create table rows as select * from given")
        yield connection


@pytest.mark.parametrize(("name", "arguments", "kind", "sql"), CASES, ids=[case[3] for case in CASES])
def test_duckdb_gives_the_same(
    database: Any, name: str, arguments: list[Any], kind: pa.DataType, sql: str
) -> None:
    answer = database.sql(f'select {sql} as value from rows order by "row"').to_arrow_table()["value"]
    expected = answer.combine_chunks().cast(readable(kind)).to_pylist()
    ours = _ours(name, arguments, kind)
    # Other libraries raise to powers and shift points: the last digit may differ.
    assert ours == (pytest.approx(expected, rel=1e-12) if kind == FLOAT else expected)


def test_every_function_and_operator_is_asked_of_duckdb() -> None:
    assert {case[0] for case in CASES} == (set(FUNCTIONS) | set(OPERATORS)) - EXCEPT
