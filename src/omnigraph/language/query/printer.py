"""Printer: a tree back to text, in one layout.

    text -> tree -> **text**

Queries, clauses, outputs and statements keep their order; layout, comments and brackets that change nothing
do not.

Always `parse(print_queries(parse(x))) == parse(x)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import assert_never

from omnigraph.language.literals import LiteralKind, LiteralSyntax, quote
from omnigraph.language.query.tree import (
    AccessSyntax,
    AggregateSyntax,
    AndSyntax,
    ArithmeticSyntax,
    BindingSyntax,
    BlockSyntax,
    CallSyntax,
    ClauseSyntax,
    CompareSyntax,
    ConditionSyntax,
    CountBlockSyntax,
    DeleteSyntax,
    ExprSyntax,
    FieldSyntax,
    FilterSyntax,
    InsertSyntax,
    ListSyntax,
    MemberSyntax,
    NameSyntax,
    NotSyntax,
    NowSyntax,
    NullTestSyntax,
    OrSyntax,
    OutputSyntax,
    QueryFileSyntax,
    QuerySyntax,
    ReadSyntax,
    ShortestSyntax,
    SortSyntax,
    StatementSyntax,
    TraversalSyntax,
    UpdateSyntax,
    VarSyntax,
    WriteSyntax,
)

INDENT = "    "
_NEGATIVE = re.compile(r"\A-[0-9.]+")


def print_queries(file: QueryFileSyntax) -> str:
    """Return the text of a file."""
    return "\n".join(print_query(query) for query in file.queries)


def print_query(query: QuerySyntax) -> str:
    """Return the text of one query."""
    params = ", ".join(f"${p.name.text}: {p.type}" for p in query.params)
    notes = "".join(f" @{note.name.text}({quote(note.text)})" for note in query.notes)
    body = _read(query.body) if isinstance(query.body, ReadSyntax) else _write(query.body)
    lines = "\n".join(f"{INDENT}{line}" for line in body)
    return f"query {query.name.text}({params}){notes} {{\n{lines}\n}}\n"


# -- reads -------------------------------------------------------------------------------------------


def _read(read: ReadSyntax) -> list[str]:
    distinct = "distinct " if read.distinct else ""
    lines = [*_block("match", read.clauses)]
    lines.append(f"return {distinct}{{ {', '.join(_output(o) for o in read.outputs)} }}")
    if read.order:
        lines.append(f"order {{ {', '.join(_sort(s) for s in read.order)} }}")
    if read.limit is not None:
        lines.append(f"limit {_expr(read.limit)}")
    if read.offset is not None:
        lines.append(f"offset {_expr(read.offset)}")
    return lines


def _block(head: str, clauses: Iterable[ClauseSyntax], tail: str = "") -> list[str]:
    inner = [f"{INDENT}{line}" for clause in clauses for line in _clause(clause)]
    return [f"{head} {{", *inner, f"}}{tail}"]


def _clause(clause: ClauseSyntax) -> list[str]:
    match clause:
        case BindingSyntax(variable, name, fields):
            entries = f" {{ {_fields(fields)} }}" if fields else ""
            return [f"${variable.name}: {name.text}{entries}"]
        case TraversalSyntax():
            return [_traversal(clause)]
        case FilterSyntax(condition):
            # After the clause before it, a leading minus would subtract.
            return [_NEGATIVE.sub(r"(\g<0>)", _condition(condition))]
        case BlockSyntax(kind, clauses):
            return _block(kind.value, clauses)
        case CountBlockSyntax(clauses, operator, number):
            return _block("count", clauses, f" {operator} {number}")
        case _:
            assert_never(clause)


def _traversal(traversal: TraversalSyntax) -> str:
    edge = f"<{traversal.edge.text}>" if traversal.undirected else traversal.edge.text
    if traversal.binding is not None:
        edge = f"${traversal.binding.name}:{edge}"
    bounds = traversal.bounds
    hops = "" if bounds is None else f"{{{bounds.low},{'' if bounds.high is None else bounds.high}}}"
    return f"${traversal.left.name} {edge}{hops} ${traversal.right.name}"


def _output(output: OutputSyntax) -> str:
    alias = "" if output.alias is None else f" as {output.alias.text}"
    return f"{_expr(output.expression)}{alias}"


def _sort(sort: SortSyntax) -> str:
    return f"{_expr(sort.expression)}{' desc' if sort.descending else ''}"


# -- writes ------------------------------------------------------------------------------------------


def _write(write: WriteSyntax) -> list[str]:
    return [_statement(statement) for statement in write.statements]


def _statement(statement: StatementSyntax) -> str:
    match statement:
        case InsertSyntax(name, fields):
            return f"insert {name.text} {{ {_fields(fields)} }}"
        case UpdateSyntax(name, fields, where):
            return f"update {name.text} set {{ {_fields(fields)} }} where {_condition(where, bare=True)}"
        case DeleteSyntax(name, where):
            return f"delete {name.text} where {_condition(where, bare=True)}"
        case _:
            assert_never(statement)


def _fields(fields: Iterable[FieldSyntax]) -> str:
    return ", ".join(f"{field.name.text}: {_expr(field.value)}" for field in fields)


# -- conditions and expressions ----------------------------------------------------------------------


def _condition(condition: ConditionSyntax, *, bare: bool = False) -> str:
    """Print a condition; a name is bare in `where`, and in brackets where a call could swallow a bracket."""

    def side(expression: ExprSyntax) -> str:
        text = _expr(expression)
        return f"({text})" if isinstance(expression, NameSyntax) and not bare else text

    match condition:
        case CompareSyntax(left, operator, right):
            return f"{side(left)} {operator} {side(right)}"
        case MemberSyntax(left, right):
            return f"{side(left)} in {side(right)}"
        case NullTestSyntax(operand, negated):
            return f"{side(operand)} is {'not ' if negated else ''}null"
        case AndSyntax(operands):
            parts = (_condition(o, bare=bare) for o in operands)
            return " and ".join(
                f"({p})" if isinstance(o, OrSyntax) else p for o, p in zip(operands, parts, strict=True)
            )
        case OrSyntax(operands):
            return " or ".join(_condition(o, bare=bare) for o in operands)
        case NotSyntax(inner):
            return f"not({_condition(inner, bare=bare)})"
        case CallSyntax():
            return _expr(condition)
        case _:
            assert_never(condition)


def _expr(expression: ExprSyntax) -> str:
    match expression:
        case LiteralSyntax():
            return _literal(expression)
        case ListSyntax(items):
            return f"[{', '.join(_literal(item) for item in items)}]"
        case VarSyntax(name):
            return f"${name}"
        case NowSyntax():
            return "now()"
        case AccessSyntax(variable, member, system):
            return f"${variable.name}.{'@' if system else ''}{member.text}"
        case NameSyntax(name):
            return name.text
        case CallSyntax(function, arguments):
            return f"{function.text}({', '.join(_expr(a) for a in arguments)})"
        case AggregateSyntax(function, argument):
            return f"{function.text}({_expr(argument)})"
        case ArithmeticSyntax(left, operator, right):
            # Chains are read from the left, so only a right side needs brackets against its equals.
            before = _expr(left) if _tightness(left) >= _tightness(expression) else f"({_expr(left)})"
            after = _expr(right) if _tightness(right) > _tightness(expression) else f"({_expr(right)})"
            return f"{before} {operator} {after}"
        case ShortestSyntax(traversal):
            return f"shortest({_traversal(traversal)})"
        case _:
            assert_never(expression)


def _tightness(expression: ExprSyntax) -> int:
    if not isinstance(expression, ArithmeticSyntax):
        return 3
    return 2 if expression.operator in ("*", "/") else 1


def _literal(literal: LiteralSyntax) -> str:
    match literal.kind:
        case LiteralKind.STRING:
            return quote(literal.text)
        case LiteralKind.DATE | LiteralKind.DATETIME:
            return f"{literal.kind.value}({quote(literal.text)})"
        case _:
            return literal.text
