"""Receipt: what a write did, as every surface reports it.

Room    engine. A value made from the record that was published, never from a later look at the head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType
from omnigraph.storage import transaction
from omnigraph.storage.cost import Cost
from omnigraph.storage.manifest.records import CommitRecord


@dataclass(frozen=True, slots=True)
class TypeCount:
    """What happened to the entities of one type."""

    name: str
    kind: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    given: int | None = None  # the records of a load's input; of several with one id only the last is written

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        loaded = {} if self.given is None else {"entities_loaded": self.given}
        counts = {"inserted": self.inserted, "updated": self.updated, "deleted": self.deleted}
        return {"name": self.name, **loaded, **counts}


@dataclass(frozen=True)
class Receipt:
    """What a write did. `commit` is None when there was nothing to do."""

    branch: str
    commit: CommitRecord | None
    types: tuple[TypeCount, ...] = ()
    affected_nodes: int = 0
    affected_edges: int = 0
    query_name: str | None = None
    replayed: bool = False  # an earlier call with the same idempotency key did it
    dry_run: bool = False
    attempts: int = 1
    warnings: tuple[str, ...] = ()
    cost: Cost = field(default_factory=Cost)
    facts: Mapping[str, Any] = FrozenMap()  # what only one kind of write has to say

    @property
    def commit_id(self) -> str | None:
        """The id of the commit, if one was made."""
        return None if self.commit is None else self.commit.id

    @property
    def parents(self) -> tuple[str, ...]:
        """The commits that the new one stands on."""
        if self.commit is None:
            return ()
        return tuple(p for p in (self.commit.parent, self.commit.merged_parent) if p is not None)

    @property
    def actor(self) -> str | None:
        """Who did it."""
        return None if self.commit is None else self.commit.actor

    @property
    def nodes(self) -> tuple[TypeCount, ...]:
        """What happened to nodes, by type name."""
        return tuple(count for count in self.types if count.kind == "node")

    @property
    def edges(self) -> tuple[TypeCount, ...]:
        """What happened to edges, by type name."""
        return tuple(count for count in self.types if count.kind == "edge")

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        shown: dict[str, Any] = {
            "branch": self.branch,
            "query_name": self.query_name,
            "affected_nodes": self.affected_nodes,
            "affected_edges": self.affected_edges,
            "nodes": [count.to_json() for count in self.nodes],
            "edges": [count.to_json() for count in self.edges],
            "actor_id": self.actor,
            "commit": commit_json(self.commit),
            "replayed": self.replayed,
            "dry_run": self.dry_run,
            "warnings": list(self.warnings),
            "cost": cost_json(self.cost),
            **self.facts,
        }
        return {key: value for key, value in shown.items() if key != "query_name" or value is not None}


# What a commit under an idempotency key remembers, so that a repetition gets the first receipt.
KEY, QUERY, NODES, EDGES = "idempotency_key", "query_name", "affected_nodes", "affected_edges"


def replayed(branch: str, done: transaction.Receipt, catalog: Catalog) -> Receipt:
    """Return the receipt of the call that made a commit, for another call under its idempotency key."""
    labels = {} if done.commit is None else done.commit.labels
    return Receipt(
        branch=branch,
        commit=done.commit,
        types=counts_of(done, catalog),
        affected_nodes=int(labels.get(NODES, 0)),
        affected_edges=int(labels.get(EDGES, 0)),
        query_name=labels.get(QUERY) or None,
        replayed=True,
    )


def cost_json(cost: Cost) -> dict[str, Any]:
    """Return a cost in its public shape."""
    return {
        "requests": cost.requests,
        "stages": cost.stages,
        "bytes_read": cost.bytes_read,
        "bytes_written": cost.bytes_written,
    }


def commit_json(commit: CommitRecord | None) -> dict[str, Any] | None:
    """Return a commit in its public shape; the versions of tables stay inside."""
    if commit is None:
        return None
    key = commit.labels.get(KEY)
    return {
        "graph_commit_id": commit.id,
        "graph_branch": commit.branch,
        "graph_manifest_version": commit.manifest_version,
        "parent_commit_id": commit.parent,
        "merged_parent_commit_id": commit.merged_parent,
        "kind": commit.kind.value,
        "actor_id": commit.actor,
        "created_at": commit.authored_at_us,
        "message": commit.message,
        **({} if key is None else {KEY: key}),
    }


def counts_of(done: transaction.Receipt, catalog: Catalog) -> tuple[TypeCount, ...]:
    """Return the counts of a publish, nodes before edges, by name."""
    found = []
    for change in done.tables:
        declared = catalog.by_id(change.table_id)
        kind = "edge" if isinstance(declared, EdgeType) else "node"
        found.append(TypeCount(change.name, kind, change.inserted, change.updated, change.deleted))
    return tuple(sorted(found, key=lambda count: (count.kind == "edge", count.name)))
