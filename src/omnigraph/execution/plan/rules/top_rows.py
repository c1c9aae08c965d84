"""Top rows: an order that is cut after a few rows selects them instead of sorting all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omnigraph.execution.plan.steps import Plan


def apply(plan: Plan, rows: Mapping[str, int]) -> Plan:
    """Mark the plan where a limit cuts the order."""
    read = plan.read
    return replace(plan, top=read.limit is not None and not read.distinct)
