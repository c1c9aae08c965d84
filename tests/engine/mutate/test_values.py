"""Values of every type through a mutation: an update rewrites whole rows, and loses nothing of them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import InvalidRequest
from tests.support.contents import read
from tests.support.people import q

SCHEMA = """
node Every {
  name: String @key
  s: String? b: Bool? i: I32? j: I64? u: U32? v: U64? f: F32? g: F64? d: Date? t: DateTime? x: Vector(3)?
  o: Blob? ls: [String]? lb: [Bool]? li: [I32]? lv: [U64]? lg: [F64]? ld: [Date]? lt: [DateTime]?
  note: String?
}
"""
PICTURE = bytes(range(256)) * 400
FULL: dict[str, tuple[str, Any]] = {
    "s": ("String", 'quo"te'),
    "b": ("Bool", False),
    "i": ("I32", -(2**31)),
    "j": ("I64", 2**63 - 1),
    "u": ("U32", 2**32 - 1),
    "v": ("U64", 2**64 - 1),
    "f": ("F32", 0.5),
    "g": ("F64", 1e300),
    "d": ("Date", "2026-06-29"),
    "t": ("DateTime", "2026-06-29T12:30:00.123Z"),
    "x": ("Vector(3)", [1.0, -2.0, 0.25]),
    "o": ("Blob", f"base64:{base64.b64encode(PICTURE).decode()}"),
    "ls": ("[String]", ["a", ""]),
    "lb": ("[Bool]", [True, False]),
    "li": ("[I32]", [1, -1]),
    "lv": ("[U64]", [2**63 + 1]),
    "lg": ("[F64]", [0.1]),
    "ld": ("[Date]", ["1969-12-31"]),
    "lt": ("[DateTime]", ["2026-01-01T00:00:00.001Z"]),
}
DECLARED = ", ".join(f"${name}: {kind}?" for name, (kind, _) in FULL.items())
ASSIGNED = ", ".join(f"{name}: ${name}" for name in FULL)
VALUES = {name: value for name, (_, value) in FULL.items()}
NOTHING: dict[str, Any] = dict.fromkeys(FULL)


@pytest.fixture(params=["tail", "settled"])
def graph(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Graph]:
    """One full row and one empty one, in a small fragment or in a settled one."""
    rows = [{"name": "full", **VALUES}, {"name": "empty"}]
    if request.param == "settled":
        rows += [{"name": f"filler-{number}"} for number in range(4_200)]
    with og.init(tmp_path / "g.og", SCHEMA, durability="os") as made:
        made.load([{"type": "Every", "data": row} for row in rows], mode="append")
        yield made


def stored(graph: Graph, name: str) -> dict[str, Any]:
    """Return the values of one row, without its names."""
    (row,) = [row for row in read(graph, "Every") if row["name"] == name]
    return {key: value for key, value in row.items() if key not in ("id", "name", "note")}


def test_an_insert_stores_what_a_load_stores(graph: Graph) -> None:
    graph.mutate(f'query q({DECLARED}) {{ insert Every {{ name: "new", {ASSIGNED} }} }}', VALUES)

    assert stored(graph, "new") == stored(graph, "full")
    assert stored(graph, "new")["o"] == PICTURE


@pytest.mark.parametrize("where", ['name = "full"', "i < 0", 'name in ["full", "empty"]', "t is not null"])
def test_an_update_keeps_every_value_that_it_does_not_assign(graph: Graph, where: str) -> None:
    before = {name: stored(graph, name) for name in ("full", "empty")}

    graph.mutate(q(f'update Every set {{ note: "x" }} where {where}'))

    assert {name: stored(graph, name) for name in ("full", "empty")} == before
    assert next(row["note"] for row in read(graph, "Every") if row["name"] == "full") == "x"


def test_an_update_can_assign_every_type(graph: Graph) -> None:
    graph.mutate(f'query q({DECLARED}) {{ update Every set {{ {ASSIGNED} }} where name = "empty" }}', VALUES)

    assert stored(graph, "empty") == stored(graph, "full")


def test_an_update_can_set_every_type_to_null(graph: Graph) -> None:
    graph.mutate(f'query q({DECLARED}) {{ update Every set {{ {ASSIGNED} }} where name = "full" }}', NOTHING)

    assert stored(graph, "full") == stored(graph, "empty") == NOTHING


def test_chained_updates_keep_what_earlier_statements_wrote(graph: Graph) -> None:
    graph.mutate(
        f'query q({DECLARED}) {{ insert Every {{ name: "new", {ASSIGNED} }}'
        ' update Every set { note: "1" } where name = "new"'
        ' update Every set { note: "2" } where note = "1" }',
        VALUES,
    )

    assert stored(graph, "new") == stored(graph, "full")


@pytest.mark.parametrize("name", [name for name in FULL if not name.startswith("l") and name not in "xo"])
def test_a_condition_finds_a_value_of_every_type(graph: Graph, name: str) -> None:
    kind, value = FULL[name]
    for condition in (f"{name} = $value", f"not({name} != $value)"):
        text = f'query q($value: {kind}) {{ update Every set {{ note: "x" }} where {condition} }}'
        assert graph.mutate(text, value=value, dry_run=True).affected_nodes == 1, condition


def test_a_blob_from_elsewhere_is_refused(graph: Graph) -> None:
    with pytest.raises(InvalidRequest):
        graph.mutate(
            'query q($o: Blob) { update Every set { o: $o } where name = "full" }', o="file:///etc/hostname"
        )
