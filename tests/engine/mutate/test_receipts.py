"""Which commit a call made, and what the same call does a second time (engine contract 2.3, 3.6, L-12)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph import Graph, GraphError
from omnigraph.base.errors import KeyConflict, PreconditionFailed
from omnigraph.engine.write import Receipt
from tests.support.contents import read, state
from tests.support.graphs import chain_of
from tests.support.people import INSERT, NOTE, ages, coming_first, head, knows, pairs, person, q, thing
from tests.support.places import Place
from tests.support.stores import nothing_written

PEOPLE = [person("a", age=1), person("b", age=2), knows("a", "b", id="e")]


def made_one_commit(graph: Graph, before: str, receipt: Receipt) -> bool:
    """Say whether the head moved by exactly the commit that a receipt names."""
    return receipt.parents == (before,) and head(graph) == receipt.commit_id


# -- receipts ----------------------------------------------------------------------------------------


def test_an_insert_is_one_commit(graph: Graph) -> None:
    before = head(graph)

    receipt = graph.mutate(INSERT, name="a", actor="ada", message="first")

    assert made_one_commit(graph, before, receipt)
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 0)
    assert (receipt.actor, receipt.query_name) == ("ada", "add")
    assert receipt.commit is not None
    assert (receipt.commit.message, receipt.commit.kind.value) == ("first", "mutation")


def test_an_update_that_changes_no_value_is_still_one_commit(graph: Graph) -> None:
    graph.load(PEOPLE, mode="append")
    before, rows = head(graph), state(graph).rows

    receipt = graph.mutate(q("update Person set { age: 1 } where age = 1"))

    assert made_one_commit(graph, before, receipt)
    assert state(graph).rows == rows


@pytest.mark.parametrize(
    "body", ['update Person set { age: 9 } where name = "nobody"', 'delete Person where name = "nobody"']
)
def test_a_mutation_that_affects_nothing_is_no_commit(graph: Graph, local_place: Place, body: str) -> None:
    graph.load(PEOPLE, mode="append")

    with nothing_written(local_place):
        receipt = graph.mutate(q(body))

    assert (receipt.commit, receipt.affected_nodes, receipt.types) == (None, 0, ())


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
@pytest.mark.parametrize("rows", [[], PEOPLE], ids=["empty", "rows"])
def test_a_load_is_one_commit_also_of_nothing(graph: Graph, mode: str, rows: list[object]) -> None:
    before = head(graph)

    receipt = graph.load(rows, mode=mode)  # type: ignore[arg-type]

    assert made_one_commit(graph, before, receipt)
    assert receipt.facts["total_entities"] == len(rows)


@pytest.mark.parametrize(
    "act",
    [
        lambda graph: graph.mutate(q('insert Person { name: "x", age: 130 }')),
        lambda graph: graph.mutate(q('insert Knows { from: "a", to: "nobody" }')),
        lambda graph: graph.load([person("new"), person("a")], mode="append"),
        lambda graph: graph.load([person("a"), person("a")], mode="overwrite"),
    ],
    ids=["value", "endpoint", "append", "overwrite"],
)
def test_a_failure_is_no_commit(graph: Graph, act: Callable[[Graph], Receipt]) -> None:
    graph.load(PEOPLE, mode="append")
    before = state(graph)

    with pytest.raises(GraphError):
        act(graph)

    assert state(graph) == before


def test_a_receipt_is_what_was_published_and_not_a_later_head(graph: Graph, local_place: Place) -> None:
    with coming_first(local_place.address, lambda g: g.mutate(INSERT, name="later"), "publish.after"):
        receipt = graph.mutate(INSERT, name="mine")

    assert receipt.commit_id in chain_of(graph.store)
    assert receipt.commit_id != head(graph)
    assert ages(graph, at=receipt.commit_id) == {"mine": None}


def test_a_receipt_counts_what_was_inserted_and_what_was_replaced(graph: Graph) -> None:
    graph.load(PEOPLE, mode="append")

    receipt = graph.load([person("b", age=3), person("c"), knows("b", "c")], mode="merge")

    assert [(c.name, c.inserted, c.updated) for c in receipt.types] == [("Person", 1, 1), ("Knows", 1, 0)]
    assert (receipt.affected_nodes, receipt.affected_edges) == (2, 1)


# -- dry runs ----------------------------------------------------------------------------------------


def test_a_dry_run_writes_nothing_and_says_what_would_be_affected(graph: Graph, local_place: Place) -> None:
    graph.load(PEOPLE, mode="append")

    with nothing_written(local_place):
        deleted = graph.mutate(q('delete Person where name = "a"'), dry_run=True, idempotency_key="k")
        loaded = graph.load(
            [person("c")], mode="merge", branch="new", from_branch="main", dry_run=True, idempotency_key="k"
        )

    assert (deleted.commit, deleted.affected_nodes, deleted.affected_edges) == (None, 1, 1)
    assert (loaded.commit, loaded.affected_nodes, loaded.dry_run) == (None, 1, True)


@pytest.mark.parametrize("actor", [None, "system:x"])
def test_a_dry_run_raises_what_the_run_would_raise(graph: Graph, actor: str | None) -> None:
    graph.load(PEOPLE, mode="append")
    for dry_run in (True, False):
        with pytest.raises(GraphError) as caught:
            graph.load([person("a")], mode="append", dry_run=dry_run, actor=actor)
        assert caught.value.code == ("key_conflict" if actor is None else "bad_request")


# -- the same call again -----------------------------------------------------------------------------


def twice(graph: Graph, act: Callable[[Graph], Receipt]) -> tuple[Receipt, Receipt]:
    """Run a call two times."""
    return act(graph), act(graph)


def test_append_again_names_the_first_id_that_exists(graph: Graph) -> None:
    rows = [person("b"), person("a"), person("c")]
    graph.load(rows, mode="append")

    with pytest.raises(KeyConflict) as caught:
        graph.load(rows, mode="append")

    fields = caught.value.fields
    assert (fields["entity_kind"], fields["type_name"], fields["entity_id"]) == ("node", "Person", "a")


@pytest.mark.parametrize("mode", ["merge", "overwrite"])
def test_merge_and_overwrite_again_are_a_new_commit_with_the_same_content(graph: Graph, mode: str) -> None:
    first = graph.load(PEOPLE, mode=mode)  # type: ignore[arg-type]
    rows = state(graph).rows

    second = graph.load(PEOPLE, mode=mode)  # type: ignore[arg-type]

    assert second.parents == (first.commit_id,)
    assert state(graph).rows == rows


def test_a_keyed_insert_again_is_a_new_commit_with_the_same_content(graph: Graph) -> None:
    first, second = twice(graph, lambda g: g.mutate(INSERT, name="a", age=3))

    assert second.parents == (first.commit_id,)
    assert ages(graph) == {"a": 3}


def test_an_insert_without_a_key_again_is_a_second_entity(graph: Graph) -> None:
    graph.load(PEOPLE, mode="append")

    twice(graph, lambda g: g.mutate(NOTE, value="x"))
    twice(graph, lambda g: g.mutate(q('insert Knows { from: "a", to: "b" }')))

    assert len(read(graph, "Thing")) == 2
    assert pairs(graph) == [("a", "b")] * 3


def test_an_update_again_is_a_new_commit(graph: Graph) -> None:
    graph.load(PEOPLE, mode="append")

    first, second = twice(graph, lambda g: g.mutate(q('update Person set { age: 5 } where name = "a"')))

    assert second.parents == (first.commit_id,)
    assert ages(graph) == {"a": 5, "b": 2}


def test_a_delete_again_affects_nothing(graph: Graph) -> None:
    graph.load(PEOPLE, mode="append")

    first, second = twice(graph, lambda g: g.mutate(q('delete Person where name = "a"')))

    assert (first.affected_nodes, second.affected_nodes, second.commit) == (1, 0, None)


@pytest.mark.parametrize(
    "act",
    [
        lambda g, expected: g.mutate(INSERT, name="x", if_commit=expected),
        lambda g, expected: g.mutate(q('delete Person where name = "a"'), if_commit=expected),
        lambda g, expected: g.load([thing("x")], mode="append", if_commit=expected),
        lambda g, expected: g.load(PEOPLE, mode="merge", if_commit=expected),
        lambda g, expected: g.load(PEOPLE, mode="overwrite", if_commit=expected),
    ],
    ids=["insert", "delete", "append", "merge", "overwrite"],
)
def test_any_call_again_with_the_head_it_expected_is_refused(
    graph: Graph, act: Callable[[Graph, str], Receipt]
) -> None:
    graph.load(PEOPLE, mode="append")
    expected = head(graph)
    first = act(graph, expected)

    with pytest.raises(PreconditionFailed) as caught:
        act(graph, expected)

    assert caught.value.fields == {"branch": "main", "expected": expected, "actual": first.commit_id}
