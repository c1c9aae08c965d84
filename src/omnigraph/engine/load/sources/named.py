"""Named: the type that a caller or a file name means.

Room    engine.load.sources. Node types by their exact name, edge types ignoring case, as in data files.
"""

from __future__ import annotations

from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.catalog import Catalog, UnknownType
from omnigraph.catalog.model import TableType
from omnigraph.language.suggest import did_you_mean


def named_type(catalog: Catalog, name: str) -> TableType:
    """Return the type of a name; `node:Name` or `edge:Name` where both exist."""
    kind, _, bare = name.rpartition(":")
    node = catalog.find_node(bare) if kind in ("", "node") else None
    edge = catalog.find_edge(bare) if kind in ("", "edge") else None
    if node is not None and edge is not None:
        raise InvalidRequest(
            f"{name!r} is both a node type and an edge type",
            remedy=f"Write type='node:{name}' or type='edge:{name}'",
            type=name,
        )
    found = node or edge
    if found is None:
        raise UnknownType(
            f"the schema has no type {name!r}",
            remedy=did_you_mean(bare, [t.name for t in catalog.tables]),
            name=name,
        )
    return found
