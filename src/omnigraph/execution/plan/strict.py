"""Strict: which reads are not run where many share a server: scans without an index, answers without bound.

A pure function of a plan. Types of few rows may be scanned: that costs less than what follows. An index that
the schema asks for counts, whether it is built already or not, so that the same query is always taken.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.base.errors import TooBroad
from omnigraph.catalog.model import TableType
from omnigraph.catalog.query.expressions import (
    Among,
    And,
    Bm25,
    Comparison,
    Condition,
    EntityField,
    EntityPart,
    Nearest,
    Or,
    Prefix,
    PropertyValue,
    Ranking,
    Rrf,
    TextMatch,
    Value,
    Variable,
)
from omnigraph.catalog.query.statements import CheckedRead, Optional
from omnigraph.execution.plan.statistics import RowCounts
from omnigraph.execution.plan.steps import (
    Follow,
    Inner,
    JoinByValue,
    Keep,
    Lookup,
    Plan,
    Scan,
    Step,
    binds,
)

FEW_ROWS = 10_000


def check_strict(plan: Plan, rows: RowCounts) -> None:
    """Raise TooBroad for a plan that scans without an index, or whose answer has no bound."""
    found = [] if plan.shortcut is not None else [*_scans(plan, rows)]
    if _is_unbounded(plan):
        found.append(("the answer has no bound", "add `limit`, or aggregate to one row"))
    if found:
        parts = [f"{part}: {remedy}" for part, remedy in found]
        raise TooBroad(
            f"query {plan.read.name}: {parts[0]}",
            remedy="This server is strict; narrow the query",
            problems=parts,
            parts=[part for part, _ in found],
        )


def _is_unbounded(plan: Plan) -> bool:
    """Say whether an answer may have any number of rows; one for each key that is looked up is a bound."""
    read = plan.read
    by_key = all(isinstance(step, Lookup | Keep | Inner) and not _adds(step) for step in plan.steps)
    return read.limit is None and read.keys != () and plan.shortcut is None and not by_key


def _adds(step: Step) -> bool:
    """Say whether a block makes more rows of one."""
    return isinstance(step, Inner) and isinstance(step.clause, Optional)


def _scans(plan: Plan, rows: RowCounts) -> Iterator[tuple[str, str]]:
    yield from _scanning(plan.steps, rows, frozenset(), _ranked(plan.read))


def _scanning(
    steps: tuple[Step, ...], rows: RowCounts, bound: frozenset[Variable], ranked: frozenset[Variable]
) -> Iterator[tuple[str, str]]:
    """Yield each scan of many rows that no index serves, and what to do about it."""
    for step in steps:
        match step:
            case Scan(variable, conditions) | JoinByValue(Scan(variable, conditions)):
                many = rows.get(variable.type.id, 0) > FEW_ROWS
                if many and variable not in bound | ranked and not any(map(_is_served, conditions)):
                    name = variable.type.name
                    remedy = f"name a key, or a property of {name} with @index"
                    yield f"${variable.name} scans every {name}", remedy
            case Follow(clause):
                edge = clause.hops.edge
                if rows.get(edge.id, 0) > FEW_ROWS and not {clause.left, clause.right} & bound:
                    yield f"{edge.name} is followed from every node", "begin at a node with a key"
            case Inner(_, inside):
                yield from _scanning(inside, rows, bound, ranked)
            case _:
                pass
        bound |= frozenset(binds(step))


def _ranked(read: CheckedRead) -> frozenset[Variable]:
    """Return the variable that a search finds through its index."""
    parts = _parts(read.ranking)
    served = bool(parts) and all(part.member.column in _indexed(part.variable.type) for part in parts)
    return frozenset(part.variable for part in parts) if served else frozenset()


def _parts(ranking: Ranking | None) -> tuple[Nearest | Bm25, ...]:
    match ranking:
        case Rrf(first, second):
            return (first, second)
        case Nearest() | Bm25():
            return (ranking,)
        case _:
            return ()


def _is_served(condition: Condition) -> bool:
    """Say whether an index finds the rows that meet a condition."""
    match condition:
        case And(operands):
            return any(map(_is_served, operands))
        case Or(operands):
            return all(map(_is_served, operands))
        case Comparison(left, operator, right):
            return operator != "!=" and (_is_found(left) or _is_found(right))
        case Among(left):
            return _is_found(left)
        case Prefix(left):
            return _is_found(left)
        case TextMatch(_, variable, member):
            return member.column in _indexed(variable.type)
        case _:
            return False


def _is_found(value: Value) -> bool:
    match value:
        case PropertyValue(variable, member):
            return member.column in _indexed(variable.type)
        case EntityField(_, part):
            return part is EntityPart.ID
        case _:
            return False


def _indexed(declared: TableType) -> frozenset[str]:
    return frozenset((*declared.looked_up, *(intent.column for intent in declared.index_intents)))
