"""`snapshot`: where a branch is, and how much it holds."""

from __future__ import annotations

import omnigraph as og
from omnigraph.storage.manifest.formats import FORMAT
from tests.support.desk import Desk


def test_people_get_the_branch_and_a_line_for_each_type(desk: Desk) -> None:
    with og.connect(desk.started()) as graph:
        found = graph.store.snapshot()
    ran = desk.run("snapshot", desk.graph)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        f"branch main, version {found.state.version}, commit {found.commit_id}",
        "  node Person  1",
        "  edge Knows   0",
    ]


def test_scripts_get_the_same_as_a_document(desk: Desk) -> None:
    with og.connect(desk.started()) as graph:
        found = graph.store.snapshot()
    versions = {pin.name: str(pin.version) for pin in found.state.pins.values()}
    assert desk.run("snapshot", desk.graph, "--json").document == {
        "graph_branch": "main",
        "graph_manifest_version": found.state.version,
        "internal_schema_version": FORMAT,
        "graph_commit_id": found.commit_id,
        "datasets": [
            {
                "entity_kind": kind,
                "type_name": name,
                "entity_count": count,
                "published_dataset_version": versions[name],
            }
            for kind, name, count in (("node", "Person", 1), ("edge", "Knows", 0))
        ],
    }


def test_a_branch_is_shown_on_demand(desk: Desk) -> None:
    with og.connect(desk.started()) as graph:
        graph.store.branches.create("review", "main")
        graph.mutate('query q() { insert Person { slug: "b" } }', branch="review")
    assert "node Person  2" in desk.run("snapshot", desk.graph, "--branch", "review").out
    assert "node Person  1" in desk.run("snapshot", "-g", desk.graph).out
    assert desk.run("snapshot", desk.graph, "--branch", "nope").code == 6


def test_a_missing_graph_is_no_success_and_says_why(desk: Desk) -> None:
    ran = desk.run("snapshot", desk.graph, "--json")
    assert ran.code == 6
    assert ran.document["kind"] == "not_found"
    assert "kb.og" in ran.err
