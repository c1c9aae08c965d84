"""What the statements of a mutation mean, one rule after the other (W-10 to W-18, and `now()`)."""

from __future__ import annotations

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph, GraphError
from omnigraph.base.errors import ConstraintViolation
from tests.support.contents import read, state
from tests.support.people import (
    ages,
    coming_first,
    company,
    head,
    knows,
    pairs,
    person,
    q,
    thing,
    violations,
    works,
)
from tests.support.places import Place
from tests.support.stores import nothing_written


def rule_of(error: GraphError) -> str:
    """Return the name of the rule that a text breaks."""
    return str(error.fields["diagnostics"][0].rule.name)


# -- W-10: constructive or destructive ---------------------------------------------------------------


def test_a_mutation_that_inserts_and_deletes_is_refused_before_anything_is_written(
    graph: Graph, local_place: Place
) -> None:
    with nothing_written(local_place), pytest.raises(GraphError) as caught:
        graph.mutate(q('insert Person { name: "a" } delete Person where name = "b"'))

    assert rule_of(caught.value) == "mixed_mutation"


def test_a_refused_text_with_an_idempotency_key_claims_nothing(graph: Graph, local_place: Place) -> None:
    with nothing_written(local_place), pytest.raises(GraphError):
        graph.mutate(q("insert Person { nam: 1 }"), idempotency_key="k")


# -- W-11: later statements see earlier ones ---------------------------------------------------------


def test_an_update_sees_what_an_earlier_statement_inserted(graph: Graph) -> None:
    receipt = graph.mutate(
        q('insert Person { name: "a", age: 1 } update Person set { age: 2 } where age = 1')
    )

    assert ages(graph) == {"a": 2}
    assert receipt.affected_nodes == 2


def test_a_committed_row_is_matched_by_its_new_value_only(graph: Graph) -> None:
    graph.load([person("a", age=30)], mode="append")

    receipt = graph.mutate(
        q(
            'update Person set { age: 40 } where name = "a"'
            ' update Person set { note: "old" } where age = 30'
            ' update Person set { note: "new" } where age = 40'
        )
    )

    assert [(row["age"], row["note"]) for row in read(graph, "Person")] == [(40, "new")]
    assert receipt.affected_nodes == 2


def test_an_update_after_an_upsert_sees_the_upserted_row(graph: Graph) -> None:
    graph.load([person("a", age=30, note="kept?")], mode="append")

    graph.mutate(q('insert Person { name: "a", age: 1 } update Person set { age: 2 } where note is null'))

    assert [(row["age"], row["note"]) for row in read(graph, "Person")] == [(2, None)]


def test_an_update_of_a_minted_entity_keeps_its_id_and_writes_it_once(graph: Graph) -> None:
    graph.mutate(q('insert Thing { value: "a" } update Thing set { value: "b" } where value = "a"'))

    assert [row["value"] for row in read(graph, "Thing")] == ["b"]


# -- W-12: the final image is judged -----------------------------------------------------------------


def test_a_state_between_two_statements_breaks_nothing(graph: Graph) -> None:
    graph.load([person("a", email="x"), person("b", email="y")], mode="append")

    graph.mutate(
        q(
            'insert Person { name: "c", age: 130 } update Person set { age: 30 } where name = "c"'
            ' update Person set { email: "y" } where name = "a"'
            ' update Person set { email: "x" } where name = "b"'
            ' insert Knows { from: "c", to: "d" } insert Person { name: "d" }'
        )
    )

    assert {row["name"]: row["email"] for row in read(graph, "Person")} == {
        "a": "y",
        "b": "x",
        "c": None,
        "d": None,
    }


def test_what_an_earlier_statement_repaired_a_later_one_can_break(graph: Graph) -> None:
    with pytest.raises(ConstraintViolation) as caught:
        graph.mutate(
            q('insert Person { name: "c", age: 30 } update Person set { age: 130 } where name = "c"')
        )

    assert violations(caught.value) == ["range"]


# -- W-13, W-14: insert ------------------------------------------------------------------------------


def test_inserting_a_key_again_replaces_the_whole_entity(graph: Graph) -> None:
    graph.load([person("a", age=30, note="x", mood="wild")], mode="append")

    receipt = graph.mutate(q('insert Person { name: "a", note: "y" }'))

    (row,) = read(graph, "Person")
    assert (row["age"], row["note"], row["mood"]) == (None, "y", "calm")
    assert [(count.inserted, count.updated) for count in receipt.nodes] == [(0, 1)]


def test_an_entity_without_a_key_is_new_every_time(graph: Graph) -> None:
    for _ in range(2):
        graph.mutate(q('insert Thing { value: "same" }'))

    ids = [row["id"] for row in read(graph, "Thing")]
    assert len(set(ids)) == 2
    assert all(len(one) == 26 for one in ids)


def test_an_edge_is_new_every_time(graph: Graph) -> None:
    graph.load([person("a"), person("b")], mode="append")

    graph.mutate(q('insert Knows { from: "a", to: "b" } insert Knows { from: "a", to: "b" }'))

    assert pairs(graph) == [("a", "b"), ("a", "b")]


def test_a_composite_key_makes_the_id(graph: Graph) -> None:
    graph.mutate(q("insert Slot { day: 7, row: 3 }"))
    graph.mutate(q('insert Slot { row: 3, day: 7, note: "again" }'))

    assert [(row["id"], row["note"]) for row in read(graph, "Slot")] == [('["7","3"]', "again")]


# -- W-15: update ------------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", ["set { day: 1 } where row = 3", "set { row: 1 } where day = 7"])
def test_no_component_of_a_key_can_be_updated(graph: Graph, statement: str) -> None:
    graph.mutate(q("insert Slot { day: 7, row: 3 }"))
    before = state(graph)

    with pytest.raises(GraphError) as caught:
        graph.mutate(q(f"update Slot {statement}"))

    assert rule_of(caught.value) == "key_update"
    assert state(graph) == before


def test_an_update_keeps_what_it_does_not_assign(graph: Graph) -> None:
    graph.load([person("a", age=30, note="x"), person("b", age=30), person("c", age=31)], mode="append")

    receipt = graph.mutate(q("update Person set { age: 29 } where age = 30"))

    assert ages(graph) == {"a": 29, "b": 29, "c": 31}
    assert read(graph, "Person")[0]["note"] == "x"
    assert receipt.affected_nodes == 2


def test_an_update_can_set_null(graph: Graph) -> None:
    graph.load([person("a", age=30)], mode="append")

    graph.mutate(q('update Person set { age: null } where name = "a"'))

    assert ages(graph) == {"a": None}


def test_an_edge_has_properties_that_can_be_updated_and_ends_that_cannot(graph: Graph) -> None:
    graph.load([person("a"), person("b"), knows("a", "b", since=1)], mode="append")

    receipt = graph.mutate(q('update Knows set { since: 2 } where from = "a"'))
    with pytest.raises(GraphError):
        graph.mutate(q('update Knows set { to: "a" } where from = "a"'))

    assert [(row["src"], row["dst"], row["since"]) for row in read(graph, "Knows")] == [("a", "b", 2)]
    assert (receipt.affected_nodes, receipt.affected_edges) == (0, 1)


# -- W-16 to W-18: delete ----------------------------------------------------------------------------


def test_deleting_a_node_takes_its_edges_of_every_type_and_at_either_end_in_one_commit(graph: Graph) -> None:
    graph.load(
        [
            *(person(name) for name in "abc"),
            company("x"),
            knows("a", "b"),
            knows("b", "c"),
            knows("b", "b"),
            knows("a", "c"),
            works("b", "x"),
            works("a", "x"),
        ],
        mode="append",
    )
    before = head(graph)

    receipt = graph.mutate(q('delete Person where name = "b"'))

    assert receipt.commit is not None
    assert receipt.commit.parent == before
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 4)
    assert pairs(graph) == [("a", "c")]
    assert pairs(graph, "WorksAt") == [("a", "x")]
    counts = {count.name: count.deleted for count in (*receipt.nodes, *receipt.edges)}
    assert counts == {"Person": 1, "Knows": 3, "WorksAt": 1}


def test_overlapping_deletes_count_each_entity_once(graph: Graph) -> None:
    graph.load([person("a", age=1), person("b"), knows("a", "b"), knows("b", "a")], mode="append")

    receipt = graph.mutate(
        q('delete Knows where from = "a" delete Person where age < 5 delete Person where name < "z"')
    )

    assert (receipt.affected_nodes, receipt.affected_edges) == (2, 2)


def test_a_row_for_which_a_condition_is_unknown_is_not_hidden_from_a_later_statement(graph: Graph) -> None:
    graph.load([person("a"), person("b", age=40)], mode="append")

    receipt = graph.mutate(q('delete Person where age > 30 delete Person where name = "a"'))

    assert receipt.affected_nodes == 2
    assert ages(graph) == {}


@pytest.mark.parametrize("operator", ["=", "!=", "<", ">="])
def test_a_null_parameter_matches_nothing(graph: Graph, operator: str) -> None:
    graph.load([person("a"), person("b", age=40)], mode="append")

    text = f"query q($age: I32?) {{ delete Person where age {operator} $age }}"

    assert graph.mutate(text, age=None).commit is None


def test_a_delete_that_touches_no_edge_leaves_edge_tables_alone(graph: Graph) -> None:
    graph.load([person("a"), person("b"), person("c"), knows("a", "b")], mode="append")
    edges = graph.schema.catalog().edge("Knows").table_id
    before = graph.store.snapshot().pin(edges)

    receipt = graph.mutate(q('delete Person where name = "c"'))

    assert graph.store.snapshot().pin(edges) == before
    assert [count.name for count in (*receipt.nodes, *receipt.edges)] == ["Person"]


def test_deleting_what_is_only_an_endpoint_of_other_types_leaves_their_tables_alone(graph: Graph) -> None:
    graph.load([company("x"), thing("t")], mode="append")
    receipt = graph.mutate(q('delete Thing where value = "t"'))

    assert receipt.affected_nodes == 1
    assert [count.name for count in receipt.types] == ["Thing"]


# -- values ------------------------------------------------------------------------------------------


ZEROS = {
    "? = 0.0": 2,
    "? = -0.0": 2,
    "? in [0.0, 5.0]": 2,
    '? = 0.0 and name != "x"': 2,
    '? in [-0.0, 5.0] and name != "x"': 2,
    "not(? = 0.0)": 1,
    "? != 0.0": 1,
    "? < 0.0": 0,
    "? < -0.0": 0,
    "? <= 0.0": 2,
    "? <= -0.0": 2,
    "? > 0.0": 1,
    "? > -0.0": 1,
    "? >= 0.0": 3,
    "? >= -0.0": 3,
}


def test_both_zeros_are_one_value_to_a_condition(local_place: Place) -> None:
    with og.init(
        local_place.address, "node M { name: String @key v: F64? w: F32? note: String? }", durability="os"
    ) as graph:
        rows = [{"name": n, "v": v, "w": v} for n, v in (("minus", -0.0), ("plus", 0.0), ("one", 1.0))]
        graph.load(pa.Table.from_pylist(rows), type="M", mode="append")
        for column in "vw":
            for condition, expected in ZEROS.items():
                first = 'update M set { note: "seen" } where name != "nobody"'  # so that rows are pending
                for before, more in (("", 0), (first, 3)):
                    text = q(f"{before} update M set {{ v: 0.0 }} where {condition.replace('?', column)}")
                    receipt = graph.mutate(text, dry_run=True)
                    assert receipt.affected_nodes == expected + more, text


def test_now_is_one_moment_for_all_statements(graph: Graph) -> None:
    graph.mutate(q('insert Thing { value: "a", seen: now() } insert Thing { value: "b", seen: now() }'))

    moments = graph.nodes("Thing").to_arrow()["seen"].cast(pa.int64()).to_pylist()
    assert moments[0] is not None
    assert len(set(moments)) == 1


def test_now_is_the_moment_of_the_request_also_after_a_lost_race(graph: Graph, local_place: Place) -> None:
    """The second attempt runs the statements again; it must not see another time."""
    began = graph.store.clock.now_us() // 1000
    late: list[int] = []

    def dawdle(other: Graph) -> None:
        other.load([thing("first")], mode="append")
        other.store.clock.sleep(0.05)
        late.append(other.store.clock.now_us() // 1000)

    with coming_first(local_place.address, dawdle):
        receipt = graph.mutate(q('insert Thing { value: "mine", seen: now() }'))

    table = (
        graph.nodes("Thing")
        .to_arrow()
        .append_column("ms", graph.nodes("Thing").to_arrow()["seen"].cast(pa.int64()))
    )
    mine = next(row["ms"] for row in table.to_pylist() if row["value"] == "mine")
    assert receipt.attempts == 2
    assert began <= mine < late[0] - 40
