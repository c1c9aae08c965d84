"""Match: run the steps of a plan, all rows at once.

From one empty row to every combination of entities that the match keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import assert_never

import numpy as np

from omnigraph.catalog.keys import NoCanonicalText, canonical_text, ids_of_keys
from omnigraph.catalog.query.expressions import (
    Among,
    Comparison,
    Condition,
    PropertyValue,
    Variable,
    all_of,
)
from omnigraph.catalog.query.statements import Counted, Exists, Expand, Optional
from omnigraph.catalog.types import PropertyType
from omnigraph.execution.arrays import in_sorted, is_member, numbered, take
from omnigraph.execution.budget import TooManyAtOnce
from omnigraph.execution.columns import NOTHING, Ordinals
from omnigraph.execution.conditions import StoredRows, holds, members, pruning, stored_columns
from omnigraph.execution.context import Context
from omnigraph.execution.cycles import Intersection, PairTest
from omnigraph.execution.entities import MISSING, EntityTable
from omnigraph.execution.expand import Expander, expander_from, repeat_for
from omnigraph.execution.match_rows import MatchRows, matching
from omnigraph.execution.plan.explain import Recorder
from omnigraph.execution.plan.steps import Follow, Inner, Intersect, JoinByValue, Keep, Lookup, Scan, Step
from omnigraph.execution.values import Evaluator, MatchedRows
from omnigraph.storage.tables.predicate import OPERATORS

JUDGED_AT_ONCE = 1 << 18  # rows whose conditions are judged together: what that takes is not on the account


class Matcher:
    """Runs steps over rows."""

    def __init__(self, context: Context, evaluator: Evaluator, recorder: Recorder | None = None) -> None:
        self._context = context
        self._evaluator = evaluator
        self._recorder = recorder
        self._request = StoredRows(context.values, context.now_ms, sets=evaluator.sets)

    def run(self, steps: Sequence[Step], rows: MatchRows) -> MatchRows:
        """Return the rows that the steps leave."""
        for step in steps:
            if self._recorder is None:
                rows = self.step(step, rows)
                continue
            with self._recorder.running(step) as line:
                rows = self.step(step, rows)
                line.rows = (line.rows or 0) + rows.count
        return rows

    def blocks(self, steps: Sequence[Step], rows: MatchRows, size: int) -> Iterator[MatchRows]:
        """Yield the rows that the steps leave, in blocks: no step makes more than so many bytes of rows.

        A step does to each row what it does whatever the other rows are: where it would make too many, it is
        asked for the first half of its rows and then for the second.
        """
        for number, step in enumerate(steps):
            try:
                with self._context.budget.rows_at_most(size):
                    rows = self.run([step], rows)
            except TooManyAtOnce:
                if rows.count <= 1:
                    rows = self.run([step], rows)  # there is nothing to halve: only the limit counts
                    continue
                middle = rows.count // 2
                for half in (rows.part(0, middle), rows.part(middle, rows.count)):
                    yield from self.blocks(steps[number:], half, size)
                return
        yield rows

    def step(self, step: Step, rows: MatchRows) -> MatchRows:
        """Run one step, and let go of what nothing needs after it."""
        match step:
            case Scan(variable, conditions, pushed):
                rows = self._scan(rows, variable, conditions, pushed)
            case Lookup(variable, key, conditions):
                rows = self._introduce(rows, variable, self._by_key(variable, key), conditions)
            case JoinByValue():
                rows = self._join(rows, step)
            case Follow(clause, drops):
                return self._follow(rows, clause, drops)
            case Intersect(variable, clauses, drops):
                columns = len(rows.bound) + 1
                at, others = Intersection(self._context, variable, clauses).run(rows, columns)
                rows = taken(rows, at, drops).bind(variable, others)
            case Keep(condition):
                rows = self._keep(rows, (condition,))
            case Inner(clause, steps):
                rows = self._inner(rows, clause, steps)
            case _:
                assert_never(step)
        return without(rows, step.drops)

    # -- nodes -------------------------------------------------------------------------------------

    def _scan(
        self,
        rows: MatchRows,
        variable: Variable,
        conditions: tuple[Condition, ...],
        pushed: tuple[Condition, ...],
    ) -> MatchRows:
        if variable in rows.bound:  # an edge got there first
            return self._keep(rows, conditions)
        return self._beside(rows, variable, self._scanned(variable, conditions, pushed))

    def _scanned(
        self, variable: Variable, conditions: tuple[Condition, ...], pushed: tuple[Condition, ...]
    ) -> MatchRows:
        """Return the nodes of a type that meet conditions."""
        table = self._context.table(variable.type.id)
        in_memory = not table.as_declared or all(self._in_memory(table, condition) for condition in pushed)
        predicate = None if in_memory or not pushed else pruning(pushed, self._request)
        if predicate is None:
            return self._keep(MatchRows(table.rows, {variable: table.every()}), conditions)
        whole = all_of(pushed)
        matching = table.where(
            predicate, stored_columns(whole), lambda batch: holds(whole, replace(self._request, rows=batch))
        )
        in_scan = {id(condition) for condition in pushed}
        rest = tuple(condition for condition in conditions if id(condition) not in in_scan)
        return self._keep(MatchRows(len(matching), {variable: matching}), rest)

    def _in_memory(self, table: EntityTable, condition: Condition) -> bool:
        """Say whether the column that a condition reads is in memory: then no scan is needed.

        One that is scanned again and again is read whole, as long as there is room for it.
        """
        left = getattr(condition, "left", None) or getattr(condition, "operand", None)
        return isinstance(left, PropertyValue) and table.kept_for_scans(left.member.column)

    def _by_key(self, variable: Variable, key: Comparison | Among) -> Ordinals:
        """Return the nodes whose key is one of the values of a condition, ascending."""
        declared = variable.type.property_by_id(variable.type.key[0]).type
        table = self._context.table(variable.type.id)
        if isinstance(key, Comparison):
            text = self._id(key, declared)
            ordinals = NOTHING if text is None else table.find_texts([text])
        else:
            among = members(key.items, declared, self._request)
            ordinals = NOTHING if among is None else table.find(ids_of_keys(among.values, declared))
        return np.sort(ordinals[ordinals != MISSING])

    def _id(self, key: Comparison, declared: PropertyType) -> str | None:
        try:
            return canonical_text(self._evaluator.operand(key.right), declared)  # type: ignore[arg-type]
        except NoCanonicalText:
            return None  # no node has such a key

    def _introduce(
        self, rows: MatchRows, variable: Variable, ordinals: Ordinals, conditions: tuple[Condition, ...]
    ) -> MatchRows:
        """Bind a variable to some entities: those that meet the conditions, beside every row there is."""
        if variable in rows.bound:
            there = is_member(rows.bound[variable], ordinals, self._context.table(variable.type.id).span)
            return self._keep(rows.keep(there), conditions)
        alone = self._keep(MatchRows(len(ordinals), {variable: ordinals}), conditions)
        return self._beside(rows, variable, alone)

    def _beside(self, rows: MatchRows, variable: Variable, alone: MatchRows) -> MatchRows:
        """Put every node beside every row there is."""
        if rows.count == 1 and not rows.bound and rows.origin is None:
            return alone
        self._context.budget.check(rows.count * alone.count, len(rows.bound) + 1, "a cross product")
        left = np.repeat(np.arange(rows.count), alone.count)
        return taken(rows, left).bind(variable, np.tile(alone.bound[variable], rows.count))

    def _join(self, rows: MatchRows, step: JoinByValue) -> MatchRows:
        """Put nodes beside the rows that have an equal value, then judge the conditions."""
        variable = step.scan.variable
        alone = self._scanned(variable, step.scan.conditions, step.scan.pushed)
        if not rows.count or not alone.count:
            nothing = np.zeros(0, np.int64)
            return rows.take(nothing).bind(variable, nothing)
        near, far = self._evaluator.column(step.near, rows), self._evaluator.column(step.far, alone)
        at, places = matching(near, far, len(rows.bound) + 1, self._context.budget)
        candidates = taken(rows, at).bind(variable, take(alone.bound[variable], places))
        return self._keep(candidates, step.conditions)

    def _keep(self, rows: MatchRows, conditions: tuple[Condition, ...]) -> MatchRows:
        for condition in conditions:
            if not rows.count:
                break
            kept = [
                holds(condition, MatchedRows(part, self._evaluator)).to_numpy(zero_copy_only=False)
                for part in _parts(rows)
            ]
            rows = rows.keep(kept[0] if len(kept) == 1 else np.concatenate(kept))
        return rows

    # -- edges -------------------------------------------------------------------------------------

    def _follow(self, rows: MatchRows, clause: Expand, drops: tuple[Variable, ...]) -> MatchRows:
        left, right = clause.left in rows.bound, clause.right in rows.bound
        if not left and not right:
            return without(self._every(rows, clause), drops)
        near, far = (clause.left, clause.right) if left else (clause.right, clause.left)
        present = rows.bound[near] >= 0
        if not present.all():
            rows = rows.keep(present)
        expander = expander_from(self._context, clause, near)
        if left and right:
            return without(self._close(rows, clause, expander), drops)
        columns = len(rows.bound) + 2
        edges = None
        if clause.edge is None:
            at, others = expander.pairs(rows.bound[near], columns)
        else:
            expansion = expander.neighbours(rows.bound[near], columns)
            at, others, edges = expansion.places, expansion.others, expansion.edges
        rows_after = taken(rows, at, drops)
        if far not in drops:
            rows_after = rows_after.bind(far, others)
        if edges is None or clause.edge is None or clause.edge in drops:
            return rows_after
        return rows_after.bind(clause.edge, edges)

    def _close(self, rows: MatchRows, clause: Expand, expander: Expander) -> MatchRows:
        """Keep the rows whose two bound ends are joined; with an edge variable, once for each edge."""
        nears, fars = rows.bound[clause.left], rows.bound[clause.right]
        if clause.edge is None and clause.hops.high == 1:
            return rows.keep(PairTest(self._context, expander, rows.count).holds(nears, fars))
        span = max(expander.end.span, 1)
        nodes, back = numbered(nears, expander.start.span)
        row_keys = np.where(fars < 0, -1, back * span + fars)
        if clause.edge is None:
            places, others = expander.pairs(nodes)
            return rows.keep(in_sorted(row_keys, np.sort(places * span + others)))
        expansion = expander.neighbours(nodes)
        keys = expansion.places * span + expansion.others
        order = np.argsort(keys, kind="stable")
        at, entries = repeat_for(row_keys, keys[order])
        return taken(rows, at).bind(clause.edge, expansion.edges[order][entries])

    def _every(self, rows: MatchRows, clause: Expand) -> MatchRows:
        """Both ends are new: every edge there is, or every pair within the bounds."""
        expander = Expander(self._context, clause.hops)
        edges: Ordinals | None = None
        if clause.edge is not None:
            lefts, edges, rights = expander.every_edge()
        elif clause.hops.high == 1:
            lefts, rights = expander.every_pair()
        else:
            nodes = expander.start.every()
            places, rights = expander.pairs(nodes)
            lefts = nodes[places]
        if clause.left == clause.right:
            loops = lefts == rights
            lefts, rights = lefts[loops], rights[loops]
            edges = None if edges is None else edges[loops]
        self._context.budget.check(rows.count * len(lefts), len(rows.bound) + 3, "a traversal")
        at = np.repeat(np.arange(rows.count), len(lefts))
        rows_after = rows.take(at).bind(clause.left, np.tile(lefts, rows.count))
        rows_after = rows_after.bind(clause.right, np.tile(rights, rows.count))
        if edges is not None and clause.edge is not None:
            rows_after = rows_after.bind(clause.edge, np.tile(edges, rows.count))
        return rows_after

    # -- blocks ------------------------------------------------------------------------------------

    def _inner(
        self, rows: MatchRows, clause: Exists | Counted | Optional, steps: tuple[Step, ...]
    ) -> MatchRows:
        used = {v: rows.bound[v] for v in clause.block.uses if v in rows.bound}
        inside = MatchRows(rows.count, used, np.arange(rows.count))
        inner_rows = self.run(steps, inside)
        origin = inner_rows.origin if inner_rows.origin is not None else np.zeros(0, np.int64)
        match clause:
            case Exists(_, negated):
                there = np.zeros(rows.count, dtype=bool)
                there[origin] = True
                return rows.keep(~there if negated else there)
            case Counted(_, operator, number):
                counts = np.bincount(origin, minlength=rows.count)
                return rows.keep(OPERATORS[operator](counts, number))
            case Optional(block):
                return self._optional(rows, inner_rows, origin, block.introduces)
            case _:
                assert_never(clause)

    def _optional(
        self, rows: MatchRows, inner_rows: MatchRows, origin: Ordinals, introduced: tuple[Variable, ...]
    ) -> MatchRows:
        lonely = np.ones(rows.count, dtype=bool)
        lonely[origin] = False
        alone = np.flatnonzero(lonely)
        index = np.concatenate([origin, alone])
        rows_after = rows.take(index)
        for variable in introduced:
            values = inner_rows.bound.get(variable, np.zeros(0, np.int64))
            rows_after = rows_after.bind(variable, np.concatenate([values, np.full(len(alone), MISSING)]))
        return rows_after


def taken(rows: MatchRows, at: Ordinals, drops: tuple[Variable, ...] = ()) -> MatchRows:
    """Return some rows, possibly repeated, without the variables that nothing needs any more."""
    kept = {
        variable: take(ordinals, at) for variable, ordinals in rows.bound.items() if variable not in drops
    }
    return MatchRows(len(at), kept, None if rows.origin is None else take(rows.origin, at))


def without(rows: MatchRows, drops: tuple[Variable, ...]) -> MatchRows:
    """Return the rows without some of their variables: as many as before."""
    if not drops:
        return rows
    kept = {variable: ordinals for variable, ordinals in rows.bound.items() if variable not in drops}
    return MatchRows(rows.count, kept, rows.origin)


def _parts(rows: MatchRows) -> Iterator[MatchRows]:
    if rows.count <= JUDGED_AT_ONCE:
        yield rows
        return
    for start in range(0, rows.count, JUDGED_AT_ONCE):
        yield rows.part(start, start + JUDGED_AT_ONCE)
