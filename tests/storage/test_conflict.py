"""Conflict: what a writer does when another one published first, row by row (engine spec 3.4).

The decision is a pure function of two graph versions and what the plan read and wrote; what the
publisher makes of it is tested in test_publish_races.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from omnigraph.base.errors import Kind, StaleVersion
from omnigraph.base.frozen import FrozenMap
from omnigraph.base.ids import new_id
from omnigraph.storage.manifest.records import (
    ChainIdentity,
    CommitKind,
    CommitRecord,
    ManifestState,
    Pin,
    Sweep,
    advance,
    control,
)
from omnigraph.storage.publish import Decision, decide
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
from omnigraph.storage.transaction import NewTable, PublishPlan
from tests.support.graphs import PERSON_SCHEMA, people

W, S, C, OTHER = "written", "decisive", "consulted", "unrelated"  # what the plan has to do with a table
PUBLISH, VALIDATE, PREPARE = Decision.PUBLISH_AGAIN, Decision.VALIDATE_AGAIN, Decision.PREPARE_AGAIN


def record(base: ManifestState | None, kind: CommitKind, schema: str) -> CommitRecord:
    return CommitRecord(
        id=new_id(),
        parent=None if base is None else base.head,
        merged_parent=None,
        branch="main",
        incarnation="main",
        kind=kind,
        actor=None,
        message=None,
        authored_at_us=0,
        manifest_version=1 if base is None else base.version + 1,
        schema=schema,
    )


def start() -> ManifestState:
    first = record(None, CommitKind.GENESIS, "s1")
    pins = {t: Pin(t, f"Type {t}", "node", version=1, rows=0, content=first.id) for t in (W, S, C, OTHER)}
    return ManifestState(
        version=1,
        line=ChainIdentity("main"),
        commit=first,
        pins=FrozenMap(pins),
        heads=(first.id,),
        recent=((1, first.id),),
        newest_id=first.id,
    )


BASE = start()


def content(state: ManifestState, *tables: str) -> ManifestState:
    """Another writer changed the rows of these tables."""
    commit = record(state, CommitKind.MUTATION, state.schema)
    moved = {t: replace(state.pins[t], version=2**63 + state.version, content=commit.id) for t in tables}
    return advance(state, commit, moved)[0]


def maintenance(state: ManifestState, *tables: str) -> ManifestState:
    """These tables were compacted: other files, the same rows."""
    commit = record(state, CommitKind.MAINTENANCE, state.schema)
    return advance(state, commit, {t: replace(state.pins[t], version=2**63 + state.version) for t in tables})[
        0
    ]


def schema(state: ManifestState) -> ManifestState:
    """A schema change that touched no table."""
    return advance(state, record(state, CommitKind.SCHEMA, "s2"), {})[0]


def dropped(state: ManifestState, table: str) -> ManifestState:
    """A table was dropped (the schema, for this row, left alone)."""
    return advance(state, record(state, CommitKind.SCHEMA, state.schema), {table: None})[0]


def floor(state: ManifestState, version: int) -> ManifestState:
    """Retention raised the floor."""
    return control(state, sweep=Sweep(floor=version))[0]


@dataclass(frozen=True)
class Row:
    """One row of the table: what moved, and what becomes of a plan of each sort."""

    now: ManifestState
    only_writes: Decision | str  # S empty: insert, append, merge-load
    decides: (
        Decision | str
    )  # S not empty: update, delete, overwrite, schema apply; a text is the moved member


ROWS = {
    "nothing but the head": Row(content(BASE), PUBLISH, PUBLISH),
    "content of an unrelated table": Row(content(BASE, OTHER), PUBLISH, PUBLISH),
    "an unrelated table, by maintenance": Row(maintenance(BASE, OTHER), PUBLISH, PUBLISH),
    "an unrelated table, dropped": Row(dropped(BASE, OTHER), PUBLISH, PUBLISH),
    "content of a table read for constraints": Row(content(BASE, C), VALIDATE, VALIDATE),
    "that table, by maintenance": Row(maintenance(BASE, C), PUBLISH, PUBLISH),
    "that table, dropped": Row(dropped(BASE, C), VALIDATE, VALIDATE),
    "content of the written table": Row(content(BASE, W), PREPARE, PREPARE),
    "the written table, by maintenance": Row(maintenance(BASE, W), PREPARE, PREPARE),
    "the written table, dropped": Row(dropped(BASE, W), PREPARE, PREPARE),
    "content of written and consulted tables": Row(content(BASE, W, C), PREPARE, PREPARE),
    "content of a table whose rows decided": Row(content(BASE, S), PUBLISH, f"Type {S}"),
    "that decisive table, by maintenance": Row(maintenance(BASE, S), PUBLISH, PREPARE),
    "that decisive table, dropped": Row(dropped(BASE, S), PUBLISH, f"Type {S}"),
    "content then maintenance of it": Row(maintenance(content(BASE, S), S), PUBLISH, f"Type {S}"),
    "the schema": Row(schema(BASE), PREPARE, "schema"),
    "the schema and a decisive table": Row(schema(content(BASE, S)), PREPARE, "schema"),
    "the schema and maintenance": Row(schema(maintenance(BASE, W)), PREPARE, "schema"),
    "the floor, to the base itself": Row(floor(content(BASE), 1), PREPARE, PREPARE),
    "the floor, past the base": Row(floor(content(BASE), 2), PREPARE, PREPARE),
    "the floor past the base, and content decisive": Row(floor(content(BASE, S), 2), PREPARE, f"Type {S}"),
    "the floor past the base, and a consulted table": Row(floor(content(BASE, C), 2), PREPARE, PREPARE),
}


def outcome(now: ManifestState, decided_by: frozenset[str], schema_decides: bool = False) -> Decision:
    return decide(
        BASE,
        now,
        writes=frozenset({W}),
        decided_by=decided_by,
        consulted=frozenset({C}),
        schema_decides=schema_decides,
    )


@pytest.mark.parametrize("name", ROWS)
def test_a_plan_that_depends_on_no_rows_is_never_told_of_a_conflict(name: str) -> None:
    row = ROWS[name]

    assert outcome(row.now, frozenset()) is row.only_writes


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if isinstance(row.decides, Decision)])
def test_a_plan_that_depends_on_rows_goes_on_while_those_stayed_the_same(name: str) -> None:
    row = ROWS[name]

    assert outcome(row.now, frozenset({S})) is row.decides


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if isinstance(row.decides, str)])
def test_a_plan_that_depends_on_rows_is_told_which_member_moved(name: str) -> None:
    row = ROWS[name]

    with pytest.raises(StaleVersion) as caught:
        outcome(row.now, frozenset({S}))

    error = caught.value
    assert (error.code, error.kind, error.retryable) == ("read_set_conflict", Kind.CONFLICT, True)
    assert error.fields["member"] == row.decides
    assert error.fields["expected"] != error.fields["actual"]
    assert str(row.decides) in str(error)
    assert "repeat the write" in str(error)


@pytest.mark.parametrize(("staged_at", "decision"), [(1, PREPARE), (2, PREPARE), (3, PUBLISH), (4, PUBLISH)])
def test_only_files_that_were_staged_after_retention_ran_are_sure_to_be_there(
    staged_at: int, decision: Decision
) -> None:
    """A plan may be older than its base: published again, it keeps the files of its first attempt."""
    base = content(floor(content(BASE), 1))
    assert (base.swept, base.version) == (3, 4)

    found = decide(
        base,
        content(base),
        writes=frozenset({W}),
        decided_by=frozenset(),
        consulted=frozenset(),
        schema_decides=False,
        staged_at=staged_at,
    )

    assert found is decision


def test_a_plan_that_changes_the_schema_conflicts_with_another_schema_even_without_rows() -> None:
    with pytest.raises(StaleVersion) as caught:
        outcome(schema(BASE), frozenset(), schema_decides=True)

    assert caught.value.fields == {"member": "schema", "expected": "s1", "actual": "s2"}


def test_the_first_moved_member_in_table_order_is_named() -> None:
    with pytest.raises(StaleVersion) as caught:
        outcome(content(BASE, W, S, C), frozenset({W, S, C}))

    assert caught.value.fields["member"] == f"Type {min(W, S, C)}"


def test_the_conflict_names_the_commits_that_the_table_was_expected_and_found_at() -> None:
    now = content(BASE, S)

    with pytest.raises(StaleVersion) as caught:
        outcome(now, frozenset({S}))

    assert caught.value.fields["expected"] == BASE.head
    assert caught.value.fields["actual"] == now.head


# -- which effects depend on the rows they find


ROWS_OF = people(["a"])


@pytest.mark.parametrize(
    ("effect", "decisive"),
    [
        (Append(ROWS_OF), False),
        (Upsert(ROWS_OF), False),
        (DeleteIds(pa.array(["a"])), True),
        (Overwrite(ROWS_OF), True),
        (AddColumn(pa.field("x", pa.int8())), False),
        (AddColumn(pa.field("x", pa.int8()), fill=pa.scalar(1, pa.int8())), True),
        (AddColumn(pa.field("x", pa.int64()), copy_from="age"), True),
        (FillNulls("age", pa.scalar(1, pa.int32())), True),
        (DropColumn("age"), False),
        (RenameColumn("age", "years"), False),
        (SeveralEffects((RenameColumn("age", "years"), DropColumn("name"))), False),
        (SeveralEffects((RenameColumn("age", "years"), DeleteIds(pa.array(["a"])))), True),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, bool) else "",
)
def test_an_effect_makes_its_table_decisive_only_if_the_rows_found_decide(
    effect: Effect, decisive: bool
) -> None:
    plan = PublishPlan(CommitKind.MUTATION, effects={W: effect})

    assert plan.writes == {W}
    assert plan.decisive == (frozenset({W}) if decisive else frozenset())


def test_a_plan_that_plans_again_makes_no_table_decisive() -> None:
    plan = PublishPlan(
        CommitKind.MERGE, effects={W: Overwrite(ROWS_OF)}, decided_by=frozenset({S}), replans=True
    )

    assert plan.decisive == frozenset()


def test_what_the_caller_read_to_decide_is_decisive_and_a_dropped_table_is_too() -> None:
    plan = PublishPlan(
        CommitKind.MUTATION, effects={W: Upsert(ROWS_OF)}, decided_by=frozenset({S}), drop=frozenset({OTHER})
    )

    assert plan.decisive == {S, OTHER}
    assert plan.writes == {W, OTHER}


def test_a_table_that_the_plan_itself_creates_cannot_be_decisive() -> None:
    plan = PublishPlan(
        CommitKind.SCHEMA,
        create={W: NewTable("New", "node", PERSON_SCHEMA)},
        effects={W: Overwrite(ROWS_OF)},
    )

    assert plan.decisive == frozenset()
