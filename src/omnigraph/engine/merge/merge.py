"""Merge: `graph.merge` and `graph.revert`.

Captures the source once, runs the merge through the publisher, says what came of it. A revert is a merge
whose base is the commit to undo and whose source is the commit before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from enum import Enum
from functools import partial
from typing import Any

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import (
    BranchNotFound,
    GraphError,
    HistoryReclaimed,
    InvalidRequest,
    OutcomeUnknown,
    counted,
)
from omnigraph.base.frozen import FrozenMap
from omnigraph.engine.change import Catalogs
from omnigraph.engine.history.entity import last_touched
from omnigraph.engine.merge.conflicts import Conflict, MergeConflict, Origin
from omnigraph.engine.merge.schemas import Unified
from omnigraph.engine.merge.threeway import Counts, Dropped, LargeTypes
from omnigraph.engine.merge.write import MergeWrite
from omnigraph.engine.options import MergeOptions, WriteOptions
from omnigraph.engine.write import KEY, ExecutorFor, TypeCount, commit_json, cost_json, counts_of
from omnigraph.storage.claims import Claim, Claims, spelling
from omnigraph.storage.cost import Cost
from omnigraph.storage.diagnose import of_the_newest
from omnigraph.storage.history import holds, merge_bases
from omnigraph.storage.manifest.records import CommitKind, CommitRecord, ManifestState
from omnigraph.storage.publish import Intent
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PublishReceipt

TRACED = 20  # conflicts whose authors are looked up


class Outcome(Enum):
    """How a merge ended."""

    UP_TO_DATE = "already_up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"
    CONFLICTS = "conflicts"  # in previews only; otherwise conflicts are an error


@dataclass(frozen=True)
class MergeOutcome:
    """What a merge did, or would do. `commit` is None when there was nothing to do, and in previews."""

    source: str
    target: str
    outcome: Outcome
    source_commit_id: str
    target_commit_id: str
    base_commit_id: str | None
    commit: CommitRecord | None = None
    types: tuple[TypeCount, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    total_conflicts: int = 0
    unified: tuple[Unified, ...] = ()  # types and properties that both sides made, and are one now
    dropped: tuple[Dropped, ...] = ()  # what the target lost with the schema
    preview: bool = False
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None
    cost: Cost = field(default_factory=Cost)
    replayed: bool = False  # an earlier call with the same idempotency key did it

    def __repr__(self) -> str:
        result = counted(self.total_conflicts, "conflict") if self.total_conflicts else self.outcome.value
        commit = "" if self.commit_id is None else f", commit {self.commit_id}"
        preview = ", preview" if self.preview else ""
        return f"MergeOutcome({self.source!r} into {self.target!r}: {result}{commit}{preview})"

    @property
    def commit_id(self) -> str | None:
        """The id of the commit, if one was made."""
        return None if self.commit is None else self.commit.id

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        shown: dict[str, Any] = {
            "source": self.source,
            "target": self.target,
            "outcome": self.outcome.value,
            "actor_id": None if self.commit is None else self.commit.actor,
            "source_commit_id": self.source_commit_id,
            "target_commit_id": self.target_commit_id,
            "base_commit_id": self.base_commit_id,
            "nodes": [entry.to_json() for entry in self.types if entry.kind == "node"],
            "edges": [entry.to_json() for entry in self.types if entry.kind == "edge"],
            "merge_conflicts": [entry.to_json() for entry in self.conflicts],
            "total_conflicts": self.total_conflicts,
            "unified": [entry.to_json() for entry in self.unified],
            "dropped": [entry.to_json() for entry in self.dropped],
            "preview": self.preview,
            "commit": commit_json(self.commit),
            "cost": cost_json(self.cost),
        }
        if self.branch_deleted is not None:
            shown |= {"branch_deleted": self.branch_deleted, "branch_delete_error": self.branch_delete_error}
        return shown


class Merges:
    """Merges the branches of one graph."""

    def __init__(
        self,
        store: GraphStore,
        catalogs: Catalogs,
        executor: ExecutorFor,
        large: LargeTypes | None = None,
    ) -> None:
        self._store = store
        self._catalogs = catalogs
        self._executor = executor
        self._claims = Claims(store.location, store.syncer)
        self._large = large  # types beyond what this process should hold

    def merge(self, source: str, options: WriteOptions, how: MergeOptions) -> MergeOutcome:
        """Fold the head of one branch into another as one commit."""
        into, preview = options.branch, options.dry_run
        if source.strip() == into.strip():
            raise InvalidRequest(f"cannot merge {source!r} into itself", remedy="Name two branches")
        intent, first = self._once(["merge", source, *_asked(how)], source, options)
        if first is not None:
            return self._delete(first, source) if how.delete_branch else first

        def merged() -> MergeOutcome:
            theirs = self._store.snapshot(source).state
            write = MergeWrite(
                theirs,
                lambda target: merge_bases(self._store.branches, target, theirs),
                self._store.reads,
                partial(self._check_kept, theirs),
                self._catalogs,
                self._executor,
                f"merging {source!r} into {into!r}",
                merged=theirs,
                resolutions=how.resolutions,
                strategy=how.strategy,
                granularity=how.granularity,
                large=self._large,
            )
            return self._run(source, into, write, theirs, intent, preview=preview)

        done = of_the_newest(merged)
        return self._delete(done, source) if how.delete_branch and not preview else done

    def revert(self, commit_id: str, options: WriteOptions, how: MergeOptions) -> MergeOutcome:
        """Undo one commit of a branch's history by a new commit; what came after it stays."""
        branch = options.branch
        claimed, first = self._once(["revert", commit_id, *_asked(how)], commit_id, options)
        if first is not None:
            return first
        undone = self._store.snapshot(branch, at=commit_id).state
        head = self._store.snapshot(branch).state
        if not holds(head, undone):
            raise InvalidRequest(
                f"commit {commit_id} is not in the history of {branch!r}",
                remedy="Name a commit of the branch",
            )
        if undone.commit.parent is None:
            raise InvalidRequest("the first commit of a graph cannot be undone")
        before = self._store.snapshot(branch, at=undone.commit.parent).state
        write = MergeWrite(
            before,
            lambda target: (undone,),
            self._store.reads,
            partial(self._check_kept, before),
            self._catalogs,
            self._executor,
            f"reverting {commit_id}",
            kind=CommitKind.MUTATION,
            resolutions=how.resolutions,
            strategy=how.strategy,
        )
        text = options.message or f"Revert {commit_id}"
        intent = replace(claimed, message=text, labels={**claimed.labels, "reverts": commit_id})
        done = self._run(undone.commit.parent, branch, write, before, intent, preview=options.dry_run)
        return replace(done, outcome=Outcome.MERGED) if done.outcome is Outcome.FAST_FORWARD else done

    def _once(
        self, request: list[Any], source: str, options: WriteOptions
    ) -> tuple[Intent, MergeOutcome | None]:
        """Return the intent under an idempotency key; and what the first call under it did, if it landed."""
        key, into = options.idempotency_key, options.branch
        if key is None:
            return options.intent, None
        base = self._store.snapshot(into)
        taken = self._claims.take(Claim(key, base, options.actor, spelling(request).encode()))
        labels = FrozenMap({KEY: key})
        intent = replace(options.intent, labels=labels, commit_id=taken.alone, chain=taken.chain)
        state = self._store.branches.chain(taken.chain).find(taken.alone, base.state)
        return intent, None if state is None else self._landed(source, into, state)

    def _landed(self, source: str, into: str, state: ManifestState) -> MergeOutcome:
        commit = state.commit
        done = PublishReceipt(into, commit, commit.tables, replayed=True)
        return MergeOutcome(
            source,
            into,
            Outcome.MERGED,
            commit.merged_parent or commit.id,
            commit.parent or commit.id,
            None,
            commit,
            counts_of(done, self._catalogs.get(state.schema)),
            replayed=True,
        )

    # -- running -----------------------------------------------------------------------------------

    def _run(
        self,
        source: str,
        into: str,
        write: MergeWrite,
        theirs: ManifestState,
        intent: Intent,
        *,
        preview: bool,
    ) -> MergeOutcome:
        try:
            with self._reading(write, theirs):
                if preview:
                    self._store.rehearse(into, write, intent)
                    return self._outcome(source, into, write, theirs, preview=True)
                receipt = self._store.publish(into, write, intent)
        except MergeConflict as met:
            conflict = met.with_conflicts(self._traced(met.conflicts, write, theirs))
            if not preview:
                raise conflict from None
            outcome = self._outcome(source, into, write, theirs, preview=True)
            return replace(
                outcome,
                outcome=Outcome.CONFLICTS,
                conflicts=conflict.conflicts,
                total_conflicts=conflict.total,
            )
        done = self._outcome(source, into, write, theirs, preview=False)
        return replace(done, commit=receipt.commit, cost=receipt.cost)

    @contextmanager
    def _reading(self, write: MergeWrite, theirs: ManifestState) -> Iterator[None]:
        """Merge in a block; what cannot be read of the source or of the base may have been reclaimed."""
        try:
            yield
        except OutcomeUnknown:
            raise
        except Exception:
            with self._store.reading(*(state for state in (theirs, write.base) if state is not None)):
                raise

    def _check_kept(self, state: ManifestState, tables: Collection[str]) -> None:
        reason = self._store.readability.reclaimed(state, tables)
        if reason is not None:
            raise reason
        if not self._store.branches.chain(state.line.incarnation).keeps(state.version):
            raise HistoryReclaimed(
                f"commit {state.head} was given up while it was merged",
                remedy="Merge again: the branch has a newer commit",
                commit=state.head,
            )

    def _outcome(
        self, source: str, into: str, write: MergeWrite, theirs: ManifestState, *, preview: bool
    ) -> MergeOutcome:
        base, target = write.base, write.target
        assert target is not None
        if base is None:
            outcome = Outcome.UP_TO_DATE
        else:
            outcome = Outcome.FAST_FORWARD if base.position == target.position else Outcome.MERGED
        return MergeOutcome(
            source,
            into,
            outcome,
            theirs.head,
            target.head,
            theirs.head if base is None else base.head,
            types=_types(write.counts),
            unified=write.unified,
            dropped=write.dropped,
            preview=preview,
        )

    def _traced(
        self, conflicts: Iterable[Conflict], write: MergeWrite, theirs: ManifestState
    ) -> list[Conflict]:
        """Say who made each side of a conflict, and when: of the first ones, since each takes look-ups."""
        base, target = write.base, write.target
        assert base is not None
        assert target is not None
        traced: list[Conflict] = []
        for number, conflict in enumerate(conflicts):
            declared = write.catalog.find_table(f"{conflict.entity_kind}:{conflict.type_name}")
            if number >= TRACED or declared is None or conflict.entity_id is None:
                traced.append(conflict)
                continue
            ours, other = (
                last_touched(self._store, self._catalogs, declared, conflict.entity_id, side, base)
                for side in (target, theirs)
            )
            traced.append(replace(conflict, ours=_origin(ours), theirs=_origin(other)))
        return traced

    def _delete(self, done: MergeOutcome, source: str) -> MergeOutcome:
        """Delete the merged branch; the merge stands whatever comes of it."""
        try:
            self._store.branches.delete(source)
        except BranchNotFound:
            pass
        except GraphError as error:
            return replace(done, branch_deleted=False, branch_delete_error=error.summary)
        return replace(done, branch_deleted=True)


def _asked(how: MergeOptions) -> list[Any]:
    """Return what tells one request from another, as far as it is about deciding."""
    decided = [
        resolution if isinstance(resolution, Mapping) else vars(resolution)
        for resolution in how.resolutions or ()
    ]
    return [decided, how.strategy, how.granularity]


def _origin(commit: CommitRecord | None) -> Origin | None:
    return None if commit is None else Origin(commit.id, commit.actor, commit.authored_at_us)


def _types(counts: Sequence[Counts]) -> tuple[TypeCount, ...]:
    outcomes = (
        TypeCount(
            count.declared.name, count.declared.kind.value, count.inserted, count.updated, count.deleted
        )
        for count in counts
    )
    return tuple(sorted(outcomes, key=lambda outcome: (outcome.kind == "edge", outcome.name)))
