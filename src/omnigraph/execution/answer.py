"""Answer: from the rows of the match to the rows of the result.

    match -> **rank, group, order, cut, project** -> result

Rows come out in the total order of the specification.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import ID
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
from omnigraph.catalog.query.statements import CheckedRead, SortKey, page
from omnigraph.execution.arrays import distinct as distinct_numbers
from omnigraph.execution.budget import TooManyAtOnce
from omnigraph.execution.columns import Ordinals, array_of
from omnigraph.execution.context import Context
from omnigraph.execution.counting import RowCounter
from omnigraph.execution.group import Groups, distinct, grouped, grouped_rows
from omnigraph.execution.match import Matcher
from omnigraph.execution.match_rows import ONE_EMPTY_ROW, MatchRows, joined
from omnigraph.execution.plan.explain import Recorder
from omnigraph.execution.plan.rules import one_scan, only_counts
from omnigraph.execution.plan.steps import (
    CountEdges,
    CountRows,
    Plan,
    Step,
    collects,
    counted_variables,
    first_variable,
)
from omnigraph.execution.ranking import Key, Ranked, Ranker, sort, ties
from omnigraph.execution.values import Evaluator

ROWS_SHARE = 16  # one part in so many of the limit is for the rows that a step makes at once, in blocks
FEWEST = 16  # entities that the rest of a match is run for at least, where only the first rows are wanted
SAMPLED_ABOVE, SAMPLE = 65_536, 256
# Bytes that a row takes beside its values (measured by the growth of a process): its places in the order; and
# where equal rows are one, its number among them and its entry in a hash table, for each of several columns.
BESIDE_A_ROW, BESIDE_A_DISTINCT_ROW = 24, 192


class Answerer:
    """Runs a whole plan."""

    def __init__(self, context: Context, plan: Plan, recorder: Recorder | None = None) -> None:
        self._context = context
        self._plan = plan
        self._ranker = Ranker(context)
        self._evaluator = Evaluator(context, self._ranker.column, plan.needed)
        self.matcher = Matcher(context, self._evaluator, recorder)

    def run(self) -> list[pa.Array]:
        """Return the columns of the result."""
        plan = self._plan
        read, values = plan.read, self._context.values
        limit, offset = page(read.limit, values, "limit"), page(read.offset, values, "offset") or 0
        most_rows = None if limit is None else limit + offset
        if plan.shortcut is not None:
            count = array_of(pa.int64(), 1, np.array([self._counted(plan.shortcut)], np.int64))
            return [count.slice(offset, limit)] * len(read.outputs)
        if only_counts(plan):
            return [column.slice(offset, limit) for column in self._counts(plan, read)]
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

    def _counted(self, shortcut: CountRows | CountEdges) -> int:
        if isinstance(shortcut, CountRows):
            return self._context.rows(shortcut.type_id)
        return RowCounter(self._context, shortcut, self._chosen).count()

    def _chosen(self, variable: Variable, conditions: tuple[Condition, ...]) -> Ordinals:
        """Return the nodes that meet conditions."""
        return self.matcher.step(one_scan(variable, conditions), ONE_EMPTY_ROW).bound[variable]

    def _counts(self, plan: Plan, read: CheckedRead) -> list[pa.Array]:
        """Count rows block by block: none of them is needed once it is counted."""
        variables = counted_variables(read) or ()
        counts = [0] * len(variables)
        for block in self.matcher.blocks(plan.steps, ONE_EMPTY_ROW, self._context.budget.limit // ROWS_SHARE):
            for number, variable in enumerate(variables):
                there = np.count_nonzero(block.bound[variable] >= 0) if variable.optional else block.count
                counts[number] += int(there)
        return [pa.array([count], pa.int64()) for count in counts]

    # -- rows --------------------------------------------------------------------------------------

    def _first_rows(self, plan: Plan, read: CheckedRead, most_rows: int | None) -> MatchRows:
        """Return the rows of the match that the answer is made of, if those are perhaps few of them."""
        if most_rows is not None and not read.distinct and not read.order:
            first = self._first_by_ids(plan.steps, read, most_rows)
            if first is not None:
                return first
        return self._kept(plan.steps, ONE_EMPTY_ROW, read, most_rows)

    def _kept(
        self, steps: Sequence[Step], rows: MatchRows, read: CheckedRead, most_rows: int | None
    ) -> MatchRows:
        """Return the rows that steps leave and that may be wanted.

        Equal rows and rows beyond a limit are let go block by block: the first rows of a block and those of
        the blocks before it have among them the first rows of all.
        """
        blocks = self.matcher.blocks(steps, rows, self._context.budget.limit // ROWS_SHARE)
        first = next(blocks)
        second = next(blocks, None)
        if second is None:
            return first
        kept = self._reduced([first], read, most_rows)
        for block in chain([second], blocks):
            kept = self._reduced([kept, self._reduced([block], read, most_rows)], read, most_rows)
            pa.default_memory_pool().release_unused()  # else each block leaves some of what it took
        return kept

    def _first_by_ids(self, steps: tuple[Step, ...], read: CheckedRead, most_rows: int) -> MatchRows | None:
        """Return rows among which are the first of all by ids, the order where no other is asked for.

        Rows are ordered by the variable that comes first by name, before any other. So once it is bound, the
        rest of the match is run for its smallest ids, and for more of them until there are rows enough:
        whatever the larger ones lead to comes later. None if the rows that bind it are too many at once.
        """
        variable, number = first_variable(steps)
        cut, budget = number + 1, self._context.budget
        try:
            with budget.rows_at_most(budget.limit // ROWS_SHARE):
                rows = self.matcher.run(steps[:cut], ONE_EMPTY_ROW)
        except TooManyAtOnce:
            return None
        parts: list[MatchRows] = []
        for part in self._by_ids(rows, variable, most_rows):
            parts.append(self._kept(steps[cut:], part, read, most_rows))
            if sum(made.count for made in parts) >= most_rows:
                break
        return joined(parts)

    def _by_ids(self, rows: MatchRows, variable: Variable, few: int) -> Iterator[MatchRows]:
        """Yield the rows by the ids of a variable, a few of them first; no id is fetched twice."""
        ordinals = rows.bound[variable]
        table = self._context.table(variable.type.id)
        missing = ordinals < 0  # null is smallest
        nodes = distinct_numbers(ordinals[~missing] if missing.any() else ordinals, table.span)
        size = max(few, FEWEST)
        if len(nodes) <= size:
            yield rows
            return
        self._context.note(f"the smallest ids of ${variable.name} first")
        ids = table.take(ID, nodes)
        before = np.zeros(table.span + 1, dtype=bool)
        before[-1] = True  # where missing rows read
        taken_rows = np.zeros(rows.count, dtype=bool)
        while len(nodes) > size:
            smallest = pc.select_k_unstable(ids, size, sort_keys=[("", "ascending")])
            before[nodes[smallest.to_numpy()]] = True
            part = before[ordinals] & ~taken_rows
            taken_rows |= part
            yield rows.keep(part)
            size *= 16
        yield rows.keep(~taken_rows)

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
        rows = rows.take(sort(ties(rows, self._context), rows.count)) if collects(read) else rows
        # An alias of a key adds nothing to it.
        keys = [p for p in read.keys or () if not isinstance(read.outputs[p].value, OutputRef)]
        groups = grouped_rows([read.outputs[p].value for p in keys], rows, self._evaluator)
        columns: list[pa.Array] = []
        for output in read.outputs:
            columns.append(self._of_groups(output.value, rows, groups, columns))
        sorting = [Key(self._sorted(key, rows, groups, columns), key.descending) for key in read.order]
        breaking = [Key(_tie(read, p, columns)) for p in keys]
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


def _tie(read: CheckedRead, position: int, columns: Sequence[pa.Array]) -> pa.Array:
    """Return what orders groups that are otherwise equal: a key of theirs."""
    column = columns[position]
    return column.field("id") if isinstance(read.outputs[position].value, EntityValue) else column


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
