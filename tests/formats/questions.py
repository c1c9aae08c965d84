"""Questions to a stored graph and its answers, as JSON: what a graph said when it was written must stay so.

A question is a call and its arguments. Answers hold no type that JSON lacks; a moment is
        a number of milliseconds, and a refusal is its code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa

import omnigraph as og
from omnigraph import Graph
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import NodeType, TableType

Question = dict[str, Any]  # "call", and the arguments by name
SEARCHES = {
    "words": 'match { $d: Document search($d.text, "lakes") } return { $d.slug }',
    "score": 'match { $d: Document } return { $d.slug } order { bm25($d.text, "lake forest") }',
    "place": "match { $d: Document } return { $d.slug } order { nearest($d.place, $v) } limit 3",
    "key": 'match { $d: Document { slug: "d3" } } return { $d.slug, $d.pages }',
    "cites": "match { $d: Document $d cites $e } return { $d.slug, $e.slug }",
}


def questions(graph: Graph) -> Iterator[Question]:
    """Yield everything that is worth asking: each branch, each commit, each tag, and the ways between."""
    yield {"call": "branches"}
    yield {"call": "tags"}
    branches = [branch.name for branch in graph.branches.list()]
    commits: dict[str, None] = {}  # in order
    for branch in branches:
        yield {"call": "commits", "branch": branch}
        yield from _heads(graph, branch)
        line = [commit.id for commit in graph.commits.list(branch, limit=200)]
        commits |= dict.fromkeys(line)
        for newer, older in pairwise(line):
            yield {"call": "diff", "a": older, "b": newer}
        yield from ({"call": "diff", "a": branch, "b": other} for other in branches if other != branch)
    yield {"call": "feed", "branch": "main"}
    for moment in [*commits, *(tag.name for tag in graph.tags.list())]:
        yield {"call": "schema", "branch": "main", "at": moment}
        for catalog in (graph.schema.catalog(at=moment), graph.schema.catalog()):  # names of then, and of now
            yield from (_everything(catalog, declared, at=moment) for declared in catalog.tables)
    yield from _past(graph.schema.catalog(), [tag.name for tag in graph.tags.list()])


def _heads(graph: Graph, branch: str) -> Iterator[Question]:
    yield {"call": "schema", "branch": branch}
    catalog = graph.schema.catalog(branch)
    for declared in catalog.tables:
        call = "nodes" if isinstance(declared, NodeType) else "edges"
        yield {"call": call, "name": declared.name, "branch": branch}
        yield _everything(catalog, declared, branch=branch)
    for body in SEARCHES.values():
        yield {"call": "query", "gq": f"query q($v: Vector(2)) {{ {body} }}", "branch": branch, "v": [1, 0]}
    for slug in ("d1", "d2", "d3"):
        yield {"call": "entity", "type": "Document", "id": slug, "branch": branch}


def _past(current: Catalog, tags: list[str]) -> Iterator[Question]:
    """Earlier states under the names of now."""
    for tag in tags:
        yield from ({"call": "nodes", "name": declared.name, "at": tag} for declared in current.nodes)
        yield from ({"call": "edges", "name": declared.name, "at": tag} for declared in current.edges)


def _everything(catalog: Catalog, declared: TableType, **where: Any) -> Question:
    """All values of all nodes of a type; of edges, what they join."""
    if isinstance(declared, NodeType):
        clause = f"$x: {declared.name}"
        shown = [f"$x.{p.name}" for p in declared.properties]
    else:
        source, target = catalog.table(declared.source), catalog.table(declared.target)
        clause = f"$a: {source.name} $a {declared.name[0].lower()}{declared.name[1:]} $b"
        shown = [f"$a.{source.properties[-1].name} as source", f"$b.{target.properties[-1].name} as target"]
    gq = f"query q() {{ match {{ {clause} }} return {{ {', '.join(shown)} }} }}"
    return {"call": "query", "gq": gq, **where}


def answer(graph: Graph, question: Question) -> Any:
    """Return what a graph says today."""
    given = {name: value for name, value in question.items() if name != "call"}
    try:
        return json.loads(json.dumps(_answer(graph, question["call"], given)))
    except og.GraphError as error:
        return {"refused": error.code}


def is_refusal(answered: Any) -> bool:
    """Say whether a question was not answered: under the names of then, or by a call that fails."""
    return isinstance(answered, dict) and "refused" in answered


def _answer(graph: Graph, call: str, given: dict[str, Any]) -> Any:
    match call:
        case "branches":
            return [branch.to_json() for branch in graph.branches.list(counts=True)]
        case "tags":
            return [tag.to_json() for tag in graph.tags.list()]
        case "commits":
            line = graph.commits.list(**given, limit=200)
            return [[c.id, c.parent, c.merged_parent, c.kind.value, c.actor, c.message] for c in line]
        case "schema":
            return graph.schema.show(**given)
        case "nodes":
            return _rows(graph.nodes(**given).to_arrow())
        case "edges":
            return _rows(graph.edges(**given).to_arrow())
        case "query":
            return _rows(graph.query(given.pop("gq"), **given).to_arrow())
        case "entity":
            branch = given.pop("branch")
            entity = graph.entity(**given)
            return [entity.get(branch=branch), entity.history(branch=branch).to_json()]
        case "diff":
            return graph.diff(**given).to_json()
        case "feed":
            page = graph.changes.poll(**given, start="beginning", limit=8_000)
            return [block.to_json() for block in page.blocks]
    raise ValueError(call)


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    for number, column in enumerate(table.columns):
        if pa.types.is_temporal(column.type):
            stored = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
            table = table.set_column(number, table.schema.names[number], column.cast(stored))
    return list(table.to_pylist())
