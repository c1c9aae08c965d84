"""Each rule rewrites the plans of rules.txt as written there, and has a case that it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph.catalog.query import compile_query
from omnigraph.catalog.query import expressions as e
from omnigraph.catalog.query.statements import CheckedRead, Expand
from omnigraph.execution.plan.explain import block_name, hops_arrow
from omnigraph.execution.plan.rules import RULES, plan
from omnigraph.execution.plan.statistics import Statistics
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
)
from tests.support.catalogs import catalog

FIXTURES = Path(__file__).parent / "rules.txt"
UNCHANGED = ["unchanged"]


@dataclass(frozen=True)
class RuleCase:
    """A query, and its plan before and after one rule, as lines of text."""

    rule: str
    title: str
    earlier: frozenset[str]  # the rules that ran before
    query: str
    before: list[str]
    after: list[str]

    def __str__(self) -> str:
        return f"{self.rule}: {self.title}"


def read_fixtures() -> tuple[str, dict[str, int], list[RuleCase]]:
    """Return the schema, the rows of each type and the cases."""
    blocks = FIXTURES.read_text().split("\n\n")
    common = sections(blocks[0])
    rows = {name: int(count) for name, count in (line.split() for line in common["rows"])}
    return "\n".join(common["schema"]), rows, [rule_case(block) for block in blocks[1:] if block.strip()]


def rule_case(block: str) -> RuleCase:
    found = sections(block)
    (head,) = (word for word in found if ": " in word)
    rule, title = head.split(": ", 1)
    after_rules = frozenset(found.get("after the rules", ()))
    return RuleCase(rule, title, after_rules, "\n".join(found["query"]), found["before"], found["after"])


def sections(block: str) -> dict[str, list[str]]:
    """Return the indented lines under each word at the margin."""
    lines_of: dict[str, list[str]] = {}
    word = ""
    for line in block.splitlines():
        if line.startswith("  "):
            lines_of[word].append(line[2:])
        elif not line.startswith("#"):
            word = line
            lines_of[word] = []
    return lines_of


SCHEMA, ROWS, CASES = read_fixtures()
CATALOG = catalog(SCHEMA)
SIZES = {declared.id: ROWS[declared.name] for declared in CATALOG.tables}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_rewrites_a_plan_as_written(case: RuleCase) -> None:
    read = compile_query(f"query q($x: String, $xs: [String]) {{ {case.query} }}", CATALOG)
    assert isinstance(read, CheckedRead)
    before = plan(read, SIZES, case.earlier)
    after = RULES[case.rule](before, Statistics(SIZES))

    assert [*plan_lines(before)] == case.before
    assert [*plan_lines(after)] == (case.before if case.after == UNCHANGED else case.after)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_a_plan_that_it_changes_and_one_that_it_leaves(rule: str) -> None:
    assert {case.after == UNCHANGED for case in CASES if case.rule == rule} == {True, False}


# -- plans as text


def plan_lines(shown: Plan) -> Iterator[str]:
    """Yield everything that rules decide."""
    yield from step_lines(shown.steps, "")
    match shown.shortcut:
        case CountRows(type_id):
            yield f"shortcut: the rows of {CATALOG.table(type_id).name}"
        case CountEdges(clauses, _, conditions):
            yield f"shortcut: degrees of {', '.join(clause.hops.edge.name for clause in clauses)}"
            for variable, listed in conditions:
                yield f"  of ${variable.name} where {conjunction(listed)}"
    if shown.top:
        yield "first rows only"


def step_lines(steps: tuple[Step, ...], indent: str) -> Iterator[str]:
    for step in steps:
        match step:
            case Scan(variable, conditions, pushed):
                where = f" where {conjunction(conditions)}" if conditions else ""
                yield f"{indent}scan ${variable.name}: {variable.type.name}{where}"
                if pushed:
                    yield f"{indent}  by {conjunction(pushed)}"
            case Lookup(variable, key, conditions):
                where = f" where {conjunction(conditions)}" if conditions else ""
                key_text = condition_text(key)
                yield f"{indent}look up ${variable.name}: {variable.type.name} by {key_text}{where}"
            case JoinByValue(scan, near, far, conditions):
                by = f"{value_text(near)} = {value_text(far)}"
                yield f"{indent}join by {by} where {conjunction(conditions)}"
                yield from step_lines((scan,), indent + "  ")
            case Follow(clause):
                yield f"{indent}follow {clause_text(clause)}"
            case Intersect(variable, clauses):
                yield f"{indent}intersect ${variable.name}"
                yield from (f"{indent}  {clause_text(clause)}" for clause in clauses)
            case Keep(condition):
                yield f"{indent}keep {condition_text(condition)}"
            case Inner(clause, inner):
                yield f"{indent}{block_name(clause)}"
                yield from step_lines(inner, indent + "  ")
        if step.drops:
            yield f"{indent}  drop {', '.join(f'${variable.name}' for variable in step.drops)}"


def clause_text(clause: Expand) -> str:
    edge = "" if clause.edge is None else f" as ${clause.edge.name}"
    return f"${clause.left.name} {hops_arrow(clause.hops)} ${clause.right.name}{edge}"


def conjunction(conditions: tuple[e.Condition, ...]) -> str:
    return " and ".join(map(condition_text, conditions))


def condition_text(condition: e.Condition) -> str:
    match condition:
        case e.Comparison(left, operator, right):
            return f"{value_text(left)} {operator} {value_text(right)}"
        case e.Among(left, items) if isinstance(items, tuple):
            return f"{value_text(left)} in [{', '.join(map(value_text, items))}]"
        case e.Among(left, e.ParamRef() as items):
            return f"{value_text(left)} in {value_text(items)}"
        case e.Prefix(left, right):
            return f"{value_text(left)} starts with {value_text(right)}"
        case e.IsNull(operand, negated):
            return f"{value_text(operand)} is {'not ' if negated else ''}null"
        case e.And(operands):
            return f"({' and '.join(map(condition_text, operands))})"
        case e.Or(operands):
            return f"({' or '.join(map(condition_text, operands))})"
        case e.Not(operand):
            return f"not {condition_text(operand)}"
        case _:
            raise AssertionError(f"no fixture has had {condition!r} so far")


def value_text(value: e.Value) -> str:
    match value:
        case e.Constant(stored):
            return str(stored)
        case e.ParamRef(parameter):
            return f"${parameter.name}"
        case e.PropertyValue(variable, member):
            return f"${variable.name}.{member.name}"
        case e.EntityValue(variable):
            return f"${variable.name}"
        case _:
            raise AssertionError(f"no fixture has had {value!r} so far")
