"""Dates and times at the edge of what is stored: refused on every way in, readable on every way out.

Rows beyond the years 1 to 9999 are written here as an older version wrote them: as numbers, by the storage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import GraphError, InvalidRequest
from omnigraph.base.times import (
    FIRST_DAY,
    FIRST_INSTANT,
    LAST_DAY,
    LAST_INSTANT,
    day_of,
    instant_of,
    read_day,
    read_instant,
    write_day,
    write_instant,
)
from tests.support.contents import insert

SCHEMA = """
node Event { k: String @key  at: DateTime?  day: Date?  times: [DateTime]?  days: [Date]?  note: String? }
edge Then: Event -> Event { at: DateTime? }
"""
FAR = 1_738_000_000_000_000  # microseconds given for milliseconds
FAR_TEXT = "+57045-01-10T17:46:40.000Z"
FAR_DAY, FAR_DAY_TEXT = 20_000_000, "+56728-02-22"
BC, BC_TEXT = -70_000_000_000_000, "-0249-10-15T19:33:20.000Z"
FAR_ROW = {"k": "far", "at": FAR, "day": FAR_DAY, "times": [0, BC], "days": [1, FAR_DAY]}
INSTANT = pa.timestamp("ms", "UTC")
READ = """
query q() {
  match { $e: Event }
  return { $e.k as k, $e.at as at, $e.day as day, $e.times as times, $e.days as days, $e }
  order { $e.k }
}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "g", SCHEMA) as graph:
        yield graph


@pytest.fixture
def poisoned(graph: Graph) -> Graph:
    near = {"k": "near", "at": 1500, "day": 1, "times": [1500], "days": [1]}
    insert(graph, {"Event": [FAR_ROW, near], "Then": [{"id": "t", "src": "far", "dst": "near", "at": FAR}]})
    return graph


# -- text and numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [FIRST_INSTANT, FIRST_INSTANT + 1, -1, 0, 1500, LAST_INSTANT])
def test_what_is_written_as_text_is_read_back(number: int) -> None:
    assert read_instant(write_instant(number)) == number
    assert read_day(write_day(number // 86_400_000)) == number // 86_400_000
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=number)
    assert (instant_of(moment), day_of(moment.date())) == (number, number // 86_400_000)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (FAR, FAR_TEXT),
        (BC, BC_TEXT),
        (FIRST_INSTANT - 1, "0000-12-31T23:59:59.999Z"),
        (LAST_INSTANT + 1, "+10000-01-01T00:00:00.000Z"),
        (2**63 - 1, "+292278994-08-17T07:12:55.807Z"),
        (-(2**63), "-292275055-05-16T16:47:04.192Z"),
    ],
)
def test_a_year_that_cannot_be_stored_is_written_with_its_sign_and_read_as_such(
    number: int, text: str
) -> None:
    assert write_instant(number) == text
    with pytest.raises(ValueError, match="outside the years 1 to 9999"):
        read_instant(text)


# -- every way in ------------------------------------------------------------------------------------


def _records(graph: Graph, row: dict[str, Any], folder: Path) -> None:
    graph.load([{"type": "Event", "data": {"k": "good"}}, {"type": "Event", "data": row}], mode="append")


def _lines(graph: Graph, row: dict[str, Any], folder: Path) -> None:
    lines = [{"type": "Event", "data": {"k": "good"}}, {"type": "Event", "data": row}]
    (folder / "in.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    graph.load(folder / "in.jsonl", mode="merge")


def _csv(graph: Graph, row: dict[str, Any], folder: Path) -> None:
    texts = [json.dumps(v).replace('"', '""') if isinstance(v, list) else str(v) for v in row.values()]
    fields = ",".join(f'"{text}"' for text in texts)
    good = ",".join(["good", *[""] * (len(row) - 1)])
    (folder / "Event.csv").write_text(f"{','.join(row)}\n{good}\n{fields}\n")
    graph.load(folder / "Event.csv", mode="append")


def _table(graph: Graph, row: dict[str, Any], folder: Path) -> None:
    graph.load(_arrow(row), type="Event", mode="overwrite")


def _stored(graph: Graph, row: dict[str, Any], folder: Path) -> None:
    """Columns that have the stored type already."""
    schema = graph.schema.catalog().node("Event").stored_schema
    numbers = _arrow(row)
    graph.load(
        numbers.cast(pa.schema([schema.field(name) for name in numbers.column_names])),
        type="Event",
        mode="append",
    )


def _parquet(graph: Graph, row: dict[str, Any], folder: Path) -> None:
    pq.write_table(_arrow(row), folder / "Event.parquet")
    graph.load(folder / "Event.parquet", mode="append")


def _timestamps(graph: Graph, row: dict[str, Any], folder: Path) -> None:
    plain = _arrow(row)
    named = {"at": INSTANT, "times": pa.list_(INSTANT), "day": pa.date32(), "days": pa.list_(pa.date32())}
    kinds = [field.with_type(named.get(field.name, field.type)) for field in plain.schema]
    graph.load(plain.cast(pa.schema(kinds)), type="Event", mode="append")


def _polars(graph: Graph, row: dict[str, Any], folder: Path) -> None:
    import polars

    graph.load(polars.from_arrow(_arrow(row)), type="Event", mode="append")


def _pandas(graph: Graph, row: dict[str, Any], folder: Path) -> None:
    frame = _arrow(row).to_pandas().astype({"at": "Int64", "day": "Int64"})
    graph.load(frame, type="Event", mode="append")


def _arrow(row: dict[str, Any]) -> pa.Table:
    kinds = {"k": pa.string(), "day": pa.int32(), "days": pa.list_(pa.int32())}
    kinds |= {"at": pa.int64(), "times": pa.list_(pa.int64())}
    good = {"k": "good"}
    return pa.table({name: pa.array([good.get(name), row[name]], kinds[name]) for name in row})


INPUTS = [_records, _lines, _csv, _table, _stored, _parquet, _timestamps, _polars, _pandas]


BAD = {"at": FAR, "day": FAR_DAY, "times": [0, BC], "days": [FAR_DAY, 0]}
TEXTS = {"at": FAR_TEXT, "day": FAR_DAY_TEXT, "times": BC_TEXT, "days": FAR_DAY_TEXT}


@pytest.mark.parametrize("give", INPUTS)
def test_a_load_refuses_years_that_cannot_be_read_back_and_names_the_row(
    graph: Graph, tmp_path: Path, give: Callable[[Graph, dict[str, Any], Path], None]
) -> None:
    with pytest.raises(GraphError) as refused:
        give(graph, {"k": "bad", **BAD}, tmp_path)

    violations = {one["property"]: one for one in refused.value.fields["violations"]}
    assert set(violations) == set(BAD)
    for name, violation in violations.items():
        assert (violation["code"], violation["entity_id"]) == ("type", "bad")
        assert f"Event.{name}: {TEXTS[name]} is outside the years 1 to 9999" in violation["message"]
        assert violation["place"].rpartition(":")[2] in ("2", "3")  # the line of a file, or the row
    assert len(graph.nodes("Event")) == 0


EDGES = ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00", "0000-01-01", FAR_TEXT, BC_TEXT]


@pytest.mark.parametrize("text", EDGES)
def test_text_beyond_the_years_is_refused_as_data_and_parameter_and_literal_and_default(
    graph: Graph, tmp_path: Path, text: str
) -> None:
    adding = "query q($t: DateTime) { insert Event { k: 'a', at: $t } }".replace("'", '"')
    asking = "query q($t: DateTime) { match { $e: Event  $e.at = $t } return { $e.k as k } }"
    literal = f'query q() {{ insert Event {{ k: "a", at: datetime("{text}") }} }}'
    default = f'node P {{ k: String @key  at: DateTime @default("{text}") }}'

    with pytest.raises(InvalidRequest, match="outside the years 1 to 9999"):
        graph.mutate(adding, t=text)
    with pytest.raises(InvalidRequest, match="outside the years 1 to 9999"):
        graph.query(asking, t=text)
    with pytest.raises(InvalidRequest, match="invalid DateTime literal"):
        graph.mutate(literal)
    with pytest.raises(GraphError, match=r"@default on P\.at does not fit its type"):
        og.init(tmp_path / "other", default)
    with pytest.raises(GraphError, match="outside the years 1 to 9999"):
        graph.load([{"type": "Event", "data": {"k": "a", "at": text}}], mode="append")


def test_a_datetime_whose_offset_leaves_the_years_is_refused(graph: Graph) -> None:
    late = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2)))
    adding = 'query q($t: DateTime) { insert Event { k: "a", at: $t } }'

    with pytest.raises(InvalidRequest, match=r"\+10000-01-01T01:00:00.000Z is outside"):
        graph.mutate(adding, t=late)
    with pytest.raises(GraphError, match=r"\+10000-01-01T01:00:00.000Z is outside"):
        graph.load([{"type": "Event", "data": {"k": "a", "at": late}}], mode="append")


def test_the_missing_time_of_pandas_is_no_time(graph: Graph) -> None:
    adding = 'query q($t: DateTime?) { insert Event { k: "a", at: $t } }'

    with pytest.raises(InvalidRequest, match="invalid DateTime literal 'NaT'"):
        graph.mutate(adding, t=pd.NaT)
    with pytest.raises(GraphError, match=r"expected a time such as .* found NaT"):
        graph.load([{"type": "Event", "data": {"k": "a", "at": pd.NaT}}], mode="append")
    with pytest.raises(InvalidRequest, match="NaT"):
        graph.nodes("Event", at=pd.NaT)


def test_a_resolution_of_a_merge_is_held_to_the_years(poisoned: Graph) -> None:
    choice = {"type": "Event", "id": "near", "property": "at", "value": FAR_TEXT}
    poisoned.branches.create("side")
    poisoned.mutate('query q() { delete Event where k = "near" }', branch="side")

    with pytest.raises(InvalidRequest, match="outside the years 1 to 9999"):
        poisoned.merge("side", resolutions=[choice])


def test_the_first_and_the_last_moment_go_in_and_come_out_of_every_form(graph: Graph) -> None:
    first, last = "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"
    data = {"k": "a", "at": first, "times": [first, last], "day": FIRST_DAY, "days": [FIRST_DAY, LAST_DAY]}
    graph.load([{"type": "Event", "data": data}], mode="append")

    [shown] = graph.query(READ).json_rows()
    again = {"k": "b", **{name: shown[name] for name in ("at", "times", "day", "days")}}
    graph.load([{"type": "Event", "data": again}], mode="append")

    assert (shown["at"], shown["days"]) == (first, ["0001-01-01", "9999-12-31"])
    rows = graph.query(READ).rows
    assert rows[0]["times"] == rows[1]["times"]
    assert rows[1]["at"] == datetime(1, 1, 1, tzinfo=UTC)
    assert rows[1]["days"] == [date(1, 1, 1), date(9999, 12, 31)]


# -- every way out -----------------------------------------------------------------------------------

SHOWN = {
    "k": "far",
    "at": FAR_TEXT,
    "day": FAR_DAY_TEXT,
    "times": ["1970-01-01T00:00:00.000Z", BC_TEXT],
    "days": ["1970-01-02", FAR_DAY_TEXT],
}


def test_a_query_reads_such_a_row(poisoned: Graph) -> None:
    result = poisoned.query(READ)

    far, near = result.rows
    assert {name: far[name] for name in ("at", "day")} == {"at": FAR_TEXT, "day": FAR_DAY_TEXT}
    assert far["times"] == [datetime(1970, 1, 1, tzinfo=UTC), BC_TEXT]
    assert far["days"] == [date(1970, 1, 2), FAR_DAY_TEXT]
    assert far["e"] == {"id": "far", "note": None, **{name: far[name] for name in SHOWN}}
    assert near["at"] == near["e"]["at"] == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert {name: result.json_rows()[0][name] for name in SHOWN} == SHOWN
    assert result.json_rows()[0]["e"] == {"id": "far", "note": None, **SHOWN}
    assert FAR_TEXT in result._repr_html_()
    assert result.to_arrow()["at"].cast(pa.int64()).to_pylist() == [FAR, 1500]
    frame = result.to_pandas()
    assert frame["at"].astype("int64").tolist() == [FAR, 1500]
    assert (frame["day"].tolist(), frame["e"][0]["at"]) == ([FAR_DAY_TEXT, date(1970, 1, 2)], FAR_TEXT)
    assert result.to_polars()["at"].to_physical().to_list() == [FAR, 1500]


def test_such_values_are_compared_ordered_grouped_and_collected(poisoned: Graph) -> None:
    later = "query q($t: DateTime) { match { $e: Event  $e.at > $t } return { $e.k as k } }"
    grouped = "query q() { match { $e: Event } return { $e.times as t, count($e) as n } }"
    collected = "query q() { match { $e: Event } return { collect($e.at) as all } }"

    assert poisoned.query(later, t="9999-12-31T23:59:59.999Z").rows == [{"k": "far"}]
    assert [row["n"] for row in poisoned.query(grouped)] == [1, 1]
    assert poisoned.query(collected).json_rows() == [{"all": [FAR_TEXT, "1970-01-01T00:00:01.500Z"]}]


def test_lists_of_moments_of_one_day_are_told_apart_by_their_time(graph: Graph) -> None:
    rows = [{"k": k, "times": [ms]} for k, ms in (("a", 3), ("b", 1), ("c", 2), ("d", 1))]
    graph.load([{"type": "Event", "data": row} for row in rows], mode="append")
    query = "query q() { match { $e: Event } return distinct { $e.times as t } }"

    times = sorted(row["t"][0].microsecond for row in graph.query(query))

    assert times == [1000, 2000, 3000]


def test_tables_and_nodes_hold_utc_timestamps(poisoned: Graph) -> None:
    nodes, edges = poisoned.nodes("Event").to_arrow(), poisoned.edges("Then").to_arrow()
    result = poisoned.query(READ).to_arrow()

    for table in (nodes, result):
        assert table.schema.field("at").type == INSTANT
        assert table.schema.field("times").type.value_type == INSTANT
        assert table.schema.field("day").type == pa.date32()
    assert edges.schema.field("at").type == INSTANT
    assert result.schema.field("e").type.field("at").type == INSTANT
    assert result.schema.field("e").type.field("times").type.value_type == INSTANT
    assert nodes["at"].cast(pa.int64()).to_pylist() == [FAR, 1500]
    assert nodes["at"][1].as_py() == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)


def test_a_table_of_the_past_holds_utc_timestamps_too(poisoned: Graph) -> None:
    before = poisoned.store.snapshot().commit_id
    poisoned.schema.apply(SCHEMA.replace("note: String?", "note: String?  late: DateTime?"))

    table = poisoned.nodes("Event", at=before).to_arrow()

    assert table.schema.field("late").type == INSTANT
    assert table["late"].null_count == 2


def test_an_entity_its_versions_a_diff_and_the_feed_show_such_a_row(poisoned: Graph) -> None:
    image = {"id": "far", "note": None, **SHOWN}
    poisoned.branches.create("old")
    poisoned.mutate('query q() { update Event set { note: "seen" } where k = "far" }')
    poisoned.mutate('query q() { delete Event where k = "far" }')

    assert poisoned.entity("Event", "far").get(branch="old") == image
    assert [version.op.value for version in poisoned.entity("Event", "far").history()] == [
        "delete",
        "update",
        "insert",
    ]
    removed = next(change for change in poisoned.diff("old", "main") if change.id == "far")
    assert removed.before == image
    fed = json.dumps(poisoned.changes.poll(start="beginning").to_json())
    assert FAR_TEXT in fed
    assert FAR_DAY_TEXT in fed


def test_such_a_row_is_merged_mended_and_shown_in_conflicts(poisoned: Graph) -> None:
    poisoned.branches.create("side")
    insert(poisoned, {"Event": [{**FAR_ROW, "k": "more"}]}, "side")
    poisoned.mutate('query q() { update Event set { note: "here" } where k = "far" }')
    poisoned.merge("side")
    assert len(poisoned.nodes("Event")) == 3

    poisoned.branches.create("other")
    mend = 'query q() {{ update Event set {{ at: datetime("{}") }} where k = "far" }}'
    poisoned.mutate(mend.format("2025-01-27T17:46:40Z"), branch="other")
    preview = poisoned.merge("other", preview=True)
    assert preview.conflicts == ()
    poisoned.mutate(mend.format("2024-01-01T00:00:00Z"))
    [conflict] = poisoned.merge("other", preview=True).conflicts
    assert conflict.properties[0].base == FAR_TEXT


def test_such_a_row_is_exported_and_a_load_of_the_file_names_it(poisoned: Graph, tmp_path: Path) -> None:
    poisoned.export(tmp_path / "lines", format="jsonl")
    poisoned.export(tmp_path / "tables", format="parquet")

    table = pq.read_table(tmp_path / "tables" / "Event")
    assert sorted(table["at"].cast(pa.int64()).to_pylist()) == [1500, FAR]
    with (
        og.init(tmp_path / "other", SCHEMA) as other,
        pytest.raises(GraphError, match=r"Event\.at: \+57045-01-10T17:46:40\.000Z is outside"),
    ):
        other.load(tmp_path / "lines", mode="append")


def test_a_violation_that_shows_such_a_value_is_still_a_violation(poisoned: Graph) -> None:
    insert(poisoned, {"Event": [{"k": "same", "at": FAR, "day": FAR_DAY}]})

    with pytest.raises(GraphError, match=r"57045-01-10T17:46:40"):
        poisoned.schema.apply(SCHEMA.replace("at: DateTime?  day", "at: DateTime? @unique  day"))
