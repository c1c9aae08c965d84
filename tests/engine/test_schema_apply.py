"""Every kind of migration step: on a table with rows, on a branch, and beside a data writer (A-07)."""

from __future__ import annotations

from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import StaleVersion
from omnigraph.catalog.catalog import UnknownType
from omnigraph.catalog.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    AlterProperty,
    ChangeEmbed,
    DropConstraint,
    DropProperty,
    DropType,
    ExtendEnum,
    RenameProperty,
    RenameType,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)
from omnigraph.storage.durability import armed
from tests.engine.cases import CASES, TYPES, Case, person
from tests.support.contents import check_whole, insert, read, state
from tests.support.places import Place
from tests.support.workers import once

pytestmark = pytest.mark.s3_when_full

STEPS = (
    AddType, RenameType, DropType, UpdateTypeMetadata, AddProperty, RenameProperty, ExtendEnum, AlterProperty,
    ChangeEmbed, UpdatePropertyMetadata, DropProperty, AddConstraint, DropConstraint,
)  # fmt: skip

ON_S3 = [
    case
    for case in CASES
    if case.name in {"add-edge-type", "drop-node-type", "rename-node-type", "add-filled", "i32-to-i64",
                     "nullable-to-required-filled", "embed-another-source", "drop-property", "add-unique"}
]  # fmt: skip


def start(case: Case, place: Place) -> Graph:
    """Make a graph with the schema and the rows that a case starts from."""
    graph = og.init(place.address, case.before, durability="os", **place.kwargs)
    insert(graph, case.rows)
    return graph


def check_changed(graph: Graph, case: Case, more: list[dict[str, Any]], branch: str = "main") -> None:
    """Assert that the type is as the case says, with further rows, and that schema and tables agree."""
    check_whole(graph, branch)
    if case.found is None:
        with pytest.raises(UnknownType):
            read(graph, case.type_name, branch=branch)
    else:
        expected = sorted([*case.found, *more], key=lambda row: str(row["id"]))
        assert read(graph, case.shown_name, branch=branch) == expected


def test_the_cases_cover_every_kind_of_step() -> None:
    assert {kind for case in CASES for kind in case.kinds} == {step.kind for step in STEPS}


def check_on_rows(case: Case, place: Place) -> None:
    """Apply on a table with rows, and again."""
    with start(case, place) as graph:
        before = graph.store.snapshot()

        receipt = graph.schema.apply(case.after)

        assert tuple(step.kind for step in receipt.plan.steps) == case.kinds
        assert receipt.commit is not None
        assert receipt.commit.parent == before.commit_id
        check_changed(graph, case, [])
        check_whole(graph, at=before.commit_id)
        again = graph.schema.apply(case.after)
        assert (again.applied, again.plan.steps) == (False, ())
        assert graph.store.snapshot().commit_id == receipt.commit.id


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_step_on_a_table_with_rows_is_one_commit_with_the_rows_as_promised(
    local_place: Place, case: Case
) -> None:
    check_on_rows(case, local_place)


@pytest.mark.s3
@pytest.mark.parametrize("case", ON_S3, ids=str)
def test_a_step_on_s3_is_one_commit_with_the_rows_as_promised(s3_place: Place, case: Case) -> None:
    check_on_rows(case, s3_place)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_step_on_a_branch_leaves_main_as_it_was(local_place: Place, case: Case) -> None:
    with start(case, local_place) as graph:
        graph.store.branches.create("review", "main")
        before = state(graph)

        receipt = graph.schema.apply(case.after, branch="review")

        assert receipt.commit is not None
        assert receipt.commit.branch == "review"
        check_changed(graph, case, [], branch="review")
        assert state(graph) == before
        check_whole(graph)


def check_with_writer_first(case: Case, place: Place) -> None:
    """Let a writer commit a row of the changed type between the apply's preparation and its publish."""
    with start(case, place) as graph, og.connect(place.address, durability="os", **place.kwargs) as other:
        late = once(lambda: insert(other, {case.type_name: [case.late]}))
        if case.rewrites:
            with armed({"publish.before": late}), pytest.raises(StaleVersion) as caught:
                graph.schema.apply(case.after)
            assert caught.value.fields["member"] == case.type_name
            assert graph.schema.show() == case.before
            assert len(read(graph, case.type_name)) == len(case.rows[case.type_name]) + 1
            check_whole(graph)
        else:
            with armed({"publish.before": late}):
                assert graph.schema.apply(case.after).applied
            check_changed(graph, case, [case.late_found or case.late])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_row_that_arrives_during_an_apply_stops_a_rewrite_and_nothing_else(
    local_place: Place, case: Case
) -> None:
    check_with_writer_first(case, local_place)


@pytest.mark.s3
@pytest.mark.parametrize("case", ON_S3, ids=str)
def test_a_row_that_arrives_during_an_apply_on_s3_stops_a_rewrite_and_nothing_else(
    s3_place: Place, case: Case
) -> None:
    check_with_writer_first(case, s3_place)


@pytest.mark.parametrize("case", [c for c in CASES if c.rewrites and c.found is not None], ids=str)
def test_an_apply_that_met_a_conflict_succeeds_when_repeated(local_place: Place, case: Case) -> None:
    with start(case, local_place) as graph, og.connect(local_place.address, durability="os") as other:
        late = once(lambda: insert(other, {case.type_name: [case.late]}))
        with armed({"publish.before": late}), pytest.raises(StaleVersion):
            graph.schema.apply(case.after)

        assert graph.schema.apply(case.after).applied
        assert len(read(graph, case.shown_name)) == len(case.found or ()) + 1
        check_whole(graph)


STAYS = [case for case in CASES if case.found is not None and not case.new_name]


@pytest.mark.parametrize("case", STAYS, ids=str)
def test_a_writer_that_meets_a_new_schema_is_prepared_again_under_it(local_place: Place, case: Case) -> None:
    """The late row is laid out anew: columns that came are null, columns that went are left out."""
    with start(case, local_place) as graph, og.connect(local_place.address, durability="os") as other:
        with armed({"publish.before": once(lambda: other.schema.apply(case.after))}):
            receipt = insert(graph, {case.type_name: [case.late]})

        assert receipt.attempts == 2
        check_whole(graph)
        assert [row["id"] for row in read(graph, case.type_name)] == sorted(
            [*(row["id"] for row in case.found or ()), case.late["id"]]
        )


@pytest.mark.parametrize("case", [case for case in TYPES if case.found is None or case.new_name], ids=str)
def test_a_writer_whose_type_is_gone_or_renamed_is_told_so(local_place: Place, case: Case) -> None:
    with start(case, local_place) as graph, og.connect(local_place.address, durability="os") as other:
        with (
            armed({"publish.before": once(lambda: other.schema.apply(case.after))}),
            pytest.raises(UnknownType),
        ):
            insert(graph, {case.type_name: [case.late]})
        check_changed(graph, case, [])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_write_to_another_table_never_stops_an_apply(local_place: Place, case: Case) -> None:
    other_type = "\nnode Other { slug: String @key }"
    with og.init(local_place.address, case.before + other_type, durability="os") as graph:
        insert(graph, case.rows)
        with (
            og.connect(local_place.address, durability="os") as other,
            armed({"publish.before": once(lambda: insert(other, {"Other": [{"slug": "x"}]}))}),
        ):
            assert graph.schema.apply(case.after + other_type).applied

        check_changed(graph, case, [])
        assert [row["slug"] for row in read(graph, "Other")] == ["x"]


def test_a_retried_apply_creates_its_table_once(local_place: Place) -> None:
    """A lost race prepares the plan again; the table that the first attempt made is taken, not made twice."""
    with (
        og.init(local_place.address, person("p: I32?"), durability="os") as graph,
        og.connect(local_place.address, durability="os") as other,
    ):
        insert(graph, {"Person": [{"slug": "a", "p": 1}]})
        late = once(lambda: insert(other, {"Person": [{"slug": "b", "p": 2}]}))
        with armed({"publish.before": late}):
            graph.schema.apply(person("p: I32? q: I32?", "node City { name: String @key }"))

        insert(graph, {"City": [{"name": "delft"}]})
        assert [row["name"] for row in read(graph, "City")] == ["delft"]
        check_whole(graph)
