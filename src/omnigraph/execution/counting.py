"""Counting: the number of rows of hops that form no cycle, from degrees and without a single row.

Each node of the pattern sums up, for every entity that it can be, how many rows there are below it:

    rows(v) = [v meets its conditions] * product over the children c of v: sum of rows(w), v joined to w by c

A child with nothing below it and no conditions contributes the degree of v. So a chain of k hops takes the
degrees at both ends and k - 2 passes over edges between. Where few entities meet the conditions of a node,
their rows are carried along their edges instead, and only these are touched: the pattern is rooted far from
such a node. Sums are exact: of 64 bits, and of Python's integers where these might not do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.query.expressions import Condition, Variable
from omnigraph.catalog.query.statements import Expand
from omnigraph.execution.arrays import blocks_of, first_of_runs, in_threads, take
from omnigraph.execution.columns import Ordinals
from omnigraph.execution.context import Context
from omnigraph.execution.cycles import other_end
from omnigraph.execution.degrees import LARGEST, Degrees
from omnigraph.execution.expand import Expander, expander_from
from omnigraph.execution.plan.steps import CountEdges

FEW = 64  # one entity in so many at most: then its rows are carried, not all edges passed over
BLOCK = 1 << 18  # edges summed up together
EXACT_FLOATS = 2**53
Sums = NDArray[Any]  # 64-bit integers, or Python's


@dataclass(frozen=True, eq=False)
class Weights:
    """How many rows each entity stands for: of those listed, or by ordinal; none of any other."""

    nodes: Ordinals | None
    values: Sums

    def total(self) -> int:
        """Return the sum over all entities."""
        if self.values.dtype == object or _largest(self.values) * max(len(self.values), 1) > LARGEST:
            return sum(self.values.tolist())
        return int(self.values.sum())


class RowCounter:
    """Counts the rows of a pattern; `chosen` gives the entities that meet the conditions of a node."""

    def __init__(
        self,
        context: Context,
        pattern: CountEdges,
        chosen: Callable[[Variable, tuple[Condition, ...]], Ordinals],
    ) -> None:
        self._context = context
        self._clauses = pattern.clauses
        self._nodes = pattern.nodes
        self._chosen = {variable: chosen(variable, listed) for variable, listed in pattern.conditions}

    def count(self) -> int:
        """Return the number of rows."""
        total, waiting = 1, list(self._nodes)
        while waiting and total:
            tree = self._tree(waiting[0])
            waiting = [node for node in waiting if node not in tree]
            total *= self._total(self._root(tree))
        if total > LARGEST:
            raise InvalidRequest("I64 overflow in 'count'", remedy="Filter, or count less at a time")
        return total

    def _edges(self, node: Variable) -> list[Expand]:
        return [clause for clause in self._clauses if node in (clause.left, clause.right)]

    def _tree(self, start: Variable) -> dict[Variable, int]:
        """Return the nodes that hops join to one, and how many hops away they are."""
        distance = {start: 0}
        for node in (ordered := [start]):
            for clause in self._edges(node):
                other = other_end(clause, node)
                if other not in distance:
                    distance[other] = distance[node] + 1
                    ordered.append(other)
        return distance

    def _root(self, tree: Mapping[Variable, int]) -> Variable:
        """Return where the sums meet: a node between others, as far as can be from where few rows begin."""
        size = {node: len(self._chosen[node]) if node in self._chosen else None for node in tree}
        few = {
            node: count
            for node, count in size.items()
            if count is not None and count * FEW < self._context.table(node.type.id).span
        }
        inner = [node for node in tree if len(self._edges(node)) > 1] or list(tree)
        if not few:
            return inner[0]
        away = self._tree(min(few, key=lambda node: few[node]))
        return max(inner, key=lambda node: away[node])

    def _total(self, root: Variable) -> int:
        """Return the rows of all entities of a node; of two degrees versions share most of the sum."""
        children = self._edges(root)
        if root not in self._chosen and len(children) == 2 and all(self._is_leaf(c, root) for c in children):
            first, second = (self._degrees(clause, root) for clause in children)
            return first.sum_of_products(second)
        return self._weights(root, None).total()

    def _weights(self, node: Variable, above: Expand | None) -> Weights:
        """Return how many rows lie below each entity of a node: those of its children, multiplied."""
        children = [clause for clause in self._edges(node) if clause is not above]
        product = self._own(node)
        messages = [self._message(clause, node) for clause in children]
        # Where few are left, few are multiplied.
        messages.sort(key=lambda message: isinstance(message, Degrees) or message.nodes is None)
        for message in messages:
            few = None if product is None else product.nodes
            weights = _weighed(message, few) if isinstance(message, Degrees) else message
            product = weights if product is None else _times(product, weights)
        if product is None:  # a node by itself, without conditions
            every = self._context.table(node.type.id).every()
            return Weights(every, np.ones(len(every), np.int64))
        return product

    def _own(self, node: Variable) -> Weights | None:
        """Return 1 for each entity that meets the conditions of a node; None without conditions."""
        if node not in self._chosen:
            return None
        entities, span = self._chosen[node], self._context.table(node.type.id).span
        if len(entities) * FEW < span:
            return Weights(entities, np.ones(len(entities), np.int64))
        self._context.budget.check_bytes(8 * span, "counting rows")
        dense = np.zeros(span, dtype=np.int64)
        dense[entities] = 1
        return Weights(None, dense)

    def _is_leaf(self, clause: Expand, parent: Variable) -> bool:
        child = other_end(clause, parent)
        return len(self._edges(child)) == 1 and child not in self._chosen

    def _degrees(self, clause: Expand, parent: Variable) -> Degrees:
        """Return the degree of each entity of the parent: the rows of a child with nothing below it."""
        self._context.note(f"{clause.hops.edge.name}: degrees")
        return expander_from(self._context, clause, parent).degrees(edges=clause.edge is not None)

    def _message(self, clause: Expand, parent: Variable) -> Weights | Degrees:
        """Return, for each entity of the parent, the rows that one child adds up to."""
        if self._is_leaf(clause, parent):
            return self._degrees(clause, parent)
        child = other_end(clause, parent)
        pulls = expander_from(self._context, clause, parent)
        below = self._weights(child, clause)
        if below.nodes is not None:
            pushes = expander_from(self._context, clause, child)
            return self._carried(pushes, below, clause.edge is not None)
        self._context.note(f"{clause.hops.edge.name}: summed over all lists")
        offsets, others = pulls.lists(edges=clause.edge is not None)
        self._context.budget.check_bytes(16 * len(offsets), "counting rows")
        return Weights(None, summed(offsets, others, below.values))

    def _carried(self, expander: Expander, below: Weights, each_edge: bool) -> Weights:
        """Carry the rows of a few entities along their edges."""
        assert below.nodes is not None
        if each_edge:
            expansion = expander.neighbours(below.nodes)
            places, others = expansion.places, expansion.others
        else:
            places, others = expander.joined(below.nodes)
        values = take(below.values, places)
        if values.dtype != object and _largest(values) * max(len(values), 1) > LARGEST:
            values = values.astype(object)
        span = expander.end.span
        if len(others) * FEW < span:
            order = np.argsort(others, kind="stable")
            ascending = others[order]
            firsts = np.flatnonzero(first_of_runs(ascending))
            sums = np.add.reduceat(values[order], firsts) if len(firsts) else values
            return Weights(ascending[firsts], sums)
        self._context.budget.check_bytes(8 * span, "counting rows")
        if values.dtype != object and _largest(values) * len(values) < EXACT_FLOATS:
            return Weights(None, np.bincount(others, weights=values, minlength=span).astype(np.int64))
        dense = np.zeros(span, dtype=values.dtype)
        np.add.at(dense, others, values)
        return Weights(None, dense)


def summed(offsets: Ordinals, others: NDArray[Any], values: Sums) -> Sums:
    """Return for each list the sum of the values of its items.

    >>> summed(np.array([0, 2, 2, 3]), np.array([1, 2, 0]), np.array([5, 6, 7])).tolist()
    [13, 0, 5]
    """
    counts = np.diff(offsets)
    if values.dtype != object and _largest(values) * int(counts.max(initial=0)) > LARGEST:
        values = values.astype(object)
    if values.dtype == np.int64 and _largest(values) < 2**31:
        values = values.astype(np.int32)  # half of the room in the processor's caches
    sums = np.zeros(len(counts), dtype=object if values.dtype == object else np.int64)

    def block(stretch: tuple[int, int]) -> None:
        first, last = stretch
        low, high = int(offsets[first]), int(offsets[last])
        if values.dtype == object:
            filled = np.flatnonzero(counts[first:last]) + first
            if len(filled):
                sums[filled] = np.add.reduceat(values[others[low:high]], offsets[filled] - low)
            return
        # Wraps around beyond 64 bits, and so do differences: each sum by itself fits.
        running = np.zeros(high - low + 1, dtype=np.int64)
        np.cumsum(take(values, others[low:high]), out=running[1:], dtype=np.int64)
        ends = running[offsets[first : last + 1] - low]
        np.subtract(ends[1:], ends[:-1], out=sums[first:last])

    in_threads(block, blocks_of(counts, BLOCK))
    return sums


def _weighed(degrees: Degrees, few: Ordinals | None) -> Weights:
    """Return the degrees of a few entities, or of all."""
    return Weights(few, degrees.dense() if few is None else degrees.of(few))


def _times(left: Weights, right: Weights) -> Weights:
    """Multiply entity by entity; the product lists entities if one of the two does."""
    if left.nodes is None and right.nodes is not None:
        left, right = right, left
    if left.nodes is None:
        return Weights(None, _product(left.values, right.values))
    if right.nodes is None:
        return Weights(left.nodes, _product(left.values, right.values[left.nodes]))
    if left.nodes is right.nodes:
        return Weights(left.nodes, _product(left.values, right.values))
    both, first, second = np.intersect1d(left.nodes, right.nodes, assume_unique=True, return_indices=True)
    return Weights(both, _product(left.values[first], right.values[second]))


def _product(left: Sums, right: Sums) -> Sums:
    if object in (left.dtype, right.dtype) or _largest(left) * _largest(right) > LARGEST:
        left, right = left.astype(object), right.astype(object)
    product: Sums = left * right
    return product


def _largest(values: Sums) -> int:
    return int(values.max()) if len(values) else 0
