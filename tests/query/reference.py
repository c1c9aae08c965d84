"""Reference: what a checked read means, as slowly and plainly as possible.

Room    tests.query. Nested loops over dictionaries, one row at a time; no index, no array, no shortcut. It
        shares with the engine only the checker that made the `CheckedRead`.
Given   a `CheckedRead`, a `PlainGraph` and the stored values of the parameters.
Gives   `answer`: the rows of the result, in order, as the JSON of the specification.
Rule    every function here is to be read beside one section of the specification, which its docstring names.
        Text search and rankings are left out: their tests have expected values worked out by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from omnigraph.catalog.query.expressions import (
    Aggregate,
    Among,
    And,
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    Contains,
    Direction,
    EntityField,
    EntityValue,
    Hops,
    IsNull,
    Not,
    Now,
    Operand,
    Or,
    OutputRef,
    ParamRef,
    Prefix,
    PropertyValue,
    ShortestPath,
    Substring,
    Value,
    Values,
    Variable,
    holds_aggregate,
)
from omnigraph.catalog.query.statements import (
    Bind,
    CheckedRead,
    Clause,
    Counted,
    Exists,
    Expand,
    Filter,
    Optional,
    page,
)
from omnigraph.catalog.types import PropertyType, Scalar
from tests.query.plain import (
    PlainGraph,
    Thing,
    aggregate,
    calculate,
    comparable,
    compare,
    is_column,
    json_value,
    part_of,
    rank,
    single,
)

T = TypeVar("T")
Truth: TypeAlias = bool | None  # None is unknown
Row: TypeAlias = dict[Variable, Thing | None]  # None: introduced by an optional block that did not match


def answer(read: CheckedRead, graph: PlainGraph, values: Values, now: int = 0) -> list[list[Any]]:
    """Return the rows of a read, as JSON values."""
    reader = _Reader(graph, values, now)
    rows = sorted(reader.match(read.clauses, {}), key=lambda row: _ties(row, read.variables))
    made = reader.groups(read, rows) if read.keys is not None else reader.plain(read, rows)
    if read.distinct:
        made = _distinct(made)
    start = page(read.offset, values, "offset") or 0
    limit = page(read.limit, values, "limit")
    made = made[start:] if limit is None else made[start : start + limit]
    return [
        [json_value(one, output.value, read.outputs) for one, output in zip(row, read.outputs, strict=True)]
        for row in made
    ]


def _ties(row: Row, variables: Sequence[Variable]) -> list[tuple[int, bytes]]:
    """Section 10: the ids of all bound entities, in byte order of the names of the variables."""
    ordered = sorted(variables, key=lambda variable: variable.name.encode())
    return [rank(None if (thing := row[v]) is None else thing.id) for v in ordered]


def _distinct(rows: list[list[Any]]) -> list[list[Any]]:
    """Section 19: by value of the whole row; the first of equal rows stays."""
    kept: list[list[Any]] = []
    for row in rows:
        if not any(row == other for other in kept):
            kept.append(row)
    return kept


def _by_rank(rows: list[T], ranks: list[Any], descending: bool) -> list[T]:
    """Sort; rows of equal rank keep their order either way."""
    order = sorted(range(len(rows)), key=lambda place: ranks[place], reverse=descending)
    return [rows[place] for place in order]


class _Reader:
    """Evaluates parts of a read."""

    def __init__(self, graph: PlainGraph, values: Values, now: int) -> None:
        self._graph = graph
        self._values = values
        self._now = now

    # -- match (sections 5, 6, 8, 19) --------------------------------------------------------------

    def match(self, clauses: Sequence[Clause], row: Row) -> Iterator[Row]:
        """Yield the row with every way to meet the clauses."""
        if not clauses:
            yield row
            return
        for longer in self._clause(clauses[0], row):
            yield from self.match(clauses[1:], longer)

    def _clause(self, clause: Clause, row: Row) -> Iterator[Row]:
        match clause:
            case Bind(variable, conditions, new):
                choices = self._nodes(variable) if new else [row[variable]]
                for node in choices:
                    longer = {**row, variable: node}
                    if all(self._truth(condition, longer) is True for condition in conditions):
                        yield longer
            case Expand():
                yield from self._expand(clause, row)
            case Filter(condition):
                if self._truth(condition, row) is True:
                    yield row
            case Exists(block, negated):
                if any(True for _ in self.match(block.clauses, row)) != negated:
                    yield row
            case Counted(block, operator, number):
                if compare(sum(1 for _ in self.match(block.clauses, row)), operator, number):
                    yield row
            case Optional(block):
                found = list(self.match(block.clauses, row))
                yield from found or [{**row, **dict.fromkeys(block.introduces)}]

    def _nodes(self, variable: Variable) -> Sequence[Thing]:
        return self._graph.nodes.get(variable.type.name, ())

    def _expand(self, clause: Expand, row: Row) -> Iterator[Row]:
        for left in self._nodes(clause.left) if clause.left_new else [row[clause.left]]:
            if left is None:
                continue
            closed = {**row, clause.left: left}
            ends: list[tuple[Thing | None, str]] = list(self._steps(clause.hops, left.id))
            if clause.edge is None:
                ends = [(None, end) for end in self._reached(clause.hops, left.id)]
            for edge, end in ends:
                for right in self._nodes(clause.right) if clause.right_new else [closed[clause.right]]:
                    if right is None or right.id != end:
                        continue
                    longer = {**closed, clause.right: right}
                    yield longer if clause.edge is None else {**longer, clause.edge: edge}

    def _steps(self, hops: Hops, node: str) -> Iterator[tuple[Thing, str]]:
        """Yield every edge at a node with the id at its other end; a self-loop once."""
        for edge in self._graph.edges.get(hops.edge.name, ()):
            forward = hops.direction in (Direction.FORWARD, Direction.EITHER) and edge.source == node
            backward = hops.direction in (Direction.BACKWARD, Direction.EITHER) and edge.target == node
            if forward:
                yield edge, edge.target
            elif backward:
                yield edge, edge.source

    def _reached(self, hops: Hops, start: str) -> set[str]:
        """Part two, section 4.4: each node at its shortest distance; the start by its own loop, at hop 1."""
        chains = hops.edge.source == hops.edge.target
        frontier = {start}
        distances: dict[str, int] = {}
        for hop in range(1, hops.high + 1):
            reached = {neighbour for node in frontier for _, neighbour in self._steps(hops, node)}
            frontier = {node for node in reached if node not in distances}
            if hop > 1 and chains:
                frontier.discard(start)
            distances |= dict.fromkeys(frontier, hop)
            if not frontier or not chains:
                break
        return {node for node, distance in distances.items() if distance >= hops.low}

    # -- conditions (sections 7 and 19) ------------------------------------------------------------

    def _truth(self, condition: Condition, row: Row) -> Truth:
        match condition:
            case Comparison(left, operator, right):
                return self._compared(left, operator, right, row)
            case Contains(left, right):
                return self._contains(left, right, row)
            case Substring(left, right):
                whole, part = self.value(left, row), self.value(right, row)
                return None if whole is None or part is None else part in whole
            case Prefix(left, right):
                whole, part = self.value(left, row), self.value(right, row)
                return None if whole is None or part is None else whole.startswith(part)
            case Among(left, items):
                return self._among(left, items, row)
            case IsNull(operand, negated):
                return (self.value(operand, row) is None) != negated
            case And(operands):
                truths = [self._truth(operand, row) for operand in operands]
                return False if False in truths else None if None in truths else True
            case Or(operands):
                truths = [self._truth(operand, row) for operand in operands]
                return True if True in truths else None if None in truths else False
            case Not(operand):
                truth = self._truth(operand, row)
                return None if truth is None else not truth
            case _:
                raise NotImplementedError(f"{condition} has tests of its own")

    def _compared(self, left: Value, operator: str, right: Value, row: Row) -> Truth:
        one, two = self.value(left, row), self.value(right, row)
        if one is None or two is None:
            return None
        if is_column(left, Scalar.F32) and not isinstance(right, PropertyValue):
            two = single(two)
        if is_column(right, Scalar.F32) and not isinstance(left, PropertyValue):
            one = single(one)
        return compare(one, operator, two)

    def _contains(self, left: Value, right: Value, row: Row) -> Truth:
        items, wanted = self.value(left, row), self.value(right, row)
        if items is None or (wanted is None and len(items)):
            return None
        if is_column(left, Scalar.F32) and not isinstance(right, PropertyValue):
            wanted = single(wanted)
        if is_column(right, Scalar.F32) and not isinstance(left, PropertyValue):
            items = [single(item) for item in items]
        return any(item == wanted for item in items)

    def _among(self, left: Value, items: tuple[Operand, ...] | ParamRef, row: Row) -> Truth:
        """Part two, section 1: `left = first or left = second or ...`."""
        if isinstance(items, ParamRef):
            given = self._values[items.parameter.name]
            if given is None:
                return None
            kind = PropertyType(items.type.scalar)
            items = tuple(Constant(item, kind) for item in given)  # type: ignore[union-attr]
        truths = [self._compared(left, "=", item, row) for item in items]
        return True if True in truths else None if None in truths else False

    # -- values ------------------------------------------------------------------------------------

    def value(self, value: Value, row: Row, outputs: Sequence[Any] = ()) -> Any:
        """Return a value of a row: stored values, `Thing`s for whole nodes, None for NULL."""
        match value:
            case Constant(fixed, _):
                return fixed
            case ParamRef(parameter):
                return self._values[parameter.name]
            case Now():
                return self._now
            case PropertyValue(variable, member):
                thing = row[variable]
                return None if thing is None else thing.values[member.name]
            case EntityField(variable, part):
                thing = row[variable]
                return None if thing is None else part_of(thing, part)
            case EntityValue(variable):
                return row[variable]
            case Arithmetic(operator, left, right, kind):
                sides = self.value(left, row, outputs), self.value(right, row, outputs)
                return calculate(operator, *sides, kind)
            case OutputRef(position):
                return outputs[position]
            case ShortestPath(source, hops, target):
                return self._shortest(row[source], hops, row[target])
            case _:
                raise NotImplementedError(f"{value} has tests of its own")

    def _shortest(self, source: Thing | None, hops: Hops, target: Thing | None) -> list[str] | None:
        """Section 19: the ids of a shortest way within the bounds, the first by ids among equals."""
        if source is None or target is None:
            return None
        for length in range(1, hops.high + 1):
            exactly = Hops(hops.edge, hops.direction, length, length)
            if length >= hops.low and target.id in self._reached(exactly, source.id):
                walks = self._walks(hops, source.id, target.id, length)
                return min(walks, key=lambda walk: [one.encode() for one in walk])
        return None

    def _walks(self, hops: Hops, start: str, end: str, length: int) -> list[list[str]]:
        if length == 0:
            return [[start]] if start == end else []
        ends = {end_ for _, end_ in self._steps(hops, start)}
        return [[start, *walk] for one in ends for walk in self._walks(hops, one, end, length - 1)]

    # -- rows of the result (sections 9, 10, 19) ---------------------------------------------------

    def plain(self, read: CheckedRead, rows: Sequence[Row]) -> list[list[Any]]:
        """Return one row of outputs for each row of the match, which are in tie-break order."""
        made: list[tuple[Row, list[Any]]] = []
        for row in rows:
            outputs: list[Any] = []
            for output in read.outputs:
                outputs.append(self.value(output.value, row, outputs))
            made.append((row, outputs))
        for key in reversed(read.order):
            ranks = [rank(self.value(key.value, row, outputs)) for row, outputs in made]
            made = _by_rank(made, ranks, key.descending)
        return [outputs for _, outputs in made]

    def groups(self, read: CheckedRead, rows: Sequence[Row]) -> list[list[Any]]:
        """Section 9.1: one row of outputs for each group."""
        keys = read.keys or ()
        members: list[tuple[list[Any], list[Row]]] = [([], [])] if not keys else []
        for row in rows:
            outputs: list[Any] = []
            for output in read.outputs:
                outputs.append(
                    None if holds_aggregate(output.value) else self.value(output.value, row, outputs)
                )
            key = [outputs[position] for position in keys]
            found = next((group for known, group in members if known == key), None)
            if found is None:
                members.append((key, [row]))
            else:
                found.append(row)
        made = [(group, self._group(read, keys, key, group)) for key, group in members]
        made.sort(key=lambda pair: [rank(comparable(pair[1][position])) for position in keys])
        for sort in reversed(read.order):
            ranks = [rank(self._grouped(sort.value, group, outputs)) for group, outputs in made]
            made = _by_rank(made, ranks, sort.descending)
        return [outputs for _, outputs in made]

    def _group(
        self, read: CheckedRead, keys: Sequence[int], key: Sequence[Any], group: Sequence[Row]
    ) -> list[Any]:
        outputs: list[Any] = []
        for position, output in enumerate(read.outputs):
            if position in keys:
                outputs.append(key[keys.index(position)])
            else:
                outputs.append(self._grouped(output.value, group, outputs))
        return outputs

    def _grouped(self, value: Value, group: Sequence[Row], outputs: Sequence[Any]) -> Any:
        match value:
            case Aggregate(function, argument):
                found = [self.value(argument, row) for row in group]
                return aggregate(function, [one for one in found if one is not None])
            case Arithmetic(operator, left, right, kind):
                sides = self._grouped(left, group, outputs), self._grouped(right, group, outputs)
                return calculate(operator, *sides, kind)
            case _:
                return self.value(value, {}, outputs)
