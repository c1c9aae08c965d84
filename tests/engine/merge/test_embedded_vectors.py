"""Merges and reverts never put a vector beside a text that it does not stand for."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph, MergeConflict

SCHEMA = 'node Note { slug: String @key  n: I32?  text: String?  vec: Vector(2)? @embed("text") }'
A, B, C = "a", "b", "c"
VECTORS = {A: [1.0, 0.0], B: [0.0, 1.0], C: [-1.0, 0.0]}
State = tuple[str, bool]  # a text, and whether it has its vector
STATES = list(product((A, B, C), (False, True)))


CASES = dict(enumerate(product([(A, False), (A, True)], STATES, STATES)))


def put(graph: Graph, branch: str, states: dict[str, State], n: int = 0) -> None:
    rows = [
        {"slug": slug, "text": text, "vec": VECTORS[text] if filled else None, "n": n}
        for slug, (text, filled) in states.items()
    ]
    graph.load([{"type": "Note", "data": row} for row in rows], mode="merge", branch=branch)


def stored(graph: Graph) -> dict[str, tuple[str, list[float] | None]]:
    rows = graph.nodes("Note").to_arrow().to_pylist()
    return {row["slug"]: (row["text"], row["vec"]) for row in rows}


@pytest.mark.parametrize("strategy", [None, "ours", "theirs"])
def test_whatever_the_sides_did_the_vector_is_of_the_text_or_none(strategy: Any) -> None:
    """All pairs of states that two branches can reach from a filled and an empty one."""
    with og.init(None, SCHEMA) as graph:
        put(graph, "main", {str(at): base for at, (base, _, _) in CASES.items()})
        graph.branches.create("side")
        put(graph, "main", {str(at): ours for at, (_, ours, _) in CASES.items()}, 1)
        put(graph, "side", {str(at): theirs for at, (_, _, theirs) in CASES.items()})
        torn = {str(at) for at, (_, ours, theirs) in CASES.items() if {ours[0], theirs[0]} == {B, C}}
        if strategy is None:
            with pytest.raises(MergeConflict) as caught:
                graph.merge("side")
            assert {conflict.entity_id for conflict in caught.value.conflicts} == torn
        choices = [{"type": "Note", "id": slug, "take": "ours"} for slug in torn] if strategy is None else []
        graph.merge("side", strategy=strategy, resolutions=choices)
        merged = stored(graph)

    assert len(merged) == len(CASES)
    for at, (base, *sides) in CASES.items():
        text, vector = merged[str(at)]
        with_text = [side for side in sides if side[0] == text]
        expected = [VECTORS[text] if filled else None for _, filled in with_text]
        assert vector in expected, (base, sides)
        if len(with_text) == 2 and base[0] != text:
            assert (vector is None) == (expected == [None, None]), (base, sides)


@pytest.mark.parametrize("take", ["ours", "theirs"])
def test_a_choice_of_the_text_takes_its_vector_along(take: Any) -> None:
    with og.init(None, SCHEMA) as graph:
        put(graph, "main", {"x": (A, True)})
        graph.branches.create("side")
        put(graph, "main", {"x": (B, False)}, 1)
        put(graph, "side", {"x": (C, True)})

        graph.merge("side", resolutions=[{"type": "Note", "id": "x", "property": "text", "take": take}])

        assert stored(graph)["x"] == ((B, None) if take == "ours" else (C, VECTORS[C]))


def test_a_change_of_a_text_can_be_reverted_after_a_fill() -> None:
    with og.init(None, SCHEMA, embedding="mock") as graph:
        put(graph, "main", {"x": (A, True)})
        changed = graph.mutate('query u() { update Note set { text: "b" } where slug = "x" }')
        graph.embed()

        graph.revert(str(changed.commit_id))

        assert stored(graph)["x"] == (A, VECTORS[A])
