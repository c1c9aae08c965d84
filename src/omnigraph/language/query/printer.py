"""Printer: a tree back to text, in one layout.

    text -> tree -> **text**

Room    language.query. Queries, clauses, outputs and statements keep their order; layout, comments and
        brackets that change nothing do not.
Rule    `parse(print_queries(parse(x))) == parse(x)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import assert_never

from omnigraph.language.query.tree import (
    Access,
    Aggregate,
    And,
    Arithmetic,
    Binding,
    Block,
    Call,
    Clause,
    Compare,
    Condition,
    CountBlock,
    Delete,
    Expr,
    Field,
    Filter,
    Insert,
    ListLiteral,
    Literal,
    LiteralKind,
    Member,
    Name,
    Not,
    Now,
    NullTest,
    Or,
    Output,
    Query,
    QueryFile,
    Read,
    Shortest,
    Sort,
    Statement,
    Traversal,
    Update,
    Var,
    Write,
)
from omnigraph.language.schema.arguments import quote

INDENT = "    "
_NEGATIVE = re.compile(r"\A-[0-9.]+")


def print_queries(file: QueryFile) -> str:
    """Return the text of a file."""
    return "\n".join(print_query(query) for query in file.queries)


def print_query(query: Query) -> str:
    """Return the text of one query."""
    params = ", ".join(f"${p.name.text}: {p.type}" for p in query.params)
    notes = "".join(f" @{note.name.text}({quote(note.text)})" for note in query.notes)
    body = _read(query.body) if isinstance(query.body, Read) else _write(query.body)
    lines = "\n".join(f"{INDENT}{line}" for line in body)
    return f"query {query.name.text}({params}){notes} {{\n{lines}\n}}\n"


# -- reads -------------------------------------------------------------------------------------------


def _read(read: Read) -> list[str]:
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


def _block(head: str, clauses: Iterable[Clause], tail: str = "") -> list[str]:
    inner = [f"{INDENT}{line}" for clause in clauses for line in _clause(clause)]
    return [f"{head} {{", *inner, f"}}{tail}"]


def _clause(clause: Clause) -> list[str]:
    match clause:
        case Binding(variable, name, fields):
            entries = f" {{ {_fields(fields)} }}" if fields else ""
            return [f"${variable.name}: {name.text}{entries}"]
        case Traversal():
            return [_traversal(clause)]
        case Filter(condition):
            # After the clause before it, a leading minus would subtract.
            return [_NEGATIVE.sub(r"(\g<0>)", _condition(condition))]
        case Block(kind, clauses):
            return _block(kind.value, clauses)
        case CountBlock(clauses, operator, number):
            return _block("count", clauses, f" {operator} {number}")
        case _:
            assert_never(clause)


def _traversal(traversal: Traversal) -> str:
    edge = f"<{traversal.edge.text}>" if traversal.undirected else traversal.edge.text
    if traversal.binding is not None:
        edge = f"${traversal.binding.name}:{edge}"
    bounds = traversal.bounds
    hops = "" if bounds is None else f"{{{bounds.low},{'' if bounds.high is None else bounds.high}}}"
    return f"${traversal.left.name} {edge}{hops} ${traversal.right.name}"


def _output(output: Output) -> str:
    alias = "" if output.alias is None else f" as {output.alias.text}"
    return f"{_expr(output.expression)}{alias}"


def _sort(sort: Sort) -> str:
    return f"{_expr(sort.expression)}{' desc' if sort.descending else ''}"


# -- writes ------------------------------------------------------------------------------------------


def _write(write: Write) -> list[str]:
    return [_statement(statement) for statement in write.statements]


def _statement(statement: Statement) -> str:
    match statement:
        case Insert(name, fields):
            return f"insert {name.text} {{ {_fields(fields)} }}"
        case Update(name, fields, where):
            return f"update {name.text} set {{ {_fields(fields)} }} where {_condition(where, bare=True)}"
        case Delete(name, where):
            return f"delete {name.text} where {_condition(where, bare=True)}"
        case _:
            assert_never(statement)


def _fields(fields: Iterable[Field]) -> str:
    return ", ".join(f"{field.name.text}: {_expr(field.value)}" for field in fields)


# -- conditions and expressions ----------------------------------------------------------------------


def _condition(condition: Condition, *, bare: bool = False) -> str:
    """Print a condition; a name is bare in `where`, and in brackets where a call could swallow a bracket."""

    def side(expression: Expr) -> str:
        text = _expr(expression)
        return f"({text})" if isinstance(expression, Name) and not bare else text

    match condition:
        case Compare(left, operator, right):
            return f"{side(left)} {operator} {side(right)}"
        case Member(left, right):
            return f"{side(left)} in {side(right)}"
        case NullTest(operand, negated):
            return f"{side(operand)} is {'not ' if negated else ''}null"
        case And(operands):
            parts = (_condition(o, bare=bare) for o in operands)
            return " and ".join(
                f"({p})" if isinstance(o, Or) else p for o, p in zip(operands, parts, strict=True)
            )
        case Or(operands):
            return " or ".join(_condition(o, bare=bare) for o in operands)
        case Not(inner):
            return f"not({_condition(inner, bare=bare)})"
        case Call():
            return _expr(condition)
        case _:
            assert_never(condition)


def _expr(expression: Expr) -> str:
    match expression:
        case Literal():
            return _literal(expression)
        case ListLiteral(items):
            return f"[{', '.join(_literal(item) for item in items)}]"
        case Var(name):
            return f"${name}"
        case Now():
            return "now()"
        case Access(variable, member, system):
            return f"${variable.name}.{'@' if system else ''}{member.text}"
        case Name(name):
            return name.text
        case Call(function, arguments):
            return f"{function.text}({', '.join(_expr(a) for a in arguments)})"
        case Aggregate(function, argument):
            return f"{function.text}({_expr(argument)})"
        case Arithmetic(left, operator, right):
            # Chains are read from the left, so only a right side needs brackets against its equals.
            before = _expr(left) if _tightness(left) >= _tightness(expression) else f"({_expr(left)})"
            after = _expr(right) if _tightness(right) > _tightness(expression) else f"({_expr(right)})"
            return f"{before} {operator} {after}"
        case Shortest(traversal):
            return f"shortest({_traversal(traversal)})"
        case _:
            assert_never(expression)


def _tightness(expression: Expr) -> int:
    if not isinstance(expression, Arithmetic):
        return 3
    return 2 if expression.operator in ("*", "/") else 1


def _literal(literal: Literal) -> str:
    match literal.kind:
        case LiteralKind.STRING:
            return quote(literal.text)
        case LiteralKind.DATE | LiteralKind.DATETIME:
            return f"{literal.kind.value}({quote(literal.text)})"
        case _:
            return literal.text
