"""Match: run the steps of a plan, all rows at once.

From one empty row to every combination of entities that the match keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import assert_never

import numpy as np
import pyarrow as pa

from omnigraph.catalog.keys import NoCanonicalText, canonical_text, ids_of_keys
from omnigraph.catalog.query.expressions import (
    Among,
    Comparison,
    Condition,
    Direction,
    Hops,
    PropertyValue,
    Variable,
    all_of,
)
from omnigraph.catalog.query.statements import Counted, Exists, Expand, Optional
from omnigraph.catalog.types import PropertyType
from omnigraph.execution.budget import TooManyAtOnce
from omnigraph.execution.conditions import StoredRows, holds, members, pruning, stored_columns
from omnigraph.execution.context import Context
from omnigraph.execution.entities import MISSING, EntityTable, MatchRows, Ordinals
from omnigraph.execution.expand import Expander, repeat_for
from omnigraph.execution.plan.explain import Recorder
from omnigraph.execution.plan.steps import Follow, Inner, Keep, Lookup, Scan, Step
from omnigraph.execution.values import Evaluator, MatchedRows
from omnigraph.storage.tables.predicate import OPERATORS

JUDGED_AT_ONCE = 1 << 18  # rows whose conditions are judged together: what that takes is not on the account
NO_IDS = pa.array([], pa.string())
_TURNED = {
    Direction.FORWARD: Direction.BACKWARD,
    Direction.BACKWARD: Direction.FORWARD,
    Direction.EITHER: Direction.EITHER,
}


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
        """Run one step."""
        match step:
            case Scan(variable, conditions, pushed):
                return self._scan(rows, variable, conditions, pushed)
            case Lookup(variable, key, conditions):
                return self._introduce(rows, variable, self._by_key(variable, key), conditions)
            case Follow(clause):
                return self._follow(rows, clause)
            case Keep(condition):
                return self._keep(rows, (condition,))
            case Inner(clause, steps):
                return self._inner(rows, clause, steps)
            case _:
                assert_never(step)

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
        table = self._context.table(variable.type.id)
        in_memory = not table.as_declared or all(self._cached(table, condition) for condition in pushed)
        predicate = None if in_memory or not pushed else pruning(pushed, self._request)
        if predicate is None:
            return self._introduce(rows, variable, table.every(), conditions)
        whole = all_of(pushed)
        matching = table.where(
            predicate, stored_columns(whole), lambda batch: holds(whole, replace(self._request, rows=batch))
        )
        in_scan = {id(condition) for condition in pushed}
        rest = tuple(condition for condition in conditions if id(condition) not in in_scan)
        return self._introduce(rows, variable, matching, rest)

    def _cached(self, table: EntityTable, condition: Condition) -> bool:
        """Say whether the column that a condition reads is in memory: then no scan is needed."""
        left = getattr(condition, "left", None) or getattr(condition, "operand", None)
        return isinstance(left, PropertyValue) and (
            self._context.caches.columns.get(table.key, left.member.column) is not None
        )

    def _by_key(self, variable: Variable, key: Comparison | Among) -> Ordinals:
        """Return the nodes whose key is one of the values of a condition, ascending."""
        declared = variable.type.property_by_id(variable.type.key[0]).type  # type: ignore[union-attr]
        ids = self._ids(key, declared)
        if not len(ids):
            return np.zeros(0, np.int64)
        ordinals = self._context.table(variable.type.id).find(ids)
        return np.sort(ordinals[ordinals != MISSING])

    def _ids(self, key: Comparison | Among, declared: PropertyType) -> pa.Array:
        if isinstance(key, Among):
            among = members(key.items, declared, self._request)
            return NO_IDS if among is None else ids_of_keys(among.values, declared)
        try:
            text = canonical_text(self._evaluator.operand(key.right), declared)  # type: ignore[arg-type]
        except NoCanonicalText:
            return NO_IDS  # no node has such a key
        return pa.array([text], pa.string())

    def _introduce(
        self, rows: MatchRows, variable: Variable, ordinals: Ordinals, conditions: tuple[Condition, ...]
    ) -> MatchRows:
        """Bind a variable to some entities: those that meet the conditions, beside every row there is."""
        if variable in rows.bound:
            there = np.isin(rows.bound[variable], ordinals)
            return self._keep(rows.keep(there), conditions)
        alone = self._keep(MatchRows(len(ordinals), {variable: ordinals}), conditions)
        if rows.count == 1 and not rows.bound and rows.origin is None:
            return alone
        self._context.budget.check(rows.count * alone.count, len(rows.bound) + 1, "a cross product")
        left = np.repeat(np.arange(rows.count), alone.count)
        return rows.take(left).bind(variable, np.tile(alone.bound[variable], rows.count))

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

    def _follow(self, rows: MatchRows, clause: Expand) -> MatchRows:
        left, right = clause.left in rows.bound, clause.right in rows.bound
        if not left and not right:
            return self._every(rows, clause)
        hops = clause.hops
        if left:
            near, far = clause.left, clause.right
        else:
            near, far = clause.right, clause.left
            hops = Hops(hops.edge, _TURNED[hops.direction], hops.low, hops.high)
        expander = Expander(self._context, hops)
        present = rows.bound[near] >= 0
        if not present.all():
            rows = rows.keep(present)
        nodes, back = np.unique(rows.bound[near], return_inverse=True)
        if clause.edge is None:
            places, others = expander.pairs(nodes)
            edges = None
        else:
            expansion = expander.neighbours(nodes)
            order = np.argsort(expansion.places, kind="stable")
            places, others, edges = expansion.places[order], expansion.others[order], expansion.edges[order]
        if left and right:
            return self._close(rows, back, places, others, edges, rows.bound[far], clause.edge)
        fanned = int(np.bincount(places, minlength=len(nodes))[back].sum()) if len(nodes) else 0
        self._context.budget.check(fanned, len(rows.bound) + 2, "a traversal")
        at, entries = repeat_for(back, places)
        rows_after = rows.take(at).bind(far, others[entries])
        if edges is None or clause.edge is None:
            return rows_after
        return rows_after.bind(clause.edge, edges[entries])

    def _close(
        self,
        rows: MatchRows,
        back: Ordinals,
        places: Ordinals,
        others: Ordinals,
        edges: Ordinals | None,
        targets: Ordinals,
        edge: Variable | None,
    ) -> MatchRows:
        """Keep the rows whose two bound ends are joined; with an edge variable, once for each edge."""
        span = int(max(others.max(initial=0), targets.max(initial=0))) + 1
        keys = places * span + others
        row_keys = np.where(targets < 0, -1, back * span + targets)
        if edges is None or edge is None:
            return rows.keep(np.isin(row_keys, keys))
        order = np.argsort(keys, kind="stable")
        at, entries = repeat_for(row_keys, keys[order])
        return rows.take(at).bind(edge, edges[order][entries])

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
        inside = MatchRows(rows.count, rows.bound, np.arange(rows.count))
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
        alone = np.setdiff1d(np.arange(rows.count), origin)
        index = np.concatenate([origin, alone])
        rows_after = rows.take(index)
        for variable in introduced:
            values = inner_rows.bound.get(variable, np.zeros(0, np.int64))
            rows_after = rows_after.bind(variable, np.concatenate([values, np.full(len(alone), MISSING)]))
        return rows_after


def _parts(rows: MatchRows) -> Iterator[MatchRows]:
    if rows.count <= JUDGED_AT_ONCE:
        yield rows
        return
    for start in range(0, rows.count, JUDGED_AT_ONCE):
        yield rows.part(start, start + JUDGED_AT_ONCE)
