"""Write: a verb's change as a write that the publisher can run, and what it did, as every surface reports it.

    verb -> change -> **write** -> publisher -> **receipt**

Mutations and loads differ only in how they make a `Draft` from a transaction; judging it and turning it into
table effects happens here. It may run again on a newer base. A receipt is a value made from the record that
was published, never from a later look at the head.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import counted
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType
from omnigraph.engine.change import Catalogs, ChangeSet
from omnigraph.engine.validate.evaluate import Asked, asked_of, judge_sets, judge_values, refuse
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.validate.relation import Executor, Findings
from omnigraph.storage.claims import Claims
from omnigraph.storage.cost import Cost
from omnigraph.storage.manifest.records import CommitKind, CommitRecord, TableChange
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot, PublishPlan, PublishReceipt, WriteTxn


@dataclass(frozen=True, eq=False)
class Draft:
    """A change, and the tables whose rows decided what it is."""

    change: ChangeSet
    decided_by: frozenset[str] = frozenset()
    affected_nodes: int = 0
    affected_edges: int = 0
    values_judged: bool = False  # sources of a load judge values while they read


class ExecutorFor(Protocol):
    """Whoever can answer the questions of set checks, made for one change on one base."""

    def __call__(self, change: ChangeSet, base: WriteTxn) -> Executor:
        """Return an executor."""
        ...


class Drafter(Protocol):
    """A verb: what it wants, given a base."""

    def __call__(self, txn: WriteTxn, catalog: Catalog) -> Draft:
        """Say what would change on this base."""
        ...


@dataclass(eq=False)
class ChangeWrite:
    """One verb, judged and lowered. What it exposes is of the last attempt, for the receipt."""

    drafter: Drafter
    catalogs: Catalogs
    kind: CommitKind
    doing: str
    always_commit: bool = False
    locate: Callable[[Findings, ChangeSet], Findings] | None = None
    executor: ExecutorFor = LocalExecutor
    labels: Callable[[Draft], Mapping[str, str]] | None = None
    # Further labels, made of what was staged.
    staged_labels: Callable[[tuple[TableChange, ...]], Mapping[str, str]] | None = None
    accepted: Callable[[], None] | None = None  # called when all checks are over, before anything is staged
    draft: Draft | None = None
    catalog: Catalog | None = None
    commit_id: str | None = None
    _asked: Asked = field(default_factory=Asked)

    def like(self, drafter: Drafter) -> ChangeWrite:
        """Return another write of the same kind."""
        return ChangeWrite(
            drafter,
            self.catalogs,
            self.kind,
            self.doing,
            always_commit=self.always_commit,
            executor=self.executor,
        )

    def redraft(self, txn: WriteTxn, catalog: Catalog) -> Draft:
        """Draft the change on this base."""
        self.catalog, self.commit_id = catalog, txn.commit_id
        self.draft = self.drafter(txn, catalog)
        return self.draft

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        """Draft the change on this base, judge its values, and say what to publish."""
        draft = self.redraft(txn, self.catalogs.get(txn.snapshot.state.commit.schema))
        change = draft.change
        if not draft.values_judged and (findings := judge_values(change)).total:
            refuse(findings, self.doing)
        self._asked = asked_of(change)
        effects = {table_id: part.effect() for table_id, part in change.types.items()}
        return PublishPlan(
            self.kind,
            effects={table_id: effect for table_id, effect in effects.items() if effect is not None},
            decided_by=draft.decided_by,
            consulted=self._asked.consulted,
            always_commit=self.always_commit,
            labels={} if self.labels is None else self.labels(draft),
            staged_labels=self.staged_labels,
            looked_up={table_id: part.declared.looked_up for table_id, part in change.types.items()},
        )

    def validate(self, txn: WriteTxn, plan: PublishPlan) -> None:
        """Judge the rows together on this base."""
        if self.draft is None:
            raise AssertionError("validated before it was prepared")
        change = self.draft.change
        findings = judge_sets(self._asked.questions, self.executor(change, txn))
        if findings.total:
            refuse(findings if self.locate is None else self.locate(findings, change), self.doing)
        if self.accepted is not None:
            self.accepted()


# -- receipts ----------------------------------------------------------------------------------------


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
MEMBERS = "members"  # of a commit that several writes share: what each under a key has to be told, by key


@dataclass(frozen=True)
class Loaded:
    """What a load says of its input; what it did to the tables, its commit says."""

    affected_nodes: int
    affected_edges: int
    types: tuple[TypeCount, ...]  # of each type in the input: given, unchanged, rejected
    facts: Mapping[str, Any]

    def receipt(self, branch: str, done: PublishReceipt, catalog: Catalog) -> Receipt:
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
    branch, chain = base.branch, store.branches.chain(base.state.line.incarnation)
    ids = Claims(store.location, store.syncer).ids_of(key, base, actor)
    state = next(filter(None, (chain.find(commit_id, base.state) for commit_id in ids)), None)
    if state is None:
        return None
    done = PublishReceipt(branch, state.commit, state.commit.tables, replayed=True)
    return replayed(branch, done, Catalogs(store.schemas).get(state.schema), key)


def member_label(counts: Sequence[TableChange], labels: Mapping[str, str]) -> list[Any]:
    """Return what a shared commit keeps of one of its writes."""
    return [{c.table_id: [c.inserted, c.updated] for c in counts}, dict(labels)]


def replayed(branch: str, done: PublishReceipt, catalog: Catalog, key: str | None = None) -> Receipt:
    """Return the receipt of the call that made a commit, for another call under its idempotency key."""
    labels: Mapping[str, str] = {} if done.commit is None else done.commit.labels
    if LOADED in labels:
        return replace(Loaded.read(labels[LOADED]).receipt(branch, done, catalog), replayed=True)
    if MEMBERS in labels and key is not None:
        counts, labels = json.loads(labels[MEMBERS])[key]
        done = replace(
            done,
            tables=tuple(
                replace(c, inserted=counts[c.table_id][0], updated=counts[c.table_id][1])
                for c in done.tables
                if c.table_id in counts
            ),
        )
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


def counts_of(done: PublishReceipt, catalog: Catalog) -> tuple[TypeCount, ...]:
    """Return the counts of a publish, nodes before edges, by name."""
    counts = []
    for change in done.tables:
        declared = catalog.by_id.get(change.table_id)
        kind = "edge" if isinstance(declared, EdgeType) else "node"
        counts.append(TypeCount(change.name, kind, change.inserted, change.updated, change.deleted))
    return in_order(counts) if len(counts) > 1 else tuple(counts)


def in_order(counts: Iterable[TypeCount]) -> tuple[TypeCount, ...]:
    """Return counts as receipts have them: nodes before edges, by name."""
    return tuple(sorted(counts, key=lambda count: (count.kind == "edge", count.name)))
