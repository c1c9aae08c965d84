"""Paths: the shortest way from one node to another.

Room    execution. Breadth first from each distinct source; among ways of one length the first by ids.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.catalog.model import ID
from omnigraph.catalog.query.expressions import ShortestPath
from omnigraph.execution.context import Context
from omnigraph.execution.expand import Expander
from omnigraph.execution.rows import Rows


def shortest_paths(context: Context, path: ShortestPath, rows: Rows) -> pa.Array:
    """Return for each row the ids from its source to its target, both included; null if there is no way."""
    sources, targets = rows.bound[path.source], rows.bound[path.target]
    expander = Expander(context, path.hops)
    found: dict[tuple[int, int], list[str] | None] = {}
    for source in np.unique(sources[sources >= 0]):
        wanted = np.unique(targets[sources == source])
        for target, way in _from(expander, int(source), wanted, path.hops.low, path.hops.high).items():
            found[(int(source), target)] = way
    ways = [found.get((int(s), int(t))) for s, t in zip(sources, targets, strict=True)]
    return pa.array(ways, pa.list_(pa.field("item", pa.string())))


def _from(
    expander: Expander, source: int, wanted: np.ndarray[tuple[int], np.dtype[np.int64]], low: int, high: int
) -> dict[int, list[str] | None]:
    """Walk outwards level by level; a node's way is its first parent's by ids, then the node itself."""
    nodes, end = expander.start, expander.end
    ways: dict[int, list[str]] = {source: [nodes.take(ID, np.array([source]))[0].as_py()]}
    answers: dict[int, list[str] | None] = {}
    frontier = [source]
    for hop in range(1, high + 1):
        if not frontier or len(answers) == len(wanted):
            break
        found = expander.neighbours(np.array(frontier, dtype=np.int64))
        ids = end.take(ID, found.others).to_pylist()
        reached: dict[int, list[str]] = {}
        for place, other, name in zip(found.places.tolist(), found.others.tolist(), ids, strict=True):
            way = [*ways[frontier[place]], name]
            if hop == low == 1 and other == source and other in wanted:
                answers[other] = way  # by its own self-loop, or of another type: numbers meet by chance
            if other not in ways and (other not in reached or way < reached[other]):
                reached[other] = way
        ways |= reached
        frontier = sorted(reached)
        for node, way in reached.items():
            if node in wanted and hop >= low:
                answers.setdefault(node, way)
        if nodes.key != end.key:
            break
    return answers
