"""Expand: following edges, from every row at once.

There are two ways to the neighbours of a set of nodes: look-ups by the indexes on the ends of edges (few
nodes), or the topology (many, or again and again). A topology that is there is used; else look-ups, until
they have cost as much as building one.

Without an edge variable each distinct pair of nodes counts once: breadth first from every source, a node
at its shortest distance; by a self-loop a source reaches itself, in one hop. With an edge variable, each
edge is a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.model import ID
from omnigraph.catalog.query.expressions import Direction, Hops, Variable
from omnigraph.catalog.query.statements import Expand
from omnigraph.execution.adjacency import Adjacency
from omnigraph.execution.arrays import (
    distinct,
    in_sorted,
    numbered,
    repeated,
    repeats,
    sorted_distinct,
    starts_of,
    take,
)
from omnigraph.execution.columns import NOTHING, Ordinals
from omnigraph.execution.context import Context
from omnigraph.execution.degrees import Degrees
from omnigraph.execution.entities import MISSING, EntityTable
from omnigraph.execution.topology import Topology

MOST_LOOKUPS = 1_024  # nodes looked up at once; beyond, one pass over the edges is cheaper
STEP_COLUMNS = 8  # numbers held for each edge while one hop is worked out
LOOKUP_COST = 60  # edges that a topology numbers in the time of one look-up (measured, local disk)
VISITED_BYTES = 1 << 25  # for a byte map of what each source has reached; beyond, it is a sorted list
VISITED_SHARE = 32  # one part in so many of the limit is for that map, at most
COUNTED_ABOVE = 32  # degrees of all nodes are looked at where one in so many is expanded
TURNED = {
    Direction.FORWARD: Direction.BACKWARD,
    Direction.BACKWARD: Direction.FORWARD,
    Direction.EITHER: Direction.EITHER,
}


@dataclass(frozen=True)
class Expansion:
    """Edges found from a list of nodes: where in the list, which edge, which node at the other end."""

    places: Ordinals
    edges: Ordinals
    others: Ordinals


def turned(hops: Hops) -> Hops:
    """Return the same hops, followed from their other end."""
    return Hops(hops.edge, TURNED[hops.direction], hops.low, hops.high)


def expander_from(context: Context, clause: Expand, near: Variable) -> Expander:
    """Return what follows a clause from one of its ends."""
    return Expander(context, clause.hops if near == clause.left else turned(clause.hops))


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

    @property
    def chains(self) -> bool:
        """Say whether a second hop can follow: edges between different types do not chain."""
        return self.start.key == self.end.key

    @property
    def edge_rows(self) -> int:
        """How many edges there are."""
        return self._edges.rows

    def same_way(self, other: Expander) -> bool:
        """Say whether another one follows the same edges in the same direction."""
        return self._hops.edge.id == other._hops.edge.id and self._hops.direction is other._hops.direction

    # -- from some nodes ---------------------------------------------------------------------------

    def pairs(self, nodes: Ordinals, columns: int = 2) -> tuple[Ordinals, Ordinals]:
        """Return (position in `nodes`, node reached), each node once for a position; nodes may repeat.

        `columns` are the numbers that the caller will hold for each of these.
        """
        if self._hops.high == 1 or not self.chains:
            return self.joined(nodes, columns) if self._hops.low == 1 else (NOTHING, NOTHING)
        sources, back = numbered(nodes, self.start.span)
        places, reached = self._walked(sources)
        if len(sources) == len(nodes):
            at = places if len(nodes) <= 1 else _positions(places, back)
            self._context.budget.check(len(reached), columns, "a traversal")
            return at, reached
        counts = np.bincount(places, minlength=len(sources))
        self._context.budget.check(int(counts[back].sum()), columns, "a traversal")
        order = np.argsort(places, kind="stable")
        rows, at = repeated(counts[back], starts_of(counts)[back])
        return rows, reached[order[at]]

    def joined(self, nodes: Ordinals, columns: int = 2) -> tuple[Ordinals, Ordinals]:
        """Return (position, neighbour), one hop on, each neighbour once; nodes may repeat."""
        if not len(nodes) or not self._edges.rows:
            return NOTHING, NOTHING
        if self.by_lookups(len(nodes)):
            return self._joined_by_lookups(nodes, columns)
        sides = self._sides(self._topology())
        self._room(sides, nodes, columns)
        expansions = [side.of(nodes) for side in sides]
        if len(expansions) == 1:
            places, _, others = expansions[0]
        else:
            span = max(self.end.span, 1)
            keys = np.concatenate([places * span + others for places, _, others in expansions])
            keys.sort()
            places, others = np.divmod(sorted_distinct(keys), span)
        self._context.budget.check(len(others), columns, "a traversal")
        return places, others

    def neighbours(self, nodes: Ordinals, columns: int = 3) -> Expansion:
        """Return every edge of these nodes; a self-loop followed either way stands there once."""
        match self._hops.direction:
            case Direction.FORWARD:
                return self._side(nodes, columns, forward=True)
            case Direction.BACKWARD:
                return self._side(nodes, columns, forward=False)
            case Direction.EITHER:
                out = self._side(nodes, columns, forward=True)
                back = self._side(nodes, columns, forward=False)
                other = back.others != nodes[back.places]
                return Expansion(
                    np.concatenate([out.places, back.places[other]]),
                    np.concatenate([out.edges, back.edges[other]]),
                    np.concatenate([out.others, back.others[other]]),
                )

    def reached(self, nodes: Ordinals) -> Ordinals:
        """Return the nodes one hop on, each once."""
        share = min(len(nodes) / max(self.start.rows, 1), 1.0)
        self._context.budget.check(int(self._edges.rows * share), 2, "a hop over edges")
        _, others = self.joined(nodes, 0)
        return distinct(others, self.end.span)

    def _walked(self, sources: Ordinals) -> tuple[Ordinals, Ordinals]:
        """Walk outwards from distinct nodes; return (place of the source, node) within the bounds."""
        hops, span = self._hops, max(self.end.span, 1)
        places, frontier = np.arange(len(sources)), sources
        most_bytes = min(VISITED_BYTES, self._context.budget.limit // VISITED_SHARE)
        seen = _Seen(places * span + sources, len(sources) * span, most_bytes)
        emitted: list[Ordinals] = []
        for hop in range(1, hops.high + 1):
            if not len(frontier):
                break
            share = min(len(frontier) / max(self.start.rows, 1), 1.0)
            self._context.budget.check(int(self._edges.rows * share), STEP_COLUMNS, "a hop over edges")
            at, others = self.joined(frontier)
            keys = others if len(sources) == 1 else take(places, at) * span + others
            if hop == hops.low == 1:
                emitted.append(np.sort(seen.among(keys)))  # at first only the sources are known: self-loops
            fresh = seen.add(keys)
            if hop >= hops.low:
                emitted.append(fresh)
            places, frontier = np.divmod(fresh, span)
        every = np.concatenate(emitted) if emitted else NOTHING
        first, second = np.divmod(every, span)
        return first, second

    # -- one side ----------------------------------------------------------------------------------

    def _side(self, nodes: Ordinals, columns: int, *, forward: bool) -> Expansion:
        if not len(nodes) or not self._edges.rows:
            return Expansion(NOTHING, NOTHING, NOTHING)
        if self.by_lookups(len(nodes)):
            return self._neighbours_by_lookup(nodes, columns, forward=forward)
        topology = self._topology()
        side = topology.forward if forward else topology.backward
        self._room([side], nodes, columns)
        expansion = Expansion(*side.of(nodes))
        self._context.budget.check(len(expansion.others), columns, "a traversal")
        return expansion

    def _topology(self) -> Topology:
        self._context.note(f"{self._hops.edge.name}: topology")
        return self._context.topology(self._hops.edge)

    def _sides(self, topology: Topology, *, edges: bool = False) -> list[Adjacency]:
        """Return the sides to follow, each node once or each edge."""
        sides = []
        if self._hops.direction is not Direction.BACKWARD:
            sides.append(topology.forward if edges else topology.forward_pairs)
        if self._hops.direction is not Direction.FORWARD:
            sides.append(topology.backward if edges else topology.backward_pairs)
        return sides

    def _room(self, sides: list[Adjacency], nodes: Ordinals, columns: int) -> None:
        """Ask for room before nodes are expanded; what few distinct ones have is in the topology already."""
        if len(nodes) * COUNTED_ABOVE > self.start.span or repeats(nodes):
            fanned = sum(int(side.degrees.of(nodes).sum()) for side in sides)
            self._context.budget.check(fanned, columns, "a traversal")

    # -- the whole topology ------------------------------------------------------------------------

    def degrees(self, *, edges: bool = False) -> Degrees:
        """Return, for each node that can be expanded, how many nodes or edges it is joined to."""
        sides = self._sides(self._context.topology(self._hops.edge), edges=edges)
        return sides[0].degrees if len(sides) == 1 else Degrees.of_all(np.diff(self.lists(edges=edges)[0]))

    def lists(self, *, edges: bool = False) -> tuple[Ordinals, NDArray[Any]]:
        """Return the nodes that each node is joined to, one list after another, and where lists begin.

        Each node once and in order, or with `edges` once for each edge.
        """
        topology = self._context.topology(self._hops.edge)
        sides = self._sides(topology, edges=edges)
        if len(sides) == 1:
            return sides[0].flat()
        lefts, rights = np.divmod(self._either(topology, edges=edges), max(self.end.span, 1))
        counts = np.bincount(lefts, minlength=self.start.span)
        return np.concatenate([[0], np.cumsum(counts)]), rights

    def _either(self, topology: Topology, *, edges: bool = False) -> Ordinals:
        """Return both directions as sorted keys, each pair once, or with `edges` once for each edge.

        Two sorted runs merge in one pass. A loop is followed in one direction.
        """
        self._context.budget.check(2 * topology.count, 3, "listing all pairs")
        out, back = (keys_of(*side.flat(), self.end.span) for side in self._sides(topology, edges=edges))
        if edges:
            lefts, rights = np.divmod(back, max(self.end.span, 1))
            back = back[lefts != rights]
        keys = np.concatenate([out, back])
        keys.sort(kind="stable")
        return keys if edges else sorted_distinct(keys)

    def every_pair(self) -> tuple[Ordinals, Ordinals]:
        """Return (left, right) of all edges, each pair once."""
        self._context.note(f"{self._hops.edge.name}: all pairs")
        topology = self._context.topology(self._hops.edge)
        self._context.budget.check(topology.count, 2, "listing all pairs")
        if self._hops.direction is Direction.EITHER:
            lefts, rights = np.divmod(self._either(topology), max(self.end.span, 1))
            return lefts, rights
        sources, targets = (side.astype(np.int64) for side in topology.every_pair())
        return (sources, targets) if self._hops.direction is Direction.FORWARD else (targets, sources)

    def every_edge(self) -> tuple[Ordinals, Ordinals, Ordinals]:
        """Return (left node, edge, right node) of all edges, by how they are followed."""
        self._context.note(f"{self._hops.edge.name}: all edges")
        topology = self._context.topology(self._hops.edge)
        self._context.budget.check(topology.count, 2, "listing all edges")
        sources, targets, edges = (numbers.astype(np.int64) for numbers in topology.every_edge())
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

    # -- look-ups ----------------------------------------------------------------------------------

    def by_lookups(self, nodes: int) -> bool:
        """Say whether so many nodes are to be looked up, and count what that costs."""
        tables = (self._edges, self._sources, self._targets)
        topologies = self._context.caches.topologies
        if self._context.traversal != "auto":
            return self._context.traversal == "lookup"
        if topologies.known(*tables) is not None or nodes > MOST_LOOKUPS:
            return False
        price = nodes * LOOKUP_COST
        return topologies.spend(*tables, price) <= self._edges.rows

    def _joined_by_lookups(self, nodes: Ordinals, columns: int) -> tuple[Ordinals, Ordinals]:
        sides = {
            Direction.FORWARD: (True,),
            Direction.BACKWARD: (False,),
            Direction.EITHER: (True, False),
        }[self._hops.direction]
        expansions = [self._neighbours_by_lookup(nodes, columns, forward=forward) for forward in sides]
        span = max(self.end.span, 1)
        keys = np.concatenate([expansion.places * span + expansion.others for expansion in expansions])
        keys.sort()
        places, others = np.divmod(sorted_distinct(keys), span)
        return places, others

    def _neighbours_by_lookup(self, nodes: Ordinals, columns: int, *, forward: bool) -> Expansion:
        """Look distinct nodes up, and bring what was found to every entry that is one of them."""
        looked_up, back = numbered(nodes, (self._sources if forward else self._targets).span)
        expansion = self._looked_up(looked_up, forward=forward)
        counts = np.bincount(expansion.places, minlength=len(looked_up))
        self._context.budget.check(int(counts[back].sum()), columns, "a traversal")
        order = np.argsort(expansion.places, kind="stable")
        entries, at = repeated(counts[back], starts_of(counts)[back])
        return Expansion(entries, expansion.edges[order[at]], expansion.others[order[at]])

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


class _Seen:
    """What each source has reached, as one number for both: a byte map if it is small, else sorted."""

    def __init__(self, keys: Ordinals, cells: int, most_bytes: int) -> None:
        self._map = np.zeros(cells, dtype=bool) if cells <= most_bytes else None
        self._keys = keys
        self._cells = cells
        if self._map is not None:
            self._map[keys] = True

    def among(self, keys: Ordinals) -> Ordinals:
        """Return those that were seen before, each once."""
        if self._map is not None:
            return distinct(keys[self._map[keys]], self._cells)
        return sorted_distinct(np.sort(keys[in_sorted(keys, self._keys)]))

    def add(self, keys: Ordinals) -> Ordinals:
        """Return those that were not seen before, ascending, each once; now they are."""
        if self._map is not None:
            fresh = distinct(keys[~self._map[keys]], self._cells)
            self._map[fresh] = True
            return fresh
        candidates = sorted_distinct(np.sort(keys))
        fresh = candidates[~in_sorted(candidates, self._keys)]
        self._keys = np.concatenate([self._keys, fresh])
        self._keys.sort(kind="stable")  # two sorted runs: one pass
        return fresh


def _positions(places: Ordinals, back: Ordinals) -> Ordinals:
    """Return positions in a list of nodes, given places among them in order; none repeats."""
    position = np.empty(len(back), dtype=np.int64)
    position[back] = np.arange(len(back))
    return position[places]


def keys_of(offsets: Ordinals, others: NDArray[Any], span: int) -> Ordinals:
    """Return each pair of a node and one in its list as one number; in order, if the lists are."""
    owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    owners *= max(span, 1)
    owners += others
    return owners


def repeat_for(keys: Ordinals, of: Ordinals) -> tuple[Ordinals, Ordinals]:
    """Join rows to entries by key: return (row, entry) for each entry whose key is the row's.

    `of` holds the key of each entry and is sorted.
    """
    low = np.searchsorted(of, keys, "left")
    return repeated(np.searchsorted(of, keys, "right") - low, low)
