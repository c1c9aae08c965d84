"""Adjacency: the lists of one side of an edge type, in one version.

A stored base, less the edges that the version has deleted, plus those of other files: put together for the
nodes that are asked for, or once for all of them. Nodes go in and come out by where they live; the base knows
them by their homes (moved_nodes.py).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass
from omnigraph.execution.arrays import sorted_distinct
from omnigraph.execution.columns import NOTHING, Ordinals
from omnigraph.storage.derived.adjacency import Numbers, gathered
from omnigraph.storage.derived.blocks import Unusable
from omnigraph.storage.derived.key_hashes import spread

if TYPE_CHECKING:
    from omnigraph.execution.topology import Topology

Ends = tuple[Ordinals, Ordinals, Ordinals]
Wide = NDArray[np.integer[Any]]  # numbers of any width
Lists = tuple[Wide, Wide, Wide]  # (node, other, edge), parallel


@dataclass(frozen=True, eq=False)
class SortedLists:
    """Some edges by one of their ends: `by` ascends, and for equal ones `others` does."""

    by: Ordinals
    others: Ordinals
    edges: Ordinals

    @classmethod
    def of(cls, by: Ordinals, others: Ordinals, edges: Ordinals) -> SortedLists:
        """Sort edges by one end, then by the other."""
        order = np.lexsort((others, by))
        return cls(by[order], others[order], edges[order])

    def spans(self, nodes: Ordinals) -> tuple[Ordinals, Ordinals]:
        """Return where the lists of some nodes begin and end."""
        return np.searchsorted(self.by, nodes, "left"), np.searchsorted(self.by, nodes, "right")


class Adjacency:
    """For each node, the edges on one side of it and the nodes at their other end.

    With `pairs`, each node at the other end once, whichever edge leads there.
    """

    def __init__(self, topology: Topology, *, forward: bool, pairs: bool) -> None:
        self._topology = topology
        self._forward = forward
        self._pairs = pairs
        self.span = topology.source_span if forward else topology.target_span
        near, far = topology.sources_at, topology.targets_at
        self._near, self._far = (near, far) if forward else (far, near)
        self._settled = topology.settled_lists(forward=forward)
        self._recent = topology.recent_lists(forward=forward)
        gone = topology.deleted
        self._gone_near = np.sort(gone[0 if forward else 1])

    def of(self, nodes: Ordinals) -> tuple[Ordinals, Ordinals, Ordinals]:
        """Return (position in `nodes`, edge, other node) of every edge of these nodes, by position.

        Of pairs there is no one edge: in its place stands the other node.
        """
        homes = self._near.homes_of(nodes)
        which, edges, others = self._of_base(homes)
        added = self._added(nodes, homes)
        if len(added[0]):
            which, edges, others = self._with((which, edges, others), added)
        others = self._far.places_of(others)
        return which, others if self._pairs else edges, others

    def _of_base(self, homes: Ordinals) -> Ends:
        """Return (position, edge, other node by home) of what is alive of the base; lists ascend."""
        base = self._topology.base
        if base is None:
            return NOTHING, NOTHING, NOTHING
        try:
            side = base.forward if self._forward else base.backward
            starts, stops = side.spans(np.minimum(homes, side.span - 1))
            counts = np.where(homes < side.span, stops - starts, 0)
            which, at = spread(starts, counts)
            touched = self._touched(homes)
            needs_edges = not self._pairs or touched
            side.ensure(starts, starts + counts, edges=needs_edges)
        except Unusable:
            self._topology.repair(base)
            return self._of_base(homes)
        others = gathered(side.array("others"), at).astype(np.int64)
        edges = gathered(side.array("edges"), at).astype(np.int64) if needs_edges else others
        if touched:
            alive = ~is_among(edges, self._topology.deleted_edges)
            which, edges, others = which[alive], edges[alive], others[alive]
        if self._pairs and len(which):
            again = (which[1:] == which[:-1]) & (others[1:] == others[:-1])  # repeats are neighbours
            if again.any():
                first = np.concatenate([[True], ~again])
                which, others = which[first], others[first]
                edges = others
        return which, edges, others

    def _touched(self, homes: Ordinals) -> bool:
        """Say whether a deleted edge was on this side of one of some nodes."""
        return bool(len(self._gone_near) and is_among(homes, self._gone_near).any())

    def _added(self, nodes: Ordinals, homes: Ordinals) -> Ends:
        """Return (position, edge, other node by home) of the edges that the base does not have."""
        parts: list[Ends] = []
        for lists, numbers in ((self._settled, homes), (self._recent, nodes)):
            if not len(lists.by):
                continue
            starts, stops = lists.spans(numbers)
            if (stops > starts).any():
                which, at = spread(starts, stops - starts)
                edges, others = lists.edges[at], lists.others[at]
                if lists is self._recent:
                    parts.append((which, edges, self._far.homes_of(others)))
                else:
                    alive = ~is_among(edges, self._topology.deleted_edges)
                    parts.append((which[alive], edges[alive], others[alive]))
        if not parts:
            return NOTHING, NOTHING, NOTHING
        which, edges, others = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort((others, which))
        return which[order], edges[order], others[order]

    def _with(self, lists: Ends, added: Ends) -> Ends:
        """Put a few edges among many, each behind the others of its node; of pairs only new ones."""
        which, edges, others = lists
        if self._pairs:
            span = max(self._topology.span, 1)
            keys = sorted_distinct(added[0] * span + added[2])
            keys = keys[~is_among(keys, which * span + others)]
            more_which, more_others = np.divmod(keys, span)
            added = (more_which, more_others, more_others)
        at = np.searchsorted(which, added[0], "right")
        which, edges, others = (np.insert(a, at, b) for a, b in zip(lists, added, strict=True))
        return which, edges, others

    # -- all nodes ---------------------------------------------------------------------------------

    def degrees(self) -> NDArray[np.int64]:
        """Return how many edges (or other nodes) each node has on this side."""
        if self._pairs:
            return self._pair_degrees
        degrees = self._base_degrees(pairs=False)
        gone = self._topology.deleted[0 if self._forward else 1]
        np.subtract.at(degrees, self._near.places_of(gone), 1)
        np.add.at(degrees, self._near.places_of(self._settled.by), 1)
        np.add.at(degrees, self._recent.by, 1)
        return degrees

    @cached_property
    def _pair_degrees(self) -> NDArray[np.int64]:
        degrees = self._base_degrees(pairs=True)
        nodes, change = self._pair_changes()
        np.add.at(degrees, nodes, change)
        return degrees

    def _pair_changes(self) -> tuple[Ordinals, Ordinals]:
        """Return nodes that gained or lost another node since the base, and by how many (+1 or -1 each)."""
        mine, other = (0, 1) if self._forward else (1, 0)
        gone = self._topology.deleted
        living = ~is_among(self._settled.edges, self._topology.deleted_edges)
        in_base = gone[2] < self._topology.covered
        span = max(self._topology.span, 1)
        lost = gone[mine][in_base] * span + gone[other][in_base]
        won = np.concatenate(
            [
                (self._settled.by * span + self._settled.others)[living],
                self._near.homes_of(self._recent.by) * span + self._far.homes_of(self._recent.others),
            ]
        )
        pairs, of = np.unique(np.concatenate([lost, won]), return_inverse=True)
        balance = np.bincount(of[len(lost) :], minlength=len(pairs)) - np.bincount(
            of[: len(lost)], minlength=len(pairs)
        )
        nodes, others = np.divmod(pairs, span)
        before = self._base_counts(nodes, others)
        change = (before + balance > 0).astype(np.int64) - (before > 0)
        return self._near.places_of(nodes), change

    def _base_counts(self, nodes: Ordinals, others: Ordinals) -> Ordinals:
        """Return how many edges the base has between pairs of homes; a list ascends by its other nodes."""
        counts = np.zeros(len(nodes), dtype=np.int64)
        base = self._topology.base
        if base is None:
            return counts
        side = base.forward if self._forward else base.backward
        try:
            offsets = side.starts()
            own_nodes = nodes[nodes < side.span]
            side.ensure(
                offsets[own_nodes].astype(np.int64), offsets[own_nodes + 1].astype(np.int64), edges=False
            )
        except Unusable:
            self._topology.repair(base)
            return self._base_counts(nodes, others)
        lists = side.array("others")
        for at, (node, other) in enumerate(zip(nodes.tolist(), others.tolist(), strict=True)):
            if node < side.span:
                own = lists[offsets[node] : offsets[node + 1]]
                number = own.dtype.type(other)  # of another type, the whole list would be converted
                counts[at] = own.searchsorted(number, "right") - own.searchsorted(number, "left")
        return counts

    def _base_degrees(self, *, pairs: bool) -> NDArray[np.int64]:
        base = self._topology.base
        if base is None:
            return np.zeros(self.span, dtype=np.int64)
        try:
            side = base.forward if self._forward else base.backward
            own = side.wide_degrees(pairs=pairs)
        except Unusable:
            self._topology.repair(base)
            return self._base_degrees(pairs=pairs)
        degrees = np.concatenate([own, np.zeros(self.span - len(own), np.int64)])
        if self._near.any:
            moved = degrees[self._near.homes].copy()
            degrees[self._near.homes] = 0
            degrees[self._near.places] += moved
        return degrees

    def flat(self) -> tuple[NDArray[np.int64], Numbers]:
        """Return all lists in one array, node by node, and where each node's list begins; lists ascend."""
        offsets, others, _ = self._flat
        return offsets, others

    def flat_edges(self) -> tuple[NDArray[np.int64], Numbers, Numbers]:
        """Return all lists as `flat` does, and the edges parallel to them."""
        return self._flat

    @cached_property
    def _flat(self) -> tuple[NDArray[np.int64], Numbers, Numbers]:
        nodes, others, edges = self._base_lists()
        added = [
            (self._near.places_of(lists.by), self._far.places_of(lists.others), lists.edges)
            for lists in (self._settled,)
            if len(lists.by)
        ]
        added += [(self._recent.by, self._recent.others, self._recent.edges)] if len(self._recent.by) else []
        if added:
            more = [np.concatenate(column) for column in zip(*added, strict=True)]
            if len(self._topology.deleted_edges):
                alive = ~is_among(more[2], self._topology.deleted_edges)
                more = [column[alive] for column in more]
            nodes, others, edges = _merged((nodes, others, edges), (more[0], more[1], more[2]))
        if self._pairs and len(nodes):
            first = np.concatenate([[True], (nodes[1:] != nodes[:-1]) | (others[1:] != others[:-1])])
            if not first.all():
                nodes, others, edges = nodes[first], others[first], edges[first]
        offsets = np.zeros(self.span + 1, dtype=np.int64)
        np.cumsum(np.bincount(nodes, minlength=self.span), out=offsets[1:])
        return offsets, others.astype(np.int32, copy=False), edges.astype(np.int32, copy=False)

    def _base_lists(self) -> Lists:
        """Return (node, other, edge) of what is alive of the base, sorted by node and other."""
        base = self._topology.base
        if base is None:
            return NOTHING, NOTHING, NOTHING
        try:
            side = base.forward if self._forward else base.backward
            counts, others, edges = np.diff(side.starts()), side.all_others(), side.all_edges()
        except Unusable:
            self._topology.repair(base)
            return self._base_lists()
        nodes = np.repeat(np.arange(side.span, dtype=np.int32), counts)
        gone = self._topology.deleted_edges
        if len(gone):
            alive = np.ones(base.cover.rows, dtype=bool)
            alive[gone[gone < len(alive)]] = False
            kept = alive[edges]
            nodes, others, edges = nodes[kept], others[kept], edges[kept]
        elsewhere = self._near.moved(nodes) | self._far.moved(others)
        if not elsewhere.any():
            return nodes, others, edges
        moved = (
            self._near.places_of(nodes[elsewhere].astype(np.int64)),
            self._far.places_of(others[elsewhere].astype(np.int64)),
            edges[elsewhere],
        )
        stay = ~elsewhere
        return _merged((nodes[stay], others[stay], edges[stay]), moved)


def is_among(values: Ordinals, some: Ordinals) -> NDArray[np.bool_]:
    """Say which values are among some, which ascend."""
    if not len(some):
        return np.zeros(len(values), dtype=np.bool_)
    at = np.minimum(np.searchsorted(some, values), len(some) - 1)
    return np.equal(some[at], values)


def _merged(lists: Lists, more: Lists) -> Lists:
    """Add a few edges to many: (node, other, edge), the many sorted by node and other."""
    nodes, others, edges = lists
    order = np.lexsort((more[1], more[0]))
    more = (more[0][order], more[1][order], more[2][order])
    keys = nodes.astype(np.uint64) << np.uint64(32) | others.astype(np.uint64)
    at = np.searchsorted(keys, more[0].astype(np.uint64) << np.uint64(32) | more[1].astype(np.uint64))
    return np.insert(nodes, at, more[0]), np.insert(others, at, more[1]), np.insert(edges, at, more[2])
