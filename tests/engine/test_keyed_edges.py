"""Keyed edges: the ends of an edge, and properties where the schema says so, are its identity."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import ConstraintViolation, GraphError, KeyConflict, SchemaUnsupported
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import IdMinter
from omnigraph.catalog.resolve import resolve_text
from omnigraph.engine.change import ChangeSet, TypeChange
from omnigraph.engine.validate.evaluate import questions
from tests.engine.doctor.damaged import put_rows
from tests.support.command_line import run_json

ENDS = "node P { n: String @key }  node Film { n: String @key }\n"
SCHEMA = ENDS + "edge Rates: P -> Film { stars: I32  note: String?  @key(src, dst) }"
PLAIN = ENDS + "edge Rates: P -> Film { stars: I32  note: String? }"
NODES = [{"type": "P", "data": {"n": "Ada"}}, {"type": "Film", "data": {"n": "Up"}}]
UP = '["Ada","Up"]'


def rating(stars: int, **more: Any) -> dict[str, Any]:
    """Return R(s) of the specification."""
    return {"edge": "Rates", "from": "Ada", "to": "Up", "data": {"stars": stars, **more}}


def rated(graph: Graph, *, branch: str | None = None) -> list[tuple[str, int, str | None]]:
    """Return id, stars and note of every rating."""
    rows = graph.edges("Rates", branch=branch).to_arrow().to_pylist()
    return [(row["id"], row["stars"], row["note"]) for row in rows]


def made(folder: Path, schema: str, name: str = "graph.og") -> Graph:
    graph = og.init(folder / name, schema, durability="os")
    graph.load(NODES, mode="append")
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with made(tmp_path, SCHEMA) as opened:
        yield opened


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Graph]:
    with made(tmp_path, PLAIN, "plain.og") as opened:
        yield opened


def codes(refused: pytest.ExceptionInfo[GraphError]) -> list[str]:
    return [violation["code"] for violation in refused.value.fields["violations"]]


# -- loads -------------------------------------------------------------------------------------------


def test_a_merge_load_replaces_the_edge_that_joins_the_same_ends(graph: Graph) -> None:
    graph.load([rating(3, note="a")], mode="merge")
    graph.load([rating(4)], mode="merge")

    assert rated(graph) == [(UP, 4, None)]


def test_an_appended_edge_must_be_new(graph: Graph) -> None:
    graph.load([rating(3)], mode="append")

    with pytest.raises(KeyConflict):
        graph.load([rating(4)], mode="append")

    assert rated(graph) == [(UP, 3, None)]


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_no_input_has_a_key_twice(graph: Graph, mode: Any) -> None:
    with pytest.raises(ConstraintViolation) as refused:
        graph.load([rating(3), rating(4)], mode=mode)

    assert codes(refused) == ["unique"]
    assert "Rates.src, dst" in str(refused.value)


def test_an_overwrite_is_the_new_image(graph: Graph) -> None:
    graph.load([rating(3, note="a")], mode="append")

    graph.load([rating(4)], mode="overwrite")

    assert rated(graph) == [(UP, 4, None)]


def test_a_record_may_have_the_id_that_its_ends_make(graph: Graph) -> None:
    with pytest.raises(ConstraintViolation) as refused:
        graph.load([rating(3, id="e1")], mode="append")
    assert codes(refused) == ["key"]

    graph.load([{**rating(3), "id": UP}], mode="append")
    assert rated(graph) == [(UP, 3, None)]


def test_an_edge_may_have_its_id_at_the_top(plain: Graph) -> None:
    for _ in range(2):
        plain.load([{**rating(3), "id": "e1"}], mode="merge")

    assert rated(plain) == [("e1", 3, None)]


def test_two_ids_of_one_record_must_agree(plain: Graph) -> None:
    plain.load([{**rating(3, id="e1"), "id": "e1"}], mode="merge")
    with pytest.raises(GraphError) as refused:
        plain.load([{**rating(3, id="e2"), "id": "e1"}], mode="merge")

    assert codes(refused) == ["envelope"]


def test_parallel_edges_need_a_member_that_differs(tmp_path: Path) -> None:
    schema = ENDS + "edge Rates: P -> Film { day: Date  stars: I32?  @key(src, dst, day) }"
    with made(tmp_path, schema) as graph:
        days = [{**rating(3, day=day)} for day in ("2026-01-01", "2026-01-02")]
        for _ in range(2):
            graph.load(days, mode="merge")
        assert graph.edges("Rates").to_arrow()["id"].to_pylist() == [
            '["Ada","Up","20454"]',
            '["Ada","Up","20455"]',
        ]

        with pytest.raises(GraphError, match="Q207"):
            graph.mutate('query q() { update Rates set { day: "2026-01-03" } where stars = 3 }')


def test_unicode_and_quotes_in_ends_are_escaped_once(graph: Graph) -> None:
    odd = 'a"b\\c\u00e9\n'
    graph.load([{"type": "P", "data": {"n": odd}}], mode="merge")
    graph.load([{**rating(1), "from": odd}], mode="merge")

    assert json.loads(rated(graph)[0][0]) == [odd, "Up"]


# -- migrations --------------------------------------------------------------------------------------


def duplicates(refused: pytest.ExceptionInfo[SchemaUnsupported], total: int = 1) -> list[dict[str, Any]]:
    (step,) = refused.value.fields["steps"]
    assert (step["code"], step["total"]) == ("OG-ED-102", total)
    groups: list[dict[str, Any]] = step["duplicates"]
    return groups


def test_a_key_gives_the_edges_their_ids(plain: Graph) -> None:
    plain.load([rating(3, id="e1")], mode="append")

    receipt = plain.schema.apply(SCHEMA)

    assert [step.to_json()["kind"] for step in receipt.plan.steps] == ["add_key"]
    assert rated(plain) == [(UP, 3, None)]
    plain.load([rating(4)], mode="merge")
    assert rated(plain) == [(UP, 4, None)]


def test_edges_that_are_equal_become_one_if_asked_for(plain: Graph) -> None:
    for number in range(2):
        plain.load([rating(3, id=f"e{number}")], mode="append")

    with pytest.raises(SchemaUnsupported) as refused:
        plain.schema.apply(SCHEMA)
    assert duplicates(refused) == [{"key": UP, "count": 2, "ids": ["e0", "e1"], "properties": []}]

    plain.schema.apply(SCHEMA, dedupe="equal")
    assert rated(plain) == [(UP, 3, None)]


def test_of_different_edges_the_latest_stays_if_asked_for(plain: Graph) -> None:
    plain.load([rating(3, id="e2")], mode="append")
    plain.load([rating(4, id="e1")], mode="append")

    for way in (None, "equal"):
        with pytest.raises(SchemaUnsupported) as refused:
            plain.schema.apply(SCHEMA, dedupe=way)
        assert duplicates(refused) == [{"key": UP, "count": 2, "ids": ["e1", "e2"], "properties": ["stars"]}]

    plain.schema.apply(SCHEMA, dedupe="latest")
    assert rated(plain) == [(UP, 4, None)]


def test_the_latest_is_by_change_and_then_by_id(plain: Graph) -> None:
    plain.load([rating(3, id="e1"), rating(4, id="e2"), rating(5, id="e3")], mode="append")
    plain.mutate('query q() { update Rates set { note: "kept" } where stars = 4 }')
    plain.load([rating(5, id="e3")], mode="merge")  # changes no value
    plain.branches.create("equal")
    plain.mutate("query q() { delete Rates where stars = 4 }", branch="equal")

    plain.schema.apply(SCHEMA, dedupe="latest")
    plain.schema.apply(SCHEMA, dedupe="latest", branch="equal")

    assert rated(plain) == [(UP, 4, "kept")]
    assert rated(plain, branch="equal") == [(UP, 5, None)]


def test_a_plan_names_the_duplicates(plain: Graph) -> None:
    for number in range(2):
        plain.load([rating(3, id=f"e{number}")], mode="append")

    plan = plain.schema.plan(SCHEMA)
    (step,) = plan.to_json()["steps"]
    assert not plan.supported
    assert (step["code"], step["duplicates"][0]["ids"]) == ("OG-ED-102", ["e0", "e1"])
    assert plain.schema.plan(SCHEMA, dedupe="equal").supported


def test_a_large_group_is_told_by_its_first_ids_and_a_number(plain: Graph) -> None:
    plain.load([rating(3, id=f"e{number:02d}") for number in range(30)], mode="append")

    (step,) = plain.schema.plan(SCHEMA).to_json()["steps"]

    (group,) = step["duplicates"]
    assert (group["count"], group["ids"]) == (30, [f"e{number:02d}" for number in range(20)])


def test_the_first_groups_of_many_are_shown_and_all_are_counted(plain: Graph) -> None:
    films = [f"F{number:02d}" for number in range(25)]
    plain.load([{"type": "Film", "data": {"n": film}} for film in films], mode="append")
    twice = [{**rating(3), "to": film} for film in films for _ in range(2)]
    plain.load(twice, mode="append")

    with pytest.raises(SchemaUnsupported) as refused:
        plain.schema.apply(SCHEMA)

    assert [group["key"] for group in duplicates(refused, 25)] == [f'["Ada","{film}"]' for film in films[:20]]


def test_groups_are_whole_when_they_come_in_shares(plain: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.engine.schema.rekey.ROWS_AT_ONCE", 3)
    films = [f"F{number:02d}" for number in range(9)]
    plain.load([{"type": "Film", "data": {"n": film}} for film in films], mode="append")
    plain.load([{**rating(3), "to": film} for film in films for _ in range(2)], mode="append")
    plain.load([rating(1)], mode="append")

    plain.schema.apply(SCHEMA, dedupe="equal")

    assert [row[0] for row in rated(plain)] == [f'["Ada","{film}"]' for film in [*films, "Up"]]


def test_keys_whose_hashes_collide_are_no_duplicates(plain: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "omnigraph.engine.schema.rekey.hashes_of", lambda values: np.zeros(len(values), np.uint64)
    )
    plain.load([{"type": "Film", "data": {"n": film}} for film in ("A", "B")], mode="append")
    plain.load([{**rating(3), "to": film} for film in ("A", "B", "A", "Up")], mode="append")

    (refused,) = plain.schema.plan(SCHEMA).to_json()["steps"]
    plain.schema.apply(SCHEMA, dedupe="equal")

    assert [(group["key"], group["count"]) for group in refused["duplicates"]] == [('["Ada","A"]', 2)]
    assert [row[0] for row in rated(plain)] == ['["Ada","A"]', '["Ada","B"]', UP]


def test_a_key_may_change_and_go(graph: Graph) -> None:
    graph.load([rating(3, note="a")], mode="append")
    longer = SCHEMA.replace("note: String?  @key(src, dst)", "note: String?  @key(src, dst, stars)")

    changed = graph.schema.apply(longer)
    assert [step.to_json()["kind"] for step in changed.plan.steps] == ["change_key"]
    assert rated(graph) == [('["Ada","Up","3"]', 3, "a")]

    gone = graph.schema.apply(PLAIN)
    assert [step.to_json()["kind"] for step in gone.plan.steps] == ["drop_key"]
    assert rated(graph) == [('["Ada","Up","3"]', 3, "a")]
    graph.load([rating(4)], mode="merge")
    assert len(rated(graph)) == 2


def test_a_key_may_have_a_property_that_comes_with_it(plain: Graph) -> None:
    plain.load([rating(3, id="e1")], mode="append")
    schema = (
        ENDS
        + 'edge Rates: P -> Film { stars: I64  note: String?  by: String @default("x")  '
        + ("@key(src, dst, by, stars) }")
    )

    plain.schema.apply(schema)

    assert rated(plain) == [('["Ada","Up","3","x"]', 3, None)]  # the older one first


def test_a_wider_member_of_a_key_is_spelt_anew(tmp_path: Path) -> None:
    schema = ENDS + "edge Rates: P -> Film { day: Date  stars: I32?  note: String?  @key(src, dst, day) }"
    with made(tmp_path, schema) as graph:
        graph.load([rating(3, day="2026-01-01")], mode="append")

        receipt = graph.schema.apply(schema.replace("day: Date ", "day: DateTime "))

        assert "change_key" in [step.to_json()["kind"] for step in receipt.plan.steps]
        assert rated(graph) == [('["Ada","Up","1767225600000"]', 3, None)]


def test_a_rename_changes_no_id(graph: Graph) -> None:
    graph.load([rating(3)], mode="append")

    renamed = ENDS.replace("node P", 'node Critic @rename_from("P")') + (
        'edge Judges: Critic -> Film @rename_from("Rates") { stars: I32  note: String?  @key(src, dst) }'
    )
    receipt = graph.schema.apply(renamed)

    assert {step.to_json()["kind"] for step in receipt.plan.steps} == {"rename_type"}
    assert graph.edges("Judges").to_arrow()["id"].to_pylist() == [UP]


def test_a_new_key_is_seen_as_old_edges_gone_and_new_ones_come(plain: Graph) -> None:
    plain.load([rating(3, id="e1")], mode="append")
    before = plain.commits.list()[0].id

    plain.schema.apply(SCHEMA)

    assert plain.commits.list()[0].kind.value == "schema"
    changes = [(change.op.value, change.id) for change in plain.diff(before, "main")]
    assert changes == [("insert", UP), ("delete", "e1")]
    assert [row["id"] for row in plain.edges("Rates", at=before).to_arrow().to_pylist()] == ["e1"]


def test_a_refused_key_leaves_its_idempotency_key_free(plain: Graph) -> None:
    for number in range(2):
        plain.load([rating(3, id=f"e{number}")], mode="append")

    with pytest.raises(SchemaUnsupported):
        plain.schema.apply(SCHEMA, idempotency_key="k")
    done = plain.schema.apply(SCHEMA, dedupe="equal", idempotency_key="k")
    again = plain.schema.apply(SCHEMA, dedupe="equal", idempotency_key="k")

    assert (again.replayed, again.commit, rated(plain)) == (True, done.commit, [(UP, 3, None)])
    with pytest.raises(GraphError, match="another request"):
        plain.schema.apply(SCHEMA, dedupe="latest", idempotency_key="k")


def test_a_key_can_be_reverted(plain: Graph) -> None:
    plain.load([rating(3, id="e1")], mode="append")
    applied = plain.schema.apply(SCHEMA).commit
    assert applied is not None
    plain.load([{**rating(4), "from": "Bo"}, {"type": "P", "data": {"n": "Bo"}}], mode="append")

    plain.revert(applied.id)

    assert [row[0] for row in rated(plain)] == ['["Bo","Up"]', "e1"]
    assert "@key(src, dst)" not in plain.schema.show()


def test_an_empty_type_gets_a_key_for_nothing(plain: Graph) -> None:
    (step,) = plain.schema.plan(SCHEMA).steps

    assert step.to_json()["effect"] == "metadata"
    plain.schema.apply(SCHEMA)
    plain.load([rating(3)], mode="merge")
    assert [row[0] for row in rated(plain)] == [UP]


def test_an_unknown_way_to_dedupe_is_refused(plain: Graph) -> None:
    with pytest.raises(GraphError, match="equal"):
        plain.schema.apply(SCHEMA, dedupe="newest")  # type: ignore[arg-type]


# -- everything else that knows ids ------------------------------------------------------------------


def test_the_doctor_finds_an_edge_whose_id_is_not_that_of_its_key(graph: Graph) -> None:
    graph.load([rating(3)], mode="append")
    assert graph.doctor().ok

    put_rows(graph, "Rates", [{"id": "e1", "src": "Ada", "dst": "Up", "stars": 1, "note": None}])

    assert [(finding.code, finding.where.row) for finding in graph.doctor().of("error")] == [
        ("wrong_id", "e1")
    ]


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_an_export_gives_an_equal_graph(graph: Graph, tmp_path: Path, format: str) -> None:
    graph.load([rating(3, note="a")], mode="append")
    graph.export(tmp_path / "out", format=format)

    with og.init(tmp_path / "copy.og", SCHEMA, durability="os") as copy:
        copy.load(tmp_path / "out", mode="merge")
        copy.load(tmp_path / "out", mode="merge")
        assert rated(copy) == rated(graph)


def test_a_schema_keeps_its_edge_keys_and_older_releases_refuse_it(graph: Graph, plain: Graph) -> None:
    catalog = graph.schema.catalog()
    stored = json.loads(catalog.to_json())

    assert Catalog.from_json(catalog.to_json()) == catalog
    assert (stored["format"], stored["edges"][0]["key"]) == (2, ["src", "dst"])
    assert json.loads(plain.schema.catalog().to_json())["format"] == 1
    assert catalog.declaration_digest != plain.schema.catalog().declaration_digest


def test_a_diagram_shows_the_key(tmp_path: Path) -> None:
    schema = ENDS + "edge Rates: P -> Film { day: Date  stars: I32  @key(src, dst, day) }"
    with made(tmp_path, schema) as graph:
        assert ": Rates key [day key, stars]" in graph.schema.diagram()


def test_a_unique_constraint_over_the_key_asks_nothing(plain: Graph) -> None:
    unique = SCHEMA.replace("@key(src, dst)", "@key(src, dst)  @unique(dst, src)")
    plain.load([rating(3)], mode="append")

    plan = plain.schema.plan(unique)
    catalog = resolve_text(unique, None, IdMinter("x")).catalog
    declared = catalog.edge("Rates")
    row = {"id": UP, "src": "Ada", "dst": "Up", "stars": 1, "note": None}
    rows = pa.Table.from_pylist([row], declared.stored_schema)

    assert [(step.to_json()["kind"], step.effect.value) for step in plan.steps] == [
        ("add_key", "rewrite"),
        ("add_constraint", "metadata"),
    ]
    asked = {question.order for question in questions(ChangeSet.of(catalog, [TypeChange(declared, rows)]))}
    assert asked == {("edge", "side", "node")}


def test_lint_says_what_a_key_does_to_ids(plain: Graph, graph: Graph) -> None:
    assert [finding.code for finding in plain.schema.lint(SCHEMA)] == ["OG-ED-103"]
    assert [finding.code for finding in graph.schema.lint(PLAIN)] == ["OG-CD-101"]


def test_the_command_line_dedupes(plain: Graph, tmp_path: Path) -> None:
    for number in range(2):
        plain.load([rating(3, id=f"e{number}")], mode="append")
    (tmp_path / "new.pg").write_text(SCHEMA)
    call = ["schema", "apply", plain.uri, "--schema", str(tmp_path / "new.pg"), "--as", "ada"]

    refused = run_json(*call)
    status, done = run_json(*call, "--dedupe", "equal")

    assert (refused[0], "OG-ED-102" in str(refused[1])) == (1, True)
    assert (status, done["steps"][0]["key"]) == (0, ["src", "dst"])
    assert rated(plain) == [(UP, 3, None)]
