"""Publish: what a writer does when another one came first, carried out on real storage.

Each test meets a write half way and lets another store, which shares nothing with the first but the
address, publish in between.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from omnigraph.base.errors import (
    StaleVersion,
)
from omnigraph.storage.durability import armed
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import (
    AddColumn,
    Append,
    DeleteIds,
    DropColumn,
    Effect,
    Overwrite,
    RenameColumn,
    SeveralEffects,
    Upsert,
)
from omnigraph.storage.transaction import NewTable, PlannedWrite, PublishPlan, PublishReceipt
from tests.support.graphs import (
    KNOWS,
    PERSON,
    PERSON_SCHEMA,
    chain_of,
    knows,
    people,
    persons,
    upsert_person,
    write,
)
from tests.support.places import Place
from tests.support.stores import (
    STAGING,
    Hits,
    Once,
    Scripted,
    check_error,
    staged_versions,
    tidy,
)

EDGE = knows({"e1": ("a", "b")})


# -- nothing the plan read or wrote


def test_a_race_on_other_tables_publishes_the_versions_staged_at_first(
    place: Place, store: GraphStore, rival: GraphStore
) -> None:
    hits, staged_at_first = Hits(), set[int]()
    before = staged_versions(place, PERSON)

    def race() -> None:
        staged_at_first.update(staged_versions(place, PERSON) - before)
        write(rival, {KNOWS: Upsert(EDGE)})
        hits.counts.clear()

    mine = Scripted({PERSON: Upsert(people(["c"]))})
    with armed({"publish.before": Once(race), **hits.at(*STAGING)}):
        receipt = store.publish("main", mine)

    assert receipt.attempts == 2
    assert hits.total == 0, "staged again"
    assert (
        {store.snapshot().pin(PERSON).version} == staged_at_first == staged_versions(place, PERSON) - before
    )
    assert (len(mine.bases), len(mine.validated_on)) == (1, 1)
    assert set(persons(store)) == {"a", "b", "c"}
    assert store.table(store.snapshot(), KNOWS).count_rows() == 1


def test_a_commit_that_was_published_again_follows_the_one_it_lost_to(
    store: GraphStore, rival: GraphStore
) -> None:
    theirs: list[PublishReceipt] = []
    mine = Scripted({PERSON: Upsert(people(["c"]))})
    with armed({"publish.before": Once(lambda: theirs.append(write(rival, {KNOWS: Upsert(EDGE)})))}):
        receipt = store.publish("main", mine)

    assert receipt.commit is not None
    assert receipt.commit.parent == theirs[0].commit_id
    assert chain_of(store)[-2:] == [theirs[0].commit_id, receipt.commit_id]
    assert receipt.commit == store.snapshot().state.commit
    assert mine.commit_ids == {receipt.commit_id}, "the id is minted once, whatever the number of attempts"


# -- a table read for constraints


def test_a_race_on_a_table_read_for_constraints_validates_again_without_staging_again(
    store: GraphStore, rival: GraphStore
) -> None:
    hits = Hits()

    def race() -> None:
        write(rival, {KNOWS: Upsert(EDGE)})
        hits.counts.clear()

    mine = Scripted({PERSON: Upsert(people(["c"]))}, {"consulted": frozenset({KNOWS})})
    with armed({"publish.before": Once(race), **hits.at(*STAGING)}):
        receipt = store.publish("main", mine)

    assert receipt.attempts == 2
    assert len(mine.bases) == 1
    assert mine.validated_on == [2, 3]
    assert hits.total == 0


def test_a_violation_that_appears_when_validating_again_is_raised_as_it_is(
    store: GraphStore, rival: GraphStore
) -> None:
    class Orphan(Exception):
        pass

    mine = Scripted({PERSON: Upsert(people(["c"]))}, {"consulted": frozenset({KNOWS})})

    def check() -> None:
        if len(mine.validated_on) == 2:
            raise Orphan

    mine.on_validate = check
    with armed({"publish.before": Once(lambda: write(rival, {KNOWS: Upsert(EDGE)}))}), pytest.raises(Orphan):
        store.publish("main", mine)

    assert set(persons(store)) == {"a", "b"}


# -- a table that the plan writes


@pytest.mark.parametrize("effect", [Upsert, Append])
def test_racing_inserts_into_one_table_both_land(
    store: GraphStore, rival: GraphStore, effect: Callable[[pa.Table], Effect]
) -> None:
    mine = Scripted({PERSON: effect(people(["c"]))})
    with armed({"publish.before": Once(lambda: write(rival, {PERSON: effect(people(["d"]))}))}):
        receipt = store.publish("main", mine)

    assert mine.bases == [2, 3]
    assert receipt.attempts == 2
    assert set(persons(store)) == {"a", "b", "c", "d"}
    assert len(chain_of(store)) == 4


def test_racing_upserts_of_one_row_leave_the_row_of_the_last(store: GraphStore, rival: GraphStore) -> None:
    with armed({"publish.before": Once(lambda: upsert_person(rival, "a", age=50))}):
        receipt = upsert_person(store, "a", age=60)

    assert persons(store) == {"a": 60, "b": 1}
    assert receipt.tables[0].updated == 1


def test_a_table_of_the_plan_that_nobody_moved_keeps_what_was_staged_for_it(
    place: Place, store: GraphStore, rival: GraphStore
) -> None:
    before = staged_versions(place, KNOWS)
    mine = Scripted({PERSON: Upsert(people(["c"])), KNOWS: Upsert(EDGE)})
    with armed({"publish.before": Once(lambda: upsert_person(rival, "d"))}):
        store.publish("main", mine)

    assert mine.bases == [2, 3]
    assert staged_versions(place, KNOWS) - before == {store.snapshot().pin(KNOWS).version}


# -- rows that decided what is written


@pytest.mark.parametrize(
    "effect",
    [
        DeleteIds(pa.array(["a"])),
        Overwrite(people(["x"])),
        AddColumn(pa.field("score", pa.float64()), fill=pa.scalar(0.5)),
        AddColumn(pa.field("score", pa.int64()), copy_from="age"),
        SeveralEffects((RenameColumn("name", "title"), DeleteIds(pa.array(["a"])))),
    ],
    ids=["by ids", "overwrite", "filled column", "copied column", "several"],
)
def test_a_write_that_depends_on_rows_is_told_when_they_moved(
    store: GraphStore, rival: GraphStore, effect: Effect
) -> None:
    theirs: list[PublishReceipt] = []
    base = store.snapshot().commit_id
    mine = Scripted({PERSON: effect})
    with (
        armed({"publish.before": Once(lambda: theirs.append(upsert_person(rival, "d", age=5)))}),
        pytest.raises(StaleVersion) as caught,
    ):
        store.publish("main", mine)

    check_error(caught.value, "read_set_conflict", "Person")
    assert caught.value.fields == {"member": "Person", "expected": base, "actual": theirs[0].commit_id}
    assert len(mine.bases) == 1, "never prepared again"
    assert persons(store) == {"a": 1, "b": 1, "d": 5}
    assert store.snapshot().commit_id == theirs[0].commit_id


@pytest.mark.parametrize(
    "effect",
    [
        AddColumn(pa.field("score", pa.float64())),
        DropColumn("name"),
        RenameColumn("name", "title"),
        SeveralEffects((RenameColumn("name", "title"), AddColumn(pa.field("score", pa.float64())))),
    ],
    ids=["empty column", "drop", "rename", "several"],
)
def test_a_change_of_columns_that_rewrites_no_row_lands_beside_a_racing_write(
    store: GraphStore, rival: GraphStore, effect: Effect
) -> None:
    """A-07: only a table that it rewrites would be a conflict."""
    mine = Scripted({PERSON: effect})
    with armed({"publish.before": Once(lambda: upsert_person(rival, "d", age=5))}):
        receipt = store.publish("main", mine)

    assert receipt.attempts == 2
    assert persons(store) == {"a": 1, "b": 1, "d": 5}
    assert store.table(store.snapshot(), PERSON).schema.names != PERSON_SCHEMA.names


def test_a_write_that_depends_on_rows_goes_on_when_only_maintenance_moved_them(
    store: GraphStore, rival: GraphStore
) -> None:
    mine = Scripted({PERSON: DeleteIds(pa.array(["a"]))})
    with armed({"publish.before": Once(lambda: tidy(rival))}):
        receipt = store.publish("main", mine)

    assert receipt.attempts == 2
    assert persons(store) == {"b": 1}


def test_rows_that_the_caller_read_to_decide_count_like_rows_that_an_effect_found(
    store: GraphStore, rival: GraphStore
) -> None:
    mine = Scripted({PERSON: Upsert(people(["c"]))}, {"decided_by": frozenset({KNOWS})})
    with (
        armed({"publish.before": Once(lambda: write(rival, {KNOWS: Upsert(EDGE)}))}),
        pytest.raises(StaleVersion, match="Knows"),
    ):
        store.publish("main", mine)


# -- the schema


def accept(store: GraphStore, schema: bytes) -> PublishReceipt:
    return store.publish("main", PlannedWrite(PublishPlan(CommitKind.SCHEMA, schema=schema)))


def test_an_insert_is_prepared_again_under_a_new_schema(store: GraphStore, rival: GraphStore) -> None:
    mine = Scripted({PERSON: Upsert(people(["c"]))})
    with armed({"publish.before": Once(lambda: accept(rival, b"second"))}):
        receipt = store.publish("main", mine)

    assert mine.bases == [2, 3]
    assert receipt.commit is not None
    assert store.schemas.get(receipt.commit.schema) == b"second"


def test_a_delete_under_a_new_schema_is_a_conflict_on_the_schema(
    store: GraphStore, rival: GraphStore
) -> None:
    with (
        armed({"publish.before": Once(lambda: accept(rival, b"second"))}),
        pytest.raises(StaleVersion) as caught,
    ):
        write(store, {PERSON: DeleteIds(pa.array(["a"]))})

    assert caught.value.fields["member"] == "schema"


def test_of_two_racing_schema_changes_one_is_told(store: GraphStore, rival: GraphStore) -> None:
    with (
        armed({"publish.before": Once(lambda: accept(rival, b"second"))}),
        pytest.raises(StaleVersion, match="schema"),
    ):
        accept(store, b"third")

    assert store.schemas.get(store.snapshot().schema) == b"second"


def test_a_plan_that_creates_a_table_survives_being_prepared_again(
    store: GraphStore, rival: GraphStore
) -> None:
    mine = Scripted(
        {"t-new": Upsert(people(["n"])), PERSON: Upsert(people(["c"]))},
        {"kind": CommitKind.LOAD, "create": {"t-new": NewTable("New", "node", PERSON_SCHEMA)}},
    )
    with armed({"publish.before": Once(lambda: upsert_person(rival, "d"))}):
        receipt = store.publish("main", mine)

    assert receipt.attempts == 2
    assert store.table(store.snapshot(), "t-new").to_table()["id"].to_pylist() == ["n"]
    assert set(persons(store)) == {"a", "b", "c", "d"}
