"""Making and opening a graph with a schema."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.base.errors import AlreadyInitialized, GraphNotFound, InvalidRequest
from omnigraph.language.diagnostics import SchemaError
from tests.support.contents import check_whole, insert, objects_at, read
from tests.support.places import Place
from tests.support.s3 import S3Server

LIBRARY = """
interface Titled { title: String @index }
node Book implements Titled {
    isbn: String @key
    shelf: enum(fiction, reference)
    pages: U32?
    topics: [String]?
    blurb_vec: Vector(4)? @embed("title")
    cover: Blob?
    added: DateTime
    @range(pages, 1..20000)
}
node Reader { club: String  number: U32  since: Date?  @key(club, number) }
edge Borrowed: Reader -> Book @card(0..5) { due: Date  @unique(src, dst) }
"""


def test_a_graph_made_from_text_has_its_types_and_is_empty(place: Place) -> None:
    with og.init(place.address, LIBRARY, **place.kwargs) as graph:
        catalog = graph.schema.catalog()
        assert [t.name for t in catalog.tables] == ["Book", "Reader", "Borrowed"]
        assert [len(graph.nodes("Book")), len(graph.nodes("Reader")), len(graph.edges("Borrowed"))] == [0] * 3
        assert graph.nodes("Book").to_arrow().num_rows == 0
        check_whole(graph)


@pytest.mark.parametrize("as_text", [True, False], ids=["path as text", "path"])
def test_a_graph_made_from_a_file_shows_the_text_of_the_file(
    local_place: Place, tmp_path: Path, as_text: bool
) -> None:
    file = tmp_path / "library.pg"
    file.write_text(LIBRARY)
    with og.init(local_place.address, str(file) if as_text else file) as graph:
        assert graph.schema.show() == LIBRARY


def test_a_graph_that_was_made_can_be_opened_elsewhere(place: Place) -> None:
    with og.init(place.address, LIBRARY, **place.kwargs) as graph:
        insert(graph, {"Reader": [{"club": "oak", "number": 7}]})
    with og.connect(place.address, **place.kwargs) as graph:
        assert graph.schema.show() == LIBRARY
        assert [row["id"] for row in read(graph, "Reader")] == ['["oak","7"]']


def test_an_empty_schema_is_a_graph_that_can_grow(place: Place) -> None:
    with og.init(place.address, "", **place.kwargs) as graph:
        assert graph.schema.catalog().tables == ()
        assert graph.schema.apply("node Marker {}").applied
        insert(graph, {"Marker": [{"id": "m"}]})
        assert read(graph, "Marker") == [{"id": "m"}]


def test_a_second_init_is_refused_and_leaves_the_first_alone(
    place: Place, request: pytest.FixtureRequest
) -> None:
    server: S3Server | None = request.getfixturevalue("s3_server") if place.options else None
    with og.init(place.address, LIBRARY, **place.kwargs) as graph:
        objects = objects_at(place, server)
        with pytest.raises(AlreadyInitialized):
            og.init(place.address, "node Other {}", **place.kwargs)
        assert graph.schema.show() == LIBRARY
        assert objects_at(place, server) == objects


@pytest.mark.parametrize(
    "schema", ["node", "node A { p: Strin }", "edge E: A -> B", b"\xff".decode("latin-1")]
)
def test_a_bad_schema_writes_nothing(place: Place, request: pytest.FixtureRequest, schema: str) -> None:
    server: S3Server | None = request.getfixturevalue("s3_server") if place.options else None
    with pytest.raises(SchemaError):
        og.init(place.address, schema, **place.kwargs)
    assert objects_at(place, server) == {}
    if not place.options:
        assert not Path(place.address).exists()


def test_a_file_that_is_not_utf_8_is_a_schema_error(local_place: Place, tmp_path: Path) -> None:
    file = tmp_path / "bad.pg"
    file.write_bytes(b"node A {}\n// \xff\n")
    with pytest.raises(SchemaError):
        og.init(local_place.address, file)


def test_a_schema_file_that_is_missing_is_a_bad_request(local_place: Place) -> None:
    with pytest.raises(InvalidRequest, match="cannot read"):
        og.init(local_place.address, "missing.pg")
    assert not Path(local_place.address).exists()


def test_opening_where_nothing_is_says_so(place: Place) -> None:
    with pytest.raises(GraphNotFound):
        og.connect(place.address, **place.kwargs)


def test_the_actor_of_an_init_is_on_the_first_commit(local_place: Place) -> None:
    with og.init(local_place.address, "", actor="ada") as graph:
        assert graph.store.snapshot().state.commit.actor == "ada"


def test_a_rename_hint_in_a_first_schema_does_nothing(local_place: Place) -> None:
    with og.init(local_place.address, 'node A @rename_from("B") { p: I32? @rename_from("q") }') as graph:
        assert [t.name for t in graph.schema.catalog().tables] == ["A"]


def test_members_of_a_first_key_are_in_the_order_of_their_names(local_place: Place) -> None:
    with og.init(local_place.address, "node Slot { tenant: String slot: I32 @key(tenant, slot) }") as graph:
        insert(graph, {"Slot": [{"tenant": "acme", "slot": 7}]})
        assert [row["id"] for row in read(graph, "Slot")] == ['["7","acme"]']


def test_a_file_address_and_a_path_are_one_graph(local_place: Place) -> None:
    with (
        og.init(f"file://{local_place.address}", "node A {}") as graph,
        og.connect(local_place.address) as same,
    ):
        assert same.store.snapshot().commit_id == graph.store.snapshot().commit_id
