"""Init: make a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph.engine.graph import init as make
from omnigraph.engine.schema.door import load_schema
from omnigraph.storage.diagnose import check_free
from omnigraph.storage.location import Location
from omnigraph.surfaces.cli.frame import Address, GraphUri, call_of


def init(
    ctx: typer.Context,
    schema: Annotated[Path, typer.Option("--schema", help="The schema file (.pg).")],
    address: Address = None,
    graph_uri: GraphUri = None,
    force: Annotated[bool, typer.Option("--force", help="Clear what a failed init left behind.")] = False,
) -> None:
    """Make an empty graph with a schema."""
    call = call_of(ctx)
    where = call.settings.address(address, graph_uri)
    if call.settings.dry_run:
        load_schema(schema)
        check_free(Location.parse(where), force=force)
        call.output.result(
            {"uri": where, "dry_run": True}, f"the schema is fine; nothing was made at {where}"
        )
        return
    call.output.target("init", where)
    with make(where, schema, actor=call.settings.actor, force=force) as graph:
        catalog = graph.schema.catalog()
        nodes, edges = [t.name for t in catalog.nodes], [t.name for t in catalog.edges]
        call.output.result(
            {
                "uri": graph.uri,
                "graph_commit_id": graph.store.snapshot().commit_id,
                "node_types": nodes,
                "edge_types": edges,
            },
            f"initialized {graph.uri}",
            f"  {len(nodes)} node types, {len(edges)} edge types",
        )
