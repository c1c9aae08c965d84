"""Schema: `graph.schema`: show, plan, apply, lint, diagram.

Turns text into plans and receipts. lower.py makes a plan a write, existing.py judges the rows that are there,
hard_drop.py takes away what a hard drop leaves.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from omnigraph.base.arguments import checked_methods
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, PreconditionFailed
from omnigraph.base.frozen import FrozenMap
from omnigraph.base.ids import new_id
from omnigraph.base.times import At
from omnigraph.catalog import diagram
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.lint import lint
from omnigraph.catalog.steps import Dedupe, Step
from omnigraph.engine.access import Action
from omnigraph.engine.change import Catalogs
from omnigraph.engine.history.entity import last_changes
from omnigraph.engine.history.resolve_at import read_state, resolve
from omnigraph.engine.options import View
from omnigraph.engine.schema.hard_drop import ReclaimedType, Reclamation, is_hard, reclaim
from omnigraph.engine.schema.lower import (
    Deduplication,
    Proposal,
    SchemaChange,
    judge_rows,
    propose,
    with_rekeyed,
)
from omnigraph.engine.schema.rekey import RekeyedRows
from omnigraph.engine.write import KEY
from omnigraph.language.diagnostics import Diagnostic
from omnigraph.language.schema import CheckedSchema, load
from omnigraph.storage.claims import Claim, Claimed, Claims, spelling
from omnigraph.storage.cost import Cost, measured
from omnigraph.storage.diagnose import of_the_newest
from omnigraph.storage.manifest.records import CommitRecord
from omnigraph.storage.publish import Intent
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot

SchemaText = str | os.PathLike[str]
log = logging.getLogger(__name__)


@checked_methods
@dataclass(frozen=True)
class SchemaPlan:
    """What an apply would do, with the rows that each step concerns."""

    proposal: Proposal

    @property
    def supported(self) -> bool:
        """Whether an apply would be accepted (rows aside: those are judged by the apply)."""
        return self.proposal.plan.supported

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in order."""
        return self.proposal.plan.steps

    @property
    def notes(self) -> tuple[Diagnostic, ...]:
        """Advice about the text."""
        return self.proposal.notes

    def rows(self, step: Step) -> int:
        """Rows of the type that a step concerns."""
        return self.proposal.rows.get(getattr(step, "type_id", ""), 0)

    def takes_history(self, step: Step) -> bool:
        """Say whether the history of the step's table goes with it: earlier commits lose the whole type."""
        return is_hard(step)

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        steps = [self._step(step) for step in self.steps]
        return {"supported": self.supported, "step_count": len(steps), "steps": steps}

    def _step(self, step: Step) -> dict[str, Any]:
        shown = {**step.to_json(), "rows": self.rows(step)}
        return {**shown, "history": "reclaimed"} if self.takes_history(step) else shown


@dataclass(frozen=True)
class SchemaReceipt:
    """What an apply did; `commit` is None when the schema was the accepted one already.

    `reclaimed` says what hard drops took away of each type's history.
    """

    plan: SchemaPlan
    commit: CommitRecord | None
    cost: Cost
    reclaimed: tuple[ReclaimedType, ...] = ()
    warnings: tuple[str, ...] = ()
    replayed: bool = False  # an earlier call with the same idempotency key did it

    @property
    def applied(self) -> bool:
        """Whether anything changed."""
        return self.commit is not None

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        commit = self.commit
        return {
            **self.plan.to_json(),
            "applied": self.applied,
            "commit": None if commit is None else commit.id,
            "graph_manifest_version": None if commit is None else commit.manifest_version,
            "reclaimed": [reclaimed.to_json() for reclaimed in self.reclaimed],
            "warnings": list(self.warnings),
        }


@checked_methods
class Schemas:
    """The schema of a graph's branches."""

    def __init__(self, store: GraphStore, catalogs: Catalogs, view: View) -> None:
        self._store = store
        self._catalogs = catalogs
        self._view = view

    def catalog(self, branch: str | None = None, at: At | None = None) -> Catalog:
        """Return the resolved schema of a branch, now or then."""
        return self._catalogs.get(resolve(self._store, *self._view.read(branch, at)).schema)

    def for_reads(self, branch: str | None = None, at: At | None = None) -> Catalog:
        """Return the schema that reads of a state go by: the names of today, the types of the state."""
        return read_state(self._store, self._catalogs, *self._view.read(branch, at))[1]

    def show(self, branch: str | None = None, at: At | None = None) -> str:
        """Return the schema text that was accepted."""
        return self.catalog(branch, at).source

    def plan(
        self,
        schema: SchemaText,
        *,
        branch: str | None = None,
        allow_data_loss: bool = False,
        if_commit: str | None = None,
        check_rows: bool = False,
        dedupe: Dedupe | None = None,
    ) -> SchemaPlan:
        """Say what applying a schema would do; reads the branch's head, writes nothing.

        With `check_rows` the rows that are there are judged as well, as `apply` does before it writes.
        `dedupe` says which edges stay where several would share a key: see `apply`.
        """
        target = self._view.line(branch)
        checked = load_schema(schema)
        expected = self._expected(target, if_commit)

        def proposed() -> SchemaPlan:
            return self._proposed(checked, target, expected, allow_data_loss, check_rows, dedupe)

        return of_the_newest(proposed)

    def _proposed(
        self,
        checked: CheckedSchema,
        branch: str,
        if_commit: str | None,
        allow_data_loss: bool,
        check_rows: bool,
        dedupe: Dedupe | None,
    ) -> SchemaPlan:
        snapshot = self._store.snapshot(branch)
        if if_commit is not None and not snapshot.state.same_content_as(if_commit):
            raise PreconditionFailed(branch, expected=if_commit, actual=snapshot.commit_id)
        state = snapshot.state
        proposal = propose(checked, self._catalogs, state, new_id(), allow_data_loss=allow_data_loss)
        with self._store.reading(state):
            proposal, _ = self._with_rekeyed(proposal, snapshot, dedupe)
            if check_rows and proposal.plan.supported:
                judge_rows(proposal, partial(self._store.table, snapshot), now_ms=self._now_ms())
        return SchemaPlan(proposal)

    def apply(
        self,
        schema: SchemaText,
        *,
        branch: str | None = None,
        allow_data_loss: bool = False,
        actor: str | None = None,
        message: str | None = None,
        if_commit: str | None = None,
        dedupe: Dedupe | None = None,
        idempotency_key: str | None = None,
    ) -> SchemaReceipt:
        """Change the schema of a branch: one commit with all its table changes, or none.

        With `allow_data_loss` every drop is hard: once the commit is there, the history of its table is
        deleted, down to what the heads of live branches need. Under an idempotency key it is done once.

        An edge type gets a key only if no two edges share it, or `dedupe` says which one stays: with "equal"
        edges that have equal properties become one, with "latest" the one that changed last.
        """
        target = self._view.writable(branch)
        self._view.allow(Action.SCHEMA_APPLY, target=target)
        by = self._view.by(actor)
        checked = load_schema(schema)
        change = SchemaChange(
            checked,
            self._catalogs,
            self._deduplication(dedupe),
            allow_data_loss=allow_data_loss,
            now_ms=self._now_ms(),
        )
        with measured() as meter:
            intent = Intent(by, message, self._expected(target, if_commit))
            if idempotency_key is not None:
                claimed = self._claim(idempotency_key, checked, target, by, allow_data_loss, dedupe)
                intent = replace(intent, labels=FrozenMap({KEY: idempotency_key}))
                if claimed is not None:
                    intent = replace(intent, commit_id=claimed.alone, chain=claimed.chain)
            receipt = self._store.publish(target, change, intent)
            commit = receipt.commit
            if receipt.replayed and commit is not None:
                plan = self._plan_of(commit, checked, allow_data_loss)
            else:
                assert change.proposal is not None
                plan = SchemaPlan(change.proposal)
            taken = Reclamation() if commit is None else reclaim(self._store, commit, plan.steps)
        if commit is not None:
            log.info("schema of %s changed by commit %s", target, commit.id)
        return SchemaReceipt(plan, commit, meter.cost, taken.types, taken.warnings, receipt.replayed)

    def _claim(
        self,
        key: str,
        checked: CheckedSchema,
        branch: str,
        actor: str | None,
        allow_data_loss: bool,
        dedupe: Dedupe | None,
    ) -> Claimed | None:
        """Return the commit id of a key; a change that can never be made claims nothing."""
        what = ["schema", checked.source.text, allow_data_loss, *([] if dedupe is None else [dedupe])]
        base = self._store.snapshot(branch)
        claim = Claim(key, base, actor, spelling(what).encode())
        claims = Claims(self._store.location, self._store.syncer)
        wanted = propose(checked, self._catalogs, base.state, new_id(), allow_data_loss=allow_data_loss)
        with self._store.reading(base.state):
            wanted, _ = self._with_rekeyed(wanted, base, dedupe)
        # A change that cannot be made now may have been right under an earlier schema.
        return claims.take(claim) if wanted.plan.supported else claims.find(claim)

    def _plan_of(self, commit: CommitRecord, checked: CheckedSchema, allow_data_loss: bool) -> SchemaPlan:
        """Return what a commit did, by the state that it was made from."""
        assert commit.parent is not None
        before = self._store.snapshot(commit.branch, at=commit.parent).state
        return SchemaPlan(
            propose(checked, self._catalogs, before, commit.id, allow_data_loss=allow_data_loss)
        )

    def lint(self, schema: SchemaText, *, branch: str | None = None) -> tuple[Diagnostic, ...]:
        """Say everything there is to say about a schema text, migration included; raises nothing."""
        catalog = self.catalog(branch)
        text, file = read_schema(schema)
        return lint(text, catalog, file=file)

    def diagram(self, branch: str | None = None, *, form: Literal["mermaid", "dot"] = "mermaid") -> str:
        """Return a picture of the schema, as text."""
        catalog = self.catalog(branch)
        return diagram.mermaid(catalog) if form == "mermaid" else diagram.dot(catalog)

    def _expected(self, branch: str, if_commit: str | None) -> str | None:
        return None if if_commit is None else self._view.full_id(self._store, branch, if_commit)

    def _deduplication(self, dedupe: Dedupe | None) -> Deduplication:
        return Deduplication(dedupe, partial(last_changes, self._store, self._catalogs))

    def _with_rekeyed(
        self, proposal: Proposal, snapshot: PinnedSnapshot, dedupe: Dedupe | None
    ) -> tuple[Proposal, list[RekeyedRows]]:
        table, how = partial(self._store.table, snapshot), self._deduplication(dedupe)
        return with_rekeyed(proposal, snapshot.state, table, how, now_ms=self._now_ms())

    def _now_ms(self) -> int:
        return self._store.clock.now_us() // 1000


def load_schema(schema: SchemaText) -> CheckedSchema:
    """Read and check a schema; raises with everything that is wrong with it."""
    text, file = read_schema(schema)
    return load(text, file=file)


def read_schema(schema: SchemaText) -> tuple[str | bytes, str]:
    """Return (text, file name): of a path, or of text given as such.

    A string is a path when it is one line that ends in `.pg`; anything else is schema text.
    """
    if isinstance(schema, str) and not (schema.endswith(".pg") and "\n" not in schema):
        return schema, "schema.pg"
    path = Path(schema)
    try:
        return path.read_bytes(), str(path)
    except OSError as error:
        raise InvalidRequest(
            f"cannot read the schema file {path}: {error.strerror}", remedy="Check the path", path=str(path)
        ) from error
