"""Lower: a schema apply as one write.

    text -> catalog -> migration plan -> **publish plan**

Knows which step touches which table, and how little: a rename touches none, a dropped or empty new column
only the table's metadata, a filled one adds a file per fragment; only a hard drop writes the table anew. The
plan carries the new schema object, the table effects and the pins together; one commit or none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import SchemaUnsupported
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import IdMinter
from omnigraph.catalog.model import EdgeType, TableType, TypeKind
from omnigraph.catalog.plan import MigrationPlan, plan
from omnigraph.catalog.resolve import resolve
from omnigraph.catalog.steps import (
    AddConstraint,
    AddKey,
    AddProperty,
    AddType,
    AlterProperty,
    ChangeEmbed,
    ChangeKey,
    Dedupe,
    DropProperty,
    DropType,
    RenameType,
    Step,
    UnsupportedChange,
)
from omnigraph.catalog.steps import Effect as Cost
from omnigraph.engine.change import Catalogs
from omnigraph.engine.schema.existing import ColumnSource, DesiredRows, judge_existing, needs_rows, scalar
from omnigraph.engine.schema.hard_drop import as_executed, is_hard, rewrites
from omnigraph.engine.schema.rekey import KeyedRows, RekeyedRows, surplus
from omnigraph.language.diagnostics import Diagnostic
from omnigraph.language.schema import CheckedSchema
from omnigraph.storage.manifest.records import CommitKind, ManifestState
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.effects import (
    AddColumn,
    DropColumn,
    Effect,
    FillNulls,
    Overwrite,
    SeveralEffects,
)
from omnigraph.storage.transaction import NewTable, PublishPlan, WriteTxn


def lower(
    plan: MigrationPlan,
    desired: Catalog,
    txn: WriteTxn,
    *,
    now_ms: int,
    relied_on_empty: Iterable[str],
    rekeyed: Iterable[RekeyedRows],
) -> PublishPlan:
    """Return what to publish."""
    effects = rewrites(plan.steps, txn)
    create: dict[str, NewTable] = {}
    rename: dict[str, str] = {}
    drop: set[str] = set()
    for step in plan.steps:
        match step:
            case AddType(type_kind=kind) if kind is not TypeKind.INTERFACE:
                assert step.stored_schema is not None
                create[step.type_id] = NewTable(step.type_name, kind.value, step.stored_schema)
            case RenameType(type_kind=kind) if kind is not TypeKind.INTERFACE:
                rename[step.type_id] = step.type_name
            case DropType(type_kind=kind) if kind is not TypeKind.INTERFACE:
                drop.add(step.type_id)
            case DropProperty() if is_hard(step):
                pass  # done first, for all columns of a table at once
            case AddProperty() | AlterProperty() | ChangeEmbed() | DropProperty():
                effects.setdefault(step.type_id, []).extend(_column_effects(step, desired, now_ms))
            case _:
                pass  # names, annotations and constraints live in the schema object alone
    for edges in rekeyed:  # whole rows, in the columns that the effects above have made
        effects.setdefault(edges.rows.declared.table_id, []).append(Overwrite(edges))
    return PublishPlan(
        CommitKind.SCHEMA,
        effects={table: SeveralEffects(tuple(changes)) for table, changes in effects.items() if changes},
        create=create,
        rename=rename,
        drop=frozenset(drop),
        schema=desired.to_json(),
        assumed=frozenset(relied_on_empty) - drop,
        consulted=frozenset(step.type_id for step in plan.steps if needs_rows(step)),
    )


def _column_effects(
    step: AddProperty | AlterProperty | ChangeEmbed | DropProperty, desired: Catalog, now_ms: int
) -> list[Effect]:
    match step:
        case AddProperty(fill=fill) if step.field is not None:
            value = None if fill is None else scalar(fill, step.field.type, now_ms)
            return [AddColumn(step.field, value)]
        case AlterProperty(old_column=old, new_column=new, fill=fill) if step.field is not None and new:
            effects: list[Effect] = []
            if old is not None and old != new:
                effects += [AddColumn(step.field, copy_from=old), DropColumn(old)]
            if fill is not None:
                effects.append(FillNulls(new, scalar(fill, step.field.type, now_ms)))
            return effects
        case ChangeEmbed(column=column):
            # Vectors of another source are no use: the column goes, and comes back without values.
            declared = desired.table(step.type_id).property_by_id(step.property_id)
            return [DropColumn(column), AddColumn(declared.field)]
        case DropProperty(column=column) if column is not None:
            return [DropColumn(column)]
        case _:
            return []  # an interface has no table


def _sources(declared: TableType, plan: MigrationPlan, now_ms: int) -> dict[str, ColumnSource]:
    """Say where the values of each desired property come from."""
    sources = {p.id: ColumnSource(p.column) for p in declared.properties}
    for step in plan.steps:
        if not isinstance(step, AddProperty | AlterProperty) or step.type_id != declared.id:
            continue
        if step.property_id not in sources or step.field is None:
            continue
        value = None if step.fill is None else scalar(step.fill, step.field.type, now_ms)
        stored = step.old_column if isinstance(step, AlterProperty) else None
        sources[step.property_id] = ColumnSource(stored, value)
    return sources


def relied_on_empty(plan: MigrationPlan, empty: Collection[str]) -> frozenset[str]:
    """Return the types whose emptiness the plan rests on: if rows arrive meanwhile, plan again."""
    return frozenset(
        step.type_id
        for step in plan.steps
        if isinstance(step, AddProperty | AlterProperty | AddConstraint | AddKey | ChangeKey | DropProperty)
        and step.type_id in empty
        and (is_hard(step) or not isinstance(step, DropProperty))
    )


# -- the write -------------------------------------------------------------------------------------
#
# A pure function of its transaction: resolve the text against the accepted schema, plan, lower; then judge
# the rows that are there. The publisher may run it again on a newer base.


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
    migration = plan(accepted, resolution.catalog, allow_data_loss=allow_data_loss, empty_types=empty)
    steps = MigrationPlan(tuple(as_executed(step, rows) for step in migration.steps))
    return Proposal(resolution.catalog, steps, resolution.notes, rows)


class SchemaChange:
    """The write. `proposal` is what the last attempt did, for the receipt."""

    def __init__(
        self,
        checked: CheckedSchema,
        catalogs: Catalogs,
        dedupe: Deduplication,
        *,
        allow_data_loss: bool,
        now_ms: int,
    ) -> None:
        self._checked = checked
        self._catalogs = catalogs
        self._dedupe = dedupe
        self._allow_data_loss = allow_data_loss
        self._now_ms = now_ms
        self.proposal: Proposal | None = None

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        """Say what to publish; nothing when the schema is the accepted one already."""
        state = txn.snapshot.state
        proposal = propose(
            self._checked, self._catalogs, state, txn.commit_id, allow_data_loss=self._allow_data_loss
        )
        proposal, rekeyed = with_rekeyed(proposal, state, txn.table, self._dedupe, now_ms=self._now_ms)
        self.proposal = proposal
        refuse_unsupported(proposal.plan)
        if not proposal.plan.steps:
            return PublishPlan(CommitKind.SCHEMA)
        return lower(
            proposal.plan,
            proposal.desired,
            txn,
            now_ms=self._now_ms,
            relied_on_empty=relied_on_empty(proposal.plan, proposal.empty),
            rekeyed=rekeyed,
        )

    def validate(self, txn: WriteTxn, plan: PublishPlan) -> None:
        """Judge the existing rows by what the change newly asks of them."""
        if self.proposal is not None and plan.consulted:
            judge_rows(self.proposal, txn.table, now_ms=self._now_ms)


def judge_rows(proposal: Proposal, table: Callable[[str], Handle], *, now_ms: int) -> None:
    """Raise when rows that are there break what a change newly asks of them."""

    def sources(declared: TableType) -> dict[str, ColumnSource]:
        return _sources(declared, proposal.plan, now_ms)

    rows = DesiredRows(proposal.desired, table, sources)
    for findings in judge_existing(proposal.plan.steps, rows):
        findings.refuse("existing rows break the new schema")


@dataclass(frozen=True)
class Deduplication:
    """What is done about edges that share a key."""

    way: Dedupe | None
    last_changed: Callable[[ManifestState, TableType, pa.Array], Mapping[str, int]]


def with_rekeyed(
    proposal: Proposal,
    state: ManifestState,
    table: Callable[[str], Handle],
    dedupe: Deduplication,
    *,
    now_ms: int,
) -> tuple[Proposal, list[RekeyedRows]]:
    """Return the edges that get other ids; where some would share one, the step is refused."""
    changed: list[RekeyedRows] = []
    shown: list[Step] = []
    supported = proposal.plan.supported
    for step in proposal.plan.steps:
        if not isinstance(step, AddKey | ChangeKey) or step.effect is Cost.METADATA or not supported:
            shown.append(step)
            continue
        declared = proposal.desired.table(step.type_id)
        assert isinstance(declared, EdgeType)
        rows = KeyedRows(declared, table(step.type_id), _sources(declared, proposal.plan, now_ms))
        gone = surplus(rows, dedupe.way, partial(dedupe.last_changed, state))
        if isinstance(gone, UnsupportedChange):
            shown.append(gone)
        else:
            shown.append(step)
            changed.append(RekeyedRows(rows, gone))
    return replace(proposal, plan=MigrationPlan(tuple(shown))), changed


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
