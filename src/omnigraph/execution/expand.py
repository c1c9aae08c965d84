"""Expand: following edges, from every row at once.

There are two ways to the neighbours of a set of nodes: look-ups by the indexes on the ends of edges (few
nodes), or the topology (many, or again and again). A topology that is there is used; else look-ups, until
they have cost as much as building one.

Without an edge variable each distinct pair of nodes counts once: breadth first from every source, a node
at its shortest distance; by a self-loop a source reaches itself, in one hop. With an edge variable, each
edge is a row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.model import ID
from omnigraph.catalog.query.expressions import Direction, Hops
from omnigraph.execution.context import Context
from omnigraph.execution.entities import MISSING, EntityTable, Ordinals
from omnigraph.execution.topology import Topology

MOST_LOOKUPS = 1_024  # nodes looked up at once; beyond, one pass over the edges is cheaper
ENDS = ("src", "dst")
STEP_COLUMNS = 8  # numbers held for each edge while one hop is worked out
LOOKUP_COST = 60  # edges that a topology numbers in the time of one look-up (measured, local disk)


@dataclass(frozen=True)
class Expansion:
    """Edges found from a list of nodes: where in the list, which edge, which node at the other end."""

    places: Ordinals
    edges: Ordinals
    others: Ordinals


class Expander:
    """Follows one edge type in one direction."""

    def __init__(self, context: Context, hops: Hops) -> None:
        self._context = context
        self._hops = hops
        self._edges, self._sources, self._targets = context.ends(hops.edge)

    @property
    def start(self) -> EntityTable:
        """The table of the nodes that are expanded."""
        return self._targets if self._hops.direction is Direction.BACKWARD else self._sources

    @property
    def end(self) -> EntityTable:
        """The table of the nodes that are reached."""
        return self._sources if self._hops.direction is Direction.BACKWARD else self._targets

    def pairs(self, nodes: Ordinals) -> tuple[Ordinals, Ordinals]:
        """Return (position in `nodes`, node reached), each pair once; `nodes` are distinct."""
        hops, span = self._hops, self.end.span
        if hops.high == 1 and hops.direction is not Direction.EITHER and len(nodes):
            known = self._known_topology(len(nodes))
            if known is not None:
                side = known.forward_pairs if hops.direction is Direction.FORWARD else known.backward_pairs
                places, _, reached = side.of(nodes)
                return places, reached
        places = np.arange(len(nodes))
        frontier = nodes
        chains = self.start.key == self.end.key  # edges between different types do not
        visited = places * span + nodes if chains else np.zeros(0, np.int64)
        emitted: list[Ordinals] = []
        for hop in range(1, hops.high + 1):
            if not len(frontier):
                break
            distinct, back = np.unique(frontier, return_inverse=True)
            share = min(len(distinct) / max(self.start.rows, 1), 1.0)
            self._context.budget.check(int(self._edges.rows * share), STEP_COLUMNS, "a hop over edges")
            expansion = self.neighbours(distinct)
            self._context.budget.check(_fanned(expansion.places, back, len(distinct)), 2, "a traversal")
            at, reached = _spread(expansion, back, len(distinct))
            keys = np.unique(places[at] * span + reached)
            fresh = keys[~np.isin(keys, visited, assume_unique=True)]
            if hop >= hops.low:
                emitted.append(keys if hop == 1 else fresh)  # at first only the sources are known: self-loops
            visited = np.concatenate([visited, fresh])
            places, frontier = np.divmod(fresh, max(span, 1))
            if not chains:
                break
        every = np.sort(np.concatenate(emitted)) if emitted else np.zeros(0, np.int64)
        first, second = np.divmod(every, max(span, 1))
        return first, second

    def neighbours(self, nodes: Ordinals) -> Expansion:
        """Return every edge of these nodes; a self-loop followed either way stands there once."""
        match self._hops.direction:
            case Direction.FORWARD:
                return self._side(nodes, forward=True)
            case Direction.BACKWARD:
                return self._side(nodes, forward=False)
            case Direction.EITHER:
                out, back = self._side(nodes, forward=True), self._side(nodes, forward=False)
                other = back.others != nodes[back.places]
                return Expansion(
                    np.concatenate([out.places, back.places[other]]),
                    np.concatenate([out.edges, back.edges[other]]),
                    np.concatenate([out.others, back.others[other]]),
                )

    def every_edge(self) -> tuple[Ordinals, Ordinals, Ordinals]:
        """Return (left node, edge, right node) of all edges, by how they are followed."""
        self._context.note(f"{self._hops.edge.name}: all edges")
        topology = self._context.topology(self._hops.edge)
        self._context.budget.check(len(topology.edges), 2, "listing all edges")
        edges = topology.edges.astype(np.int64)
        sources, targets = topology.sources.astype(np.int64), topology.targets.astype(np.int64)
        match self._hops.direction:
            case Direction.FORWARD:
                return sources, edges, targets
            case Direction.BACKWARD:
                return targets, edges, sources
            case Direction.EITHER:
                other = sources != targets
                return (
                    np.concatenate([sources, targets[other]]),
                    np.concatenate([edges, edges[other]]),
                    np.concatenate([targets, sources[other]]),
                )

    # -- one side ----------------------------------------------------------------------------------

    def _side(self, nodes: Ordinals, *, forward: bool) -> Expansion:
        if not len(nodes) or not self._edges.rows:
            nothing = np.zeros(0, np.int64)
            return Expansion(nothing, nothing, nothing)
        if self._use_lookups(len(nodes)):
            return self._looked_up(nodes, forward=forward)
        self._context.note(f"{self._hops.edge.name}: topology")
        topology = self._context.topology(self._hops.edge)
        return Expansion(*(topology.forward if forward else topology.backward).of(nodes))

    def _known_topology(self, nodes: int) -> Topology | None:
        """Return the topology if the next hop would use it."""
        if not self._edges.rows or self._use_lookups(nodes):
            return None
        self._context.note(f"{self._hops.edge.name}: topology")
        return self._context.topology(self._hops.edge)

    def degrees(self, *, left: bool) -> Ordinals:
        """Return, for each node on one side, how many nodes it is joined to."""
        if self._hops.direction is Direction.EITHER:
            lefts, rights = self.every_pair()
            return np.bincount(lefts if left else rights, minlength=self.end.span)
        topology = self._context.topology(self._hops.edge)
        by_source = left is (self._hops.direction is Direction.FORWARD)
        return (topology.forward_pairs if by_source else topology.backward_pairs).degrees()

    def every_pair(self) -> tuple[Ordinals, Ordinals]:
        """Return (left, right) of all edges, each pair once."""
        self._context.note(f"{self._hops.edge.name}: all pairs")
        topology = self._context.topology(self._hops.edge)
        self._context.budget.check(len(topology.edges), 2, "listing all pairs")
        sources, targets = (side.astype(np.int64) for side in topology.pairs)
        match self._hops.direction:
            case Direction.FORWARD:
                return sources, targets
            case Direction.BACKWARD:
                return targets, sources
            case Direction.EITHER:
                span = max(self.end.span, 1)
                both = np.concatenate([sources * span + targets, targets * span + sources])
                lefts, rights = np.divmod(np.unique(both), span)
                return lefts, rights

    def _use_lookups(self, nodes: int) -> bool:
        tables = (self._edges, self._sources, self._targets)
        topologies = self._context.caches.topologies
        if self._context.traversal != "auto":
            return self._context.traversal == "lookup"
        if topologies.known(*tables) is not None or nodes > MOST_LOOKUPS:
            return False
        price = nodes * LOOKUP_COST + max(map(self._edges.scanned_by, ENDS))
        return topologies.spend(*tables, price) <= self._edges.rows

    def _looked_up(self, nodes: Ordinals, *, forward: bool) -> Expansion:
        self._context.note(f"{self._hops.edge.name}: look-ups")
        here, there = (self._sources, self._targets) if forward else (self._targets, self._sources)
        near, far = ("src", "dst") if forward else ("dst", "src")
        ids = here.take(ID, nodes)
        edges, ends = self._edges.by_value(near, ids)
        order = np.argsort(edges, kind="stable")
        edges, ends = edges[order], ends.take(pa.array(order))
        places = pa.compute.index_in(ends, value_set=ids).to_numpy(zero_copy_only=False).astype(np.int64)
        others = there.find(self._edges.take(far, edges))
        kept = others != MISSING
        return Expansion(places[kept], edges[kept], others[kept])


def _spread(expansion: Expansion, back: Ordinals, distinct: int) -> tuple[Ordinals, Ordinals]:
    """Bring what was found from distinct nodes to every frontier entry that is one of them.

    Returns (entry, node reached).
    """
    order = np.argsort(expansion.places, kind="stable")
    counts = np.bincount(expansion.places, minlength=distinct)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if distinct else np.zeros(0, np.int64)
    each = counts[back]
    entries = np.repeat(np.arange(len(back)), each)
    before = np.concatenate([[0], np.cumsum(each)[:-1]]) if len(back) else np.zeros(0, np.int64)
    at = np.arange(int(each.sum())) - np.repeat(before - starts[back], each)
    return entries, expansion.others[order][at]


def _fanned(places: Ordinals, back: Ordinals, distinct: int) -> int:
    """Return how many pairs the next hop makes."""
    return int(np.bincount(places, minlength=distinct)[back].sum()) if len(places) else 0


def repeat_for(keys: Ordinals, of: Ordinals) -> tuple[Ordinals, Ordinals]:
    """Join rows to entries by key: return (row, entry) for each entry whose key is the row's.

    `of` holds the key of each entry and is sorted.
    """
    low, high = np.searchsorted(of, keys, "left"), np.searchsorted(of, keys, "right")
    counts = high - low
    rows = np.repeat(np.arange(len(keys)), counts)
    before = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(keys) else np.zeros(0, np.int64)
    entries = np.arange(int(counts.sum())) - np.repeat(before - low, counts)
    return rows, entries
