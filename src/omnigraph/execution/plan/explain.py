"""Explain: a plan as people read it, and what each step really did.

`explain` describes the plan with estimates and runs nothing; `profile` runs it and adds rows, time, requests
and the choices made on the way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any, assert_never

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import counted
from omnigraph.catalog.query.expressions import And, Comparison, Direction, Hops
from omnigraph.catalog.query.statements import Counted, Exists, Expand, Optional
from omnigraph.execution.plan.statistics import RowCounts, Statistics, estimates
from omnigraph.execution.plan.steps import (
    CountEdges,
    CountRows,
    Follow,
    Inner,
    Intersect,
    JoinByValue,
    Keep,
    Lookup,
    Plan,
    Scan,
    Step,
    variables_of_value,
)
from omnigraph.storage.cost import process_totals

_ARROWS = {Direction.FORWARD: "-{}->", Direction.BACKWARD: "<-{}-", Direction.EITHER: "-{}-"}


@dataclass
class ExplainLine:
    """One operator of a plan."""

    operator: str
    detail: str
    estimate: int | None = None  # rows expected
    inner: list[ExplainLine] = field(default_factory=list)
    rows: int | None = None  # what it really left
    seconds: float | None = None
    requests: int | None = None
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the operator as plain JSON values; what is not known is left out."""
        described: dict[str, Any] = {"operator": self.operator, "detail": self.detail}
        for name in ("estimate", "rows", "seconds", "requests"):
            value = getattr(self, name)
            if value is not None:
                described[name] = round(value, 6) if name == "seconds" else value
        if self.notes:
            described["notes"] = self.notes
        if self.inner:
            described["inner"] = [line.to_json() for line in self.inner]
        return described


@dataclass(frozen=True)
class Explanation:
    """A plan, line by line; with figures if it was profiled."""

    query_name: str
    lines: tuple[ExplainLine, ...]
    commit_id: str

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as plain JSON values."""
        return {
            "query_name": self.query_name,
            "graph_commit_id": self.commit_id,
            "plan": [line.to_json() for line in self.lines],
        }

    def __str__(self) -> str:
        return "\n".join([f"query {self.query_name}", *_text(self.lines, "  ")])


def _text(lines: tuple[ExplainLine, ...] | list[ExplainLine], indent: str) -> Iterator[str]:
    for line in lines:
        figures = []
        if line.estimate is not None:
            figures.append(f"~{counted(line.estimate, 'row')}")
        if line.rows is not None and line.seconds is not None:
            requests = counted(line.requests or 0, "request")
            figures.append(f"{counted(line.rows, 'row')}, {line.seconds * 1000:.2f} ms, {requests}")
        shown = f"  ({'; '.join([*figures, *line.notes])})" if figures or line.notes else ""
        yield f"{indent}{line.operator} {line.detail}{shown}"
        yield from _text(line.inner, indent + "  ")


class Recorder:
    """Describes a plan, and takes down what its steps do while it runs."""

    def __init__(self, plan: Plan, rows: RowCounts) -> None:
        self._plan = plan
        self._expected = {id(step): made for step, made in estimates(plan.steps, Statistics(rows))}
        self._lines: dict[int, ExplainLine] = {}
        self._current: list[ExplainLine] = []
        self.steps = [self._line(step) for step in plan.steps]
        self.tail = [*_tail(plan)]

    @property
    def lines(self) -> tuple[ExplainLine, ...]:
        """The whole plan, in the order of running."""
        return (*self.steps, *self.tail)

    def note(self, text: str) -> None:
        """Remember a choice made by the step that runs."""
        if self._current and text not in self._current[-1].notes:
            self._current[-1].notes.append(text)

    @contextmanager
    def running(self, step: Step) -> Iterator[ExplainLine]:
        """Measure one step; the caller sets `rows`."""
        line = self._lines[id(step)]
        self._current.append(line)
        started, before = time.perf_counter(), process_totals().requests
        try:
            yield line
        finally:
            self._current.pop()
            line.seconds = (line.seconds or 0) + time.perf_counter() - started
            line.requests = (line.requests or 0) + process_totals().requests - before

    def _line(self, step: Step) -> ExplainLine:
        line = self._described(step)
        if self._plan.shortcut is None:  # else no row is made
            line.estimate = max(round(self._expected[id(step)]), 1)
        self._lines[id(step)] = line
        return line

    def _described(self, step: Step) -> ExplainLine:
        match step:
            case Scan():
                return ExplainLine("scan", _scan_text(step))
            case Lookup(variable, key):
                single = isinstance(key, Comparison)
                what = f"${variable.name}: {variable.type.name} by {'key' if single else 'keys'}"
                return ExplainLine("look up", what)
            case JoinByValue(scan, near):
                (of,) = variables_of_value(near) if len(variables_of_value(near)) == 1 else (None,)
                beside = "bound values" if of is None else f"a value of ${of.name}"
                return ExplainLine("join", f"{_scan_text(scan)}, by {beside}")
            case Follow(clause):
                return ExplainLine("follow", _clause_text(clause))
            case Intersect(_, clauses):
                return ExplainLine("intersect", " and ".join(map(_clause_text, clauses)))
            case Keep(condition):
                number = len(condition.operands) if isinstance(condition, And) else 1
                return ExplainLine("filter", "one condition" if number == 1 else f"{number} conditions")
            case Inner(clause, steps):
                return ExplainLine(
                    block_name(clause), "block", inner=[self._line(inner_step) for inner_step in steps]
                )
            case _:
                assert_never(step)


def _scan_text(scan: Scan) -> str:
    where = f", {len(scan.conditions)} conditions" if scan.conditions else ""
    where += f", {len(scan.pushed)} of them in the scan" if scan.pushed else ""
    return f"${scan.variable.name}: {scan.variable.type.name}{where}"


def _clause_text(clause: Expand) -> str:
    edge = "" if clause.edge is None else f" as ${clause.edge.name}"
    return f"${clause.left.name} {hops_arrow(clause.hops)} ${clause.right.name}{edge}"


def hops_arrow(hops: Hops) -> str:
    bounds = "" if (hops.low, hops.high) == (1, 1) else f"{{{hops.low},{hops.high}}}"
    return _ARROWS[hops.direction].format(f"{hops.edge.name}{bounds}")


def block_name(clause: Exists | Counted | Optional) -> str:
    match clause:
        case Exists(_, negated):
            return "not" if negated else "exists"
        case Counted(_, operator, number):
            return f"count {operator} {number}"
        case Optional():
            return "optional"


def _tail(plan: Plan) -> Iterator[ExplainLine]:
    read = plan.read
    match plan.shortcut:
        case CountRows():
            yield ExplainLine("count", "from the snapshot, no row is read", 1)
            return
        case CountEdges():
            yield ExplainLine("count", "from the degrees of the nodes", 1)
            return
        case None:
            pass
    if read.ranking is not None:
        yield ExplainLine("rank", type(read.ranking).__name__.lower())
    if read.keys is not None:
        yield ExplainLine("group", f"by {counted(len(read.keys), 'key')}" if read.keys else "all rows")
    if read.distinct:
        yield ExplainLine("distinct", "rows")
    cut = " and keep the first" if plan.top else ""
    yield ExplainLine("order", f"by {counted(len(read.order), 'key')}, then by ids{cut}")
    yield ExplainLine("return", ", ".join(output.name for output in read.outputs))
