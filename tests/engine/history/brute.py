"""Brute: a diff by reading both states whole, to hold the real one against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph import Graph
from omnigraph.engine.history.changes import Change

Rows = Mapping[str, dict[str, Any]]
Key = tuple[str, str]  # type name, entity id


def rows_at(graph: Graph, at: str, names: tuple[str, ...], branch: str = "main") -> dict[Key, dict[str, Any]]:
    """Return every entity of some types at a commit."""
    catalog = graph.schema.catalog(branch)
    found = {}
    for name in names:
        view = graph.nodes if catalog.find_node(name) else graph.edges
        for row in view(name, branch=branch, at=at).to_arrow().to_pylist():
            found[name, row["id"]] = row
    return found


def brute_diff(
    before: Mapping[Key, dict[str, Any]], after: Mapping[Key, dict[str, Any]]
) -> dict[Key, tuple[str, tuple[str, ...]]]:
    """Return what happened to each entity: the operation, and the fields that an update changed."""
    found: dict[Key, tuple[str, tuple[str, ...]]] = {}
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if old is None or new is None:
            found[key] = ("insert" if old is None else "delete", ())
            continue
        fields = tuple(sorted(_shown(name) for name in new if old[name] != new[name]))
        if fields:
            found[key] = ("update", fields)
    return found


def as_brute(changes: list[Change]) -> dict[Key, tuple[str, tuple[str, ...]]]:
    """Return changes in the same form."""
    found = {(one.type_name, one.id): (one.op.value, one.fields) for one in changes}
    assert len(found) == len(changes), "an entity is told twice"
    return found


def in_order(changes: list[Change]) -> bool:
    """Say whether changes come in the order of the contract."""
    places = [(one.kind == "edge", one.type_id, one.id) for one in changes]
    return places == sorted(places)


def _shown(column: str) -> str:
    return {"src": "from", "dst": "to"}.get(column, column)
