"""Columns: adding, dropping and renaming changes just that, in every row, old and new.

Small fragments are rewritten by later writes, and rows written before a schema change come back in
fragments written after it; so each test goes on writing until that has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.base.errors import GraphError, InvalidRequest, Kind
from omnigraph.storage.durability import armed
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import (
    AddColumn,
    Append,
    DeleteIds,
    DropColumn,
    Effect,
    FillNulls,
    Overwrite,
    RenameColumn,
    SeveralEffects,
    Upsert,
)
from tests.storage.docs import DOC, SCHEMA, START, Row, Stream, doc, ids, make_docs, rows, table
from tests.support.graphs import write
from tests.support.places import Place
from tests.support.stores import Hits, again

pytestmark = pytest.mark.s3_when_full

FOLDS = 14  # one-row writes after which every small fragment has been rewritten at least once


def current_schema(store: GraphStore) -> pa.Schema:
    return store.table(store.snapshot(), DOC).schema


def upsert(store: GraphStore, *new: Row) -> None:
    write(store, {DOC: Upsert(pa.Table.from_pylist(list(new), schema=current_schema(store)))})


def fold_everything(store: GraphStore, **values: Any) -> None:
    """Write rows until all the old ones have been rewritten along with them, and take them away again."""
    extra = [f"zz{number:02d}" for number in range(FOLDS)]
    for name in extra:
        upsert(store, {"id": name, **values})
    write(store, {DOC: DeleteIds(ids(*extra))})


@pytest.fixture
def docs(local_place: Place) -> Iterator[GraphStore]:
    """Three documents, on local disk: each test makes many commits."""
    with make_docs(local_place.address) as made:
        write(made, {DOC: Append(table(START))})
        yield made


@pytest.fixture(params=["the same process", "another process"])
def writer(request: pytest.FixtureRequest, local_place: Place, docs: GraphStore) -> Callable[[], GraphStore]:
    """Who goes on after the schema change: the one that made it, or one that has cached nothing."""
    return lambda: docs if request.param == "the same process" else again(local_place)


def change_columns(store: GraphStore, *effects: Effect) -> GraphStore:
    for effect in effects:
        write(store, {DOC: effect})
    return store


# -- add


def test_a_column_added_without_a_value_is_null_and_writes_no_data(docs: GraphStore) -> None:
    hits = Hits()
    with armed(hits.at("table_data.before")):
        write(docs, {DOC: AddColumn(pa.field("note", pa.string()))})

    assert hits.total == 0
    assert rows(docs) == [{**row, "note": None} for row in START]


def test_a_column_added_without_a_value_can_be_written_and_old_rows_stay_null(
    docs: GraphStore, writer: Callable[[], GraphStore]
) -> None:
    write(docs, {DOC: AddColumn(pa.field("note", pa.string()))})
    store = writer()

    upsert(store, {**doc("d", 4), "note": "new"})
    fold_everything(store)

    assert rows(store) == [*({**row, "note": None} for row in START), {**doc("d", 4), "note": "new"}]


@pytest.mark.parametrize(
    ("field", "fill"),
    [
        (pa.field("rank", pa.int32()), pa.scalar(7, pa.int32())),
        (pa.field("rank", pa.int32(), nullable=False), pa.scalar(7)),
        (pa.field("word", pa.string()), pa.scalar("it's\n")),
        (pa.field("flag", pa.bool_()), pa.scalar(True)),
        (pa.field("big", pa.uint64()), pa.scalar(2**64 - 1, pa.uint64())),
        (pa.field("labels", pa.list_(pa.string())), pa.scalar(["x", "y"], pa.list_(pa.string()))),
        (pa.field("v2", pa.list_(pa.float32(), 2)), pa.scalar([1.0, 2.0], pa.list_(pa.float32(), 2))),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.Field) else "",
)
def test_a_column_added_with_a_value_has_it_in_every_old_row(
    docs: GraphStore, field: pa.Field, fill: pa.Scalar
) -> None:
    write(docs, {DOC: DeleteIds(ids("b"))})
    write(docs, {DOC: AddColumn(field, fill)})
    expected = [{**row, field.name: fill.as_py()} for row in START if row["id"] != "b"]
    assert rows(docs) == expected

    fold_everything(docs, **({field.name: fill.as_py()} if not field.nullable else {}))

    assert rows(docs) == expected


def test_a_column_can_be_added_to_an_empty_table(local_place: Place) -> None:
    with make_docs(local_place.address) as store:
        write(store, {DOC: AddColumn(pa.field("n", pa.int8(), nullable=False))})
        write(store, {DOC: AddColumn(pa.field("m", pa.int8()), pa.scalar(1, pa.int8()))})

        upsert(store, {**doc("a"), "n": 1, "m": 2})

        assert rows(store) == [{**doc("a"), "n": 1, "m": 2}]


@pytest.mark.parametrize("data_type", [pa.int64(), pa.int32(), pa.float64(), pa.string()], ids=str)
def test_a_column_can_be_added_as_a_copy_of_another_in_a_new_type(
    docs: GraphStore, writer: Callable[[], GraphStore], data_type: pa.DataType
) -> None:
    write(docs, {DOC: AddColumn(pa.field("n", data_type), copy_from="size")})
    expected = {
        row["id"]: None if row["size"] is None else pa.scalar(row["size"]).cast(data_type).as_py()
        for row in START
    }
    store = writer()
    assert {row["id"]: row["n"] for row in rows(store)} == expected

    fold_everything(store)

    assert {row["id"]: row["n"] for row in rows(store)} == expected
    assert {row["id"]: row["size"] for row in rows(store)} == {row["id"]: row["size"] for row in START}


@pytest.mark.parametrize("count", [3, 12_000], ids=["small", "large"])
def test_nulls_are_filled_and_other_values_stay(local_place: Place, count: int) -> None:
    with make_docs(local_place.address) as store:
        found = [doc(f"k{n:05d}", None if n % 3 == 0 else n) for n in range(count)]
        write(store, {DOC: Append(table(found))})

        receipt = write(store, {DOC: FillNulls("size", pa.scalar(-1, pa.int64()))})

        assert rows(store) == [{**row, "size": -1 if row["size"] is None else row["size"]} for row in found]
        assert receipt.tables[0].updated == sum(row["size"] is None for row in found)
        assert store.snapshot().pin(DOC).rows == count
        assert write(store, {DOC: FillNulls("size", pa.scalar(-2, pa.int64()))}).commit is None


def test_several_effects_on_one_table_are_one_commit(docs: GraphStore) -> None:
    before = docs.snapshot().state.version

    receipt = write(
        docs,
        {
            DOC: SeveralEffects(
                (
                    AddColumn(pa.field("length", pa.int64()), copy_from="size"),
                    DropColumn("size"),
                    FillNulls("length", pa.scalar(0, pa.int64())),
                    DeleteIds(ids("b")),
                )
            )
        },
    )

    assert docs.snapshot().state.version == before + 1
    assert {row["id"]: row["length"] for row in rows(docs)} == {"a": 1, "c": 0}
    assert (receipt.tables[0].updated, receipt.tables[0].deleted) == (1, 1)
    assert rows(docs, at=before) == START


def test_several_effects_that_come_to_nothing_make_no_commit(docs: GraphStore) -> None:
    receipt = write(docs, {DOC: SeveralEffects((DeleteIds(ids("unknown")), Upsert(table([]))))})

    assert receipt.commit is None


# -- drop


@pytest.mark.parametrize("dropped", ["size", "tags", "vector"])
def test_dropping_a_column_leaves_the_values_of_the_others_alone(
    docs: GraphStore, writer: Callable[[], GraphStore], dropped: str
) -> None:
    """Renumbered field ids would return another column's values here (lance-facts B11)."""
    expected = [{name: value for name, value in row.items() if name != dropped} for row in START]
    write(docs, {DOC: DropColumn(dropped)})
    store = writer()
    assert rows(store) == expected

    fold_everything(store)

    assert rows(store) == expected
    assert current_schema(store).names == [name for name in SCHEMA.names if name != dropped]


def test_a_dropped_name_that_is_added_again_is_a_new_column_with_no_old_values(
    docs: GraphStore, writer: Callable[[], GraphStore]
) -> None:
    change_columns(docs, DropColumn("size"), AddColumn(pa.field("size", pa.int64())))
    store = writer()
    expected = [{**row, "size": None} for row in START]
    assert rows(store) == [{name: row[name] for name in rows(store)[0]} for row in expected]

    fold_everything(store)

    assert {row["id"]: row["size"] for row in rows(store)} == {"a": None, "b": None, "c": None}


# -- rename


def test_renaming_a_column_keeps_its_values(docs: GraphStore, writer: Callable[[], GraphStore]) -> None:
    write(docs, {DOC: RenameColumn("size", "length")})
    store = writer()
    expected = [{("length" if k == "size" else k): v for k, v in row.items()} for row in START]
    assert rows(store) == expected

    upsert(store, {**expected[0], "length": 99})
    fold_everything(store)

    assert rows(store) == [{**expected[0], "length": 99}, *expected[1:]]


def test_two_columns_that_exchange_their_names_exchange_their_values(place: Place) -> None:
    """On every store: this one stands for the others."""
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), ("x", pa.int64()), ("y", pa.int64())])
    with make_docs(place.address, schema, **place.kwargs) as store:
        for number in range(4):
            upsert(store, {"id": f"r{number}", "x": number, "y": -number})
        change_columns(store, RenameColumn("x", "t"), RenameColumn("y", "x"), RenameColumn("t", "y"))
        expected = [{"id": f"r{n}", "y": n, "x": -n} for n in range(4)]
        assert rows(store) == expected

        fold_everything(store)

        assert rows(store) == expected


# -- what the history keeps


def test_the_versions_before_a_change_of_columns_keep_theirs(docs: GraphStore) -> None:
    change_columns(
        docs, DropColumn("tags"), RenameColumn("size", "length"), AddColumn(pa.field("n", pa.int8()))
    )
    fold_everything(docs)

    assert rows(docs, at=2) == START
    assert set(rows(docs, at=4)[0]) == {"id", "length", "vector"}
    assert set(rows(docs)[0]) == {"id", "length", "vector", "n"}


def test_branches_change_their_columns_independently(docs: GraphStore) -> None:
    docs.branches.create("dev", "main")
    write(docs, {DOC: AddColumn(pa.field("n", pa.int8()), pa.scalar(1, pa.int8()))}, "main")
    write(docs, {DOC: AddColumn(pa.field("m", pa.string()), pa.scalar("x"))}, "dev")

    assert rows(docs) == [{**row, "n": 1} for row in START]
    assert rows(docs, branch="dev") == [{**row, "m": "x"} for row in START]


# -- refused


@pytest.mark.parametrize(
    ("effect", "names"),
    [
        (AddColumn(pa.field("size", pa.int8())), "'size'"),
        (AddColumn(pa.field("must", pa.int8(), nullable=False)), "'must'"),
        (DropColumn("unknown"), "'unknown'"),
        (DropColumn("id"), "'id'"),
        (RenameColumn("unknown", "x"), "'unknown'"),
        (RenameColumn("id", "key"), "'id'"),
        (RenameColumn("size", "tags"), "'tags'"),
        (RenameColumn("size", "id"), "'id'"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_a_change_of_columns_that_makes_no_sense_is_refused(
    docs: GraphStore, effect: Effect, names: str
) -> None:
    before = docs.snapshot()

    with pytest.raises(InvalidRequest, match=names) as caught:
        write(docs, {DOC: effect})

    assert caught.value.code == "bad_request"
    assert docs.snapshot() == before


def wrong_rows(how: str) -> pa.Table:
    good = table([doc("d", 4)])
    match how:
        case "an extra column":
            return good.append_column("extra", pa.array([1]))
        case "another type":
            return good.set_column(1, "size", pa.array(["four"]))
        case "a wider type":
            return good.set_column(1, "size", pa.array([4], pa.uint64()))
        case "a missing column":
            return good.drop_columns(["tags"])
        case "no id":
            return good.drop_columns(["id"])
        case "an id that is null":
            return good.set_column(0, "id", pa.array([None], pa.string()))
        case "an id that is no text":
            return good.set_column(0, "id", pa.array([4]))
        case "a vector of another length":
            return good.set_column(3, "vector", pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)))
        case _:
            raise AssertionError(how)


WRONG = [
    "an extra column",
    "another type",
    "a wider type",
    "a missing column",
    "no id",
    "an id that is null",
    "an id that is no text",
    "a vector of another length",
]


@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize("effect", [Append, Upsert, Overwrite], ids=lambda effect: effect.__name__)
@pytest.mark.parametrize("tail", [1, 6], ids=["alone", "with a fold"])
def test_rows_that_do_not_fit_the_table_are_refused_the_same_way_whatever_the_state_of_the_tail(
    local_place: Place, how: str, effect: Callable[[pa.Table], Effect], tail: int
) -> None:
    with make_docs(local_place.address) as store:
        for number in range(tail):
            upsert(store, doc(f"t{number}", number))
        before = store.snapshot()

        with pytest.raises(GraphError) as caught:
            write(store, {DOC: effect(wrong_rows(how))})

        assert caught.value.kind is Kind.INVALID
        assert store.snapshot() == before
        assert len(rows(store)) == tail


@pytest.mark.parametrize("how", ["an extra column", "another type", "no id", "an id that is null"])
@pytest.mark.parametrize("effect", [Append, Overwrite], ids=lambda effect: effect.__name__)
def test_a_stream_that_does_not_fit_the_table_is_refused(
    local_place: Place, how: str, effect: Callable[[Any], Effect]
) -> None:
    wrong = wrong_rows(how)
    stream = Stream(wrong)
    stream.schema = wrong.schema
    with make_docs(local_place.address) as store:
        before = store.snapshot()

        with pytest.raises(GraphError) as caught:
            write(store, {DOC: effect(stream)})

        assert caught.value.kind is Kind.INVALID
        assert store.snapshot() == before
