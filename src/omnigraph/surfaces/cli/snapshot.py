"""Snapshot: which commit a branch is at, and how much each type holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from omnigraph.storage.manifest.records import FORMAT, Pin
from omnigraph.storage.snapshot import PinnedSnapshot
from omnigraph.surfaces.cli.frame import Address, GraphUri, call_of

KINDS = ("node", "edge")


def snapshot(ctx: typer.Context, address: Address = None, graph_uri: GraphUri = None) -> None:
    """Show the commit at the head of a branch, and the number of entities of each type."""
    call = call_of(ctx)
    with call.connect(address, graph_uri) as graph:
        found = graph.store.snapshot(call.settings.branch)
    pins = sorted(found.state.pins.values(), key=lambda pin: (KINDS.index(pin.kind), pin.name))
    call.output.result(_document(found, pins), *_lines(found, pins))


def _document(found: PinnedSnapshot, pins: list[Pin]) -> dict[str, Any]:
    return {
        "graph_branch": found.branch,
        "graph_manifest_version": found.state.version,
        "internal_schema_version": FORMAT,
        "graph_commit_id": found.commit_id,
        "datasets": [
            {
                "entity_kind": pin.kind,
                "type_name": pin.name,
                "entity_count": pin.rows,
                "published_dataset_version": str(pin.version),  # beyond what JSON readers keep exactly
            }
            for pin in pins
        ],
    }


def _lines(found: PinnedSnapshot, pins: list[Pin]) -> Iterator[str]:
    yield f"branch {found.branch}, version {found.state.version}, commit {found.commit_id}"
    width = max((len(pin.name) for pin in pins), default=0)
    for pin in pins:
        yield f"  {pin.kind} {pin.name:<{width}}  {pin.rows}"
