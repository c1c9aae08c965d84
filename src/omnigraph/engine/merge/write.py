"""Write: a merge as one write that the publisher can run, and run again on a newer target.

    base, ours, theirs -> a delta for each side and type -> three-way -> **plan** -> publisher

The source is captured once; the target is the transaction's base. A type that only the source changed is
taken over by pointer, one that both changed gets the source's share written on top of the target's version,
and a type that the source left alone is not opened. Whatever way a type takes, the evaluator judges the
merged image.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.errors import InvalidRequest
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID, EdgeType, NodeType, TableType
from omnigraph.catalog.past import columns_then, compared_type
from omnigraph.engine.change import Catalogs, ChangeSet, TypeChange, last_of_each
from omnigraph.engine.history.delta import (
    Delta,
    Fills,
    compare,
    delta,
    differs,
    fills_of,
    nothing,
    pin_of,
    rows_moved,
    sides_of,
    touched,
    under_names,
)
from omnigraph.engine.merge.conflicts import (
    Choices,
    Conflict,
    Granularity,
    MergeConflict,
    Resolutions,
    Take,
    in_order,
    read_choices,
)
from omnigraph.engine.merge.rekey import KeyedState, makes_other_ids
from omnigraph.engine.merge.schemas import Gone, Unified, merge_schemas, refuse_dropped
from omnigraph.engine.merge.threeway import (
    Conflicts,
    Counts,
    Dropped,
    LargeTypes,
    MergedType,
    States,
    TypeMerge,
    in_types_of,
    merge_type,
)
from omnigraph.engine.validate.evaluate import Question, consulted, judge_sets, judge_values, questions
from omnigraph.engine.validate.relation import Findings
from omnigraph.engine.write import ExecutorFor
from omnigraph.storage.history import holds
from omnigraph.storage.manifest.records import CommitKind, ManifestState, Pin
from omnigraph.storage.tables.differences import OneSided
from omnigraph.storage.tables.effects import (
    AddColumn,
    DeleteIds,
    DropColumn,
    Effect,
    Overwrite,
    SeveralEffects,
    Upsert,
)
from omnigraph.storage.tables.reads import TableReads
from omnigraph.storage.transaction import Adopted, PinnedSnapshot, PublishPlan, WriteTxn

UNIFIED = "unified"  # the label of a commit that made one identity of two
SHOWN = 1_000  # conflicts that are reported in full
Bases = Callable[[ManifestState], tuple[ManifestState, ...]]  # common ancestors with a target, best first


class MergeWrite:
    """One merge. What it exposes is of the last attempt, for the outcome."""

    def __init__(
        self,
        source: ManifestState,
        bases: Bases,
        reads: TableReads,
        check_kept: Callable[[Collection[str]], None],
        catalogs: Catalogs,
        executor: ExecutorFor,
        doing: str,
        *,
        kind: CommitKind = CommitKind.MERGE,
        merged: ManifestState | None = None,  # recorded as a parent; None where history is not joined
        resolutions: Resolutions | None = None,
        strategy: Take | None = None,
        granularity: Granularity = "property",
        large: LargeTypes | None = None,
    ) -> None:
        self._source = source
        self._bases = bases
        self._reads = reads
        self._check_kept = check_kept
        self._catalogs = catalogs
        self._executor = executor
        self._doing = doing
        self._kind = kind
        self._merged = merged
        self._resolutions = list(resolutions or ())
        self._strategy = strategy
        self._granularity: Granularity = granularity
        self._large = large
        self._new_schema = False
        self._asked: tuple[Question, ...] = ()
        self._judged: ChangeSet | None = None
        self._image: FrozenMap[str, Pin] = FrozenMap()
        self._values = Findings()
        self.base: ManifestState | None = None
        self.target: ManifestState | None = None
        self.catalog = Catalog()  # the merged one
        self.counts: tuple[Counts, ...] = ()
        self.unified: tuple[Unified, ...] = ()
        self.dropped: tuple[Dropped, ...] = ()

    # -- the write ---------------------------------------------------------------------------------

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        """Merge on this target; raise all conflicts that the two sides themselves have."""
        target = txn.snapshot.state
        self.target, self.base, self.counts, self.unified, self.dropped = target, None, (), (), ()
        if self._merged is not None and holds(target, self._merged):
            self._judged, self._asked = None, ()
            return PublishPlan(self._kind)  # there is nothing to do
        bases = self._bases(target)
        base = self.base = bases[0]
        schemas = merge_schemas(*(self._catalog(state) for state in (base, target, self._source)))
        self.catalog = schemas.catalog
        self._check_unchanged(schemas.gone)
        choices = read_choices(self._resolutions, self._strategy, schemas.catalog, self._granularity)
        self._new_schema = schemas.catalog.identity != self._catalog(target).identity
        merges = self._merge_types(bases, schemas.catalog, choices)
        conflicts = [merge.conflicts for merge in merges]
        self._refuse(
            [conflict for part in conflicts for conflict in part.first], sum(part.total for part in conflicts)
        )
        _check_met(choices, merges)
        self._values = sum((merge.values for merge in merges), Findings())
        judged = (merge.judged for merge in merges if merge.judged.count or len(merge.judged.removed))
        self._judged = ChangeSet.of(schemas.catalog, judged)
        self._asked = tuple(questions(self._judged))
        adopt = {merge.table_id: merge.adopted for merge in merges if merge.adopted is not None}
        if adopt or self._merged is not None:
            # After the target was captured: a sweep that comes later moves it. What is taken over must be
            # there, and what was merged must stay, as the base of the next merge.
            self._check_kept([adopted.pin.table_id for adopted in adopt.values()])
        self._image = FrozenMap(
            {**target.pins, **{m.table_id: m.image for m in merges if m.image is not None}}
        )
        self.counts = tuple(merge.counts for merge in merges if merge.changes)
        self.unified = schemas.unified
        self.dropped = tuple(self._dropped(gone) for gone in schemas.gone if gone.side == "ours")
        return PublishPlan(
            self._kind,
            effects={merge.table_id: merge.effect for merge in merges if merge.effect is not None},
            adopt=adopt,
            rename=schemas.renames(target.pins, adopt),
            drop=schemas.dropped(target.pins),
            schema=schemas.text if self._new_schema else None,
            assumed=frozenset(target.pins),
            consulted=consulted(self._asked),
            merged_parent=None if self._merged is None else self._merged.head,
            merged=FrozenMap() if self._merged is None else self._merged.ancestry,
            replans=True,
            always_commit=True,
            labels=_labels(schemas.unified),
        )

    def validate(self, txn: WriteTxn, plan: PublishPlan) -> None:
        """Judge the merged image on this target."""
        if self._judged is None:
            return
        state = replace(txn.snapshot.state, pins=self._image)
        base = replace(txn, snapshot=PinnedSnapshot(txn.snapshot.branch, state))
        findings = self._values + judge_values(self._judged)
        findings += judge_sets(self._asked, self._executor(self._judged, base))
        self._refuse([Conflict.of(violation) for violation in findings.violations], findings.total)

    def _refuse(self, conflicts: list[Conflict], total: int) -> None:
        if conflicts:
            raise MergeConflict(self._doing, in_order(conflicts)[:SHOWN], total)

    # -- what goes with the schema -----------------------------------------------------------------

    def _check_unchanged(self, gone: Iterable[Gone]) -> None:
        """Refuse to drop what the other side wrote to since the base."""
        assert self.base is not None
        assert self.target is not None
        states = {"ours": self.target, "theirs": self._source}
        wrote = [dropped for dropped in gone if self._wrote(dropped, self.base, states[dropped.side])]
        refuse_dropped([dropped.name for dropped in wrote])

    def _wrote(self, gone: Gone, before: ManifestState, after: ManifestState) -> bool:
        """Say whether rows were inserted or updated; of a property, whether one got another value."""
        declared = gone.declared
        change = self._delta(declared, before, after)
        if gone.member is None:
            return bool(change.inserted.num_rows or change.after.num_rows)
        column = gone.member.column
        inserted = change.inserted[column].combine_chunks()
        plain = fills_of(self._compared(declared), after).get(column, pa.scalar(None, inserted.type))
        written = differs(inserted, pa.repeat(plain, len(inserted))) & inserted.is_valid().to_numpy(False)
        return bool(written.any() or change.changed[column].any())

    def _dropped(self, gone: Gone) -> Dropped:
        """Count what the target loses: the rows of a type, or the values of a property."""
        assert self.target is not None
        declared, member = gone.declared, gone.member
        pin = self.target.pins[declared.table_id]
        if member is None:
            return Dropped(declared.kind.value, declared.name, None, pin.rows)
        values = self._reads.scan(pin.table_id, pin.version, [member.column])
        rows = sum(batch.num_rows - batch[member.column].null_count for batch in values)
        return Dropped(declared.kind.value, declared.name, member.name, rows)

    # -- types -------------------------------------------------------------------------------------

    def _merge_types(
        self, bases: tuple[ManifestState, ...], catalog: Catalog, choices: Choices
    ) -> list[MergedType]:
        assert self.target is not None
        decided = {table for table, _ in choices.names()}
        # A type that the source has as one base has it is undecided if an equally good one has it otherwise.
        concerned = [
            declared
            for declared in catalog.tables
            if any(self._moved(declared, base, self._source) for base in bases)
            or declared.table_id in decided
            or (self._new_schema and self._moved(declared, bases[0], self.target))
        ]
        if self._large is not None:  # its jobs belong to the thread that asked for the merge
            return [self._merge_one(declared, bases, choices) for declared in concerned]
        with ThreadPoolExecutor(max_workers=8) as pool:  # each waits for storage
            return list(pool.map(lambda declared: self._merge_one(declared, bases, choices), concerned))

    def _merge_one(
        self, declared: TableType, bases: tuple[ManifestState, ...], choices: Choices
    ) -> MergedType:
        assert self.target is not None
        table, target = declared.table_id, self.target
        base, *others = bases
        decided = table in {chosen for chosen, _ in choices.names()}
        if isinstance(declared, EdgeType) and self._is_rekeyed(declared, bases, decided=decided):
            return self._merge_rekeyed(declared, bases, choices)
        if self._large is not None and not (others or decided or self._new_schema):
            merged_elsewhere = self._large(declared, States(base, target, self._source), choices)
            if merged_elsewhere is not None:
                return merged_elsewhere
        theirs = self._delta(declared, base, self._source)
        ambiguous: set[str] = set()
        for other in others:  # an entity that equally good bases disagree on cannot be decided by one of them
            ambiguous |= set(self._delta(declared, base, other).ids.to_pylist())
        compared_ids = theirs.ids
        if self._new_schema or ambiguous or decided:
            compared_ids = None
        ours = self._delta(declared, base, target, compared_ids)
        outcome = merge_type(declared, ours, theirs, choices, frozenset(ambiguous))
        judged = _judged(outcome)
        if self._new_schema:  # what we wrote was never judged by the constraints that the source brings
            judged = _judged(outcome, *(in_types_of(rows, declared) for rows in (ours.inserted, ours.after)))
        counts = Counts(declared, *count(outcome, ours, theirs))
        merged = MergedType(counts, judged, Conflicts(outcome.conflicts, len(outcome.conflicts)), outcome.met)
        here, there = (self._fits(declared, state) for state in (target, self._source))
        untouched = not self._moved(declared, base, target) and not outcome.met
        if there and (untouched or not here):
            # Without changes of ours the source's version is the outcome; with them, and with columns that
            # the target lacks, it is kept too, and our share is written on top.
            pin = self._source.pins[table]
            merged = replace(merged, adopted=Adopted(pin, *counts.numbers), image=None if here else pin)
            if untouched:
                return merged
            mine = merge_type(declared, theirs, ours, choices.turned, frozenset(ambiguous))
            if not here:  # it is judged on the source's rows, which still have what we removed
                removed = pc.unique(pa.concat_arrays([judged.removed, mine.removed]))
                merged = replace(merged, judged=replace(judged, removed=removed))
            return replace(merged, effect=_effect(mine))
        if here:
            return replace(merged, effect=_effect(outcome))
        return self._with_columns(merged, outcome, theirs, ours, choices, frozenset(ambiguous))

    # -- other keys --------------------------------------------------------------------------------

    def _is_rekeyed(self, declared: EdgeType, bases: tuple[ManifestState, ...], *, decided: bool) -> bool:
        """Say whether edges have other ids in one of the states than the merged schema gives them."""
        assert self.target is not None
        sides = (self.target, self._source)
        if not any(self._makes_other_ids(declared, state) for state in (*bases, *sides)):
            return False
        kept = self._fits(declared, self._source) and not self._makes_other_ids(declared, self._source)
        return decided or not kept or self._moved(declared, bases[0], self.target)

    def _makes_other_ids(self, declared: EdgeType, state: ManifestState) -> bool:
        return makes_other_ids(declared, self._catalog(state))

    def _merge_rekeyed(
        self, declared: EdgeType, bases: tuple[ManifestState, ...], choices: Choices
    ) -> MergedType:
        """Merge edges by the ids that the merged schema gives them in all states."""
        assert self.target is not None
        base, *others = (self._keyed(declared, state) for state in bases)
        target, source = (self._keyed(declared, state) for state in (self.target, self._source))
        ours, theirs = compare(base.rows, target.rows), compare(base.rows, source.rows)
        ambiguous = {row_id for other in others for row_id in compare(base.rows, other.rows).ids.to_pylist()}
        outcome = merge_type(declared, ours, theirs, choices, frozenset(ambiguous))
        conflicts = [*target.conflicts("target"), *source.conflicts("source"), *outcome.conflicts]
        counts = Counts(declared, *count(outcome, ours, theirs))
        merged = MergedType(
            counts, _judged(outcome), Conflicts(tuple(conflicts), len(conflicts)), outcome.met
        )
        if self._fits(declared, self.target) and not self._makes_other_ids(declared, self.target):
            judged = _judged(outcome, *(in_types_of(rows, declared) for rows in (ours.inserted, ours.after)))
            return replace(merged, judged=judged, effect=_effect(outcome))
        return self._rewritten(merged, outcome, target)

    def _rewritten(self, merged: MergedType, outcome: TypeMerge, target: KeyedState) -> MergedType:
        """Write all edges anew: the target's under their new ids, with what the source brings."""
        assert self.target is not None
        declared = outcome.declared
        whole = pa.concat_tables([in_types_of(target.rows, declared), outcome.rows])
        rows = last_of_each(whole.filter(pc.invert(pc.is_in(whole[ID], value_set=outcome.removed))))
        here = declared.table_id in self.target.pins
        state = self.target if here else self._source
        steps = _column_steps(declared, self._catalog(state), fills_of(declared, self._source))
        adopted = None if here else Adopted(state.pins[declared.table_id], *merged.counts.numbers)
        return replace(
            merged,
            judged=TypeChange(declared, rows, removed=outcome.removed, replaces=True),
            adopted=adopted,
            effect=SeveralEffects((*steps, Overwrite(rows))),
        )

    def _keyed(self, declared: EdgeType, state: ManifestState) -> KeyedState:
        """Return all edges of a type in a state, by the ids that the merged schema gives them."""
        wide = self._compared(declared)
        come = under_names(
            sides_of(self._reads, None, self._pin(declared, state))[1], self._catalog(state), wide
        )
        schema, fills = wide.stored_schema, fills_of(wide, self._source)
        return KeyedState.of(declared, delta((OneSided(None), come), schema, fills).inserted)

    def _with_columns(
        self,
        merged: MergedType,
        outcome: TypeMerge,
        theirs: Delta,
        ours: Delta,
        choices: Choices,
        ambiguous: frozenset[str],
    ) -> MergedType:
        """Merge a type whose table has the columns of the outcome on neither side.

        They are made on the version of the side whose table goes on; the other side's share comes on top.
        The evaluator sees all rows: no stored version has them under the columns that it asks for.
        """
        assert self.target is not None
        declared = merged.counts.declared
        state = self.target if declared.table_id in self.target.pins else self._source
        pin = state.pins[declared.table_id]
        share, adopted = outcome, None
        if state is not self.target:
            share = merge_type(declared, theirs, ours, choices.turned, ambiguous)
            adopted = Adopted(pin, *merged.counts.numbers)
        stored = sides_of(self._reads, None, pin)[1]
        fills = fills_of(declared, self._source)
        named = under_names(stored, self._catalog(state), declared)
        rows = delta((OneSided(None), named), declared.stored_schema, fills).inserted
        whole = pa.concat_tables([rows, share.rows])
        kept = last_of_each(whole.filter(pc.invert(pc.is_in(whole[ID], value_set=share.removed))))
        steps = _column_steps(declared, self._catalog(state), fills)
        effect = _effect(share)
        return replace(
            merged,
            judged=TypeChange(declared, kept, removed=outcome.removed, replaces=True),
            adopted=adopted,
            effect=SeveralEffects((*steps, *(() if effect is None else (effect,)))),
        )

    def _catalog(self, state: ManifestState) -> Catalog:
        return self._catalogs.get(state.schema)

    def _pin(self, declared: TableType, state: ManifestState) -> Pin | None:
        return pin_of(state, self._catalog(state), declared)

    def _moved(self, declared: TableType, before: ManifestState, after: ManifestState) -> bool:
        return rows_moved(self._pin(declared, before), self._pin(declared, after))

    def _fits(self, declared: TableType, state: ManifestState) -> bool:
        """Say whether a state has the table of a type, with each property in the column declared for it."""
        then = self._catalog(state).by_id.get(declared.id)
        if not isinstance(then, NodeType | EdgeType):
            return False
        if set(then.stored_schema) != set(declared.stored_schema):
            return False
        # A column of the same name may hold another property: one that was made on the other branch.
        own = {name: name for name in declared.stored_schema.names}
        return columns_then(declared, self._catalog(state)) == own

    def _delta(
        self,
        declared: TableType,
        before: ManifestState,
        after: ManifestState,
        only_ids: pa.Array | None = None,
    ) -> Delta:
        """Return what happened to a type between two states; nothing is opened where their pins agree.

        Rows are in types that hold the values of all states of this merge. Where only some ids are wanted,
        rows are read only if one of those was touched at all.
        """
        wide = self._compared(declared)
        sides = sides_of(self._reads, self._pin(declared, before), self._pin(declared, after))
        if only_ids is not None and not pc.any(pc.is_in(touched(sides), value_set=only_ids)).as_py():
            return nothing(wide.stored_schema)
        gone, come = (
            under_names(side, self._catalog(state), wide)
            for side, state in zip(sides, (before, after), strict=True)
        )
        return delta((gone, come), wide.stored_schema, fills_of(wide, self._source))

    def _compared(self, declared: TableType) -> TableType:
        assert self.base is not None
        assert self.target is not None
        states = (self.base, self.target, self._source)
        return compared_type(declared, [self._catalog(state) for state in states])


def _labels(unified: tuple[Unified, ...]) -> dict[str, str]:
    """Return what the commit record says of identities that are one from now on."""
    return {UNIFIED: json.dumps([pair.to_json() for pair in unified])} if unified else {}


def _column_steps(declared: TableType, then: Catalog, fills: Fills) -> list[Effect]:
    """Return how a table gets from the columns of one schema to those of a declaration."""
    known = then.same_table(declared)
    assert known is not None
    stored = {member.column for member in known.properties}
    added: list[Effect] = []
    for member in declared.properties:
        before = known.same_property(member)
        if member.column not in stored:
            copied = None if before is None else before.column
            fill = fills.get(member.column) if copied is None else None
            added.append(AddColumn(member.field, fill, copied))
    unused = stored - {member.column for member in declared.properties}
    return [*added, *(DropColumn(column) for column in sorted(unused))]


def _effect(share: TypeMerge) -> Effect | None:
    """Return what a side's share means for the version that it is written to."""
    if not (share.rows.num_rows or len(share.removed)):
        return None
    return Upsert(share.rows, share.removed) if share.rows.num_rows else DeleteIds(share.removed)


def _judged(outcome: TypeMerge, *also: pa.Table) -> TypeChange:
    """Return the outcome as a change, with rows that are stored already but must be looked at again."""
    rows = outcome.rows
    if also:
        every = pa.concat_tables([*also, rows])
        gone = pc.is_in(every[ID], value_set=outcome.removed)
        rows = last_of_each(every.filter(pc.invert(gone)))
    return TypeChange(outcome.declared, rows, removed=outcome.removed)


def count(outcome: TypeMerge, ours: Delta, theirs: Delta) -> tuple[int, int, int]:
    """Count what the merge does to the target's entities: one is new if the target does not have it."""
    new = set(theirs.inserted[ID].to_pylist()) - set(ours.inserted[ID].to_pylist())
    new |= set(ours.deleted[ID].to_pylist())
    written = outcome.rows[ID].to_pylist()
    inserted = sum(1 for row_id in written if row_id in new)
    return inserted, len(written) - inserted, len(outcome.removed)


def _check_met(choices: Choices, merges: Iterable[MergedType]) -> None:
    """Refuse choices for entities that neither side changed: they were meant for something else."""
    met = {(merge.table_id, entity) for merge in merges for entity in merge.met}
    lost = sorted(choices.names() - met)
    if lost:
        raise InvalidRequest(
            f"a resolution names {lost[0][1]!r}, which neither side changed",
            remedy="Preview the merge to see what there is to decide",
        )
