"""Count from metadata: `match { $x: T } return { count($x) }` is known without reading a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omnigraph.catalog.query.expressions import Aggregate, AggregateFunction, Entity
from omnigraph.execution.plan.steps import CountRows, Plan, Scan


def apply(plan: Plan, rows: Mapping[str, int]) -> Plan:
    """Answer a bare count of one type from the snapshot."""
    if len(plan.steps) != 1 or not isinstance(plan.steps[0], Scan) or plan.steps[0].conditions:
        return plan
    scan = plan.steps[0]
    if not only_counts(plan) or len(plan.read.outputs) != 1:
        return plan
    return replace(plan, shortcut=CountRows(scan.variable.type.id))


def only_counts(plan: Plan) -> bool:
    """Say whether a plan returns one count of rows and nothing else."""
    read = plan.read
    if read.keys != () or read.ranking is not None or len(read.outputs) != 1:
        return False
    value = read.outputs[0].value
    return (
        isinstance(value, Aggregate)
        and value.function is AggregateFunction.COUNT
        and isinstance(value.argument, Entity)
    )
