"""Types and properties of one name on two branches: the same, made again, or two that are unified."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.merge.conflicts import MergeConflict, SchemaConflict
from tests.support.contents import check_whole
from tests.support.two_branches import fork

BASE = "node P { k: String @key  a: String?  b: String? }\nedge Knows: P -> P { note: String? }\n"
Q = "node Q { k: String @key  v: I32? }\nedge Has: P -> Q { w: I32? }\n"
WITH_Q = BASE + Q
NO_A = BASE.replace("a: String?  ", "")
Z = BASE.replace("b: String?", "b: String?  z: I32?")


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "graph.og", BASE, durability="os") as made:
        put(made, "main", p("x", a="xa", b="xb"), p("y", a="ya", b="yb"), knows("xy", "x", "y"))
        fork(made)
        yield made


def p(key: str, **data: Any) -> dict[str, Any]:
    return {"type": "P", "data": {"k": key, **data}}


def q(key: str, **data: Any) -> dict[str, Any]:
    return {"type": "Q", "data": {"k": key, **data}}


def knows(edge: str, source: str, target: str) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": {"id": edge}}


def has(edge: str, source: str, target: str, w: int | None = None) -> dict[str, Any]:
    return {"edge": "Has", "from": source, "to": target, "data": {"id": edge, "w": w}}


def put(graph: Graph, branch: str, *records: dict[str, Any]) -> None:
    graph.load(list(records), mode="merge", branch=branch)


def apply(graph: Graph, branch: str, *schemas: str) -> None:
    for schema in schemas:
        graph.schema.apply(schema, branch=branch)


def values(graph: Graph, name: str, column: str, branch: str = "main") -> dict[str, Any]:
    """One property of all nodes, by id: as a table, and as a query on a handle of its own."""
    table = graph.nodes(name, branch=branch).to_arrow().to_pylist()
    text = f"query q() {{ match {{ $n: {name} }} return {{ $n.k as k, $n.{column} as v }} }}"
    with og.connect(graph.uri) as fresh:
        asked = {row["k"]: row["v"] for row in fresh.query(text, branch=branch).rows}
    assert {row["id"]: row[column] for row in table} == asked
    return asked


def edges(graph: Graph, name: str, branch: str = "main") -> dict[str, tuple[str, str]]:
    rows = graph.edges(name, branch=branch).to_arrow().to_pylist()
    return {row["id"]: (row["src"], row["dst"]) for row in rows}


def diverged(graph: Graph, *, yes: bool) -> None:
    """Let main go on, in a row that nobody else touches."""
    if yes:
        put(graph, "main", p("m", b="mb"))


both = pytest.mark.parametrize("diverges", [False, True], ids=["fast-forward", "diverged"])


# -- made again ------------------------------------------------------------------------------------


@both
def test_a_type_made_again_arrives_with_what_was_written_since(graph: Graph, *, diverges: bool) -> None:
    apply(graph, "main", WITH_Q)
    put(graph, "main", q("old", v=1), has("h", "x", "old"))
    graph.merge("main", into="side")
    apply(graph, "side", BASE, WITH_Q)
    put(graph, "side", q("new", v=2), has("i", "y", "new"))
    diverged(graph, yes=diverges)

    done = graph.merge("side")

    assert done.outcome.value == ("merged" if diverges else "fast_forward")
    assert values(graph, "Q", "v") == {"new": 2}
    assert edges(graph, "Has") == {"i": ("y", "new")}
    assert {(one.type_name, one.property_name, one.rows) for one in done.dropped} == {
        ("Q", None, 1),
        ("Has", None, 1),
    }
    assert graph.merge("side").outcome.value == "already_up_to_date"


@both
def test_a_property_made_again_arrives_with_what_was_written_since(graph: Graph, *, diverges: bool) -> None:
    apply(graph, "side", NO_A, BASE)
    put(graph, "side", p("x", a="new", b="xb"), p("n", a="na"))
    diverged(graph, yes=diverges)

    done = graph.merge("side")

    main = {"x": "new", "y": None, "n": "na"} | ({"m": None} if diverges else {})
    assert values(graph, "P", "a") == main
    assert values(graph, "P", "b")["y"] == "yb"
    assert [one.to_json() for one in done.dropped] == [
        {"kind": "node", "type": "P", "property": "a", "rows": 2}
    ]
    put(graph, "main", p("x", a="again"))
    assert values(graph, "P", "a")["x"] == "again"


def test_a_type_made_again_on_the_target_keeps_only_its_own_rows(graph: Graph) -> None:
    apply(graph, "main", WITH_Q)
    put(graph, "main", q("old", v=1))
    graph.merge("main", into="side")
    apply(graph, "main", BASE, WITH_Q)
    put(graph, "main", q("new", v=2))
    put(graph, "side", p("s", a="sa"))

    graph.merge("side")

    assert values(graph, "Q", "v") == {"new": 2}
    assert values(graph, "P", "a")["s"] == "sa"


OLD_Q = "update Q set { v: 9 } where k = 'old'", "insert Q { k: 'more' }"
OLD_A = "update P set { a: 'other' } where k = 'x'", "insert P { k: 'more', a: 'given' }"


@pytest.mark.parametrize("changes", ["main", "side"])
@pytest.mark.parametrize("again", [True, False], ids=["made again", "dropped"])
@pytest.mark.parametrize(
    ("statement", "schema", "without"),
    [*((one, WITH_Q, BASE) for one in OLD_Q), *((one, WITH_Q, NO_A + Q) for one in OLD_A)],
)
def test_what_one_side_dropped_and_the_other_wrote_to_is_a_conflict(
    graph: Graph, statement: str, schema: str, without: str, *, again: bool, changes: str
) -> None:
    drops = "side" if changes == "main" else "main"
    apply(graph, "main", WITH_Q)
    put(graph, "main", q("old", v=1))
    graph.merge("main", into="side")
    apply(graph, drops, without, *([schema] if again else []))
    graph.mutate(f"query q() {{ {statement} }}".replace("'", '"'), branch=changes)
    before = graph.store.snapshot("main").state

    with pytest.raises(SchemaConflict) as caught:
        graph.merge("side")

    assert graph.store.snapshot("main").state == before
    assert caught.value.fields["types"] == (["Q"] if without == BASE else ["P"])
    assert "Drop it on the other branch too, and make it again there if" in str(caught.value)
    apply(graph, changes, without, *([schema] if again else []))
    assert graph.merge("side").outcome.value == "merged"
    assert {"x", "y"} <= values(graph, "P", "b").keys()
    assert graph.schema.plan(schema if again else without).steps == ()
    assert not again or not any(values(graph, *(("Q", "v") if without == BASE else ("P", "a"))).values())


def test_rows_that_were_only_deleted_do_not_keep_a_type_or_a_property(graph: Graph) -> None:
    apply(graph, "main", WITH_Q)
    put(graph, "main", q("old", v=1))
    graph.merge("main", into="side")
    apply(graph, "side", NO_A)
    graph.mutate('query q() { delete P where k = "y"\n delete Q where k = "old" }')
    put(graph, "main", p("x", a="xa", b="other"), p("n", b="nb"))

    graph.merge("side")

    assert values(graph, "P", "b") == {"x": "other", "n": "nb"}
    assert "a" not in graph.nodes("P").to_arrow().column_names


@both
def test_names_that_were_exchanged_go_with_their_values(graph: Graph, *, diverges: bool) -> None:
    apply(graph, "main", BASE + "node R { k: String @key }\nnode S { k: String @key }\n")
    put(graph, "main", {"type": "R", "data": {"k": "r"}}, {"type": "S", "data": {"k": "s"}})
    graph.merge("main", into="side")
    swap = """
        node P {{ k: String @key  {} }}
        edge Knows: P -> P {{ note: String? }}
        node {} {{ k: String @key }}
        node {} {{ k: String @key }}
    """
    apply(
        graph,
        "side",
        swap.format('t: String? @rename_from("a")  b: String?', 'T @rename_from("R")', "S"),
        swap.format('t: String?  a: String? @rename_from("b")', "T", 'R @rename_from("S")'),
        swap.format('b: String? @rename_from("t")  a: String?', 'S @rename_from("T")', "R"),
    )
    put(graph, "side", p("n", a="a of n", b="b of n"))
    diverged(graph, yes=diverges)

    graph.merge("side")

    assert values(graph, "P", "a") == {"x": "xb", "y": "yb", "n": "a of n"} | (
        {"m": "mb"} if diverges else {}
    )
    assert values(graph, "P", "b")["x"] == "xa"
    assert values(graph, "R", "k").keys() == {"s"}
    assert values(graph, "S", "k").keys() == {"r"}


# -- unified ---------------------------------------------------------------------------------------


@pytest.fixture
def twice(graph: Graph) -> Graph:
    """Both branches made Q and Has, with rows in both."""
    apply(graph, "main", WITH_Q)
    apply(graph, "side", WITH_Q)
    put(graph, "main", q("m", v=1), q("both", v=5), has("hm", "x", "m"))
    put(graph, "side", q("s", v=2), q("both", v=5), has("hs", "y", "s"), has("hb", "x", "both"))
    return graph


ALL = {"m": 1, "s": 2, "both": 5}
ALL_EDGES = {"hm": ("x", "m"), "hs": ("y", "s"), "hb": ("x", "both")}


def hops(graph: Graph, branch: str = "main") -> set[tuple[str, str]]:
    text = "query q() { match { $p: P  $p has $q } return { $p.k as p, $q.k as q } }"
    return {(row["p"], row["q"]) for row in graph.query(text, branch=branch).rows}


def test_types_that_both_sides_made_alike_are_one_with_the_rows_of_both(twice: Graph) -> None:
    mine = twice.schema.catalog("main").node("Q").id
    other = twice.schema.catalog("side").node("Q").id

    done = twice.merge("side")

    assert done.outcome.value == "merged"
    assert values(twice, "Q", "v") == ALL
    assert edges(twice, "Has") == ALL_EDGES
    assert hops(twice) == set(ALL_EDGES.values())
    assert {(one.kind, one.type_name, one.property_name) for one in done.unified} == {
        ("node", "Q", None),
        ("edge", "Has", None),
    }
    assert {(one.kept, one.other) for one in done.unified if one.kind == "node"} == {(mine, other)}
    assert done.commit is not None
    assert other in done.commit.labels["unified"]
    assert done.dropped == ()
    assert twice.schema.catalog("main").node("Q").id == mine
    assert twice.schema.plan(twice.schema.show()).steps == ()
    assert twice.merge("side").outcome.value == "already_up_to_date"


def test_after_unifying_either_branch_goes_on_and_nothing_is_lost(twice: Graph) -> None:
    twice.merge("side")
    put(twice, "side", q("s2", v=3), q("s", v=20), has("h2", "x", "s2"))
    put(twice, "main", q("m2", v=4))
    twice.mutate('query q() { delete Q where k = "both" }', branch="side")

    twice.merge("side")

    after = {"m": 1, "s": 20, "s2": 3, "m2": 4}
    assert values(twice, "Q", "v") == after
    put(twice, "side", q("s3", v=6))
    twice.merge("main", into="side")
    assert values(twice, "Q", "v", "side") == after | {"s3": 6}
    assert edges(twice, "Has", "side").keys() == {"hm", "hs", "h2"}
    assert hops(twice, "side") == {("x", "m"), ("y", "s"), ("x", "s2")}
    twice.merge("side")
    assert values(twice, "Q", "v") == after | {"s3": 6}
    assert twice.merge("main", into="side").outcome.value in ("already_up_to_date", "fast_forward")
    assert twice.schema.catalog("main").node("Q").id == twice.schema.catalog("side").node("Q").id


def test_branches_merged_crosswise_agree_in_the_end(twice: Graph) -> None:
    fork(twice, "copy", "main")
    twice.merge("side")
    twice.merge("copy", into="side")
    put(twice, "main", q("m2", v=7))
    put(twice, "side", q("s2", v=8))

    twice.merge("side")
    twice.merge("main", into="side")

    for branch in ("main", "side"):
        assert values(twice, "Q", "v", branch) == ALL | {"m2": 7, "s2": 8}
        assert edges(twice, "Has", branch) == ALL_EDGES


def test_three_branches_that_made_one_type_alike(twice: Graph) -> None:
    fork(twice, "third")
    apply(twice, "third", BASE, WITH_Q)
    put(twice, "third", q("t", v=3))
    twice.merge("third", into="side")  # third dropped main's Q, which side never had
    twice.merge("side")

    assert values(twice, "Q", "v")["t"] == 3
    twice.merge("main", into="third")
    assert values(twice, "Q", "v", "third") == values(twice, "Q", "v")


def test_a_property_that_both_sides_made_alike_is_one(graph: Graph) -> None:
    apply(graph, "main", Z)
    apply(graph, "side", Z)
    put(graph, "main", p("x", a="xa", b="xb", z=1))
    put(graph, "side", p("y", a="ya", b="yb", z=2), p("n", z=3))

    done = graph.merge("side")

    assert values(graph, "P", "z") == {"x": 1, "y": 2, "n": 3}
    assert [(one.type_name, one.property_name) for one in done.unified] == [("P", "z")]
    put(graph, "side", p("n", z=4))
    put(graph, "main", p("x", a="xa", b="xb", z=5))
    graph.merge("side")
    graph.merge("main", into="side")
    for branch in ("main", "side"):
        assert values(graph, "P", "z", branch) == {"x": 5, "y": 2, "n": 4}


def test_after_unifying_a_schema_change_of_the_other_branch_arrives(twice: Graph) -> None:
    twice.merge("side")
    wider = WITH_Q.replace("v: I32?", 'v: I64?  more: String @default("-")  u: String? @unique')
    apply(twice, "side", wider)
    put(twice, "side", q("s", v=1 << 40, more="M", u="us"))
    put(twice, "main", q("m", v=11))

    twice.merge("side")

    assert values(twice, "Q", "v") == {"m": 11, "s": 1 << 40, "both": 5}
    assert values(twice, "Q", "more") == {"m": "-", "s": "M", "both": "-"}
    with pytest.raises(og.GraphError, match="unique"):
        put(twice, "main", q("m", v=1, u="us"))
    twice.merge("main", into="side")
    assert values(twice, "Q", "v", "side") == {"m": 11, "s": 1 << 40, "both": 5}


def test_properties_made_again_on_either_side_go_together(graph: Graph) -> None:
    apply(graph, "main", NO_A, BASE)
    apply(graph, "side", BASE.replace("b: String?", ""), BASE)
    put(graph, "main", p("x", a="new a", b="xb"))
    put(graph, "side", p("x", a="xa", b="new b"), p("y", a="ya", b="new b"))

    done = graph.merge("side", preview=True)
    assert [(one.property_name, one.rows) for one in done.dropped] == [("b", 2)]
    graph.merge("side")

    assert values(graph, "P", "a") == {"x": "new a", "y": None}
    assert values(graph, "P", "b") == {"x": "new b", "y": "new b"}


def test_rows_of_one_id_in_types_that_are_unified_are_merged_as_any_others(twice: Graph) -> None:
    twice.load([q("both", v=6)], mode="merge", branch="side", actor="ann")

    with pytest.raises(MergeConflict) as caught:
        twice.merge("side")

    assert [(one.kind.value, one.type_name) for one in caught.value.conflicts] == [("divergent_insert", "Q")]
    (conflict,) = caught.value.conflicts
    assert conflict.ours is not None
    assert conflict.theirs is not None
    assert (conflict.ours.actor, conflict.theirs.actor) == (None, "ann")
    done = twice.merge("side", resolutions=[{"type": "Q", "id": "both", "property": "v", "take": "theirs"}])
    assert done.outcome.value == "merged"
    assert values(twice, "Q", "v") == ALL | {"both": 6}


# -- conflicts and their remedies ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "remedy"),
    [
        (WITH_Q, WITH_Q.replace("v: I32?", "v: I32?  more: String?"), None),
        (
            WITH_Q,
            WITH_Q.replace("k: String @key  v", "key: String @key  v"),
            WITH_Q.replace("k: String @key  v", "key: String @key  v")
            .replace("node Q", 'node Other @rename_from("Q")')
            .replace("edge Has: P -> Q", 'edge Owns: P -> Other @rename_from("Has")'),
        ),
        (BASE.replace("b: String?", "b: String?  y: I32?"), Z, None),
        (Z, BASE.replace("b: String?", "b: String?  z: String?"), Z),
    ],
    ids=["declared otherwise", "another key", "both changed one type", "another type of property"],
)
def test_the_remedy_of_a_conflict_works(graph: Graph, ours: str, theirs: str, remedy: str | None) -> None:
    apply(graph, "main", ours)
    apply(graph, "side", theirs)
    put(graph, "main", p("m", a="ma"))
    put(graph, "side", p("s", a="sa"))

    with pytest.raises(SchemaConflict, match="Apply one schema to both branches, or rename one of the two"):
        graph.merge("side")

    if remedy is None:
        together = ours + "\n" if "y: I32?" in ours else theirs
        together = together.replace("y: I32?", "y: I32?  z: I32?")
        apply(graph, "main", together)
        apply(graph, "side", together)
    else:
        apply(graph, "side", *([BASE] if remedy == Z else []), remedy)
    assert graph.merge("side").outcome.value == "merged"
    assert values(graph, "P", "a") == {"x": "xa", "y": "ya", "m": "ma", "s": "sa"}


def test_a_revert_of_a_drop_brings_rows_back_into_the_type_made_since(graph: Graph) -> None:
    apply(graph, "main", WITH_Q)
    put(graph, "main", q("old", v=1), has("h", "x", "old"))
    dropped = graph.schema.apply(BASE).commit
    assert dropped is not None
    apply(graph, "main", WITH_Q)
    put(graph, "main", q("new", v=2))

    graph.revert(dropped.id)

    assert values(graph, "Q", "v") == {"old": 1, "new": 2}
    assert edges(graph, "Has") == {"h": ("x", "old")}


def test_a_revert_of_a_new_property_is_refused_where_values_were_written(graph: Graph) -> None:
    added = graph.schema.apply(Z).commit
    assert added is not None
    put(graph, "main", p("x", a="xa", b="xb", z=1))

    with pytest.raises(SchemaConflict, match=r"P\.z"):
        graph.revert(added.id)


# -- the past of what was unified ------------------------------------------------------------------


def test_a_branch_that_took_another_identity_keeps_its_past(twice: Graph) -> None:
    then = twice.store.snapshot("side").commit_id
    cursor = twice.changes(branch="side").cursor
    twice.merge("side")
    done = twice.merge("main", into="side")
    assert done.outcome.value == "fast_forward"

    rows = twice.nodes("Q", branch="side", at=then).to_arrow().to_pylist()
    assert {row["id"]: row["v"] for row in rows} == {"s": 2, "both": 5}
    text = "query q() { match { $p: P  $p has $q } return { $p.k as p, $q.k as q, $q.v as v } }"
    asked = twice.query(text, branch="side", at=then).rows
    assert {(row["p"], row["q"], row["v"]) for row in asked} == {("y", "s", 2), ("x", "both", 5)}
    assert twice.entity("Q", "s").get(branch="side", at=then) == {"id": "s", "k": "s", "v": 2}
    history = twice.entity("Q", "s").history(branch="side").versions
    assert [version.change.op.value for version in history] == ["insert"]
    assert [(one.op.value, one.id) for one in twice.diff(then, "side")] == [
        ("insert", "m"),
        ("insert", "hm"),
    ]
    assert [(one.name, one.inserted, one.updated, one.deleted) for one in done.types] == [
        ("Q", 1, 0, 0),
        ("Has", 1, 0, 0),
    ]
    assert twice.diff(then, "side").schema == ()
    page = twice.changes(after=cursor, branch="side")
    assert [(one.op.value, one.id) for block in page.blocks for one in block.changes] == [
        ("insert", "m"),
        ("insert", "hm"),
    ]


def test_interfaces_that_both_sides_made_are_one_with_the_types_that_implement_them(graph: Graph) -> None:
    named = BASE + "interface Named { title: String? }\nnode R implements Named { k: String @key }\n"
    for branch, key in (("main", "m"), ("side", "s")):
        apply(graph, branch, named)
        put(graph, branch, {"type": "R", "data": {"k": key, "title": key}})

    done = graph.merge("side")

    assert {(one.kind, one.type_name) for one in done.unified} == {("interface", "Named"), ("node", "R")}
    assert values(graph, "R", "title") == {"m": "m", "s": "s"}
    catalog = graph.schema.catalog("main")
    assert catalog.node("R").implements == (catalog.interface("Named").id,)
    put(graph, "side", {"type": "R", "data": {"k": "s", "title": "more"}})
    graph.merge("side")
    graph.merge("main", into="side")
    assert values(graph, "R", "title", "side") == values(graph, "R", "title") == {"m": "m", "s": "more"}


def test_an_edge_type_to_a_node_type_that_the_other_side_dropped_is_a_conflict(graph: Graph) -> None:
    apply(graph, "main", BASE + "node Q { k: String @key  v: I32? }\n")
    graph.merge("main", into="side")
    apply(graph, "side", BASE)
    apply(graph, "main", WITH_Q)

    with pytest.raises(SchemaConflict, match="one branch dropped Q"):
        graph.merge("side")

    apply(graph, "main", BASE)
    assert graph.merge("side").outcome.value == "merged"


def test_edge_types_made_alike_to_a_node_type_that_one_side_made_again(graph: Graph) -> None:
    """The same text on both branches: what is in the way is the node type, and the remedy is about it."""
    node, _ = Q.split("\n", 1)
    apply(graph, "main", BASE + node)
    graph.merge("main", "side")
    apply(graph, "side", BASE, WITH_Q)
    apply(graph, "main", WITH_Q)
    put(graph, "side", q("1", v=1), has("h", "x", "1"))

    with pytest.raises(SchemaConflict, match="dropped Q") as caught:
        graph.merge("side")
    assert caught.value.fields["types"] == ["Q"]
    apply(graph, "main", BASE, WITH_Q)

    graph.merge("side")
    assert values(graph, "Q", "v") == {"1": 1}
    assert [row["id"] for row in graph.edges("Has").to_arrow().to_pylist()] == ["h"]


def test_a_renamed_type_that_was_unified_keeps_the_table_of_the_target(twice: Graph) -> None:
    twice.merge("side")
    mine = twice.schema.catalog("main").node("Q").id
    renamed = WITH_Q.replace("node Q", 'node Place @rename_from("Q")').replace(
        "v: I32?", 'aa: I32? @rename_from("v")'
    )
    apply(twice, "side", renamed.replace("P -> Q", "P -> Place"))
    put(twice, "side", {"type": "Place", "data": {"k": "s", "aa": 9}})

    done = twice.merge("side")

    assert values(twice, "Place", "aa") == {"m": 1, "s": 9, "both": 5}
    assert twice.schema.catalog("main").node("Place").id == mine
    assert [(one.name, one.inserted, one.updated) for one in done.types] == [("Place", 0, 1)]
    check_whole(twice)


def test_after_unifying_a_schema_change_of_the_target_keeps_what_is_known(twice: Graph) -> None:
    twice.merge("side")
    apply(twice, "main", WITH_Q.replace("v: I32?", 'w: I32? @rename_from("v")  more: String?'))
    put(twice, "side", q("s", v=20), q("s2", v=3))

    twice.merge("side")

    assert values(twice, "Q", "w") == {"m": 1, "both": 5, "s": 20, "s2": 3}
    twice.merge("main", into="side")
    assert values(twice, "Q", "w", "side") == values(twice, "Q", "w")


def test_an_edge_to_a_node_that_the_target_deleted_is_found_also_where_the_source_changed_its_type(
    tmp_path: Path,
) -> None:
    """The type goes on with the source's rows, which still have the node."""
    plain = "node A { k: String @key  y: I32? }"
    linked = "node A { k: String @key  y: I64? }\nedge Link: A -> A"
    with og.init(tmp_path / "graph.og", plain) as graph:
        graph.load([{"type": "A", "data": {"k": k}} for k in ("r1", "r2")], mode="append")
        graph.branches.create("side")
        graph.mutate('query leave() { delete A where k = "r2" }')
        graph.schema.apply(linked, branch="side")
        graph.load([{"edge": "Link", "from": "r1", "to": "r2"}], mode="append", branch="side")

        with pytest.raises(MergeConflict, match="'r2' not found in A"):
            graph.merge("side")
        assert [row["k"] for row in graph.nodes("A").to_arrow().to_pylist()] == ["r1"]


def test_a_revert_of_a_merge_that_unified_takes_back_its_rows_and_not_that_two_ids_are_one(
    twice: Graph,
) -> None:
    merged = twice.merge("side")
    assert merged.unified
    twice.revert(str(merged.commit_id))

    back = twice.merge("main", into="side")  # a fast-forward: what only the side had is deleted, and counted

    assert (back.unified, back.dropped) == ((), ())
    assert values(twice, "Q", "v", "side") == values(twice, "Q", "v")
    assert sum(entry.deleted for entry in back.types if entry.name == "Q") > 0
