"""Traverse: which way an edge is followed, and whether its ends fit.

Room    catalog.query, under the checker of reads.
Rule    the types of the variables already bound decide the direction, not the order of writing:
        `$company worksAt $person` means the same as `$person worksAt $company`.
"""

from __future__ import annotations

from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.catalog.query import operation
from omnigraph.catalog.query.expressions import Direction, Hops, Variable, node_type
from omnigraph.catalog.query.findings import Findings
from omnigraph.language.query import rules
from omnigraph.language.query import tree as ast
from omnigraph.language.suggest import nearest


class Traverser:
    """Resolves the edge of a traversal."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._catalog = findings.catalog

    def hops(self, traversal: ast.Traversal, left: Variable | None, right: Variable | None) -> Hops | None:
        """Return how the edge is followed; an end that is not bound yet is None and fits."""
        bounds = self._bounds(traversal.bounds)
        edge = self._edge(traversal)
        if edge is None:
            return None
        if traversal.undirected and edge.source != edge.target:
            source, target = operation.endpoints(edge, self._catalog)
            message = f"edge {edge.name} joins {source.name} and {target.name}: it has a direction"
            hint = f"write '{traversal.edge.text}' without '<' and '>'"
            self._findings.report(rules.UNDIRECTED, message, traversal.edge.span, hint)
            return None
        direction = Direction.EITHER if traversal.undirected else _direction(edge, left, right)
        ends = self.ends(Hops(edge, direction))
        fits = [
            self._fits(edge, end, wanted, written)
            for end, wanted, written in zip(
                (left, right), ends, (traversal.left, traversal.right), strict=True
            )
        ]
        return Hops(edge, direction, *bounds) if all(fits) and bounds is not None else None

    def ends(self, hops: Hops) -> tuple[NodeType, NodeType]:
        """Return the types of the left and the right end."""
        source, target = operation.endpoints(hops.edge, self._catalog)
        return (target, source) if hops.direction is Direction.BACKWARD else (source, target)

    def _edge(self, traversal: ast.Traversal) -> EdgeType | None:
        name = traversal.edge
        edge = self._catalog.find_edge(name.text)
        if edge is None:
            close = nearest(name.text, (e.name for e in self._catalog.edges))
            hint = None if close is None else f"did you mean '{close[0].lower() + close[1:]}'?"
            self._findings.report(rules.UNKNOWN_EDGE, f"there is no edge type '{name.text}'", name.span, hint)
        return edge

    def _fits(self, edge: EdgeType, end: Variable | None, wanted: NodeType, written: ast.Var) -> bool:
        if end is None or node_type(end).id == wanted.id:
            return True
        source, target = operation.endpoints(edge, self._catalog)
        message = (
            f"'${written.name}' is {end.type.name}; edge {edge.name} connects {source.name} -> {target.name}"
        )
        self._findings.report(rules.ENDPOINT, message, written.span)
        return False

    def _bounds(self, bounds: ast.Bounds | None) -> tuple[int, int] | None:
        if bounds is None:
            return 1, 1
        if bounds.high is None:
            message = "hop bounds need a maximum"
            hint = f"write {{{bounds.low},n}}"
        elif bounds.low < 1:
            message, hint = "hop bounds start at 1", f"write {{1,{bounds.high}}}"
        elif bounds.high < bounds.low:
            message = f"the maximum {bounds.high} of the hop bounds is below the minimum {bounds.low}"
            hint = f"write {{{bounds.high},{bounds.low}}}"
        else:
            return bounds.low, bounds.high
        self._findings.report(rules.BOUNDS, message, bounds.span, hint)
        return None


def _direction(edge: EdgeType, left: Variable | None, right: Variable | None) -> Direction:
    if edge.source == edge.target:
        return Direction.FORWARD
    if left is not None:
        return Direction.BACKWARD if left.type.id == edge.target else Direction.FORWARD
    if right is not None:
        return Direction.BACKWARD if right.type.id == edge.source else Direction.FORWARD
    return Direction.FORWARD
