"""Example projects written for the reference: their schema, seed data and mutations work unchanged."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.catalog.catalog import Catalog
from omnigraph.language.query import QuerySyntax, parse_query
from omnigraph.language.query.tree import InsertSyntax, VarSyntax, WriteSyntax
from tests.support.desk import Desk

EXAMPLES = Path(__file__).resolve().parents[3] / "shared" / "examples"  # beside the project
PROJECTS = sorted(path.parent for path in EXAMPLES.glob("*/seed.jsonl"))
pytestmark = pytest.mark.skipif(not PROJECTS, reason="the example projects are not on this machine")


@pytest.fixture(params=PROJECTS, ids=lambda path: path.name)
def project(desk: Desk, request: pytest.FixtureRequest) -> Path:
    """A working copy of an example, with its project file."""
    shutil.copytree(request.param, desk.folder, dirs_exist_ok=True)
    assert desk.run("init", "graphs/it.omni", "--schema", "schema.pg").code == 0
    return desk.folder


def seed(project: Path) -> list[dict[str, Any]]:
    lines = (project / "seed.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def seed_counts(project: Path) -> Counter[tuple[str, str]]:
    return Counter(("node", one["type"]) if "type" in one else ("edge", one["edge"]) for one in seed(project))


@pytest.mark.parametrize("mode", ["overwrite", "merge", "append"])
def test_the_seed_loads_unchanged(desk: Desk, project: Path, mode: str) -> None:
    document = desk.run("load", "--data", "seed.jsonl", "--mode", mode, "graphs/it.omni", "--json").document

    wanted = seed_counts(project)
    loaded = {("node", one["name"]): one["entities_loaded"] for one in document["nodes"]}
    loaded |= {("edge", one["name"]): one["entities_loaded"] for one in document["edges"]}
    assert loaded == wanted
    with og.connect(project / "graphs" / "it.omni") as graph:
        for (kind, name), count in wanted.items():
            table = graph.nodes(name) if kind == "node" else graph.edges(name)
            assert table.to_arrow().num_rows == count


def test_the_seed_loads_again_by_overwrite_but_not_by_append(desk: Desk, project: Path) -> None:
    line = ("load", "--data", "seed.jsonl", "graphs/it.omni", "--mode")
    assert [desk.run(*line, mode).code for mode in ("append", "overwrite", "append")] == [0, 0, 5]


@pytest.mark.slow
def test_every_mutation_runs_with_values_like_those_of_the_seed(desk: Desk, project: Path) -> None:
    desk.run("load", "--data", "seed.jsonl", "--mode", "overwrite", "graphs/it.omni")
    with og.connect(project / "graphs" / "it.omni") as graph:
        catalog = graph.schema.catalog()
    outcomes: Counter[str] = Counter()
    for file, query in mutations(project):
        params = json.dumps(values_for(query, seed(project), catalog))
        flags = ("--query", file, "--params", params, "--json")  # by name alone: the project file has roots
        document = desk.run("mutate", "graphs/it.omni", query.name.text, *flags).document
        if "code" not in document:
            outcomes["changed"] += 1
            assert document["affected_nodes"] + document["affected_edges"] == 1
            continue
        found = {one["code"] for one in document["details"]["violations"]}
        assert found <= {"cardinality", "unique"}, "the seed has such an edge already"
        outcomes["refused"] += 1
    assert outcomes["changed"] >= 20
    assert outcomes.total() >= 31


def mutations(project: Path) -> Iterator[tuple[str, QuerySyntax]]:
    for file in sorted((project / "queries").glob("*.gq")):
        for query in parse_query(file.read_text(), file=file.name).queries:
            if query.mutation:
                yield file.name, query


def values_for(query: QuerySyntax, records: Sequence[Mapping[str, Any]], catalog: Catalog) -> dict[str, Any]:
    """Return parameters for an insert: the data of a node of the seed, or two nodes that an edge may join."""
    assert isinstance(query.body, WriteSyntax)
    (statement,) = query.body.statements
    assert isinstance(statement, InsertSyntax)
    node = catalog.find_node(statement.type.text)
    if node is not None:
        data = next(record["data"] for record in records if record.get("type") == node.name)
    else:
        edge = catalog.edge(statement.type.text)
        ends = {"from": catalog.table(edge.source).name, "to": catalog.table(edge.target).name}
        ids = {end: next(r for r in records if r.get("type") == name) for end, name in ends.items()}
        data = {end: record["data"]["slug"] for end, record in ids.items()}
    named = {one.name.text: one.value.name for one in statement.fields if isinstance(one.value, VarSyntax)}
    return {parameter: data.get(name, "other") for name, parameter in named.items()}
