"""Hard drops: the dropped values are gone from every stored file, and nobody reads a wrong row for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import HistoryReclaimed, IntegrityError, StaleVersion
from omnigraph.catalog.catalog import UnknownType
from omnigraph.catalog.steps import Effect
from omnigraph.storage.durability import armed
from omnigraph.storage.location import Location
from omnigraph.storage.opener import manifest_file
from tests.support.contents import check_whole, insert, read, state
from tests.support.places import Place
from tests.support.workers import once

pytestmark = pytest.mark.s3_when_full

SECRET = "correct-horse-battery-staple"
BEFORE = """
node Person { slug: String @key  age: I32?  diary: String? @index  nick: String? }
node Safe { slug: String @key  content: String? }
node City { name: String @key }
edge Knows: Person -> Person { letter: String? }
"""
NO_DIARY = BEFORE.replace("diary: String? @index ", "")
NO_SAFE = BEFORE.replace("node Safe { slug: String @key  content: String? }\n", "")
NO_LETTER = BEFORE.replace("letter: String?", "")
ROWS = 40


@pytest.fixture
def graph(place: Place) -> Iterator[Graph]:
    """A graph whose data files hold the secret in two node types and an edge type, in several versions."""
    with og.init(place.address, BEFORE, durability="os", **place.kwargs) as made:
        for part in range(2):
            people = [
                {"slug": f"p{part}-{n}", "age": n, "diary": f"{SECRET} {n}", "nick": f"nick {n}"}
                for n in range(ROWS // 2)
            ]
            edge = {"id": f"e{part}", "src": "p0-1", "dst": "p0-2", "letter": SECRET}
            safe = {"slug": f"s{part}", "content": SECRET}
            city = {"name": f"c{part}"}
            insert(made, {"Person": people, "Knows": [edge], "Safe": [safe], "City": [city]})
        yield made


def holding(place: Place, text: str = SECRET) -> set[str]:
    """Return the stored objects that hold a text."""
    objects = Location.parse(place.address, place.options).objects
    return {key for key, _ in objects.list() if text.encode() in (objects.read(key) or b"")}


def tables(graph: Graph, keys: set[str]) -> set[str]:
    """Return the names of the types whose tables some objects belong to."""
    names = {pin.table_id: pin.name for pin in graph.store.snapshot(at=1).state.pins.values()}
    return {names[key.split("/")[1]] for key in keys}


# -- the bytes


def test_a_dropped_property_is_gone_from_every_file_and_everything_else_stays(
    graph: Graph, place: Place
) -> None:
    assert tables(graph, holding(place)) == {"Person", "Safe", "Knows"}
    before = read(graph, "Person")

    receipt = graph.schema.apply(NO_DIARY, allow_data_loss=True)

    assert tables(graph, holding(place)) == {"Safe", "Knows"}
    (taken,) = receipt.reclaimed
    assert (taken.type_name, taken.error, receipt.warnings) == ("Person", None, ())
    assert taken.files > 0
    assert taken.bytes > 0
    without = [{name: value for name, value in row.items() if name != "diary"} for row in before]
    with og.connect(place.address, **place.kwargs) as fresh:
        assert read(fresh, "Person") == without
        check_whole(fresh)
        insert(fresh, {"Person": [{"slug": "later", "age": 1}]})
        assert len(read(fresh, "Person")) == ROWS + 1


def test_a_soft_drop_leaves_the_bytes_and_says_so(graph: Graph, place: Place) -> None:
    """The counterpart: otherwise the search above might find nothing anyway."""
    receipt = graph.schema.apply(NO_DIARY)

    assert (receipt.reclaimed, receipt.warnings) == ((), ())
    assert tables(graph, holding(place)) == {"Person", "Safe", "Knows"}


@pytest.mark.parametrize(("schema", "gone"), [(NO_SAFE, "Safe"), (NO_LETTER, "Knows")])
def test_a_dropped_type_or_edge_property_is_gone_from_every_file(
    graph: Graph, place: Place, schema: str, gone: str
) -> None:
    receipt = graph.schema.apply(schema, allow_data_loss=True)

    assert tables(graph, holding(place)) == {"Person", "Safe", "Knows"} - {gone}
    assert [one.type_name for one in receipt.reclaimed] == [gone]
    check_whole(graph)


def test_nothing_at_all_is_stored_of_a_dropped_type(graph: Graph, place: Place) -> None:
    table = graph.schema.catalog().node("Safe").table_id
    objects = Location.parse(place.address, place.options).objects
    sizes = dict(objects.list(f"tables/{table}"))

    receipt = graph.schema.apply(NO_SAFE, allow_data_loss=True)

    assert list(objects.list(f"tables/{table}")) == []
    (taken,) = receipt.reclaimed
    assert (taken.files, taken.bytes) == (len(sizes), sum(sizes.values()))


def test_several_drops_and_other_steps_on_one_table_are_one_commit(graph: Graph, place: Place) -> None:
    """Columns go, one is widened, one is filled and one renamed, while a type goes too."""
    after = """
    node Person {
        slug: String @key  age: I64?  @unique(slug)
        alias: String? @rename_from("nick")
        level: I32 @default(3)
    }
    node City { name: String @key }
    edge Knows: Person -> Person
    """
    version = graph.store.snapshot().state.version

    receipt = graph.schema.apply(after, allow_data_loss=True)

    assert receipt.commit is not None
    assert receipt.commit.manifest_version == version + 1
    assert [one.type_name for one in receipt.reclaimed] == ["Knows", "Person", "Safe"]
    assert holding(place) == set()
    check_whole(graph)
    assert read(graph, "Person")[3] == {
        "id": "p0-11", "slug": "p0-11", "age": 11, "alias": "nick 11", "level": 3,
    }  # fmt: skip
    assert len(read(graph, "Person")) == ROWS


def test_every_type_of_value_survives_the_rewrite(place: Place) -> None:
    kept = """
        b: Bool? i: I32? l: I64? u: U32? w: U64? f: F32? d: F64? day: Date? at: DateTime?
        e: enum(x, y)? v: Vector(3)? tags: [String]? raw: Blob?
    """
    with og.init(
        place.address, f"node A {{ slug: String @key gone: String? {kept} }}", **place.kwargs
    ) as graph:
        full = {
            "slug": "a", "gone": SECRET, "b": True, "i": -1, "l": 2**40, "u": 7, "w": 2**64 - 1, "f": 0.5,
            "d": 1e300, "day": 19000, "at": 1_700_000_000_000, "e": "x", "v": [1.0, 2.0, 3.0],
            "tags": ["p", "q"], "raw": b"\x00\xff",
        }  # fmt: skip
        insert(graph, {"A": [full, {"slug": "b"}]})
        before = [{k: v for k, v in row.items() if k != "gone"} for row in read(graph, "A")]

        graph.schema.apply(f"node A {{ slug: String @key {kept} }}", allow_data_loss=True)

        assert read(graph, "A") == before
        assert holding(place) == set()


def test_a_column_that_was_softly_dropped_before_goes_along(graph: Graph, place: Place) -> None:
    graph.schema.apply(NO_DIARY)

    graph.schema.apply(NO_DIARY.replace("nick: String?", ""), allow_data_loss=True)

    assert tables(graph, holding(place)) == {"Safe", "Knows"}


def test_a_hard_drop_of_an_empty_types_property_rewrites_nothing(local_place: Place) -> None:
    with og.init(local_place.address, BEFORE, durability="os") as graph:
        plan = graph.schema.plan(NO_DIARY, allow_data_loss=True)
        assert [step.effect for step in plan.steps] == [Effect.METADATA]

        assert graph.schema.apply(NO_DIARY, allow_data_loss=True).applied
        check_whole(graph)


# -- what is read of the past


def test_an_old_commit_says_that_the_type_was_reclaimed_and_shows_the_others(
    graph: Graph, place: Place
) -> None:
    old = graph.store.snapshot().commit_id
    with og.connect(place.address, **place.kwargs) as other:
        assert len(read(other, "Person", at=old)) == ROWS  # holds the version open

        graph.schema.apply(NO_DIARY, allow_data_loss=True)

        with og.connect(place.address, **place.kwargs) as fresh:
            for reader in (graph, other, fresh):
                with pytest.raises(HistoryReclaimed) as caught:
                    read(reader, "Person", at=old)
                assert caught.value.fields["type_name"] == "Person"
                assert len(read(reader, "City", at=old)) == 2
                assert reader.schema.show(at=old) == BEFORE


def test_a_reader_whose_files_are_taken_away_under_it_is_told_why(graph: Graph, place: Place) -> None:
    """It looked at the branch before the drop, and not again."""
    with og.connect(place.address, **place.kwargs) as other:
        view = other.nodes("Person")
        other.store.table(view.snapshot, view.declared.table_id)  # the version is open, its rows unread

        graph.schema.apply(NO_DIARY, allow_data_loss=True)

        with pytest.raises(HistoryReclaimed):
            view.to_arrow()


def test_a_dropped_type_is_unknown_and_its_name_can_come_back_empty(graph: Graph) -> None:
    old = graph.store.snapshot().commit_id
    graph.schema.apply(NO_SAFE, allow_data_loss=True)
    with pytest.raises(UnknownType):
        read(graph, "Safe", at=old)

    graph.schema.apply(BEFORE)

    assert read(graph, "Safe") == []
    check_whole(graph)


def test_commits_after_a_hard_drop_are_history_like_any_other(graph: Graph) -> None:
    first = graph.schema.apply(NO_DIARY, allow_data_loss=True).commit
    assert first is not None
    insert(graph, {"Person": [{"slug": "x"}]})

    assert len(read(graph, "Person", at=first.id)) == ROWS


# -- other branches


def test_another_branch_keeps_its_data_and_the_receipt_names_it(graph: Graph, place: Place) -> None:
    graph.store.branches.create("review", "main")
    insert(graph, {"Safe": [{"slug": "r", "content": SECRET}]}, branch="review")
    before = state(graph, "review").rows

    dropped = graph.schema.apply(NO_DIARY, allow_data_loss=True)
    gone = graph.schema.apply(NO_DIARY.replace(BEFORE.splitlines()[2] + "\n", ""), allow_data_loss=True)

    assert state(graph, "review").rows == before
    check_whole(graph, "review")
    assert [w for w in dropped.warnings if "Person.diary" in w and "'review'" in w] == list(dropped.warnings)
    assert [w for w in gone.warnings if "Safe" in w and "'review'" in w] == list(gone.warnings)
    assert (len(dropped.warnings), len(gone.warnings)) == (1, 1)
    assert tables(graph, holding(place)) == {"Person", "Safe", "Knows"}
    insert(graph, {"Person": [{"slug": "still"}]}, branch="review")


def test_dropping_it_on_the_other_branch_too_finishes_the_work(graph: Graph, place: Place) -> None:
    graph.store.branches.create("review", "main")
    graph.schema.apply(NO_DIARY, allow_data_loss=True)

    receipt = graph.schema.apply(NO_DIARY, branch="review", allow_data_loss=True)

    assert receipt.warnings == ()
    assert tables(graph, holding(place)) == {"Safe", "Knows"}
    check_whole(graph)
    check_whole(graph, "review")


def test_a_branch_that_dropped_it_softly_still_holds_it_and_is_named(graph: Graph, place: Place) -> None:
    graph.store.branches.create("review", "main")
    graph.schema.apply(NO_DIARY, branch="review")

    receipt = graph.schema.apply(NO_DIARY, allow_data_loss=True)

    assert ["'review'" in warning for warning in receipt.warnings] == [True]
    assert "Person" in tables(graph, holding(place))


def test_a_branch_that_holds_other_leftovers_is_not_accused(graph: Graph) -> None:
    """It keeps an old column behind a widened one, which is not the one that was dropped."""
    graph.store.branches.create("review", "main")
    graph.schema.apply(NO_DIARY, branch="review", allow_data_loss=True)
    graph.schema.apply(NO_DIARY.replace("age: I32?", "age: I64?"), branch="review")

    receipt = graph.schema.apply(NO_DIARY, allow_data_loss=True)

    assert receipt.warnings == ()


def test_a_branch_that_has_the_property_but_never_a_value_is_not_accused(place: Place) -> None:
    """Neither is one that has no rows of it: a column that was only declared is in no file."""
    with og.init(place.address, "node A { slug: String @key p: I32? }", **place.kwargs) as graph:
        insert(graph, {"A": [{"slug": "a"}]})
        graph.schema.apply("node A { slug: String @key p: I32? q: String? }")
        graph.store.branches.create("review", "main")

        receipt = graph.schema.apply("node A { slug: String @key p: I32? }", allow_data_loss=True)

        assert receipt.warnings == ()


def test_a_drop_on_a_branch_leaves_main_as_it_was(graph: Graph) -> None:
    graph.store.branches.create("review", "main")
    before = state(graph).rows

    receipt = graph.schema.apply(NO_DIARY, branch="review", allow_data_loss=True)

    assert state(graph).rows == before
    assert ["'main'" in warning for warning in receipt.warnings] == [True]


# -- plans


def test_the_plan_says_that_history_goes_with_each_hard_drop_and_what_is_rewritten(graph: Graph) -> None:
    after = NO_SAFE.replace("diary: String? @index ", "").replace("age: I32?", "age: I32? more: I32?")

    soft, hard = (graph.schema.plan(after, allow_data_loss=loss).to_json() for loss in (False, True))

    assert all("history" not in step for step in soft["steps"])
    told = {step["kind"]: (step.get("history"), step["effect"], step["rows"]) for step in hard["steps"]}
    assert told == {
        "add_property": (None, "metadata", ROWS),
        "drop_property": ("reclaimed", "rewrite", ROWS),
        "drop_type": ("reclaimed", "metadata", 2),
    }


def test_the_receipt_tells_scripts_what_was_removed(graph: Graph) -> None:
    graph.store.branches.create("review", "main")

    document = graph.schema.apply(NO_DIARY, allow_data_loss=True).to_json()

    (taken,) = document["reclaimed"]
    assert taken.keys() == {"type_name", "files_removed", "bytes_removed"}
    assert len(document["warnings"]) == 1


def test_an_apply_without_drops_reclaims_nothing_even_if_it_may(graph: Graph) -> None:
    old = graph.store.snapshot().commit_id
    receipt = graph.schema.apply(BEFORE.replace("nick", "alias: I32? nick"), allow_data_loss=True)

    assert receipt.reclaimed == ()
    assert len(read(graph, "Person", at=old)) == ROWS


def test_repeating_a_hard_drop_does_nothing(graph: Graph) -> None:
    graph.schema.apply(NO_DIARY, allow_data_loss=True)
    version = graph.store.snapshot().state.version

    again = graph.schema.apply(NO_DIARY, allow_data_loss=True)

    assert (again.applied, again.reclaimed) == (False, ())
    assert graph.store.snapshot().state.version == version


# -- meeting others


def test_a_row_that_arrives_during_a_hard_drop_stops_it_and_loses_nothing(graph: Graph, place: Place) -> None:
    """A-07: the apply rewrites the table, so a row that it has not read must not be lost."""
    with (
        og.connect(place.address, durability="os", **place.kwargs) as other,
        armed({"publish.before": once(lambda: insert(other, {"Person": [{"slug": "late"}]}))}),
        pytest.raises(StaleVersion) as caught,
    ):
        graph.schema.apply(NO_DIARY, allow_data_loss=True)

    assert caught.value.fields["member"] == "Person"
    assert len(read(graph, "Person")) == ROWS + 1
    assert graph.schema.show() == BEFORE
    assert graph.schema.apply(NO_DIARY, allow_data_loss=True).applied
    assert len(read(graph, "Person")) == ROWS + 1


def test_a_row_that_arrives_in_an_empty_type_during_a_hard_drop_is_rewritten_with_it(
    local_place: Place,
) -> None:
    late = [{"slug": "late", "diary": SECRET, "nick": "n"}]
    with (
        og.init(local_place.address, BEFORE, durability="os") as graph,
        og.connect(local_place.address, durability="os") as other,
    ):
        with armed({"publish.before": once(lambda: insert(other, {"Person": late}))}):
            assert graph.schema.apply(NO_DIARY, allow_data_loss=True).applied

        assert [row["nick"] for row in read(graph, "Person")] == ["n"]
        assert holding(local_place) == set()


@pytest.mark.parametrize("branch", ["main", "review"])
def test_a_writer_parked_before_its_publish_is_prepared_again_and_names_no_missing_file(
    graph: Graph, place: Place, branch: str
) -> None:
    """G-27. On the branch of the drop it is prepared under the new schema; elsewhere under its own."""
    graph.store.branches.create("review", "main")
    with og.connect(place.address, durability="os", **place.kwargs) as other:
        late = [{"slug": "late", "age": 5, "diary": "mine"}]
        with armed({"publish.before": once(lambda: other.schema.apply(NO_DIARY, allow_data_loss=True))}):
            receipt = insert(graph, {"Person": late}, branch=branch)

    assert receipt.attempts > 1
    with og.connect(place.address, **place.kwargs) as fresh:
        (found,) = [row for row in read(fresh, "Person", branch=branch) if row["slug"] == "late"]
        assert found.get("diary") == (None if branch == "main" else "mine")
        assert len(read(fresh, "Person", branch=branch)) == ROWS + 1
        check_whole(fresh)
        check_whole(fresh, "review")


def test_a_writer_whose_type_is_dropped_under_it_is_told_so(graph: Graph, place: Place) -> None:
    with (
        og.connect(place.address, durability="os", **place.kwargs) as other,
        armed({"publish.before": once(lambda: other.schema.apply(NO_SAFE, allow_data_loss=True))}),
        pytest.raises(UnknownType),
    ):
        insert(graph, {"Safe": [{"slug": "late", "content": SECRET}]})

    check_whole(graph)


def test_a_branch_created_during_a_hard_drop_has_the_old_or_the_new_schema_whole(
    graph: Graph, place: Place
) -> None:
    """A-08: it captured the head before the drop, and the files of that head are gone when it registers."""
    with og.connect(place.address, durability="os", **place.kwargs) as other:
        drop = once(lambda: other.schema.apply(NO_DIARY, allow_data_loss=True))
        with armed({"branch_register.before": drop}):
            graph.store.branches.create("review", "main")

    assert graph.schema.show("review") == NO_DIARY
    check_whole(graph, "review")
    assert len(read(graph, "Person", branch="review")) == ROWS


def test_a_drop_whose_reclaim_fails_stands_and_says_what_is_left(graph: Graph, place: Place) -> None:
    """A branch that cannot be traced forbids deleting; the schema was changed all the same."""
    graph.store.branches.create("review", "main")
    insert(graph, {"Person": [{"slug": "r"}]}, branch="review")
    pin = graph.store.snapshot("review").pin(graph.schema.catalog().node("Person").table_id)
    objects = Location.parse(place.address, place.options).objects
    objects.delete(f"tables/{pin.table_id}/_versions/{manifest_file(pin.version)}")

    with og.connect(place.address, **place.kwargs) as other:
        receipt = other.schema.apply(NO_DIARY, allow_data_loss=True)

        assert receipt.applied
        (taken,) = receipt.reclaimed
        assert taken.error is not None
        assert pin.table_id in taken.error
        assert "still stored" in receipt.warnings[0]
        assert other.schema.show() == NO_DIARY
        check_whole(other)
        with pytest.raises(IntegrityError):
            read(other, "Person", branch="review")
