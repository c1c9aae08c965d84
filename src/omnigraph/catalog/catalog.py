"""Catalog: the whole schema of a branch as one immutable value.

    text -> tree -> checked schema -> **catalog**

Looked up by name or id on every read and write; stored whole, addressed by its content. Made by resolve.py,
or read from the bytes that `to_json` wrote.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeVar

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import IntegrityError, InvalidRequest, TypeNotFound
from omnigraph.catalog import encode
from omnigraph.catalog.encode import dumps
from omnigraph.catalog.model import AnyType, EdgeType, IndexIntent, InterfaceType, NodeType, TableType
from omnigraph.catalog.types import PropertyType
from omnigraph.language.diagnostics import did_you_mean

FORMAT = 1
EDGE_KEYS = 2  # the format of a schema with keyed edges, whose ids programs that know only 1 would not derive
_KINDS = ("node", "edge")
_SPELLINGS = "Write it as 'P', or as 'node:P' or 'edge:P' where a node type and an edge type share a name"


@dataclass(frozen=True)
class Catalog:
    """A whole schema, each kind sorted by name, with the text that it was accepted from."""

    interfaces: tuple[InterfaceType, ...] = ()
    nodes: tuple[NodeType, ...] = ()
    edges: tuple[EdgeType, ...] = ()
    source: str = ""

    @cached_property
    def _nodes(self) -> dict[str, NodeType]:
        return {t.name: t for t in self.nodes}

    @cached_property
    def _edges(self) -> dict[str, EdgeType]:
        return {t.name.casefold(): t for t in self.edges}

    @cached_property
    def _interfaces(self) -> dict[str, InterfaceType]:
        return {t.name: t for t in self.interfaces}

    @cached_property
    def by_id(self) -> Mapping[str, AnyType]:
        """The declarations by id."""
        return {t.id: t for t in self.types}

    @cached_property
    def _any_ids(self) -> dict[str, AnyType]:
        return {identity: t for t in self.types for identity in t.ids} | dict(self.by_id)

    @property
    def types(self) -> tuple[AnyType, ...]:
        """All declarations: interfaces, nodes, edges, each by name."""
        return (*self.interfaces, *self.nodes, *self.edges)

    def node(self, name: str) -> NodeType:
        """Return the node type of a name."""
        return _found(self._nodes.get(name), "node type", name)

    def edge(self, name: str) -> EdgeType:
        """Return the edge type of a name, ignoring case: queries write `worksAt` for `WorksAt`."""
        return _found(self._edges.get(name.casefold()), "edge type", name)

    def interface(self, name: str) -> InterfaceType:
        """Return the interface of a name."""
        return _found(self._interfaces.get(name), "interface", name)

    def find_node(self, name: str) -> NodeType | None:
        """Return the node type of a name, or None."""
        return self._nodes.get(name)

    def find_edge(self, name: str) -> EdgeType | None:
        """Return the edge type of a name, ignoring case, or None."""
        return self._edges.get(name.casefold())

    def find_interface(self, name: str) -> InterfaceType | None:
        """Return the interface of a name, or None."""
        return self._interfaces.get(name)

    def find_table(self, name: str, kind: str | None = None) -> TableType | None:
        """Return the type that a caller means, or None.

        A name is `P`, or `node:P` and `edge:P` where a node type and an edge type share it; node types have
        their exact name, edge types ignore case. Where the caller says elsewhere which `kind` is meant, that
        decides.
        """
        if not isinstance(name, str):
            raise InvalidRequest(f"a type is named by text, not by {name!r}", remedy=_SPELLINGS)
        prefix, colon, bare = name.rpartition(":")
        if colon and prefix not in _KINDS:
            return None
        node = self.find_node(bare) if prefix in ("", "node") else None
        edge = self.find_edge(bare) if prefix in ("", "edge") else None
        if node is None or edge is None:
            return node or edge
        if kind in _KINDS:
            return node if kind == "node" else edge
        raise InvalidRequest(
            f"{name!r} is both a node type and an edge type",
            remedy=f"Write 'node:{name}' or 'edge:{name}'",
            type=name,
        )

    def named(self, name: str, kind: str | None = None) -> TableType:
        """Return the type that a caller means: every surface that takes the name of a type asks here."""
        declared = self.find_table(name, kind)
        if declared is None:
            hint = did_you_mean(name.rpartition(":")[2], [t.name for t in self.tables])
            raise UnknownType(f"the schema has no type {name!r}", remedy=hint, name=name)
        return declared

    @property
    def tables(self) -> tuple[TableType, ...]:
        """All types that have a table: nodes, then edges, by name."""
        tables: list[TableType] = [*self.nodes, *self.edges]
        return tuple(tables)

    def table(self, identity: str) -> TableType:
        """Return the type whose table has this id."""
        declared = self.by_id.get(identity)
        if isinstance(declared, NodeType | EdgeType):
            return declared
        raise UnknownType(f"the schema has no table {identity!r}", name=identity)

    def same_type(self, declared: AnyType) -> AnyType | None:
        """Return the type here that a type of another schema is: by its id, or one unified with it."""
        return next((self._any_ids[i] for i in declared.ids if i in self._any_ids), None)

    def same_table(self, declared: TableType) -> TableType | None:
        """Return the node or edge type here that a type of another schema is."""
        mine = self.same_type(declared)
        return mine if isinstance(mine, NodeType | EdgeType) else None

    def edges_from(self, node_id: str) -> tuple[EdgeType, ...]:
        """Return the edge types that leave a node type."""
        return tuple(e for e in self.edges if e.source == node_id)

    def edges_to(self, node_id: str) -> tuple[EdgeType, ...]:
        """Return the edge types that reach a node type."""
        return tuple(e for e in self.edges if e.target == node_id)

    @cached_property
    def index_intents(self) -> tuple[IndexIntent, ...]:
        """All indexes that the schema asks for."""
        return tuple(intent for table in self.tables for intent in table.index_intents)

    # -- bytes and hashes ----------------------------------------------------------------------------

    def to_json(self) -> bytes:
        """Return the stored form: ids, columns and source text included. Equal catalogs, equal bytes."""
        return dumps(self._stored)

    @property
    def _stored(self) -> dict[str, Any]:
        return {
            "format": EDGE_KEYS if any(edge.key for edge in self.edges) else FORMAT,
            "source": self.source,
            "interfaces": [encode.interface(t) for t in self.interfaces],
            "nodes": [encode.node(t) for t in self.nodes],
            "edges": [encode.edge(t) for t in self.edges],
        }

    @classmethod
    def from_json(cls, content: bytes) -> Catalog:
        """Read what `to_json` wrote."""
        try:
            value = json.loads(content)
            if value["format"] not in (FORMAT, EDGE_KEYS):
                raise ValueError(f"format {value['format']!r}")
            return cls(
                tuple(encode.read_interface(t) for t in value["interfaces"]),
                tuple(encode.read_node(t) for t in value["nodes"]),
                tuple(encode.read_edge(t) for t in value["edges"]),
                value["source"],
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise IntegrityError(
                f"the stored schema cannot be read: {error}",
                remedy="Restore the schema object from a copy of the graph",
            ) from error

    @cached_property
    def identity(self) -> str:
        """`sha256:<hex>` of the stored form without the text: what fits one schema fits the other.

        Ids and columns are in it, so a type that was dropped and made again, or two names that were
        exchanged, make another identity.
        """
        return _sha256({key: part for key, part in self._stored.items() if key != "source"})

    @cached_property
    def declaration_digest(self) -> str:
        """`sha256:<hex>` of what the text declares; two schemas with one digest plan to zero steps.

        It has names instead of ids and everything sorted: order, layout, comments and `@rename_from` do
        not enter it. Schemas that declare the same may keep it in other tables: see `identity`.
        """
        form = {
            "interfaces": [self.declaration(t) for t in self.interfaces],
            "nodes": [self.declaration(t) for t in self.nodes],
            "edges": [self.declaration(t) for t in self.edges],
        }
        return _sha256(form)

    def declaration(self, declared: AnyType) -> dict[str, Any]:
        """Return what the text says of one type: names instead of ids, and everything sorted."""
        names = {identity: known.name for identity, known in self.by_id.items()}
        match declared:
            case InterfaceType():
                return encode.canonical_interface(declared)
            case NodeType():
                return encode.canonical_node(declared, names)
            case EdgeType():
                return encode.canonical_edge(declared, names)

    def declares_alike(self, declared: TableType, other: Catalog, there: TableType) -> bool:
        """Say whether one record of a type means the same row under two schemas, wherever they keep it."""
        keyed = [(declared.id, there.id)]
        if isinstance(declared, EdgeType) and isinstance(there, EdgeType):
            keyed += [(declared.source, there.source), (declared.target, there.target)]
        if self.declaration(declared) != other.declaration(there):
            return False
        return all(self._key(mine) == other._key(theirs) for mine, theirs in keyed)

    def _key(self, type_id: str) -> list[tuple[str, PropertyType]]:
        """Return what the ids of a type are made of, in order."""
        return [(member.name, member.type) for member in self.table(type_id).key_members]


class UnknownType(TypeNotFound):
    """The schema has no declaration of this name."""


def _sha256(form: dict[str, Any]) -> str:
    return f"sha256:{hashlib.sha256(dumps(form)).hexdigest()}"


T = TypeVar("T")


def _found(value: T | None, what: str, name: str) -> T:
    if value is None:
        raise UnknownType(f"the schema has no {what} {name!r}", name=name)
    return value
