"""The three-way truth tables for nodes and edges, every row, in both directions (engine contract 6.3-6.5)."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest

from omnigraph import Graph
from omnigraph.engine.merge.conflicts import MergeConflict
from tests.support.two_branches import change, fork, knows, person, put, world

Kind = Literal["node", "edge"]
STATES = ("absent", "same", "insert", "insert other", "update", "update other", "update more", "delete")
BORN = {"absent", "insert", "insert other"}  # states that need an entity the base does not have
CONFLICT = {
    ("insert", "insert other"): "divergent_insert",
    ("update", "update other"): "divergent_update",
    ("update", "delete"): "delete_vs_update",
    ("update other", "delete"): "delete_vs_update",
    ("update more", "delete"): "delete_vs_update",
}
VALUES: dict[str, dict[str, Any]] = {  # of two properties, which every state sets both
    "same": {"first": 1, "second": "a"},
    "insert": {"first": 2, "second": "b"},
    "insert other": {"first": 3, "second": "b"},
    "update": {"first": 4, "second": "a"},
    "update other": {"first": 5, "second": "a"},
    "update more": {"first": 1, "second": "c"},
}
PAIRS = [(a, b) for a, b in product(STATES, STATES) if (a in BORN) == (b in BORN)]


def expected(source: str, target: str) -> dict[str, Any] | str | None:
    """Say what becomes of the entity: its values, None when it is gone, or the kind of conflict."""
    found = CONFLICT.get((source, target)) or CONFLICT.get((target, source))
    if found is not None:
        return found
    if "delete" in (source, target) or (source, target) == ("absent", "absent"):
        return None
    if source in ("same", "absent"):
        return VALUES[target]
    if target in ("same", "absent") or source == target:
        return VALUES[source]
    first = next(VALUES[one]["first"] for one in (source, target) if one != "update more")
    return {"first": first, "second": "c"}  # one side changed the one property, one the other


def write(graph: Graph, branch: str, kind: Kind, state: str) -> None:
    """Bring the entity into a state."""
    if state in ("absent", "same"):
        return
    if state == "delete":
        statement = (
            'delete Person where name = "X"' if kind == "node" else 'delete Knows where from = "Alice"'
        )
        change(graph, branch, statement)
        return
    values = VALUES[state]
    if kind == "node":
        put(graph, branch, person("X", age=values["first"], city=values["second"]))
    else:
        put(graph, branch, knows("x", "Alice", "Dan", since=values["first"], note=values["second"]))


def read(graph: Graph, kind: Kind) -> dict[str, Any] | None:
    if kind == "node":
        rows = [row for row in graph.nodes("Person").to_arrow().to_pylist() if row["id"] == "X"]
        return {"first": rows[0]["age"], "second": rows[0]["city"]} if rows else None
    rows = [row for row in graph.edges("Knows").to_arrow().to_pylist() if row["id"] == "x"]
    return {"first": rows[0]["since"], "second": rows[0]["note"]} if rows else None


@pytest.mark.parametrize("kind", ["node", "edge"])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_entity(tmp_path: Path, kind: Kind, source: str, target: str) -> None:
    wanted = expected(source, target)
    with world(tmp_path) as graph:
        if source not in BORN:
            put_base(graph, kind)
        fork(graph)
        write(graph, "side", kind, source)
        write(graph, "main", kind, target)
        put(graph, "side", person("Bob", city="there"))  # so that neither side is empty
        put(graph, "main", person("Carol", city="here"))
        if isinstance(wanted, str):
            with pytest.raises(MergeConflict) as caught:
                graph.merge("side")
            (one,) = caught.value.conflicts
            assert (one.kind.value, one.entity_kind, one.entity_id) == (
                wanted,
                kind,
                "X" if kind == "node" else "x",
            )
            return
        assert graph.merge("side").outcome.value == "merged"
        assert read(graph, kind) == wanted
        cities = {row["id"]: row["city"] for row in graph.nodes("Person").to_arrow().to_pylist()}
        assert (cities["Bob"], cities["Carol"]) == ("there", "here")


def put_base(graph: Graph, kind: Kind) -> None:
    values = VALUES["same"]
    if kind == "node":
        put(graph, "main", person("X", age=values["first"], city=values["second"]))
    else:
        put(graph, "main", knows("x", "Alice", "Dan", since=values["first"], note=values["second"]))


def test_the_table_has_every_reachable_pair_and_no_other() -> None:
    assert len(PAIRS) == 3 * 3 + 5 * 5


# -- the ends of edges -----------------------------------------------------------------------------------


def test_ends_moved_on_one_side_and_a_property_on_the_other_are_combined(tmp_path: Path) -> None:
    with world(tmp_path) as graph:
        fork(graph)
        put(graph, "side", knows("bc", "Bob", "Dan"))
        put(graph, "main", knows("bc", "Bob", "Carol", since=5))

        graph.merge("side")

        (edge,) = graph.edges("Knows").to_arrow().to_pylist()
        assert (edge["src"], edge["dst"], edge["since"]) == ("Bob", "Dan", 5)


def test_the_two_ends_go_together(tmp_path: Path) -> None:
    with world(tmp_path) as graph:
        fork(graph)
        put(graph, "side", knows("bc", "Alice", "Carol"))
        put(graph, "main", knows("bc", "Bob", "Dan"))

        with pytest.raises(MergeConflict) as caught:
            graph.merge("side")

        (one,) = caught.value.conflicts
        assert [(p.name, p.base, p.ours, p.theirs) for p in one.properties] == [
            ("from", "Bob", "Bob", "Alice"),
            ("to", "Carol", "Dan", "Carol"),
        ]


NODE_AND_EDGE = {  # what the other side does to Bob or his edge, against a removal of Bob
    "nothing": ("", None),
    "insert an edge": ("new", "orphan_edge"),
    "update the edge": ("bc-note", "delete_vs_update"),
    "move the edge away": ("bc-away", "delete_vs_update"),
    "delete the edge": ("bc-delete", None),
    "update the node": ("bob", "delete_vs_update"),
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("action", "kind"), NODE_AND_EDGE.values(), ids=NODE_AND_EDGE)
def test_a_removed_node_against_its_edges(
    tmp_path: Path, action: str, kind: str | None, turned: bool
) -> None:
    with world(tmp_path) as graph:
        fork(graph)
        one, other = ("main", "side") if turned else ("side", "main")
        change(graph, one, 'delete Person where name = "Bob"')
        match action:
            case "new":
                put(graph, other, knows("ab", "Alice", "Bob"))
            case "bc-note":
                put(graph, other, knows("bc", "Bob", "Carol", note="n"))
            case "bc-away":
                put(graph, other, knows("bc", "Dan", "Carol"))
            case "bc-delete":
                change(graph, other, 'delete Knows where from = "Bob"')
            case "bob":
                put(graph, other, person("Bob", age=99))
        put(graph, other, person("Dan", city="somewhere"))
        if kind is None:
            graph.merge("side")
            assert graph.edges("Knows").to_arrow().num_rows == 0
            assert "Bob" not in graph.nodes("Person").to_arrow()["id"].to_pylist()
            return
        with pytest.raises(MergeConflict) as caught:
            graph.merge("side")
        assert [found.kind.value for found in caught.value.conflicts] == [kind]
