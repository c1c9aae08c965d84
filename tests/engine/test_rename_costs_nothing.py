"""A rename of a type and of a property touches no table, however many rows there are: only names change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.schema.schema import SchemaReceipt
from omnigraph.storage.tables.effects import Append
from tests.support.contents import change, check_whole, insert
from tests.support.places import Place
from tests.support.proxy import Request, S3Proxy
from tests.support.s3 import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.xdist_group("rename")]

ROWS = 100_000
BEFORE = "node Person { slug: String @key  age: I32?  @index(age) }\nedge Knows: Person -> Person"
AFTER = """
node Human @rename_from("Person") { slug: String @key  years: I32? @rename_from("age")  @index(years) }
edge Knows: Human -> Human
"""
BOUND = 16  # the whole apply; nothing of it may be about a table


@dataclass(frozen=True)
class Renamed:
    """A graph after its rename, what the rename asked of the store, and the commit before it."""

    graph: Graph
    receipt: SchemaReceipt
    requests: list[Request]
    before: str


@pytest.fixture(scope="module")
def renamed(s3_server: S3Server) -> Iterator[Renamed]:
    """Make the table past the proxy, and rename through it."""
    place = Place(s3_server.new_address(), s3_server.storage_options())
    ids = pa.array([f"p{n:06d}" for n in range(ROWS)])
    rows = pa.table(
        {"id": ids, "age": pa.array(range(ROWS), pa.int32()), "slug": ids},
        schema=pa.schema(
            [pa.field("id", pa.string(), nullable=False), ("age", pa.int32()), ("slug", pa.string())]
        ),
    )
    with og.init(place.address, BEFORE, **place.kwargs) as graph:
        change(graph, "Person", Append(rows))
    with S3Proxy(s3_server.endpoint) as proxy:
        options = s3_server.storage_options(proxy.endpoint)
        with og.connect(place.address, storage_options=options) as graph:
            before = graph.store.snapshot().commit_id
            proxy.reset()
            receipt = graph.schema.apply(AFTER)
            yield Renamed(graph, receipt, proxy.requests, before)


def test_both_renames_are_planned_as_metadata(renamed: Renamed) -> None:
    steps = [(step.kind, step.effect.value) for step in renamed.receipt.plan.steps]
    assert steps == [("rename_type", "metadata"), ("rename_property", "metadata")]


def test_a_rename_asks_nothing_of_any_table(renamed: Renamed) -> None:
    counts: dict[str, int] = {}
    for request in renamed.requests:
        counts[f"{request.method} {request.klass}"] = counts.get(f"{request.method} {request.klass}", 0) + 1
    print(f"\nrename of a type and a property, {ROWS} rows: {len(renamed.requests)} requests {counts}")
    assert [request.key for request in renamed.requests if "/tables/" in request.key] == []


def test_a_rename_stays_within_the_bound_of_an_apply(renamed: Renamed) -> None:
    assert len(renamed.requests) <= BOUND


def test_a_rename_leaves_the_version_of_the_table_alone(renamed: Renamed) -> None:
    store = renamed.graph.store
    old, new = store.snapshot(at=renamed.before).state.pins, store.snapshot().state.pins
    assert {i: pin.version for i, pin in old.items()} == {i: pin.version for i, pin in new.items()}


def test_values_are_intact_under_the_new_names(renamed: Renamed) -> None:
    found = renamed.graph.nodes("Human").to_arrow()
    assert found.column_names == ["id", "slug", "years"]
    assert found.num_rows == ROWS
    assert found["years"].equals(pa.chunked_array([pa.array(range(ROWS), pa.int32())]))
    assert pc.all(pc.equal(found["id"], found["slug"])).as_py()


def test_old_commits_read_under_the_current_names(renamed: Renamed) -> None:
    then = renamed.graph.nodes("Human", at=renamed.before)
    assert then.commit_id == renamed.before
    assert then.to_arrow().equals(renamed.graph.nodes("Human").to_arrow())


def test_the_old_schema_is_still_shown_at_the_old_commit(renamed: Renamed) -> None:
    assert renamed.graph.schema.show(at=renamed.before) == BEFORE
    check_whole(renamed.graph, at=renamed.before)
    check_whole(renamed.graph)


def test_rows_can_be_added_under_the_new_names(renamed: Renamed) -> None:
    renamed.graph.store.branches.create("more", "main")
    insert(renamed.graph, {"Human": [{"slug": "new", "years": 1}]}, branch="more")
    assert len(renamed.graph.nodes("Human", branch="more")) == ROWS + 1
