"""Answer: from the rows of the match to the rows of the result.

    match -> **rank, group, order, cut, project** -> result

Rows come out in the total order of the specification.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from omnigraph.catalog.query.expressions import (
    Aggregate,
    AggregateFunction,
    Condition,
    EntityValue,
    OutputRef,
    Value,
    Variable,
    holds_aggregate,
    operands_of,
)
from omnigraph.catalog.query.statements import CheckedRead, Expand, SortKey, page
from omnigraph.execution.context import Context
from omnigraph.execution.entities import ONE_EMPTY_ROW, MatchRows, Ordinals, joined
from omnigraph.execution.expand import Expander
from omnigraph.execution.group import Groups, distinct, group, grouped, key_column
from omnigraph.execution.match import Matcher
from omnigraph.execution.plan.explain import Recorder
from omnigraph.execution.plan.steps import CountEdges, CountRows, Plan, Scan, needed_columns
from omnigraph.execution.ranking import Key, Ranked, Ranker, sort, ties
from omnigraph.execution.values import Evaluator

ROWS_SHARE = 16  # one part in so many of the limit is for the rows that a step makes at once, in blocks
SAMPLED_ABOVE, SAMPLE = 65_536, 256
# Bytes that a row takes beside its values (measured by the growth of a process): its places in the order; and
# where equal rows are one, its number among them and its entry in a hash table, for each of several columns.
BESIDE_A_ROW, BESIDE_A_DISTINCT_ROW = 24, 192


class Answerer:
    """Runs a whole plan."""

    def __init__(self, context: Context, read: CheckedRead, recorder: Recorder | None = None) -> None:
        self._context = context
        self._ranker = Ranker(context)
        self._evaluator = Evaluator(context, self._ranker.column, needed_columns(read))
        self.matcher = Matcher(context, self._evaluator, recorder)

    def run(self, plan: Plan) -> list[pa.Array]:
        """Return the columns of the result."""
        read, values = plan.read, self._context.values
        limit, offset = page(read.limit, values, "limit"), page(read.offset, values, "offset") or 0
        most_rows = None if limit is None else limit + offset
        if plan.shortcut is not None:
            return [self._counted(plan.shortcut, read)[offset:][:limit]]
        if read.keys is None and read.ranking is None and (read.distinct or plan.top):
            rows = self._first_rows(plan, read, most_rows)
        else:
            rows = self.matcher.run(plan.steps, ONE_EMPTY_ROW)
        if read.keys is not None:
            columns = self._grouped(rows, read, most_rows if plan.top else None)
        else:
            columns = self._plain(rows, read, most_rows, top=plan.top)
        if limit is None and not offset:
            return columns
        return [column.slice(offset, limit) for column in columns]

    # -- shortcuts ---------------------------------------------------------------------------------

    def _counted(self, shortcut: CountRows | CountEdges, read: CheckedRead) -> pa.Array:
        if isinstance(shortcut, CountRows):
            number = self._context.rows(shortcut.type_id)
        else:
            number = self._chain(shortcut)
        return pa.array([number], pa.int64())

    def _chain(self, shortcut: CountEdges) -> int:
        """Count the rows of a chain of hops: what comes into each node times what goes out of it."""
        first = shortcut.clauses[0]
        weights = {
            variable: self._weights(variable, conditions) for variable, conditions in shortcut.conditions
        }
        into = self._arriving(first, weights.get(first.left), weights.get(first.right))
        if len(shortcut.clauses) == 1:
            return int(into.sum())
        second = shortcut.clauses[1]
        out = self._departing(second, weights.get(second.right))
        return int((into * out).sum())

    def _weights(self, variable: Variable, conditions: tuple[Condition, ...]) -> Ordinals:
        """Return 1 for each node that meets the conditions, else 0."""
        table = self._context.table(variable.type.id)
        kept = self.matcher.run([Scan(variable, conditions)], ONE_EMPTY_ROW).bound[variable]
        weights = np.zeros(table.span, dtype=np.int64)
        weights[kept] = 1
        return weights

    def _arriving(self, clause: Expand, lefts: Ordinals | None, rights: Ordinals | None) -> Ordinals:
        """Return, for each node on the right, how many nodes on the left lead to it."""
        expander = Expander(self._context, clause.hops)
        if lefts is None:
            arriving = expander.degrees(left=False)
        else:
            a, b = expander.every_pair()
            arriving = np.bincount(b[lefts[a] > 0], minlength=expander.end.span)
        return arriving if rights is None else arriving * rights

    def _departing(self, clause: Expand, rights: Ordinals | None) -> Ordinals:
        """Return, for each node on the left, to how many nodes on the right it leads."""
        expander = Expander(self._context, clause.hops)
        if rights is None:
            return expander.degrees(left=True)
        a, b = expander.every_pair()
        return np.bincount(a[rights[b] > 0], minlength=expander.start.span)

    # -- rows --------------------------------------------------------------------------------------

    def _first_rows(self, plan: Plan, read: CheckedRead, most_rows: int | None) -> MatchRows:
        """Return the rows of the match that the answer is made of, if those are perhaps few of them.

        Equal rows and rows beyond a limit are let go block by block: the first rows of a block and those of
        the blocks before it have among them the first rows of all.
        """
        budget = self._context.budget
        blocks = self.matcher.blocks(plan.steps, ONE_EMPTY_ROW, budget.limit // ROWS_SHARE)
        first = next(blocks)
        second = next(blocks, None)
        if second is None:
            return first
        kept = self._reduced([first], read, most_rows)
        for block in chain([second], blocks):
            kept = self._reduced([kept, self._reduced([block], read, most_rows)], read, most_rows)
            pa.default_memory_pool().release_unused()  # else each block leaves some of what it took
        return kept

    def _reduced(self, parts: Sequence[MatchRows], read: CheckedRead, most_rows: int | None) -> MatchRows:
        """Return the first row of those that the answer shows as equal, in order; no more than are wanted."""
        rows = joined([part for part in parts if part.count] or parts[:1])
        outputs = self._room(_Outputs(self._evaluator, read, rows), read)
        order = sort(self._keys(rows, read, outputs), rows.count, None if read.distinct else most_rows)
        if read.distinct:
            columns = [column.take(pa.array(order)) for column in outputs]
            order = order[distinct(columns, len(order), self._context.budget)][:most_rows]
        return rows.take(order)

    def _keys(self, rows: MatchRows, read: CheckedRead, outputs: _Outputs) -> list[Key]:
        return [*(self._key(key, rows, outputs) for key in read.order), *ties(rows, self._context)]

    def _room(self, outputs: _Outputs, read: CheckedRead) -> _Outputs:
        """Make sure that there is room for what the answer takes beside the rows themselves.

        How much a row takes is measured on a few of them.
        """
        rows = outputs.rows
        if rows.count <= SAMPLED_ABOVE:
            return outputs
        few = rows.take(np.linspace(0, rows.count - 1, SAMPLE).astype(np.int64))
        shown = _Outputs(self._evaluator, read, few)
        if read.keys is None:
            keys = [key.values for key in self._keys(few, read, shown)]
            columns = [*shown, *keys]
        else:
            columns = [self._evaluator.column(value, few) for value in _plain_values(read)]
        beside = 8 * (len(rows.bound) + 1) if _only_counts(read) else 16 * len(rows.bound) + BESIDE_A_ROW
        each = sum(column.nbytes for column in columns) / SAMPLE + beside
        if read.distinct:
            each += sum(column.nbytes for column in shown) / SAMPLE + BESIDE_A_DISTINCT_ROW
        self._context.budget.check_bytes(int(rows.count * each), f"the answer from {rows.count} rows")
        return outputs

    def _plain(
        self, rows: MatchRows, read: CheckedRead, most_rows: int | None, *, top: bool
    ) -> list[pa.Array]:
        ranked = Ranked(rows, ())
        if read.ranking is not None:
            # Equal rows are one row, so that more may be needed than are wanted.
            ranked = self._ranker.rank(read.ranking, rows, None if read.distinct else most_rows)
            rows = ranked.rows
        outputs = self._room(_Outputs(self._evaluator, read, rows), read)
        further = (self._key(key, rows, outputs) for key in read.order)
        keys = [*ranked.keys, *further, *ranked.ties, *ties(rows, self._context)]
        order = sort(keys, rows.count, most_rows if top else None)
        if read.distinct:
            sorted_columns = [column.take(pa.array(order)) for column in outputs]
            first = distinct(sorted_columns, len(order), self._context.budget)
            return [column.take(pa.array(first)) for column in sorted_columns]
        chosen = rows.take(order)
        done: list[pa.Array] = []
        for position, output in enumerate(read.outputs):
            known = outputs.known.get(position)
            if known is not None:
                done.append(known.take(pa.array(order)))
            else:  # only for the rows that are returned
                done.append(self._evaluator.column(output.value, chosen, done))
        return done

    def _key(self, key: SortKey, rows: MatchRows, outputs: _Outputs) -> Key:
        return Key(self._evaluator.column(key.value, rows, outputs), key.descending)

    # -- groups ------------------------------------------------------------------------------------

    def _grouped(self, rows: MatchRows, read: CheckedRead, most_rows: int | None) -> list[pa.Array]:
        self._room(_Outputs(self._evaluator, read, rows), read)
        rows = rows.take(sort(ties(rows, self._context), rows.count)) if _collects(read) else rows
        # An alias of a key adds nothing to it.
        keys = [p for p in read.keys or () if not isinstance(read.outputs[p].value, OutputRef)]
        compared = {p: key_column(read.outputs[p].value, rows, self._evaluator, ()) for p in keys}
        groups = group(list(compared.values()), rows.count, self._context.budget)
        columns: list[pa.Array] = []
        for output in read.outputs:
            columns.append(self._of_groups(output.value, rows, groups, columns))
        sorting = [Key(self._sorted(key, rows, groups, columns), key.descending) for key in read.order]
        breaking = [Key(self._tie(read, p, rows, groups, columns)) for p in keys]
        order = pa.array(sort([*sorting, *breaking], groups.count, most_rows))
        return [column.take(order) for column in columns]

    def _of_groups(
        self, value: Value, rows: MatchRows, groups: Groups, columns: Sequence[pa.Array]
    ) -> pa.Array:
        if not holds_aggregate(value) and not isinstance(value, OutputRef) and not rows.count:
            return self._evaluator.column(value, rows)
        return grouped(value, rows, groups, self._evaluator, columns)

    def _sorted(self, key: SortKey, rows: MatchRows, groups: Groups, columns: Sequence[pa.Array]) -> pa.Array:
        return grouped(key.value, rows, groups, self._evaluator, columns)

    def _tie(
        self, read: CheckedRead, position: int, rows: MatchRows, groups: Groups, columns: Sequence[pa.Array]
    ) -> pa.Array:
        value = read.outputs[position].value
        if isinstance(value, EntityValue):
            return columns[position].field("id")
        return columns[position]


class _Outputs(Sequence[pa.Array]):
    """The columns of a result by position, computed when a sort key or an alias asks for them."""

    def __init__(self, evaluator: Evaluator, read: CheckedRead, rows: MatchRows) -> None:
        self._evaluator = evaluator
        self._read = read
        self.rows = rows
        self.known: dict[int, pa.Array] = {}

    def __getitem__(self, position: int) -> pa.Array:  # type: ignore[override]
        if position not in self.known:
            value = self._read.outputs[position].value
            self.known[position] = self._evaluator.column(value, self.rows, self)
        return self.known[position]

    def __len__(self) -> int:
        return len(self._read.outputs)


def _plain_values(read: CheckedRead) -> list[Value]:
    """Return what a query with groups computes for each row: its keys, and what it aggregates."""
    row_values: list[Value] = []
    waiting: list[Value] = [*(output.value for output in read.outputs), *(key.value for key in read.order)]
    while waiting:
        match value := waiting.pop():
            case Aggregate():
                waiting.append(value.argument)
            case EntityValue() | OutputRef():
                pass  # no more than the rows have, or what is there already
            case _ if holds_aggregate(value):
                waiting += operands_of(value)
            case _:
                row_values.append(value)
    return row_values


def _only_counts(read: CheckedRead) -> bool:
    """Say whether nothing is done with the rows but to count them: they are neither sorted nor copied."""
    values = [output.value for output in read.outputs]
    counts = [
        value
        for value in values
        if isinstance(value, Aggregate) and value.function is AggregateFunction.COUNT
    ]
    return read.keys == () and len(counts) == len(values)


def _collects(read: CheckedRead) -> bool:
    values = [output.value for output in read.outputs] + [key.value for key in read.order]
    return any(isinstance(value, Aggregate) and value.function.value == "collect" for value in values)
