"""What a refusal reports: everything, in one order, up to a cap (E-13)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import ConstraintViolation, KeyConflict
from omnigraph.catalog.model import NodeType, Property
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.engine.validate.relation import SHOWN
from omnigraph.engine.validate.values import value_findings
from omnigraph.engine.write import ExecutorFor
from omnigraph.storage.store import GraphStore
from tests.engine.truth.surfaces import EXECUTORS

SCHEMA = """
node Zebra { name: String @key a: String? @unique b: String? @unique age: I32? @range(age, 0..9) }
node Ant { name: String @key a: String? @unique code: String? role: enum(x, y)? @check(code, "^[A-Z]$") }
edge Likes: Zebra -> Ant @card(0..1) { mood: enum(up, down)? @unique(src, dst) }
edge Fears: Ant -> Zebra @card(0..1)
"""


@pytest.fixture(params=EXECUTORS)
def graph(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """An empty graph, judged by either executor."""
    executor: ExecutorFor = EXECUTORS[request.param]
    og.init(tmp_path / "g.og", SCHEMA, durability="os").close()
    with Graph(GraphStore.open(tmp_path / "g.og", durability="os"), executor) as opened:
        yield opened


def node(kind: str, name: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": {"name": name, **data}}


def edge(kind: str, source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": kind, "from": source, "to": target, "data": data}


def report(error: ConstraintViolation) -> list[tuple[str, str, str | None]]:
    """Return what is reported, as (code, type, id)."""
    return [(v["code"], v["type_name"], v["entity_id"]) for v in error.fields["violations"]]


def test_violations_are_ordered_by_code_then_nodes_before_edges_then_type_then_id(graph: Graph) -> None:
    rows = [
        node("Zebra", "z2", a="same", b="2"),
        node("Zebra", "z1", a="same", b="1"),
        node("Zebra", "z0", b="2"),
        node("Ant", "b2", a="1"),
        node("Ant", "b1", a="1"),
        edge("Likes", "z1", "b1", id="l2"),
        edge("Likes", "z1", "b1", id="l1"),
        edge("Likes", "ghost", "b1", id="l0"),
        edge("Fears", "b1", "spook", id="f2"),
        edge("Fears", "wraith", "z1", id="f1"),
        edge("Fears", "b2", "z1", id="f4"),
        edge("Fears", "b2", "z2", id="f3"),
    ]
    with pytest.raises(ConstraintViolation) as caught:
        graph.load(rows, mode="merge")

    assert report(caught.value) == [
        ("unique", "Ant", "b1"),
        ("unique", "Zebra", "z0"),
        ("unique", "Zebra", "z1"),
        ("unique", "Likes", "l1"),
        ("orphan_edge", "Fears", "f1"),
        ("orphan_edge", "Fears", "f2"),
        ("orphan_edge", "Likes", "l0"),
        ("cardinality", "Fears", "b2"),
        ("cardinality", "Likes", "z1"),
    ]
    assert caught.value.fields["total"] == 9


def test_values_of_a_mutation_are_reported_by_code_over_all_types(graph: Graph) -> None:
    text = (
        "query q($role: String, $mood: String) {"
        ' insert Zebra { name: "z", age: 10 } insert Ant { name: "b", code: "no" }'
        ' insert Ant { name: "a", role: $role } insert Likes { from: "z", to: "a", mood: $mood } }'
    )
    with pytest.raises(ConstraintViolation) as caught:
        graph.mutate(text, role="w", mood="flat")

    assert [entry[:2] for entry in report(caught.value)] == [
        ("enum", "Ant"),
        ("enum", "Likes"),
        ("range", "Zebra"),
        ("check", "Ant"),
    ]


def test_many_violations_are_counted_and_the_first_by_id_are_shown(graph: Graph) -> None:
    count = 3 * SHOWN
    rows = [edge("Likes", f"z{n:03d}", f"b{n:03d}", id=f"l{n:03d}") for n in reversed(range(count))]

    with pytest.raises(ConstraintViolation) as caught:
        graph.load(rows, mode="append")

    shown = caught.value.fields["violations"]
    assert caught.value.fields["total"] == 2 * count
    assert [v["entity_id"] for v in shown] == [f"l{n // 2:03d}" for n in range(SHOWN)]
    assert {v["property"] for v in shown} == {"src", "dst"}
    assert f"... and {2 * count - SHOWN} more" in str(caught.value)


def test_the_first_by_id_are_shown_also_when_several_questions_found_them(graph: Graph) -> None:
    rows = [node("Zebra", f"z{n:03d}", a=str(n // 2), b=str(n // 2)) for n in range(2 * SHOWN)]

    with pytest.raises(ConstraintViolation) as caught:
        graph.load(rows, mode="append")

    assert caught.value.fields["total"] == 2 * SHOWN
    assert [(v["entity_id"], v["property"]) for v in caught.value.fields["violations"]] == [
        (f"z{2 * (n // 2):03d}", "ab"[n % 2]) for n in range(SHOWN)
    ]


def test_key_conflicts_are_counted_and_the_first_is_named(graph: Graph) -> None:
    rows = [node("Ant", f"a{n:03d}") for n in range(2 * SHOWN)]
    graph.load(rows, mode="append")

    with pytest.raises(KeyConflict, match=f"and {2 * SHOWN - 1} more") as caught:
        graph.load(rows[::-1], mode="append")

    assert (caught.value.fields["entity_id"], caught.value.fields["total"]) == ("a000", 2 * SHOWN)


def test_a_key_conflict_among_other_violations_is_one_of_them(graph: Graph) -> None:
    graph.load([node("Ant", "a", a="1")], mode="append")

    with pytest.raises(ConstraintViolation) as caught:
        graph.load([node("Ant", "a"), node("Ant", "b", a="2"), node("Ant", "c", a="2")], mode="append")

    assert report(caught.value) == [("key_conflict", "Ant", "a"), ("unique", "Ant", "b")]


def test_a_violation_says_where_in_the_input_it_is(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"type":"Ant","data":{"name":"a","a":"1"}}\n\n{"type":"Ant","data":{"name":"b","a":"1"}}\n'
        '{"edge":"Fears","from":"a","to":"ghost"}\n'
    )
    with pytest.raises(ConstraintViolation) as caught:
        graph.load(path, mode="append")

    assert [v["place"] for v in caught.value.fields["violations"]] == ["rows.jsonl:1", "rows.jsonl:4"]
    assert re.search(r"rows.jsonl:4 +orphan_edge +Fears +dst 'ghost' not found in Zebra", str(caught.value))


# -- lists of enums: the schema language has none, the check knows them (V-004, V-005) ---------------


@pytest.mark.parametrize(
    ("tags", "expected"),
    [(["x", "z"], ["enum"]), (["x", "y"], []), ([], []), (None, [])],
    ids=["outside", "inside", "empty", "null"],
)
def test_each_element_of_a_list_is_in_the_set(tags: list[str] | None, expected: list[str]) -> None:
    kind = PropertyType(Scalar.STRING, nullable=True, is_list=True, enum_values=("x", "y"))
    declared = NodeType(id="t", name="Member", properties=(Property("p", "tags", "tags", kind),))
    batch = pa.RecordBatch.from_pylist([{"id": "m1", "tags": tags}], schema=declared.stored_schema)

    assert [violation.code for violation in value_findings(batch, declared).violations] == expected
