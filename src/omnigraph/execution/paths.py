"""Paths: the shortest way from one node to another, and among ways of one length the first by ids.

Distances come first, by frontiers: arrays of the nodes that are so many hops away. Ids are looked at only
among nodes that lie on a shortest way, so a search costs what it expands and nothing for each node it passes.

- one node to one node: frontiers from both ends, the smaller one first, until they meet. The way is then
  walked from its source, each time to the smallest id among the nodes that are one hop nearer to the target.
- one node to many: outwards level by level. The nodes of a level are kept in the order of their ways, so a
  node's parent is the first that leads to it, and the order of the next level is that of parents, then ids.
- many nodes to one: distances from the target, then all ways walked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import ID
from omnigraph.catalog.query.expressions import ShortestPath
from omnigraph.execution.arrays import Mask, first_of_runs, in_sorted, numbered, sorted_distinct
from omnigraph.execution.columns import Ordinals
from omnigraph.execution.context import Context
from omnigraph.execution.cycles import PairTest
from omnigraph.execution.expand import Expander, turned
from omnigraph.execution.match_rows import MatchRows

MANY = 8  # ways with one end in common, from which on one search finds them all
WALKED_AT_ONCE = 4_096  # ways
Ways = tuple[Ordinals, Ordinals]  # places in the list of pairs, and their ways: one row of nodes for each


def shortest_paths(context: Context, path: ShortestPath, rows: MatchRows) -> pa.Array:
    """Return for each row the ids from its source to its target, both included; null if there is no way."""
    finder = PathFinder(context, path)
    sources, targets = rows.bound[path.source], rows.bound[path.target]
    there = np.flatnonzero((sources >= 0) & (targets >= 0))
    span = max(finder.forward.end.span, 1)
    keys = sources[there] * span + targets[there]
    pairs = sorted_distinct(np.sort(keys))
    lists, way_of = finder.ways(*np.divmod(pairs, span))
    places = np.full(rows.count, -1, dtype=np.int64)
    places[there] = way_of[np.searchsorted(pairs, keys)]
    return lists.take(pa.array(places, mask=places < 0))


class PathFinder:
    """Finds the ways of one expression."""

    def __init__(self, context: Context, path: ShortestPath) -> None:
        self._context = context
        self._low, self._high = path.hops.low, path.hops.high
        self.forward = Expander(context, path.hops)
        self.backward = Expander(context, turned(path.hops))

    def ways(self, sources: Ordinals, targets: Ordinals) -> tuple[pa.Array, Ordinals]:
        """Return the ways that there are, as lists of ids, and which one each pair has; -1 for none."""
        way_of = np.full(len(sources), -1, dtype=np.int64)
        lists: list[pa.Array] = []
        total = 0
        for places, nodes in self._groups_of_ways(sources, targets):
            if len(places):
                way_of[places] = np.arange(total, total + len(places))
                total += len(places)
                lists.append(self._named(nodes))
        empty = pa.array([], pa.list_(pa.field("item", pa.string())))
        return pa.concat_arrays([empty, *lists]), way_of

    def _named(self, nodes: Ordinals) -> pa.Array:
        """Return rows of nodes as lists of their ids."""
        count, length = nodes.shape
        self._context.budget.check(nodes.size, 4, "shortest paths")
        if self.forward.chains:
            ids = self.forward.end.take(ID, nodes.ravel())
        else:  # one hop, between types of which each has its own numbers
            firsts = self.forward.start.take(ID, nodes[:, 0].copy())
            lasts = self.forward.end.take(ID, nodes[:, 1].copy())
            turns = np.arange(2 * count).reshape(2, count).T.ravel()
            ids = pa.concat_arrays([firsts, lasts]).take(pa.array(turns))
        offsets = pa.array(np.arange(0, count * length + 1, length), pa.int32())
        return pa.ListArray.from_arrays(offsets, ids).cast(pa.list_(pa.field("item", pa.string())))

    def _groups_of_ways(self, sources: Ordinals, targets: Ordinals) -> Iterator[Ways]:
        if not self.forward.chains:
            yield self._one_hop(np.arange(len(sources)), sources, targets)
            return
        loops = sources == targets  # a node reaches itself by its own loop, and in no other way
        yield self._one_hop(np.flatnonzero(loops), sources[loops], targets[loops])
        places = np.flatnonzero(~loops)
        if not len(places):
            return
        sources, targets = sources[places], targets[places]
        starts, source_of = numbered(sources, max(self.forward.start.span, 1))
        goals, target_of = numbered(targets, max(self.forward.end.span, 1))
        by_source = len(starts) <= len(goals)
        shared, which = (starts, source_of) if by_source else (goals, target_of)
        order = np.argsort(which, kind="stable")
        ends = np.cumsum(np.bincount(which, minlength=len(shared)))
        for first, last in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            group = order[first:last]
            if len(group) < MANY:
                for place in group.tolist():
                    way = self._between(int(sources[place]), int(targets[place]))
                    if way is not None:
                        yield places[place : place + 1], way.reshape(1, -1)
            elif by_source:
                for at, nodes in self._from(int(sources[group[0]]), targets[group]):
                    yield places[group[at]], nodes
            else:
                for at, nodes in self._to(sources[group], int(targets[group[0]])):
                    yield places[group[at]], nodes

    def _one_hop(self, places: Ordinals, sources: Ordinals, targets: Ordinals) -> Ways:
        if self._low > 1 or not len(places):
            return places[:0], np.zeros((0, 2), np.int64)
        joined = PairTest(self._context, self.forward, len(places)).holds(sources, targets)
        return places[joined], np.stack([sources[joined], targets[joined]], axis=1)

    # -- one to one --------------------------------------------------------------------------------

    def _between(self, source: int, target: int) -> Ordinals | None:
        span = self.forward.start.span
        self._context.budget.check_bytes(2 * span, "a search for a shortest path")
        ahead, behind = [np.array([source], np.int64)], [np.array([target], np.int64)]
        seen_ahead, seen_behind = np.zeros(span, dtype=bool), np.zeros(span, dtype=bool)
        seen_ahead[source] = seen_behind[target] = True
        for _ in range(self._high):
            if len(ahead[-1]) <= len(behind[-1]):
                ahead.append(_fresh(self.forward.reached(ahead[-1]), seen_ahead))
            else:
                behind.append(_fresh(self.backward.reached(behind[-1]), seen_behind))
            if not len(ahead[-1]) or not len(behind[-1]):
                return None
            # No way is as short as the levels before, so a node of both last levels is on a shortest one,
            # and every shortest way has such a node.
            meeting = ahead[-1][in_sorted(ahead[-1], behind[-1])]
            if len(meeting):
                short = len(ahead) + len(behind) - 2 < self._low
                return None if short else self._walked(ahead, behind, meeting)
        return None

    def _walked(self, ahead: list[Ordinals], behind: list[Ordinals], meeting: Ordinals) -> Ordinals:
        """Walk from the source by the smallest ids among the nodes that are on a shortest way."""
        on_way = [meeting]
        for level in reversed(ahead[1:-1]):
            on_way.append(self._leading(level, on_way[-1]))
        levels = [*reversed(on_way), *reversed(behind[:-1])] if len(ahead) > 1 else [*reversed(behind[:-1])]
        way = [int(ahead[0][0])]
        for level in levels:
            _, others = self.forward.joined(np.array([way[-1]], np.int64))
            nearer = others[in_sorted(others, level)]
            way.append(int(nearer[0]) if len(nearer) == 1 else self._smallest(nearer))
        return np.array(way, np.int64)

    def _leading(self, level: Ordinals, later: Ordinals) -> Ordinals:
        """Return the nodes of a level from which one hop leads to some nodes of the next."""
        if len(later) <= len(level):
            before = self.backward.reached(later)
            return level[in_sorted(level, before)]
        places, others = self.forward.joined(level)
        leads = np.zeros(len(level), dtype=bool)
        leads[places[in_sorted(others, later)]] = True
        return level[leads]

    def _smallest(self, nodes: Ordinals) -> int:
        ids = self.forward.end.take(ID, nodes)
        return int(nodes[pc.index(ids, pc.min(ids)).as_py()])

    # -- one to many -------------------------------------------------------------------------------

    def _from(self, source: int, goals: Ordinals) -> Iterable[Ways]:
        span = self.forward.start.span
        self._context.budget.check_bytes(10 * span, "a search for shortest paths")
        place_of = np.full(span, -1, dtype=np.int64)
        place_of[goals] = np.arange(len(goals))
        seen = np.zeros(span, dtype=bool)
        seen[source] = True
        levels, parents = [np.array([source], np.int64)], [np.zeros(1, np.int64)]
        open_goals = len(goals)
        for hop in range(1, self._high + 1):
            nodes, parent = self._next(levels[-1], seen)
            if not len(nodes):
                return
            levels.append(nodes)
            parents.append(parent)
            at = np.flatnonzero(place_of[nodes] >= 0)
            open_goals -= len(at)
            if hop >= self._low and len(at):
                yield place_of[nodes[at]], _traced(levels, parents, at)
            if not open_goals:
                return

    def _next(self, level: Ordinals, seen: Mask) -> tuple[Ordinals, Ordinals]:
        """Return the nodes one hop further, in the order of their ways, and the parent of each."""
        places, others = self.forward.joined(level, 4)
        fresh = ~seen[others]
        keys = others[fresh] * len(level) + places[fresh]
        keys.sort()
        nodes, parent = np.divmod(keys, len(level))
        first = first_of_runs(nodes)
        nodes, parent = nodes[first], parent[first]
        seen[nodes] = True
        return _in_order(nodes, parent, self.forward)

    # -- many to one -------------------------------------------------------------------------------

    def _to(self, sources: Ordinals, target: int) -> Iterable[Ways]:
        span = self.forward.end.span
        self._context.budget.check_bytes(4 * span, "a search for shortest paths")
        distance = np.full(span, -1, dtype=np.int32)
        distance[target] = 0
        level = np.array([target], np.int64)
        for hop in range(1, self._high + 1):
            level = self.backward.reached(level)
            level = level[distance[level] < 0]
            if not len(level):
                break
            distance[level] = hop
            if not (distance[sources] < 0).any():
                break
        lengths = distance[sources]
        for length in range(max(self._low, 1), int(lengths.max()) + 1):
            at = np.flatnonzero(lengths == length)
            for start in range(0, len(at), WALKED_AT_ONCE):
                part = at[start : start + WALKED_AT_ONCE]
                ways = [sources[part]]
                for left in range(length - 1, -1, -1):
                    places, others = self.forward.joined(ways[-1], 4)
                    nearer = distance[others] == left
                    nodes, owners = _in_order(others[nearer], places[nearer], self.forward)
                    ways.append(nodes[first_of_runs(owners)])
                yield part, np.stack(ways, axis=1)


def _fresh(reached: Ordinals, seen: Mask) -> Ordinals:
    fresh = reached[~seen[reached]]
    seen[fresh] = True
    return fresh


def _in_order(nodes: Ordinals, owners: Ordinals, expander: Expander) -> tuple[Ordinals, Ordinals]:
    """Sort nodes by the numbers beside them, then by ids."""
    table = pa.table({"owner": owners, "id": expander.end.take(ID, nodes)})
    order = pc.sort_indices(table, sort_keys=[("owner", "ascending"), ("id", "ascending")]).to_numpy()
    return nodes[order], owners[order]


def _traced(levels: list[Ordinals], parents: list[Ordinals], at: Ordinals) -> Ordinals:
    """Follow parents back to the source, for some nodes of the last level."""
    ways = []
    for nodes, parent in zip(reversed(levels), reversed(parents), strict=True):
        ways.append(nodes[at])
        at = parent[at]
    return np.stack(ways[::-1], axis=1)
