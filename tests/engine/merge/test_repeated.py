"""A merge or a revert under an idempotency key is done once, however often it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import Graph
from tests.support.two_branches import change, fork, world


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with world(tmp_path) as made:
        fork(made)
        change(made, "side", 'update Person set { age: 7 } where name = "Bob"')
        change(made, "main", 'update Person set { age: 8 } where name = "Dan"')
        yield made


def test_a_merge_is_done_once_and_its_branch_deleted_once(graph: Graph) -> None:
    first = graph.merge("side", idempotency_key="k", delete_branch=True)
    commits = len(graph.commits.list())
    again = graph.merge("side", idempotency_key="k", delete_branch=True)
    assert again.commit == first.commit
    assert (again.outcome, again.types) == (first.outcome, first.types)
    assert again.branch_deleted is True
    assert len(graph.commits.list()) == commits


def test_a_merge_with_nothing_to_do_stays_one(graph: Graph) -> None:
    graph.merge("side")
    outcomes = [graph.merge("side", idempotency_key="k").outcome.value for _ in range(2)]
    assert outcomes == ["already_up_to_date"] * 2


def test_a_revert_is_done_once(graph: Graph) -> None:
    undone = graph.commits.list()[0].id
    first = graph.revert(undone, idempotency_key="k")
    assert graph.revert(undone, idempotency_key="k").commit_id == first.commit_id
    assert graph.commits.list()[0].id == first.commit_id


def test_a_key_stands_for_one_request(graph: Graph) -> None:
    graph.merge("side", idempotency_key="k")
    with pytest.raises(og.KeyReused):
        graph.merge("side", idempotency_key="k", strategy="ours")
    with pytest.raises(og.KeyReused):
        graph.revert(graph.commits.list()[0].id, idempotency_key="k")


def test_a_preview_claims_no_key(graph: Graph) -> None:
    graph.merge("side", preview=True, strategy="ours", idempotency_key="k")
    assert graph.merge("side", idempotency_key="k").commit_id is not None
