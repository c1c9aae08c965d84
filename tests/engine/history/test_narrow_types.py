"""A value is read in the type of its commit, compared in the wider type, and never rounded on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.merge.conflicts import MergeConflict
from tests.support.people import head

NARROW = "node P { k: String @key  f: F32?  n: I32?  d: Date? }"
WIDE = "node P { k: String @key  f: F64?  n: I64?  d: DateTime? }"
FINE = 0.1234567890123
UNHELD: list[tuple[str, Any]] = [
    *(("f", value) for value in (FINE, 1e-300, 1e300, 16777217.0)),
    *(("n", value) for value in (2**31, -(2**40))),
    ("d", "2024-05-01T12:00:00.001Z"),
]


def row(key: str, **values: Any) -> dict[str, Any]:
    return {"type": "P", "data": {"k": key, **values}}


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """One row in narrow types on main."""
    with og.init(tmp_path / "graph.og", NARROW, durability="os") as opened:
        opened.load([row("a", f=0.5, n=7, d="2024-05-01")], mode="append")
        yield opened


def widened(graph: Graph, *rows: dict[str, Any], branch: str = "main") -> str:
    """Widen every property and load rows; return the commit of the widening."""
    graph.schema.apply(WIDE, branch=branch)
    commit = head(graph, branch)
    if rows:
        graph.load(list(rows), mode="merge", branch=branch)
    return commit


# -- every way to read a commit ------------------------------------------------------------------------


def every_reading(graph: Graph, at: str, folder: Path) -> dict[str, Any]:
    """Return entity a as each way of reading shows it, and the Arrow types where there are some."""
    gq = 'query q() { match { $p: P { k: "a" } } return { $p.f as f, $p.n as n, $p.d as d } }'
    result = graph.query(gq, at=at)
    nodes = graph.nodes("P", at=at).to_arrow()
    graph.export(folder, at=at)
    exported = pq.read_table(next(folder.rglob("*.parquet")))
    entity = graph.entity("P", "a").get(at=at)
    assert entity is not None
    return {
        "query": [result.to_json()["rows"][0][name] for name in "fnd"],
        "entity": [entity[name] for name in "fnd"],
        "nodes": [nodes.filter(pa.compute.equal(nodes["id"], "a"))[name][0].as_py() for name in "fn"],
        "export": [exported.filter(pa.compute.equal(exported["id"], "a"))[name][0].as_py() for name in "fn"],
        "query types": [result.to_arrow().schema.field(name).type for name in "fn"],
        "nodes types": [nodes.schema.field(name).type for name in "fn"],
        "export types": [exported.schema.field(name).type for name in "fn"],
    }


def test_every_way_to_read_a_commit_shows_its_values_in_its_types(graph: Graph, tmp_path: Path) -> None:
    narrow = head(graph)
    graph.branches.create("wide")
    widened(graph, row("a", f=FINE, n=2**40, d="2024-05-01T12:00:00.001Z"), branch="wide")

    old = every_reading(graph, narrow, tmp_path / "old")
    new = every_reading(graph, head(graph, "wide"), tmp_path / "new")  # asked from main, where it is narrow

    assert old["query"] == old["entity"] == [0.5, 7, "2024-05-01"]
    assert new["query"] == new["entity"] == [FINE, 2**40, "2024-05-01T12:00:00.001Z"]
    assert old["nodes"] == old["export"] == [0.5, 7]
    assert new["nodes"] == new["export"] == [FINE, 2**40]
    for seen, types in ((old, [pa.float32(), pa.int32()]), (new, [pa.float64(), pa.int64()])):
        assert seen["query types"] == seen["nodes types"] == seen["export types"] == types


def test_a_branch_that_was_widened_since_reads_its_past_in_the_types_of_then(graph: Graph) -> None:
    narrow = head(graph)
    widened(graph)

    gq = "query q($n: I64) { match { $p: P  $p.n < $n } return { $p.n, $p.d } }"
    assert graph.query(gq, {"n": 2**40}, at=narrow).to_json()["rows"] == [{"p.n": 7, "p.d": "2024-05-01"}]
    assert graph.nodes("P", at=narrow).to_arrow().schema.field("f").type == pa.float32()
    assert graph.entity("P", "a").get(at=narrow) == {"id": "a", "k": "a", "f": 0.5, "n": 7, "d": "2024-05-01"}


def test_one_name_that_two_branches_declared_is_read_as_its_own_branch_has_it(
    graph: Graph, tmp_path: Path
) -> None:
    with_tag = NARROW.replace(" }", "  tag: String? }")
    graph.branches.create("b")
    for branch, value in (("main", "A"), ("b", "B")):
        graph.schema.apply(with_tag, branch=branch)
        graph.load([row("a", tag=value)], mode="merge", branch=branch)
    gq = "query q() { match { $p: P } return { $p.tag as tag } }"

    for branch, value in (("main", "A"), ("b", "B")):
        at = head(graph, branch)
        for asked_from in ("main", "b"):
            entity = graph.entity("P", "a").get(branch=asked_from, at=at)
            assert entity is not None
            assert [
                graph.query(gq, branch=asked_from, at=at).rows[0]["tag"],
                graph.nodes("P", branch=asked_from, at=at).to_arrow()["tag"][0].as_py(),
                entity["tag"],
            ] == [value] * 3
        graph.export(tmp_path / branch, at=at)
        exported = pq.read_table(next((tmp_path / branch).rglob("*.parquet")))
        assert exported["tag"].to_pylist() == [value]
    (change,) = graph.diff("main", "b")
    assert change.before is not None
    assert change.after is not None
    assert (change.before["tag"], change.after["tag"]) == (None, "B")  # another property than that of main


# -- comparisons ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "value"), UNHELD)
def test_a_diff_sees_what_only_the_wider_type_holds_in_both_directions(
    graph: Graph, name: str, value: Any
) -> None:
    graph.branches.create("wide")
    widened(graph, row("a", **{"f": 0.5, "n": 7, "d": "2024-05-01T00:00:00Z", name: value}), branch="wide")
    near = {"f": 0.5, "n": 7, "d": "2024-05-01"}[name]

    (there,) = graph.diff("main", "wide")
    (back,) = graph.diff("wide", "main")

    assert (there.fields, back.fields) == ((name,), (name,))
    assert there.before is not None
    assert there.after is not None
    assert back.before is not None
    assert back.after is not None
    assert (there.before[name], there.after[name]) == (near, value)
    assert (back.before[name], back.after[name]) == (value, near)
    assert there.before == graph.entity("P", "a").get() == back.after


def test_widening_alone_is_no_change_in_either_direction(graph: Graph) -> None:
    graph.branches.create("wide")
    widened(graph, branch="wide")

    assert list(graph.diff("main", "wide")) == list(graph.diff("wide", "main")) == []
    assert graph.diff("main", "wide").types == graph.diff("wide", "main").types == ()


def test_the_history_of_an_entity_has_each_version_in_the_types_of_its_commit(graph: Graph) -> None:
    widened(graph, row("a", f=FINE, n=7, d="2024-05-01T12:00:00Z"))

    newest, first = graph.entity("P", "a").history()

    assert newest.fields == {"f": (0.5, FINE), "d": ("2024-05-01T00:00:00.000Z", "2024-05-01T12:00:00.000Z")}
    assert first.change.after == {"id": "a", "k": "a", "f": 0.5, "n": 7, "d": "2024-05-01"}


def test_a_value_of_a_property_that_the_other_branch_declared_for_itself_is_a_difference_both_ways(
    graph: Graph,
) -> None:
    graph.branches.create("b")
    for branch in ("main", "b"):
        graph.schema.apply(NARROW.replace(" }", "  tag: String? }"), branch=branch)
    graph.load([row("a", f=0.5, n=7, d="2024-05-01", tag="A")], mode="merge")

    for states in (("main", "b"), ("b", "main")):
        assert graph.diff(*states)
        assert [step.kind for step in graph.diff(*states).schema] == ["add_property", "drop_property"]


def test_a_property_that_came_later_is_null_in_every_read_of_a_commit_before_it(graph: Graph) -> None:
    before = head(graph)
    graph.schema.apply(NARROW.replace(" }", '  team: String @default("none") }'))
    graph.load([row("a", f=0.25, team="none")], mode="merge")

    (change,) = graph.diff(before, "main")

    assert change.before is not None
    assert change.before == graph.entity("P", "a").get(at=before)
    assert change.before["team"] is None
    assert change.fields == ("d", "f", "n")  # for what changed, it had its default all along
    assert graph.nodes("P", at=before).to_arrow()["team"].to_pylist() == [None]
    gq = "query q() { match { $p: P } return { $p.team as team } }"
    assert graph.query(gq, at=before).rows == [{"team": None}]


# -- writes that narrow --------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "value"), UNHELD)
def test_undoing_a_widening_never_rounds(graph: Graph, name: str, value: Any) -> None:
    widening = widened(graph, row("b", **{name: value}), row("c"))
    before = head(graph)

    with pytest.raises(MergeConflict) as met:
        graph.revert(widening)

    (conflict,) = met.value.conflicts
    assert (conflict.kind.value, conflict.entity_id) == ("divergent_update", "b")
    assert [(one.name, one.ours) for one in conflict.properties] == [(name, value)]
    assert head(graph) == before
    assert graph.revert(widening, preview=True).total_conflicts == 1


def test_undoing_a_widening_keeps_every_value_that_fits(graph: Graph, tmp_path: Path) -> None:
    values = {"b": 0.25, "c": 2.0**127, "d": 16777216.0, "e": -0.0}
    widening = widened(graph, *(row(key, f=f, n=-7, d="1969-12-31T00:00:00Z") for key, f in values.items()))
    wide = head(graph)

    graph.revert(widening)

    rows = {one["id"]: one for one in graph.nodes("P").to_arrow().to_pylist()}
    assert graph.nodes("P").to_arrow().schema.field("f").type == pa.float32()
    for key, f in values.items():
        assert repr(rows[key]["f"]) == repr(f)
        assert (rows[key]["n"], str(rows[key]["d"])) == (-7, "1969-12-31")
    assert list(graph.diff(wide, "main")) == list(graph.diff("main", wide)) == []
    every_reading(graph, wide, tmp_path / "wide")
    assert list(graph.changes.of(head(graph)).block.changes) == []


def test_a_value_that_does_not_fit_is_decided_by_the_caller(graph: Graph) -> None:
    widening = widened(
        graph, row("a", f=FINE, n=7, d="2024-05-01T00:00:00Z"), row("b", f=FINE), row("c", f=0.25)
    )

    with pytest.raises(MergeConflict):
        graph.revert(widening, strategy="ours")  # it cannot be kept whoever wins
    graph.revert(widening, strategy="theirs")

    rows = {one["id"]: one["f"] for one in graph.nodes("P").to_arrow().to_pylist()}
    assert rows == {"a": 0.5, "c": 0.25}  # before the widening there was no b


def test_a_chosen_value_of_the_narrow_type_decides(graph: Graph) -> None:
    widening = widened(graph, row("a", f=FINE, n=7, d="2024-05-01T00:00:00Z"))

    graph.revert(widening, resolutions=[{"type": "P", "id": "a", "property": "f", "value": 0.125}])

    assert graph.nodes("P").to_arrow()["f"].to_pylist() == [0.125]


def test_a_merge_into_a_branch_that_went_back_to_the_narrow_type_never_rounds(graph: Graph) -> None:
    widening = widened(graph)
    graph.branches.create("side")
    graph.load([row("b", n=2**40), row("c", n=5)], mode="merge", branch="side")
    graph.revert(widening)

    with pytest.raises(MergeConflict) as met:
        graph.merge("side")

    (conflict,) = met.value.conflicts
    assert (conflict.kind.value, conflict.entity_id) == ("divergent_update", "b")
    assert [(one.name, one.theirs) for one in conflict.properties] == [("n", 2**40)]
