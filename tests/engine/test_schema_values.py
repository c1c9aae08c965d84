"""What an apply does to stored values: exact fills and casts, in every layout that a table can have."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.ids import SystemClock
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import DeleteIds, Upsert
from tests.engine.cases import person
from tests.support.contents import change, check_whole, insert, read, stored_rows
from tests.support.places import Place

MANY = 5_000  # past the first tier: a settled fragment with an index, deleted from by deletion files
ANY_SCALAR = ["String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime", "enum(a, b)"]
ANY_LIST = [f"[{scalar}]" for scalar in ANY_SCALAR[:-1]]


class FixedClock(SystemClock):
    """A clock that shows one moment."""

    def now_us(self) -> int:
        """Return the moment: 2024-02-29T23:59:59.999999Z."""
        return 1_709_251_199_999_999


def column(graph: Graph, name: str, type_name: str = "Person", **where: Any) -> pa.ChunkedArray:
    """Return a property of all rows, by id."""
    return graph.nodes(type_name, **where).to_arrow()[name]


def two(graph: Graph, *values: Any) -> None:
    """Insert a person for each value."""
    insert(graph, {"Person": [{"slug": f"s{n}", "p": value} for n, value in enumerate(values)]})


@pytest.mark.parametrize("declared", [*ANY_SCALAR, *ANY_LIST, "Blob", "Vector(3)"])
def test_a_nullable_property_of_any_type_reads_null_for_existing_rows(
    local_place: Place, declared: str
) -> None:
    with og.init(local_place.address, person("p: I32?")) as graph:
        two(graph, 1, 2)
        graph.schema.apply(person(f"p: I32? q: {declared}?"))

        assert column(graph, "q").to_pylist() == [None, None]
        assert column(graph, "p").to_pylist() == [1, 2]
        check_whole(graph)


@pytest.mark.parametrize(
    ("declared", "literal", "stored"),
    [
        ("String", '"déjà vu"', "déjà vu"),
        ("String", '""', ""),
        ("Bool", "false", False),
        ("I32", "2147483647", 2**31 - 1),
        ("I64", "9223372036854775807", 2**63 - 1),
        ("U32", "4294967295", 2**32 - 1),
        ("U64", "18446744073709551615", 2**64 - 1),
        ("F32", "0.1", 0.10000000149011612),
        ("F64", "0.1", 0.1),
        ("enum(a, b)", '"b"', "b"),
        ("Date", '"2024-02-29"', date(2024, 2, 29)),
    ],
)
def test_a_required_property_is_filled_with_its_default(
    local_place: Place, declared: str, literal: str, stored: Any
) -> None:
    with og.init(local_place.address, person("p: I32?")) as graph:
        two(graph, 1, 2)
        graph.schema.apply(person(f"p: I32? q: {declared} @default({literal})"))

        assert column(graph, "q").to_pylist() == [stored, stored]
        check_whole(graph)


@pytest.mark.parametrize(("declared", "stored"), [("Date", 19_782), ("DateTime", 1_709_251_199_999)])
def test_now_fills_all_rows_with_the_one_moment_of_the_apply(
    local_place: Place, declared: str, stored: int
) -> None:
    og.init(local_place.address, person("p: I32?")).close()
    with Graph(GraphStore.open(local_place.address, clock=FixedClock())) as graph:
        two(graph, 1, 2)
        graph.schema.apply(person(f"p: I32? q: {declared} @default(now)"))

        whole = pa.int32() if declared == "Date" else pa.int64()
        assert column(graph, "q").cast(whole).to_pylist() == [stored, stored]


def test_dates_become_the_midnight_of_their_day_in_milliseconds(local_place: Place) -> None:
    with og.init(local_place.address, person("p: Date?")) as graph:
        two(graph, date(1969, 12, 31), date(1970, 1, 1), None, date(9999, 12, 31))
        graph.schema.apply(person("p: DateTime?"))

        found = column(graph, "p")
        assert found.type == pa.timestamp("ms", "UTC")
        assert found.cast(pa.int64()).to_pylist() == [-86_400_000, 0, None, 253_402_214_400_000]


def test_a_new_required_property_on_an_empty_type_needs_no_default(place: Place) -> None:
    with og.init(place.address, person("p: I32?"), **place.kwargs) as graph:
        assert graph.schema.apply(person("p: I32? q: String")).applied
        insert(graph, {"Person": [{"slug": "a", "q": "x"}]})

        assert read(graph, "Person") == [{"id": "a", "slug": "a", "p": None, "q": "x"}]


def settled(graph: Graph) -> set[str]:
    """Make a table of a big fragment with deleted rows, an index and a tail; return the ids that are left."""
    insert(graph, {"Person": [{"slug": f"s{n:04d}", "p": n} for n in range(MANY)]})
    change(graph, "Person", DeleteIds(pa.array([f"s{n:04d}" for n in range(0, MANY, 7)])))
    insert(graph, {"Person": [{"slug": f"t{n}", "p": -n} for n in range(1, 4)]})
    return set(graph.nodes("Person").to_arrow()["id"].to_pylist())


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param("p: I64?", lambda p: {"p": p}, id="widen"),
        pytest.param("p: I32? q: I32 @default(7)", lambda p: {"p": p, "q": 7}, id="fill"),
        pytest.param("p: I32? q: I32?", lambda p: {"p": p, "q": None}, id="add-null"),
        pytest.param('r: I64? @rename_from("p")', lambda p: {"r": p}, id="rename-and-widen"),
        pytest.param('r: String @default("z")', lambda p: {"r": "z"}, id="drop-and-fill-another"),
        pytest.param("p: I64? q: I32 @default(1) r: F64?", lambda p: {"p": p, "q": 1, "r": None}, id="all"),
    ],
)
def test_rows_keep_their_values_in_a_table_with_deletions_an_index_and_a_tail(
    local_place: Place, after: str, expected: Any
) -> None:
    with og.init(local_place.address, person("p: I32?")) as graph:
        ids = settled(graph)
        before = {row["id"]: row["p"] for row in read(graph, "Person")}
        graph.schema.apply(person(after))

        found = {row.pop("id"): row for row in read(graph, "Person")}
        assert found.keys() == ids
        assert found == {i: {"slug": i, **expected(p)} for i, p in before.items()}
        check_whole(graph)


def test_ids_are_found_by_writers_after_a_rewrite(local_place: Place) -> None:
    """The index on ids still points at the right rows."""
    with og.init(local_place.address, person("p: I32?")) as graph:
        ids = settled(graph)
        graph.schema.apply(person("p: I64? q: I32 @default(1)"))
        declared = graph.schema.catalog().node("Person")
        rows = stored_rows(declared, [{"slug": s, "p": 2**40, "q": 2} for s in ("s0001", "t1", "new")])
        receipt = change(graph, "Person", Upsert(rows, remove=pa.array(["s0002"])))

        (counts,) = receipt.tables
        assert (counts.inserted, counts.updated, counts.deleted) == (1, 2, 1)
        found = {row["id"]: row for row in read(graph, "Person")}
        assert found.keys() == (ids | {"new"}) - {"s0002"}
        assert [i for i, row in found.items() if row["p"] == 2**40] == ["new", "s0001", "t1"]


def test_a_property_dropped_and_added_again_is_new_and_empty(local_place: Place) -> None:
    with og.init(local_place.address, person("p: I32?")) as graph:
        two(graph, 1, 2)
        old = graph.schema.catalog().node("Person").find("p")
        commit = graph.store.snapshot().commit_id
        graph.schema.apply(person())
        graph.schema.apply(person("p: I32?"))

        new = graph.schema.catalog().node("Person").find("p")
        assert old is not None
        assert new is not None
        assert new.id != old.id
        assert column(graph, "p").to_pylist() == [None, None]
        assert column(graph, "p", at=commit).to_pylist() == [None, None], "it is another property"
        then = graph.schema.catalog(at=commit).node("Person")
        handle = graph.store.table(graph.store.snapshot(at=commit), then.table_id)
        assert handle.to_table(columns=[old.column])[old.column].to_pylist() == [1, 2]
        check_whole(graph)


def test_a_type_dropped_and_added_again_is_new_and_empty(place: Place) -> None:
    city = "node City { name: String @key }\n"
    with og.init(place.address, city + person(), **place.kwargs) as graph:
        insert(graph, {"City": [{"name": "delft"}]})
        old = graph.schema.catalog().node("City")
        commit = graph.store.snapshot().commit_id
        graph.schema.apply(person())
        graph.schema.apply(city + person())

        assert graph.schema.catalog().node("City").id != old.id
        assert read(graph, "City") == []
        then = graph.store.snapshot(at=commit)
        assert graph.store.table(then, old.table_id).to_table()["name"].to_pylist() == ["delft"]


def test_past_commits_show_the_properties_that_are_still_named(place: Place) -> None:
    with og.init(place.address, person("p: I32? q: String?"), **place.kwargs) as graph:
        insert(graph, {"Person": [{"slug": "a", "p": 1, "q": "x"}]})
        commit = graph.store.snapshot().commit_id
        graph.schema.apply(person("q: String? r: I32 @default(5)"))

        assert read(graph, "Person", at=commit) == [{"id": "a", "slug": "a", "q": "x", "r": None}]
        assert [p.name for p in graph.schema.catalog(at=commit).node("Person").properties] == [
            "p",
            "q",
            "slug",
        ]
        assert graph.schema.show(at=commit) == person("p: I32? q: String?")


def test_a_rename_keeps_ids_and_the_order_of_a_composite_key(place: Place) -> None:
    before = "node Seat { hall: String number: I32 @key(hall, number) }"
    after = 'node Seat { zone: String @rename_from("hall") number: I32 @key(zone, number) }'
    with og.init(place.address, before, **place.kwargs) as graph:
        insert(graph, {"Seat": [{"hall": "b", "number": 7}]})
        graph.schema.apply(after)
        insert(graph, {"Seat": [{"zone": "c", "number": 8}]})

        assert [row["id"] for row in read(graph, "Seat")] == ['["b","7"]', '["c","8"]']


def test_a_name_that_a_rename_set_free_can_go_to_another_property(local_place: Place) -> None:
    with og.init(local_place.address, person("a: I32? b: I32?")) as graph:
        insert(graph, {"Person": [{"slug": "x", "a": 1, "b": 2}]})
        graph.schema.apply(person('c: I32? @rename_from("a") b: I32?'))
        graph.schema.apply(person('c: I32? a: I32? @rename_from("b")'))
        graph.schema.apply(person('b: I32? @rename_from("c") a: I32?'))

        assert read(graph, "Person") == [{"id": "x", "slug": "x", "a": 2, "b": 1}]
        check_whole(graph)


def test_a_new_list_of_interfaces_is_the_property_steps_it_amounts_to(local_place: Place) -> None:
    interfaces = "interface Named { name: String? }\ninterface Aged { age: I32 @default(3) }\n"
    with og.init(local_place.address, f"{interfaces}node Person implements Named {{ p: I32? }}") as graph:
        insert(graph, {"Person": [{"id": "a", "p": 1, "name": "Ann"}]})
        receipt = graph.schema.apply(f"{interfaces}node Person implements Aged {{ p: I32? }}")

        kinds = {step.kind for step in receipt.plan.steps}
        assert {"add_property", "drop_property"} <= kinds
        assert read(graph, "Person") == [{"id": "a", "age": 3, "p": 1}]
