"""Change: a schema apply as a write.

Room    engine.schema. A pure function of its transaction: resolve the text against the accepted schema,
        plan, lower; then judge the rows that are there. The publisher may run it again on a newer base.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from omnigraph.base.errors import SchemaUnsupported
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import IdMinter
from omnigraph.catalog.plan import MigrationPlan, plan
from omnigraph.catalog.resolve import resolve
from omnigraph.engine.catalogs import Catalogs
from omnigraph.engine.schema.existing import judge
from omnigraph.engine.schema.hard import as_executed
from omnigraph.engine.schema.lower import images, lower, relied_on_empty
from omnigraph.language.diagnostics import Diagnostic
from omnigraph.language.schema import CheckedSchema
from omnigraph.storage.manifest.records import CommitKind, ManifestState
from omnigraph.storage.transaction import PublishPlan, WriteTxn


@dataclass(frozen=True)
class Proposal:
    """What applying a text would do to one state of a branch."""

    desired: Catalog
    plan: MigrationPlan
    notes: tuple[Diagnostic, ...]
    rows: dict[str, int]  # rows of each accepted type, by type id

    @property
    def empty(self) -> frozenset[str]:
        """Types without rows."""
        return frozenset(table for table, rows in self.rows.items() if rows == 0)


def propose(
    checked: CheckedSchema, catalogs: Catalogs, state: ManifestState, change_id: str, *, allow_data_loss: bool
) -> Proposal:
    """Plan a change against one state."""
    accepted = catalogs.get(state.schema)
    resolution = resolve(checked, accepted, IdMinter(change_id))
    rows = {table_id: pin.rows for table_id, pin in state.pins.items()}
    empty = [table_id for table_id, count in rows.items() if count == 0]
    found = plan(accepted, resolution.catalog, allow_data_loss=allow_data_loss, empty_types=empty)
    steps = MigrationPlan(tuple(as_executed(step, rows) for step in found.steps))
    return Proposal(resolution.catalog, steps, resolution.notes, rows)


class SchemaChange:
    """The write. `proposal` is what the last attempt did, for the receipt."""

    def __init__(
        self, checked: CheckedSchema, catalogs: Catalogs, *, allow_data_loss: bool, now_ms: int
    ) -> None:
        self._checked = checked
        self._catalogs = catalogs
        self._allow_data_loss = allow_data_loss
        self._now_ms = now_ms
        self.proposal: Proposal | None = None

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        """Say what to publish; nothing when the schema is the accepted one already."""
        state = txn.snapshot.state
        proposal = propose(
            self._checked, self._catalogs, state, txn.commit_id, allow_data_loss=self._allow_data_loss
        )
        self.proposal = proposal
        refuse_unsupported(proposal.plan)
        if not proposal.plan.steps:
            return PublishPlan(CommitKind.SCHEMA)
        rests_on = relied_on_empty(proposal.plan, proposal.empty)
        return lower(proposal.plan, proposal.desired, txn, now_ms=self._now_ms, relied_on_empty=rests_on)

    def validate(self, txn: WriteTxn, plan: PublishPlan) -> None:
        """Judge the existing rows by what the change newly asks of them."""
        if self.proposal is not None and plan.consulted:
            judge_rows(self.proposal, txn.table, now_ms=self._now_ms)


def judge_rows(proposal: Proposal, table: Callable[[str], Any], *, now_ms: int) -> None:
    """Raise when rows that are there break what a change newly asks of them."""
    found = images(proposal.plan, proposal.desired, table, now_ms=now_ms)
    judge(proposal.plan.steps, found).refuse("existing rows break the new schema")


def refuse_unsupported(steps: MigrationPlan) -> None:
    """Raise when a plan cannot be executed, naming every obstacle."""
    if steps.supported:
        return
    reasons = "; ".join(refusal.message for refusal in steps.refusals)
    raise SchemaUnsupported(
        f"the schema cannot be changed like this: {reasons}",
        remedy="Nothing was changed; see the plan for what can be done instead",
        steps=[refusal.to_json() for refusal in steps.refusals],
    )
