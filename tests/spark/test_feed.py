"""The change feed for Spark, planned and read as Spark does it, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from pyspark.sql.types import StructType

from omnigraph import Graph, GraphError
from omnigraph.base.errors import ChangeFeedGap, CursorRejected, InvalidRequest
from omnigraph.pipeline.reading.feed import FeedReader
from tests.spark.changes import SCHEMA, add, graph, source

__all__ = ["graph"]  # a fixture

ALL = ReadAllAvailable()


@pytest.fixture
def readers() -> Iterator[list[FeedReader]]:
    """Readers that are stopped at the end."""
    made: list[FeedReader] = []
    yield made
    for one in made:
        one.stop()


@pytest.fixture
def reader(graph: Graph, readers: list[FeedReader]) -> Any:
    """Return what makes readers as Spark does, without Spark."""

    def make(schema: StructType | None = None, **options: str) -> FeedReader:
        made = source(graph, **options)
        found = made.streamReader(schema or made.schema())
        assert isinstance(found, FeedReader)
        readers.append(found)
        return found

    return make


def between(reader: FeedReader, start: Any, end: Any) -> list[dict[str, Any]]:
    """Return the rows of a batch."""
    parts = reader.partitions(start, end)
    batches = [batch for part in parts for batch in reader.read(part)]
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def news(reader: FeedReader, start: Any) -> list[dict[str, Any]]:
    return between(reader, start, reader.latestOffset(start, ALL))


def ops(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(row["op"], row["type"], row["id"]) for row in rows]


# -- rows --------------------------------------------------------------------------------------------


def test_images_of_one_type_are_structs_of_its_values(graph: Graph, reader: Any) -> None:
    made = reader(type="Person")
    start = made.initialOffset()
    full = {
        "name": "x",
        "age": -1,
        "born": "1969-12-31",
        "at": "1969-12-31T23:59:59.999Z",
        "n": 2**64 - 1,
        "v": [0.5, -1.5],
        "raw": "base64:AP8=",
    }
    graph.load([{"type": "Person", "data": full}, {"type": "Town", "data": {"name": "t"}}], mode="append")
    (row,) = news(made, start)
    image = row["after"]
    assert {name: str(value) for name, value in image.items()} == {
        "age": "-1",
        "at": "1969-12-31 23:59:59.999000+00:00",
        "born": "1969-12-31",
        "n": str(2**64 - 1),
        "name": "x",
        "v": "[0.5, -1.5]",
    }  # blobs are not in images
    assert (row["before"], row["op"], row["kind"], row["type"], row["id"]) == (
        None,
        "insert",
        "node",
        "Person",
        "x",
    )


@pytest.mark.parametrize("options", [{"type": "Person"}, {"type": "Knows"}, {}], ids=["node", "edge", "all"])
def test_batches_have_the_very_schema_that_was_promised(
    graph: Graph, reader: Any, options: dict[str, str]
) -> None:
    made = reader(**options)
    start = made.initialOffset()
    add(graph, "a", "b")
    graph.load([{"edge": "Knows", "from": "a", "to": "b"}], mode="append")
    add(graph, "a", age=3)
    graph.mutate('query q() { delete Person where name = "b" }')
    expected = to_arrow_schema(source(graph, **options).schema(), timezone="UTC")
    parts = made.partitions(start, made.latestOffset(start, ALL))
    found = [batch for part in parts for batch in made.read(part)]
    assert found
    assert all(batch.schema == expected for batch in found)


def test_edges_have_ends(graph: Graph, reader: Any) -> None:
    add(graph, "a", "b")
    made = reader(type="Knows")
    start = made.initialOffset()
    graph.load([{"edge": "Knows", "from": "a", "to": "b", "data": {"since": 3}}], mode="append")
    (row,) = news(made, start)
    assert row["after"] == {"src": "a", "dst": "b", "since": 3}


def test_images_of_several_types_are_json(graph: Graph, reader: Any) -> None:
    every, some = reader(), reader(types="Person, Knows")
    start = every.initialOffset()
    add(graph, "a", "b", age=1)
    graph.load([{"type": "Town", "data": {"name": "t"}}], mode="append")
    graph.load([{"edge": "Knows", "from": "a", "to": "b", "data": {"id": "e"}}], mode="append")
    add(graph, "a", age=2)

    rows = news(every, start)
    people = [("insert", "Person", "a"), ("insert", "Person", "b")]
    rest = [("insert", "Knows", "e"), ("update", "Person", "a")]
    assert ops(rows) == [*people, ("insert", "Town", "t"), *rest]
    assert ops(news(some, start)) == [*people, *rest]
    edge, update = rows[-2:]
    assert json.loads(edge["after"]) == {"id": "e", "from": "a", "to": "b", "since": None}
    assert json.loads(update["before"])["age"] == 1
    assert json.loads(update["after"])["age"] == 2
    assert (update["fields"], edge["fields"], edge["before"]) == (["age"], None, None)


def test_a_merge_is_one_commit_and_maintenance_changes_nothing(graph: Graph, reader: Any) -> None:
    graph.branches.create("dev")
    add(graph, "a", branch="dev")
    add(graph, "b", branch="dev")
    made, dev = reader(), reader(branch="dev", starting="earliest")
    start = made.initialOffset()
    graph.merge("dev")
    graph.ensure_indexes()
    rows = news(made, start)
    assert [(row["id"], row["commit_kind"]) for row in rows] == [("a", "merge"), ("b", "merge")]
    assert [row["id"] for row in news(dev, dev.initialOffset())] == ["a", "b"]


def test_columns_can_be_narrowed_and_only_to_what_there_is(graph: Graph, reader: Any) -> None:
    schema = source(graph).schema()
    narrow = reader(StructType([schema["id"], schema["op"]]))
    start = narrow.initialOffset()
    add(graph, "a")
    assert news(narrow, start) == [{"id": "a", "op": "insert"}]
    with pytest.raises(InvalidRequest, match="there is no column 'age'"):
        reader(StructType().add("age", "integer"))


# -- offsets -----------------------------------------------------------------------------------------


def test_an_offset_is_a_commit_and_stays_where_nothing_came(graph: Graph, reader: Any) -> None:
    made = reader()
    start = made.initialOffset()
    assert start["commit"] == graph.store.snapshot().commit_id
    assert made.latestOffset(start, ALL) == start
    assert made.latestOffset(start, ReadMaxFiles(3)) == start
    assert list(made.partitions(start, start)) == []
    assert list(made.read(InputPartition(None))) == []  # S8: Spark makes up a partition where there is none
    commits = [add(graph, name) for name in "abcde"]
    assert made.latestOffset(start, ALL)["commit"] == commits[-1]
    assert made.latestOffset(start, made.getDefaultReadLimit())["commit"] == commits[-1]
    place = start
    for expected in (commits[1], commits[3], commits[4], commits[4]):
        place = made.latestOffset(place, ReadMaxFiles(2))
        assert place["commit"] == expected
    assert json.loads(json.dumps(place)) == place


def test_a_control_write_is_no_news(graph: Graph, reader: Any) -> None:
    add(graph, "a")
    made = reader()
    start = made.initialOffset()
    graph.store.raise_floor("main", 1)
    assert made.latestOffset(start, ALL) == start
    add(graph, "b")
    assert [row["id"] for row in news(made, start)] == ["b"]


def test_a_run_that_is_to_end_ends_at_the_head_that_it_met(graph: Graph, reader: Any) -> None:
    made = reader()
    start = made.initialOffset()
    last = add(graph, "a")
    made.prepareForTriggerAvailableNow()
    add(graph, "b")
    for limit in (ALL, ReadMaxFiles(5)):
        end = made.latestOffset(start, limit)
        assert end["commit"] == last
        assert made.latestOffset(end, limit) == end


def test_where_a_new_query_begins(graph: Graph, reader: Any) -> None:
    first, second = add(graph, "a"), add(graph, "b")
    graph.tags.create("t", at=first)
    for starting, expected in (
        ("now", []),
        ("earliest", ["a", "b"]),
        (first, ["b"]),
        ("t", ["b"]),
        ("main~1", ["b"]),
        (second, []),
    ):
        made = reader(starting=starting)
        assert [row["id"] for row in news(made, made.initialOffset())] == expected, starting
    graph.branches.create("dev")
    other = add(graph, "c", branch="dev")
    for starting in (other, "nothing"):
        with pytest.raises(GraphError) as caught:
            reader(starting=starting).initialOffset()
        assert caught.value.__notes__ == [f"omnigraph error code: {caught.value.code}"]


def test_a_query_that_goes_on_is_not_asked_where_it_began(graph: Graph, reader: Any) -> None:
    """Its first commit may be cleaned by then."""
    first = add(graph, "a")
    here = reader(starting=first).initialOffset()
    add(graph, "b")
    here = reader().latestOffset(here, ALL)
    add(graph, "c")
    graph.store.raise_floor("main", graph.store.snapshot().state.version - 1)
    assert [row["id"] for row in news(reader(starting=first), here)] == ["c"]


def test_many_commits_share_tasks_and_keep_their_order_in_them(graph: Graph, reader: Any) -> None:
    made = reader()
    start = made.initialOffset()
    names = [f"p{n:02d}" for n in range(40)]
    for name in names:
        add(graph, name)
    end = made.latestOffset(start, ALL)
    assert len(made.partitions(start, end)) == 20
    assert [row["id"] for row in between(made, start, end)] == names


# -- what cannot be read -----------------------------------------------------------------------------


def test_history_that_was_cleaned_is_an_error_wherever_it_is_met(graph: Graph, reader: Any) -> None:
    made = reader()
    start = made.initialOffset()
    add(graph, "a")
    end = made.latestOffset(start, ALL)
    parts = made.partitions(start, end)
    add(graph, "b")
    graph.store.raise_floor("main", graph.store.snapshot().state.version)
    again = reader()
    with pytest.raises(ChangeFeedGap):
        again.latestOffset(start, ReadMaxFiles(1))
    with pytest.raises(ChangeFeedGap):
        again.partitions(start, again.latestOffset(start, ALL))
    assert len(parts) == 1  # its files are there still; raising the floor deletes nothing


def test_a_type_whose_history_was_reclaimed_is_an_error(graph: Graph, reader: Any) -> None:
    made = reader(type="Person")
    start = made.initialOffset()
    add(graph, "a")
    add(graph, "b")
    end = made.latestOffset(start, ALL)
    graph.store.reclaim([graph.schema.catalog().node("Person").table_id])
    with pytest.raises(ChangeFeedGap) as caught:
        between(reader(type="Person"), start, end)
    assert caught.value.__notes__ == ["omnigraph error code: change_feed_gap"]


def test_an_offset_of_another_branch_of_the_name_is_rejected(graph: Graph, reader: Any) -> None:
    graph.branches.create("dev")
    add(graph, "a", branch="dev")
    start = reader(branch="dev").initialOffset()
    graph.branches.delete("dev")
    graph.branches.create("dev")
    add(graph, "b", branch="dev")
    made = reader(branch="dev")
    with pytest.raises(CursorRejected):
        made.partitions(start, made.latestOffset(start, ALL))
    with pytest.raises(CursorRejected):
        made.latestOffset(start, ReadMaxFiles(1))


# -- schemas that change under a stream --------------------------------------------------------------


def test_a_stream_keeps_its_columns_whatever_becomes_of_the_schema(graph: Graph, reader: Any) -> None:
    made = reader(type="Person")
    start = made.initialOffset()
    add(graph, "a", age=1)
    graph.schema.apply(
        SCHEMA.replace("node Person", 'node Human @rename_from("Person")')
        .replace("age: I32?", 'years: I32? @rename_from("age") town: String?')
        .replace("Person -> Person", "Human -> Human")
    )
    graph.load([{"type": "Human", "data": {"name": "b", "years": 2, "town": "t"}}], mode="append")
    rows = news(made, start)
    assert [(row["type"], row["after"]["age"]) for row in rows] == [("Person", 1), ("Human", 2)]
    assert "town" not in rows[1]["after"]
    fresh = reader(type="Human")
    assert [(row["after"]["years"], row["after"]["town"]) for row in news(fresh, start)] == [
        (1, None),
        (2, "t"),
    ]


def test_a_property_of_another_type_ends_a_stream_that_was_made_before(graph: Graph, reader: Any) -> None:
    made = reader(type="Person")
    start = made.initialOffset()
    add(graph, "a", age=1)
    here = made.latestOffset(start, ALL)
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I64?"))
    graph.load([{"type": "Person", "data": {"name": "b", "age": 2**40}}], mode="append")
    assert [row["after"]["age"] for row in between(made, start, here)] == [1]
    with pytest.raises(InvalidRequest, match="Start the query again"):
        news(made, here)
    again = reader(type="Person")  # reads what came before the change, too
    assert [(row["id"], row["after"]["age"]) for row in news(again, start)] == [("a", 1), ("b", 2**40)]


# -- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"type": "Persn"}, "did you mean 'Person'?"),
        ({"types": "Person,Twon"}, "the schema has no type 'Twon'"),
        ({"type": "Person", "types": "Town"}, "options 'type' and 'types' exclude each other"),
        ({"kind": "node"}, "option 'kind' goes with 'type'"),
        ({"max_commits": "0"}, "option 'max_commits' is '0'"),
        ({"changes": "yes"}, "option 'changes' is 'yes'"),
        ({"at": "main~1"}, "option 'at' does not go with reading changes"),
        ({"columns": "id"}, "option 'columns' does not go with reading changes"),
        ({"branch": "nowhere"}, "nowhere"),
    ],
)
def test_wrong_options_are_refused(graph: Graph, options: dict[str, str], says: str) -> None:
    with pytest.raises(GraphError) as caught:
        source(graph, **options).schema()
    assert says in str(caught.value)
    assert caught.value.__notes__ == [f"omnigraph error code: {caught.value.code}"]
