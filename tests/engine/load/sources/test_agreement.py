"""One value, one meaning: JSON lines, records, CSV and Arrow give the same rows and refuse the same ones."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.base.times import FIRST_DAY, FIRST_INSTANT, LAST_DAY, LAST_INSTANT
from tests.engine.load.sources.reading import Reading, lines, node, read

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
narrow = st.floats(allow_nan=False, allow_infinity=False, width=32)
days = st.integers(FIRST_DAY, LAST_DAY)
instants = st.integers(FIRST_INSTANT, LAST_INSTANT)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ROW = st.fixed_dictionaries(
    {"name": text.filter(bool)},
    optional={
        "s": text.filter(bool),  # an empty field of CSV is null
        "b": st.booleans(),
        "i": st.integers(-(2**31), 2**31 - 1),
        "j": st.integers(-(2**63), 2**63 - 1),
        "u": st.integers(0, 2**32 - 1),
        "v": st.integers(0, 2**64 - 1),
        "f": st.one_of(st.floats(-3.4e38, 3.4e38), narrow),
        "g": st.floats(allow_nan=False, allow_infinity=False),
        "d": days,
        "t": instants,
        "x": st.lists(narrow, min_size=3, max_size=3),
        "ls": st.lists(text, max_size=3),
        "lb": st.lists(st.booleans(), max_size=3),
        "li": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
        "lg": st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3),
        "ld": st.lists(days, max_size=3),
        "lt": st.lists(instants, max_size=3),
    },
)
WIDE = {
    "name": pa.large_string(),
    "s": pa.string_view(),
    "b": pa.bool_(),
    "i": pa.int64(),
    "j": pa.int64(),
    "u": pa.uint64(),
    "v": pa.uint64(),
    "f": pa.float64(),
    "g": pa.float64(),
    "d": pa.int64(),
    "t": pa.int64(),
    "x": pa.list_(pa.float64()),
    "ls": pa.large_list(pa.string()),
    "lb": pa.list_(pa.bool_()),
    "li": pa.list_(pa.int64()),
    "lg": pa.list_(pa.float64()),
    "ld": pa.list_(pa.int32()),
    "lt": pa.list_(pa.int64()),
}


def as_arrow(rows: list[dict[str, Any]]) -> pa.Table:
    """Return rows in wide Arrow types."""
    return pa.table({name: pa.array([row.get(name) for row in rows], found) for name, found in WIDE.items()})


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    """Return rows as CSV: lists as JSON, the rest as Python prints it."""
    sink = io.StringIO()
    writer = csv.writer(sink)
    writer.writerow(WIDE)
    for row in rows:
        found = [row.get(name) for name in WIDE]
        writer.writerow([json.dumps(value) if isinstance(value, list) else value for value in found])
    return sink.getvalue().encode()


def outcome(found: Reading) -> tuple[pa.Table, list[tuple[str, str | None, str]]]:
    """Return the stored rows, and what was refused where."""
    schema = found.blocks[0].rows.schema if found.blocks else pa.schema([])
    refused = [(v.code, v.property, str(v.place).rpartition(":")[2]) for v in found.report.violations]
    return pa.Table.from_batches([block.rows for block in found.blocks], schema), refused


@given(st.lists(ROW, min_size=1, max_size=6))
def test_every_door_stores_the_same_values(rows: list[dict[str, Any]]) -> None:
    expected, refused = outcome(read(lines(*[node("Every", **row) for row in rows])))

    assert refused == []
    assert expected.num_rows == len(rows)
    for other in (rows, as_arrow(rows), as_csv(rows), as_arrow(rows).slice(0, len(rows)).to_batches()):
        assert outcome(read(other, type="Every")) == (expected, [])


ODD = st.fixed_dictionaries(
    {"name": st.text("ab", min_size=1, max_size=2)},
    optional={
        "i": st.integers(-(2**33), 2**33),
        "u": st.integers(-2, 2**33),
        "f": st.floats(),
        "g": st.floats(),
        "d": st.integers(-(2**32), 2**32),
        "x": st.lists(st.one_of(st.none(), st.floats()), min_size=2, max_size=4),
        "ls": st.lists(st.one_of(st.none(), text), max_size=3),
        "li": st.lists(st.one_of(st.none(), st.integers(-(2**33), 2**33)), max_size=3),
    },
)


ODD_NAMES = ("name", "i", "u", "f", "g", "d", "x", "ls", "li")


@given(st.lists(ODD, min_size=1, max_size=5))
def test_records_and_arrow_refuse_the_same_rows_for_the_same_reason(rows: list[dict[str, Any]]) -> None:
    columns = WIDE | {"u": pa.int64()}
    table = pa.table({n: pa.array([row.get(n) for row in rows], columns[n]) for n in ODD_NAMES})

    # Arrow reports each fault of a list: with the usual limit the two would show other rows.
    stored, refused = outcome(read(rows, type="Every", shown=1000))
    other_stored, other_refused = outcome(read(table, type="Every", shown=1000))

    assert set(refused) == set(other_refused)
    assert stored == other_stored


@given(st.datetimes(timezones=st.one_of(st.none(), st.timezones())))
def test_a_time_means_the_same_as_text_as_python_value_and_as_timestamp(moment: dt.datetime) -> None:
    offset = moment.utcoffset()
    utc = (moment if offset is not None else moment.replace(tzinfo=dt.UTC)) - EPOCH
    micros = utc // dt.timedelta(microseconds=1)
    expected = [micros // 1000]

    def instants(data: Any) -> Any:
        [block] = read(data, type="Every").blocks
        return block.rows.column("t").cast("int64").to_pylist()

    if offset is None or offset.seconds % 60 == 0:  # ISO text has no seconds in an offset
        assert instants([{"name": "e", "t": moment.isoformat()}]) == expected
        assert instants(f"name,t\ne,{moment.isoformat()}\n".encode()) == expected
    assert instants([{"name": "e", "t": moment}]) == expected
    assert instants(pa.table({"name": ["e"], "t": pa.array([micros], pa.timestamp("us"))})) == expected
    if abs(micros) < 2**63 // 1000:
        nanos = pa.array([micros * 1000 + 999], pa.timestamp("ns", "UTC"))
        assert instants(pa.table({"name": ["e"], "t": nanos})) == expected
