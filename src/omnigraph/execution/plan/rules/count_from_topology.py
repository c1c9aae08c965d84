"""Count from topology: the number of pairs that one hop joins, without listing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omnigraph.execution.plan.rules.count_from_metadata import only_counts
from omnigraph.execution.plan.steps import CountEdges, Follow, Plan, Scan


def apply(plan: Plan, rows: Mapping[str, int]) -> Plan:
    """Answer a bare count over hops with nothing filtered."""
    follows = [step for step in plan.steps if isinstance(step, Follow)]
    scans = [step for step in plan.steps if isinstance(step, Scan)]
    if plan.shortcut is not None or not only_counts(plan) or not 1 <= len(follows) <= 2:
        return plan
    if len(follows) + len(scans) != len(plan.steps) or any(scan.conditions for scan in scans):
        return plan
    if not _chain(follows):
        return plan
    return replace(plan, shortcut=CountEdges(tuple(step.clause for step in follows)))


def _chain(follows: list[Follow]) -> bool:
    """Say whether the hops form a simple chain of single steps, each counted once for each pair."""
    clauses = [step.clause for step in follows]
    if any(c.hops.high != 1 or c.edge is not None or c.left == c.right for c in clauses):
        return False
    if len(clauses) == 1:
        return True
    first, second = clauses
    return first.right == second.left and second.right not in (first.left, first.right)
