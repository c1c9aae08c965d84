"""Operation: what a checked query returns, reads and writes, for machines (query spec 16.1).

Room    catalog.query. Authorisation, lint and catalogs of stored queries look here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType, NodeType, TableType
from omnigraph.catalog.query.columns import Column


@dataclass(frozen=True, slots=True)
class Operation:
    """Result columns, and the types read and written: nodes before edges, each kind by name."""

    result: tuple[Column, ...]
    reads: tuple[TableType, ...]
    writes: tuple[TableType, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the description as plain JSON values."""
        return {
            "result": [column.to_json() for column in self.result],
            "reads": [_type_json(declared) for declared in self.reads],
            "writes": [_type_json(declared) for declared in self.writes],
        }


def _type_json(declared: TableType) -> dict[str, str]:
    return {"kind": declared.kind.value, "type_name": declared.name}


def in_order(types: Iterable[TableType]) -> tuple[TableType, ...]:
    """Return types once each, nodes before edges, by name."""
    distinct = {declared.id: declared for declared in types}
    return tuple(sorted(distinct.values(), key=lambda t: (isinstance(t, EdgeType), t.name)))


def endpoints(edge: EdgeType, catalog: Catalog) -> tuple[NodeType, NodeType]:
    """Return the source and target types of an edge."""
    found = tuple(catalog.table(identity) for identity in (edge.source, edge.target))
    source, target = (declared for declared in found if isinstance(declared, NodeType))
    return source, target


def touching(node: NodeType, catalog: Catalog) -> tuple[EdgeType, ...]:
    """Return the edge types that a node of this type may be an end of."""
    return tuple(edge for edge in catalog.edges if node.id in (edge.source, edge.target))
