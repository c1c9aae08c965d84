"""Everything that a graph tells of itself, as a value: to compare a copy with its original.

Room    test support. Also imported by spawned processes: no pytest here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.export.export import export_lines
from omnigraph.storage.location import Location

Told = dict[str, Any]


def told(graph: Graph) -> Told:
    """Return branches with their counts, tags, and of each branch every commit, its rows and its changes."""
    branches = graph.branches.list(counts=True)
    return {
        "branches": branches,
        "tags": graph.tags.list(),
        "history": {branch.name: list(_history(graph, branch.name)) for branch in branches},
        "diff": {branch.name: list(graph.diff(branch.name, "main")) for branch in branches},
        "feed": {
            branch.name: graph.changes(branch=branch.name, start="beginning").to_json() for branch in branches
        },
    }


def _history(graph: Graph, branch: str) -> Iterator[tuple[Any, ...]]:
    for commit in graph.commits.list(branch=branch, limit=1000):
        yield commit, digest_at(graph, branch, commit.id)


def digest_at(graph: Graph, branch: str, commit_id: str | None = None) -> str:
    """Return what tells the exported bytes of one state from any other."""
    lines = b"".join(export_lines(graph.store, branch=branch, at=commit_id))
    return hashlib.sha256(lines).hexdigest()


def stored(address: str, options: dict[str, str] | None = None) -> dict[str, bytes]:
    """Return every stored file, without Lance's hints at the newest version, which only local disk has."""
    objects = Location.parse(address, options or {}).objects
    return {
        key: objects.read(key) or b"" for key, _ in objects.list() if not key.endswith("_version_hint.json")
    }


def write_on(address: str, name: str, commits: int, options: dict[str, str] | None = None) -> int:
    """Write on main and on branches: loads, forks, merges, deletes and tags; return how many times."""
    with og.connect(address, durability="os", storage_options=options) as graph:
        for n in range(commits):
            branch = f"{name}{n // 5}"
            graph.branches.create(branch) if n % 5 == 0 else None
            graph.load([_person(f"{name}{n}")], mode="merge", branch=branch)
            graph.load([_person(f"{name} main {n}")], mode="merge")
            if n % 5 == 2:
                graph.merge("main", branch)
            if n % 5 == 4:
                graph.merge(branch)
                if n % 2:
                    graph.branches.delete(branch)
            if n % 7 == 3:
                graph.tags.create(f"tag {name}{n}")
    return commits


def _person(name: str) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, "age": len(name)}}
