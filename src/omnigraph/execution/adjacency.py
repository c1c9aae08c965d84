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

from omnigraph.execution.arrays import (
    DENSE,
    Mask,
    first_of_runs,
    in_sorted,
    is_member,
    repeated,
    sorted_distinct,
    take,
)
from omnigraph.execution.columns import NOTHING, Ordinals
from omnigraph.execution.degrees import Degrees, SharedDegrees, changed_degrees
from omnigraph.execution.edge_layers import stretches
from omnigraph.storage.derived.adjacency import WIDEST, BaseSide
from omnigraph.storage.derived.blocks import Unusable

if TYPE_CHECKING:
    from omnigraph.execution.topology import Topology

LOW_HALF = (1 << 32) - 1
MANY = 4_096  # nodes from which on only those that the version changed are put together one by one
Wide = NDArray[np.integer[Any]]  # numbers of any width
Lists = tuple[Wide, Wide, Wide]  # (node, other, edge), parallel
Entries = tuple[Ordinals, Ordinals, Ordinals]  # (position in the nodes asked for, edge, other node), parallel


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
        self._settled = topology.settled.lists(forward=forward)
        self._recent = topology.recent_lists(forward=forward)
        self._gone_near = topology.gone_homes(forward=forward)

    def of(self, nodes: Ordinals) -> Entries:
        """Return (position in `nodes`, edge, other node) of every edge of these nodes, by position.

        Of pairs there is no one edge: in its place stands the other node.
        """
        homes = self._near.homes_of(nodes)
        among = self._of_few if len(nodes) <= MANY else self._of_many
        which, edges, others = among(nodes, homes)
        others = self._far.places_of(others)
        return which, others if self._pairs else edges, others

    # -- some nodes ----------------------------------------------------------------------------------

    def _of_few(self, nodes: Ordinals, homes: Ordinals) -> Entries:
        """Return the edges of nodes, others by home: the base's that are alive, and those added."""
        lists = self._of_base(homes)
        added = self._added(nodes, homes)
        return self._insert_added(lists, added) if len(added[0]) else lists

    def _of_many(self, nodes: Ordinals, homes: Ordinals) -> Entries:
        """Do as `_of_few` for the nodes that differ from the base; room for them is left among the others."""
        base = self._topology.base
        if base is None:
            return self._of_few(nodes, homes)
        try:
            side = base.forward if self._forward else base.backward
            starts, counts = stretches(side, homes)
            side.ensure(starts, starts + counts, edges=not self._pairs)
            apart = is_member(homes, self._differing, self.span)
            if self._pairs:
                distinct = SharedDegrees(side.pair_degrees()).of(homes)
                apart |= distinct != counts  # a list that names a node twice
        except Unusable:
            self._topology.repair(base)
            return self._of_many(nodes, homes)
        places = np.flatnonzero(apart)
        if 2 * len(places) > len(nodes) or not len(side.array("others")):
            return self._of_few(nodes, homes)
        owners, own_edges, own_others = self._of_few(nodes[places], homes[places])
        counts[places] = np.bincount(owners, minlength=len(places))
        which, at = repeated(counts, starts)
        _, reserved = repeated(counts[places], (np.cumsum(counts) - counts)[places])
        at[reserved] = 0
        others = take(side.array("others"), at).astype(np.int64)
        others[reserved] = own_others
        if self._pairs:
            return which, others, others
        edges = take(side.array("edges"), at).astype(np.int64)
        edges[reserved] = own_edges
        return which, edges, others

    @cached_property
    def _differing(self) -> Ordinals:
        """The homes of nodes whose lists are not those of the base, ascending."""
        recent = self._near.homes_of(self._recent.by)
        return sorted_distinct(np.sort(np.concatenate([self._gone_near, self._settled.by, recent])))

    def _of_base(self, homes: Ordinals) -> Entries:
        """Return (position, edge, other node by home) of what is alive of the base; lists ascend."""
        base = self._topology.base
        if base is None:
            return NOTHING, NOTHING, NOTHING
        try:
            side = base.forward if self._forward else base.backward
            starts, counts = stretches(side, homes)
            which, at = repeated(counts, starts)
            touched = self._touched(homes)
            needs_edges = not self._pairs or touched
            side.ensure(starts, starts + counts, edges=needs_edges)
        except Unusable:
            self._topology.repair(base)
            return self._of_base(homes)
        others = take(side.array("others"), at).astype(np.int64)
        edges = take(side.array("edges"), at).astype(np.int64) if needs_edges else others
        if touched:
            alive = ~self._are_deleted(edges)
            which, edges, others = which[alive], edges[alive], others[alive]
        if self._pairs and len(which):
            first = first_of_runs(which) | first_of_runs(others)  # repeats are neighbours
            if not first.all():
                which, others = which[first], others[first]
            edges = others
        return which, edges, others

    def _touched(self, homes: Ordinals) -> bool:
        """Say whether a deleted edge was on this side of one of some nodes."""
        return bool(len(self._gone_near) and in_sorted(homes, self._gone_near).any())

    def _are_deleted(self, edges: Ordinals) -> Mask:
        """Say which edges the version has deleted; many are looked up in a byte map of all."""
        deleted, span = self._topology.deleted_edges, self._topology.edge_span
        if (len(edges) + len(deleted)) * DENSE > span:
            return is_member(edges, deleted, span)
        return in_sorted(edges, deleted)

    def _added(self, nodes: Ordinals, homes: Ordinals) -> Entries:
        """Return (position, edge, other node by home) of the edges that the base does not have."""
        parts: list[Entries] = []
        for lists, numbers in ((self._settled, homes), (self._recent, nodes)):
            if not len(lists.by):
                continue
            starts, stops = lists.spans(numbers)
            if (stops > starts).any():
                which, at = repeated(stops - starts, starts)
                edges, others = lists.edges[at], lists.others[at]
                if lists is self._recent:
                    parts.append((which, edges, self._far.homes_of(others)))
                else:
                    alive = ~in_sorted(edges, self._topology.deleted_edges)
                    parts.append((which[alive], edges[alive], others[alive]))
        if not parts:
            return NOTHING, NOTHING, NOTHING
        which, edges, others = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort((others, which))
        return which[order], edges[order], others[order]

    def _insert_added(self, lists: Entries, added: Entries) -> Entries:
        """Put a few edges among many, each behind the others of its node; of pairs only new ones."""
        which, edges, others = lists
        if self._pairs:
            span = max(self._topology.span, 1)
            keys = sorted_distinct(added[0] * span + added[2])
            keys = keys[~in_sorted(keys, which * span + others)]
            more_which, more_others = np.divmod(keys, span)
            added = (more_which, more_others, more_others)
        at = np.searchsorted(which, added[0], "right")
        which, edges, others = (np.insert(a, at, b) for a, b in zip(lists, added, strict=True))
        return which, edges, others

    # -- degrees -------------------------------------------------------------------------------------

    @cached_property
    def degrees(self) -> Degrees:
        """How many edges (or other nodes) each node has on this side."""
        shared = self._shared_degrees()
        changed_nodes, changes = self._pair_changes() if self._pairs else self._edge_changes()
        moved = self._near.homes
        nodes = np.concatenate([changed_nodes, moved])
        homes, values = changed_degrees(
            shared, nodes, np.concatenate([changes, np.zeros(len(moved), np.int64)])
        )
        nodes = np.concatenate([self._near.places_of(homes), moved])  # where one lived, nobody does
        order = np.argsort(nodes)
        return Degrees(
            shared, nodes[order], np.concatenate([values, np.zeros(len(moved), np.int64)])[order], self.span
        )

    def _edge_changes(self) -> tuple[Ordinals, Ordinals]:
        """Return the homes of nodes that gained or lost an edge, and +1 or -1 for each."""
        won = self._near.homes_of(self._recent.by)
        changes = np.ones(len(self._gone_near) + len(won), np.int64)
        changes[: len(self._gone_near)] = -1
        return np.concatenate([self._gone_near, won]), changes

    def _pair_changes(self) -> tuple[Ordinals, Ordinals]:
        """Return the homes of nodes that gained or lost another node, and by how many (+1, 0 or -1 each)."""
        gone = self._topology.gone
        near, far = (gone.source, gone.target) if self._forward else (gone.target, gone.source)
        lost = pair_keys(near, far)
        won = pair_keys(self._near.homes_of(self._recent.by), self._far.homes_of(self._recent.others))
        pairs = sorted_distinct(np.sort(np.concatenate([lost, won])))
        balance = np.bincount(np.searchsorted(pairs, won), minlength=len(pairs)) - np.bincount(
            np.searchsorted(pairs, lost), minlength=len(pairs)
        )
        nodes, others = pair_of(pairs)
        before = self._edges_between(nodes, others)
        return nodes, (before + balance > 0).astype(np.int64) - (before > 0)

    def _edges_between(self, nodes: Ordinals, others: Ordinals) -> Ordinals:
        """Return how many edges the base and settled files have between pairs of homes."""
        ends = (nodes, others) if self._forward else (others, nodes)
        return self._topology.edges_between(*ends)

    def _shared_degrees(self) -> SharedDegrees:
        """Return the degrees of the base and of settled files, which versions share."""
        base = self._topology.base
        try:
            return self._topology.settled.degrees(
                base, self._with_settled, forward=self._forward, pairs=self._pairs
            )
        except Unusable:
            assert base is not None
            self._topology.repair(base)
            return self._shared_degrees()

    def _with_settled(self) -> SharedDegrees:
        base = self._topology.base
        own: Wide = NOTHING
        if base is not None:
            side = base.forward if self._forward else base.backward
            own = side.pair_degrees() if self._pairs else np.diff(side.starts())
        nodes = self._settled.by
        if not len(nodes):
            return SharedDegrees(own)
        if self._pairs:
            first = first_of_runs(nodes) | first_of_runs(self._settled.others)
            nodes, others = nodes[first], self._settled.others[first]
            nodes = nodes[count_in_lists(side, nodes, others) == 0] if base is not None else nodes
        counts = np.bincount(nodes, minlength=len(own))
        counts[: len(own)] += own
        return SharedDegrees(counts.astype(np.int32) if int(counts.max()) <= WIDEST else counts)

    # -- all nodes -----------------------------------------------------------------------------------

    def flat(self) -> tuple[NDArray[np.int64], Wide]:
        """Return all lists in one array, node by node, and where each node's list begins; lists ascend."""
        offsets, others, _ = self.flat_edges()
        return offsets, others

    def flat_edges(self) -> tuple[NDArray[np.int64], Wide, Wide]:
        """Return all lists as `flat` does, and the edges parallel to them."""
        flat = self._flat
        if flat is None:
            flat = self._flat = self._flattened()
            self._topology.grown()
        return flat

    _flat: tuple[NDArray[np.int64], Wide, Wide] | None = None

    @property
    def nbytes(self) -> int:
        """Memory taken by arrays over all nodes and edges."""
        changed = vars(self).get("degrees")
        own = sum(array.nbytes for array in self._flat or () if array.flags.owndata)  # others are the base's
        return own + (2 * changed.nodes.nbytes if changed is not None else 0)

    def drop_flat(self) -> None:
        """Let go of the arrays over all edges; they are made again when they are asked for."""
        self._flat = None

    def _flattened(self) -> tuple[NDArray[np.int64], Wide, Wide]:
        narrow = max(self._topology.span, self._topology.edge_span) <= WIDEST
        width: Any = np.int32 if narrow else np.int64
        nodes, others, edges = (numbers.astype(width, copy=False) for numbers in self._base_lists())
        added = [
            (self._near.places_of(lists.by), self._far.places_of(lists.others), lists.edges)
            for lists in (self._settled,)
            if len(lists.by)
        ]
        added += [(self._recent.by, self._recent.others, self._recent.edges)] if len(self._recent.by) else []
        if added:
            more = [np.concatenate(column) for column in zip(*added, strict=True)]
            if len(self._topology.deleted_edges):
                alive = ~in_sorted(more[2], self._topology.deleted_edges)
                more = [column[alive] for column in more]
            nodes, others, edges = _merged((nodes, others, edges), (more[0], more[1], more[2]))
        if self._pairs and len(nodes):
            first = first_of_runs(nodes) | first_of_runs(others)
            if not first.all():
                nodes, others, edges = nodes[first], others[first], edges[first]
        offsets = np.zeros(self.span + 1, dtype=np.int64)
        np.cumsum(np.bincount(nodes, minlength=self.span), out=offsets[1:])
        return offsets, others, edges

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


def pair_keys(nodes: Ordinals, others: Ordinals) -> Ordinals:
    """Return pairs of homes as one number each, in their order; the same in every version."""
    return (nodes << 32) | others


def pair_of(keys: Ordinals) -> tuple[Ordinals, Ordinals]:
    """Return the pairs of `pair_keys`."""
    return keys >> 32, keys & LOW_HALF


def count_in_lists(side: BaseSide, nodes: Ordinals, others: Ordinals) -> Ordinals:
    """Return how often the lists of nodes name another node each; lists ascend by their other nodes."""
    starts, counts = stretches(side, nodes)
    stops = starts + counts
    side.ensure(starts, stops, edges=False)
    lists = side.array("others")
    low = _bisected(lists, starts, stops, others)
    return _bisected(lists, low, stops, others + 1) - low


def _bisected(values: Wide, low: Ordinals, high: Ordinals, wanted: Ordinals) -> Ordinals:
    """Return in each stretch of ascending values, from low to high, the first place not below a number."""
    low, high = low.copy(), high.copy()
    while (open_stretches := np.flatnonzero(low < high)).size:
        middle = (low[open_stretches] + high[open_stretches]) // 2
        below = values[middle] < wanted[open_stretches]
        low[open_stretches[below]] = middle[below] + 1
        high[open_stretches[~below]] = middle[~below]
    return low


def _merged(lists: Lists, more: Lists) -> Lists:
    """Add a few edges to many: (node, other, edge), the many sorted by node and other."""
    nodes, others, edges = lists
    order = np.lexsort((more[1], more[0]))
    more = (more[0][order], more[1][order], more[2][order])
    keys = nodes.astype(np.uint64) << np.uint64(32) | others.astype(np.uint64)
    at = np.searchsorted(keys, more[0].astype(np.uint64) << np.uint64(32) | more[1].astype(np.uint64))
    return np.insert(nodes, at, more[0]), np.insert(others, at, more[1]), np.insert(edges, at, more[2])
