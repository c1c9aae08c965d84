"""Write: a verb's change as a write that the publisher can run, and run again on a newer base.

    verb -> change -> **write** -> publisher

Mutations and loads differ only in how they make a `Draft` from a transaction; judging it and turning it
into table effects happens here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.change import Catalogs, ChangeSet
from omnigraph.engine.validate.evaluate import (
    Question,
    consulted,
    judge_sets,
    judge_values,
    questions,
    refuse,
)
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.validate.relation import Executor, Findings
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.tables.effects import Effect
from omnigraph.storage.transaction import PublishPlan, WriteTxn


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


class ChangeWrite:
    """One verb, judged and lowered. What it exposes is of the last attempt, for the receipt."""

    def __init__(
        self,
        drafter: Drafter,
        catalogs: Catalogs,
        kind: CommitKind,
        doing: str,
        *,
        always_commit: bool = False,
        locate: Callable[[Findings, ChangeSet], Findings] | None = None,
        executor: ExecutorFor = LocalExecutor,
        labels: Callable[[Draft], Mapping[str, str]] | None = None,
        accepted: Callable[[], None] | None = None,
    ) -> None:
        self._drafter = drafter
        self._catalogs = catalogs
        self._kind = kind
        self._doing = doing
        self._always_commit = always_commit
        self._locate = locate
        self._executor = executor
        self._labels = labels
        self._accepted = accepted  # called when all checks are over, before anything is staged
        self._asked: tuple[Question, ...] = ()
        self.draft: Draft | None = None
        self.catalog: Catalog | None = None
        self.commit_id: str | None = None

    def like(self, drafter: Drafter) -> ChangeWrite:
        """Return another write of the same kind."""
        return ChangeWrite(
            drafter,
            self._catalogs,
            self._kind,
            self._doing,
            always_commit=self._always_commit,
            executor=self._executor,
        )

    def redraft(self, txn: WriteTxn, catalog: Catalog) -> Draft:
        """Draft the change on this base."""
        self.catalog, self.commit_id = catalog, txn.commit_id
        self.draft = self._drafter(txn, catalog)
        return self.draft

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        """Draft the change on this base, judge its values, and say what to publish."""
        draft = self.redraft(txn, self._catalogs.get(txn.snapshot.schema))
        if not draft.values_judged:
            refuse(judge_values(draft.change), self._doing)
        self._asked = tuple(questions(draft.change))
        return PublishPlan(
            self._kind,
            effects=effects(draft.change),
            decided_by=draft.decided_by,
            consulted=consulted(self._asked),
            always_commit=self._always_commit,
            labels={} if self._labels is None else self._labels(draft),
        )

    def validate(self, txn: WriteTxn, plan: PublishPlan) -> None:
        """Judge the rows together on this base."""
        if self.draft is None:
            raise AssertionError("validated before it was prepared")
        change = self.draft.change
        findings = judge_sets(self._asked, self._executor(change, txn))
        if findings.total and self._locate is not None:
            findings = self._locate(findings, change)
        refuse(findings, self._doing)
        if self._accepted is not None:
            self._accepted()


def effects(change: ChangeSet) -> Mapping[str, Effect]:
    """Return what happens to each table; a type that does not change has no effect."""
    effects = {table_id: type_change.effect() for table_id, type_change in change.types.items()}
    return {table_id: effect for table_id, effect in effects.items() if effect is not None}
