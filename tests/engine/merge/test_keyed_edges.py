"""Merges of keyed edges: edges with one key are one edge, however and wherever they were born."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import InvalidRequest
from omnigraph.engine.merge.conflicts import Conflict, MergeConflict, SchemaConflict

ENDS = "node P { n: String @key }  node Film { n: String @key }\n"
KEYED = ENDS + "edge Rates: P -> Film { stars: I32  note: String?  @key(src, dst) }"
PLAIN = ENDS + "edge Rates: P -> Film { stars: I32  note: String? }"
NODES = [
    *({"type": "P", "data": {"n": name}} for name in ("Ada", "Bo")),
    {"type": "Film", "data": {"n": "Up"}},
]
UP, BO = '["Ada","Up"]', '["Bo","Up"]'
Row = tuple[str, int, str | None]


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "keyed.og", KEYED, durability="os") as graph:
        graph.load(NODES, mode="append")
        yield graph


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "plain.og", PLAIN, durability="os") as graph:
        graph.load(NODES, mode="append")
        yield graph


def rate(graph: Graph, branch: str, stars: int, who: str = "Ada", **data: Any) -> None:
    record = {"edge": "Rates", "from": who, "to": "Up", "data": {"stars": stars, **data}}
    graph.load([record], mode="merge", branch=branch)


def drop(graph: Graph, branch: str, who: str = "Ada") -> None:
    graph.mutate(f'query q() {{ delete Rates where from = "{who}" }}', branch=branch)


def rated(graph: Graph, branch: str = "main") -> list[Row]:
    rows = graph.edges("Rates", branch=branch).to_arrow().to_pylist()
    return [(row["id"], row["stars"], row["note"]) for row in rows]


def only(refused: pytest.ExceptionInfo[MergeConflict]) -> Conflict:
    (conflict,) = refused.value.conflicts
    return conflict


# -- the truth table ---------------------------------------------------------------------------------
#
# Each state is (stars, note) or None. What both sides updated is merged by property.


OLD = (1, None)
BORN = [
    pytest.param(None, None, (3, None), [(UP, 3, None)], id="inserted-absent"),
    pytest.param(None, (3, None), (3, None), [(UP, 3, None)], id="inserted-inserted-equal"),
    pytest.param(OLD, OLD, (3, None), [(UP, 3, None)], id="updated-unchanged"),
    pytest.param(OLD, (4, None), (1, "x"), [(UP, 4, "x")], id="updated-updated-elsewhere"),
    pytest.param(OLD, (3, None), (3, None), [(UP, 3, None)], id="updated-updated-alike"),
    pytest.param(OLD, None, None, [], id="deleted-deleted"),
    pytest.param(OLD, OLD, None, [], id="deleted-unchanged"),
]
CLASHES = [
    pytest.param(None, (5, None), (3, None), "divergent_insert", id="inserted-inserted"),
    pytest.param(OLD, (5, None), (3, None), "divergent_update", id="updated-updated"),
    pytest.param(OLD, None, (3, None), "delete_vs_update", id="updated-deleted"),
    pytest.param(OLD, (5, None), None, "delete_vs_update", id="deleted-updated"),
]
State = tuple[int, str | None] | None


def bring(graph: Graph, branch: str, state: State, before: State) -> None:
    if state == before:
        return
    if state is None:
        drop(graph, branch)
    else:
        rate(graph, branch, state[0], note=state[1])


def three(graph: Graph, base: State, target: State, source: State) -> None:
    bring(graph, "main", base, None)
    graph.branches.create("side")
    bring(graph, "main", target, base)
    bring(graph, "side", source, base)
    rate(graph, "main", 9, "Bo")  # so that no merge is a fast-forward


@pytest.mark.parametrize(("base", "target", "source", "expected"), BORN)
def test_edges_with_one_key_merge_as_one(
    keyed: Graph, base: State, target: State, source: State, expected: list[Row]
) -> None:
    three(keyed, base, target, source)

    keyed.merge("side")

    assert rated(keyed) == [*expected, (BO, 9, None)]


@pytest.mark.parametrize(("base", "target", "source", "kind"), CLASHES)
def test_what_the_sides_do_not_agree_on_is_a_conflict(
    keyed: Graph, base: State, target: State, source: State, kind: str
) -> None:
    three(keyed, base, target, source)
    before = rated(keyed)

    with pytest.raises(MergeConflict) as refused:
        keyed.merge("side")

    assert (only(refused).kind.value, only(refused).entity_id) == (kind, UP)
    assert rated(keyed) == before


def test_a_divergent_insert_names_each_property_and_both_values(keyed: Graph) -> None:
    keyed.branches.create("side")
    rate(keyed, "side", 3, note="a")
    rate(keyed, "main", 5, note="b")

    with pytest.raises(MergeConflict) as refused:
        keyed.merge("side")

    shown = [(p.name, p.ours, p.theirs) for p in only(refused).properties]
    assert shown == [("stars", 5, 3), ("note", "b", "a")] or shown == [("note", "b", "a"), ("stars", 5, 3)]
    keyed.merge("side", resolutions=[{"type": "Rates", "id": UP, "take": "theirs"}])
    assert rated(keyed) == [(UP, 3, "a")]


def test_a_resolution_does_not_change_a_key(tmp_path: Path) -> None:
    schema = KEYED.replace("@key(src, dst)", "@key(src, dst, stars)")
    with og.init(tmp_path / "graph.og", schema, durability="os") as graph:
        graph.load(NODES, mode="append")
        graph.branches.create("side")
        rate(graph, "side", 3, note="a")
        rate(graph, "main", 3, note="b")
        choice = {"type": "Rates", "id": '["Ada","Up","3"]', "property": "stars", "value": 4}

        with pytest.raises(InvalidRequest, match="edge's id, which never changes"):
            graph.merge("side", resolutions=[choice])


# -- a key on one side -------------------------------------------------------------------------------


@pytest.mark.parametrize("keyed_side", ["main", "side"])
def test_edges_of_the_other_side_get_the_key(plain: Graph, keyed_side: str) -> None:
    other = {"main": "side", "side": "main"}[keyed_side]
    rate(plain, "main", 1, id="e1")
    plain.branches.create("side")
    plain.schema.apply(KEYED, branch=keyed_side)
    rate(plain, keyed_side, 1, note="x")
    rate(plain, other, 4, id="e1")
    rate(plain, other, 7, "Bo", id="e2")

    plain.merge("side")

    assert rated(plain) == [(UP, 4, "x"), (BO, 7, None)]
    assert "@key(src, dst)" in plain.schema.show()
    rate(plain, "main", 8, "Bo")
    assert rated(plain) == [(UP, 4, "x"), (BO, 8, None)]


@pytest.mark.parametrize("keyed_side", ["main", "side"])
def test_edges_that_the_other_side_deleted_are_gone(plain: Graph, keyed_side: str) -> None:
    other = {"main": "side", "side": "main"}[keyed_side]
    rate(plain, "main", 1, id="e1")
    rate(plain, "main", 2, "Bo", id="e2")
    plain.branches.create("side")
    plain.schema.apply(KEYED, branch=keyed_side)
    drop(plain, other)

    plain.merge("side")

    assert rated(plain) == [(BO, 2, None)]


def test_a_key_that_both_sides_added_merges_by_property(plain: Graph) -> None:
    rate(plain, "main", 1, id="e1")
    plain.branches.create("side")
    for branch in ("main", "side"):
        plain.schema.apply(KEYED, branch=branch)
    rate(plain, "main", 4)
    rate(plain, "side", 1, note="x")

    plain.merge("side")

    assert rated(plain) == [(UP, 4, "x")]


def test_a_key_comes_by_fast_forward(plain: Graph) -> None:
    rate(plain, "main", 1, id="e1")
    plain.branches.create("side")
    plain.schema.apply(KEYED, branch="side")

    assert plain.merge("side").outcome.value == "fast_forward"
    assert rated(plain) == [(UP, 1, None)]


@pytest.mark.parametrize("side", ["target", "source"])
def test_two_edges_of_a_side_that_get_one_key_are_a_conflict(plain: Graph, side: str) -> None:
    twice, key = ("main", "side") if side == "target" else ("side", "main")
    rate(plain, "main", 1, id="e1")
    plain.branches.create("side")
    plain.schema.apply(KEYED, branch=key)
    rate(plain, twice, 1, id="e2")

    with pytest.raises(MergeConflict) as refused:
        plain.merge("side")

    conflict = only(refused)
    assert (conflict.kind.value, conflict.entity_id) == ("unique_violation", UP)
    assert all(text in conflict.message for text in ("'e1'", "'e2'", side))


def test_different_keys_do_not_merge(plain: Graph) -> None:
    plain.branches.create("side")
    plain.schema.apply(KEYED)
    plain.schema.apply(KEYED.replace("(src, dst)", "(src, dst, stars)"), branch="side")

    with pytest.raises(SchemaConflict, match="Rates"):
        plain.merge("side")


def test_a_key_that_one_side_dropped_is_gone_and_ids_stay(keyed: Graph) -> None:
    rate(keyed, "main", 1)
    keyed.branches.create("side")
    keyed.schema.apply(PLAIN, branch="side")
    rate(keyed, "side", 2, "Bo", id="e1")
    rate(keyed, "main", 3)

    keyed.merge("side")

    assert rated(keyed) == [(UP, 3, None), ("e1", 2, None)]


def test_a_key_and_a_new_property_of_the_other_side_go_together(plain: Graph) -> None:
    rate(plain, "main", 1, id="e1")
    plain.branches.create("side")
    more = PLAIN.replace("node Film {", "node Town { n: String @key }\nnode Film { year: I32?")
    plain.schema.apply(more)
    plain.schema.apply(KEYED, branch="side")
    rate(plain, "main", 5, "Bo", id="e2")

    plain.merge("side")

    assert rated(plain) == [(UP, 1, None), (BO, 5, None)]
    assert plain.schema.catalog().node("Film").find("year") is not None


# -- by their ends -----------------------------------------------------------------------------------


def test_changes_and_conflicts_show_an_edge_by_its_ends(keyed: Graph) -> None:
    keyed.branches.create("side")
    rate(keyed, "side", 3)
    rate(keyed, "main", 5)

    (change,) = keyed.diff("main~1", "main")
    with pytest.raises(MergeConflict) as refused:
        keyed.merge("side")

    document = change.to_json()
    assert (document["id"], document["from"], document["to"]) == (UP, "Ada", "Up")
    assert change.text == "Rates Ada -> Up"
    conflict = only(refused).to_json()
    assert (conflict["entity_id"], conflict["from"], conflict["to"]) == (UP, "Ada", "Up")
    assert conflict["message"].startswith("divergent_insert: edge Rates Ada -> Up was inserted")


def test_an_edge_without_a_key_is_shown_with_its_id(plain: Graph) -> None:
    rate(plain, "main", 3, id="e1")

    (change,) = plain.diff("main~1", "main")

    assert change.text == "Rates Ada -> Up #e1"
    assert change.to_json()["from"] == "Ada"
