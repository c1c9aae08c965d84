"""What does a function of the query language cost over a column, beside the same kernel of Arrow or DuckDB?

    each function and operator over 1,000,000 rows, a tenth of them NULL; the ratio of our time to the quicker
    that is asked of the other library; one thread

.venv/bin/python bench/functions.py [--rows 1000000 --runs 5] [--only date_part] [--json]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.times import read_period
from omnigraph.catalog.query.functions import FUNCTIONS
from omnigraph.execution.functions import (
    OPERATORS,
    all_items,
    any_item,
    apply,
    items_of,
    merge,
    operate,
    shift,
)

INT, FLOAT, TEXT, BOOL = pa.int64(), pa.float64(), pa.string(), pa.bool_()
DATE, TIME, TEXTS = pa.date32(), pa.date64(), pa.list_(pa.field("item", pa.string()))
Columns = dict[str, pa.Array]


def made(rows: int) -> Columns:
    """Return the columns that are computed with."""
    rng = np.random.default_rng(1)
    nulls = rng.random(rows) < 0.1
    words = np.array(
        ["alpha", "Beta", "gamma delta", " epsilon ", "Zürich", "日本語", "x,y,z", "longer text here"]
    )

    def column(values: Any, kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind, mask=nulls)

    texts = pc.binary_join_element_wise(
        pa.array(words[rng.integers(0, len(words), rows)]),
        pa.array(rng.integers(0, 10**6, rows)).cast(TEXT),
        " ",
    )
    sizes = rng.integers(0, 4, rows)
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    items = pa.array(words[rng.integers(0, len(words), int(bounds[-1]))])
    integers = column(rng.integers(-(10**6), 10**6, rows), INT)
    days, times = rng.integers(-10_000, 30_000, rows), rng.integers(-(10**12), 2 * 10**12, rows)
    return {
        "i": integers,
        "j": column(rng.integers(1, 1000, rows), INT),
        "k": column(rng.integers(0, 5, rows), INT),
        "f": column(rng.uniform(-1000, 1000, rows), FLOAT),
        "g": column(rng.uniform(1, 10, rows), FLOAT),
        "s": pc.if_else(pa.array(nulls), None, texts),
        "t": column(words[rng.integers(0, len(words), rows)], TEXT),
        "n": integers.cast(TEXT),
        "m": column(rng.uniform(-1000, 1000, rows), FLOAT).cast(TEXT),
        "w": column(np.where(rng.random(rows) < 0.5, "true", "false"), TEXT),
        "b": column(rng.random(rows) < 0.5, BOOL),
        "c": column(rng.random(rows) < 0.5, BOOL),
        "d": column(days.astype(np.int32), pa.int32()).view(DATE),
        "e": column((days + rng.integers(-500, 500, rows)).astype(np.int32), pa.int32()).view(DATE),
        "u": column(times, INT).view(TIME),
        "v": column(times + rng.integers(-(10**10), 10**10, rows), INT).view(TIME),
        "dt": column(days.astype(np.int32), pa.int32()).view(DATE).cast(TEXT),
        "ut": column(times, INT).cast(pa.timestamp("ms", "UTC")).cast(TEXT),
        "l": pa.ListArray.from_arrays(bounds, items).cast(TEXTS),
    }


# What is called with which columns, or constants in a list; what is asked of Arrow, or else of DuckDB.
CASES: list[tuple[str, list[Any], pa.DataType, Callable[[Columns], Any] | str]] = [
    ("+", ["i", "j"], INT, lambda c: pc.add_checked(c["i"], c["j"])),
    ("-", ["i", [7]], INT, lambda c: pc.subtract_checked(c["i"], 7)),
    ("*", ["f", "g"], FLOAT, lambda c: pc.multiply(c["f"], c["g"])),
    ("/", ["i", "j"], INT, lambda c: pc.divide_checked(c["i"], c["j"])),
    ("/", ["f", "g"], FLOAT, lambda c: pc.divide(c["f"], c["g"])),
    ("%", ["i", "j"], INT, "i % j"),
    ("%", ["f", "g"], FLOAT, "f % g"),
    ("negate", ["i"], INT, lambda c: pc.negate_checked(c["i"])),
    ("=", ["i", "j"], BOOL, lambda c: pc.equal(c["i"], c["j"])),
    ("!=", ["i", [7]], BOOL, lambda c: pc.not_equal(c["i"], 7)),
    ("<", ["i", "f"], BOOL, "i < f"),
    ("<=", ["s", "t"], BOOL, lambda c: pc.less_equal(c["s"], c["t"])),
    (">", ["d", "e"], BOOL, lambda c: pc.greater(c["d"], c["e"])),
    (">=", ["b", "c"], BOOL, "b >= c"),
    ("and", ["b", "c"], BOOL, lambda c: pc.and_kleene(c["b"], c["c"])),
    ("or", ["b", "c"], BOOL, lambda c: pc.or_kleene(c["b"], c["c"])),
    ("not", ["b"], BOOL, lambda c: pc.invert(c["b"])),
    ("is null", ["s"], BOOL, lambda c: pc.is_null(c["s"])),
    ("is not null", ["s"], BOOL, lambda c: pc.is_valid(c["s"])),
    ("||", ["s", "t"], TEXT, lambda c: pc.binary_join_element_wise(c["s"], c["t"], "")),
    ("||", ["l", "l"], TEXTS, "list_concat(l, l)"),
    ("[]", ["l", [1]], TEXT, "l[2]"),
    ("in", ["k", [[1, 3, 4]]], BOOL, "k in (1, 3, 4)"),
    ("in", ["t", "l"], BOOL, "list_contains(l, t)"),
    ("coalesce", ["i", "j"], INT, lambda c: pc.coalesce(c["i"], c["j"])),
    ("nullif", ["k", [2]], INT, "nullif(k, 2)"),
    ("if", ["b", "i", "j"], INT, lambda c: pc.if_else(c["b"], c["i"], c["j"])),
    ("least", ["i", "j"], INT, lambda c: pc.min_element_wise(c["i"], c["j"])),
    ("greatest", ["i", "j"], INT, lambda c: pc.max_element_wise(c["i"], c["j"])),
    ("lower", ["s"], TEXT, lambda c: pc.utf8_lower(c["s"])),
    ("upper", ["s"], TEXT, lambda c: pc.utf8_upper(c["s"])),
    ("trim", ["s"], TEXT, lambda c: pc.utf8_trim_whitespace(c["s"])),
    ("length", ["s"], INT, lambda c: pc.utf8_length(c["s"])),
    ("substring", ["s", [1], [3]], TEXT, lambda c: pc.utf8_slice_codeunits(c["s"], 1, 4)),
    ("substring", ["s", "k", [3]], TEXT, "substring(s, k + 1, 3)"),
    ("replace", ["s", ["a"], ["-"]], TEXT, lambda c: pc.replace_substring(c["s"], "a", "-")),
    ("replace", ["s", "t", ["-"]], TEXT, "replace(s, t, '-')"),
    ("split", ["s", [" "]], TEXTS, lambda c: pc.split_pattern(c["s"], " ")),
    ("contains", ["s", ["ta"]], BOOL, lambda c: pc.match_substring(c["s"], "ta")),
    ("contains", ["s", "t"], BOOL, "contains(s, t)"),
    ("starts_with", ["s", ["al"]], BOOL, lambda c: pc.starts_with(c["s"], "al")),
    ("starts_with", ["s", "t"], BOOL, "starts_with(s, t)"),
    ("ends_with", ["s", "t"], BOOL, "ends_with(s, t)"),
    ("matches", ["s", ["^[a-m].*7"]], BOOL, lambda c: pc.match_substring_regex(c["s"], "^[a-m].*7")),
    ("abs", ["i"], INT, lambda c: pc.abs_checked(c["i"])),
    ("floor", ["f"], FLOAT, lambda c: pc.floor(c["f"])),
    ("ceil", ["f"], FLOAT, lambda c: pc.ceil(c["f"])),
    ("round", ["f", [2]], FLOAT, lambda c: pc.round(c["f"], 2, "half_towards_infinity")),
    ("sqrt", ["g"], FLOAT, lambda c: pc.sqrt(c["g"])),
    ("power", ["g", "g"], FLOAT, lambda c: pc.power(c["g"], c["g"])),
    *(
        (
            "date_part",
            [[unit], "u"],
            INT,
            lambda c, function=function: function(c["u"].view(pa.timestamp("ms"))),
        )
        for unit, function in (
            ("year", pc.year),
            ("month", pc.month),
            ("week", pc.iso_week),
            ("yearday", pc.day_of_year),
            ("hour", pc.hour),
        )
    ),
    ("date_part", [["year"], "d"], INT, lambda c: pc.year(c["d"])),
    *(
        (
            "date_trunc",
            [[unit], "u"],
            TIME,
            lambda c, unit=unit: pc.floor_temporal(c["u"].view(pa.timestamp("ms")), 1, unit),
        )
        for unit in ("month", "week", "hour")
    ),
    ("date_diff", [["month"], "d", "e"], INT, "date_sub('month', d, e)"),
    ("date_diff", [["day"], "u", "v"], INT, "date_sub('day', u, v)"),
    ("to_string", ["i"], TEXT, lambda c: pc.cast(c["i"], TEXT)),
    ("to_string", ["f"], TEXT, lambda c: pc.cast(c["f"], TEXT)),
    ("to_string", ["u"], TEXT, lambda c: pc.cast(c["u"].view(pa.timestamp("ms")), TEXT)),
    ("to_int", ["n"], INT, lambda c: pc.cast(c["n"], INT)),
    ("to_int", ["f"], INT, lambda c: pc.cast(c["f"], INT, safe=False)),
    ("to_float", ["m"], FLOAT, lambda c: pc.cast(c["m"], FLOAT)),
    ("to_bool", ["w"], BOOL, lambda c: pc.cast(c["w"], BOOL)),
    ("to_date", ["dt"], DATE, lambda c: pc.cast(c["dt"], DATE)),
    ("to_datetime", ["ut"], TIME, lambda c: pc.cast(c["ut"], pa.timestamp("ms", "UTC"))),
    ("size", ["l"], INT, lambda c: pc.list_value_length(c["l"])),
    ("slice", ["l", [1], [3]], TEXTS, lambda c: pc.list_slice(c["l"], 1, 3)),
]


def besides(columns: Columns) -> dict[str, tuple[Callable[[], Any], str]]:
    """Return what is called by another way than the table's, with the SQL for it."""
    rows = len(columns["i"])
    chosen = np.where(np.asarray(pc.fill_null(columns["b"], False)), 0, 1)
    parts = [columns["i"].filter(pa.array(chosen == 0)), columns["j"].filter(pa.array(chosen == 1))]
    items, _ = items_of(columns["l"])
    month, beta = read_period("P1M"), pc.equal(items, "Beta")
    return {
        f"merge of {rows} rows": (lambda: merge(chosen, parts, INT), "case when b then i else j end"),
        "t + duration": (lambda: shift(columns["u"], month, 1), "u + interval 1 month"),
        "any": (lambda: any_item(columns["l"], beta), "list_contains(l, 'Beta')"),
        "all": (lambda: all_items(columns["l"], beta), "len(list_filter(l, lambda x: x <> 'Beta')) = 0"),
    }


def best(action: Callable[[], Any], runs: int) -> float:
    """Return the shortest of some runs, in milliseconds that this process worked."""
    times = []
    for _ in range(runs):
        started = time.process_time()
        action()
        times.append(time.process_time() - started)
    return min(times) * 1_000


def measure(rows: int, runs: int, only: str | None) -> list[dict[str, Any]]:
    """Return the milliseconds of every function, and of the other library for the same rows."""
    import duckdb

    pa.set_cpu_count(1)
    columns = made(rows)
    connection = duckdb.connect(config={"threads": 1})
    naive = {n: c.cast(pa.timestamp("ms")) if c.type == TIME else c for n, c in columns.items()}
    connection.register("given", pa.table(naive))
    connection.execute("create table rows as select * from given")

    def asked(sql: str) -> Callable[[], Any]:
        return lambda: connection.sql(f"select {sql} as value from rows").to_arrow_table()

    measured = []
    for name, arguments, kind, other in CASES:
        if only is not None and name != only:
            continue
        given = [columns[a] if isinstance(a, str) else pa.scalar(a[0]) for a in arguments]
        run = apply if name in FUNCTIONS else operate
        beside = "duckdb" if isinstance(other, str) else "arrow"
        theirs = asked(other) if isinstance(other, str) else partial(other, columns)
        ours = best(partial(run, name, given, kind), runs)
        shown = f"{name} {' '.join(a if isinstance(a, str) else repr(a[0]) for a in arguments)}"
        measured.append(line(shown, ours, best(theirs, runs), beside))
    for name, (action, sql) in besides(columns).items():
        if only is None:
            measured.append(line(name, best(action, runs), best(asked(sql), runs), "duckdb"))
    return measured


def line(name: str, ours: float, theirs: float, beside: str) -> dict[str, Any]:
    """Return a row of the report."""
    return {
        "function": name,
        "ms": round(ours, 2),
        "beside": beside,
        "its_ms": round(theirs, 2),
        "ratio": round(ours / max(theirs, 0.01), 2),
    }


def main() -> None:
    """Print the table, the slowest first, and how many are above the bounds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measured = sorted(measure(options.rows, options.runs, options.only), key=lambda row: -float(row["ratio"]))
    if options.json:
        print(json.dumps(measured, indent=1))
        return
    for row in measured:
        print("{function:32} {ms:9.2f} ms   {beside:6} {its_ms:9.2f} ms   {ratio:6.2f}x".format(**row))
    above = [sum(row["ratio"] > bound for row in measured) for bound in (3, 10)]
    print(f"{len(measured)} measured, {above[0]} above 3x, {above[1]} above 10x")
    missing = (set(FUNCTIONS) | set(OPERATORS)) - {case[0] for case in CASES}
    if missing:
        print(f"not measured: {', '.join(sorted(missing))}")


if __name__ == "__main__":
    main()
