"""Receipt: what a write did, as every surface reports it.

A value made from the record that was published, never from a later look at the head.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import counted
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType
from omnigraph.engine.change import Catalogs
from omnigraph.storage import transaction
from omnigraph.storage.claims import Claims
from omnigraph.storage.cost import Cost
from omnigraph.storage.manifest.records import CommitRecord
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot


@dataclass(frozen=True, slots=True)
class TypeCount:
    """What happened to the entities of one type.

    Of a load, `given` says how many records there were of the type: each of them was inserted or updated
    something, was rejected, or left everything `unchanged` because a later record has the same id.
    """

    name: str
    kind: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    given: int | None = None  # the records of a load's input
    unchanged: int = 0
    rejected: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        counts = {"inserted": self.inserted, "updated": self.updated, "deleted": self.deleted}
        if self.given is None:
            return {"name": self.name, **counts}
        rest = {"unchanged": self.unchanged, "rejected": self.rejected}
        return {"name": self.name, "entities_loaded": self.given, **counts, **rest}


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

    def __repr__(self) -> str:
        outcome = "dry run" if self.dry_run else self.commit_id or "nothing to do"
        again = ", replayed" if self.replayed else ""
        counts = f"{counted(self.affected_nodes, 'node')}, {counted(self.affected_edges, 'edge')}"
        return f"Receipt({outcome}{again} on {self.branch!r}: {counts})"

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
LOADED = "loaded"


@dataclass(frozen=True)
class Loaded:
    """What a load says of its input; what it did to the tables, its commit says."""

    affected_nodes: int
    affected_edges: int
    types: tuple[TypeCount, ...]  # of each type in the input: given, unchanged, rejected
    facts: Mapping[str, Any]

    def receipt(self, branch: str, done: transaction.PublishReceipt, catalog: Catalog) -> Receipt:
        """Return the receipt of the load that made a commit."""
        # A type that is emptied without being in the input was given no records.
        counts = {(count.kind, count.name): replace(count, given=0) for count in counts_of(done, catalog)}
        for read in self.types:
            written = counts.get((read.kind, read.name), TypeCount(read.name, read.kind))
            counts[read.kind, read.name] = replace(
                written, given=read.given, unchanged=read.unchanged, rejected=read.rejected
            )
        return Receipt(
            branch=branch,
            commit=done.commit,
            types=in_order(counts.values()),
            affected_nodes=self.affected_nodes,
            affected_edges=self.affected_edges,
            replayed=done.replayed,
            attempts=done.attempts,
            warnings=done.warnings,
            facts=self.facts,
        )

    def label(self) -> dict[str, str]:
        """Return what the commit keeps of it."""
        types = [(read.kind, read.name, read.given, read.unchanged, read.rejected) for read in self.types]
        return {LOADED: json.dumps([self.affected_nodes, self.affected_edges, types, dict(self.facts)])}

    @classmethod
    def read(cls, label: str) -> Loaded:
        """Return what a commit kept."""
        nodes, edges, types, facts = json.loads(label)
        counts = (TypeCount(n, k, given=g, unchanged=u, rejected=r) for k, n, g, u, r in types)
        return cls(nodes, edges, tuple(counts), facts)


def landed(store: GraphStore, key: str, base: PinnedSnapshot, actor: str | None) -> Receipt | None:
    """Return the receipt of the write that landed under a key, whatever it was, by the head of its branch."""
    commit_id = Claims(store.location, store.syncer).commit_of(key, base, actor)
    if commit_id is None:
        return None
    branch = base.branch
    state = store.branches.chain(base.state.line.incarnation).find(commit_id, base.state)
    if state is None:
        return None
    done = transaction.PublishReceipt(branch, state.commit, state.commit.tables, replayed=True)
    return replayed(branch, done, Catalogs(store.schemas).get(state.schema))


def replayed(branch: str, done: transaction.PublishReceipt, catalog: Catalog) -> Receipt:
    """Return the receipt of the call that made a commit, for another call under its idempotency key."""
    labels = {} if done.commit is None else done.commit.labels
    if LOADED in labels:
        return replace(Loaded.read(labels[LOADED]).receipt(branch, done, catalog), replayed=True)
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


def counts_of(done: transaction.PublishReceipt, catalog: Catalog) -> tuple[TypeCount, ...]:
    """Return the counts of a publish, nodes before edges, by name."""
    counts = []
    for change in done.tables:
        declared = catalog.by_id(change.table_id)
        kind = "edge" if isinstance(declared, EdgeType) else "node"
        counts.append(TypeCount(change.name, kind, change.inserted, change.updated, change.deleted))
    return in_order(counts)


def in_order(counts: Iterable[TypeCount]) -> tuple[TypeCount, ...]:
    """Return counts as receipts have them: nodes before edges, by name."""
    return tuple(sorted(counts, key=lambda count: (count.kind == "edge", count.name)))
