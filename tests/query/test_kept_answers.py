"""Small answers are kept for the version that they are of, and never outlive it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine import query as engine_query

SCHEMA = "node P { k: String @key  n: I64?  on: Bool? }\nedge E: P -> P"
BY_KEY = "query q($k: String) { match { $p: P { k: $k } } return { $p.k, $p.n } }"
EVERY = "query q() { match { $p: P } return { $p.k } }"


@pytest.fixture(autouse=True)
def answers_are_kept(kept_answers: None) -> None:
    """Undo what switches this off for the other tests of the folder."""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "g.og", SCHEMA, durability="os")
    graph.load([{"type": "P", "data": {"k": f"k{i}", "n": i}} for i in range(50)], mode="append")
    return graph


def runs(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows with every query that is really run."""
    names: list[str] = []
    run = engine_query.Queries._answer

    def noted(self: Any, prepared: Any, recorder: Any) -> og.Result:
        names.append(prepared.plan.read.name)
        return run(self, prepared, recorder)

    monkeypatch.setattr(engine_query.Queries, "_answer", noted)
    return names


def test_the_same_request_on_the_same_version_is_answered_once(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = runs(graph, monkeypatch)
    first, again, other = (graph.query(BY_KEY, k=key) for key in ("k1", "k1", "k2"))
    assert (first.rows, len(ran)) == (again.rows, 2)
    assert other.rows == [{"p.k": "k2", "p.n": 2}]
    assert (again.cost.requests, again.commit_id, again.branch) == (1, first.commit_id, "main")


def test_whoever_changes_the_rows_of_an_answer_changes_only_their_own(graph: og.Graph) -> None:
    graph.query(BY_KEY, k="k1").rows[0]["p.n"] = "mine"
    graph.query(BY_KEY, k="k1").rows.clear()
    assert graph.query(BY_KEY, k="k1").rows == [{"p.k": "k1", "p.n": 1}]


def test_a_write_by_anybody_ends_what_was_kept(graph: og.Graph, tmp_path: Path) -> None:
    assert graph.query(BY_KEY, k="k1").rows == [{"p.k": "k1", "p.n": 1}]
    with og.connect(tmp_path / "g.og", durability="os") as other:
        other.mutate("query w() { update P set { n: 99 } where k = 'k1' }".replace("'", '"'))
    assert graph.query(BY_KEY, k="k1").rows == [{"p.k": "k1", "p.n": 99}]
    graph.branches.create("b")
    graph.mutate('query w() { update P set { n: 7 } where k = "k1" }', branch="b")
    assert [graph.query(BY_KEY, k="k1", branch=name).scalar() for name in ("b", "main", "b")] == ["k1"] * 3
    assert [graph.query(BY_KEY, k="k1", branch=name).rows[0]["p.n"] for name in ("b", "main")] == [7, 99]


def test_a_branch_that_is_made_again_under_its_name_has_its_own_answers(graph: og.Graph) -> None:
    graph.branches.create("b")
    graph.mutate('query w() { insert P { k: "only here" } }', branch="b")
    assert len(graph.query(EVERY, branch="b")) == 51
    graph.branches.delete("b")
    with pytest.raises(og.NotFound):
        graph.query(EVERY, branch="b")
    graph.branches.create("b")
    graph.mutate('query w() { update P set { n: 5 } where k = "k1" }', branch="b")  # as many versions
    assert len(graph.query(EVERY, branch="b")) == 50


def test_values_that_are_equal_and_not_the_same_are_different_requests(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = runs(graph, monkeypatch)
    number = "query q($x: I64) { match { $p: P { n: $x } } return { $p.k } }"
    assert graph.query(number, x=1).rows == [{"p.k": "k1"}]
    with pytest.raises(og.InvalidRequest):
        graph.query(number, x=True)
    floats = 'query q($x: F64) { match { $p: P { k: "k0" } } return { $x as x } }'
    assert [str(graph.query(floats, x=x).scalar()) for x in (0.0, -0.0)] == ["0.0", "-0.0"]
    assert len(ran) == 3


def test_the_time_of_a_request_is_never_that_of_an_earlier_one(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = runs(graph, monkeypatch)
    for _ in range(2):
        graph.query('query q() { match { $p: P { k: "k1" } } return { now() as t } }')
    assert len(ran) == 2


def test_past_states_are_read_each_time(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    before = graph.commits.list()[0].id
    graph.mutate('query w() { insert P { k: "new" } }')
    ran = runs(graph, monkeypatch)
    for _ in range(2):
        assert len(graph.query(EVERY, at=before)) == 50
    assert len(ran) == 2


def test_a_kept_answer_holds_its_own_rows_and_no_whole_column(graph: og.Graph) -> None:
    graph.load([{"type": "P", "data": {"k": f"{i:060d}"}} for i in range(5_000)], mode="append")
    for _ in range(30):  # until the columns are in memory, of which an answer is a slice
        graph.query(BY_KEY, k="k1", memory_bytes=1 << 30)
    graph.query(BY_KEY, k="k1")
    assert graph.query(BY_KEY, k="k1").table.get_total_buffer_size() < 2_000


def test_large_answers_are_not_kept(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_query, "LARGEST_ANSWER", 100)
    ran = runs(graph, monkeypatch)
    for _ in range(2):
        assert len(graph.query(EVERY)) == 50
    assert len(ran) == 2


def test_a_closed_graph_gives_no_kept_answer(graph: og.Graph) -> None:
    graph.query(EVERY)
    graph.close()
    with pytest.raises(og.GraphError):
        graph.query(EVERY)
