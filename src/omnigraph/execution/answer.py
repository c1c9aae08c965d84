"""Answer: from the rows of the match to the rows of the result.

    match -> **rank, group, order, cut, project** -> result

Room    execution. What a query returns, in the total order of the specification.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from omnigraph.catalog.query.expressions import Aggregate, Entity, OutputRef, Value, holds_aggregate
from omnigraph.catalog.query.read import CheckedRead, Expand, SortKey, page
from omnigraph.execution.context import Context
from omnigraph.execution.expand import Expander
from omnigraph.execution.explain import Recorder
from omnigraph.execution.group import Groups, group, grouped, key_column
from omnigraph.execution.match import Matcher
from omnigraph.execution.order import Key, distinct, sort, ties
from omnigraph.execution.plan.steps import CountEdges, CountRows, Plan, wanted_columns
from omnigraph.execution.ranking import Ranked, Ranker
from omnigraph.execution.rows import ONE_EMPTY_ROW, Rows
from omnigraph.execution.values import Evaluator


class Answerer:
    """Runs a whole plan."""

    def __init__(self, context: Context, read: CheckedRead, recorder: Recorder | None = None) -> None:
        self._context = context
        self._ranker = Ranker(context)
        self._evaluator = Evaluator(context, self._ranker.column, wanted_columns(read))
        self.matcher = Matcher(context, self._evaluator, recorder)

    def run(self, plan: Plan) -> list[pa.Array]:
        """Return the columns of the result."""
        read, values = plan.read, self._context.values
        limit, offset = page(read.limit, values, "limit"), page(read.offset, values, "offset") or 0
        wanted = None if limit is None else limit + offset
        if plan.shortcut is not None:
            return [self._counted(plan.shortcut, read)[offset:][:limit]]
        rows = self.matcher.run(plan.steps, ONE_EMPTY_ROW)
        if read.keys is not None:
            columns = self._grouped(rows, read, wanted if plan.top else None)
        else:
            columns = self._plain(rows, read, wanted, top=plan.top)
        if limit is None and not offset:
            return columns
        return [column.slice(offset, limit) for column in columns]

    # -- shortcuts ---------------------------------------------------------------------------------

    def _counted(self, shortcut: CountRows | CountEdges, read: CheckedRead) -> pa.Array:
        if isinstance(shortcut, CountRows):
            number = self._context.rows(shortcut.type_id)
        else:
            number = self._chain(shortcut.clauses)
        return pa.array([number], pa.int64())

    def _chain(self, clauses: tuple[Expand, ...]) -> int:
        """Count the rows of a chain of hops: pairs into each node times pairs out of it."""
        first = Expander(self._context, clauses[0].hops)
        if len(clauses) == 1:
            return int(first.degrees(left=True).sum())
        second = Expander(self._context, clauses[1].hops)
        return int((first.degrees(left=False) * second.degrees(left=True)).sum())

    # -- rows --------------------------------------------------------------------------------------

    def _plain(self, rows: Rows, read: CheckedRead, wanted: int | None, *, top: bool) -> list[pa.Array]:
        found = Ranked(rows, ())
        if read.ranking is not None:
            found = self._ranker.rank(read.ranking, rows, wanted)
            rows = found.rows
        columns: dict[int, pa.Array] = {}

        def output(position: int) -> pa.Array:
            if position not in columns:
                columns[position] = self._output(read, position, rows, output)
            return columns[position]

        further = (self._key(key, rows, output) for key in read.order)
        keys = [*found.keys, *further, *found.ties, *ties(rows, self._context)]
        order = sort(keys, rows.count, wanted if top else None)
        if read.distinct:
            sorted_columns = [output(p).take(pa.array(order)) for p in range(len(read.outputs))]
            first = distinct(sorted_columns, len(order))
            return [column.take(pa.array(first)) for column in sorted_columns]
        chosen = rows.take(order)
        done: list[pa.Array] = []
        for position, one in enumerate(read.outputs):
            known = columns.get(position)
            if known is not None:
                done.append(known.take(pa.array(order)))
            else:  # only for the rows that are returned
                done.append(self._evaluator.column(one.value, chosen, done))
        return done

    def _output(self, read: CheckedRead, position: int, rows: Rows, output: object) -> pa.Array:
        before = _Lazy(output)
        return self._evaluator.column(read.outputs[position].value, rows, before)

    def _key(self, key: SortKey, rows: Rows, output: object) -> Key:
        return Key(self._evaluator.column(key.value, rows, _Lazy(output)), key.descending)

    # -- groups ------------------------------------------------------------------------------------

    def _grouped(self, rows: Rows, read: CheckedRead, wanted: int | None) -> list[pa.Array]:
        rows = rows.take(sort(ties(rows, self._context), rows.count)) if _collects(read) else rows
        keys = read.keys or ()
        compared = {p: key_column(read.outputs[p].value, rows, self._evaluator, ()) for p in keys}
        groups = group(list(compared.values()), rows.count)
        columns: list[pa.Array] = []
        for one in read.outputs:
            columns.append(self._of_groups(one.value, rows, groups, columns))
        sorting = [Key(self._sorted(key, rows, groups, columns), key.descending) for key in read.order]
        breaking = [Key(self._tie(read, p, rows, groups, columns)) for p in keys]
        order = pa.array(sort([*sorting, *breaking], groups.count, wanted))
        return [column.take(order) for column in columns]

    def _of_groups(self, value: Value, rows: Rows, groups: Groups, columns: Sequence[pa.Array]) -> pa.Array:
        if not holds_aggregate(value) and not isinstance(value, OutputRef) and not rows.count:
            return self._evaluator.column(value, rows)
        return grouped(value, rows, groups, self._evaluator, columns)

    def _sorted(self, key: SortKey, rows: Rows, groups: Groups, columns: Sequence[pa.Array]) -> pa.Array:
        return grouped(key.value, rows, groups, self._evaluator, columns)

    def _tie(
        self, read: CheckedRead, position: int, rows: Rows, groups: Groups, columns: Sequence[pa.Array]
    ) -> pa.Array:
        value = read.outputs[position].value
        if isinstance(value, Entity):
            return columns[position].field("id")
        return columns[position]


class _Lazy(Sequence[pa.Array]):
    """Outputs by position, computed when an alias asks for them."""

    def __init__(self, output: object) -> None:
        self._output = output

    def __getitem__(self, position: int) -> pa.Array:  # type: ignore[override]
        return self._output(position)  # type: ignore[operator]

    def __len__(self) -> int:
        return 0


def _collects(read: CheckedRead) -> bool:
    values = [one.value for one in read.outputs] + [key.value for key in read.order]
    return any(isinstance(value, Aggregate) and value.function.value == "collect" for value in values)
